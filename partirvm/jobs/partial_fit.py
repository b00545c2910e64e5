"""``partial_fit``: a fit in memory grows by new rows, without most of the rows that it was trained on.

A step is an update (``setup.growth``, ``strategies.growing``) of a working set, as of a job whose data have gained
rows: the statistics of the vectors over the new rows alone are added to those of all rows before, then the new rows are
candidates, round by round. A job can read all its rows again; a step cannot. Of all rows before the step a *sample* of
up to ``SAMPLE`` rows is kept, drawn uniformly; of the other rows, which are *gone*, only the Gram statistics of the
vectors are left:

1. For the vectors that the step begins with, the statistics are exact: those of all rows.
2. The values of a new column at rows that are gone are not known. They are approximated by the vectors' columns
   (``core.remembered``), by least squares at the sample and the vectors.
3. After the step the sample is drawn anew from the sample and the new rows; the statistics of rows that leave it are
   added to those of the rows that are gone.

A stream of up to ``SAMPLE`` rows is therefore fitted exactly, whatever its chunks. In a longer one the vectors of the
first chunk stay exact, and later ones have approximate statistics over rows that were gone when they joined. The error
is small where vectors were near, and it stays with the vectors. After a plain fit there is no sample: all its rows are
gone.
"""

from __future__ import annotations

from collections.abc import Mapping
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
from partirvm.errors import DataError, UsageError
from partirvm.jobs.driver import Checkpoint, MemoryJournal, Outcome
from partirvm.jobs.run import run
from partirvm.kernels import NoKernel
from partirvm.kernels.design import NONE, Design
from partirvm.likelihoods.columns import labels_of
from partirvm.likelihoods.gaussian import Warm
from partirvm.likelihoods.gaussian_passes import GramPass
from partirvm.options import Request
from partirvm.options.values import written
from partirvm.setup.growth import grow
from partirvm.setup.parameters import check_parameters, timer_of
from partirvm.setup.spec import FitSpec
from partirvm.strategies.growing import grown
from partirvm.strategies.rounds import Phase
from partirvm.strategies.selection import SELECTIONS
from partirvm.strategies.working_set import WorkingSet, WorkingSetState
from partirvm.types import Columns

Float = NDArray[np.float64]
Int = NDArray[np.int64]

SAMPLE = 2000
"""Rows of earlier chunks that are kept."""

DRAW = 5
"""Part of the seed: the draw of the sample is independent of other draws."""


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
    """What a model needs to grow by new rows.

    ``spec`` is that of the first rows, as of a working set over all rows. ``warm`` and ``statistics`` are the fit of
    the columns ``design`` (K) to all ``n_rows`` so far; ``remembered`` are the statistics of the rows that are gone,
    ``sample`` the other rows. ``step`` is the number of the next step, and part of its seed.
    """

    spec: FitSpec
    design: Design
    warm: Warm
    statistics: GramStatistics
    remembered: Remembered
    sample: Rows
    columns: Columns
    n_rows: int
    step: int = 1


def check_updatable(request: Request, parameters: Mapping[str, Any]) -> None:
    """Raise ``UsageError`` for a fit whose statistics are not of all rows, or whose candidates must be.

    ``parameters`` are those of the estimator, by whose names the message calls an option.
    """
    for name, allowed in (("fit_rows", ("auto", "full")), ("last_rows", ("full",))):
        if getattr(request, name) not in allowed:
            raise UsageError(
                f"{written(parameters, name)} is {getattr(request, name)!r}: partial_fit needs statistics of all "
                f"rows, so that it must be {' or '.join(map(repr, allowed))}"
            )
    if request.kernel is None or request.kernel == NoKernel.name:
        raise UsageError("partial_fit adds vectors, and kernel=None has none: fit all rows again")
    if request.selection in SELECTIONS and SELECTIONS[request.selection].weighs_all:
        raise UsageError(
            f"{written(parameters, 'selection')} is {request.selection!r}, which weighs all rows: partial_fit has only "
            "the new ones"
        )


