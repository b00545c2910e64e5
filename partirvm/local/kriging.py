"""The error of a model at a row, given its errors at the nearest training rows: a local Student-t process.

An error is n^(b/2) times a process u of unit form, with n the noise factor and w the weight of its row:

    u ~ TP(ν; s²κ(r/ℓ) + (ω/w)[same row]),        κ a correlation of the distance r in the metric of the model.

With C = K + (ω/s²)W⁻¹ of the k nearest rows, c their correlations with the row, u their errors divided by n^(b/2), and
Q = uᵀC⁻¹u/s², the error of the row has, times n^(b/2) and n^b of its own (Shah et al. 2014, "Student-t processes as
alternatives to Gaussian processes", eq. 6, whose ν − 2 is ν here, so that ν → ∞ is kriging),

    mean = cᵀC⁻¹u,      variance = (s²(1 − cᵀC⁻¹c) + ω/w)·(ν + Q)/(ν + k).

So rows whose neighbours have small errors have small variances: beside noise that depends on the inputs this is what
lowers the log density most. s², ℓ, ω, b and ν maximise the mean log density of left-out rows, each predicted from its
neighbours, as independent normal errors (Vecchia 1988; Allison et al. 2023, "Leveraging locality and robustness to
achieve massively scalable Gaussian process regression"). Where a function is smooth s² and ℓ grow together without
limit: the local model is then a polynomial through the neighbours. Both are bounded.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from typing import Any, Self, TypeAlias

import numpy as np

from partirvm.core.newton import Poll
from partirvm.process import in_threads
from partirvm.types import Float, Int

LEAST_NUGGET, LEAST_SQUARE = 1e-10, 1e-16
"""Minimum of ω/(s²w), as correlations of equal rows are singular, and of the mean square of scaled errors."""

STARTS = 0.7, 1.0, 0.1, 0.01, 1e-4
"""Length in usual distances, and shares of noise in the mean square, at which a search may begin."""

STEPS, ENOUGH = 15, 0.1
"""Maximum number of iterations of a search, and the rise of the log density of all rows (nats) below which it ends; a
tenth of it where scales are learned, along which it rises slowly."""

CORRELATIONS = {"exponential": 1.0, "matern32": 3.0, "matern52": 5.0}
"""The correlations of local residuals by name: Matérn's, with twice their smoothness."""

RATIOS, LENGTHS, NUGGETS, FREEDOMS = (1e-6, 1e4), (0.05, 100.0), (1e-8, 4.0), (0.5, 1e4)
"""Bounds of s²/ℓ^(2·smoothness), ℓ and ω in their units (``_units``), and of ν."""

