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

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from typing import Any, Self

import numpy as np

from partirvm.types import Float

LEAST_NUGGET, LEAST_SQUARE = 1e-10, 1e-16
"""Minimum of ω/(s²w), as the correlations of equal rows are singular, and of the mean square of the errors, in units of
the scaled target."""

STEPS, ENOUGH = 25, 0.1
"""Maximum number of iterations of a search. One of the kernel alone ends when an iteration raises the log density of
all rows by less (nats); one of scales, along which it rises slowly, goes on."""

CORRELATIONS = {"exponential": 1.0, "matern32": 3.0, "matern52": 5.0}
"""The correlations of local residuals by name: Matérn's, with twice their smoothness."""

RATIOS, LENGTHS, NUGGETS, FREEDOMS = (1e-6, 1e4), (0.05, 100.0), (1e-8, 4.0), (0.5, 1e4)
"""Bounds of s²/ℓ^(2·smoothness), ℓ and ω in their units (``_units``), and of ν."""

RARE = 10.0
"""Least ω times the number of rows that teach it, in its unit. One row in n may have an error of usual size beside a
near copy though none of n teachers has: then it costs the mean log density at most 1/(2·10) nats. protein, 2,000 rows,
one split, has a NLPD of 20.7 without."""

STEEPEST, SCALES = 3.0, (0.05, 20.0)
"""Upper bound of the exponent b, and bounds of the scales of coordinates."""


def correlation(family: str, distances: Float, length: float) -> tuple[Float, Float]:
    """Return κ = e⁻ˢ, (1 + s)e⁻ˢ or (1 + s + s²/3)e⁻ˢ of distances r, s = √(2·smoothness) r/ℓ, and −κ′(r)/r.

    The latter times r² is the derivative in log ℓ. It is 0 where it would be infinite.
    """
    steepness = CORRELATIONS[family] / length**2
    s = distances * np.sqrt(steepness)
    falling = np.exp(-s)
    if family == "exponential":
        return falling, np.divide(falling, s / steepness, out=np.zeros_like(s), where=s > 0)
    found = s * falling + falling
    if family == "matern32":
        return found, steepness * falling
    return found + s * s * falling / 3.0, steepness / 3.0 * found


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
        return np.array([*np.log([self.variance, self.length, self.noise]), self.exponent, np.log(self.freedom)])

    @classmethod
    def of(cls, family: str, logs: Float) -> Self:
        """The kernel of these ``logs``."""
        variance, length, noise, _, freedom = np.exp(logs).tolist()
        return cls(family, variance, length, noise, float(logs[3]), freedom)


@dataclass(frozen=True)
class Steps:
    """The ``coordinates`` (n, k, r) of the k neighbours of n rows, each relative to its row."""

    coordinates: Float

    @cached_property
    def distances(self) -> Float:
        """Distances (n, k) from the row."""
        return np.asarray(np.sqrt(np.einsum("nkr,nkr->nk", self.coordinates, self.coordinates)))

    @cached_property
    def apart(self) -> Float:
        """Distances (n, k, k) among neighbours, by sums of squares: products would lose digits of near rows."""
        n, k, _ = self.coordinates.shape
        apart, step = np.zeros((n, k, k)), np.empty((n, k, k))
        for place in np.ascontiguousarray(np.moveaxis(self.coordinates, 2, 0)):
            np.subtract(place[:, :, None], place[:, None, :], out=step)
            apart += np.square(step, out=step)
        return np.sqrt(apart, out=apart)


