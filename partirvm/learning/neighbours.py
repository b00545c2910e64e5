"""The last stage of a fit: whether the errors of nearest rows correct its predictions, and the rows for this.

The rows left out of the fit (``core.left_out``) decide: a local kernel is learned from some of them, each predicted
from its neighbours among the others, and compared with the fit alone. More rows make neighbours nearer, so that the
gain on a sample is a lower bound. If it is taken, the errors of all rows are those left out or, of more rows, residuals
from one pass (``residual_rows``), and the kernel is learned again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from partirvm.core.diagnostics import NumberDiagnostics
from partirvm.core.left_out import Calibration, quantiles
from partirvm.data.source import Source
from partirvm.execution import Executor
from partirvm.learning.residual_rows import Keep, cells_of
from partirvm.learning.sample import Spent, gathered
from partirvm.local.cells import COLUMNS, ERROR, LOG_FACTOR, NOISE, NUMBER, ROWS, Cells
from partirvm.local.kriging import (
    CORRELATIONS,
    LEAST_SQUARE,
    LocalKernel,
    Neighbourhoods,
    learned,
    moments,
    start_of,
)
from partirvm.local.metric import Metric
from partirvm.local.residuals import LocalResiduals, hoods_of
from partirvm.strategies.problem import FitResiduals, ResidualsFitted
from partirvm.types import Float, Int

FLOAT = 8  # Bytes of a number
TRIAL_SHARE, TRIAL_ROWS = 10, 500
"""A trial has one row of so many, and at most so many."""

FAMILY_ROWS, METRIC_ROWS, LEARNING_ROWS, NOISE_ROWS, CALIBRATION_ROWS = 1024, 4096, 2048, 4096, 1024
"""Maximum numbers of rows by which a family is chosen, that teach the metric, that teach the kernel, that teach the
noise, which rare large errors beside near copies decide, and that calibrate. The first three are at most an eighth of
the rows."""

QUIET = 1e-4
"""Factor of the noise, and its inverse that of the variance, at the second start of a search."""

FEWER, FEWER_NATS = 0.005, 0.005
"""Gains of the error and of the mean log density for which predictions use more neighbours."""

NATS, RMSE = 0.05, 0.05
"""Gains of which one suffices: of the mean log density of rows left out, and of their error."""

FEW_NEIGHBOURS, MANY_NEIGHBOURS, LEAST_LEFT_OUT = 20, 40, 20
"""Greatest k of the trial and the search for the metric, and of the last search; the minimum number of rows left out.
A kernel of 40 neighbours serves 60 as well."""


def fit_residuals(
    asked: FitResiduals,
    source: Source,
    executor: Executor,
    progress: Callable[..., None],
    spent: Spent,
    keep: Keep | None = None,
) -> ResidualsFitted:
    """Decide by rows left out whether a fit has local residuals, and make them; None without a metric or room.

    ``keep`` writes the rows to disk if there is no room for them in memory. ``progress`` is also called before each
    evaluation of a search; an exception from it ends the work.
    """
    metric = Metric.of(asked.design, source.columns)
    calibration = asked.left_out.calibration(float(asked.fit.beta), float(asked.fit.target_variance))
    if metric is None or calibration is None or calibration.n < LEAST_LEFT_OUT:
        return ResidualsFitted()
    width, left_out, k = metric.width + COLUMNS, len(asked.left_out.rows), min(asked.neighbours, MANY_NEIGHBOURS)
    learning = NOISE_ROWS * k * (k + 2 * width)
    in_memory, fewer = (FLOAT * (2 * width * rows + learning) <= asked.room for rows in (source.n_rows, left_out))
    if not fewer:
        return ResidualsFitted()
    records = left_out_records(asked, metric, source, executor, progress, spent)
    trial, gains = _trial(asked, records, calibration, progress)
    if not (asked.always or max(gains.rmse_gain / RMSE, gains.density_gain / NATS) >= 1.0):
        return replace(gains, rmse=0.0)
    if asked.trial:
        return gains
    if not in_memory and keep is None:
        return replace(gains, rmse=0.0, lacking=FLOAT * width * source.n_rows)
    with ThreadPoolExecutor(executor.threads) as pool:
        apply = _interruptible(progress, pool.map)
        kernel, scales = _searched(records, min(asked.neighbours, FEW_NEIGHBOURS), apply)
        metric = metric.scaled(scales)
        records[:, :-COLUMNS] *= scales
        cells = Cells.of(records)
        if source.n_rows > left_out:
            place = None if in_memory else keep
            cells = cells_of(asked, metric, source, executor, progress, spent, place, records[:, :-COLUMNS])
        some = evenly(len(records), CALIBRATION_ROWS)
        inflated = replace(kernel, inflation=trial.inflation)
        kernel, k, *corrected = _learned(cells, records, records[some], asked.neighbours, inflated, apply)
    found = LocalResiduals(metric, kernel, k, cells, calibration)
    return replace(_calibrated(asked, some, records[some, ERROR], found, *corrected), density_gain=gains.density_gain)


def left_out_records(
    asked: FitResiduals, metric: Metric, source: Source, executor: Executor, progress: Callable[..., None], spent: Spent
) -> Float:
    """Return the records (n, width) of the rows left out, with their errors."""
    rows, u = asked.left_out.rows, asked.left_out.targets[:, 1]
    with gathered(source, rows, executor, progress, spent) as sample:
        X = sample.rows.gather(rows).X
    factor = np.ones(len(u)) * asked.design.noise_factor(X)
    errors = asked.left_out.expected()[0] / np.sqrt(u)
    points = metric(asked.design.scaling.inputs(X))
    return np.column_stack([points, errors, np.log(factor), 1.0 / (u * factor), numbers_of(source, rows)])


def numbers_of(source: Source, rows: Int) -> Int:
    """Return the numbers before shuffling of some rows (n,), increasing."""
    tiles = rows // source.tile_rows
    parts = [source.original_rows(tile)[rows[tiles == tile] - tile * source.tile_rows] for tile in np.unique(tiles)]
    return np.concatenate(parts)


def _near(cells: Cells, own: Float, k: int) -> Float:
    """Return the records (m, k, width) of the neighbours of rows with these records, none its own neighbour."""
    found = cells.neighbours(own[:, :-COLUMNS], k, own[:, NUMBER])
    return np.concatenate([near for _, near in found])


def _panels(own: Float, near: Float) -> tuple[list[Neighbourhoods], list[Float]]:
    """Return neighbourhoods and errors of rows by their records and those of their neighbours, ``ROWS`` together."""
    parts = [slice(start, start + ROWS) for start in range(0, len(own), ROWS)]
    found = [hoods_of(near[some], own[some, :-COLUMNS], own[some, LOG_FACTOR], own[some, NOISE]) for some in parts]
    return found, [own[some, ERROR] for some in parts]


def _interruptible(
    progress: Callable[..., None], apply: Callable[..., Iterable[Any]] = map
) -> Callable[..., Iterable[Any]]:
    """Return ``apply``, which is like ``map``, preceded by a call of ``progress``, which may raise."""

    def applied(*work: Any) -> Iterable[Any]:
        progress()
        return apply(*work)

    return applied


def _trial(
    asked: FitResiduals, records: Float, calibration: Calibration, progress: Callable[..., None]
) -> tuple[LocalKernel, ResidualsFitted]:
    """Return a kernel that a few rows left out teach, and its gains over the fit alone, with the corrected ``rmse``."""
    n, k, cells = len(records), min(asked.neighbours, FEW_NEIGHBOURS), Cells.of(records)
    own = evenly(n, min(max(n // TRIAL_SHARE, 50), TRIAL_ROWS))
    panels = _panels(records[own], _near(cells, records[own], k))
    found, _, density = learned(*panels, start_of(*panels), _interruptible(progress))
    expected, variances = asked.left_out.expected()
    square = max(float(np.mean(expected**2)), LEAST_SQUARE)
    inflation = max((float(np.mean(variances)) + calibration.noise_variance) / square, 1.0)
    alone = calibration.scale**2 * (variances[own] + calibration.noise_variance)
    alone *= np.exp(records[own, LOG_FACTOR]) * records[own, NOISE]
    of_alone = -0.5 * float(np.mean(np.log(2 * np.pi * alone) + inflation * records[own, ERROR] ** 2 / alone))
    own = evenly(n, CALIBRATION_ROWS)
    before, after = _corrected(found, *_panels(records[own], _near(cells, records[own], k)))
    gain = density - 0.5 * float(np.log(inflation)) - of_alone
    return replace(found, inflation=inflation), ResidualsFitted(None, 1.0 - after / before, gain, after)


def _corrected(kernel: LocalKernel, panels: Sequence[Neighbourhoods], errors: Sequence[Float]) -> tuple[float, float]:
    """Return the root mean square of errors before and after their correction."""
    rests = [some - moments(kernel, panel)[0] for panel, some in zip(panels, errors, strict=True)]
    before, after = (float(np.sqrt(np.mean(np.concatenate(each) ** 2))) for each in (errors, rests))
    return max(before, LEAST_SQUARE), after


def _starts(kernel: LocalKernel) -> tuple[LocalKernel, LocalKernel]:
    """Return two starts of a search, with much noise and with little, since interpolation may be another maximum."""
    return kernel, replace(kernel, noise=QUIET * kernel.noise, variance=kernel.variance / QUIET)


def _searched(records: Float, k: int, apply: Callable[..., Iterable[Any]]) -> tuple[LocalKernel, Float]:
    """Return the kernel of errors after a choice of its family, and scales (r,) of the coordinates, by k neighbours.

    Scales stay 1 unless the errors of other rows than those that teach them are lower.
    """
    n, cells = len(records), Cells.of(records)
    few, many = (records[evenly(n, min(count, n // 8))] for count in (FAMILY_ROWS, METRIC_ROWS))
    panels, teachers = (_panels(each, _near(cells, each, k)) for each in (few, many))
    starts = [replace(each, family=family) for family in CORRELATIONS for each in _starts(start_of(*panels))]
    tried = [learned(*panels, each, apply)[0] for each in starts]
    best = learned(*teachers, min(tried, key=lambda each: _corrected(each, *teachers)[1]), apply)[0]
    kernel, scales, _ = learned(*teachers, best, apply, scales=True)
    own = records[np.setdiff1d(evenly(n, 3 * CALIBRATION_ROWS), evenly(n, len(many)))]
    judges, errors = _panels(own, _near(cells, own, k))
    before = _corrected(best, judges, errors)[1]
    after = _corrected(kernel, [panel.scaled(scales) for panel in judges], errors)[1]
    return (kernel, scales) if after < before else (best, np.ones_like(scales))


def _learned(
    cells: Cells, records: Float, some: Float, k: int, start: LocalKernel, apply: Callable[..., Iterable[Any]]
) -> tuple[LocalKernel, int, Float, Float]:
    """Learn the kernel with the k nearest rows among all from ``start``, by rows left out with these ``records``.

    Returns the number of neighbours that is needed, and mean and variance (m,) of the errors of the rows with the
    records ``some`` (m, width), too.
    """
    teachers = records[evenly(len(records), min(LEARNING_ROWS, len(records) // 8))]
    many, kernel = records[evenly(len(records), NOISE_ROWS)], start
    for rows, form in ((teachers, True), (many, False)):
        panels = _panels(rows, _near(cells, rows, min(k, MANY_NEIGHBOURS)))
        kernel = learned(*panels, kernel, apply, form=form)[0]
    kernel = replace(kernel, inflation=start.inflation)
    near, found = _near(cells, some, k), dict[int, tuple[Float, Float]]()
    for count in (-(-near.shape[1] * part // 3) for part in (1, 2, 3)):
        parts = apply(partial(moments, kernel), _panels(some, near[:, :count])[0])
        mean, variance = map(np.concatenate, zip(*parts, strict=True))
        found[count] = mean, variance
    return kernel, *fewest(some[:, ERROR], found)


def fewest(errors: Float, found: dict[int, tuple[Float, Float]]) -> tuple[int, Float, Float]:
    """Return the smallest number of neighbours beside which more bring less than ``FEWER`` and ``FEWER_NATS``.

    ``found`` has mean and variance (m,) of the ``errors`` (m,) by the number; those of the result are returned, too.
    """
    rmse = {k: float(np.sqrt(np.mean((errors - mean) ** 2))) for k, (mean, _) in found.items()}
    losses = {k: 0.5 * float(np.mean(np.log(v) + (errors - mean) ** 2 / v)) for k, (mean, v) in found.items()}
    most, nats = (1.0 + FEWER) * min(rmse.values()), min(losses.values()) + FEWER_NATS
    k = min((k for k in found if rmse[k] <= most and losses[k] <= nats), default=max(found))
    return k, *found[k]


def _calibrated(
    asked: FitResiduals, some: Int, before: Float, found: LocalResiduals, mean: Float, variance: Float
) -> ResidualsFitted:
    """Calibrate local residuals by ``some`` (m,) of the rows left out, and return them with the gain of the RMSE.

    ``before`` (m,) are the errors of these rows, ``mean`` and ``variance`` (m,) what the other rows predict of them.
    """
    rest, target, scaling = before - mean, asked.left_out.targets[some, 0], asked.design.scaling
    top, levels = quantiles(np.abs(rest) * np.sqrt(found.kernel.inflation / variance))
    calibration = Calibration(found.cells.n_rows, found.kernel.noise, 1.0, top, levels)
    square = float(np.mean(rest**2))
    gain = 1.0 - float(np.sqrt(square / max(float(np.mean(before**2)), LEAST_SQUARE)))
    # without coverage: these rows calibrate the intervals
    shown = NumberDiagnostics.of(target, target - rest, np.sqrt(variance), asked.left_out.rows[some], ())
    shown = shown.scaled(scaling.t_shift[0], scaling.t_scale[0])
    found = replace(found, calibration=calibration)
    return ResidualsFitted(found, gain, rmse=float(np.sqrt(square)), diagnostics=shown)


def evenly(n: int, count: int) -> Int:
    """Return at most ``count`` numbers below n, evenly spaced."""
    count = min(n, count)
    return np.arange(count, dtype=np.int64) * n // max(count, 1)
