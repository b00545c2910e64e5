"""The last stage of a fit: decide whether errors of the nearest rows correct its predictions, and
collect these rows.

Rows that are left out of the fit in folds (``residual_folds``) decide: a local kernel is learned
from half of them, each predicted from its neighbours outside its fold, and judges the other half
beside the fit alone, and the reverse. With more rows, neighbours are nearer, so the gain on a
sample is a lower bound. If the correction is kept, the errors of all rows are left-out errors or,
for larger data, residuals from one pass (``residual_rows``), and the kernel is learned again.
Several targets share their neighbours, each with its own kernel; the gain is the mean over targets.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

import numpy as np

from partirvm.core.diagnostics import NumberDiagnostics
from partirvm.core.left_out import Calibration, quantiles, sampled_rows
from partirvm.core.newton import Poll
from partirvm.core.scores import MOST_TARGETS
from partirvm.data.source import Source
from partirvm.execution import Executor
from partirvm.learning.residual_folds import LeftOutFolds, left_out_folds, nearest
from partirvm.learning.residual_rows import Keep, cells_of
from partirvm.learning.sample import Spent, gathered
from partirvm.likelihoods.noise_fit import LOCAL, evenly
from partirvm.local import kriging
from partirvm.local.cells import LOG_FACTOR, NOISE, Cells, panel_rows
from partirvm.local.kriging import Learned, LocalKernel, Panels, learned, moments, starts_of
from partirvm.local.metric import Metric
from partirvm.local.residuals import LocalResiduals, hoods_of
from partirvm.planning.memory import bytes_of_residuals
from partirvm.process import in_threads
from partirvm.strategies.problem import FitResiduals, ResidualsFitted
from partirvm.types import (
    PANEL_ROWS,
    RESIDUAL_COLUMNS,
    RESIDUAL_NEIGHBOURS,
    RESIDUAL_TEACHERS,
    RESIDUAL_TRIAL,
    Float,
    Int,
)

ByNumber: TypeAlias = dict[int, tuple[Float, Float]]
"""Mean and variance of errors by the number of neighbours."""

PARTS = 8
"""Number of parts of the row order (``spread``)."""

LEARNING_ROWS, CALIBRATION_ROWS = 1024, 1024
"""Maximum number of rows from which family, metric and kernel are learned, and of rows for
calibration. The noise is learned from ``RESIDUAL_TEACHERS`` rows, because rare large errors beside
near copies determine it."""

FEWER, FEWER_NATS = 0.005, 0.005
"""Gains in the error and in the mean log density that justify more neighbours in predictions."""

NATS, RMSE, LOSS = 0.02, 0.02, 0.03
"""Gains in the mean log density and in the error of left-out rows, one of which suffices, and the
fraction by which the error may rise in any case."""

SURE = 2.0
"""Number of standard errors by which the error must fall or rise to count."""

TRIAL_ROWS, FEW_NEIGHBOURS = RESIDUAL_TRIAL
"""Maximum number of rows of a trial, and maximum k in it and in the metric search. The last search
uses ``RESIDUAL_NEIGHBOURS``; its kernel works for 60 neighbours as well."""

LEAST_LEFT_OUT = 20
"""Minimum number of left-out rows."""


def fit_residuals(
    asked: FitResiduals,
    source: Source,
    executor: Executor,
    progress: Callable[..., None],
    spent: Spent,
    keep: Keep | None = None,
) -> ResidualsFitted:
    """Decide from left-out rows whether a fit gets local residuals, and make them; None without a
    metric or memory.

    ``keep`` writes the rows to disk if they do not fit in memory. ``progress`` is also called
    before each evaluation of a search and may raise an exception to end the work.
    """
    metric = Metric.of(asked.design, source.columns)
    T = len(asked.left_out)
    left_out = len(asked.left_out[0].rows)
    if metric is None or left_out < LEAST_LEFT_OUT:
        return ResidualsFitted()
    options = asked.options
    width = metric.width + T + RESIDUAL_COLUMNS
    size, making = bytes_of_residuals(width, source.n_rows, options.neighbours)
    _, least = bytes_of_residuals(width, left_out, options.neighbours)
    in_memory = making <= options.residual_bytes
    if least > options.residual_bytes:
        return ResidualsFitted()
    records, X = left_out_records(asked, metric, source, executor, progress, spent)
    rows = spread(evenly(left_out, TRIAL_ROWS if asked.trial else RESIDUAL_TEACHERS))
    folds = left_out_folds(asked, X, rows, progress)
    del X
    trials, gains, helpful, many = _trials(asked, folds, records, metric.width, progress)
    if not (options.residual == LOCAL or helpful):
        return replace(gains, rmse=())
    if asked.trial:
        return gains
    if not in_memory and keep is None:
        return replace(gains, rmse=(), lacking=size)
    families = (
        list(kriging.CORRELATIONS)
        if options.residual_family == "auto"
        else [options.residual_family]
    )
    kernels, scales = _searched(families, many, trials, progress)
    metric = metric.scaled(scales)
    records[:, : metric.width] *= scales
    cells = Cells.of(records, n_targets=T)
    k = min(options.neighbours, folds.most_neighbours)
    own = folds.own_records(records, metric.width)
    if (
        sampled_rows(source.n_rows, shuffled=False) is not None
    ):  # not all rows of positive weight were left out
        place = None if in_memory else keep
        cells = cells_of(
            asked, metric, source, executor, progress, spent, place, records[:, : metric.width]
        )
        near = nearest(cells, own, k)
    else:
        near = folds.near(records, metric.width, k)
    kernels = _learned(own, near[:, :RESIDUAL_NEIGHBOURS], metric.width, kernels, progress)
    kernels = [
        replace(each, inflation=trial.inflation)
        for each, trial in zip(kernels, trials, strict=True)
    ]
    some = slice(CALIBRATION_ROWS)
    tried = _by_number(own[some], near[some], metric.width, kernels)
    errors = own[some, metric.width : LOG_FACTOR].T
    k = max(map(fewest, errors, tried))
    found = LocalResiduals(metric, tuple(kernels), k, cells, ())
    corrected, after = _calibrated(
        asked, rows[some], errors, found, [of_target[k] for of_target in tried]
    )
    if options.residual != LOCAL and spoils(gains.density_gain, errors, after):
        return replace(gains, rmse=(), rmse_gain=corrected.rmse_gain)
    return replace(corrected, density_gain=gains.density_gain)


def left_out_records(
    asked: FitResiduals,
    metric: Metric,
    source: Source,
    executor: Executor,
    progress: Callable[..., None],
    spent: Spent,
) -> tuple[Float, Float]:
    """Return the records (n, width) of the left-out rows, with their errors, and their inputs (n,
    d)."""
    rows = asked.left_out[0].rows
    u = asked.left_out[0].targets[:, 1]
    with gathered(source, rows, executor, progress, spent) as sample:
        X = sample.rows.gather(rows).X
    factor = np.ones(len(u))
    for start in range(
        0, len(u), PANEL_ROWS
    ):  # a panel holds a kernel value for each row and centre of the noise
        factor[start : start + PANEL_ROWS] *= asked.design.noise_factor(
            X[start : start + PANEL_ROWS]
        )
    errors = [each.expected()[0] / np.sqrt(u) for each in asked.left_out]
    points = metric(asked.design.scaling.inputs(X))
    tiles = rows // source.tile_rows
    parts = [
        source.original_rows(tile)[rows[tiles == tile] - tile * source.tile_rows]
        for tile in np.unique(tiles)
    ]
    records = np.column_stack(
        [points, *errors, np.log(factor), 1.0 / (u * factor), np.concatenate(parts)]
    )
    return records, X


def spread(rows: Int) -> Int:
    """Return the rows in an order in which each part has rows from all regions."""
    return rows[np.argsort(np.arange(len(rows)) % PARTS, kind="stable")]


def _panels(own: Float, near: Float, rank: int) -> list[Panels]:
    """Return the neighbourhoods and errors of rows for each target, in groups of ``panel_rows``.

    ``own`` are the records of the rows and ``near`` those of their neighbours; points have ``rank``
    coordinates.
    """
    rows = panel_rows(near.shape[1])
    parts = [slice(start, start + rows) for start in range(0, len(own), rows)]
    found = [
        hoods_of(near[some], own[some, :rank], own[some, LOG_FACTOR], own[some, NOISE])
        for some in parts
    ]
    errors = own[:, rank:LOG_FACTOR].T
    return [
        (list(hoods), [each[some] for some in parts])
        for *hoods, each in zip(*found, errors, strict=True)
    ]


@dataclass(frozen=True)
class Trial:
    """A local kernel of one target on m left-out rows, half of which taught the kernel that
    corrects the other half.

    rises : (m,), the rise in the log density of each row over the fit alone
    before, after : (m,), the errors without and with the correction
    """

    kernel: LocalKernel
    rises: Float
    before: Float
    after: Float


def _trials(
    asked: FitResiduals,
    folds: LeftOutFolds,
    records: Float,
    rank: int,
    progress: Callable[..., None],
) -> tuple[list[LocalKernel], ResidualsFitted, bool, list[Panels]]:
    """Return kernels learned from left-out rows, their gains with the corrected RMSE, whether these
    justify the correction, and the panels of all rows of the trial.

    asked : the fit
    folds : rows left out in folds, the first of which are used
    records : (n, width), of all left-out rows
    rank : the number of coordinates of their points
    progress : called before each evaluation of a search
    """
    m = min(len(folds.rows), TRIAL_ROWS)
    k = min(asked.options.neighbours, FEW_NEIGHBOURS, folds.most_neighbours)
    own = folds.own_records(records, rank)[:m]
    near = folds.near(records, rank, k)[:m]
    trials = [
        _trial(asked, folds, own, near, rank, target, progress)
        for target in range(len(asked.left_out))
    ]
    before = np.stack([each.before for each in trials])
    after = np.stack([each.after for each in trials])
    rises = np.mean([mixture_rises(each.rises) for each in trials], axis=0)
    rmse = tuple(np.sqrt(np.mean(after**2, axis=1)).tolist())
    gains = ResidualsFitted(None, error_gain(before, after)[0], float(np.mean(rises)), rmse)
    return (
        [each.kernel for each in trials],
        gains,
        helps(rises, before, after),
        _panels(own, near, rank),
    )


def _trial(
    asked: FitResiduals,
    folds: LeftOutFolds,
    own: Float,
    near: Float,
    rank: int,
    target: int,
    progress: Callable[..., None],
) -> Trial:
    """Learn the local kernel of a target from each half of m rows, and judge it on the other half.

    asked : the fit
    folds : rows left out in folds, which begin with these rows
    own : (m, width), their records
    near : (m, k, width), the records of their neighbours
    rank : the number of coordinates of their points
    target : the number of the target
    progress : called before each evaluation of a search
    """
    m = len(own)
    inflation, of_alone = _alone(asked, folds, target, own)
    before = own[:, rank + target]
    rises = np.empty(m)
    after = np.empty(m)
    kernels = list[LocalKernel]()
    for first in (0, 1):
        taught = slice(first, None, 2)
        judged = slice(1 - first, None, 2)
        panels = _panels(own[taught], near[taught], rank)[target]
        kernel = learned(panels, starts_of(panels), progress)[0]
        kernel = replace(kernel, inflation=inflation)
        hoods, _ = _panels(own[judged], near[judged], rank)[target]
        mean, variance = map(
            np.concatenate, zip(*(moments(kernel, each) for each in hoods), strict=True)
        )
        after[judged] = before[judged] - mean
        of_local = -0.5 * (np.log(2 * np.pi * variance) + after[judged] ** 2 / variance)
        rises[judged] = of_local - of_alone[judged]
        kernels.append(kernel)
    return Trial(kernels[0], rises, before, after)


def mixture_rises(rise: Float) -> Float:
    """Return how much a mixture raises the log density of m rows, given the ``rise`` (m,) under the
    local kernel.

    The fit alone has weight 1/m in it. One large error beside near copies, where a kernel learned
    from few rows predicts no variance, thus costs less than log(m)/m of the mean and cannot
    outweigh the rest: many rows teach the noise later.
    """
    m = len(rise)
    return np.asarray(np.logaddexp(np.log1p(-1.0 / m) + rise, -np.log(m)))


def error_gain(before: Float, after: Float) -> tuple[float, float]:
    """Return the fraction by which the root mean squared error over all targets falls, and its
    standard error.

    ``before`` and ``after`` (T, m) are the errors of m rows.
    """
    squares, fewer = (np.mean(each**2, axis=0) for each in (before, after))
    mean = max(float(squares.mean()), kriging.LEAST_SQUARE)
    gain = 1.0 - float(np.sqrt(fewer.mean() / mean))
    return gain, 0.5 * float((squares - fewer).std()) / (mean * np.sqrt(len(squares)))


def helps(rises: Float, before: Float, after: Float) -> bool:
    """Return True if the correction is worth its rows.

    The mean log density must rise by ``NATS`` and its standard error, or the error fall by ``RMSE``
    and ``SURE`` standard errors while the density does not fall. ``rises`` (m,) are those of the
    log density.
    """
    gain, error = error_gain(before, after)
    nats = float(rises.mean())
    denser = nats >= max(NATS, float(rises.std()) / np.sqrt(len(rises)))
    return denser or (gain >= max(RMSE, SURE * error) and nats >= 0.0)


def spoils(nats: float, before: Float, after: Float) -> bool:
    """Return True if the correction costs more in the error than it gains in the density, ``nats``
    per row.

    The error must rise by more than ``LOSS`` and ``SURE`` standard errors. A rise of a tenth of the
    error is worth a tenth of a nat.
    """
    gain, error = error_gain(before, after)
    return gain < -max(LOSS, SURE * error, nats)


def _alone(
    asked: FitResiduals, folds: LeftOutFolds, target: int, own: Float
) -> tuple[float, Float]:
    """Return the ratio of predicted variance to squared left-out errors, at least 1, and the log
    densities (m,) under the fit alone of the errors of the first m rows of ``folds``, whose records
    ``own`` (m, width) are given."""
    left_out = asked.left_out[target]
    T = len(asked.left_out)
    m = len(own)
    beta, variance = (
        float(np.broadcast_to(each, T)[target])
        for each in (asked.fit.beta, asked.fit.target_variance)
    )
    calibration = left_out.calibration(beta, variance)
    assert calibration is not None
    expected, variances = folds.left_out[target].expected()
    square = max(float(np.mean(expected**2)), kriging.LEAST_SQUARE)
    inflation = max((float(np.mean(variances)) + calibration.noise_variance) / square, 1.0)
    stated = calibration.scale**2 * (variances[:m] + calibration.noise_variance)
    stated *= np.exp(own[:, LOG_FACTOR]) * own[:, NOISE]
    errors = own[:, LOG_FACTOR - T + target]
    return inflation, -0.5 * (np.log(2 * np.pi * stated) + inflation * errors**2 / stated)


def _corrected(kernel: LocalKernel, panels: Panels) -> float:
    """Return the root mean squared error after the correction."""
    rests = [some - moments(kernel, hoods)[0] for hoods, some in zip(*panels, strict=True)]
    return max(float(np.sqrt(np.mean(np.concatenate(rests) ** 2))), kriging.LEAST_SQUARE)


def _searched(
    families: Sequence[str], many: list[Panels], kernels: list[LocalKernel], poll: Poll
) -> tuple[list[LocalKernel], Float]:
    """Return the kernel of each target, with the best of ``families``, and coordinate scales (r,).

    ``kernels`` were learned from a few rows; both results are learned from ``many``. Scales are
    geometric means over the targets. They stay 1 unless the log density of n rows rises by more
    than ½ r log n (Schwarz 1978).
    """
    plain = [_family(families, *each, poll) for each in zip(many, kernels, strict=True)]
    found = [
        learned(each, [start], poll, scales=True)
        for each, (start, *_) in zip(many, plain, strict=True)
    ]
    logs = np.log([scales for _, scales, _ in found])
    n = sum(map(len, many[0][1]))
    rise = n * sum(after - before for (*_, before), (*_, after) in zip(plain, found, strict=True))
    if rise <= 0.5 * logs.size * np.log(n):
        return [kernel for kernel, *_ in plain], np.ones(logs.shape[1])
    levels = logs.mean(axis=1, keepdims=True)
    shorter = zip(found, np.exp(levels[:, 0]).tolist(), strict=True)
    kernels = [replace(kernel, length=kernel.length / level) for (kernel, *_), level in shorter]
    return kernels, np.exp((logs - levels).mean(axis=0))


def _family(families: Sequence[str], many: Panels, kernel: LocalKernel, poll: Poll) -> Learned:
    """Return what is learned from many rows (``learned``) with the family that fits them best in
    density and error."""
    tried: list[Learned] = in_threads(
        lambda family: learned(many, [replace(kernel, family=family)], poll), families
    )
    return min(tried, key=lambda found: np.log(_corrected(found[0], many)) - found[2])


def _learned(
    own: Float, near: Float, rank: int, kernels: list[LocalKernel], poll: Poll
) -> list[LocalKernel]:
    """Return the kernel of each target, learned from the records of left-out rows and of their
    neighbours.

    The noise is learned from all rows, with fewer neighbours, which takes a quarter of the time.
    """
    few = min(LEARNING_ROWS, len(own))
    least = min(near.shape[1], FEW_NEIGHBOURS)
    for panels, form in (
        (_panels(own[:few], near[:few], rank), True),
        (_panels(own, near[:, :least], rank), False),
    ):
        starts = [
            [replace(each, noise=factor * each.noise) for factor in (1.0, 10.0, 0.1)]
            for each in kernels
        ]
        kernels = [
            learned(each, some, poll, form=form)[0]
            for each, some in zip(panels, starts, strict=True)
        ]
    return list(kernels)


def _by_number(some: Float, near: Float, rank: int, kernels: list[LocalKernel]) -> list[ByNumber]:
    """Return the mean and variance of row errors for each target, by number of neighbours: a third,
    two thirds, all.

    ``some`` are the records of the rows, ``near`` those of their neighbours.
    """
    found = [ByNumber() for _ in kernels]
    for count in (-(-near.shape[1] * part // 3) for part in (1, 2, 3)):
        for kernel, (hoods, _), of_target in zip(
            kernels, _panels(some, near[:, :count], rank), found, strict=True
        ):
            mean, variance = map(
                np.concatenate, zip(*in_threads(partial(moments, kernel), hoods), strict=True)
            )
            of_target[count] = mean, variance
    return found


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
    asked: FitResiduals,
    some: Int,
    errors: Float,
    found: LocalResiduals,
    predicted: Sequence[tuple[Float, Float]],
) -> tuple[ResidualsFitted, Float]:
    """Calibrate local residuals on ``some`` (m,) of the left-out rows; return them with the gain in
    RMSE, and the corrected errors (T, m).

    ``errors`` (T, m) are the errors of these rows; ``predicted`` holds the mean and variance (m,)
    that the other rows predict for them, for each target.
    """
    calibrations = list[Calibration]()
    after = list[Float]()
    shown = list[NumberDiagnostics]()
    for target, (mean, variance) in enumerate(predicted):
        kernel = found.kernels[target]
        left_out = asked.left_out[target]
        scaling = asked.design.scaling
        rest = errors[target] - mean
        t = left_out.targets[some, 0]
        top, levels = quantiles(np.abs(rest) * np.sqrt(kernel.inflation / variance))
        calibrations.append(Calibration(len(some), kernel.noise, 1.0, top, levels))
        after.append(rest)
        # without coverage: these rows calibrate the intervals
        diagnostics = NumberDiagnostics.of(t, t - rest, np.sqrt(variance), left_out.rows[some], ())
        shown.append(
            diagnostics.scaled(scaling.t_shift[target], scaling.t_scale[target], scaling.target)
        )
    found = replace(found, calibrations=tuple(calibrations))
    shown = shown[:MOST_TARGETS]
    rests = np.stack(after)
    rmse = tuple(np.sqrt(np.mean(rests**2, axis=1)).tolist())
    return ResidualsFitted(
        found, error_gain(errors, rests)[0], rmse=rmse, diagnostics=tuple(shown)
    ), rests
