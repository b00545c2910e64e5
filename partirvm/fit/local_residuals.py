"""The last stage of a fit: decide whether errors of the nearest rows correct its predictions, and
collect these rows.

Rows that are left out of the fit in folds (``residual_folds``) decide: a local kernel is learned
from half of them, each predicted from its neighbours outside its fold, and judges the other half
beside the fit alone, and the reverse. With more rows, neighbours are nearer, so the gain on a
sample is a lower bound. If the correction is kept, the errors of all rows are left-out errors or,
for larger data, residuals from one pass (``residual_rows``), and the kernel is learned again.
Several targets share their neighbours, each with its own kernel; the gain is the mean over targets.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias

import numpy as np

from partirvm.core.diagnostics import NO_ENDS, NumberDiagnostics
from partirvm.core.held_back import sampled_rows
from partirvm.core.left_out import Calibration, inside_95, local_quantiles, quantiles
from partirvm.core.newton import Poll
from partirvm.core.scores import MOST_TARGETS
from partirvm.core.stacking import LeftOutNumbers
from partirvm.fit.residual_folds import LeftOutFolds, left_out_folds, nearest
from partirvm.fit.residual_rows import ResidualReader
from partirvm.fit.residual_trials import (
    FEW_NEIGHBOURS,
    TRIAL_ROWS,
    NearRows,
    ResidualsMaker,
    ResidualTrials,
    error_gain,
    joined_moments,
    residual_trials,
    spoils,
)
from partirvm.likelihoods.noise_fit import LOCAL, evenly
from partirvm.local import kriging
from partirvm.local.cells import Cells
from partirvm.local.kriging import Learned, LocalKernel, Panels, moments
from partirvm.local.kriging_search import learned
from partirvm.local.metric import Metric
from partirvm.local.residuals import LocalResiduals
from partirvm.planning.memory import JUDGES, bytes_of_residuals
from partirvm.process import in_threads
from partirvm.strategies.instructions import FitResiduals, ResidualsFitted
from partirvm.types import (
    PANEL_ROWS,
    RESIDUAL_COLUMNS,
    RESIDUAL_NEIGHBOURS,
    RESIDUAL_TEACHERS,
    Float,
    Int,
)

ByNumber: TypeAlias = dict[int, tuple[Float, Float]]
"""Mean and variance of errors by the number of neighbours."""

PARTS = 8
"""Number of parts of the row order (``spread``)."""

FORM_ROWS = 1024
"""Maximum number of rows from which family, metric and kernel are learned. The noise is learned
from ``RESIDUAL_TEACHERS`` rows, because rare large errors beside near copies determine it."""

FEWER = 0.005
"""Fall of the error that justifies more neighbours in predictions."""

FEWER_NATS = 0.005
"""Rise of the mean log density that justifies more neighbours in predictions."""


LEAST_LEFT_OUT = 20
"""Minimum number of left-out rows."""


def fit_residuals(request: FitResiduals, reader: ResidualReader) -> ResidualsFitted:
    """Decide from left-out rows whether a fit gets local residuals, and make them.

    Without a metric or memory, or with too few left-out rows, nothing is measured and the result is
    empty.
    """
    options = request.options
    source = reader.source
    metric = Metric.of(request.design, source.columns)
    left_out = len(request.left_out[0].rows)
    if metric is None or left_out < LEAST_LEFT_OUT:
        return ResidualsFitted()
    width = metric.width + len(request.left_out) + RESIDUAL_COLUMNS
    size, making = bytes_of_residuals(width, source.n_rows, options.neighbours)
    _, least = bytes_of_residuals(width, left_out, options.neighbours)
    if least > options.residual_bytes:
        return ResidualsFitted()
    maker = maker_of(request, reader, metric)
    trials = residual_trials(maker)
    gains = trials.gains()
    if not (options.residual == LOCAL or trials.help()):
        return unused(gains)
    if request.trial:
        return gains
    in_memory = making <= options.residual_bytes
    if not in_memory and reader.keep is None:
        return replace(unused(gains), lacking=size)
    corrected, spoilt = made_residuals(maker, trials, in_memory=in_memory)
    if options.residual != LOCAL and spoilt:
        return unused(replace(gains, rmse_gain=corrected.rmse_gain))
    return replace(corrected, density_gain=gains.density_gain)


def unused(gains: ResidualsFitted) -> ResidualsFitted:
    """Return the gains of residuals that the model does not get: without a corrected error."""
    return replace(gains, rmse=())


def maker_of(request: FitResiduals, reader: ResidualReader, metric: Metric) -> ResidualsMaker:
    """Return the maker of a fit's residuals, after rows were left out in folds."""
    records, X = left_out_records(request, metric, reader)
    rows = spread(evenly(len(records), TRIAL_ROWS if request.trial else RESIDUAL_TEACHERS))
    folds = left_out_folds(request, X, rows, reader.progress)
    return ResidualsMaker(request, reader, metric, records, folds)


