"""``split-merge``: one RVM on each of ⌈N/P⌉ partitions, then on the joined vectors of pairs of fits.

The fits of a level are independent and run side by side, as many as ``Options.batch`` allows. If the number of fits is
odd, the last one is merged a level later. The merge of the last two fits is the last fit of the run. Until then, the
saved model is the fit with the highest evidence per row, which is also the result of a run that is stopped.

If the fits keep more than half of their candidates, merged sets grow. Before each merge they are reduced to
``max_vectors`` and to the size that memory allows: the vectors with the smallest evidence in their previous fits are
left out. The kernel is never learned again, since one kernel would have to suit all partitions at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from partirvm.core.termination import Termination
from partirvm.kernels.design import Design
from partirvm.likelihoods.base import Begin, Start, labels_of, survivors
from partirvm.planning.cost import Schedule
from partirvm.strategies.fit_rows import count_duplicates, fresh, partition, partition_count, posterior_rows
from partirvm.strategies.problem import Gather, Instruction, Log, Options, Problem, Save, Steps
from partirvm.strategies.rounds import BasicRound
from partirvm.strategies.stages import (
    RoundsState,
    final_rule,
    intermediate_rule,
    measured,
    performed,
    record,
    saved,
    scored,
    settled,
    solved,
)

Float = NDArray[np.float64]


@dataclass(frozen=True)
class Part:
    """Result of one fit: vectors, the evidence that each one contributes (``gain``, nats), and α and β (``warm``)."""

    design: Design
    gain: Float
    warm: Start


@dataclass(frozen=True)
class SplitMergeState:
    """The checkpoint before the last fit.

    ``parts`` are the finished fits of this level, and ``below`` the fits of the level below that are not merged yet.
    ``partitions`` is the number of partitions fitted so far. ``best`` is the evidence per row (nats) of the last saved
    model.
    """

    problem: Problem
    options: Options
    level: int = 0
    partitions: int = 0
    below: tuple[Part, ...] = ()
    parts: tuple[Part, ...] = ()
    duplicates: int = 0
    dropped: int = 0
    best: float = -np.inf
    end: ClassVar[None] = None

    def squared(self, columns: int) -> int:
        """Return the squared number of columns of a fit, with its leading columns (at least 1)."""
        return (columns + max(len(self.problem.leading), 1)) ** 2


State: TypeAlias = SplitMergeState | RoundsState


class SplitMergeLevels:
    """The split-and-merge strategy of Ben-Shimon & Shmilovici (2006, §2.1)."""

    name: ClassVar[str] = "split-merge"
    schedule: ClassVar[Schedule] = Schedule(name, whole_partitions=True, merges=True)

    def start(self, problem: Problem, options: Options) -> State:
        """Return the state before the first partitions; for one partition or a constant target, before the last fit."""
        if problem.target_variance and n_partitions(problem, options) > 1:
            return SplitMergeState(problem, options)
        return BasicRound().start(problem, options)

    def step(self, state: State) -> Steps[State]:
        """Run the next fits of this level or of the next level, or the last fit."""
        if isinstance(state, RoundsState):
            return (yield from BasicRound().step(state))
        if state.level == 0 and state.partitions < n_partitions(state.problem, state.options):
            return (yield from _split(state))
        if len(state.below) < 2:
            state = replace(state, level=state.level + 1, below=state.parts + state.below, parts=())
            if len(state.below) <= 2:
                return (yield from _last(state))
        return (yield from _merge(state))


def n_partitions(problem: Problem, options: Options) -> int:
    """Return ⌈N/P⌉."""
    return partition_count(problem.n_rows, problem.rows_of(options.partition_size))


def _split(state: SplitMergeState) -> Steps[SplitMergeState]:
    """Fit the next partitions, as many as may be fitted side by side."""
    problem, options = state.problem, state.options
    count = max(options.batch // state.squared(options.partition_size), 1)
    numbers = range(state.partitions, min(state.partitions + count, n_partitions(problem, options)))
    partitions = [partition(problem, options, number) for number in numbers]
    (found,) = yield (Gather(np.concatenate(partitions)),)
    designs, start = list[Design](), 0
    for rows in partitions:
        here, start = slice(start, start + len(rows)), start + len(rows)
        present = slice(None) if found.present is None else found.present[here]
        chosen = problem.empty.with_centres(found.points[here][present], rows[present])
        new = chosen.take(fresh(chosen, problem.empty), leading=problem.leading)
        state = replace(state, duplicates=state.duplicates + count_duplicates(chosen, new))
        if len(new.labels):
            designs.append(new)
    state = replace(state, partitions=numbers.stop)
    return (yield from _fits(state, designs, [None] * len(designs))) if designs else state


def _merge(state: SplitMergeState) -> Steps[SplitMergeState]:
    """Merge the next pairs of fits of the level below, as many as may be fitted side by side."""
    designs, starts, elements = list[Design](), [], 0
    while len(state.below) > 1:
        design, start, joined = _joined(state)
        elements += state.squared(len(design.labels))
        if designs and elements > state.options.batch:
            break
        designs.append(design)
        starts.append(start)
        state = joined
    return (yield from _fits(state, designs, starts))


def _last(state: SplitMergeState) -> Steps[RoundsState]:
    """Run the last fit, on the merge of the last two parts.

    There is only one part if all rows of the other partitions have weight 0.
    """
    design, start, joined = state.below[0].design, state.below[0].warm, state
    if len(state.below) > 1:
        design, start, joined = _joined(state)
    last = replace(BasicRound().start(state.problem, state.options), round=1, selection="order")
    last = replace(last, candidates=len(design.labels), duplicates=joined.duplicates, dropped=joined.dropped)
    last = yield from measured(last, design, last.options.last_rows, start)
    last = yield from solved(last, final_rule(last.options), warm=start)
    last = yield from settled(last)
    last = yield from scored(last)
    return (yield from saved(last, "final", Termination.CONVERGED))


def _joined(state: SplitMergeState) -> tuple[Design, Any, SplitMergeState]:
    """Return the joined columns of the first two parts below, the start of their fit, and the state without them.

    Columns beyond a limit are dropped.
    """
    options, (left, right), leading = state.options, state.below[:2], state.problem.leading
    new = fresh(right.design, left.design)
    design = left.design.join(right.design.take(new)).led_by(leading)
    duplicates, dropped = state.duplicates + len(right.design.labels) - len(new), state.dropped
    columns = np.inf if options.max_columns is None else options.max_columns - max(len(leading), 1)
    room = min(columns, np.inf if options.max_vectors is None else options.max_vectors)
    if len(design.labels) > room:
        gain = np.concatenate([left.gain, right.gain[new]])
        best = np.sort(np.argsort(-gain, kind="stable")[: int(room)])
        design, dropped = design.take(best), dropped + len(gain) - len(best)
    start = left.warm.merge(right.warm, labels_of(design))
    return design, start, replace(state, below=state.below[2:], duplicates=duplicates, dropped=dropped)


def _fits(state: SplitMergeState, designs: Sequence[Design], starts: Sequence[Any]) -> Steps[SplitMergeState]:
    """Fit these columns side by side; save the model of the highest evidence per row so far."""
    problem, options, likelihood = state.problem, state.options, state.problem.likelihood
    rows, nothing = posterior_rows(problem, options, options.fit_rows), likelihood.start(problem)
    passes = [each for design in designs for each in likelihood.measure(nothing, problem.empty, design, rows)]
    # no name refers to the statistics, which are freed before the fits
    solved = yield _begun(state, designs, starts, *(yield from performed(passes)))
    fitted = [survivors(design, each.fit) for design, each in zip(designs, solved, strict=True)]
    scores: Sequence[Any] = [None] * len(fitted)
    if problem.held_out:
        scores = yield tuple(
            likelihood.score(design, each.fit, options.moderate) for design, each in zip(fitted, solved, strict=True)
        )
    lines, parts = list[Instruction](), list(state.parts)
    for k, (design, each) in enumerate(zip(fitted, solved, strict=True)):
        line = record(
            problem,
            each.fit,
            scores[k],
            kind="part",
            number=len(parts) + 1,
            candidates=len(designs[k].labels),
            termination=each.reason,
            selection="order",
            fit_rows=options.fit_rows,
            level=state.level,
            duplicates=state.duplicates,
            dropped=state.dropped,
        )
        evidence = each.fit.log_evidence / max(each.fit.n, 1)
        lines.append(Save(design, each.fit, line, options.moderate) if evidence > state.best else Log(line))
        state = replace(state, best=max(evidence, state.best))
        parts.append(Part(design, each.fit.losses()[each.fit.labels >= 0], likelihood.warm(each.fit)))
    yield tuple(lines)
    return replace(state, parts=tuple(parts))


def _begun(
    state: SplitMergeState, designs: Sequence[Design], starts: Sequence[Any], *statistics: Any
) -> tuple[Instruction, ...]:
    """Return the fits; intermediate fits need no residual pass for full precision."""
    problem, options, likelihood = state.problem, state.options, state.problem.likelihood
    each, fits = len(statistics) // len(designs), list[Instruction]()
    rows = posterior_rows(problem, options, options.fit_rows)
    for k, (design, start) in enumerate(zip(designs, starts, strict=True)):
        blocks = statistics[each * k : each * (k + 1)]
        fit = likelihood.join(problem, likelihood.start(problem), problem.empty, design, *blocks, warm=start)
        count = len(design.labels)
        begin = Begin(replace(intermediate_rule(options, count), guard=False), count, rows, start)
        fits.append(likelihood.fit(problem, options, design, fit, begin))
    return tuple(fits)
