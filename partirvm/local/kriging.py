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

from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import NamedTuple, Self, TypeAlias

import numpy as np

from partirvm.types import Float, Int

LEAST_NUGGET = 1e-10
"""Minimum of ω/(s²w), because equal rows have a singular correlation matrix."""

LEAST_SQUARE = 1e-16
"""Minimum of the mean squared scaled error."""


CORRELATIONS = {"exponential": 1.0, "matern32": 3.0, "matern52": 5.0}
"""The Matérn correlations of local residuals, by name, and twice their smoothness."""


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
