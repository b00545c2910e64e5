"""The last stage of a fit: whether the errors of nearest rows correct its predictions, and the rows for this.

The rows left out of the fit (``core.left_out``) decide: a local kernel is learned from some of them, each predicted
from its neighbours among the others, and compared with the fit alone. More rows make neighbours nearer, so that the
gain on a sample is a lower bound. If it is taken, the errors of all rows are those left out or, of more rows, residuals
from one pass, and the kernel is learned again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from partirvm.core.left_out import Calibration, quantiles
from partirvm.data.source import Source
from partirvm.execution import Executor
from partirvm.kernels.design import Design
from partirvm.learning.sample import Spent, gathered
from partirvm.local.kriging import CORRELATIONS, LEAST_SQUARE, LocalKernel, Neighbourhoods, learned, moments
from partirvm.local.metric import Metric
from partirvm.local.residuals import ROWS, LocalResiduals, hoods_of, nearest, tree_of
from partirvm.strategies.problem import FitResiduals, ResidualsFitted
from partirvm.types import PANEL_ROWS, Float, Int

FLOAT = 8  # Bytes of a number
TRIAL_SHARE, TRIAL_ROWS = 10, 500
"""A trial has one row of so many, and at most so many."""

FAMILY_ROWS, LEARNING_ROWS, NOISE_ROWS, CALIBRATION_ROWS = 384, 1024, 8192, 1024
"""Maximum numbers of rows by which a family is chosen, that teach the kernel, that teach the noise alone, which rare
large errors beside near copies decide, and that calibrate. The first two are at most an eighth of the rows."""

NATS, RMSE = 0.05, 0.05
"""Gains of which one suffices: of the mean log density of rows left out, and of their error."""

FAMILY, TRIAL_NEIGHBOURS, LEAST_LEFT_OUT = "matern32", 20, 20
"""Correlation and greatest k of the trial, and the minimum number of rows left out."""


@dataclass(frozen=True)
class Errors:
    """Rows of a fit, with the fields of ``LocalResiduals`` of the same names."""

    points: Float
    errors: Float
    log_factors: Float
    noises: Float
    rows: Int

    def panels(self, tree: Any, own: Int, k: int) -> tuple[list[Neighbourhoods], list[Float]]:
        """Return the neighbourhoods and the errors of the rows at positions ``own`` (m,), ``ROWS`` together.

        No row is a neighbour of itself.
        """
        rows, found = (self.points, self.errors, self.log_factors, self.noises), list[Neighbourhoods]()
        parts = [own[start : start + ROWS] for start in range(0, len(own), ROWS)]
        for some in parts:
            near = nearest(tree, self.points[some], k, some)
            found.append(hoods_of(rows, near, self.points[some], self.log_factors[some], self.noises[some]))
        return found, [self.errors[some] for some in parts]


def fit_residuals(
    asked: FitResiduals, source: Source, executor: Executor, progress: Callable[..., None], spent: Spent
) -> ResidualsFitted:
    """Decide by rows left out whether a fit has local residuals, and make them; None without a metric or room."""
    metric = Metric.of(asked.design, source.columns)
    calibration = asked.left_out.calibration(float(asked.fit.beta), float(asked.fit.target_variance))
    if metric is None or calibration is None or calibration.n < LEAST_LEFT_OUT:
        return ResidualsFitted()
    width = len(metric.axes) + len(metric.levels) + 4
    learning = LEARNING_ROWS * asked.neighbours * (asked.neighbours + width)
    if FLOAT * (2 * width * source.n_rows + 2 * learning) > asked.room:
        return ResidualsFitted()
    errors = _left_out(asked, metric, source, executor, progress, spent)
    trial, gains = _trial(asked, errors, calibration)
    if not (asked.always or max(gains.rmse_gain / RMSE, gains.density_gain / NATS) >= 1.0):
        return replace(gains, rmse=0.0)
    if asked.trial:
        return gains
    if source.n_rows > len(asked.left_out.rows):
        errors = _all_rows(asked, metric, source, executor, progress)
    numbers = np.concatenate([source.original_rows(number) for number in range(source.n_tiles)])
    errors = replace(errors, rows=numbers[errors.rows])
    residuals, rmse_gain = _residuals(asked, metric, errors, trial, executor.threads)
    return ResidualsFitted(residuals, rmse_gain, gains.density_gain)


def _left_out(
    asked: FitResiduals, metric: Metric, source: Source, executor: Executor, progress: Callable[..., None], spent: Spent
) -> Errors:
    """Return the errors of the rows left out."""
    rows, u = asked.left_out.rows, asked.left_out.targets[:, 1]
    with gathered(source, rows, executor, progress, spent) as sample:
        X = sample.rows.gather(rows).X
    factor = asked.design.noise_factor(X)
    logs = np.zeros(len(u)) + np.log(factor)
    errors = asked.left_out.expected()[0] / np.sqrt(u)
    return Errors(metric(asked.design.scaling.inputs(X)), errors, logs, 1.0 / (u * factor), rows)


def _trial(asked: FitResiduals, errors: Errors, calibration: Calibration) -> tuple[LocalKernel, ResidualsFitted]:
    """Return a kernel that a few rows left out teach, and its gains over the fit alone, with the corrected ``rmse``."""
    n, k, tree = len(errors.rows), min(asked.neighbours, TRIAL_NEIGHBOURS), tree_of(errors.points)
    own = _evenly(n, min(max(n // TRIAL_SHARE, 50), TRIAL_ROWS))
    found, density = learned(*errors.panels(tree, own, k), FAMILY)
    expected, variances = asked.left_out.expected()
    square = max(float(np.mean(expected**2)), LEAST_SQUARE)
    inflation = max((float(np.mean(variances)) + calibration.noise_variance) / square, 1.0)
    alone = calibration.scale**2 * (variances[own] + calibration.noise_variance)
    alone *= np.exp(errors.log_factors[own]) * errors.noises[own]
    of_alone = -0.5 * float(np.mean(np.log(2 * np.pi * alone) + inflation * errors.errors[own] ** 2 / alone))
    before, after = _corrected(found, *errors.panels(tree, _evenly(n, CALIBRATION_ROWS), k))
    gain = density - 0.5 * float(np.log(inflation)) - of_alone
    return replace(found, inflation=inflation), ResidualsFitted(None, 1.0 - after / before, gain, after)


def _corrected(kernel: LocalKernel, panels: Sequence[Neighbourhoods], errors: Sequence[Float]) -> tuple[float, float]:
    """Return the root mean square of errors before and after their correction."""
    rests = [some - moments(kernel, panel)[0] for panel, some in zip(panels, errors, strict=True)]
    before, after = (float(np.sqrt(np.mean(np.concatenate(each) ** 2))) for each in (errors, rests))
    return max(before, LEAST_SQUARE), after


def _all_rows(
    asked: FitResiduals, metric: Metric, source: Source, executor: Executor, progress: Callable[..., None]
) -> Errors:
    """Return the residuals of all rows of positive weight, from one pass."""
    task = partial(_errors_of_tile, asked.design, asked.fit.posterior.mean, metric)
    pieces = [piece for _, piece in executor.map(task, source, range(source.n_tiles), partial(progress, ()))]
    return Errors(*(np.concatenate(parts) for parts in zip(*pieces, strict=True)))


def _errors_of_tile(design: Design, mean: Float, metric: Metric, source: Source, number: int) -> tuple[Any, ...]:
    """Return what ``Errors`` holds, of the rows of one tile."""
    tile, scaling = source.tile(number), design.scaling
    weights = np.ones(len(tile.X)) if tile.weights is None else tile.weights
    there = np.flatnonzero(weights > 0)
    found = list[tuple[Float, ...]]()
    for start in range(0, len(there), PANEL_ROWS):
        some = there[start : start + PANEL_ROWS]
        X, target = tile.X[some], scaling.targets(tile.t[some])[:, 0]
        logs = np.zeros(len(X)) + np.log(design.noise_factor(X))
        found.append((metric(scaling.inputs(X)), target - design.block(X) @ mean, logs, 1.0 / weights[some]))
    rows = number * source.tile_rows + there
    return (*(np.concatenate(parts) for parts in zip(*found, strict=True)), rows)


def _residuals(
    asked: FitResiduals, metric: Metric, errors: Errors, trial: LocalKernel, threads: int
) -> tuple[LocalResiduals, float]:
    """Learn the kernel with the neighbours among all rows, after a choice of its family, and calibrate it.

    Returns the gain of the RMSE on the rows of the calibration, too.
    """
    tree, n, k = tree_of(errors.points), len(errors.rows), asked.neighbours
    with ThreadPoolExecutor(threads) as pool:
        few = errors.panels(tree, _evenly(n, min(FAMILY_ROWS, n // 8)), -(-k // 2))
        tried = [learned(*few, family, replace(trial, family=family), pool.map) for family in CORRELATIONS]
        best = max(tried, key=lambda each: each[1])[0]
        some = errors.panels(tree, _evenly(n, min(LEARNING_ROWS, n // 8)), k)
        kernel = learned(*some, best.family, best, pool.map)[0]
        many = errors.panels(tree, _evenly(n, NOISE_ROWS), min(k, TRIAL_NEIGHBOURS))
        kernel = learned(*many, best.family, kernel, pool.map, noise_alone=True)[0]
        kernel = replace(kernel, inflation=trial.inflation)
        panels, given = errors.panels(tree, _evenly(n, CALIBRATION_ROWS), k)
        mean, variance = map(np.concatenate, zip(*pool.map(partial(moments, kernel), panels), strict=True))
    before = np.concatenate(given)
    rest = before - mean
    top, levels = quantiles(np.abs(rest) * np.sqrt(kernel.inflation / variance))
    gain = 1.0 - float(np.sqrt(np.mean(rest**2) / max(float(np.mean(before**2)), LEAST_SQUARE)))
    calibration = Calibration(n, kernel.noise, 1.0, top, levels)
    return LocalResiduals(metric, kernel, k, **vars(errors), calibration=calibration), gain


def _evenly(n: int, count: int) -> Int:
    """Return at most ``count`` numbers below n, evenly spaced."""
    count = min(n, count)
    return np.arange(count, dtype=np.int64) * n // max(count, 1)
