"""The error of a model at a row, given its errors at the nearest training rows: a local Student-t
process.

An error is n^(b/2) times a process u, where n is the noise factor and w the weight of its row:

    u ~ TP(ν; s²κ(r/ℓ) + (ω/w)[same row]),        κ a correlation of the distance r in the model's
    metric.

Let C = K + (ω/s²)W⁻¹ for the k nearest rows, c be their correlations with the row, u their errors
divided by n^(b/2), and Q = uᵀC⁻¹u/s². Apart from the row's own factors n^(b/2) and n^b, its error
then has (Shah et al. 2014, "Student-t processes as alternatives to Gaussian processes", eq. 6;
their ν − 2 is ν here, and ν → ∞ is kriging)

    mean = cᵀC⁻¹u,      variance = (s²(1 − cᵀC⁻¹c) + ω/w)·(ν + Q)/(ν + k).

Rows whose neighbours have small errors thus have small variances; apart from noise that depends on
the inputs, nothing raises the log density more. s², ℓ, ω, b and ν maximise the mean log density of
left-out rows, each predicted from its neighbours, treated as independent normal errors (Vecchia
1988; Allison et al. 2023, "Leveraging locality and robustness to achieve massively scalable
Gaussian process regression"). Where a function is smooth, s² and ℓ would grow together without
limit (the local model becomes a polynomial through the neighbours), so both are bounded.
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
"""Minimum of ω/(s²w), because equal rows have a singular correlation matrix, and of the mean
squared scaled error."""

STARTS = 0.7, 1.0, 0.1, 0.01, 1e-4
"""Starting points of a search: the length in units of the usual distance, and noise shares of the
mean square."""

STEPS, ENOUGH = 15, 0.1
"""Maximum number of iterations of a search, and the rise in the log density of all rows (nats)
below which it ends, or a tenth of that when scales are learned, since the density rises slowly
along these."""

CORRELATIONS = {"exponential": 1.0, "matern32": 3.0, "matern52": 5.0}
"""The Matérn correlations of local residuals by name, with twice their smoothness."""

RATIOS, LENGTHS, NUGGETS, FREEDOMS = (1e-6, 1e4), (0.05, 100.0), (1e-8, 4.0), (0.5, 1e4)
"""Bounds on s²/ℓ^(2·smoothness), ℓ and ω in their units (``_units``), and on ν."""

RARE = 10.0
"""Minimum ω, and half the minimum variance, times the number of rows that teach them, in units of
the mean square. One row in n may have a usual error beside a near copy even if none of the n
teachers has; it costs the mean log density at most 1/(2·10) nats. On one split of protein (2,000
rows), the NLPD is 20.7 without a minimum ω; on another (10,000 rows), 6.6 without a minimum
variance and 1.0 with it. On etopo20 (36,000), the latter costs 0.02 nats.
"""

STEEPEST, SCALES = 3.0, (0.05, 20.0)
"""Upper bound on the exponent b, and bounds on the coordinate scales."""


def correlation(family: str, distances: Float, length: float) -> tuple[Float, Float]:
    """Return κ = e⁻ˢ, (1 + s)e⁻ˢ or (1 + s + s²/3)e⁻ˢ at distances r, s = √(2·smoothness) r/ℓ, and
    −κ′(r)/r.

    The latter times r² is the derivative with respect to log ℓ. It is set to 0 where it would be
    infinite.
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
    """The covariance of errors: ``variance`` s², ``length`` ℓ, ``noise`` ω, ``exponent`` b and
    ``freedom`` ν.

    Variances are in the units of the errors, ℓ in those of the metric. ``family`` is a name in
    ``CORRELATIONS``. ``inflation`` multiplies the predicted variance where left-out errors are
    known to be too small. No noisy error has a variance below ``least``: ω alone sets no bound,
    because small errors of the neighbours scale both down.
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
    """Return first and second points (p,) of pairs of a row (0) and k neighbours, and pair indices
    (k + 1, k + 1)."""
    first, second = np.triu_indices(k + 1, 1)
    places = np.zeros((k + 1, k + 1), dtype=np.int64)
    places[first, second] = places[second, first] = np.arange(len(first))
    return first, second, places


@dataclass(frozen=True)
class Steps:
    """The ``coordinates`` (n, k, r) of the k neighbours of n rows, each relative to its row.

    The coordinates are those of the ``unscaled`` steps, multiplied by ``scales`` (r,).
    """

    coordinates: Float
    scales: Float | float = 1.0
    unscaled: "Steps | None" = None

    @cached_property
    def squares(self) -> Float:
        """Squared coordinate differences (np, r) of the pairs (``_pairs``)."""
        first, second, _ = _pairs(self.coordinates.shape[1])
        points = np.pad(self.coordinates, ((0, 0), (1, 0), (0, 0)))
        return np.square(points[:, second] - points[:, first]).reshape(-1, points.shape[2])

    @cached_property
    def pairs(self) -> Float:
        """Distances (n, p) of the pairs, from sums of squares: inner products would lose digits for
        nearby rows."""
        if self.unscaled is not None:
            return np.sqrt(self.unscaled.squares @ np.square(self.scales)).reshape(
                len(self.coordinates), -1
            )
        first, second, _ = _pairs(self.coordinates.shape[1])
        points = np.ascontiguousarray(
            np.moveaxis(np.pad(self.coordinates, ((0, 0), (1, 0), (0, 0))), 2, 0)
        )
        return np.asarray(
            np.sqrt(sum(np.square(each.take(second, 1) - each.take(first, 1)) for each in points))
        )

    @property
    def distances(self) -> Float:
        """Distances (n, k) of the neighbours from their row."""
        return self.pairs[:, : self.coordinates.shape[1]]


@dataclass(frozen=True)
class Neighbourhoods:
    """The k neighbours of each of n rows, described by their ``steps`` from it.

    ``errors`` (n, k) are those of the neighbours, ``log_factors`` (n, k) the logarithms of their
    noise factors and ``noises`` (n, k) the inverses of their weights; ``own_log_factors`` and
    ``own_noises`` (n,) are those of the row.
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
"""A kernel, coordinate scales (r,), and the mean log density of the errors from which they were
learned."""


