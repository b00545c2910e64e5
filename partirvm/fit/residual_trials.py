"""Trials of local residuals: whether the errors of nearby rows correct the predictions of left-out
rows.

A local kernel is learned from half of the rows that are left out in folds. It predicts the other
half, each row from its neighbours outside its fold, and its log density and errors are compared
with those of the fit alone; then the halves change places.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from partirvm.core.held_back import alternate_halves
from partirvm.fit.residual_folds import LeftOutFolds
from partirvm.fit.residual_rows import ResidualReader
from partirvm.local import kriging
from partirvm.local.cells import LOG_FACTOR, NOISE, panel_rows
from partirvm.local.kriging import LocalKernel, Panels, moments
from partirvm.local.kriging_search import learned, starts_of
from partirvm.local.metric import Metric
from partirvm.local.residuals import hoods_of
from partirvm.strategies.instructions import FitResiduals, ResidualsFitted
from partirvm.types import RESIDUAL_TRIAL, Float, Int

NATS = 0.02
"""Rise of the mean log density of left-out rows that suffices for a correction."""

RMSE = 0.02
"""Fall of the error of left-out rows, as a fraction, that suffices for a correction."""

LOSS = 0.03
"""Fraction by which the error of left-out rows may rise in any case."""

SURE = 2.0
"""Number of standard errors by which the error must fall or rise to count."""

TRIAL_ROWS = RESIDUAL_TRIAL[0]
"""Maximum number of rows of a trial."""

FEW_NEIGHBOURS = RESIDUAL_TRIAL[1]
"""Maximum k in a trial and in the metric search. The last search uses ``RESIDUAL_NEIGHBOURS``; its
kernel works for 60 neighbours as well."""


@dataclass(frozen=True)
class NearRows:
    """Left-out rows, whose errors are predicted from those of their neighbours.

    Attributes:
        rows: (m, width), records of the rows
        neighbours: (m, k, width), records of their neighbours
        rank: number of coordinates of a point
    """

    rows: Float
    neighbours: Float
    rank: int

    @property
    def errors(self) -> Float:
        """The errors (T, m) of the rows."""
        return self.rows[:, self.rank : LOG_FACTOR].T

    @property
    def noise(self) -> Float:
        """The noise variances (m,) of the rows, relative to that of the fit."""
        return np.asarray(np.exp(self.rows[:, LOG_FACTOR]) * self.rows[:, NOISE])

    def take(self, places: slice | Int) -> Self:
        """Return a part of the rows."""
        return replace(self, rows=self.rows[places], neighbours=self.neighbours[places])

    def nearest(self, k: int) -> Self:
        """Return the rows with their ``k`` nearest neighbours."""
        return replace(self, neighbours=self.neighbours[:, :k])

    def panels(self) -> list[Panels]:
        """Return neighbourhoods and errors for each target, in groups of ``panel_rows``."""
        size = panel_rows(self.neighbours.shape[1])
        parts = [slice(start, start + size) for start in range(0, len(self.rows), size)]
        by_target = [
            hoods_of(
                self.neighbours[part],
                self.rows[part, : self.rank],
                self.rows[part, LOG_FACTOR],
                self.rows[part, NOISE],
            )
            for part in parts
        ]
        return [
            (list(hoods), [errors[part] for part in parts])
            for *hoods, errors in zip(*by_target, self.errors, strict=True)
        ]


@dataclass(frozen=True)
class ResidualsMaker:
    """Makes the local residuals of a fit.

    Attributes:
        request: the fit
        reader: reads rows
        metric: gives the points of rows
        records: (n, width), of all left-out rows
        folds: rows left out in folds
    """

    request: FitResiduals
    reader: ResidualReader
    metric: Metric
    records: Float
    folds: LeftOutFolds

    def near_rows(self, k: int) -> NearRows:
        """Return the rows of the folds with their ``k`` nearest neighbours outside their fold."""
        rank = self.metric.width
        rows = self.folds.own_records(self.records, rank)
        return NearRows(rows, self.folds.near(self.records, rank, k), rank)


@dataclass(frozen=True)
class Trial:
    """A local kernel of one target on m left-out rows, half of which taught the kernel that
    corrects the other half.

    Attributes:
        kernel: learned from one half.
        rises: (m,), the rise in the log density of each row over the fit alone.
        before: (m,), the errors without the correction.
        after: (m,), the errors with the correction.
    """

    kernel: LocalKernel
    rises: Float
    before: Float
    after: Float


@dataclass(frozen=True)
class ResidualTrials:
    """Trials of all targets.

    Attributes:
        trials: one for each target.
        panels: for each target, the neighbourhoods and errors of all rows of the trials.
    """

    trials: list[Trial]
    panels: list[Panels]

    @property
    def kernels(self) -> list[LocalKernel]:
        """The kernel of each target."""
        return [trial.kernel for trial in self.trials]

    @property
    def before(self) -> Float:
        """The errors (T, m) without the correction."""
        return np.stack([trial.before for trial in self.trials])

    @property
    def after(self) -> Float:
        """The errors (T, m) with the correction."""
        return np.stack([trial.after for trial in self.trials])

    @property
    def rises(self) -> Float:
        """The rise (m,) in the log density, the mean over targets."""
        return np.asarray(np.mean([mixture_rises(trial.rises) for trial in self.trials], axis=0))

    @property
    def density_gain(self) -> float:
        """The mean rise in the log density."""
        return float(np.mean(self.rises))

    def gains(self) -> ResidualsFitted:
        """Return the gains of the correction and the corrected error."""
        rmse = np.sqrt(np.mean(self.after**2, axis=1))
        gain, _ = error_gain(self.before, self.after)
        return ResidualsFitted(None, gain, self.density_gain, tuple(rmse.tolist()))

    def help(self) -> bool:
        """Return True if the correction justifies storing its rows."""
        return helps(self.rises, self.before, self.after)


def residual_trials(maker: ResidualsMaker) -> ResidualTrials:
    """Try local kernels on the first rows left out in folds."""
    k = min(maker.request.options.neighbours, FEW_NEIGHBOURS, maker.folds.most_neighbours)
    near_rows = maker.near_rows(k).take(slice(TRIAL_ROWS))
    targets = range(len(maker.request.left_out))
    trials = [
        _trial(maker.request, maker.folds, near_rows, target, maker.reader.progress)
        for target in targets
    ]
    return ResidualTrials(trials, near_rows.panels())


def _trial(
    request: FitResiduals,
    folds: LeftOutFolds,
    near_rows: NearRows,
    target: int,
    progress: Callable[..., None],
) -> Trial:
    """Learn the local kernel of a target from each half of m rows, and judge it on the other half.

    Args:
        request: the fit
        folds: rows left out in folds, which begin with these rows
        near_rows: the rows
        target: number of the target
        progress: called before each evaluation of a search
    """
    alone = fit_alone(request, folds, near_rows, target)
    before = near_rows.errors[target]
    rises = np.empty(len(before))
    after = np.empty(len(before))
    kernels = list[LocalKernel]()
    for taught, judged in alternate_halves(request.left_out[0].rows[folds.rows[: len(before)]]):
        panels = near_rows.take(taught).panels()[target]
        kernel, *_ = learned(panels, starts_of(panels), progress)
        kernels.append(replace(kernel, inflation=alone.inflation))
        hoods, _ = near_rows.take(judged).panels()[target]
        mean, variance = joined_moments(moments(kernels[-1], panel) for panel in hoods)
        after[judged] = before[judged] - mean
        rises[judged] = log_densities(after[judged], variance) - alone.densities[judged]
    return Trial(kernels[0], rises, before, after)


@dataclass(frozen=True)
class FitAlone:
    """What the fit predicts for left-out rows without local residuals.

    Attributes:
        inflation: predicted variance divided by the mean squared left-out error, at least 1
        densities: (m,), log densities of the errors
    """

    inflation: float
    densities: Float


def fit_alone(
    request: FitResiduals, folds: LeftOutFolds, near_rows: NearRows, target: int
) -> FitAlone:
    """Predict the errors of left-out rows by the fit alone.

    Args:
        request: the fit
        folds: rows left out in folds, which begin with these m rows
        near_rows: the rows
        target: number of the target
    """
    n_targets = len(request.left_out)
    beta = float(np.broadcast_to(request.fit.beta, n_targets)[target])
    if request.effects is not None:
        beta = request.effects.precision(beta)
    variance = float(np.broadcast_to(request.fit.target_variance, n_targets)[target])
    calibration = request.left_out[target].calibration(beta, variance)
    assert calibration is not None
    expected, variances = folds.left_out[target].expected()
    square = max(float(np.mean(expected**2)), kriging.LEAST_SQUARE)
    inflation = max((float(np.mean(variances)) + calibration.noise_variance) / square, 1.0)
    of_rows = variances[: len(near_rows.rows)]
    predicted = calibration.scale**2 * (of_rows + calibration.noise_variance)
    predicted *= near_rows.noise
    squares = inflation * near_rows.errors[target] ** 2
    return FitAlone(inflation, -0.5 * (np.log(2 * np.pi * predicted) + squares / predicted))


def log_densities(errors: Float, variances: Float) -> Float:
    """Return the log densities (m,) of normal errors (m,)."""
    return np.asarray(-0.5 * (np.log(2 * np.pi * variances) + errors**2 / variances))


def joined_moments(parts: Iterable[tuple[Float, Float]]) -> tuple[Float, Float]:
    """Return the means and variances of all panels, each in one array."""
    means, variances = zip(*parts, strict=True)
    return np.concatenate(means), np.concatenate(variances)


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
    """Return True if the correction justifies storing its rows.

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
