"""``split-merge``: an RVM on each of ⌈N/P⌉ partitions, then on the vectors of each two neighbours, until one is left.

The fits of a level do not depend on each other and run side by side, as many as ``Options.batch`` allows; an odd part
waits a level. The last merge is the last fit. Until then the model is the best part so far, by the evidence of a row: a
run that is stopped leaves that. Where vectors do not halve,
merged sets grow: before each merge they are held to ``max_vectors`` and to memory by leaving out the vectors whose loss
costs their own fit least evidence. A kernel that was learned stays: another one
would have to suit all parts at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from partirvm.kernels.design import Design
from partirvm.likelihoods import AnyLikelihood
from partirvm.likelihoods.base import Begin
from partirvm.likelihoods.columns import labels_of, survivors
from partirvm.planning.schedule import ByLevel, Schedule
from partirvm.strategies.fit_rows import measuring, partition, posterior_rows
from partirvm.strategies.incremental import Basic
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

LAST = Basic()
"""Carries out the last fit."""


@dataclass(frozen=True)
class Part:
    """Vectors that a fit left, the evidence that the loss of each would cost it (``gain``, nats), its α and β."""

    design: Design
    gain: Float
    warm: object


@dataclass(frozen=True)
class SplitMergeState:
    """The checkpoint before the last fit.

    ``below`` are the parts of the level below that are not merged yet, ``parts`` those of this level that are done;
    ``designs`` are the columns of the fits under way, ``starts`` where these begin and ``solved`` how they ended.
    ``partitions`` are split off so far. ``best`` is the evidence of a row, nats, of the part that was saved last.
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


class SplitMerge:
    """The split-and-merge strategy of Ben-Shimon & Shmilovici (2006, §3.2)."""

    name = "split-merge"
    schedule: ClassVar[Schedule] = ByLevel(name)

    def start(self, problem: Problem, options: Options) -> Answer:
        """The first partitions. A single one is the last fit, and a constant target needs none."""
        if not problem.target_variance or partition_count(problem.n_rows, problem.rows_of(options.partition_size)) == 1:
            return LAST.start(problem, options)
        return _split(SplitMergeState(problem, options))

    def next(self, state: State, *events: Event) -> Answer:
        """What to do after the answers to the last instructions."""
        if isinstance(state, RoundsState):
            return LAST.next(state, *events)
        if isinstance(events[0], Stop):
            return replace(state, phase=Phase.OVER), (Finish(events[0].reason),)
        answer: Answer = _HANDLERS[state.phase](state, *events)
        return answer


def _split(state: SplitMergeState) -> Answer:
    """Ask for the rows of the next few partitions."""
    rows = [_rows(state, number) for number in _batch(state)]
    return replace(state, phase=Phase.ROWS), (Gather(np.concatenate(rows)),)


def _count(state: SplitMergeState) -> int:
    return partition_count(state.problem.n_rows, state.problem.rows_of(state.options.partition_size))