def moments(
    kernel: LocalKernel, rows: Neighbourhoods, *, noisy: bool = True
) -> tuple[Float, Float]:
    """Return the mean and variance (n,) of the rows' errors, noisy or as their means, given the
    neighbours' errors."""
    found = Conditional(kernel, rows)
    mean, variance = found.moments(kernel)
    variance = kernel.inflation * variance
    if noisy:
        return mean, np.maximum(variance, kernel.least * found.factor**2)
    return mean, variance * (1.0 - found.known) / found.unknown


def weights(kernel: LocalKernel, rows: Neighbourhoods) -> Float:
    """Return the weights (n, k) of the neighbours' errors in the mean error of each row."""
    found = Conditional(kernel, rows)
    return np.asarray(
        found.factor[:, None] * found.weights * np.exp(-0.5 * kernel.exponent * rows.log_factors)
    )


class Conditional:
    """The distributions of row errors conditional on their neighbours, for the ℓ, ω/s² and b of a
    kernel.

    Its s² and ν are passed later. Both the moments and their derivatives use C and its solutions.
    """

    def __init__(self, kernel: LocalKernel, rows: Neighbourhoods) -> None:
        self.rows, nugget, k = rows, kernel.noise / kernel.variance, rows.errors.shape[1]
        self.noises = np.column_stack(
            [nugget * rows.own_noises, np.maximum(nugget * rows.noises, LEAST_NUGGET)]
        )
        values, self.slope = correlation(kernel.family, rows.steps.pairs, kernel.length)
        joint = values.take(_pairs(k)[2], axis=1)
        np.einsum("nkk->nk", joint)[...] = 1.0 + self.noises
        cross = joint[:, 1:, 0]
        whole = joint[:, 1:, 1:]
        self.errors = rows.errors * np.exp(-0.5 * kernel.exponent * rows.log_factors)
        solved = np.linalg.solve(whole, np.stack([self.errors, cross], axis=-1))
        self.weighted = solved[..., 0]
        self.weights = solved[..., 1]
        self.factor = np.exp(0.5 * kernel.exponent * rows.own_log_factors)
        self.mean = np.einsum("nk,nk->n", self.weights, self.errors)
        self.known = np.minimum(np.einsum("nk,nk->n", cross, self.weights), 1.0)
        self.unknown = np.maximum(1.0 - self.known + self.noises[:, 0], LEAST_NUGGET)
        self.square = np.einsum("nk,nk->n", self.errors, self.weighted)

    def level(self, kernel: LocalKernel) -> Float:
        """s² times (ν + Q)/(ν + k), (n,)."""
        return np.asarray(
            (kernel.freedom * kernel.variance + self.square)
            / (kernel.freedom + self.errors.shape[1])
        )

    def moments(self, kernel: LocalKernel) -> tuple[Float, Float]:
        """Mean and variance (n,)."""
        return self.factor * self.mean, self.factor**2 * self.unknown * self.level(kernel)

    def log_density(
        self, errors: Float, kernel: LocalKernel, *, scales: bool = False
    ) -> tuple[Float, Float]:
        """Log densities (n,) of the ``errors`` (n,), and the derivatives (5,) of their sum with
        respect to log s², log ℓ, log ω, b and log ν; with ``scales``, also to the logarithms of the
        coordinate scales, (5 + r,)."""
        rows = self.rows
        (mean, variance) = self.moments(kernel)
        k = self.errors.shape[1]
        level = self.level(kernel)
        rest = errors - mean
        freedom = kernel.freedom
        values = -0.5 * np.log(2 * np.pi * variance)  # w.r.t. its log
        of_variance = 0.5 * (rest**2 / variance - 1.0)
        of_mean = self.factor * rest / variance
        of_square = of_variance / (level * (freedom + k))
        # a change J′ in the correlation matrix of a row and its neighbours changes the mean by
        # −xᵀJ′y, the unknown part by xᵀJ′x and uᵀC⁻¹u by −yᵀJ′y
        x = np.insert(self.weights, 0, -1.0, axis=1)
        y = np.insert(self.weighted, 0, 0.0, axis=1)
        z = (of_variance / self.unknown)[:, None] * x - of_mean[:, None] * y
        v = -of_square[:, None] * y
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
    """Return kernels, the best of which starts a search: from as much noise as signal to hardly any
    noise.

    The density has maxima at a length near the usual distance, where a search begins, and at large
    ones (polynomials).
    """
    square, usual, noise = _units(panels)
    return [
        LocalKernel(family, square, STARTS[0] * usual, share * noise, 1.0, 3.0)
        for share in STARTS[1:]
    ]


