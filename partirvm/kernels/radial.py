"""Kernels of the squared distance r² = Σ_j gamma_j (x_j − z_j)²: Gaussian and Matérn, also along
directions.

With u = √gamma ∘ (x − origin) and v = √gamma ∘ (z − origin), −r² = 2u·v − ‖v‖² − ‖u‖² is one matrix
product of coordinates extended by 1 and ‖u‖². ``origin`` is near the centres, so that inputs far
from zero lose no digits.

Matérn kernels of smoothness ν (Rasmussen & Williams 2006, eq. 4.17) are functions of s = √(2ν) r;
scikit-learn's length scale is 1/√gamma. Their derivatives with respect to r² are finite at r = 0.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from scipy.linalg import blas, lapack

from partirvm.errors import UsageError
from partirvm.kernels.base import (
    GROUP,
    NEGLIGIBLE,
    Family,
    Kernel,
    PreparedKernel,
    Products,
    as_numbers,
    origin_of,
    part_of,
    runs,
)
from partirvm.types import Bool, Float


class PreparedRadial(PreparedKernel):
    """A radial kernel prepared for m centres. ``centres`` (m, d) holds their v, ``root`` (d,) is
    √gamma."""

    def __init__(self, kernel: "RadialKernel", centres: Float, origin: Float | None) -> None:
        m, d = centres.shape
        self.kernel = kernel
        self.root = np.sqrt(kernel.widths(d))
        self.origin = origin_of(centres, origin)
        self.centres = (centres - self.origin) * self.root
        squares = np.einsum("md,md->m", self.centres, self.centres)
        rows = np.column_stack([2 * self.centres, -squares, np.full(m, -1.0)])
        # larger products are faster, especially on several threads, but with an origin, bits must
        # not depend on m
        self.products = Products.of(rows, GROUP * (min(m // GROUP + 1, 4) if origin is None else 4))

    def __call__(self, points: Float, out: Float) -> None:
        """Write k(points, centres) into ``out`` (n, m): first −r² (≤ 0 up to rounding), then the
        function of it."""
        self.products.fill(self._widened(points), out, self.kernel.value)

    def _widened(self, points: Float) -> Float:
        """Return the points (n, d) extended by 1 and ‖u‖², (n, d + 2)."""
        U = (points - self.origin) * self.root
        return np.column_stack([U, np.ones(len(U)), np.einsum("nd,nd->n", U, U)])

    def slopes(self, points: Float, values: Float, weights: Float) -> Iterator[tuple[slice, Float]]:
        """Yield S = weights ∘ ∂k/∂r², (g, n), for each group of centres."""
        # a derived class may have another slope: an inherited one is not used
        needs_distances = vars(type(self.kernel)).get("slope_needs_distances", True)
        widened = self._widened(points) if needs_distances else points
        for group in runs(len(self.centres), self.products.size):
            if needs_distances:
                block = self.products.block(widened, group)
            else:
                block = np.empty(values.T[group].shape)
            self.kernel.slope(block, values.T[group])
            block *= weights.T[group]
            yield group, block

    def gradient(self, points: Float, values: Float, weights: Float) -> Float:
        """Return the weighted sum of ∂k/∂ log gamma_j = (∂k/∂r²) (u_j − v_j)², by products with [u,
        u∘u, 1]."""
        U = (points - self.origin) * self.root
        d = points.shape[1]
        left = np.column_stack([U, U * U, np.ones(len(U))])
        sums = np.empty((len(self.centres), 2 * d + 1))
        V = self.centres
        total = np.zeros(d)
        for group, block in self.slopes(points, values, weights):
            np.matmul(block, left, out=sums[group])
        of_centres = sums[:, d : 2 * d] - V * (2 * sums[:, :d] - V * sums[:, 2 * d :])
        for group in runs(len(V), self.products.size):
            total += of_centres[group].sum(axis=0)
        return self.kernel.shared(total)

    def input_gradient(self, points: Float, values: Float, weights: Float) -> Float:
        """Return Σ_m weights[n, m] ∂k/∂x_n = 2 √gamma ∘ (u_n Σ_m S_nm − Σ_m S_nm v_m), (n, d)."""
        d = points.shape[1]
        right = np.column_stack([self.centres, np.ones(len(self.centres))])
        sums = np.zeros((len(points), d + 1))
        for group, block in self.slopes(points, values, weights):
            sums += block.T @ right[group]
        U = (points - self.origin) * self.root
        return 2 * self.root * (U * sums[:, d:] - sums[:, :d])


class RadialTriangle:
    """Values of a radial kernel between n points (n, d): ``values`` holds the columns of the lower
    triangle one after the other.

    This takes half the exponentials of a full matrix, and slopes take none. Bits depend on n and on
    the other points.
    """

    def __init__(self, kernel: "RadialKernel", points: Float) -> None:
        self.kernel = kernel
        root = np.sqrt(kernel.widths(points.shape[1]))
        self.U: Float = (points - points.mean(axis=0)) * root
        squares = np.einsum("nd,nd->n", self.U, self.U)
        ones = np.ones(len(points))
        left = np.column_stack([2 * self.U, -squares, -ones])
        product = left @ np.column_stack([self.U, ones, squares]).T
        self.negative: Float = lapack.dtrttp(product.T, uplo="L")[0]
        self.values = self.negative.copy()
        kernel.value(self.values)

    def gradient(self, weights: Float) -> Float:
        """Return Σ weights ∂k/∂ log gamma_j for weights in the layout of ``values``; it may be
        called only once."""
        self.kernel.slope(self.negative, self.values)
        self.negative *= weights
        U = self.U
        n, d = U.shape
        slopes = lapack.dtpttr(n, self.negative, uplo="L")[0]
        sums = blas.dsymm(1.0, slopes, np.column_stack([U, np.ones(n)]), lower=1)
        return self.kernel.shared((U**2).T @ sums[:, d] - np.einsum("nd,nd->d", U, sums[:, :d]))


@dataclass(frozen=True, repr=False)
class RadialKernel(Family, form=PreparedRadial):
    """Base class of kernels that are functions of r²; a new kernel defines ``value``, ``slope`` and
    ``operations``."""

    typical_gamma: ClassVar[float] = 1.0
    """Typical learned gamma, relative to the Gaussian kernel's gamma."""
    slope_needs_distances: ClassVar[bool] = True
    """False if ``slope`` reads only the values k."""

    def axes_of_distance(self, n_features: int) -> Float | None:
        return np.diag(np.sqrt(self.widths(n_features)))


