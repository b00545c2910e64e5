"""Fitting: from a source and parameters to a model. What the estimator and the command line both call."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from partirvm.backends import Executor
from partirvm.backends.allocator import return_freed_memory
from partirvm.backends.passes import MomentsPass
from partirvm.backends.threads import one_blas_thread
from partirvm.core.moments import Moments
from partirvm.core.termination import Termination
from partirvm.data import Source, require_target
from partirvm.errors import DataError, DataWarning, LimitWarning, NoiseFloorWarning, UsageError
from partirvm.jobs.driver import Driver, Journal, Outcome, Watcher, deadline
from partirvm.kernels.design import Design
from partirvm.planning.cost import Looking, Rates
from partirvm.planning.memory import DataShape
from partirvm.planning.plan import Plan, make_plan
from partirvm.service.parameters import (
    SELECTION,
    check_parameters,
    resolve_kernel,
    resolve_partition_size,
    resolve_scaling,
    resolve_strategy,
)
from partirvm.strategies import STRATEGIES
from partirvm.strategies.instructions import Options, Problem
from partirvm.strategies.selection import POOL, SPREAD
from partirvm.types import FitParameters

CALIBRATION_ROWS = 1024


@dataclass(frozen=True)
class Prepared:
    """A fit that is ready to run: everything checked and resolved, nothing written yet."""

    source: Source
    held_out: Source | None
    parameters: FitParameters
    moments: Moments
    problem: Problem
    options: Options
    plan: Plan


def prepare(source: Source, parameters: FitParameters, executor: Executor, held_out: Source | None = None) -> Prepared:
    """Check data and parameters, resolve every "auto", and plan.

    Raises ``UsageError`` for an option that cannot be, ``DataError`` for data that cannot be used, ``MemoryLimitError``
    if the fit cannot fit.
    """
    parameters = check_parameters(parameters)
    if parameters.memory_limit != "auto":
        return_freed_memory()
    _check_target(source)
    if held_out is not None:
        _check_held_out(source, held_out)
    moments = checked_moments(source, executor)
    scaling = resolve_scaling(moments, parameters.standardize)
    kernel = resolve_kernel(parameters, moments)
    strategy = resolve_strategy(parameters, source.n_rows)
    size, note = resolve_partition_size(parameters, strategy, source.n_rows, source.n_features)
    selection = "all" if strategy == "basic" else SELECTION if parameters.selection == "auto" else parameters.selection
    empty = Design(kernel, scaling, np.zeros((0, source.n_features)), np.zeros(0, np.int64), bias=False)
    plan = make_plan(
        DataShape(source.n_rows, source.n_features, source.n_targets, source.tile_rows),
        executor.machine(None if parameters.memory_limit == "auto" else int(parameters.memory_limit)),
        calibrate(source, empty),
        strategy=strategy,
        selection=selection,
        likelihood="full",
        partition_size=size,
        stop_fraction=parameters.stop_fraction,
        max_rounds=parameters.max_rounds,
        max_vectors=parameters.max_vectors,
        looking=_looking(selection, size, source),
        held_out=held_out is not None,
        shrink_threads=executor.elastic,
        shrink_partition=parameters.partition_size == "auto" and strategy != "basic",
        notes=(note,) if note else (),
    )
    problem = _problem(source, held_out, parameters, empty, moments)
    return Prepared(source, held_out, parameters, moments, problem, _options(plan, parameters), plan)


def _looking(selection: str, partition_size: int, source: Source) -> Looking:
    if selection == "error":
        return Looking(rows=min(SPREAD * partition_size, source.n_rows) if source.shuffled else source.n_rows)
    return Looking(pool=min(POOL * partition_size, source.n_rows) if selection == "gain" else 0)


def checked_moments(source: Source, executor: Executor) -> Moments:
    """Moments of all rows, known already or by a pass. Raises ``DataError`` for values that are not finite."""
    moments: Moments = source.moments or executor.run(MomentsPass(), source)
    if moments.bad:
        assert moments.first_bad is not None
        row, column = moments.first_bad
        names = [*source.columns.features, *[source.columns.target] * source.n_targets, "the weights"]
        raise DataError(
            f"{moments.bad:,} values are NaN or infinite, the first in row {row:,}, column {names[column]!r}: "
            "remove or fill them before the fit"
        )
    if not moments.targets.n:
        raise DataError("no row has a weight above zero: there is nothing to fit")
    return moments


def _check_target(source: Source) -> None:
    require_target(source)
    if source.columns.classes is not None:
        raise UsageError(
            f"the target {source.columns.target!r} is a class ({len(source.columns.classes)} of them), and this "
            "version fits numbers only: ingest the data without --classes if the target is one"
        )


def _check_held_out(source: Source, held_out: Source) -> None:
    require_target(held_out)
    if held_out.n_features != source.n_features:
        raise DataError(
            f"the validation data have {held_out.n_features} features, the training data {source.n_features}: they "
            "must have the same columns"
        )
    if held_out.columns.features != source.columns.features:
        raise DataError(
            f"the validation data have the features {list(held_out.columns.features)}, the training data "
            f"{list(source.columns.features)}: they must be the same, in the same order"
        )


def _problem(
    source: Source, held_out: Source | None, parameters: FitParameters, empty: Design, moments: Moments
) -> Problem:
    scale = float(empty.scaling.t_scale[0])
    estimate = parameters.noise_variance == "estimate"
    return Problem(
        n_rows=source.n_rows,
        empty=empty,
        bias=parameters.fit_intercept,
        power=float(moments.targets.variance[0] * moments.targets.total / moments.targets.n) / scale**2,
        noise_variance=None if estimate else float(parameters.noise_variance) / scale**2,
        target_scale=scale,
        shuffled=source.shuffled,
        held_out=held_out is not None,
    )


def _options(plan: Plan, parameters: FitParameters) -> Options:
    return Options(
        partition_size=plan.partition_size,
        selection=plan.selection,
        stop_fraction=parameters.stop_fraction,
        max_rounds=parameters.max_rounds,
        max_vectors=parameters.max_vectors,
        max_columns=plan.max_columns,
        tol=parameters.tol,
        seed=parameters.seed,
    )


def calibrate(source: Source, empty: Design) -> Rates:
    """Rates of one thread, measured on the first tile."""
    with one_blas_thread():
        began = time.perf_counter()
        tile = source.tile(0)
        read = (time.perf_counter() - began) / len(tile.X)
        X = tile.X[:CALIBRATION_ROWS]
        centres = X[:256]
        design = empty.with_centres(centres, np.arange(len(centres)))
        block = design.block(X)
        began = time.perf_counter()
        block = design.block(X)
        element = (time.perf_counter() - began) / block.size
        square = np.ones((512, 512))
        square @ square
        began = time.perf_counter()
        square @ square
        product = 2 * 512**3 / (time.perf_counter() - began)
    return Rates(read, element, product)


def run(
    prepared: Prepared,
    executor: Executor,
    journal: Journal,
    *,
    watcher: Watcher | None = None,
    interrupted: Callable[[], Termination | None] | None = None,
) -> Outcome:
    """Run a prepared fit; the journal holds model and history afterwards. Warns of what deserves a look."""
    executor.use(prepared.plan.threads)
    limit = prepared.parameters.time_limit
    late = deadline(None if limit is None else float(limit))
    driver = Driver(
        executor=executor,
        source=prepared.source,
        held_out=prepared.held_out,
        watcher=watcher or Watcher(),
        interrupted=late if interrupted is None else lambda: interrupted() or late(),
    )
    _warn_of_data(prepared)
    outcome = driver.run(STRATEGIES[prepared.plan.strategy](), prepared.problem, prepared.options, journal)
    _warn_of_outcome(outcome, prepared)
    return outcome


def _warn_of_data(prepared: Prepared) -> None:
    columns = prepared.source.columns
    if not prepared.problem.power:
        warnings.warn(f"the target {columns.target!r} is constant: the model is its mean", DataWarning, stacklevel=3)
    constant = np.flatnonzero(prepared.moments.inputs.variance == 0)
    if len(constant):
        names = ", ".join(columns.features[column] for column in constant)
        warnings.warn(f"constant features tell nothing: {names}", DataWarning, stacklevel=3)


def _warn_of_outcome(outcome: Outcome, prepared: Prepared) -> None:
    last = outcome.last
    if last is None:
        return
    if last.floored:
        warnings.warn(
            "the noise estimate reached its floor: the data look noise-free to this kernel, or the model interpolates "
            "them; set noise_variance, widen the kernel, or check held-out errors",
            NoiseFloorWarning,
            stacklevel=2,
        )
    if last.duplicates:
        warnings.warn(
            f"{last.duplicates:,} candidates had the same inputs as another row and were left out as centres; their "
            "targets count",
            DataWarning,
            stacklevel=3,
        )
    if not last.vectors and prepared.problem.power:
        warnings.warn(
            "no relevance vector is left, the model is the target's mean: the kernel does not fit these data; try "
            "another gamma",
            DataWarning,
            stacklevel=3,
        )
    for reason in {outcome.reason, last.termination} & {Termination.MEMORY, Termination.ITERATIONS}:
        warnings.warn(reason.advice, LimitWarning, stacklevel=3)
