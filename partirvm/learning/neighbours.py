"""The last stage of a fit: decide whether errors of the nearest rows correct its predictions, and collect these rows.

Left-out rows (``core.left_out``) decide: a local kernel is learned from some of them, each predicted from its
neighbours among the others, and compared with the fit alone. With more rows, neighbours are nearer, so the gain on a
sample is a lower bound. If the correction is kept, the errors of all rows are left-out errors or, for larger data,
residuals from one pass (``residual_rows``), and the kernel is learned again. Several targets share their neighbours,
each with its own kernel; the gain is the mean over targets.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias

import numpy as np

from partirvm.core.diagnostics import NumberDiagnostics
from partirvm.core.left_out import Calibration, quantiles, sampled_rows
from partirvm.core.newton import Poll
from partirvm.core.scores import MOST_TARGETS
from partirvm.data.source import Source
from partirvm.execution import Executor
from partirvm.learning.residual_rows import Keep, cells_of
from partirvm.learning.sample import Spent, gathered
from partirvm.likelihoods.gaussian import root_mean
from partirvm.likelihoods.noise_fit import LOCAL, evenly
from partirvm.local import kriging
from partirvm.local.cells import COLUMNS, LOG_FACTOR, NOISE, NUMBER, Cells, panel_rows
from partirvm.local.kriging import Conditional, Learned, LocalKernel, Panels, learned, moments, starts_of
from partirvm.local.metric import Metric
from partirvm.local.residuals import LocalResiduals, hoods_of
from partirvm.process import in_threads
from partirvm.strategies.problem import FitResiduals, ResidualsFitted
from partirvm.types import RESIDUAL_NEIGHBOURS, RESIDUAL_TEACHERS, Float, Int

ByNumber: TypeAlias = dict[int, tuple[Float, Float]]
"""Mean and variance of errors by the number of neighbours."""

FLOAT = 8  # Bytes of a number
TRIAL_SHARE, TRIAL_ROWS, PARTS = 10, 500, 8
"""Inverse fraction and maximum number of trial rows, and number of parts of the row order (``spread``)."""

LEARNING_ROWS, CALIBRATION_ROWS = 1024, 1024
"""Maximum number of rows from which family, metric and kernel are learned, and of rows for calibration. The noise is
learned from ``RESIDUAL_TEACHERS`` rows, because rare large errors beside near copies determine it."""

FEWER, FEWER_NATS = 0.005, 0.005
"""Gains in the error and in the mean log density that justify more neighbours in predictions."""

NATS, RMSE, LOSS = 0.05, 0.05, 0.1
"""Gains in the mean log density of left-out rows and in their error, one of which suffices. The other may fall by up to
a tenth of its value here."""

FEW_NEIGHBOURS, LEAST_LEFT_OUT = 20, 20
"""Maximum k in the trial and the metric search, and the minimum number of left-out rows. The last search uses
``RESIDUAL_NEIGHBOURS``; its kernel works for 60 neighbours as well."""


def fit_residuals(
    asked: FitResiduals,
    source: Source,
    executor: Executor,
    progress: Callable[..., None],
    spent: Spent,
    keep: Keep | None = None,
) -> ResidualsFitted:
    """Decide from left-out rows whether a fit gets local residuals, and make them; None without a metric or memory.

    ``keep`` writes the rows to disk if they do not fit in memory. ``progress`` is also called before each evaluation of
    a search and may raise an exception to end the work.
    """
    metric, left_out, T = Metric.of(asked.design, source.columns), len(asked.left_out[0].rows), len(asked.left_out)
    if metric is None or left_out < LEAST_LEFT_OUT:
        return ResidualsFitted()
    options, width = asked.options, metric.width + T + COLUMNS
    k, room = min(options.neighbours, RESIDUAL_NEIGHBOURS), options.residual_bytes
    learning = RESIDUAL_TEACHERS * k * (k + width)
    in_memory, fewer = (FLOAT * (2 * width * rows + learning) <= room for rows in (source.n_rows, left_out))
    if not fewer:
        return ResidualsFitted()
    records = left_out_records(asked, metric, source, executor, progress, spent)
    trials, gains, many = _trials(asked, records, progress)
    shares = gains.rmse_gain / RMSE, gains.density_gain / NATS
    if not (options.residual == LOCAL or (max(shares) >= 1.0 and min(shares) >= -LOSS)):
        return replace(gains, rmse=())
    if asked.trial:
        return gains
    if not in_memory and keep is None:
        return replace(gains, rmse=(), lacking=FLOAT * width * source.n_rows)
    families = list(kriging.CORRELATIONS) if options.residual_family == "auto" else [options.residual_family]
    kernels, scales = _searched(families, many, trials, progress)
    metric, points = metric.scaled(scales), records[:, : metric.width]
    points *= scales
    cells = Cells.of(records, n_targets=T)
    if sampled_rows(source.n_rows, shuffled=False) is not None:  # not all rows of positive weight were left out
        place = None if in_memory else keep
        cells = cells_of(asked, metric, source, executor, progress, spent, place, points)
    rows = spread(evenly(len(records), RESIDUAL_TEACHERS))
    some, near = rows[:CALIBRATION_ROWS], _near(cells, records[rows[:CALIBRATION_ROWS]], options.neighbours)
    rest = _near(cells, records[rows[CALIBRATION_ROWS:]], k)
    kernels = _learned(records[rows], np.concatenate([near[:, :k], rest]), metric.width, kernels, progress)
    kernels = [replace(each, inflation=trial.inflation) for each, trial in zip(kernels, trials, strict=True)]
    tried = _by_number(records[some], near, metric.width, kernels)
    errors = records[some, metric.width : LOG_FACTOR].T
    k = max(map(fewest, errors, tried))
    found = LocalResiduals(metric, tuple(kernels), k, cells, ())
    corrected = _calibrated(asked, some, errors, found, [of_target[k] for of_target in tried])
    return replace(corrected, density_gain=gains.density_gain)


def left_out_records(
    asked: FitResiduals, metric: Metric, source: Source, executor: Executor, progress: Callable[..., None], spent: Spent
) -> Float:
    """Return the records (n, width) of the left-out rows, with their errors."""
    rows, u = asked.left_out[0].rows, asked.left_out[0].targets[:, 1]
    with gathered(source, rows, executor, progress, spent) as sample:
        X = sample.rows.gather(rows).X
    factor = np.ones(len(u)) * asked.design.noise_factor(X)
    errors = [each.expected()[0] / np.sqrt(u) for each in asked.left_out]
    points, tiles = metric(asked.design.scaling.inputs(X)), rows // source.tile_rows
    parts = [source.original_rows(tile)[rows[tiles == tile] - tile * source.tile_rows] for tile in np.unique(tiles)]
    return np.column_stack([points, *errors, np.log(factor), 1.0 / (u * factor), np.concatenate(parts)])


def _near(cells: Cells, own: Float, k: int) -> Float:
    """Return the records (m, k, width) of the neighbours of rows with records ``own``, not counting itself."""
    return np.concatenate([near for _, near in cells.neighbours(own[:, : cells.rank], k, own[:, NUMBER])])


def spread(rows: Int) -> Int:
    """Return the rows in an order in which each part has rows from all regions."""
    return rows[np.argsort(np.arange(len(rows)) % PARTS, kind="stable")]


def _panels(own: Float, near: Float, rank: int) -> list[Panels]:
    """Return the neighbourhoods and errors of rows for each target, in groups of ``panel_rows``.

    ``own`` are the records of the rows and ``near`` those of their neighbours; points have ``rank`` coordinates.
    """
    rows = panel_rows(near.shape[1])
    parts = [slice(start, start + rows) for start in range(0, len(own), rows)]
    found = [hoods_of(near[some], own[some, :rank], own[some, LOG_FACTOR], own[some, NOISE]) for some in parts]
    errors = own[:, rank:LOG_FACTOR].T
    return [(list(hoods), [each[some] for some in parts]) for *hoods, each in zip(*found, errors, strict=True)]


def _trials(
    asked: FitResiduals, records: Float, progress: Callable[..., None]
) -> tuple[list[LocalKernel], ResidualsFitted, list[Panels]]:
    """Return kernels learned from a few left-out rows, their gains over the fit alone with the corrected RMSE, and the
    panels of the other rows, used for validation."""
    n, k = len(records), min(asked.options.neighbours, FEW_NEIGHBOURS)
    cells = Cells.of(records, n_targets=len(asked.left_out))
    few = evenly(n, min(max(n // TRIAL_SHARE, 50), TRIAL_ROWS, n // 2))
    others = spread(np.setdiff1d(evenly(n, CALIBRATION_ROWS), few))
    panels, judges = (_panels(own, _near(cells, own, k), cells.rank) for own in (records[few], records[others]))
    kernels, gains = list[LocalKernel](), list[float]()
    for target, (each, judge) in enumerate(zip(panels, judges, strict=True)):
        kernel = learned(each, starts_of(each), progress)[0]
        inflation, of_alone = _alone(asked, target, others, records[others])
        both = ((Conditional(kernel, hoods), some) for hoods, some in zip(*judge, strict=True))
        of_local = np.concatenate([found.log_density(some, kernel)[0] for found, some in both])
        kernels.append(replace(kernel, inflation=inflation))
        gains.append(mixture_gain(of_local - 0.5 * np.log(inflation), of_alone))
    before, after = zip(*map(_corrected, kernels, judges), strict=True)
    return kernels, ResidualsFitted(None, _gain(before, after), float(np.mean(gains)), after), judges


def mixture_gain(of_local: Float, of_alone: Float) -> float:
    """Return how much a mixture raises the mean log density of m rows, from log densities (m,) of its components.

    The fit alone has weight 1/m in it. One large error beside near copies, where a kernel learned from few rows
    predicts no variance, thus costs less than log(m)/m and cannot outweigh the rest: many rows teach the noise later.
    """
    m, rise = len(of_local), of_local - of_alone
    return float(np.mean(np.logaddexp(np.log1p(-1.0 / m) + rise, -np.log(m))))


def _alone(asked: FitResiduals, target: int, some: Int, records: Float) -> tuple[float, Float]:
    """Return the ratio of predicted variance to squared left-out errors, at least 1, and the log densities (m,) under
    the fit alone of the errors of ``some`` (m,) of these rows, whose ``records`` (m, width) are given."""
    left_out, T = asked.left_out[target], len(asked.left_out)
    beta, variance = (float(np.broadcast_to(each, T)[target]) for each in (asked.fit.beta, asked.fit.target_variance))
    calibration = left_out.calibration(beta, variance)
    assert calibration is not None
    expected, variances = left_out.expected()
    square = max(float(np.mean(expected**2)), kriging.LEAST_SQUARE)
    inflation = max((float(np.mean(variances)) + calibration.noise_variance) / square, 1.0)
    stated = calibration.scale**2 * (variances[some] + calibration.noise_variance)
    stated *= np.exp(records[:, LOG_FACTOR]) * records[:, NOISE]
    errors = records[:, LOG_FACTOR - T + target]
    return inflation, -0.5 * (np.log(2 * np.pi * stated) + inflation * errors**2 / stated)


def _corrected(kernel: LocalKernel, panels: Panels) -> tuple[float, float]:
    """Return the root mean squared error before and after the correction."""
    rests = [some - moments(kernel, hoods)[0] for hoods, some in zip(*panels, strict=True)]
    before, after = (float(np.sqrt(np.mean(np.concatenate(each) ** 2))) for each in (panels[1], rests))
    return max(before, kriging.LEAST_SQUARE), after


def _gain(before: Sequence[float], after: Sequence[float]) -> float:
    """Return the fraction by which the root mean squared error over all targets (T,) falls."""
    return 1.0 - root_mean(np.array(after)) / root_mean(np.array(before))


def _searched(
    families: Sequence[str], many: list[Panels], kernels: list[LocalKernel], poll: Poll
) -> tuple[list[LocalKernel], Float]:
    """Return the kernel of each target, with the best of ``families``, and coordinate scales (r,).

    ``kernels`` were learned from a few rows; both results are learned from ``many``. Scales are geometric means over
    the targets. They stay 1 unless the log density of n rows rises by more than ½ r log n (Schwarz 1978).
    """
    plain = [_family(families, *each, poll) for each in zip(many, kernels, strict=True)]
    found = [learned(each, [start], poll, scales=True) for each, (start, *_) in zip(many, plain, strict=True)]
    logs, n = np.log([scales for _, scales, _ in found]), sum(map(len, many[0][1]))
    rise = n * sum(after - before for (*_, before), (*_, after) in zip(plain, found, strict=True))
    if rise <= 0.5 * logs.size * np.log(n):
        return [kernel for kernel, *_ in plain], np.ones(logs.shape[1])
    levels = logs.mean(axis=1, keepdims=True)
    shorter = zip(found, np.exp(levels[:, 0]).tolist(), strict=True)
    kernels = [replace(kernel, length=kernel.length / level) for (kernel, *_), level in shorter]
    return kernels, np.exp((logs - levels).mean(axis=0))


def _family(families: Sequence[str], many: Panels, kernel: LocalKernel, poll: Poll) -> Learned:
    """Return what is learned from many rows (``learned``) with the family that fits them best in density and error."""
    tried: list[Learned] = in_threads(lambda family: learned(many, [replace(kernel, family=family)], poll), families)
    return min(tried, key=lambda found: np.log(_corrected(found[0], many)[1]) - found[2])


def _learned(own: Float, near: Float, rank: int, kernels: list[LocalKernel], poll: Poll) -> list[LocalKernel]:
    """Return the kernel of each target, learned from the records of left-out rows and of their neighbours.

    The noise is learned from all rows, with fewer neighbours, which takes a quarter of the time.
    """
    few, least = min(LEARNING_ROWS, len(own)), min(near.shape[1], FEW_NEIGHBOURS)
    for panels, form in ((_panels(own[:few], near[:few], rank), True), (_panels(own, near[:, :least], rank), False)):
        starts = [[replace(each, noise=factor * each.noise) for factor in (1.0, 10.0, 0.1)] for each in kernels]
        kernels = [learned(each, some, poll, form=form)[0] for each, some in zip(panels, starts, strict=True)]
    return list(kernels)


def _by_number(some: Float, near: Float, rank: int, kernels: list[LocalKernel]) -> list[ByNumber]:
    """Return the mean and variance of row errors for each target, by number of neighbours: a third, two thirds, all.

    ``some`` are the records of the rows, ``near`` those of their neighbours.
    """
    found = [ByNumber() for _ in kernels]
    for count in (-(-near.shape[1] * part // 3) for part in (1, 2, 3)):
        for kernel, (hoods, _), of_target in zip(kernels, _panels(some, near[:, :count], rank), found, strict=True):
            mean, variance = map(np.concatenate, zip(*in_threads(partial(moments, kernel), hoods), strict=True))
            of_target[count] = mean, variance
    return found


def fewest(errors: Float, found: ByNumber) -> int:
    """Return the smallest number of neighbours beyond which more gain less than ``FEWER`` and ``FEWER_NATS``.

    ``found`` holds the mean and variance (m,) of the ``errors`` (m,) for each number.
    """
    rmse = {k: float(np.sqrt(np.mean((errors - mean) ** 2))) for k, (mean, _) in found.items()}
    losses = {k: 0.5 * float(np.mean(np.log(v) + (errors - mean) ** 2 / v)) for k, (mean, v) in found.items()}
    most, nats = (1.0 + FEWER) * min(rmse.values()), min(losses.values()) + FEWER_NATS
    return min((k for k in found if rmse[k] <= most and losses[k] <= nats), default=max(found))


def _calibrated(
    asked: FitResiduals, some: Int, errors: Float, found: LocalResiduals, predicted: Sequence[tuple[Float, Float]]
) -> ResidualsFitted:
    """Calibrate local residuals on ``some`` (m,) of the left-out rows, and return them with the gain in RMSE.

    ``errors`` (T, m) are the errors of these rows; ``predicted`` holds the mean and variance (m,) that the other rows
    predict for them, for each target.
    """
    calibrations, after, shown = list[Calibration](), list[float](), list[NumberDiagnostics]()
    for target, (mean, variance) in enumerate(predicted):
        kernel, left_out, scaling = found.kernels[target], asked.left_out[target], asked.design.scaling
        rest, t = errors[target] - mean, left_out.targets[some, 0]
        top, levels = quantiles(np.abs(rest) * np.sqrt(kernel.inflation / variance))
        calibrations.append(Calibration(len(some), kernel.noise, 1.0, top, levels))
        after.append(float(np.sqrt(np.mean(rest**2))))
        # without coverage: these rows calibrate the intervals
        diagnostics = NumberDiagnostics.of(t, t - rest, np.sqrt(variance), left_out.rows[some], ())
        shown.append(diagnostics.scaled(scaling.t_shift[target], scaling.t_scale[target], scaling.target))
    before = [max(float(np.sqrt(np.mean(each**2))), kriging.LEAST_SQUARE) for each in errors]
    found, shown = replace(found, calibrations=tuple(calibrations)), shown[:MOST_TARGETS]
    return ResidualsFitted(found, _gain(before, after), rmse=tuple(after), diagnostics=tuple(shown))
