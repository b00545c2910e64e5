"""``partial_fit``: update a fit in memory with new rows, without reading most of the earlier rows again.

A step is an update (``setup.growth``, ``strategies.appended``) of a working set, like the update of a job with appended
rows. The statistics of the vectors over the new rows are added to the statistics over all earlier rows. Then the new
rows become candidates, round by round. An update of a job can read all rows again, but a step cannot: it keeps a
uniform *sample* of at most ``SAMPLE`` earlier rows. All other earlier rows are *discarded*, except for the Gram
statistics of the vectors over these rows:

1. At the start of a step the statistics of the vectors cover all earlier rows.
2. The values of a new column at discarded rows are unknown. They are approximated by a linear combination of the
   vectors' columns (``core.past``), fitted by least squares at the rows of the sample and at the vectors.
3. After the step a new sample is drawn from the old sample and the new rows. The statistics of the rows that leave the
   sample are added to the statistics of the discarded rows.

A stream of at most ``SAMPLE`` rows is therefore fitted exactly, for any sizes of its chunks. In a longer stream the
vectors of the first chunk have exact statistics. Vectors that join later have approximate statistics over the rows that
were discarded before. The approximation error is small if other vectors are near, and remains in the statistics of the
vector. A fit by ``fit`` keeps no sample: all its rows are discarded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partirvm.backends import Executor
from partirvm.backends.with_past import Approximation, WithPast
from partirvm.core.past import PastStatistics
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
from partirvm.strategies.appended import grown
from partirvm.strategies.rounds import Phase
from partirvm.strategies.selection import SELECTIONS
from partirvm.strategies.working_set import WorkingSet, WorkingSetState
from partirvm.types import Columns

Float = NDArray[np.float64]
Int = NDArray[np.int64]

SAMPLE = 2000
"""Maximum number of earlier rows that are kept."""

DRAW = 5
"""A part of the seed that makes the draw of the sample independent of other random draws."""


@dataclass(frozen=True)
class Rows:
    """Rows in memory: X (n, d), t (n, T) and weights (n,), or None where all are 1."""

    X: Float
    t: Float
    weights: Float | None

    def __len__(self) -> int:
        return len(self.X)

    def take(self, rows: Int) -> Rows:
        """Return a copy of the given rows."""
        return Rows(self.X[rows], self.t[rows], None if self.weights is None else self.weights[rows])

    def join(self, other: Rows) -> Rows:
        """Return these rows followed by the rows of ``other``."""
        weights = None
        if self.weights is not None or other.weights is not None:
            weights = np.concatenate([_ones(self), _ones(other)])
        return Rows(np.concatenate([self.X, other.X]), np.concatenate([self.t, other.t]), weights)

    def source(self, columns: Columns) -> ArraySource:
        """Return a source of these rows in this order. A source of a single row is allowed."""
        return ArraySource(self.X, self.t, self.weights, columns=columns, least=1)


def _ones(rows: Rows) -> Float:
    return np.ones(len(rows)) if rows.weights is None else rows.weights


@dataclass(frozen=True)
class Memory:
    """The state kept between two steps of ``partial_fit``.

    ``spec`` is the spec of the fit to the first rows, changed to a working set over all rows. ``warm`` and
    ``statistics`` describe the fit of the columns ``design`` to all ``n_rows`` earlier rows. ``past`` holds the
    statistics of the discarded rows, and ``sample`` the kept rows. ``step`` is the number of the next step and a part
    of its seed.
    """

    spec: FitSpec
    design: Design
    warm: Warm
    statistics: GramStatistics
    past: PastStatistics
    sample: Rows
    columns: Columns
    n_rows: int
    step: int = 1


def check_updatable(request: Request, parameters: Mapping[str, Any]) -> None:
    """Raise ``UsageError`` for options that ``partial_fit`` does not support.

    The statistics of the fit must cover all rows, and the selection of candidates must not need all rows.
    ``parameters`` are the parameters of the estimator, whose names are used in the message.
    """
    for name, allowed in (("fit_rows", ("auto", "full")), ("last_rows", ("full",))):
        if getattr(request, name) not in allowed:
            option = written(parameters, name)
            raise UsageError(
                f"{option} is {getattr(request, name)!r}, but partial_fit needs statistics of all rows: "
                f"set {option} to {' or '.join(map(repr, allowed))}"
            )
    if request.kernel is None or request.kernel == NoKernel.name:
        raise UsageError(
            "partial_fit adds vectors, but a model with kernel=None has no vectors: call fit with all rows"
        )
    if request.selection in SELECTIONS and SELECTIONS[request.selection].weighs_all:
        raise UsageError(
            f"{written(parameters, 'selection')} is {request.selection!r}, which needs all rows, but partial_fit reads "
            "only the new rows: choose another selection"
        )


def first(spec: FitSpec, outcome: Outcome, columns: Columns, rows: Rows | None, executor: Executor) -> Memory | None:
    """Return the memory of a first fit, or None if the statistics of the fit do not cover all rows.

    ``rows`` are the rows of the fit, from which the sample is drawn. If ``rows`` is None, all rows are discarded.
    """
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
        past=PastStatistics(statistics),
        sample=Rows(np.zeros((0, d)), np.zeros((0, targets)), None),
        columns=columns,
        n_rows=fit.n,
    )
    if rows is None or not spec.problem.target_variance:
        return memory
    nothing = PastStatistics(GramStatistics.empty(design.basis, targets))
    return _next(replace(memory, n_rows=0), design, fit, rows, len(rows), executor, nothing)


def update(
    memory: Memory, new: Rows, request: Request, executor: Executor, journal: MemoryJournal
) -> tuple[FitSpec, Outcome, Memory]:
    """Run one step with new rows. Afterwards the journal holds model and history.

    Raises as ``setup.growth.grow`` does, and ``DataError`` if the targets of the first rows were constant.
    """
    before = memory.spec.problem
    if not before.target_variance:
        raise DataError(
            "the target of the first rows was constant, so that the target of new rows cannot be scaled: call fit with "
            "rows whose targets vary"
        )
    request = check_parameters(request)
    timer = timer_of(request)
    order = np.random.default_rng((memory.spec.request.seed, DRAW, memory.step)).permutation(len(new))
    available, old = memory.sample.join(new.take(order)), len(memory.sample)
    source = available.source(memory.columns)
    spec_before = replace(memory.spec, problem=replace(before, n_rows=old))
    spec = grow(spec_before, source, request, executor, same_options=False)
    design = _relabelled(memory.design, len(available))
    labels = labels_of(design)
    past = PastStatistics(replace(memory.past.statistics, labels=labels))
    approximation = Approximation(design, np.concatenate([memory.sample.X, design.centres]))
    with_past: Any = WithPast(executor, past, approximation)
    fit = memory.warm.begun(replace(memory.statistics, labels=labels))
    likelihood, joined = spec.problem.likelihood, np.arange(old, len(available), dtype=np.int64)
    blocks = with_past.run(likelihood.grow(spec.problem, design, fit, joined), source)
    fit = likelihood.grown(spec.problem, design, fit, *blocks)
    ended = WorkingSetState(before, spec.options, design, fit, seen="full", used=np.arange(old, dtype=np.int64))
    # select new candidates before the first fit: a fit could delete vectors, and their rows are no longer available
    state = replace(grown(ended, spec.problem, spec.options), phase=Phase.SAVED)

    def interrupted() -> Termination | None:
        """Return the reason of the timer after the first round. A step without any round would leave no model."""
        return None if journal.model is None else timer()

    begun = Checkpoint(state, 1)
    outcome = run(spec, source, with_past, journal, checkpoint=begun, interrupted=interrupted, elapsed=timer.seconds)
    assert outcome.kept is not None
    design, found = outcome.kept
    assert isinstance(found, HyperState)
    past = past.through(approximation.coefficients(design), labels_of(design))
    return spec, outcome, _next(memory, design, found, available, len(new), executor, past)


def _next(
    memory: Memory,
    design: Design,
    fit: HyperState,
    available: Rows,
    new: int,
    executor: Executor,
    past: PastStatistics,
) -> Memory:
    """Return the memory after a step.

    ``available`` holds the rows of the old sample followed by the ``new`` rows of the step. ``past`` holds the
    statistics of the rows discarded before the step, for the columns of ``design``.
    """
    n_rows, rng = memory.n_rows + new, np.random.default_rng((memory.spec.request.seed, DRAW, memory.step, 1))
    room, old = min(SAMPLE, n_rows), len(available) - new
    # number of new rows in a sample of ``room`` rows of all rows; if too few earlier rows are kept, it is smaller
    fresh = int(rng.hypergeometric(new, memory.n_rows, room)) if memory.n_rows else room
    stay = [old + rng.permutation(new)[:fresh], rng.permutation(old)[: room - fresh]]
    kept = np.sort(np.concatenate(stay))
    discarded = np.setdiff1d(np.arange(len(available), dtype=np.int64), kept)
    if len(discarded):
        empty = GramStatistics.empty(design.basis, len(design.scaling.t_scale))
        leaving = GramPass(design.take(NONE, leading=NONE), design, empty.offset, rows=discarded)
        block = executor.run([leaving], available.source(memory.columns))[0]
        left = empty.extend(labels_of(design), block, design.basis)
        past = PastStatistics(past.statistics.merge(left) if past.statistics.n else left)
    return replace(
        memory,
        design=design,
        warm=Warm.of(fit),
        statistics=fit.statistics,
        past=past,
        sample=available.take(kept),
        n_rows=n_rows,
        step=memory.step + 1,
    )


def _relabelled(design: Design, n_rows: int) -> Design:
    """Return the columns with labels of row numbers ≥ ``n_rows``, because smaller numbers denote rows in memory."""
    count = len(design.kernels)
    labels = (n_rows + np.arange(len(design.labels), dtype=np.int64)) * count + design.which
    return replace(design, labels=labels)
