"""A radial kernel of linear combinations of the inputs: k(x, z) = κ(Σ_i gamma_i (a_i·(x − z))²).

The rows a_i of ``axes`` are directions in the space of the inputs, so the metric of the kernel is LᵀL with
L = diag(√gamma) A. A width per feature is the case A = I. With ``features`` the inputs stand beside the directions, and
the metric is a diagonal matrix plus a matrix of low rank, which suits many features.

The points are projected once for each block, so that the cost for each pair of points is that of a width per feature.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from partirvm.errors import UsageError
from partirvm.kernels.base import Described, Products
from partirvm.kernels.distances import SquaredDistances
from partirvm.kernels.parts import part_of
from partirvm.kernels.radial import PreparedRadial, RadialKernel
from partirvm.kernels.widths import values_of

Float = NDArray[np.float64]


@dataclass(frozen=True)
class Directions(Described):
    """Radial kernel of linear combinations of the inputs.

    Parameters
    ----------
    kernel : Gaussian, Matern32 or Matern52
        Its gamma, one number or one per direction, are in 1/unit² of the directions; with ``features`` the gamma of
        the features follow those of the directions.
    axes : tuple of tuple of float
        One direction per row, with one finite number per feature.
    features : bool
        True if the features stand beside the directions.
    free : bool
        True if kernel learning also moves the entries of ``axes``; otherwise it moves gamma alone.

    Raises ``UsageError`` for another kernel or for axes that are not a matrix of finite numbers.

    Examples
    --------
    >>> from partirvm.kernels import Gaussian
    >>> out = np.empty((2, 1))
    >>> kernel = Directions(Gaussian(1.0), [[1.0, -1.0]])
    >>> kernel.prepare(np.zeros((1, 2)))(np.array([[3.0, 3.0], [1.0, 0.0]]), out)
    >>> out[:, 0].round(3).tolist()
    [1.0, 0.368]
    """

    kernel: RadialKernel
    axes: tuple[tuple[float, ...], ...]
    features: bool = False
    free: bool = False
    name = "directions"

    def __post_init__(self) -> None:
        kernel = part_of(self.kernel)
        if not isinstance(kernel, RadialKernel):
            raise UsageError(
                f"the directions kernel has the kernel {kernel.name!r}: it must be gaussian, matern32 or matern52"
            )
        object.__setattr__(self, "kernel", kernel)
        object.__setattr__(self, "axes", _checked(self.axes))
        count = len(self.axes) + self.n_features * self.features
        for field in ("features", "free"):
            if not isinstance(value := getattr(self, field), bool):
                raise UsageError(f"{field} of the directions kernel is {value!r}: it must be True or False")
        if len(kernel.gamma) not in (1, count):
            raise UsageError(
                f"gamma of the directions kernel has {len(kernel.gamma)} values: it must have one, or {count}, one per "
                "direction" + " and feature" * self.features
            )

    def __repr__(self) -> str:
        """Name the kernel and the shape of its directions; ``spec`` has all numbers."""
        beside = ", features=True" if self.features else ""
        return f"Directions({self.kernel.name} along {len(self.axes)} directions of {self.n_features} features{beside})"

    @property
    def local(self) -> bool:
        """True: the kernel decreases with the distance, along its directions."""
        return self.kernel.local

    @property
    def n_features(self) -> int:
        """Number of features d."""
        return len(self.axes[0])

    @property
    def matrix(self) -> Float:
        """The directions as rows (r, d), with ``features`` followed by the identity matrix."""
        axes = np.array(self.axes)
        return np.vstack([axes, np.eye(self.n_features)]) if self.features else axes

    def prepare(self, centres: Float, origin: Float | None = None) -> PreparedDirections:
        """Prepare the kernel for centres (m, d). Coordinates are relative to ``origin``, default the centres' mean."""
        m, d = centres.shape
        if d != self.n_features:
            raise UsageError(f"the directions of the kernel have {self.n_features} features but the data have {d}")
        if origin is None:
            origin = centres.mean(axis=0) if m else np.zeros(d)
        projection = Products.of(self.matrix)
        moved = centres - origin
        zero = np.zeros(len(self.matrix))
        inner = self.kernel.prepare(_projected(projection, moved, len(zero)), zero)
        return PreparedDirections(self, origin, projection, moved, inner)

    def diagonal(self, points: Float) -> Float:
        """Return k(x, x) = 1 for each point (n, d), shape (n,)."""
        return np.ones(len(points))

    @property
    def parameters(self) -> tuple[str, ...]:
        """The gamma of the kernel, then ``axes[i, j]`` if these are free."""
        entries = (f"axes[{i}, {j}]" for i in range(len(self.axes) * self.free) for j in range(self.n_features))
        return (*self.kernel.parameters, *entries)

    @property
    def logs(self) -> Float:
        """The logarithms of gamma, then the entries of ``axes`` themselves if these are free."""
        return np.concatenate([self.kernel.logs, np.ravel(self.axes)[: len(self.axes) * self.n_features * self.free]])

    def with_logs(self, logs: Float) -> Self:
        """Return the kernel with the given log gamma, and the given entries of ``axes`` if these are free."""
        count, r, d = len(self.kernel.gamma), len(self.axes), self.n_features
        if len(logs) != count + r * d * self.free:
            raise UsageError(f"{len(logs)} logarithms for {count + r * d * self.free} parameters of a kernel")
        axes = tuple(map(tuple, logs[count:].reshape(r, d).tolist())) if self.free else self.axes
        return replace(self, kernel=replace(self.kernel, gamma=values_of(logs[:count], count)), axes=axes)

    def relevances(self, n_features: int) -> Float | None:
        """Return the diagonal of the metric, Σ_i gamma_i a_ij² of each feature j."""
        matrix = self.matrix
        found: Float = self.kernel.widths(len(matrix)) @ (matrix * matrix)
        return found

    def per_feature(self, n_features: int) -> Self:
        """Return the kernel with one gamma per direction."""
        return replace(self, kernel=self.kernel.per_feature(len(self.matrix)))

    def rescaled(self, factor: float) -> Self:
        """Return the kernel with every gamma multiplied by a factor."""
        return replace(self, kernel=self.kernel.rescaled(factor))


