"""The error of a model at a row, given its errors at the nearest training rows: a local Student-t
process.

An error is n^(b/2) times a process u, where n is the noise factor and w the weight of the row:

    u ~ TP(ν; s²κ(r/ℓ) + (ω/w)[same row]),

where κ is a correlation of the distance r in the model's metric.

Let C = K + (ω/s²)W⁻¹ for the k nearest rows, let c be their correlations with the row, u their
errors divided by n^(b/2), and Q = uᵀC⁻¹u/s². Apart from the row's factors n^(b/2) and n^b, its
error then has (Shah et al. 2014, "Student-t processes as alternatives to Gaussian processes", eq.
6; their ν − 2 is ν here, and ν → ∞ is kriging)

    mean = cᵀC⁻¹u,      variance = (s²(1 − cᵀC⁻¹c) + ω/w)·(ν + Q)/(ν + k).

Rows whose neighbours have small errors thus get small variances; apart from input-dependent noise,
nothing raises the log density more. s², ℓ, ω, b and ν maximise the mean log density of left-out
rows, where each row is predicted from its neighbours and errors are treated as independent and
normal (Vecchia 1988; Allison et al. 2023, "Leveraging locality and robustness to achieve massively
scalable Gaussian process regression"). For a smooth function, s² and ℓ would grow together without
limit (the local model becomes a polynomial through the neighbours), so both are bounded.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from typing import NamedTuple, Self, TypeAlias

import numpy as np

from partirvm.core.newton import Poll
from partirvm.process import in_threads
from partirvm.types import Float, Int

LEAST_NUGGET = 1e-10
"""Minimum of ω/(s²w), because equal rows have a singular correlation matrix."""

LEAST_SQUARE = 1e-16
"""Minimum of the mean squared scaled error."""

START_LENGTH = 0.7
"""Length at which a search starts, in units of the usual distance."""

START_NOISES = 1.0, 0.1, 0.01, 1e-4
"""Initial noise variances of a search, as fractions of the mean square."""

ITERATIONS = 15
"""Maximum number of iterations of a search."""

ENOUGH = 0.1
"""A search ends when the log density of all rows rises by less than this (nats), or by less than a
tenth of it when scales are learned, since the density rises slowly along the scales."""

CORRELATIONS = {"exponential": 1.0, "matern32": 3.0, "matern52": 5.0}
"""The Matérn correlations of local residuals, by name, and twice their smoothness."""

RATIOS = 1e-6, 1e4
"""Bounds on s²/ℓ^(2·smoothness) in the units of ``Units``."""

LENGTHS = 0.05, 100.0
"""Bounds on ℓ in its unit."""

NUGGETS = 1e-8, 4.0
"""Bounds on ω in its unit."""

FREEDOMS = 0.5, 1e4
"""Bounds on ν."""

RARE = 10.0
"""Minimum ω, and half the minimum variance, times the number of training rows, in units of the mean
square. Even if no training row has an error of usual size next to a near copy, one row in n may
have one; this costs at most 1/(2·10) nats of mean log density. On one split of protein (2,000
rows), the NLPD is 20.7 without a minimum ω; on another (10,000 rows), it is 6.6 without a minimum
variance and 1.0 with it. On etopo20 (36,000), the minimum variance costs 0.02 nats.
"""

STEEPEST = 3.0
"""Upper bound on the exponent b."""

SCALES = 0.05, 20.0
"""Bounds on the coordinate scales."""


def correlation(family: str, distances: Float, length: float) -> tuple[Float, Float]:
    """Return κ = e⁻ˢ, (1 + s)e⁻ˢ or (1 + s + s²/3)e⁻ˢ at distances r, s = √(2·smoothness) r/ℓ, and
    −κ′(r)/r.

    The second value times r² is the derivative of κ with respect to log ℓ. It is set to 0 where it
    would be infinite.
    """
    steepness = CORRELATIONS[family] / length**2
    s = distances * np.sqrt(steepness)
    falling = np.exp(-s)
    if family == "exponential":
        return falling, np.divide(falling, s / steepness, out=np.zeros_like(s), where=s > 0)
    matern32 = s * falling + falling
    if family == "matern32":
        return matern32, steepness * falling
    return matern32 + s * s * falling / 3.0, steepness / 3.0 * matern32


@dataclass(frozen=True)
class LocalKernel:
    """The covariance of errors.

    Attributes:
        family: a name in ``CORRELATIONS``
        variance: s², in the units of the squared errors
        length: ℓ, in the units of the metric
        noise: ω, in the units of the squared errors
        exponent: b
        freedom: ν
        inflation: factor on the predicted variance if left-out errors are known to be too small
        least: the smallest variance of a noisy error. ω alone does not bound it, because small
            errors of the neighbours reduce the noise variance, too.
    """

    family: str
    variance: float
    length: float
    noise: float
    exponent: float
    freedom: float
    inflation: float = 1.0
    least: float = 0.0


class Pairs(NamedTuple):
    """The p pairs formed by a row (point 0) and its k neighbours.

    Attributes:
        first: (p,), the first points
        second: (p,), the second points
        numbers: (k + 1, k + 1), the number of the pair formed by two points; 0 on the diagonal
    """

    first: Int
    second: Int
    numbers: Int


@cache
def pairs_of(k: int) -> Pairs:
    """Return the pairs formed by a row and its k neighbours."""
    first, second = np.triu_indices(k + 1, 1)
    numbers = np.zeros((k + 1, k + 1), dtype=np.int64)
    numbers[first, second] = numbers[second, first] = np.arange(len(first))
    return Pairs(first, second, numbers)


@dataclass(frozen=True)
class Offsets:
    """The k neighbours of n rows in coordinates relative to their row.

    Attributes:
        coordinates: (n, k, r), the coordinates of the ``unscaled`` offsets times ``scales``
        scales: (r,), or 1 without scales
        unscaled: the offsets before the multiplication; None without scales
    """

    coordinates: Float
    scales: Float | float = 1.0
    unscaled: "Offsets | None" = None

    @cached_property
    def squares(self) -> Float:
        """The squared coordinate differences (np, r) of the pairs (``pairs_of``)."""
        pairs = pairs_of(self.coordinates.shape[1])
        points = self._points()
        return np.square(points[:, pairs.second] - points[:, pairs.first]).reshape(
            -1, points.shape[2]
        )

    @cached_property
    def pairs(self) -> Float:
        """The distances (n, p) within the pairs, from sums of squares: inner products would lose
        digits for nearby rows."""
        if self.unscaled is not None:
            squares = self.unscaled.squares @ np.square(self.scales)
            return np.sqrt(squares).reshape(len(self.coordinates), -1)
        pairs = pairs_of(self.coordinates.shape[1])
        columns = np.ascontiguousarray(np.moveaxis(self._points(), 2, 0))
        steps = (column.take(pairs.second, 1) - column.take(pairs.first, 1) for column in columns)
        return np.asarray(np.sqrt(sum(map(np.square, steps))))

    @property
    def distances(self) -> Float:
        """The distances (n, k) of the neighbours from their row."""
        return self.pairs[:, : self.coordinates.shape[1]]

    def _points(self) -> Float:
        """Return the coordinates (n, k + 1, r) of the rows, which are all 0, and of their
        neighbours."""
        return np.pad(self.coordinates, ((0, 0), (1, 0), (0, 0)))


@dataclass(frozen=True)
class Neighbourhoods:
    """The k neighbours of each of n rows.

    Attributes:
        offsets: the neighbours' coordinates relative to the row
        errors: (n, k), errors of the neighbours
        log_factors: (n, k), logarithms of the neighbours' noise factors
        noises: (n, k), inverses of the neighbours' weights
        row_log_factors: (n,), logarithms of the rows' noise factors
        row_noises: (n,), inverses of the rows' weights
    """

    offsets: Offsets
    errors: Float
    log_factors: Float
    noises: Float
    row_log_factors: Float
    row_noises: Float

    def scaled(self, scales: Float) -> Self:
        """Return these neighbourhoods with each coordinate multiplied by its scale (r,)."""
        offsets = Offsets(self.offsets.coordinates * scales, scales, self.offsets)
        return replace(self, offsets=offsets)


Panels: TypeAlias = tuple[list[Neighbourhoods], list[Float]]
"""The rows' neighbourhoods and errors for one target."""