def made_residuals(
    maker: ResidualsMaker, trials: ResidualTrials, *, in_memory: bool
) -> tuple[ResidualsFitted, bool]:
    """Learn the local kernels from many rows, collect the rows, and calibrate.

    Args:
        maker: has the left-out rows
        trials: kernels of few rows, and the panels from which they were learned
        in_memory: whether the rows are kept in memory

    Returns the residuals, and whether they cost more in the error than they gain in the density.
    """
    options = maker.request.options
    progress = maker.reader.progress
    names = list(kriging.CORRELATIONS)
    families = names if options.residual_family == "auto" else [options.residual_family]
    kernels, scales = _searched(families, trials.panels, trials.kernels, progress)
    maker = rescaled(maker, scales)
    cells, near_rows = collected_rows(maker, in_memory=in_memory)
    kernels = _learned(near_rows.nearest(RESIDUAL_NEIGHBOURS), kernels, progress)
    kernels = [
        replace(kernel, inflation=trial.inflation)
        for kernel, trial in zip(kernels, trials.kernels, strict=True)
    ]
    residuals = LocalResiduals(maker.metric, tuple(kernels), 0, cells, ())
    judges = near_rows.take(slice(JUDGES))
    corrected, after = _calibrated(maker.request, maker.folds, residuals, judges)
    return corrected, spoils(trials.density_gain, judges.errors, after)


def rescaled(maker: ResidualsMaker, scales: Float) -> ResidualsMaker:
    """Return the maker with the coordinates of all points multiplied by ``scales`` (r,)."""
    records = maker.records.copy()
    records[:, : maker.metric.width] *= scales
    return replace(maker, metric=maker.metric.scaled(scales), records=records)


def collected_rows(maker: ResidualsMaker, *, in_memory: bool) -> tuple[Cells, NearRows]:
    """Return the rows that correct predictions, and the rows of the folds with neighbours among
    them."""
    reader = maker.reader
    neighbours = min(maker.request.options.neighbours, maker.folds.most_neighbours)
    rank = maker.metric.width
    if sampled_rows(reader.source.n_rows, shuffled=False) is None:
        # all rows of positive weight were left out
        n_targets = len(maker.request.left_out)
        return Cells.of(maker.records, n_targets=n_targets), maker.near_rows(neighbours)
    points = maker.records[:, :rank]
    cells = reader.cells(maker.request, maker.metric, points, in_memory=in_memory)
    rows = maker.folds.own_records(maker.records, rank)
    return cells, NearRows(rows, nearest(cells, rows, neighbours), rank)


def left_out_records(
    request: FitResiduals, metric: Metric, reader: ResidualReader
) -> tuple[Float, Float]:
    """Return the records (n, width) of the left-out rows, with their errors, and their inputs
    (n, d)."""
    rows = request.left_out[0].rows
    weights = request.left_out[0].targets[:, 1]
    X = reader.inputs(rows)
    factor = np.ones(len(weights))
    # a panel holds a kernel value for each row and centre of the noise
    for start in range(0, len(weights), PANEL_ROWS):
        factor[start : start + PANEL_ROWS] *= request.design.noise_factor(
            X[start : start + PANEL_ROWS]
        )
    errors = [left_out.expected()[0] / np.sqrt(weights) for left_out in request.left_out]
    points = metric(request.design.scaling.inputs(X))
    noise = 1.0 / (weights * factor)
    numbers = reader.original_rows(rows)
    return np.column_stack([points, *errors, np.log(factor), noise, numbers]), X


def spread(rows: Int) -> Int:
    """Return the rows in an order in which each part has rows from all regions."""
    return rows[np.argsort(np.arange(len(rows)) % PARTS, kind="stable")]