@dataclass(frozen=True)
class PreparedDirections:
    """The kernel prepared for its centres, in the coordinates of the directions."""

    kernel: Directions
    origin: Float
    projection: Products
    centres: Float
    inner: PreparedRadial

    def __call__(self, points: Float, out: Float) -> None:
        """Write k(points, centres) into ``out`` (n, m)."""
        self.inner(self._projected(points), out)

    def gradient(self, points: Float, values: Float, weights: Float) -> Float:
        """Return the weighted sum of ∂k/∂ log gamma_i and of ∂k/∂a_ij = (∂k/∂r²) 2 gamma_i a_i·(x − z) (x_j − z_j)."""
        if not self.kernel.free:
            return self.inner.gradient(self._projected(points), values, weights)
        slopes = self.inner.slopes(self._projected(points), values, weights)
        moments = _moments(points - self.origin, self.centres, slopes, self.inner.distances)
        matrix = self.kernel.matrix
        gamma = self.kernel.kernel.widths(len(matrix))[:, None]
        half = gamma * (matrix @ moments)
        of_gamma = self.kernel.kernel.shared(np.einsum("ij,ij->i", half, matrix))
        return np.concatenate([of_gamma, 2 * half[: len(self.kernel.axes)].ravel()])

    def input_gradient(self, points: Float, values: Float, weights: Float) -> Float:
        """Return Σ_m weights[n, m] ∂k(x_n, z_m)/∂x_n, shape (n, d)."""
        return self.inner.input_gradient(self._projected(points), values, weights) @ self.kernel.matrix

    def _projected(self, points: Float) -> Float:
        return _projected(self.projection, points - self.origin, len(self.kernel.matrix))


def _projected(projection: Products, moved: Float, count: int) -> Float:
    out = np.empty((count, len(moved))).T
    projection.fill(moved, out, lambda work: None)
    return np.ascontiguousarray(out)


def _moments(X: Float, Z: Float, slopes: Any, distances: SquaredDistances) -> Float:
    """Return Σ_nm S_nm (x_n − z_m)(x_n − z_m)ᵀ, shape (d, d)."""
    n, d = X.shape
    left = np.ones((n, d + 1))
    left[:, :d] = X
    rows, total = np.zeros(n), np.zeros((d, d))
    for some in distances.groups():
        block = slopes(some)
        rows += block.sum(axis=0)
        sums, own = block @ left, Z[some]
        cross = own.T @ sums[:, :d]
        total += (own * sums[:, d:]).T @ own - cross - cross.T
    return total + (X * rows[:, None]).T @ X


def _checked(axes: Any) -> tuple[tuple[float, ...], ...]:
    try:
        found = np.array(axes, dtype=float)
    except (TypeError, ValueError):
        found = np.zeros(0)
    if found.ndim != 2 or not found.size or not np.isfinite(found).all():
        raise UsageError("axes of the directions kernel must be a matrix of finite numbers, one row per direction")
    return tuple(map(tuple, found.tolist()))
