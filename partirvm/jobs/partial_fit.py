"""New rows for a model that is there: one incremental step, without the rows that it was trained on.

Kernel, scaling and partition size stay what the first rows made them. Of all rows before the step a *sample* of up to
``SAMPLE`` rows is kept, each of them equally likely to be in it; the others are *gone*, and what is left of them are
the Gram statistics of the model's vectors, which are never taken again. A step is a run of the working set that goes on
from the model, with the new rows as candidates:

1. The statistics of the vectors over the new rows and the sample are added to those over the rows that are gone: for
   the vectors that it begins with a step adds no error, as if all rows were there.
2. New rows join as candidates round by round. What a new column was at rows that are gone nobody knows; there it counts
   as what the vectors make of it (``core.remembered``), by least squares at the sample and the vectors.
3. The sample is drawn anew out of the sample and the new rows; of those that leave the statistics stay.

So a stream of up to ``SAMPLE`` rows is fitted exactly, whatever its chunks. Beyond it vectors of the first chunk stay
exact, and of those that came later the statistics over rows that were gone by then are approximate: the error is small
where vectors were near, as they are where the function has detail, and it stays with the vectors. After a plain fit
there is no sample, and all its rows are gone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partirvm.backends import Executor
from partirvm.backends.remembering import Approximation, Remembering
from partirvm.core.remembered import Remembered
from partirvm.core.statistics import GramStatistics
from partirvm.core.termination import Termination
from partirvm.core.updates import HyperState
from partirvm.data.arrays import ArraySource
from partirvm.data.source import Source
from partirvm.errors import DataError, UsageError
from partirvm.jobs.driver import Checkpoint, MemoryJournal, Outcome
from partirvm.jobs.run import run
from partirvm.kernels import NoKernel
from partirvm.kernels.design import NONE, Design
from partirvm.likelihoods.columns import labels_of
from partirvm.likelihoods.gaussian import Warm
from partirvm.likelihoods.gaussian_passes import GramPass
from partirvm.options import Request
from partirvm.setup.parameters import check_parameters, timer_of
from partirvm.setup.resolve import resolve_known
from partirvm.setup.spec import FitSpec
from partirvm.strategies.problem import Problem
from partirvm.strategies.rounds import Phase
from partirvm.strategies.selection import SELECTIONS
from partirvm.strategies.working_set import WorkingSetState
from partirvm.types import Columns

Float = NDArray[np.float64]
Int = NDArray[np.int64]

SAMPLE = 2000
"""Rows of earlier chunks that are kept."""

DRAW = 5
"""Sets the draw of the sample apart from other draws of the same seed."""


@dataclass(frozen=True)
class Rows:
    """Rows in memory: X (n, d), t (n, T) and weights (n,), or None where all are 1."""

    X: Float
    t: Float
    weights: Float | None

    def __len__(self) -> int:
        return len(self.X)

    def take(self, rows: Int) -> Rows:
        """Copies of these rows."""
        return Rows(self.X[rows], self.t[rows], None if self.weights is None else self.weights[rows])

    def join(self, other: Rows) -> Rows:
        """These rows, then the others."""
        weights = None
        if self.weights is not None or other.weights is not None:
            weights = np.concatenate([_ones(self), _ones(other)])
        return Rows(np.concatenate([self.X, other.X]), np.concatenate([self.t, other.t]), weights)

    def source(self, columns: Columns) -> ArraySource:
        """A source of these rows in this order, even of one."""
        return ArraySource(self.X, self.t, self.weights, columns=columns, least=1)


def _ones(rows: Rows) -> Float:
    return np.ones(len(rows)) if rows.weights is None else rows.weights


@dataclass(frozen=True)
class Memory:
    """What a model needs to go on with new rows.

    Columns ``design`` (K), where their fit stands (``warm``), what is ``remembered`` of rows that are gone, and a
    ``sample`` of all ``n_rows`` so far. At each ``step`` the seed is drawn from anew.
    """

    problem: Problem
    partition_size: int
    design: Design
    warm: Warm
    remembered: Remembered
    sample: Rows
    columns: Columns
    n_rows: int
    seed: int
    step: int = 1


def check_updatable(parameters: Request) -> None:
    """Refuse a fit whose statistics are not of all rows, or whose candidates must be. Raises ``UsageError``."""
    for name, allowed in (("likelihood", ("auto", "full")), ("final_likelihood", ("full",))):
        if getattr(parameters, name) not in allowed:
            raise UsageError(
                f"{name} is {getattr(parameters, name)!r}: partial_fit needs statistics of all rows, so that it must "
                f"be {' or '.join(map(repr, allowed))}"
            )
    if parameters.kernel is None or parameters.kernel == NoKernel.name:
        raise UsageError("partial_fit adds vectors, and kernel=None has none: fit all rows again")
    if parameters.selection in SELECTIONS and SELECTIONS[parameters.selection].weighs_all:
        raise UsageError(
            f"selection is {parameters.selection!r}, which weighs all rows: partial_fit has only the new ones"
        )


def first(spec: FitSpec, outcome: Outcome, columns: Columns, rows: Rows | None, executor: Executor) -> Memory | None:
    """What is kept of a first fit, of these rows, or of rows that are gone; None where it has not seen all of them."""
    assert outcome.kept is not None
    design, fit = outcome.kept
    if not isinstance(fit, HyperState):
        return None
    if spec.problem.target_variance and (fit.noise is not None or fit.n < spec.counted):
        return None
    statistics = fit.statistics.shift(-fit.statistics.offset)
    d, targets = len(design.scaling.x_shift), len(design.scaling.t_scale)
    memory = Memory(
        problem=replace(spec.problem, empty=design.take(NONE, leading=NONE)),
        partition_size=spec.options.partition_size,
        design=design,
        warm=Warm.of(fit),
        remembered=Remembered(statistics),
        sample=Rows(np.zeros((0, d)), np.zeros((0, targets)), None),
        columns=columns,
        n_rows=fit.n,
        seed=spec.request.seed,
    )
    if rows is None or not memory.problem.target_variance:
        return memory
    nothing = Remembered(GramStatistics.empty(design.basis, targets))
    return _next(replace(memory, n_rows=0), design, fit, rows, len(rows), executor, nothing)


def update(
    memory: Memory, new: Rows, parameters: Request, executor: Executor, journal: MemoryJournal
) -> tuple[FitSpec, Outcome, Memory]:
    """One step with new rows; the journal holds model and history afterwards.

    Raises as ``setup.resolve.resolve`` does, ``DataError`` if the first rows had nothing to go on from.
    """
    if not memory.problem.target_variance:
        raise DataError("the target of the first rows was constant, which sets no scale: fit again with rows that vary")
    parameters = check_parameters(parameters)
    check_updatable(parameters)
    timer = timer_of(parameters)
    order = np.random.default_rng((memory.seed, DRAW, memory.step)).permutation(len(new))
    at_hand = new.take(order).join(memory.sample)
    parameters = replace(
        parameters, strategy="working-set", likelihood="full", partition_size=min(memory.partition_size, len(new))
    )
    source = at_hand.source(memory.columns)
    spec = resolve_known(source, parameters, executor, memory.problem)
    design = _relabelled(memory.design, len(at_hand))
    remembered = Remembered(replace(memory.remembered.statistics, labels=labels_of(design)))
    approximation = Approximation(design, np.concatenate([memory.sample.X, design.centres]))
    remembering: Any = Remembering(executor, remembered, approximation)
    state = WorkingSetState(
        spec.problem,
        spec.options,
        design,
        _begun(memory.warm, _statistics(design, None, source, remembering)),
        phase=Phase.SAVED,
        seen="full",
        used=np.arange(len(new), len(at_hand), dtype=np.int64),
    )

    def interrupted() -> Termination | None:
        """A step has its first round whatever the limit: without one nothing is left to go on from."""
        return None if journal.model is None else timer()

    begun = Checkpoint(state, 1)
    outcome = run(spec, source, remembering, journal, checkpoint=begun, interrupted=interrupted, elapsed=timer.seconds)
    design, fit = (state.design, state.fit) if outcome.kept is None else outcome.kept
    assert isinstance(fit, HyperState)
    past = remembered.through(approximation.coefficients(design), labels_of(design))
    return spec, outcome, _next(memory, design, fit, at_hand, len(new), executor, past)


def _begun(warm: Warm, statistics: GramStatistics) -> HyperState:
    """The fit where it stands, with these statistics of its columns."""
    begun = warm.begun(statistics)
    return replace(begun, found=begun.posterior)


def _statistics(design: Design, rows: Int | None, source: Source, executor: Executor) -> GramStatistics:
    """Statistics of a design over these rows of a source, or all, by one pass."""
    empty = GramStatistics.empty(design.basis, len(design.scaling.t_scale))
    block = executor.run([GramPass(design.take(NONE, leading=NONE), design, empty.offset, rows=rows)], source)[0]
    return empty.extend(labels_of(design), block, design.basis)


def _next(
    memory: Memory,
    design: Design,
    fit: HyperState,
    at_hand: Rows,
    new: int,
    executor: Executor,
    past: Remembered,
) -> Memory:
    """What is kept after a step; ``new`` of the rows at hand come first, the sample so far after them.

    ``past`` is what is remembered of rows that were gone before, by the columns that the step has left.
    """
    n_rows, rng = memory.n_rows + new, np.random.default_rng((memory.seed, DRAW, memory.step, 1))
    room = min(SAMPLE, n_rows)
    # how many of ``room`` rows drawn from all so far are new ones; where earlier ones are not at hand fewer remain
    fresh = int(rng.hypergeometric(new, memory.n_rows, room)) if memory.n_rows else room
    stay = [rng.permutation(new)[:fresh], new + rng.permutation(len(at_hand) - new)[: room - fresh]]
    kept = np.sort(np.concatenate(stay))
    gone = np.setdiff1d(np.arange(len(at_hand), dtype=np.int64), kept)
    if len(gone):
        leaving = _statistics(design, gone, at_hand.source(memory.columns), executor)
        past = Remembered(past.statistics.merge(leaving) if past.statistics.n else leaving)
    return replace(
        memory,
        design=design,
        warm=Warm.of(fit),
        remembered=past,
        sample=at_hand.take(kept),
        n_rows=n_rows,
        step=memory.step + 1,
    )


def _relabelled(design: Design, n_rows: int) -> Design:
    """The same columns under row numbers from ``n_rows`` on: those of rows at hand are for the rows at hand."""
    count = len(design.kernels)
    labels = (n_rows + np.arange(len(design.labels), dtype=np.int64)) * count + design.which
    return replace(design, labels=labels)