class Learned(NamedTuple):
    """The result of a search.

    Attributes:
        kernel: the best kernel
        scales: the coordinate scales (r,); empty if they are not learned
        density: the mean log density of the errors from which the kernel was learned
    """

    kernel: LocalKernel
    scales: Float
    density: float


def moments(
    kernel: LocalKernel, rows: Neighbourhoods, *, noisy: bool = True
) -> tuple[Float, Float]:
    """Return the mean and variance (n,) of the rows' errors, or of their noise-free values unless
    ``noisy``, given the neighbours' errors."""
    conditional = Conditional(kernel, rows)
    mean, variance = conditional.moments(kernel)
    variance = kernel.inflation * variance
    if noisy:
        return mean, np.maximum(variance, kernel.least * conditional.factor**2)
    return mean, variance * (1.0 - conditional.known) / conditional.unknown


def weights(kernel: LocalKernel, rows: Neighbourhoods) -> Float:
    """Return the weights (n, k) of the neighbours' errors in each row's mean error."""
    conditional = Conditional(kernel, rows)
    shrinkage = np.exp(-0.5 * kernel.exponent * rows.log_factors)
    return np.asarray(conditional.factor[:, None] * conditional.weights * shrinkage)


class Conditional:
    """The distributions of the rows' errors given their neighbours' errors, for a kernel's ℓ, ω/s²
    and b.

    The kernel's s² and ν are passed later. Moments and derivatives share C and the solutions
    computed with it.

    Attributes:
        noises: (n, k + 1), ω/(s²w) of the row and of its neighbours
        slope: (n, p), −κ′(r)/r of the pairs
        errors: (n, k), u, the neighbours' errors divided by n^(b/2)
        weighted: (n, k), C⁻¹u
        weights: (n, k), C⁻¹c
        factor: (n,), n^(b/2) of the row
        mean: (n,), cᵀC⁻¹u
        known: (n,), cᵀC⁻¹c
        unknown: (n,), 1 − cᵀC⁻¹c + ω/(s²w)
        square: (n,), uᵀC⁻¹u
    """

    def __init__(self, kernel: LocalKernel, rows: Neighbourhoods) -> None:
        self.rows = rows
        nugget = kernel.noise / kernel.variance
        neighbour_noises = np.maximum(nugget * rows.noises, LEAST_NUGGET)
        self.noises = np.column_stack([nugget * rows.row_noises, neighbour_noises])
        values, self.slope = correlation(kernel.family, rows.offsets.pairs, kernel.length)
        joint = values.take(pairs_of(rows.errors.shape[1]).numbers, axis=1)
        np.einsum("nkk->nk", joint)[...] = 1.0 + self.noises
        cross = joint[:, 1:, 0]
        self.errors = rows.errors * np.exp(-0.5 * kernel.exponent * rows.log_factors)
        solved = np.linalg.solve(joint[:, 1:, 1:], np.stack([self.errors, cross], axis=-1))
        self.weighted = solved[..., 0]
        self.weights = solved[..., 1]
        self.factor = np.exp(0.5 * kernel.exponent * rows.row_log_factors)
        self.mean = np.einsum("nk,nk->n", self.weights, self.errors)
        self.known = np.minimum(np.einsum("nk,nk->n", cross, self.weights), 1.0)
        self.unknown = np.maximum(1.0 - self.known + self.noises[:, 0], LEAST_NUGGET)
        self.square = np.einsum("nk,nk->n", self.errors, self.weighted)

    def level(self, kernel: LocalKernel) -> Float:
        """Return s² times (ν + Q)/(ν + k), (n,)."""
        total = kernel.freedom * kernel.variance + self.square
        return np.asarray(total / (kernel.freedom + self.errors.shape[1]))

    def moments(self, kernel: LocalKernel) -> tuple[Float, Float]:
        """Return the mean and variance (n,)."""
        return self.factor * self.mean, self.factor**2 * self.unknown * self.level(kernel)

    def log_density(
        self, errors: Float, kernel: LocalKernel, *, scales: bool = False
    ) -> tuple[Float, Float]:
        """Return the log densities (n,) of the ``errors`` (n,), and the derivatives (5,) of their
        sum with respect to log s², log ℓ, log ω, b and log ν; with ``scales``, also with respect to
        the logarithms of the coordinate scales, (5 + r,)."""
        derivatives = DensityDerivatives(self, kernel, errors)
        slopes = [
            derivatives.log_variance(),
            derivatives.log_length(),
            derivatives.log_noise,
            derivatives.exponent(),
            derivatives.log_freedom(),
        ]
        if scales:
            slopes += derivatives.log_scales().tolist()
        return derivatives.densities, np.array(slopes)


