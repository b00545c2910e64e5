"""``split-merge``: an RVM is fitted to each of ⌈N/P⌉ partitions, then one to the joined vectors of
each pair of fits.

The fits of a level run in parallel, as many as ``Options.batch`` allows. If their number is odd,
the last one is merged at the next level. The merge of the last two fits is the last fit; until
then, the saved model is the fit with the highest evidence per row. If a merge exceeds
``max_vectors`` or the memory, the vectors that add the least evidence are dropped.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, ClassVar, TypeAlias

import numpy as np

from partirvm.core.termination import Termination
from partirvm.kernels.design import Design
from partirvm.planning.cost import Schedule
from partirvm.spec.problem import Options, Problem, Start
from partirvm.strategies import stages
from partirvm.strategies.fit_rows import batches_of, fresh, partition
from partirvm.strategies.instructions import Gather, Instruction, Save, Steps
from partirvm.strategies.rounds import BasicRound
from partirvm.strategies.stages import RoundsState
from partirvm.types import Float


@dataclass(frozen=True)
class Part:
    """The result of one fit: its vectors, the evidence contributed by each vector (``gain``, nats),
    and α and β (``warm``)."""

    design: Design
    gain: Float
    warm: Start


@dataclass(frozen=True)
class SplitMergeState:
    """The checkpoint before the last fit: ``parts`` are the finished fits of this level, ``below``
    the fits of the level below that are not yet merged, and ``best_evidence`` is the evidence per
    row (nats) of the last saved model."""

    problem: Problem
    options: Options
    level: int = 0
    partitions: int = 0
    below: tuple[Part, ...] = ()
    parts: tuple[Part, ...] = ()
    dropped: int = 0
    best_evidence: float = -np.inf
    end: ClassVar[None] = None

    def squared(self, columns: int) -> int:
        """Return the squared number of columns in a fit, including its leading columns (at least
        1)."""
        return (columns + max(len(self.problem.leading), 1)) ** 2


State: TypeAlias = SplitMergeState | RoundsState


class SplitMergeLevels:
    """The split-and-merge strategy of Ben-Shimon & Shmilovici (2006, §2.1)."""

    schedule: ClassVar[Schedule] = Schedule("split-merge", merges=True)

    def start(self, problem: Problem, options: Options) -> State:
        """Return the state before the first partitions or, for a single partition or a constant
        target, before the last fit."""
        if problem.target_variance and batches_of(problem, options)[0].partitions > 1:
            return SplitMergeState(problem, options)
        return BasicRound().start(problem, options)

    def step(self, state: State) -> Steps[State]:
        """Run the next fits of this or the next level, or the last fit."""
        if isinstance(state, RoundsState):
            return (yield from BasicRound().step(state))
        if (
            state.level == 0
            and state.partitions < batches_of(state.problem, state.options)[0].partitions
        ):
            return (yield from _split(state))
        if len(state.below) < 2:
            state = replace(state, level=state.level + 1, below=state.parts + state.below, parts=())
            if len(state.below) <= 2:
                return (yield from _last(state))
        return (yield from _merge(state))


def _split(state: SplitMergeState) -> Steps[SplitMergeState]:
    """Fit as many of the next partitions as may be fitted in parallel."""
    problem = state.problem
    options = state.options
    count = max(options.batch // state.squared(options.partition_size), 1)
    numbers = range(
        state.partitions, min(state.partitions + count, batches_of(problem, options)[0].partitions)
    )
    partitions = [partition(problem, options, number) for number in numbers]
    ((present, points),) = yield (Gather(np.concatenate(partitions)),)
    masks = [np.isin(present, rows) for rows in partitions]
    designs = []
    for mask in masks:
        design = problem.empty.with_centres(points[mask], present[mask])
        design = design.take(fresh(design, problem.empty), leading=problem.leading)
        if len(design.labels):
            designs.append(design)
    state = replace(state, partitions=numbers.stop)
    return (yield from _fits(state, designs, [None] * len(designs))) if designs else state


def _merge(state: SplitMergeState) -> Steps[SplitMergeState]:
    """Merge the next pairs of fits from the level below, as many as may be fitted in parallel."""
    designs = list[Design]()
    starts = []
    elements = 0
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
    """Run the last fit on the merged last two parts, or on a single part if all other rows have
    weight 0."""
    design = state.below[0].design
    start = state.below[0].warm
    joined = state
    if len(state.below) > 1:
        design, start, joined = _joined(state)
    last = BasicRound().start(state.problem, state.options)
    last = replace(
        last, round=1, selection="order", candidates=len(design.labels), dropped=joined.dropped
    )
    last = yield from stages.extended(last, design, last.options.last_rows, start)
    return (yield from BasicRound().last_fit(last, Termination.CONVERGED, start))


def _joined(state: SplitMergeState) -> tuple[Design, Any, SplitMergeState]:
    """Return the joined columns of the first two parts in ``below``, up to a limit, the start of
    their fit, and the next state."""
    options = state.options
    (left, right) = state.below[:2]
    leading = state.problem.leading
    new = fresh(right.design, left.design)
    design = left.design.join(right.design.take(new)).take(slice(None), leading=leading)
    dropped = state.dropped
    columns = np.inf if options.max_columns is None else options.max_columns - max(len(leading), 1)
    room = min(columns, np.inf if options.max_vectors is None else options.max_vectors)
    if len(design.labels) > room:
        gain = np.concatenate([left.gain, right.gain[new]])
        best = np.sort(np.argsort(-gain, kind="stable")[: int(room)])
        design = design.take(best)
        dropped = dropped + len(gain) - len(best)
    start = left.warm.merge(right.warm, design.all_labels)
    return design, start, replace(state, below=state.below[2:], dropped=dropped)


def _fits(
    state: SplitMergeState, designs: Sequence[Design], starts: Sequence[Any]
) -> Steps[SplitMergeState]:
    """Fit these designs in parallel, and save the model with the highest evidence per row so
    far."""
    problem = state.problem
    options = state.options
    parts = list(state.parts)
    fits = [
        _fit(state, k, *of)
        for k, of in enumerate(zip(designs, starts, strict=True), len(parts) + 1)
    ]
    lines = list[Instruction]()
    for done in (yield from side_by_side(fits)):
        design = done.design
        fit = done.fit
        line = stages.line_of(done, kind="part", level=state.level)
        evidence = fit.log_evidence / max(fit.n, 1)
        lines.append(
            Save(design, fit, line, options.moderate, model=evidence > state.best_evidence)
        )
        state = replace(state, best_evidence=max(evidence, state.best_evidence))
        parts.append(Part(design, fit.losses()[fit.labels >= 0], problem.likelihood.warm(fit)))
    yield tuple(lines)
    return replace(state, parts=tuple(parts))


def _fit(state: SplitMergeState, number: int, design: Design, start: Any) -> Steps[RoundsState]:
    """Fit these columns and score the fit; an intermediate fit needs no residual pass for full
    precision.

    Args:
        state: the state of the level
        number: number of the fit within its level, from 1
        design: the columns
        start: α and β, or weights, from which the fit starts (``Start``), or None
    """
    count = len(design.labels)
    dropped = state.dropped
    fit = stages.first_state(
        state.problem, state.options, round=number, dropped=dropped, candidates=count
    )
    fit = yield from stages.extended(fit, design, state.options.fit_rows, start)
    rule = replace(stages.intermediate_rule(state.options, fit.candidates), guard=False)
    return (yield from stages.scored((yield from stages.solved(fit, rule, warm=start))))


def side_by_side(parts: Sequence[Steps[RoundsState]]) -> Steps[list[RoundsState]]:
    """Run several parts of steps together, which must yield matching instructions and end at the
    same time."""
    answers: list[Any] = [None] * len(parts)
    while True:
        instructions = list[tuple[Instruction, ...]]()
        results = list[RoundsState]()
        for part in parts:
            try:
                instructions.append(part.send(answers.pop(0)))
            except StopIteration as end:
                results.append(end.value)
        if results:
            return results
        # no variable refers to the answers after they are sent, so statistics are freed before fits
        statistics = list((yield tuple(chain(*instructions))))
        answers = [tuple(statistics.pop(0) for _ in group) for group in instructions]
