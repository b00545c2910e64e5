"""The error of a model at a row, given its errors at the nearest training rows: a local Student-t process.

An error is n^(b/2) times a process u of unit form, with n the noise factor and w the weight of its row:

    u ~ TP(ν; s²κ(r/ℓ) + (ω/w)[same row]),        κ a correlation of the distance r in the metric of the model.

With C = K + (ω/s²)W⁻¹ of the k nearest rows, c their correlations with the row, u their errors divided by n^(b/2), and
Q = uᵀC⁻¹u/s², the error of the row has, times n^(b/2) and n^b of its own (Shah et al. 2014, "Student-t processes as
alternatives to Gaussian processes", eq. 6, whose ν − 2 is ν here, so that ν → ∞ is kriging),

    mean = cᵀC⁻¹u,      variance = (s²(1 − cᵀC⁻¹c) + ω/w)·(ν + Q)/(ν + k).

So rows whose neighbours have small errors have small variances: beside noise that depends on the inputs this is what
lowers the log density most. s², ℓ, ω, b and ν maximise the mean log density of rows left out, each predicted from its
neighbours, as independent normal errors (Vecchia 1988; Allison et al. 2023, "Leveraging locality and robustness to
achieve massively scalable Gaussian process regression"). Where a function is smooth s² and ℓ grow together without
limit: the local model is then a polynomial through the neighbours. Both are bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from partirvm.types import Float

LEAST_NUGGET = 1e-10
"""Minimum of ω/s²: the correlations of equal rows are singular."""

LEAST_SQUARE = 1e-16
"""Minimum of the mean square of the errors, in units of the scaled target."""

STEPS = 25
"""Maximum number of iterations of the search; each takes about 1 s per 10⁴ rows and 60 neighbours."""

STEEPNESS = {"exponential": 1.0, "matern32": 3.0, "matern52": 5.0}
"""Twice the smoothness of each correlation."""

RATIOS, LENGTHS, NUGGETS, FREEDOMS = (1e-6, 1e4), (0.05, 100.0), (1e-8, 4.0), (0.5, 1e4)
"""Bounds of s²/ℓ^(2·smoothness) and ω as multiples of the mean square of the errors, of ℓ as a multiple of the usual
distance of the last neighbour, and of ν. The exponent b lies between 0 and ``STEEPEST``."""

STEEPEST = 3.0


def exponential(squares: Float, length: float) -> tuple[Float, Float]:
    """Return e⁻ˢ with s = r/ℓ of squared distances, and its derivative in log ℓ: the Matérn correlation of ν = ½."""
    s = np.sqrt(squares) / length
    falling = np.exp(-s)
    return falling, s * falling


def matern32(squares: Float, length: float) -> tuple[Float, Float]:
    """Return (1 + s)e⁻ˢ with s = √3 r/ℓ, and its derivative in log ℓ."""
    s = np.sqrt(3.0 * squares) / length
    falling = np.exp(-s)
    return (1.0 + s) * falling, s * s * falling


def matern52(squares: Float, length: float) -> tuple[Float, Float]:
    """Return (1 + s + s²/3)e⁻ˢ with s = √5 r/ℓ, and its derivative in log ℓ."""
    s = np.sqrt(5.0 * squares) / length
    falling = np.exp(-s)
    square = s * s / 3.0
    return (1.0 + s + square) * falling, square * (1.0 + s) * falling


CORRELATIONS: dict[str, Callable[[Float, float], tuple[Float, Float]]] = {
    "exponential": exponential,
    "matern32": matern32,
    "matern52": matern52,
}
"""The correlations of local residuals by name."""


@dataclass(frozen=True)
class LocalKernel:
    """The covariance of errors: ``variance`` s², ``length`` ℓ, ``noise`` ω, ``exponent`` b and ``freedom`` ν.

    Variances are in the units of the errors, ℓ in those of the metric. ``family`` is a name of ``CORRELATIONS``.
    ``inflation`` multiplies the stated variance where errors of rows left out are known to be too small.
    """

    family: str
    variance: float
    length: float
    noise: float
    exponent: float
    freedom: float
    inflation: float = 1.0

    @property
    def logs(self) -> Float:
        """(log s², log ℓ, log ω, b, log ν)."""
        logs = np.log([self.variance, self.length, self.noise, 1.0, self.freedom])
        logs[3] = self.exponent
        return logs

    @classmethod
    def of(cls, family: str, logs: Float) -> LocalKernel:
        """The kernel of these ``logs``."""
        variance, length, noise, _, freedom = np.exp(logs).tolist()
        return cls(family, variance, length, noise, float(logs[3]), freedom)


@dataclass(frozen=True)
class Neighbourhoods:
    """The k neighbours of each of n rows: squared distances from the row, (n, k), and among each other, (n, k, k).

    ``errors`` (n, k) are those of the neighbours, ``log_factors`` (n, k) the logarithms of their noise factors and
    ``noises`` (n, k) the inverses of their weights; ``own_log_factors`` and ``own_noises`` (n,) are those of the row.
    """

    squares: Float
    among: Float
    errors: Float
    log_factors: Float
    noises: Float
    own_log_factors: Float
    own_noises: Float

    @classmethod
    def of(cls, points: Float, near: Float, *others: Float) -> Neighbourhoods:
        """Return those of rows at ``points`` (n, r) with neighbours at ``near`` (n, k, r), by sums of squares.

        Sums of products would lose the digits of near rows. ``others`` are the other fields.
        """
        n, k, _ = near.shape
        squares, among = np.zeros((n, k)), np.zeros((n, k, k))
        for place, own_place in zip(np.moveaxis(near, 2, 0), points.T, strict=True):
            squares += (place - own_place[:, None]) ** 2
            step = place[:, :, None] - place[:, None, :]
            step *= step
            among += step
        return cls(squares, among, *others)


def moments(kernel: LocalKernel, rows: Neighbourhoods, *, noisy: bool = True) -> tuple[Float, Float]:
    """Return mean and variance (n,) of the errors of rows, noisy ones or their means, given those of neighbours."""
    found = _Conditional(kernel, rows)
    mean, variance = found.moments
    variance = kernel.inflation * variance
    return mean, variance if noisy else variance * kernel.variance * (1.0 - found.known) / found.spread


def weights(kernel: LocalKernel, rows: Neighbourhoods) -> Float:
    """Return the weights (n, k) of the errors of the neighbours in the mean error of each row."""
    found = _Conditional(kernel, rows)
    return np.asarray(found.factor[:, None] * found.weights * np.exp(-0.5 * kernel.exponent * rows.log_factors))


class _Conditional:
    """The conditional distributions at a kernel; C and its solutions serve the moments and their derivatives."""

    def __init__(self, kernel: LocalKernel, rows: Neighbourhoods) -> None:
        self.kernel, self.rows, k = kernel, rows, rows.squares.shape[1]
        correlation = CORRELATIONS[kernel.family]
        self.nugget = max(kernel.noise / kernel.variance, LEAST_NUGGET)
        whole, self.whole_slope = correlation(rows.among, kernel.length)
        whole[:, np.arange(k), np.arange(k)] += self.nugget * rows.noises
        self.cross, self.cross_slope = correlation(rows.squares, kernel.length)
        self.errors = rows.errors * np.exp(-0.5 * kernel.exponent * rows.log_factors)
        solved = np.linalg.solve(whole, np.stack([self.errors, self.cross], axis=-1))
        self.weighted, self.weights = solved[..., 0], solved[..., 1]
        self.factor = np.exp(0.5 * kernel.exponent * rows.own_log_factors)
        self.mean = _dot(self.weights, self.errors)
        self.known = np.minimum(_dot(self.cross, self.weights), 1.0)
        self.spread = kernel.variance * (1.0 - self.known + self.nugget * rows.own_noises)
        self.excess = _dot(self.errors, self.weighted) / kernel.variance
        self.adapted = (kernel.freedom + self.excess) / (kernel.freedom + k)

    @property
    def moments(self) -> tuple[Float, Float]:
        """Mean and variance (n,)."""
        return self.factor * self.mean, self.factor**2 * self.spread * self.adapted

    def slopes(self) -> tuple[Float, Float]:
        """Return the derivatives (5, n) of mean and variance in ``LocalKernel.logs``."""
        kernel, rows, n, k = self.kernel, self.rows, *self.rows.squares.shape
        mean, spread, excess = np.zeros((5, n)), np.zeros((5, n)), np.zeros((5, n))
        noises = self.nugget * rows.noises
        with_mean, with_itself = (_dot(noises * self.weights, each) for each in (self.weighted, self.weights))
        of_excess = _dot(noises * self.weighted, self.weighted) / kernel.variance
        mean[0], mean[2] = with_mean, -with_mean
        spread[2] = kernel.variance * (with_itself + self.nugget * rows.own_noises)
        spread[0], excess[0], excess[2] = self.spread - spread[2], of_excess - self.excess, -of_excess
        along, across = (np.matmul(each[:, None], self.whole_slope)[:, 0] for each in (self.weights, self.weighted))
        mean[1] = _dot(self.cross_slope, self.weighted) - _dot(along, self.weighted)
        spread[1] = kernel.variance * (_dot(along, self.weights) - 2.0 * _dot(self.cross_slope, self.weights))
        excess[1] = -_dot(across, self.weighted) / kernel.variance
        logs = 0.5 * self.errors * rows.log_factors
        mean[3], excess[3] = -_dot(self.weights, logs), -2.0 * _dot(self.weighted, logs) / kernel.variance
        adapted = excess / (kernel.freedom + k)
        adapted[4] = kernel.freedom * (1.0 - self.adapted) / (kernel.freedom + k)
        variance = self.factor**2 * (self.adapted * spread + self.spread * adapted)
        mean *= self.factor
        mean[3] += 0.5 * rows.own_log_factors * self.factor * self.mean
        variance[3] += rows.own_log_factors * self.moments[1]
        return mean, variance


def _dot(a: Any, b: Any) -> Float:
    found: Float = np.einsum("nk,nk->n", a, b)
    return found


def log_density(kernel: LocalKernel, rows: Neighbourhoods, errors: Float) -> tuple[float, Float]:
    """Return the sum of the log densities (nats) of the ``errors`` (n,) of rows, and its slopes (5,) in the logs."""
    found = _Conditional(kernel, rows)
    (mean, variance), (of_mean, of_variance) = found.moments, found.slopes()
    rest = errors - mean
    value = -0.5 * float(np.sum(np.log(2 * np.pi * variance) + rest**2 / variance))
    slope = (of_mean * (rest / variance) + of_variance * (0.5 * (rest**2 / variance - 1.0) / variance)).sum(axis=1)
    return value, slope


def start_of(panels: Sequence[Neighbourhoods], errors: Sequence[Float], family: str = "matern32") -> LocalKernel:
    """Return the start of a search: half of the mean square as signal, half as noise, twice the usual distance."""
    square, usual = _units(panels, errors)
    return LocalKernel(family, 0.5 * square, 2.0 * usual, 0.5 * square, 1.0, 10.0)


def _units(panels: Sequence[Neighbourhoods], errors: Sequence[Float]) -> tuple[float, float]:
    """Return the mean square of errors and the usual distance of the last neighbour, at least tiny numbers."""
    square, usual = (
        float(np.mean(np.concatenate(errors) ** 2)),
        float(np.median(np.concatenate([np.sqrt(panel.squares[:, -1]) for panel in panels]))),
    )
    return max(square, LEAST_SQUARE), max(usual, 1e-100)


def learned(
    panels: Sequence[Neighbourhoods],
    errors: Sequence[Float],
    start: LocalKernel,
    map_panels: Callable[..., Iterable[Any]] = map,
    *,
    noise_alone: bool = False,
) -> tuple[LocalKernel, float]:
    """Return the kernel with the largest mean log density of the errors of rows, and that density.

    The rows are given in ``panels``, with the ``errors`` of each panel. ``map_panels`` is ``map``, or that of a pool of
    threads. L-BFGS-B begins at ``start``, whose family stays. Where a function is smooth, s² ∝ ℓ^(2·smoothness) is a
    ridge of the density, along which one coordinate of the search goes. ``noise_alone`` keeps all parameters but ω.
    """
    from scipy.optimize import minimize

    n, (square, usual), steepness = sum(map(len, errors)), _units(panels, errors), STEEPNESS[start.family]
    bounds = [(limits[0], limits[1]) for limits in (np.log(RATIOS), np.log(LENGTHS), np.log(NUGGETS))]
    bounds += [(0.0, STEEPEST), tuple(np.log(FREEDOMS))]
    units = np.log([square, usual, square, 1.0, 1.0])

    def kernel_at(x: Float) -> LocalKernel:
        logs = x + units
        logs[0] += steepness * x[1]
        return LocalKernel.of(start.family, logs)

    def loss(x: Float) -> tuple[float, Float]:
        found = list(map_panels(partial(log_density, kernel_at(x)), panels, errors))
        slope = -sum(slope for _, slope in found) / n
        slope[1] += steepness * slope[0]
        return -sum(value for value, _ in found) / n, slope

    first = start.logs - units
    first[0] -= steepness * first[1]
    first = np.clip(first, *np.transpose(bounds))
    if noise_alone:
        bounds = [bounds[2] if place == 2 else (log, log) for place, log in enumerate(first.tolist())]
    found = minimize(loss, first, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": STEPS})
    return kernel_at(found.x), -float(found.fun)