@dataclass(frozen=True, repr=False)
class Gaussian(RadialKernel, name="gaussian"):
    """Gaussian kernel ``k(x, z) = exp(−Σ_j gamma_j (x_j − z_j)²)``.

    Parameters
    ----------
    gamma : default="learn"
        Inverse squared width of the kernel: "learn", "learn-shared", "learn-per-feature", "scale",
        a number, or one number per feature (see Kernels in the guide).
    multiples : default=(1.0,)
        Multiples of gamma, for example 1,8,64, that give several kernel widths at once, for targets
        with structure at several scales: each candidate row offers one basis function per multiple.
        If gamma is learned, learning starts from these multiples.
    metric : {"auto", "widths", "directions"}, default="auto"
        How a learned "gaussian", "matern52" or "matern32" kernel measures distances: "widths" (one
        width per feature), "directions" (learned combinations of up to 45 features, each with a
        width), or "auto" (if gamma is "learn", "directions" if they predict better, judged on
        left-out rows for up to 2,000 rows and by the evidence for more; otherwise "widths").

    Examples
    --------
    >>> from partirvm import Gaussian, RVMRegressor
    >>> RVMRegressor(kernel=Gaussian(gamma=2.0, multiples=(1, 4))).get_params()["kernel__multiples"]
    (1, 4)
    """

    slope_needs_distances: ClassVar[bool] = False

    def value(self, work: Float) -> None:
        """Replace −r² by k = exp(−r²)."""
        np.minimum(work, 0.0, out=work)
        np.exp(work, out=work)

    def operations(self, x: Any, Z: Float) -> Any:
        return np.exp(-self.squares(x, Z))

    def slope(self, work: Float, values: Float) -> None:
        """Replace any contents by ∂k/∂r² = −k."""
        np.negative(values, out=work)