class DensityDerivatives:
    """The log densities of n errors, and the derivatives of their sum with respect to parameters.

    Attributes:
        densities: (n,), the log densities
        by_variance: (n,), derivatives of the densities with respect to the logarithm of the
            variance
        by_mean: (n,), derivatives with respect to cᵀC⁻¹u
        by_square: (n,), derivatives with respect to uᵀC⁻¹u
        by_factor: (n,), derivatives with respect to the logarithm of the row's factor n^b
        log_noise: the derivative of the densities' sum with respect to log ω
        by_pairs: (n, p), derivatives with respect to the correlations κ of the pairs, times
            −κ′(r)/r
    """

    def __init__(self, conditional: Conditional, kernel: LocalKernel, errors: Float) -> None:
        self.conditional = conditional
        self.kernel = kernel
        mean, variance = conditional.moments(kernel)
        residuals = errors - mean
        total = kernel.freedom + conditional.errors.shape[1]
        self.by_variance = 0.5 * (residuals**2 / variance - 1.0)
        self.densities = -0.5 * np.log(2 * np.pi * variance) - self.by_variance - 0.5
        self.by_mean = conditional.factor * residuals / variance
        self.by_square = self.by_variance / (conditional.level(kernel) * total)
        self.by_factor = 0.5 * mean * residuals / variance + self.by_variance
        self.log_noise, self.by_pairs = self._by_correlations()

    def _by_correlations(self) -> tuple[float, Float]:
        """Return ``log_noise`` and ``by_pairs``.

        A change J′ in the correlation matrix of a row and its neighbours changes the mean by
        −xᵀJ′y, the unknown part by xᵀJ′x and uᵀC⁻¹u by −yᵀJ′y, where x = (−1, C⁻¹c) and y = (0,
        C⁻¹u). The change in the log density is therefore xᵀJ′z + yᵀJ′v.
        """
        conditional = self.conditional
        x = np.insert(conditional.weights, 0, -1.0, axis=1)
        y = np.insert(conditional.weighted, 0, 0.0, axis=1)
        z = (self.by_variance / conditional.unknown)[:, None] * x - self.by_mean[:, None] * y
        v = -self.by_square[:, None] * y
        log_noise = float(np.sum(conditional.noises * (x * z + y * v)))
        n, size = x.shape
        products = (np.stack([x, y], axis=-1) @ np.stack([z, v], axis=1)).reshape(n, -1)
        pairs = pairs_of(size - 1)
        by_pairs = products.take(pairs.first * size + pairs.second, axis=1)
        by_pairs += products.take(pairs.second * size + pairs.first, axis=1)
        by_pairs *= conditional.slope
        return log_noise, by_pairs

    def log_variance(self) -> float:
        """The derivative ∂/∂ log s² = νs² Σ ∂/∂uᵀC⁻¹u − ∂/∂ log ω, since ω/s² falls as s² rises."""
        kernel = self.kernel
        return float(np.sum(self.by_square) * kernel.freedom * kernel.variance - self.log_noise)

    def log_length(self) -> float:
        """The derivative ∂/∂ log ℓ = Σ r² (−κ′(r)/r) ∂/∂κ over all pairs."""
        return float(np.sum(self.by_pairs * self.conditional.rows.offsets.pairs**2))

    def exponent(self) -> float:
        """The derivative ∂/∂b = Σ log n ∂/∂ log n^b − ½ Σ log n_i u_i ∂/∂u_i, for rows and their
        neighbours i."""
        conditional = self.conditional
        rows = conditional.rows
        by_errors = self.by_mean[:, None] * conditional.weights
        by_errors += 2.0 * self.by_square[:, None] * conditional.weighted
        of_neighbours = np.sum(by_errors * rows.log_factors * conditional.errors)
        return float(np.sum(self.by_factor * rows.row_log_factors) - 0.5 * of_neighbours)

    def log_freedom(self) -> float:
        """The derivative ∂/∂ log ν = ν Σ (s² − s²(ν + Q)/(ν + k)) ∂/∂uᵀC⁻¹u."""
        excess = self.kernel.variance - self.conditional.level(self.kernel)
        return float(self.kernel.freedom * np.sum(self.by_square * excess))

    def log_scales(self) -> Float:
        """The derivatives ∂/∂ log scale_j = scale_j² Σ d_j² κ′(r)/r ∂/∂κ, (r,), for the unscaled
        differences d of all pairs."""
        offsets = self.conditional.rows.offsets
        squares = (offsets.unscaled or offsets).squares
        return np.square(offsets.scales) * (-self.by_pairs.ravel() @ squares)