RARE = 10.0
"""Least ω, and half the least variance, times the number of rows that teach them, in units of the mean square. One row
in n may have an error of usual size beside a near copy though none of n teachers has: then it costs the mean log
density at most 1/(2·10) nats. On one split of protein (2,000 rows) the NLPD is 20.7 without a least ω, on another
(10,000) 6.6 without a least variance and 1.0 with it; on etopo20 (36,000) the latter costs .02 nats.
"""

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
    ``inflation`` multiplies the predicted variance where left-out errors are known to be too small. No noisy error
    has a variance below ``least``: ω alone is no bound, as small errors of the neighbours lower the level of both.
    """

    family: str
    variance: float
    length: float
    noise: float
    exponent: float
    freedom: float
    inflation: float = 1.0
    least: float = 0.0


@cache
def _pairs(k: int) -> tuple[Int, Int, Int]:
    """Return first and second points (p,) of pairs of a row (0) and k neighbours, and the positions (k + 1, k + 1)."""
    first, second = np.triu_indices(k + 1, 1)
    places = np.zeros((k + 1, k + 1), dtype=np.int64)
    places[first, second] = places[second, first] = np.arange(len(first))
    return first, second, places


@dataclass(frozen=True)
class Steps:
    """The ``coordinates`` (n, k, r) of the k neighbours of n rows, each relative to its row.

    ``scales`` (r,) multiply them, of ``unscaled`` steps.
    """

    coordinates: Float
    scales: Float | float = 1.0
    unscaled: "Steps | None" = None

    @cached_property
    def squares(self) -> Float:
        """Squared differences (np, r) of the coordinates of pairs (``_pairs``)."""
        first, second, _ = _pairs(self.coordinates.shape[1])
        points = np.pad(self.coordinates, ((0, 0), (1, 0), (0, 0)))
        return np.square(points[:, second] - points[:, first]).reshape(-1, points.shape[2])

    @cached_property
    def pairs(self) -> Float:
        """Distances (n, p) of pairs, by sums of squares: products would lose digits of near rows."""
        if self.unscaled is not None:
            return np.sqrt(self.unscaled.squares @ np.square(self.scales)).reshape(len(self.coordinates), -1)
        first, second, _ = _pairs(self.coordinates.shape[1])
        points = np.ascontiguousarray(np.moveaxis(np.pad(self.coordinates, ((0, 0), (1, 0), (0, 0))), 2, 0))
        return np.asarray(np.sqrt(sum(np.square(each.take(second, 1) - each.take(first, 1)) for each in points)))

    @property
    def distances(self) -> Float:
        """Distances (n, k) from the row."""
        return self.pairs[:, : self.coordinates.shape[1]]


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
        return replace(self, steps=Steps(self.steps.coordinates * scales, scales, self.steps))


Panels: TypeAlias = tuple[list[Neighbourhoods], list[Float]]
"""Row neighbourhoods, and the row errors, for one target."""

Learned: TypeAlias = tuple[LocalKernel, Float, float]
"""A kernel, scales (r,) of the coordinates, and the mean log density of the errors that taught them."""


def moments(kernel: LocalKernel, rows: Neighbourhoods, *, noisy: bool = True) -> tuple[Float, Float]:
    """Return mean and variance (n,) of the errors of rows, noisy ones or their means, given those of neighbours."""
    found = Conditional(kernel, rows)
    mean, variance = found.moments(kernel)
    variance = kernel.inflation * variance
    if noisy:
        return mean, np.maximum(variance, kernel.least * found.factor**2)
    return mean, variance * (1.0 - found.known) / found.unknown


def weights(kernel: LocalKernel, rows: Neighbourhoods) -> Float:
    """Return the weights (n, k) of the errors of the neighbours in the mean error of each row."""
    found = Conditional(kernel, rows)
    return np.asarray(found.factor[:, None] * found.weights * np.exp(-0.5 * kernel.exponent * rows.log_factors))


class Conditional:
    """The distributions of rows conditional on their neighbours, by ℓ, ω/s² and b of a kernel.

    Its s² and ν are given later. C and its solutions serve the moments and their derivatives.
    """

    def __init__(self, kernel: LocalKernel, rows: Neighbourhoods) -> None:
        self.rows, nugget, k = rows, kernel.noise / kernel.variance, rows.errors.shape[1]
        self.noises = np.column_stack([nugget * rows.own_noises, np.maximum(nugget * rows.noises, LEAST_NUGGET)])
        values, self.slope = correlation(kernel.family, rows.steps.pairs, kernel.length)
        joint = values.take(_pairs(k)[2], axis=1)
        np.einsum("nkk->nk", joint)[...] = 1.0 + self.noises
        cross, whole = joint[:, 1:, 0], joint[:, 1:, 1:]
        self.errors = rows.errors * np.exp(-0.5 * kernel.exponent * rows.log_factors)
        solved = np.linalg.solve(whole, np.stack([self.errors, cross], axis=-1))
        self.weighted, self.weights = solved[..., 0], solved[..., 1]
        self.factor = np.exp(0.5 * kernel.exponent * rows.own_log_factors)
        self.mean = np.einsum("nk,nk->n", self.weights, self.errors)
        self.known = np.minimum(np.einsum("nk,nk->n", cross, self.weights), 1.0)
        self.unknown = np.maximum(1.0 - self.known + self.noises[:, 0], LEAST_NUGGET)
        self.square = np.einsum("nk,nk->n", self.errors, self.weighted)

    def level(self, kernel: LocalKernel) -> Float:
        """s² times (ν + Q)/(ν + k), (n,)."""
        return np.asarray((kernel.freedom * kernel.variance + self.square) / (kernel.freedom + self.errors.shape[1]))

    def moments(self, kernel: LocalKernel) -> tuple[Float, Float]:
        """Mean and variance (n,)."""
        return self.factor * self.mean, self.factor**2 * self.unknown * self.level(kernel)

    def log_density(self, errors: Float, kernel: LocalKernel, *, scales: bool = False) -> tuple[Float, Float]:
        """Log densities (n,) of the ``errors`` (n,), and the derivatives (5,) of their sum in log s², log ℓ, log ω, b,
        log ν, and with ``scales`` in the logarithms of scales of the coordinates, (5 + r,)."""
        rows, (mean, variance), k, level = self.rows, self.moments(kernel), self.errors.shape[1], self.level(kernel)
        rest, freedom = errors - mean, kernel.freedom
        values, of_variance = -0.5 * np.log(2 * np.pi * variance), 0.5 * (rest**2 / variance - 1.0)  # in its logarithm
        of_mean, of_square = self.factor * rest / variance, of_variance / (level * (freedom + k))
        # the matrix J of the correlations of row and neighbours changes the mean by −xᵀJ′y, what is unknown by xᵀJ′x
        # and uᵀC⁻¹u by −yᵀJ′y
        x, y = np.insert(self.weights, 0, -1.0, axis=1), np.insert(self.weighted, 0, 0.0, axis=1)
        z, v = (of_variance / self.unknown)[:, None] * x - of_mean[:, None] * y, -of_square[:, None] * y
        of_errors = of_mean[:, None] * self.weights + 2.0 * of_square[:, None] * self.weighted
        of_nugget = np.sum(self.noises * (x * z + y * v))
        among = (np.stack([x, y], axis=-1) @ np.stack([z, v], axis=1)).reshape(len(rest), -1)
        first, second, _ = _pairs(k)
        of_pairs = among.take(first * (k + 1) + second, axis=1)
        of_pairs += among.take(second * (k + 1) + first, axis=1)
        of_pairs *= self.slope
        slopes = [
            np.sum(of_square) * freedom * kernel.variance - of_nugget,
            np.sum(of_pairs * rows.steps.pairs**2),
            of_nugget,
            np.sum((0.5 * mean * rest / variance + of_variance) * rows.own_log_factors)
            - 0.5 * np.sum(of_errors * rows.log_factors * self.errors),
            freedom * np.sum(of_square * (kernel.variance - level)),
        ]
        if scales:
            squares = (rows.steps.unscaled or rows.steps).squares
            slopes += (np.square(rows.steps.scales) * (-of_pairs.ravel() @ squares)).tolist()
        return values - of_variance - 0.5, np.array(slopes)


def starts_of(panels: Panels, family: str = "matern32") -> list[LocalKernel]:
    """Return kernels of which the best one starts a search: noise from as much as signal to hardly any.

    The density has maxima at a length near the usual distance, where a search begins, and at long ones, polynomials.
    """
    square, usual, noise = _units(panels)
    return [LocalKernel(family, square, STARTS[0] * usual, share * noise, 1.0, 3.0) for share in STARTS[1:]]


def _units(panels: Panels) -> tuple[float, float, float]:
    """Return units of s², ℓ and ω, at least tiny numbers.

    These are the mean square of errors, the usual distance of the last neighbour, and the former at the mean of 1/w.
    """
    square = max(float(np.mean(np.concatenate(panels[1]) ** 2)), LEAST_SQUARE)
    usual = float(np.median(np.concatenate([hoods.steps.distances[:, -1] for hoods in panels[0]])))
    return square, max(usual, 1e-100), square / float(np.mean(np.concatenate([each.own_noises for each in panels[0]])))


def _levels(found: Sequence[Conditional], errors: Float, start: float, low: float, high: float) -> tuple[float, float]:
    """Return s² between two bounds, and ν, for which the ``errors`` (n,) of rows have the largest density.

    With a = νs², c = ν + k and V = a + uᵀC⁻¹u it is a function of c·rest²/V and log(V/c): of each a the best c is 1 ÷
    mean rest²/V. Of several maxima in a it is the one next to ``start``.
    """
    from scipy.optimize import minimize_scalar

    names = "factor", "mean", "unknown", "square"
    factors, means, unknown, squares = (np.concatenate([getattr(each, name) for each in found]) for name in names)
    rests, k = (errors / factors - means) ** 2 / unknown, found[0].errors.shape[1]

    def freedom(a: float) -> float:
        best = 1.0 / max(float(np.mean(rests / (a + squares))), 1e-300) - k
        return float(np.clip(best, max(FREEDOMS[0], a / high), min(FREEDOMS[1], a / low)))

    @cache
    def loss(log: float) -> float:
        a = np.exp(min(max(log, lowest), highest))
        c, total = freedom(a) + k, a + squares
        return float(np.mean(np.log(total) + c * rests / total) - np.log(c))

    lowest, highest = float(np.log(FREEDOMS[0] * low)), float(np.log(FREEDOMS[1] * high))
    best = min(max(float(np.log(start)), lowest), highest)
    for step in (1.0, -1.0):
        while loss(best + step) < loss(best):
            best += step
    bounds = max(best - 1.0, lowest), min(best + 1.0, highest)
    a = float(np.exp(minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 1e-3}).x))
    return a / freedom(a), freedom(a)


def learned(
    panels: Panels, starts: Sequence[LocalKernel], poll: Poll = lambda: None, *, scales: bool = False, form: bool = True
) -> Learned:
    """Return the kernel with the largest mean log density of the errors of rows, scales (r,), and that density.

    L-BFGS-B begins at the best of ``starts``, whose family stays, and searches ω/s², ℓ and b; s² and ν are the best at
    each point (``_levels``). Of smooth functions s² ∝ ℓ^(2·smoothness) is a ridge of the density, along which one
    coordinate goes. Scales are 1 unless ``scales`` is true. Without ``form`` s² and ℓ stay; only noise is learned.
    ``poll``, called before each evaluation, may raise to stop the search.
    """
    from scipy.optimize import minimize

    (hoods, errors), family, (square, usual, noise) = panels, starts[0].family, _units(panels)
    n, targets = sum(map(len, errors)), np.concatenate(errors)
    steepness, long = CORRELATIONS[family], float(np.clip(starts[0].length / usual, *LENGTHS))
    ratio = float(np.clip(starts[0].variance / square / long**steepness, *RATIOS))
    (low, high), lengths = (RATIOS, LENGTHS) if form else ((ratio, ratio), (long, long))
    nuggets = max(NUGGETS[0], min(RARE / n, 0.1)), NUGGETS[1]
    bounds = [*map(tuple, np.log([(nuggets[0] / high, nuggets[1] / low), lengths])), (0.0, STEEPEST)]
    bounds += [tuple(np.log(SCALES))] * (hoods[0].steps.coordinates.shape[2] if scales else 0)
    base = replace(starts[0], variance=1.0, freedom=1.0, inflation=1.0, least=2.0 * nuggets[0] * square)

    @cache
    def loss(point: bytes) -> tuple[float, Float, LocalKernel]:
        poll()
        x = np.frombuffer(point)
        share, long = np.exp(x[:2]).tolist()
        unit = square * long**steepness
        kernel = replace(base, length=usual * long, noise=noise / unit * share, exponent=float(x[2]))
        some = [each.scaled(np.exp(x[3:])) for each in hoods] if scales else hoods
        found = in_threads(partial(Conditional, kernel), some)
        range_ = unit * max(low, nuggets[0] / share), unit * min(high, nuggets[1] / share)
        variance, freedom = _levels(found, targets, unit * ratio * max(starts[0].freedom, 10.0), *range_)
        kernel = replace(kernel, variance=variance, freedom=freedom, noise=kernel.noise * variance)
        density = partial(Conditional.log_density, kernel=kernel, scales=scales)
        values, slopes = zip(*in_threads(density, found, errors), strict=True)
        slope, value = np.sum(slopes, axis=0) / n, float(np.sum(np.concatenate(values))) / n
        # s² stays as ω changes, at its own bounds, or else ω stays as s² changes, at its bounds and where it is best
        of_share = -slope[0] if low * 1.001 < variance / unit < high / 1.001 else slope[2]
        first = of_share, slope[1] + steepness * slope[0], slope[3]
        return -value, -np.concatenate([first, slope[5:]]), kernel

    def point_of(start: LocalKernel) -> Float:
        long = start.length / usual
        share = start.noise / noise / (start.variance / square / long**steepness)
        x = *np.log([share, long]), start.exponent, *np.zeros(len(bounds) - 3)
        return np.asarray(np.clip(x, *np.transpose(bounds)))

    first = min(map(point_of, starts), key=lambda x: loss(x.tobytes())[0])
    how: Any = {"options": {"maxiter": STEPS, "ftol": (0.1 if scales else 1.0) * ENOUGH / n}, "bounds": bounds}
    found = minimize(lambda x: loss(x.tobytes())[:2], first, jac=True, method="L-BFGS-B", **how)
    return loss(found.x.tobytes())[2], np.exp(found.x[3:]), -float(found.fun)