@dataclass(frozen=True)
class Neighbourhoods:
    """The k neighbours of each of n rows, by their ``steps`` from it.

    ``errors`` (n, k) are those of the neighbours, ``log_factors`` (n, k) the logarithms of their noise factors and
    ``noises`` (n, k) the inverses of their weights; ``own_log_factors`` and ``own_noises`` (n,) are those of the row.
    """

    steps: Steps
    errors: Float
    log_factors: Float
    noises: Float
    own_log_factors: Float
    own_noises: Float

    def scaled(self, scales: Float) -> Self:
        """Return the same neighbours with each coordinate multiplied by its scale (r,)."""
        return replace(self, steps=Steps(self.steps.coordinates * scales))


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
        self.kernel, self.rows, k = kernel, rows, rows.errors.shape[1]
        nugget = kernel.noise / kernel.variance
        self.noises, self.own_noises = np.maximum(nugget * rows.noises, LEAST_NUGGET), nugget * rows.own_noises
        whole, self.whole_slope = correlation(kernel.family, rows.steps.apart, kernel.length)
        np.einsum("nkk->nk", whole)[...] += self.noises
        self.cross, self.cross_slope = correlation(kernel.family, rows.steps.distances, kernel.length)
        self.errors = rows.errors * np.exp(-0.5 * kernel.exponent * rows.log_factors)
        solved = np.linalg.solve(whole, np.stack([self.errors, self.cross], axis=-1))
        self.weighted, self.weights = solved[..., 0], solved[..., 1]
        self.factor = np.exp(0.5 * kernel.exponent * rows.own_log_factors)
        self.mean = np.einsum("nk,nk->n", self.weights, self.errors)
        self.known = np.minimum(np.einsum("nk,nk->n", self.cross, self.weights), 1.0)
        self.spread = kernel.variance * np.maximum(1.0 - self.known + self.own_noises, LEAST_NUGGET)
        self.excess = np.einsum("nk,nk->n", self.errors, self.weighted) / kernel.variance
        self.adapted = (kernel.freedom + self.excess) / (kernel.freedom + k)

    @property
    def moments(self) -> tuple[Float, Float]:
        """Mean and variance (n,)."""
        return self.factor * self.mean, self.factor**2 * self.spread * self.adapted

    def slopes(self, of_mean: Float, of_variance: Float, *, scales: bool) -> Float:
        """Return the derivatives (5,) in ``LocalKernel.logs`` of a function of mean and variance of the rows.

        Its derivatives in these are ``of_mean`` and ``of_variance`` (n,). With ``scales`` (5 + r,): those in the
        logarithms of the scales of the coordinates follow.
        """
        kernel, rows, (mean, variance) = self.kernel, self.rows, self.moments
        freedom = kernel.freedom + rows.errors.shape[1]
        of_mean, of_factor = self.factor * of_mean, 0.5 * mean * of_mean + variance * of_variance
        of_adapted = self.factor**2 * self.spread * of_variance
        of_known = -kernel.variance * self.factor**2 * self.adapted * of_variance
        of_excess = of_adapted / freedom
        x, y = self.weights, self.weighted
        # the derivative in C is −(x zᵀ + v yᵀ), as a bilinear form
        z, v = of_mean[:, None] * y + of_known[:, None] * x, (of_excess / kernel.variance)[:, None] * y
        of_cross = of_mean[:, None] * y + 2.0 * of_known[:, None] * x
        of_errors = of_mean[:, None] * x + 2.0 * v
        of_nugget = -np.sum(self.noises * (x * z + v * y))
        among = np.stack([x, v], axis=-1) @ np.stack([z, y], axis=1)
        among *= self.whole_slope
        cross, steps = of_cross * self.cross_slope, rows.steps
        slopes = [
            -of_nugget - np.sum(of_known * (1.0 - self.known)) - np.sum(of_excess * self.excess),
            np.sum(cross * steps.distances**2) - np.vdot(among * steps.apart, steps.apart),
            of_nugget - np.sum(of_known * self.own_noises),
            np.sum(of_factor * rows.own_log_factors) - 0.5 * np.sum(of_errors * rows.log_factors * self.errors),
            kernel.freedom * np.sum(of_adapted * (1.0 - self.adapted)) / freedom,
        ]
        if not scales:
            return np.array(slopes)
        # Σ_kl A_kl (d_k − d_l)² of each coordinate d of the steps
        sums = (among.sum(axis=1) + among.sum(axis=2) - cross)[:, None] @ steps.coordinates**2
        twice = 2.0 * np.einsum("nkr,nkr->r", steps.coordinates, among @ steps.coordinates)
        return np.concatenate([slopes, sums[:, 0].sum(axis=0) - twice])


def log_density(kernel: LocalKernel, rows: Neighbourhoods, errors: Float, scales: bool = False) -> tuple[Float, Float]:
    """Return the log densities (n,), in nats, of the ``errors`` (n,) of rows, and the slopes (5,) of their sum.

    The slopes are those in the logs.
    With ``scales`` also those in the logarithms of scales of the coordinates, (5 + r,).
    """
    found = _Conditional(kernel, rows)
    mean, variance = found.moments
    rest = errors - mean
    value = -0.5 * (np.log(2 * np.pi * variance) + rest**2 / variance)
    return value, found.slopes(rest / variance, 0.5 * (rest**2 / variance - 1.0) / variance, scales=scales)