@dataclass(frozen=True)
class Units:
    """Positive units of a kernel's parameters.

    Attributes:
        variance: the unit of s²: the mean squared error
        length: the unit of ℓ: the median distance of the last neighbour
        noise: the unit of ω: the mean squared error over the mean of 1/w
    """

    variance: float
    length: float
    noise: float

    @classmethod
    def of(cls, panels: Panels) -> Self:
        """Return the units for one target's rows."""
        neighbourhoods, errors = panels
        square = max(float(np.mean(np.concatenate(errors) ** 2)), LEAST_SQUARE)
        distances = np.concatenate([rows.offsets.distances[:, -1] for rows in neighbourhoods])
        noises = np.concatenate([rows.row_noises for rows in neighbourhoods])
        length = max(float(np.median(distances)), 1e-100)
        return cls(square, length, square / float(np.mean(noises)))


def starts_of(panels: Panels) -> list[LocalKernel]:
    """Return Matérn kernels as possible starts of a search, from as much noise as signal to hardly
    any noise.

    The density has maxima at a length near the usual distance, where a search begins, and at large
    lengths (polynomials).
    """
    units = Units.of(panels)
    length = START_LENGTH * units.length
    return [
        LocalKernel("matern32", units.variance, length, share * units.noise, 1.0, 3.0)
        for share in START_NOISES
    ]