@dataclass(frozen=True, repr=False)
class Matern32(RadialKernel, name="matern32"):
    """Matérn kernel ``(1 + s) e⁻ˢ`` with s = √3 r, for once-differentiable functions.

    Parameters
    ----------
    gamma, multiples, metric : optional
        As for ``Gaussian``.

    Examples
    --------
    >>> from partirvm import Matern32
    >>> Matern32(gamma=0.5), Matern32(gamma="scale", metric="widths")
    (Matern32(gamma=(0.5,)), Matern32(gamma='scale', metric='widths'))
    """

    typical_gamma: ClassVar[float] = 0.5

    def value(self, work: Float) -> None:
        """Replace −r² by k = (1 + s) e⁻ˢ."""
        s = _scaled(work, 3.0)
        np.multiply(1.0 + s, np.exp(-s), out=work)

    def operations(self, x: Any, Z: Float) -> Any:
        s = np.sqrt(self.squares(x, Z) * 3.0)
        return (1.0 + s) * np.exp(-s)

    def slope(self, work: Float, values: Float) -> None:
        """Replace −r² by ∂k/∂r² = −(3/2) e⁻ˢ, from k without another exponential."""
        np.divide(-1.5 * values, 1.0 + _scaled(work, 3.0), out=work)


@dataclass(frozen=True, repr=False)
class Matern52(RadialKernel, name="matern52"):
    """Matérn kernel ``(1 + s + s²/3) e⁻ˢ`` with s = √5 r, for twice-differentiable functions.

    Parameters
    ----------
    gamma, multiples, metric : optional
        As for ``Gaussian``.

    Examples
    --------
    >>> from partirvm import Matern52, RVMRegressor
    >>> RVMRegressor(kernel=Matern52(gamma="scale")).get_params()["kernel__gamma"]
    'scale'
    """

    typical_gamma: ClassVar[float] = 0.75

    def value(self, work: Float) -> None:
        """Replace −r² by k = (1 + s + s²/3) e⁻ˢ."""
        s = _scaled(work, 5.0)
        np.multiply(1.0 + s * (1.0 + s / 3.0), np.exp(-s), out=work)

    def operations(self, x: Any, Z: Float) -> Any:
        s = np.sqrt(self.squares(x, Z) * 5.0)
        return (1.0 + s * (1.0 + s / 3.0)) * np.exp(-s)

    def slope(self, work: Float, values: Float) -> None:
        """Replace −r² by ∂k/∂r² = −(5/6)(1 + s) e⁻ˢ, from k without another exponential."""
        s = _scaled(work, 5.0)
        np.divide(-5.0 / 6.0 * values * (1.0 + s), 1.0 + s * (1.0 + s / 3.0), out=work)


def _scaled(work: Float, factor: float) -> Float:
    """Replace −r² by s = √(factor·r²), and return it."""
    np.minimum(work, 0.0, out=work)
    work *= -factor
    return np.sqrt(work, out=work)


class PreparedDirections(PreparedKernel):
    """A kernel prepared for its centres, whose ``inner`` kernel uses the coordinates along the
    directions."""

    def __init__(self, kernel: "Directions", centres: Float, origin: Float | None) -> None:
        if centres.shape[1] != len(kernel.axes[0]):
            raise UsageError(
                f"the directions of the kernel have {len(kernel.axes[0])} features but the data "
                f"have {centres.shape[1]}"
            )
        self.kernel = kernel
        self.matrix = kernel.matrix
        self.origin = origin_of(centres, origin)
        self.centres = centres - self.origin
        self.projection = Products.of(self.matrix)
        inner_origin = None if origin is None else np.zeros(len(self.matrix))
        self.inner = PreparedRadial(kernel.kernel, self._projected(centres), inner_origin)

    def __call__(self, points: Float, out: Float) -> None:
        self.inner(self._projected(points), out)

    def gradient(self, points: Float, values: Float, weights: Float) -> Float:
        """Return the weighted sum of ∂k/∂ log gamma_i and of ∂k/∂a_ij = (∂k/∂r²) 2 gamma_i a_i·(x −
        z) (x_j − z_j)."""
        if not self.kernel.free:
            return self.inner.gradient(self._projected(points), values, weights)
        slopes = self.inner.slopes(self._projected(points), values, weights)
        moments = self._moments(points - self.origin, slopes)
        radial = self.kernel.kernel
        half = radial.widths(len(self.matrix))[:, None] * (self.matrix @ moments)
        by_gamma = radial.shared(np.einsum("ij,ij->i", half, self.matrix))
        return np.concatenate([by_gamma, 2 * half.ravel()])

    def _moments(self, X: Float, slopes: Iterator[tuple[slice, Float]]) -> Float:
        """Return Σ_nm S_nm (x_n − z_m)(x_n − z_m)ᵀ, shape (d, d), for points X measured from the
        origin."""
        n, d = X.shape
        left = np.column_stack([X, np.ones(n)])
        rows = np.zeros(n)
        total = np.zeros((d, d))
        for group, block in slopes:
            rows += block.sum(axis=0)
            sums = block @ left
            centres = self.centres[group]
            cross = centres.T @ sums[:, :d]
            total += (centres * sums[:, d:]).T @ centres - cross - cross.T
        return total + (X * rows[:, None]).T @ X

    def input_gradient(self, points: Float, values: Float, weights: Float) -> Float:
        return self.inner.input_gradient(self._projected(points), values, weights) @ self.matrix

    def _projected(self, points: Float) -> Float:
        out = np.empty((len(points), len(self.matrix)))
        self.projection.fill(points - self.origin, out, lambda work: None)
        return out