def _corrected(kernel: LocalKernel, panels: Panels) -> float:
    """Return the root mean squared error after the correction."""
    errors = [before - moments(kernel, hoods)[0] for hoods, before in zip(*panels, strict=True)]
    return max(float(np.sqrt(np.mean(np.concatenate(errors) ** 2))), kriging.LEAST_SQUARE)


def _searched(
    families: Sequence[str], panels: list[Panels], kernels: list[LocalKernel], poll: Poll
) -> tuple[list[LocalKernel], Float]:
    """Return the kernel of each target, with the best family, and coordinate scales (r,).

    Scales are geometric means over the targets. They stay 1 unless the log density of n rows rises
    by more than ½ r log n (Schwarz 1978).

    Args:
        families: names of the families that are tried
        panels: neighbourhoods and errors for each target, from which both results are learned
        kernels: the kernel of each target, learned from a few rows
        poll: called before each evaluation; may raise to stop the search
    """
    plain = [_family(families, *each, poll) for each in zip(panels, kernels, strict=True)]
    scaled = [
        learned(of_target, [kernel], poll, scales=True)
        for of_target, (kernel, *_) in zip(panels, plain, strict=True)
    ]
    logs = np.log([scales for _, scales, _ in scaled])
    n = sum(map(len, panels[0][1]))
    rise = n * sum(after - before for (*_, before), (*_, after) in zip(plain, scaled, strict=True))
    if rise <= 0.5 * logs.size * np.log(n):
        return [kernel for kernel, *_ in plain], np.ones(logs.shape[1])
    levels = logs.mean(axis=1, keepdims=True)
    kernels = [
        replace(kernel, length=kernel.length / level)
        for (kernel, *_), level in zip(scaled, np.exp(levels[:, 0]).tolist(), strict=True)
    ]
    return kernels, np.exp((logs - levels).mean(axis=0))


def _family(families: Sequence[str], panels: Panels, kernel: LocalKernel, poll: Poll) -> Learned:
    """Return what is learned from many rows (``learned``) with the family that fits them best in
    density and error.

    Args:
        families: names of the families that are tried
        panels: neighbourhoods and errors of one target
        kernel: the kernel from which each search starts
        poll: called before each evaluation; may raise to stop the search
    """
    trials: list[Learned] = in_threads(
        lambda family: learned(panels, [replace(kernel, family=family)], poll), families
    )
    return min(trials, key=lambda trial: np.log(_corrected(trial.kernel, panels)) - trial.density)


def _learned(near_rows: NearRows, kernels: list[LocalKernel], poll: Poll) -> list[LocalKernel]:
    """Return the kernel of each target.

    The noise is learned from all rows, with fewer neighbours, which takes a quarter of the time.

    Args:
        near_rows: left-out rows
        kernels: the kernel of each target from which the search starts
        poll: called before each evaluation; may raise to stop the search
    """
    for teachers, form in (
        (near_rows.take(slice(FORM_ROWS)), True),
        (near_rows.nearest(FEW_NEIGHBOURS), False),
    ):
        starts = [
            [replace(kernel, noise=factor * kernel.noise) for factor in (1.0, 10.0, 0.1)]
            for kernel in kernels
        ]
        kernels = [
            learned(panels, trials, poll, form=form)[0]
            for panels, trials in zip(teachers.panels(), starts, strict=True)
        ]
    return list(kernels)