@dataclass(frozen=True, eq=False)
class LevelDensity:
    """The density of errors as a function of a = νs², with the best ν for each a.

    With c = ν + k and V = a + uᵀC⁻¹u, the density depends on c·d/V and log(V/c), where d is the
    squared residual divided by the unknown part; the best c is 1 ÷ mean d/V.

    Attributes:
        residuals: (n,), d of each row
        squares: (n,), uᵀC⁻¹u of each row
        k: the number of neighbours
        low: the smallest s²
        high: the largest s²
    """

    residuals: Float
    squares: Float
    k: int
    low: float
    high: float

    @cached_property
    def bounds(self) -> tuple[float, float]:
        """The bounds on log a."""
        return float(np.log(FREEDOMS[0] * self.low)), float(np.log(FREEDOMS[1] * self.high))

    def freedom(self, a: float) -> float:
        """Return the best ν within the bounds on ν and s²."""
        inverse = max(float(np.mean(self.residuals / (a + self.squares))), 1e-300)
        smallest = max(FREEDOMS[0], a / self.high)
        largest = min(FREEDOMS[1], a / self.low)
        return float(np.clip(1.0 / inverse - self.k, smallest, largest))

    def loss(self, log_a: float) -> float:
        """Return −2 times the mean log density, up to a constant, at the nearest a within
        bounds."""
        lowest, highest = self.bounds
        a = np.exp(min(max(log_a, lowest), highest))
        c = self.freedom(a) + self.k
        totals = a + self.squares
        return float(np.mean(np.log(totals) + c * self.residuals / totals) - np.log(c))

    def best(self, start: float) -> float:
        """Return the a that maximises the density; of several maxima, the one next to ``start``."""
        from scipy.optimize import minimize_scalar

        lowest, highest = self.bounds
        centre = min(max(float(np.log(start)), lowest), highest)
        loss = self.loss(centre)
        for step in (1.0, -1.0):
            next_loss = self.loss(centre + step)
            while next_loss < loss:
                centre += step
                loss = next_loss
                next_loss = self.loss(centre + step)
        bounds = max(centre - 1.0, lowest), min(centre + 1.0, highest)
        minimum = minimize_scalar(
            self.loss, bounds=bounds, method="bounded", options={"xatol": 1e-3}
        )
        return float(np.exp(minimum.x))