def _units(panels: Panels) -> tuple[float, float, float]:
    """Return the units of s², ℓ and ω, all above zero.

    These are the mean squared error, the median distance of the last neighbour, and the former over
    the mean of 1/w.
    """
    square = max(float(np.mean(np.concatenate(panels[1]) ** 2)), LEAST_SQUARE)
    usual = float(np.median(np.concatenate([hoods.steps.distances[:, -1] for hoods in panels[0]])))
    return (
        square,
        max(usual, 1e-100),
        square / float(np.mean(np.concatenate([each.own_noises for each in panels[0]]))),
    )


def _levels(
    found: Sequence[Conditional], errors: Float, start: float, low: float, high: float
) -> tuple[float, float]:
    """Return s² within two bounds, and ν, that maximise the density of the row ``errors`` (n,).

    With a = νs², c = ν + k and V = a + uᵀC⁻¹u, it depends on c·rest²/V and log(V/c); for each a,
    the best c is 1 ÷ mean rest²/V. If there are several maxima in a, the one next to ``start`` is
    chosen.
    """
    from scipy.optimize import minimize_scalar

    names = "factor", "mean", "unknown", "square"
    factors, means, unknown, squares = (
        np.concatenate([getattr(each, name) for each in found]) for name in names
    )
    rests = (errors / factors - means) ** 2 / unknown
    k = found[0].errors.shape[1]

    def freedom(a: float) -> float:
        best = 1.0 / max(float(np.mean(rests / (a + squares))), 1e-300) - k
        return float(np.clip(best, max(FREEDOMS[0], a / high), min(FREEDOMS[1], a / low)))

    @cache
    def loss(log: float) -> float:
        a = np.exp(min(max(log, lowest), highest))
        c = freedom(a) + k
        total = a + squares
        return float(np.mean(np.log(total) + c * rests / total) - np.log(c))

    lowest = float(np.log(FREEDOMS[0] * low))
    highest = float(np.log(FREEDOMS[1] * high))
    best = min(max(float(np.log(start)), lowest), highest)
    for step in (1.0, -1.0):
        while loss(best + step) < loss(best):
            best += step
    bounds = max(best - 1.0, lowest), min(best + 1.0, highest)
    a = float(
        np.exp(minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 1e-3}).x)
    )
    return a / freedom(a), freedom(a)


