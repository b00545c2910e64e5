"""``split-merge``: one RVM on each of ⌈N/P⌉ partitions, then on the joined vectors of pairs of fits.

The fits of a level are independent and run side by side, as many as ``Options.batch`` allows. If the number of fits is
odd, the last one is merged a level later. The merge of the last two fits is the last fit of the run. Until then, the
saved model is the fit with the highest evidence per row, which is also the result of a run that is stopped.

If the fits keep more than half of their candidates, merged sets grow. Before each merge they are reduced to
``max_vectors`` and to the size that memory allows: the vectors with the smallest evidence in their previous fits are
left out. The kernel is never learned again, since one kernel would have to suit all partitions at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from partirvm.kernels.design import Design
from partirvm.likelihoods import AnyLikelihood
from partirvm.likelihoods.base import Begin, FitStart, labels_of, survivors
from partirvm.planning.schedule import Schedule
from partirvm.strategies.fit_rows import partition, posterior_rows
from partirvm.strategies.incremental import BasicRound
from partirvm.strategies.instructions import (
    Event,
    Finish,
    Gather,
    Gathered,
    Instruction,
    Log,
    Passed,
    Save,
    Solved,
    Stop,
)
from partirvm.strategies.new_columns import fresh, left_out
from partirvm.strategies.problem import Options, Problem
from partirvm.strategies.rounds import AnyScores, Phase, RoundsState, record
from partirvm.strategies.rules import intermediate_rule
from partirvm.strategies.selection import partition_count

Float = NDArray[np.float64]
Int = NDArray[np.int64]

LAST = BasicRound()
"""Strategy of the last fit."""


@dataclass(frozen=True)
class Part:
    """Result of one fit: vectors, the evidence that each one contributes (``gain``, nats), and α and β (``warm``)."""

    design: Design
    gain: Float
    warm: FitStart


@dataclass(frozen=True)
class SplitMergeState:
    """The checkpoint before the last fit.

    ``parts`` are the finished fits of this level, and ``below`` the fits of the level below that are not merged yet.
    ``designs`` are the columns of the fits that are running, ``starts`` their initial values and ``solved`` their
    results. ``partitions`` is the number of partitions fitted or requested so far. ``best`` is the evidence per row
    (nats) of the last saved model.
    """

    problem: Problem
    options: Options
    phase: Phase = Phase.ROWS
    level: int = 0
    partitions: int = 0
    below: tuple[Part, ...] = ()
    parts: tuple[Part, ...] = ()
    designs: tuple[Design, ...] = ()
    starts: tuple[object, ...] = ()
    solved: tuple[Solved, ...] = ()
    duplicates: int = 0
    dropped: int = 0
    best: float = -np.inf


State: TypeAlias = SplitMergeState | RoundsState
Answer: TypeAlias = tuple[State, tuple[Instruction, ...]]


class SplitMergeLevels:
    """The split-and-merge strategy of Ben-Shimon & Shmilovici (2006, §2.1)."""

    name = "split-merge"
    schedule: ClassVar[Schedule] = Schedule(name, whole_partitions=True, merges=True)

    def start(self, problem: Problem, options: Options) -> Answer:
        """Request the first partitions; for a single partition or a constant target, begin the last fit."""
        if not problem.target_variance or partition_count(problem.n_rows, problem.rows_of(options.partition_size)) == 1:
            return LAST.start(problem, options)
        return _split(SplitMergeState(problem, options))

    def next(self, state: State, *events: Event) -> Answer:
        """Return the state and the instructions that follow these events."""
        if isinstance(state, RoundsState):
            return LAST.next(state, *events)
        if isinstance(events[0], Stop):
            return replace(state, phase=Phase.OVER), (Finish(events[0].reason),)
        answer: Answer = _HANDLERS[state.phase](state, *events)
        return answer


def _split(state: SplitMergeState) -> Answer:
    """Request the rows of the next partitions."""
    rows = [_rows(state, number) for number in _batch(state)]
    return replace(state, phase=Phase.ROWS), (Gather(np.concatenate(rows)),)


def _count(state: SplitMergeState) -> int:
    return partition_count(state.problem.n_rows, state.problem.rows_of(state.options.partition_size))


def _batch(state: SplitMergeState) -> range:
    """Return the numbers of the next partitions, as many as may be fitted side by side."""
    count = max(state.options.batch // (state.options.partition_size + _beside(state)) ** 2, 1)
    return range(state.partitions, min(state.partitions + count, _count(state)))


def _beside(state: SplitMergeState) -> int:
    """Return the number of leading columns of a fit (the bias and explicit basis functions), at least 1."""
    return max(len(state.problem.leading), 1)


def _rows(state: SplitMergeState, number: int) -> Int:
    return partition(state.problem, state.options, number)


def _on_rows(state: SplitMergeState, event: Gathered) -> Answer:
    empty, start = state.problem.empty, 0
    designs: list[Design] = []
    for number in _batch(state):
        rows = _rows(state, number)
        here, start = slice(start, start + len(rows)), start + len(rows)
        present = slice(None) if event.present is None else event.present[here]
        points, rows = event.points[here][present], rows[present]
        chosen = empty.with_centres(points, rows)
        new = chosen.take(fresh(chosen, empty), leading=state.problem.leading)
        state = replace(state, partitions=number + 1, duplicates=state.duplicates + left_out(chosen, new))
        if len(new.labels):
            designs.append(new)
    return _measure(state, designs, [None] * len(designs)) if designs else _on_saved(state)


def _measure(state: SplitMergeState, designs: Sequence[Design], starts: Sequence[object]) -> Answer:
    """Request the statistics of these fits."""
    problem, likelihood = state.problem, state.problem.likelihood
    rows, nothing = posterior_rows(problem, state.options, state.options.fit_rows), likelihood.start(problem)
    passes: list[Instruction] = []
    for design in designs:
        passes += likelihood.measure(nothing, problem.empty, design, rows)
    state = replace(state, phase=Phase.GRAM, designs=tuple(designs), starts=tuple(starts))
    return (state, tuple(passes)) if passes else _on_gram(state)


def _on_gram(state: SplitMergeState, *events: Passed) -> Answer:
    """Request the fits of this batch; intermediate fits need no residual pass for full precision."""
    problem, options, likelihood = state.problem, state.options, state.problem.likelihood
    each, fits = len(events) // len(state.designs), []
    rows = posterior_rows(problem, options, options.fit_rows)
    for k, (design, start) in enumerate(zip(state.designs, state.starts, strict=True)):
        blocks = [event.statistic for event in events[each * k : each * (k + 1)]]
        fit = likelihood.join(problem, likelihood.start(problem), problem.empty, design, *blocks, warm=start)
        count = len(design.labels)
        begin = Begin(replace(intermediate_rule(options, count), guard=False), count, rows, start)
        fits.append(likelihood.fit(problem, options, design, fit, begin))
    return replace(state, phase=Phase.FIT), tuple(fits)


def _on_fit(state: SplitMergeState, *events: Solved) -> Answer:
    if not state.problem.held_out:
        return _log(replace(state, solved=events))
    passes = (
        state.problem.likelihood.score(survivors(design, event.fit), event.fit, state.options.moderate)
        for design, event in zip(state.designs, events, strict=True)
    )
    return replace(state, phase=Phase.SCORE, solved=events), tuple(passes)


def _on_score(state: SplitMergeState, *events: Passed) -> Answer:
    return _log(state, [event.statistic for event in events])


def _log(state: SplitMergeState, scores: Sequence[AnyScores] = ()) -> Answer:
    first = len(state.parts)
    lines = [
        record(
            state.problem,
            solved.fit,
            scores[k] if scores else None,
            kind="part",
            number=first + k + 1,
            candidates=len(state.designs[k].labels),
            termination=solved.reason,
            selection="order",
            fit_rows=state.options.fit_rows,
            level=state.level,
            duplicates=state.duplicates,
            dropped=state.dropped,
        )
        for k, solved in enumerate(state.solved)
    ]
    parts = tuple(_part(state.problem.likelihood, *pair) for pair in zip(state.designs, state.solved, strict=True))
    requests: list[Instruction] = []
    best = state.best
    for part, solved, line in zip(parts, state.solved, lines, strict=True):
        evidence = solved.fit.log_evidence / max(solved.fit.n, 1)
        better, best = evidence > best, max(evidence, best)
        requests.append(Save(part.design, solved.fit, line, state.options.moderate) if better else Log(line))
    state = replace(state, phase=Phase.SAVED, parts=state.parts + parts, designs=(), starts=(), solved=(), best=best)
    return state, tuple(requests)


def _part(likelihood: AnyLikelihood, design: Design, solved: Solved) -> Part:
    fit = solved.fit
    return Part(survivors(design, fit), fit.losses()[fit.labels >= 0], likelihood.warm(fit))


def _on_saved(state: SplitMergeState, *events: Event) -> Answer:
    """Request the next batch of this level, or begin the next level."""
    if state.level == 0 and state.partitions < _count(state):
        return _split(state)
    if len(state.below) > 1:
        return _merge(state)
    state = replace(state, level=state.level + 1, below=state.parts + state.below, parts=())
    return _merge(state) if len(state.below) > 2 else _last(state)


def _merge(state: SplitMergeState) -> Answer:
    """Request the merges of the next pairs of fits of the level below."""
    designs: list[Design] = []
    starts: list[object] = []
    elements = 0
    while len(state.below) > 1:
        left, right = state.below[:2]
        design, duplicates, dropped = _joined(left, right, state)
        elements += (len(design.labels) + _beside(state)) ** 2
        if designs and elements > state.options.batch:
            break
        designs.append(design)
        starts.append(left.warm.merge(right.warm, labels_of(design)))
        state = replace(
            state,
            below=state.below[2:],
            duplicates=state.duplicates + duplicates,
            dropped=state.dropped + dropped,
        )
    return _measure(state, designs, starts)


def _last(state: SplitMergeState) -> Answer:
    """Begin the last fit, on the merge of the last two parts.

    There is only one part if all rows of the other partitions have weight 0.
    """
    left, *rest = state.below
    design, start, duplicates, dropped = left.design, left.warm, 0, 0
    for right in rest:
        design, duplicates, dropped = _joined(left, right, state)
        start = left.warm.merge(right.warm, labels_of(design))
    last = LAST.first(state.problem, state.options)
    last = replace(last, selection="order", duplicates=state.duplicates + duplicates, dropped=state.dropped + dropped)
    return LAST.last_fit(last, design, start)


def _joined(left: Part, right: Part, state: SplitMergeState) -> tuple[Design, int, int]:
    """Return the joined columns of two parts, and the numbers of duplicates and of vectors dropped for a limit."""
    options = state.options
    new = fresh(right.design, left.design)
    design = left.design.join(right.design.take(new)).led_by(state.problem.leading)
    duplicates = len(right.design.labels) - len(new)
    columns = np.inf if options.max_columns is None else options.max_columns - _beside(state)
    room = min(columns, np.inf if options.max_vectors is None else options.max_vectors)
    if len(design.labels) <= room:
        return design, duplicates, 0
    gain = np.concatenate([left.gain, right.gain[new]])
    best = np.sort(np.argsort(-gain, kind="stable")[: int(room)])
    return design.take(best), duplicates, len(gain) - len(best)


_HANDLERS: dict[Phase, Callable[..., Answer]] = {
    Phase.ROWS: _on_rows,
    Phase.GRAM: _on_gram,
    Phase.FIT: _on_fit,
    Phase.SCORE: _on_score,
    Phase.SAVED: _on_saved,
}