def best_levels(
    conditionals: Sequence[Conditional],
    errors: Float,
    start: float,
    bounds: tuple[float, float],
) -> tuple[float, float]:
    """Return the values of s² (within its bounds) and ν that maximise the density of the rows'
    errors.

    Args:
        conditionals: the distributions of the n errors, in panels
        errors: (n,)
        start: νs², next to which a maximum is sought
        bounds: the smallest and the largest s²
    """
    factors = np.concatenate([panel.factor for panel in conditionals])
    means = np.concatenate([panel.mean for panel in conditionals])
    unknown = np.concatenate([panel.unknown for panel in conditionals])
    squares = np.concatenate([panel.square for panel in conditionals])
    residuals = (errors / factors - means) ** 2 / unknown
    density = LevelDensity(residuals, squares, conditionals[0].errors.shape[1], *bounds)
    a = density.best(start)
    freedom = density.freedom(a)
    return a / freedom, freedom


@dataclass(frozen=True, eq=False)
class LocalTrial:
    """A point of a search.

    Attributes:
        point: (3 + r,), as in ``LocalSearch``
        kernel: the kernel at this point
        loss: minus the mean log density of the rows' errors
        slopes: (3 + r,), the derivatives of the loss
    """

    point: Float
    kernel: LocalKernel
    loss: float
    slopes: Float


class LocalSearch:
    """A search for the kernel with the largest mean log density of the rows' errors.

    A point consists of log ω/s², log ℓ, b and, if they are learned, the logarithms of the
    coordinate scales. ω/s² is in units that fall with ℓ: for smooth functions, s² ∝
    ℓ^(2·smoothness) is a ridge of the density, and one coordinate runs along it. s² and ν are
    optimal at each point.

    Attributes:
        neighbourhoods: the rows' neighbourhoods, in panels
        errors: the rows' errors, in panels
        targets: (n,), all errors
        poll: called before each evaluation
        units: the units of the parameters
        power: 2·smoothness, the power of ℓ to which s² is proportional on the ridge
        rank: r, the number of coordinate scales that are learned
        ratio: s²/ℓ^power at which the search for s² starts, in units
        ratios: bounds on s²/ℓ^power, in units
        lengths: bounds on ℓ, in its unit
        least_noise: the smallest ω, in its unit
        start: supplies the parameters that the search does not change
        trials: the points evaluated so far
    """

    def __init__(
        self,
        panels: Panels,
        start: LocalKernel,
        poll: Poll,
        *,
        scales: bool,
        form: bool,
    ) -> None:
        """Prepare a search.

        Args:
            panels: neighbourhoods and errors of the rows
            start: supplies the family and, without ``form``, the fixed s² and ℓ
            poll: called before each evaluation; may raise to stop the search
            scales: True to learn coordinate scales
            form: False to learn only the noise
        """
        self.neighbourhoods, self.errors = panels
        self.targets = np.concatenate(self.errors)
        self.poll = poll
        self.units = Units.of(panels)
        self.power = CORRELATIONS[start.family]
        self.rank = self.neighbourhoods[0].offsets.coordinates.shape[2] if scales else 0
        length = float(np.clip(start.length / self.units.length, *LENGTHS))
        ratio = start.variance / self.units.variance / length**self.power
        self.ratio = float(np.clip(ratio, *RATIOS))
        self.ratios = RATIOS if form else (self.ratio, self.ratio)
        self.lengths = LENGTHS if form else (length, length)
        self.least_noise = max(NUGGETS[0], min(RARE / len(self.targets), 0.1))
        least = 2.0 * self.least_noise * self.units.variance
        self.start = replace(start, inflation=1.0, least=least)
        self.trials = list[LocalTrial]()

    @property
    def bounds(self) -> list[tuple[float, ...]]:
        """The bounds on each coordinate of a point."""
        low, high = self.ratios
        shares = self.least_noise / high, NUGGETS[1] / low
        shape = np.log([shares, self.lengths])
        return [*map(tuple, shape), (0.0, STEEPEST), *[tuple(np.log(SCALES))] * self.rank]

    def point_of(self, kernel: LocalKernel) -> Float:
        """Return the point (3 + r,) of a kernel, clipped to the bounds."""
        length = kernel.length / self.units.length
        variance = kernel.variance / self.units.variance / length**self.power
        share = kernel.noise / self.units.noise / variance
        x = *np.log([share, length]), kernel.exponent, *np.zeros(self.rank)
        return np.asarray(np.clip(x, *np.transpose(self.bounds)))

    def value_and_slopes(self, point: Float) -> tuple[float, Float]:
        """Return the loss and its derivatives at a point."""
        trial = self.trial_at(point)
        return trial.loss, trial.slopes

    def trial_at(self, point: Float) -> LocalTrial:
        """Return the trial at a point (3 + r,), which is evaluated if it is new."""
        for trial in self.trials:
            if np.array_equal(trial.point, point):
                return trial
        self.poll()
        self.trials.append(self._evaluated(point.copy()))
        return self.trials[-1]

    def _evaluated(self, point: Float) -> LocalTrial:
        share, length = np.exp(point[:2]).tolist()
        unit = self.units.variance * length**self.power
        relative = replace(
            self.start,
            variance=1.0,
            length=self.units.length * length,
            noise=self.units.noise / unit * share,
            exponent=float(point[2]),
        )
        neighbourhoods = self._scaled(np.exp(point[3:]))
        conditionals = in_threads(partial(Conditional, relative), neighbourhoods)
        low, high = self.ratios
        lowest = max(low, self.least_noise / share)
        highest = min(high, NUGGETS[1] / share)
        variance, freedom = best_levels(
            conditionals,
            self.targets,
            start=unit * self.ratio * max(self.start.freedom, 10.0),
            bounds=(unit * lowest, unit * highest),
        )
        kernel = replace(
            relative,
            variance=variance,
            freedom=freedom,
            noise=relative.noise * variance,
        )
        density, slopes = self._mean_log_density(conditionals, kernel)
        return LocalTrial(point, kernel, -density, -self._by_point(slopes, variance / unit))

    def _scaled(self, scales: Float) -> list[Neighbourhoods]:
        """Return the neighbourhoods with the coordinate scales applied, or unchanged without
        scales."""
        if not self.rank:
            return self.neighbourhoods
        return [rows.scaled(scales) for rows in self.neighbourhoods]

    def _by_point(self, slopes: Float, ratio: float) -> Float:
        """Convert derivatives with respect to the parameters (5 + r,) to derivatives with respect
        to a point (3 + r,), where s² is ``ratio`` times its unit.

        Where s² is at its bounds, ω varies with ω/s²; where ω is at its bounds or s² is optimal, s²
        varies.
        """
        low, high = self.ratios
        by_variance, by_length, by_noise, by_exponent = slopes[:4]
        by_share = -by_variance if low * 1.001 < ratio < high / 1.001 else by_noise
        by_ridge = by_length + self.power * by_variance
        return np.concatenate([[by_share, by_ridge, by_exponent], slopes[5:]])

    def _mean_log_density(
        self, conditionals: list[Conditional], kernel: LocalKernel
    ) -> tuple[float, Float]:
        """Return the mean log density of the rows' errors, and its derivatives
        (``log_density``)."""
        log_density = partial(Conditional.log_density, kernel=kernel, scales=self.rank > 0)
        panels = in_threads(log_density, conditionals, self.errors)
        densities, slopes = zip(*panels, strict=True)
        n = len(self.targets)
        return float(np.sum(np.concatenate(densities))) / n, np.sum(slopes, axis=0) / n


