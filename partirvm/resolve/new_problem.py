"""Check the data of a fit and construct its ``Problem``: scaling, kernel, prior, classes and
noise."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import add
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from partirvm.core.groups import DrawnGroups, GroupCounts, GroupedRows
from partirvm.core.moments import ColumnMoments, Moments
from partirvm.core.priors import GammaDensity, Prior
from partirvm.core.termination import Termination
from partirvm.data import Source, require_target
from partirvm.data.labels import class_weights
from partirvm.data.source import FARTHEST, check_range, check_values, require_like
from partirvm.errors import DataError, UsageError
from partirvm.execution import Executor
from partirvm.execution.local import MomentsPass
from partirvm.kernels.design import NONE, Design
from partirvm.kernels.functions import labels_by_name
from partirvm.likelihoods import requested_likelihood
from partirvm.likelihoods.gaussian import root_mean
from partirvm.local.metric import Metric
from partirvm.options import Request
from partirvm.options.constraints import Check
from partirvm.process import KEPT, return_freed_memory
from partirvm.quoting import quoted
from partirvm.resolve.kernel import input_variance, resolve_basis, resolve_kernel
from partirvm.scaling.maps import GRAIN, FeatureMap, Scaling
from partirvm.spec.problem import Codes, Likelihood, Problem
from partirvm.strategies.instructions import Stopped
from partirvm.types import Columns, Float, Int

Interrupted: TypeAlias = Callable[[], Termination | None]
"""Called repeatedly during a fit; returns the reason to end the fit, or None to continue."""

NOISE = (1e-60, 1e60)
"""Bounds of a fixed noise variance of scaled targets, which prevent overflow."""

MANY = 20
"""With more classes than this, each class needs two rows on average."""


def timer(limit: Any) -> Interrupted:
    """Return a function that returns ``TIME`` once ``limit`` seconds have passed, or never if the
    limit is None."""
    end = time.monotonic() + (math.inf if limit is None else limit)
    return lambda: Termination.TIME if time.monotonic() > end else None


def check_aborted(interrupted: Interrupted, *done: int) -> None:
    """Raise ``Stopped`` if an abort was requested; usable as a ``Progress``. The caller decides
    which files to keep."""
    if interrupted() is Termination.ABORTED:
        raise Stopped(Termination.ABORTED)


@dataclass(frozen=True)
class CheckedData:
    """The checked data of a fit.

    Attributes:
        source: the rows, with class weights and the unit of the weights applied
        moments: moments of inputs (d,) and targets (T,)
        codes: class of each row (N,), None for numbers
        weights: class weights (K,), None without them
        groups: rows that are left out by groups, None without groups
    """

    source: Source
    moments: Moments
    codes: Codes | None
    weights: Float | None
    groups: GroupedRows | None = None

    def input_variance(self, problem: Problem) -> Float:
        """Return the variance (d',) of the inputs after the problem's scaling."""
        return input_variance(self.source.columns, self.moments, problem.empty.scaling)


def checked_data(
    source: Source,
    request: Request,
    executor: Executor,
    held_out: Source | None,
    interrupted: Interrupted,
    weight_unit: float | None = None,
) -> CheckedData:
    """Check the data of a fit and determine their moments, classes and the unit of their weights.

    Raises ``Stopped`` if an abort was requested, ``UsageError`` for options that do not suit the
    data, and ``DataError`` for data that cannot be fitted.

    Args:
        source: the training data, N rows
        request: the options
        executor: runs the passes over the tiles
        held_out: the held-out data, or None
        interrupted: returns the reason to end the fit, or None
        weight_unit: the unit of the weights of an earlier fit; None determines it
    """
    check_aborted(interrupted)
    return_freed_memory(
        KEPT if request.memory_limit == "auto" else min(int(request.memory_limit) >> 7, KEPT)
    )
    check_request(source, request, held_out)
    labels = source.columns.classes
    codes = None
    weights = None
    if labels is not None:
        count = partial(_classes_of_tile, len(labels))
        progress = partial(check_aborted, interrupted)
        tiles = [tile for _, tile in executor.map(count, source, range(source.n_tiles), progress)]
        codes = np.concatenate([tile_codes for tile_codes, _ in tiles])
        totals = np.sum([tile_totals for _, tile_totals in tiles], axis=0)
        if request.class_weight is not None:
            weights = class_weights(request.class_weight, labels, totals)
            source = source.with_class_weights(weights)
            totals = totals * weights
    moments = checked_moments(source, executor, interrupted)
    check_range(moments, source.columns)
    unit = unit_of_weights(source, moments) if weight_unit is None else weight_unit
    if unit != 1.0:
        source = source.with_weight_unit(unit)
        moments = checked_moments(source, executor, interrupted)
    if labels is not None:
        _check_classes(source, int(np.count_nonzero(totals)), moments.targets.n)
    groups = grouped_rows(source, executor, partial(check_aborted, interrupted))
    return CheckedData(source, moments, codes, weights, groups)


def grouped_rows(
    source: Source, executor: Executor, progress: Callable[[int, int], None]
) -> GroupedRows | None:
    """Return the rows that are left out of a fit by groups; None if the rows have no groups.

    Raises ``DataError`` if all rows belong to one group.

    Args:
        source: the rows
        executor: reads the groups, in two passes
        progress: called between tiles
    """
    if not source.grouped:
        return None
    tiles = range(source.n_tiles)
    counts: GroupCounts = reduce(
        add, (part for _, part in executor.map(_groups_of_tile, source, tiles, progress))
    )
    if len(counts.codes) < 2:
        raise DataError(
            "all rows belong to one group, so none can be left out: leave groups out, or name "
            "another column"
        )
    drawn = counts.drawn()
    parts = [
        part for _, part in executor.map(partial(_drawn_of_tile, drawn), source, tiles, progress)
    ]
    rows, codes = (np.concatenate(values) for values in zip(*parts, strict=True))
    return drawn.of_rows(rows, codes)


def _groups_of_tile(source: Source, number: int) -> GroupCounts:
    """Return the numbers of rows of a tile's groups."""
    groups = source.groups_of_tile(number)
    assert groups is not None
    return GroupCounts.of(groups)


def _drawn_of_tile(drawn: DrawnGroups, source: Source, number: int) -> tuple[Int, Int]:
    """Return the numbers (n,) and groups (n,) of a tile's rows that are left out."""
    groups = source.groups_of_tile(number)
    assert groups is not None
    rows = number * source.tile_rows + np.arange(len(groups), dtype=np.int64)
    mask = drawn.has(groups, rows)
    return rows[mask], groups[mask]


def unit_of_weights(source: Source, moments: Moments) -> float:
    """Return the mean positive weight of the rows, so that a common factor of the weights has no
    effect; 1 if their scale matters: a known noise, or numbers of equal rows for classes."""
    scale_matters = source.has_known_noise or source.columns.classes is not None
    if scale_matters or not source.weighted:
        return 1.0
    return float(moments.targets.total[0] / moments.targets.n)


def _classes_of_tile(
    n_classes: int, source: Source, number: int
) -> tuple[NDArray[np.integer[Any]], Float]:
    """Return the class codes of a tile (one byte each for up to 127 classes) and the weight of each
    class."""
    tile = source.tile(number)
    codes = tile.t[:, 0].astype(np.int64)
    totals = np.bincount(codes, tile.weights, minlength=n_classes).astype(np.float64)
    return codes.astype(np.min_scalar_type(-1 - n_classes)), totals


def check_request(source: Source, request: Request, held_out: Source | None = None) -> None:
    """Check a request and held-out data against a source's columns, without reading rows. Raises as
    a fit does."""
    require_target(source)
    columns = source.columns
    several = source.n_targets > 1
    target = f"the target {quoted(source.columns.target)}"
    kinds = {
        True: f"{target} is a number: ingest the data with classes=True (`--classes`)",
        False: f"{target} is a class: use RVMClassifier, or ingest a number",
    }
    if request.classify not in (None, columns.classes is not None):
        raise UsageError(f"{source}: {kinds[bool(request.classify)]}")
    takes = requested_likelihood(columns.classes, request, source.n_rows).takes
    priors = any(request.alpha_prior) or any(request.noise_prior)
    plain = not several and not priors
    for wrong, message in (
        (
            request.class_weight is not None and "class_weight" not in takes,
            "class_weight needs a target that is a class",
        ),
        (
            several and request.noise == "local",
            "noise='local' needs one target: leave noise='auto'",
        ),
        (
            request.residual == "local" and "residual" not in takes,
            "residual='local' needs numeric targets: leave residual='auto'",
        ),
        (
            request.residual == "local" and not request.estimates_noise,
            "residual='local' needs an estimated noise variance: leave noise out, or "
            "residual='auto'",
        ),
        (
            request.warp_target != "none"
            and not (
                "warp_target" in takes and plain and request.estimates_noise and request.standardize
            ),
            "a warped target must be one number, standardized, whose noise variance is estimated "
            "without a prior: leave warp_target='none'",
        ),
        (
            several and priors,
            "alpha_prior and noise_prior need one target: fit each target separately",
        ),
        (
            request.solver == "fast"
            and not ("solver" in takes and plain and not request.fixed_alpha),
            "solver 'fast' supports one numeric target without priors and fixed_alpha: use "
            "'fixed-point'",
        ),
    ):
        if wrong:
            raise UsageError(f"{source}: {message}")
    if held_out is not None:
        require_like(held_out, columns, source.n_targets)


def checked_moments(source: Source, executor: Executor, interrupted: Interrupted) -> Moments:
    """Return the stored or computed moments of all rows. Raises ``DataError`` if they are not
    finite, ``Stopped`` on abort."""
    moments: Moments = (
        source.moments
        or executor.run([MomentsPass()], source, partial(check_aborted, interrupted))[0]
    )
    if moments.first_bad is not None:
        row, column = moments.first_bad
        names = [
            *source.columns.features,
            *source.columns.target_names(source.n_targets),
            "the weights",
        ]
        first = f"the first in row {row:,} (counted from 0), column {quoted(names[column])}"
        raise DataError(
            f"{moments.bad:,} values are infinite, or NaN outside the features, {first}: fill or "
            "drop them"
        )
    if not moments.targets.n:
        raise DataError("no row has a weight above zero: there is nothing to fit")
    check_values(str(source), moments, source.columns)
    return moments


def _check_classes(source: Source, there: int, rows: int) -> None:
    """Raise ``DataError`` for fewer than two classes, or for many classes with few rows each: these
    are probably numbers."""
    target = quoted(source.columns.target)
    if there < 2:
        classes = "only one class" if there else "no classes"
        raise DataError(
            f"the target {target} has {classes} among the rows with positive weight: at least two "
            "are needed"
        )
    if there > MANY and rows < 2 * there:
        needs = (
            f"with more than {MANY} classes, each needs 2 rows on average; merge rare classes, or "
            "fit a number"
        )
        raise DataError(
            f"the target {target} has {there:,} classes in {rows:,} rows with positive weight: "
            f"{needs}"
        )


def new_problem(data: CheckedData, request: Request, *, held_out: bool) -> Problem:
    """Construct the problem of a fit; a kernel to be learned has its initial value.

    Args:
        data: the training data
        request: the options
        held_out: True if the fit has held-out data
    """
    source = data.source
    moments = data.moments
    classes = source.columns.classes
    likelihood = requested_likelihood(classes, request, source.n_rows)
    scaling = _scaling(moments, source.columns, request, likelihood)
    scaling = replace(scaling, weight_unit=source.weight_unit)
    kernel = resolve_kernel(request, moments, source.columns, scaling)
    functions = resolve_basis(request, source, scaling)
    empty = Design(
        kernel,
        scaling,
        np.zeros((0, source.n_features)),
        NONE,
        False,
        scaling.inputs(moments.inputs.mean[None])[0],
        functions,
    )
    require_distances(request, empty)
    variances = np.ones(1)
    if likelihood.has_noise:
        variances = scaled_variances(moments.targets, scaling)
    require_no_constant_target(source, variances)
    scales = scaling.t_scale
    noise: Any = None
    if likelihood.has_noise and not isinstance(request.noise, str):
        noise = np.clip(request.noise / scales**2, *NOISE)
        noise = of_several(noise, float(noise[0]))
    return Problem(
        n_rows=source.n_rows,
        empty=empty,
        bias=request.fit_intercept,
        target_variance=float(variances.mean()),
        noise_variance=noise,
        target_scale=root_mean(scales),
        shuffled=source.shuffled,
        held_out=held_out,
        likelihood=likelihood,
        n_classes=len(classes or ()),
        codes=data.codes,
        prior=_prior(request, float(scales[0]), labels_by_name(functions, source.columns.features)),
        target_variances=of_several(np.where(variances > 0, variances, 1.0), None),
        groups=data.groups,
    )


def of_several(values: Float, single: Any) -> Any:
    """Return the values (T,) of several targets; for one target, ``single``."""
    return values if len(values) > 1 else single


def require_distances(request: Request, empty: Design) -> None:
    """Raise ``UsageError`` if local residuals are requested and the kernel measures no
    distances."""
    name = Metric.lacks(empty)
    if request.residual == "local" and name:
        raise UsageError(
            "residual='local' needs a kernel of distances, in which rows are near; kernel "
            f"{quoted(name)} has none: choose another kernel, such as 'gaussian', or leave "
            "residual='auto'"
        )


def scaled_variances(targets: ColumnMoments, scaling: Scaling) -> Float:
    """Return the variances (T,) of the scaled targets, weighted by rows; 1 is exact."""
    variances = (targets.variance * targets.total / targets.n) / scaling.t_scale**2
    return np.where(np.abs(variances - 1.0) < GRAIN, 1.0, variances)


def require_no_constant_target(source: Source, variances: Float) -> None:
    """Raise ``DataError`` if some but not all of several targets are constant."""
    if variances.any() and not variances.all():
        name = source.columns.target_names(source.n_targets)[int(np.argmin(variances))]
        raise DataError(
            f"the target {quoted(name)} is constant: leave it out, or use MultiOutputRegressor"
        )


def _scaling(
    moments: Moments, columns: Columns, request: Request, likelihood: Likelihood
) -> Scaling:
    """Compute the scaling from the training moments: subtract the mean, divide by the standard
    deviation (ddof 0).

    The scale of a constant feature is 1; the scale of a constant target is its absolute value
    (unless it is nearly zero), so that the noise floor is in proportion to it. Without
    ``standardize``, only the target mean is subtracted, for numerical accuracy, and without a bias
    nothing is subtracted. Class codes are not scaled. A missing number becomes the mean, a missing
    label is a separate level, and a feature with gaps gets an indicator column.

    Args:
        moments: moments of inputs (d,) and targets (T,)
        columns: names of the features, and their levels
        request: the options
        likelihood: the likelihood of the target
    """
    inputs = moments.inputs
    d = len(inputs.mean)
    x_shift = np.zeros(d)
    x_scale = np.ones(d)
    if request.standardize:
        x_shift = inputs.mean
        x_scale = np.where(inputs.deviation > 0, inputs.deviation, 1.0)
    t_shift, t_scale = _target_scaling(moments.targets, request, likelihood)
    levels = np.array([len(columns.categories.get(name, ())) for name in columns.features])
    blank = (np.where(levels > 0, levels + 1.0, inputs.mean) - x_shift) / x_scale
    gaps = np.flatnonzero(inputs.missing)
    share = inputs.missing[gaps] / inputs.n
    x_shift = np.append(x_shift, share)
    x_scale = np.append(x_scale, np.sqrt(share * (1 - share)))
    features = replace(FeatureMap.plain(d), gaps=gaps) if len(gaps) else None
    blanks = np.append(blank, 0 * share) if blank.any() else None
    return Scaling(x_shift, x_scale, t_shift, t_scale, features, blank=blanks)


def _target_scaling(
    targets: ColumnMoments, request: Request, likelihood: Likelihood
) -> tuple[Float, Float]:
    """Return the shift and the scale (T,) of targets; targets without noise are not changed."""
    zeros = np.zeros(len(targets.mean))
    scale = np.ones(len(targets.mean))
    if not likelihood.has_noise:
        return zeros, scale
    if request.standardize:
        scale = np.where(targets.deviation > 0, targets.deviation, 1.0)
    size = np.abs(targets.mean)
    scale = np.where(targets.constant & (size > 1 / FARTHEST), size, scale)
    centred = request.standardize or request.fit_intercept
    return (targets.mean if centred else zeros), scale


def _prior(request: Request, target_scale: float, labels: dict[str, int]) -> Prior:
    """Construct the prior of a request, with the noise rate in squared target units; ``labels``
    maps names to leading columns."""
    (shape, rate) = request.noise_prior
    fixed = request.fixed_alpha or {}
    for name in fixed:
        Check("word", tuple(labels))("a name in fixed_alpha", name)
    noise = GammaDensity(shape, rate / target_scale**2)
    held = tuple(sorted((labels[name], a) for name, a in fixed.items()))
    return Prior(GammaDensity(*request.alpha_prior), noise, held)