def first(spec: FitSpec, outcome: Outcome, columns: Columns, rows: Rows | None, executor: Executor) -> Memory | None:
    """What is kept of a first fit, of these rows, or of rows that are gone; None if it has not seen all rows."""
    assert outcome.kept is not None
    design, fit = outcome.kept
    if not isinstance(fit, HyperState):
        return None
    if spec.problem.target_variance and (fit.noise is not None or fit.n < spec.counted):
        return None
    statistics = fit.statistics.shift(-fit.statistics.offset)
    d, targets = len(design.scaling.x_shift), len(design.scaling.t_scale)
    memory = Memory(
        spec=replace(
            spec,
            problem=replace(spec.problem, empty=design.take(NONE, leading=NONE)),
            options=replace(spec.options, fit_rows="full"),
            plan=replace(spec.plan, schedule=WorkingSet.schedule),
        ),
        design=design,
        warm=Warm.of(fit),
        statistics=statistics,
        remembered=Remembered(statistics),
        sample=Rows(np.zeros((0, d)), np.zeros((0, targets)), None),
        columns=columns,
        n_rows=fit.n,
    )
    if rows is None or not spec.problem.target_variance:
        return memory
    nothing = Remembered(GramStatistics.empty(design.basis, targets))
    return _next(replace(memory, n_rows=0), design, fit, rows, len(rows), executor, nothing)


def update(
    memory: Memory, new: Rows, request: Request, executor: Executor, journal: MemoryJournal
) -> tuple[FitSpec, Outcome, Memory]:
    """One step with new rows; the journal holds model and history afterwards.

    Raises as ``setup.growth.grow`` does, ``DataError`` if the targets of the first rows were constant.
    """
    before = memory.spec.problem
    if not before.target_variance:
        raise DataError("the target of the first rows was constant, which sets no scale: fit again with rows that vary")
    request = check_parameters(request)
    timer = timer_of(request)
    order = np.random.default_rng((memory.spec.request.seed, DRAW, memory.step)).permutation(len(new))
    at_hand, old = memory.sample.join(new.take(order)), len(memory.sample)
    source = at_hand.source(memory.columns)
    there = replace(memory.spec, problem=replace(before, n_rows=old))
    spec = grow(there, source, request, executor, same_options=False)
    design = _relabelled(memory.design, len(at_hand))
    labels = labels_of(design)
    remembered = Remembered(replace(memory.remembered.statistics, labels=labels))
    approximation = Approximation(design, np.concatenate([memory.sample.X, design.centres]))
    remembering: Any = Remembering(executor, remembered, approximation)
    fit = memory.warm.begun(replace(memory.statistics, labels=labels))
    likelihood, joined = spec.problem.likelihood, np.arange(old, len(at_hand), dtype=np.int64)
    blocks = remembering.run(likelihood.grow(spec.problem, design, fit, joined), source)
    fit = likelihood.grown(spec.problem, design, fit, *blocks)
    ended = WorkingSetState(before, spec.options, design, fit, seen="full", used=np.arange(old, dtype=np.int64))
    # no fit without the candidates: vectors that it deletes could not come back where their rows are gone
    state = replace(grown(ended, spec.problem, spec.options), phase=Phase.SAVED)

    def interrupted() -> Termination | None:
        """A step has its first round whatever the limit: without one there is no model to go on from."""
        return None if journal.model is None else timer()

    begun = Checkpoint(state, 1)
    outcome = run(spec, source, remembering, journal, checkpoint=begun, interrupted=interrupted, elapsed=timer.seconds)
    assert outcome.kept is not None
    design, found = outcome.kept
    assert isinstance(found, HyperState)
    past = remembered.through(approximation.coefficients(design), labels_of(design))
    return spec, outcome, _next(memory, design, found, at_hand, len(new), executor, past)


def _next(
    memory: Memory,
    design: Design,
    fit: HyperState,
    at_hand: Rows,
    new: int,
    executor: Executor,
    past: Remembered,
) -> Memory:
    """What is kept after a step; ``new`` of the rows at hand come last, the sample so far before them.

    ``past`` are the statistics of rows that were gone before the step, of the columns that it has left.
    """
    n_rows, rng = memory.n_rows + new, np.random.default_rng((memory.spec.request.seed, DRAW, memory.step, 1))
    room, old = min(SAMPLE, n_rows), len(at_hand) - new
    # how many of ``room`` rows drawn from all so far are new; where earlier rows are not at hand fewer remain
    fresh = int(rng.hypergeometric(new, memory.n_rows, room)) if memory.n_rows else room
    stay = [old + rng.permutation(new)[:fresh], rng.permutation(old)[: room - fresh]]
    kept = np.sort(np.concatenate(stay))
    gone = np.setdiff1d(np.arange(len(at_hand), dtype=np.int64), kept)
    if len(gone):
        empty = GramStatistics.empty(design.basis, len(design.scaling.t_scale))
        leaving = GramPass(design.take(NONE, leading=NONE), design, empty.offset, rows=gone)
        block = executor.run([leaving], at_hand.source(memory.columns))[0]
        left = empty.extend(labels_of(design), block, design.basis)
        past = Remembered(past.statistics.merge(left) if past.statistics.n else left)
    return replace(
        memory,
        design=design,
        warm=Warm.of(fit),
        statistics=fit.statistics,
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