def _by_number(near_rows: NearRows, kernels: Sequence[LocalKernel]) -> list[ByNumber]:
    """Return the mean and variance of row errors for each target, by number of neighbours: a third,
    two thirds, all."""
    by_number = [ByNumber() for _ in kernels]
    for part in (1, 2, 3):
        count = -(-near_rows.neighbours.shape[1] * part // 3)
        panels = near_rows.nearest(count).panels()
        for target, (hoods, _) in enumerate(panels):
            moments_of = partial(moments, kernels[target])
            by_number[target][count] = joined_moments(in_threads(moments_of, hoods))
    return by_number


def fewest(errors: Float, found: ByNumber) -> int:
    """Return the smallest number of neighbours beyond which more gain less than ``FEWER`` and
    ``FEWER_NATS``.

    ``found`` holds the mean and variance (m,) of the ``errors`` (m,) for each number.
    """
    rmse = {k: float(np.sqrt(np.mean((errors - mean) ** 2))) for k, (mean, _) in found.items()}
    losses = {
        k: 0.5 * float(np.mean(np.log(v) + (errors - mean) ** 2 / v))
        for k, (mean, v) in found.items()
    }
    most = (1.0 + FEWER) * min(rmse.values())
    nats = min(losses.values()) + FEWER_NATS
    return min((k for k in found if rmse[k] <= most and losses[k] <= nats), default=max(found))


def _calibrated(
    request: FitResiduals, folds: LeftOutFolds, residuals: LocalResiduals, near_rows: NearRows
) -> tuple[ResidualsFitted, Float]:
    """Choose the number of neighbours, and calibrate local residuals, on left-out rows.

    Args:
        request: the fit
        folds: rows left out in folds, which begin with these m rows
        residuals: without calibrations and number of neighbours
        near_rows: the rows

    Returns the residuals with the gain in RMSE, and the corrected errors (T, m).
    """
    errors = near_rows.errors
    by_number = _by_number(near_rows, residuals.kernels)
    k = max(map(fewest, errors, by_number))
    after = np.stack([before - of[k][0] for before, of in zip(errors, by_number, strict=True)])
    variances = [of[k][1] for of in by_number]
    grouped = request.left_out[0].groups is not None
    calibrations = tuple(
        calibration_of(kernel, *of_target, grouped=grouped)
        for kernel, *of_target in zip(residuals.kernels, after, variances, strict=True)
    )
    judges = folds.rows[: len(near_rows.rows)]
    diagnostics = tuple(
        _corrected_diagnostics(request, target, judges, after[target], variances[target])
        for target in range(min(len(after), MOST_TARGETS))
    )
    fitted = ResidualsFitted(
        replace(residuals, neighbours=k, calibrations=calibrations),
        error_gain(errors, after)[0],
        rmse=tuple(np.sqrt(np.mean(after**2, axis=1)).tolist()),
        diagnostics=diagnostics,
        left_out=_left_out(request, judges, after.T, np.column_stack(variances)),
    )
    return fitted, after


def _left_out(
    request: FitResiduals, judges: Int, errors: Float, variances: Float
) -> LeftOutNumbers:
    """Return left-out rows as they are predicted after the correction.

    Args:
        request: the fit
        judges: (m,), positions among the left-out rows
        errors: (m, T), their corrected errors
        variances: (m, T), predicted variances of their errors
    """
    first = request.left_out[0]
    return LeftOutNumbers(
        rows=first.rows[judges],
        targets=np.column_stack([left_out.targets[judges, 0] for left_out in request.left_out]),
        errors=errors,
        deviations=np.sqrt(variances),
        weights=first.targets[judges, 1],
        groups=None if first.groups is None else first.groups[judges],
        varies=True,
    )


def calibration_of(
    kernel: LocalKernel, errors: Float, variances: Float, *, grouped: bool = False
) -> Calibration:
    """Return the quantiles of corrected errors.

    Args:
        kernel: of the errors
        errors: corrected errors of left-out rows (m,)
        variances: predicted variances of these errors (m,)
        grouped: whether the rows were left out in groups
    """
    z = errors * np.sqrt(kernel.inflation / variances)
    top, levels = quantiles(np.abs(z))
    local = None if grouped else local_quantiles(z, np.sqrt(variances), top)
    return Calibration(len(errors), kernel.noise, 1.0, top, levels, local)


def _corrected_diagnostics(
    request: FitResiduals, target: int, judges: Int, after: Float, variance: Float
) -> NumberDiagnostics:
    """Return diagnostics of corrected left-out rows, without coverage: these rows calibrate the
    intervals.

    Args:
        request: the fit
        target: number of the target
        judges: (m,), positions among the left-out rows
        after: (m,), their corrected errors
        variance: (m,), predicted variances of their errors
    """
    left_out = request.left_out[target]
    scaling = request.design.scaling
    t = left_out.targets[judges, 0]
    rows = left_out.rows[judges]
    diagnostics = replace(
        NumberDiagnostics.of(t, t - after, np.sqrt(variance), rows, NO_ENDS),
        inside=inside_95(np.abs(after) / np.sqrt(variance)),
    )
    return diagnostics.scaled(scaling.t_shift[target], scaling.t_scale[target], scaling.target)