def _batch(state: SplitMergeState) -> range:
    """Numbers of the partitions that come next: as many as may be fitted side by side."""
    count = max(state.options.batch // (state.options.partition_size + _beside(state)) ** 2, 1)
    return range(state.partitions, min(state.partitions + count, _count(state)))


def _beside(state: SplitMergeState) -> int:
    """Columns beside the candidates of a fit: the bias, or room for it, and functions."""
    return max(len(state.problem.leading), 1)


def _rows(state: SplitMergeState, number: int) -> Int:
    return partition(state.problem, state.options, number)


def _on_rows(state: SplitMergeState, event: Gathered) -> Answer:
    empty, start = state.problem.empty, 0
    designs: list[Design] = []
    for number in _batch(state):
        rows = _rows(state, number)
        here, start = slice(start, start + len(rows)), start + len(rows)
        there = slice(None) if event.present is None else event.present[here]
        points, rows = event.points[here][there], rows[there]
        chosen = empty.with_centres(points, rows)
        new = chosen.take(fresh(chosen, empty), leading=state.problem.leading)
        state = replace(state, partitions=number + 1, duplicates=state.duplicates + left_out(chosen, new))
        if len(new.labels):
            designs.append(new)
    likelihood = state.problem.likelihood
    cold = likelihood.warm(likelihood.start(state.problem))
    return _measure(state, designs, [cold] * len(designs)) if designs else _on_saved(state)


def _measure(state: SplitMergeState, designs: Sequence[Design], starts: Sequence[object]) -> Answer:
    """Ask for the statistics of these fits."""
    passes: list[Instruction] = []
    for design in designs:
        passes += measuring(state.problem, state.options, state.options.fit_rows, design)
    state = replace(state, phase=Phase.GRAM, designs=tuple(designs), starts=tuple(starts))
    return (state, tuple(passes)) if passes else _on_gram(state)


def _on_gram(state: SplitMergeState, *events: Passed) -> Answer:
    """Fit side by side. No fit needs its last digits, so none asks for a residual pass."""
    problem, options, likelihood = state.problem, state.options, state.problem.likelihood
    each, fits = len(events) // len(state.designs), []
    for k, (design, start) in enumerate(zip(state.designs, state.starts, strict=True)):
        blocks = [event.statistic for event in events[each * k : each * (k + 1)]]
        fit = likelihood.restart(problem, options, likelihood.start(problem), start, design, *blocks)
        count = len(design.labels)
        rows = posterior_rows(problem, options, options.fit_rows, design)
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
    told: list[Instruction] = []
    best = state.best
    for part, solved, line in zip(parts, state.solved, lines, strict=True):
        evidence = solved.fit.log_evidence / max(solved.fit.n, 1)
        better, best = evidence > best, max(evidence, best)
        told.append(Save(part.design, solved.fit, line, state.options.moderate) if better else Log(line))
    state = replace(state, phase=Phase.SAVED, parts=state.parts + parts, designs=(), starts=(), solved=(), best=best)
    return state, tuple(told)


def _part(likelihood: AnyLikelihood, design: Design, solved: Solved) -> Part:
    fit = solved.fit
    return Part(survivors(design, fit), fit.losses()[fit.labels >= 0], likelihood.warm(fit))


def _on_saved(state: SplitMergeState, *events: Event) -> Answer:
    """The next batch of this level, or the next level."""
    if state.level == 0 and state.partitions < _count(state):
        return _split(state)
    if len(state.below) > 1:
        return _merge(state)
    state = replace(state, level=state.level + 1, below=state.parts + state.below, parts=())
    return _merge(state) if len(state.below) > 2 else _last(state)


def _merge(state: SplitMergeState) -> Answer:
    """The next few pairs of the level below."""
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
        starts.append(state.problem.likelihood.merge(left.warm, right.warm, labels_of(design)))
        state = replace(
            state,
            below=state.below[2:],
            duplicates=state.duplicates + duplicates,
            dropped=state.dropped + dropped,
        )
    return _measure(state, designs, starts)


def _last(state: SplitMergeState) -> Answer:
    """The merge of the last two parts is the last fit; a part is left alone where all other rows have no weight."""
    left, *rest = state.below
    design, start, duplicates, dropped = left.design, left.warm, 0, 0
    for right in rest:
        design, duplicates, dropped = _joined(left, right, state)
        start = state.problem.likelihood.merge(left.warm, right.warm, labels_of(design))
    last = LAST.first(state.problem, state.options)
    last = replace(last, selection="order", duplicates=state.duplicates + duplicates, dropped=state.dropped + dropped)
    return LAST.last_fit(last, design, start)


def _joined(left: Part, right: Part, state: SplitMergeState) -> tuple[Design, int, int]:
    """The columns of both and the leading ones, how many were duplicates, and how many had to go for a limit."""
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