@dataclass(frozen=True)
class Directions(Kernel, name="directions", inside="kernel", form=PreparedDirections):
    """Radial kernel of linear combinations of the inputs: k(x, z) = κ(Σ_i gamma_i (a_i·(x − z))²).

    ``axes`` has one direction a_i per row; the ``kernel``'s gamma is one number or one per
    direction. Kernel learning adjusts gamma and, if ``free``, also the axes. Points are projected
    once for each block.
    """

    kernel: RadialKernel
    axes: tuple[tuple[float, ...], ...]
    free: bool = False

    def __post_init__(self) -> None:
        kernel = part_of(self.kernel)
        axes = as_numbers(self.axes)
        if axes.ndim != 2 or not axes.size or not np.isfinite(axes).all():
            raise UsageError(
                "axes of the directions kernel must be a matrix of finite numbers, one row per "
                "direction"
            )
        if not isinstance(kernel, RadialKernel):
            raise UsageError(
                f"the kernel of directions is {kernel!r}: it must be a radial kernel, such as "
                "gaussian or matern32"
            )
        kernel.widths(len(axes))  # checks their number
        object.__setattr__(self, "kernel", kernel)
        object.__setattr__(self, "axes", tuple(map(tuple, axes.tolist())))

    @property
    def matrix(self) -> Float:
        """The directions as rows (r, d)."""
        return np.array(self.axes)

    def learnable(self) -> dict[str, float]:
        """Return the logarithms of gamma, then the entries of ``axes`` themselves if these are
        free."""
        parameters = self.kernel.learnable()
        if self.free:
            for (i, j), entry in np.ndenumerate(self.matrix):
                parameters[f"axes[{i}, {j}]"] = float(entry)
        return parameters

    def with_logs(self, logs: Float) -> Self:
        if not self.free:
            return super().with_logs(logs)
        count = len(self.kernel.gamma)
        axes: Any = logs[count:].reshape(self.matrix.shape).tolist()
        return replace(self, kernel=self.kernel.with_logs(logs[:count]), axes=axes)

    def operations(self, x: Any, Z: Float) -> Any:
        middle = Z.mean(axis=0)
        turned = self.matrix.T
        return self.kernel.exported((x - middle) @ turned, (Z - middle) @ turned)

    def relevances(self, n_features: int) -> Float | None:
        """Return the diagonal of the metric, Σ_i gamma_i a_ij² of each feature j."""
        return self.kernel.widths(len(self.axes)) @ self.matrix**2

    def axes_of_distance(self, n_features: int) -> Float | None:
        return np.asarray(np.sqrt(self.kernel.widths(len(self.axes)))[:, None] * self.matrix)

    def effective(self, n_features: int) -> Bool:
        widths = np.where(self.kernel.widths(len(self.axes)) > NEGLIGIBLE, 1.0, 0.0)
        return widths @ self.matrix**2 > 0.0

    def per_feature(self, n_features: int) -> Self:
        return replace(self, kernel=self.kernel.per_feature(len(self.axes)))