def learned(
    panels: Panels,
    starts: Sequence[LocalKernel],
    poll: Poll = lambda: None,
    *,
    scales: bool = False,
    form: bool = True,
) -> Learned:
    """Return the kernel with the largest mean log density of the row errors, the scales (r,), and
    that density.

    L-BFGS-B starts at the best of ``starts``, keeps its family, and optimises ω/s², ℓ and b; s² and
    ν are optimal at each point (``_levels``). For smooth functions, s² ∝ ℓ^(2·smoothness) is a
    ridge of the density; one coordinate runs along it. Scales are 1 unless ``scales`` is true.
    Without ``form``, s² and ℓ stay fixed and only noise is learned. ``poll``, called before each
    evaluation, may raise to stop the search.
    """
    from scipy.optimize import minimize

    (hoods, errors), family, (square, usual, noise) = panels, starts[0].family, _units(panels)
    n = sum(map(len, errors))
    targets = np.concatenate(errors)
    steepness = CORRELATIONS[family]
    long = float(np.clip(starts[0].length / usual, *LENGTHS))
    ratio = float(np.clip(starts[0].variance / square / long**steepness, *RATIOS))
    (low, high), lengths = (RATIOS, LENGTHS) if form else ((ratio, ratio), (long, long))
    nuggets = max(NUGGETS[0], min(RARE / n, 0.1)), NUGGETS[1]
    bounds = [
        *map(tuple, np.log([(nuggets[0] / high, nuggets[1] / low), lengths])),
        (0.0, STEEPEST),
    ]
    bounds += [tuple(np.log(SCALES))] * (hoods[0].steps.coordinates.shape[2] if scales else 0)
    base = replace(
        starts[0], variance=1.0, freedom=1.0, inflation=1.0, least=2.0 * nuggets[0] * square
    )

    @cache
    def loss(point: bytes) -> tuple[float, Float, LocalKernel]:
        poll()
        x = np.frombuffer(point)
        share, long = np.exp(x[:2]).tolist()
        unit = square * long**steepness
        kernel = replace(
            base, length=usual * long, noise=noise / unit * share, exponent=float(x[2])
        )
        some = [each.scaled(np.exp(x[3:])) for each in hoods] if scales else hoods
        found = in_threads(partial(Conditional, kernel), some)
        range_ = unit * max(low, nuggets[0] / share), unit * min(high, nuggets[1] / share)
        variance, freedom = _levels(
            found, targets, unit * ratio * max(starts[0].freedom, 10.0), *range_
        )
        kernel = replace(kernel, variance=variance, freedom=freedom, noise=kernel.noise * variance)
        density = partial(Conditional.log_density, kernel=kernel, scales=scales)
        values, slopes = zip(*in_threads(density, found, errors), strict=True)
        slope = np.sum(slopes, axis=0) / n
        value = float(np.sum(np.concatenate(values))) / n
        # where s² is at its bounds, ω varies with the share; where ω is at its bounds or s² is
        # optimal, s² varies
        of_share = -slope[0] if low * 1.001 < variance / unit < high / 1.001 else slope[2]
        first = of_share, slope[1] + steepness * slope[0], slope[3]
        return -value, -np.concatenate([first, slope[5:]]), kernel

    def point_of(start: LocalKernel) -> Float:
        long = start.length / usual
        share = start.noise / noise / (start.variance / square / long**steepness)
        x = *np.log([share, long]), start.exponent, *np.zeros(len(bounds) - 3)
        return np.asarray(np.clip(x, *np.transpose(bounds)))

    first = min(map(point_of, starts), key=lambda x: loss(x.tobytes())[0])
    how: Any = {
        "options": {"maxiter": STEPS, "ftol": (0.1 if scales else 1.0) * ENOUGH / n},
        "bounds": bounds,
    }
    found = minimize(lambda x: loss(x.tobytes())[:2], first, jac=True, method="L-BFGS-B", **how)
    return loss(found.x.tobytes())[2], np.exp(found.x[3:]), -float(found.fun)