def learned(
    panels: Panels,
    starts: Sequence[LocalKernel],
    poll: Poll = lambda: None,
    *,
    scales: bool = False,
    form: bool = True,
) -> Learned:
    """Return the kernel with the largest mean log density of the rows' errors, the scales, and this
    density.

    L-BFGS-B starts at the best of ``starts``, keeps its family, and optimises ω/s², ℓ and b
    (``LocalSearch``).

    Args:
        panels: neighbourhoods and errors of the rows
        starts: kernels of one family
        poll: called before each evaluation; may raise to stop the search
        scales: True to learn coordinate scales
        form: False to keep the first start's s² and ℓ and learn only the noise
    """
    from scipy.optimize import minimize

    search = LocalSearch(panels, starts[0], poll, scales=scales, form=form)
    trials = [search.trial_at(search.point_of(start)) for start in starts]
    best = min(trials, key=lambda trial: trial.loss)
    tolerance = (0.1 if scales else 1.0) * ENOUGH / len(search.targets)
    end = minimize(
        search.value_and_slopes,
        best.point,
        jac=True,
        method="L-BFGS-B",
        bounds=search.bounds,
        options={"maxiter": ITERATIONS, "ftol": tolerance},
    )
    return Learned(search.trial_at(end.x).kernel, np.exp(end.x[3:]), -float(end.fun))