def start_of(panels: Sequence[Neighbourhoods], errors: Sequence[Float], family: str = "matern32") -> LocalKernel:
    """Return the start of a search: half of the mean square as signal, half as noise, twice the usual distance.

    ν begins at 3, between the optima of .5 to 1 of most sets and normal errors: from 10 searches took more steps.
    """
    square, usual, noise = _units(panels, errors)
    return LocalKernel(family, 0.5 * square, 2.0 * usual, 0.5 * noise, 1.0, 3.0)


def _units(panels: Sequence[Neighbourhoods], errors: Sequence[Float]) -> tuple[float, float, float]:
    """Return units of s², ℓ and ω, at least tiny numbers.

    These are the mean square of errors, the usual distance of the last neighbour, and the former at the mean of 1/w.
    """
    square = max(float(np.mean(np.concatenate(errors) ** 2)), LEAST_SQUARE)
    usual = float(np.median(np.concatenate([panel.steps.distances[:, -1] for panel in panels])))
    return square, max(usual, 1e-100), square / float(np.mean(np.concatenate([panel.own_noises for panel in panels])))


def learned(
    panels: Sequence[Neighbourhoods],
    errors: Sequence[Float],
    start: LocalKernel,
    map_panels: Callable[..., Iterable[Any]] = map,
    *,
    scales: bool = False,
    form: bool = True,
) -> tuple[LocalKernel, Float, float]:
    """Return the kernel with the largest mean log density of the errors of rows, scales (r,), and that density.

    The rows are given in ``panels``, with the ``errors`` of each panel. ``map_panels`` is ``map``, or that of a pool of
    threads. L-BFGS-B begins at ``start``, whose family stays. Where a function is smooth, s² ∝ ℓ^(2·smoothness) is a
    ridge of the density, along which one coordinate of the search goes. With ``scales`` those of the coordinates are
    learned, too; otherwise they are 1. Without ``form`` s² and ℓ stay, and only the noise is learned.
    """
    from scipy.optimize import minimize

    n, units, steepness = sum(map(len, errors)), np.log([*_units(panels, errors), 1.0, 1.0]), CORRELATIONS[start.family]
    nuggets = max(NUGGETS[0], min(RARE / n, 0.1)), NUGGETS[1]
    bounds = [*map(tuple, np.log([RATIOS, LENGTHS, nuggets])), (0.0, STEEPEST), tuple(np.log(FREEDOMS))]
    bounds += [tuple(np.log(SCALES))] * (panels[0].steps.coordinates.shape[2] if scales else 0)

    def kernel_at(x: Float) -> LocalKernel:
        logs = x[:5] + units
        logs[0] += steepness * x[1]
        return LocalKernel.of(start.family, logs)

    def density(kernel: LocalKernel, x: Float, panel: Neighbourhoods, some: Float) -> tuple[Float, Float]:
        return log_density(kernel, panel.scaled(np.exp(x[5:])) if scales else panel, some, scales=scales)

    @cache
    def loss(point: bytes) -> tuple[float, Float]:
        x = np.frombuffer(point)
        found = list(map_panels(partial(density, kernel_at(x), x), panels, errors))
        slope = -sum(slope for _, slope in found) / n
        slope[1] += steepness * slope[0]
        return -float(sum(np.sum(values) for values, _ in found)) / n, slope

    first = np.zeros(len(bounds))
    first[:5] = start.logs - units
    first[0] -= steepness * first[1]
    first, noisier = np.clip(first, *np.transpose(bounds)), np.log(10.0) * (np.arange(len(bounds)) == 2)
    # of other rows, large errors beside near copies may leave the start without a direction but that of more noise
    while first[2] < 0 and loss((first + noisier).tobytes())[0] < loss(first.tobytes())[0]:
        first = first + noisier
    if not form:
        bounds[:2] = [(log, log) for log in first[:2].tolist()]
    limits = {"maxiter": STEPS, "ftol": 0.0 if scales else ENOUGH / n}
    found = minimize(lambda x: loss(x.tobytes()), first, jac=True, method="L-BFGS-B", bounds=bounds, options=limits)
    return kernel_at(found.x), np.exp(found.x[5:]), -float(found.fun)
