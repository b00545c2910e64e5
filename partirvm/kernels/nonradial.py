"""Non-radial kernels: Laplacian, categorical, linear spline, linear and polynomial.

The linear spline kernel of Vapnik and Tipping (2001, eq. 29) is, with a = min(x, z) and b = max(x,
z), a product over dimensions of 1 + xz + xz·a − (x + z)/2·a² + a³/3 = 1 + ab + a²(3b − a)/6. For x,
z ≥ 0 this is a Mercer kernel; for negative inputs, as in Tipping (2001), it is not. The last two
kernels are functions of s = Σ_j gamma_j x_j z_j.
"""

from dataclasses import dataclass
from functools import reduce
from typing import Any, ClassVar

import numpy as np

from partirvm.kernels.base import (
    Family,
    Kernel,
    PreparedKernel,
    Products,
    by_groups,
    origin_of,
    runs,
)
from partirvm.kernels.functions import PreparedFunction
from partirvm.kernels.permission import Function
from partirvm.options.constraints import Check
from partirvm.types import Float


class PreparedSteps(PreparedKernel):
    """The kernel exp(−Σ_j c_j) with steps c_j = |u − v|, u = gamma ∘ (x − origin), or gamma_j [x ≠
    z] for categories."""

    def __init__(self, kernel: Family, centres: Float, origin: Float | None) -> None:
        self.kernel = kernel
        self.widths = kernel.widths(centres.shape[1])
        self.origin = origin_of(centres, origin)
        self.compared = isinstance(kernel, Categorical)
        self.centres = self._scaled(centres)

    def __call__(self, points: Float, out: Float) -> None:
        U = self._scaled(points)

        def write(some: slice, work: Float) -> None:
            work[...] = 0.0
            for j in np.flatnonzero(self.widths).tolist():
                work -= self._steps(U, j, some)
            np.exp(work, out=work)

        by_groups(out, write)

    def gradient(self, points: Float, values: Float, weights: Float) -> Float:
        """Return the weighted sum of ∂k/∂ log gamma_j = −k c_j."""
        U = self._scaled(points)
        total = np.zeros(len(self.widths))
        for group in runs(self.centres.shape[1]):
            slopes = weights.T[group] * values.T[group]
            for j in np.flatnonzero(self.widths).tolist():
                total[j] -= np.einsum("mn,mn->", slopes, self._steps(U, j, group))
        return self.kernel.shared(total)

    def input_gradient(self, points: Float, values: Float, weights: Float) -> Float:
        """Return the weighted sum of ∂k/∂x_j = −k gamma_j sign(x_j − z_j), or 0 for categories."""
        pairs = zip(self._scaled(points), self.centres, strict=True)
        slopes = weights * values
        sums = [(slopes * np.sign(u[:, None] - v)).sum(axis=1) for u, v in pairs]
        return np.asarray(-self.widths * np.stack(sums, axis=1) * (not self.compared))

    def _scaled(self, points: Float) -> Float:
        if not self.compared:
            points = (points - self.origin) * self.widths
        return np.ascontiguousarray(points.T)

    def _steps(self, U: Float, j: int, some: slice) -> Float:
        """Compute the steps of feature j between a group of centres and all points, (g, n)."""
        v = self.centres[j, some, None]
        if self.compared:
            return np.asarray(self.widths[j] * (U[j] != v))
        return np.asarray(np.abs(U[j] - v))


@dataclass(frozen=True, repr=False)
class Laplacian(Family, name="laplacian", form=PreparedSteps):
    """Laplacian (ℓ1) kernel ``exp(−Σ_j gamma_j |x_j − z_j|)``, as in
    ``sklearn.metrics.pairwise.laplacian_kernel``.

    Parameters
    ----------
    gamma, multiples, metric : optional
        As for ``Gaussian``.

    Examples
    --------
    >>> from partirvm import Laplacian
    >>> Laplacian(gamma=0.5).spec()
    {'name': 'laplacian', 'gamma': [0.5]}
    """

    def axes_of_distance(self, n_features: int) -> Float | None:
        return np.diag(self.widths(n_features))

    def operations(self, x: Any, Z: Float) -> Any:
        x, Z, widths = self.used(x, Z)
        return np.exp(-x.graph("Steps", x * widths, (Z * widths).T))


@dataclass(frozen=True, repr=False)
class Categorical(Family, name="categorical", form=PreparedSteps):
    """Categorical kernel ``exp(−Σ_j gamma_j [x_j ≠ z_j])``; with numeric columns, use
    ``OnColumns``.

    Parameters
    ----------
    gamma, multiples, metric : optional
        As for ``Gaussian``.

    Examples
    --------
    >>> from partirvm import Categorical, RVMRegressor
    >>> RVMRegressor(kernel=Categorical(gamma=(2.0, 0.01)), standardize=False).kernel
    Categorical(gamma=(2.0, 0.01))
    """

    def level_widths(self, n_features: int) -> Float:
        return self.widths(n_features)

    def operations(self, x: Any, Z: Float) -> Any:
        x, Z, widths = self.used(x, Z)
        return np.exp(-x.graph("Differ", x, Z.T, widths))


def _spline(points: Float, centres: Float) -> Float:
    """Return the product of the factors 1 + ab + a²(3b − a)/6 = 1 + a(2h + a(h − a/6)), with h =
    b/2, (n, m)."""
    values = np.ones((len(points), len(centres)), points.dtype)
    for x, z in zip(points.T, centres.T, strict=True):
        a = np.minimum(x[:, None], z)
        h = np.maximum(0.5 * x[:, None], 0.5 * z)
        values *= 1.0 + a * (a * (h - a / 6.0) + 2.0 * h)
    return values


@dataclass(frozen=True)
class LinearSpline(Kernel, name="linear-spline", form=PreparedFunction):
    """Linear spline kernel, without parameters."""

    function: ClassVar[Function] = staticmethod(_spline)

    def operations(self, x: Any, Z: Float) -> Any:
        return x.graph("Spline", x, Z.T)


@dataclass(frozen=True)
class Linear(Kernel, name="linear", form=PreparedFunction):
    """Linear kernel k(x, z) = x·z. It has no parameters, since the prior of each weight already has
    a scale."""

    function: ClassVar[Function] = staticmethod(lambda points, centres: points @ centres.T)

    def operations(self, x: Any, Z: Float) -> Any:
        return x @ Z.T


class PreparedInner(PreparedKernel):
    """A function of inner products with ``centres`` = gamma ∘ z (m, d)."""

    def __init__(self, kernel: "Polynomial", centres: Float, origin: Float | None) -> None:
        self.kernel = kernel
        self.centres = centres * kernel.widths(centres.shape[1])

    def __call__(self, points: Float, out: Float) -> None:
        Products.of(self.centres).fill(points, out, self.kernel.value)

    def gradient(self, points: Float, values: Float, weights: Float) -> Float:
        """Return the weighted sum of ∂k/∂ log gamma_j = degree·(s + coef0)^(degree − 1) gamma_j x_j
        z_j."""
        return self.kernel.shared(
            np.einsum("md,md->d", self._slopes(points, weights).T @ points, self.centres)
        )

    def input_gradient(self, points: Float, values: Float, weights: Float) -> Float:
        return self._slopes(points, weights) @ self.centres

    def _slopes(self, points: Float, weights: Float) -> Float:
        kernel = self.kernel
        inner = points @ self.centres.T + kernel.coef0
        return weights * kernel.degree * inner ** (kernel.degree - 1)


@dataclass(frozen=True, repr=False)
class Polynomial(Family, name="polynomial", form=PreparedInner, decreasing=False):
    """Polynomial kernel ``(Σ_j gamma_j x_j z_j + coef0)^degree``.

    Non-default values of ``degree`` and ``coef0`` need a numeric gamma.

    Parameters
    ----------
    gamma, multiples, metric : optional
        As for ``Gaussian``.
    degree : int, default=3
        Degree of the polynomial, at least 1.
    coef0 : float, default=1.0
        Constant that is added to the inner product, at least 0.

    Examples
    --------
    >>> from partirvm import Polynomial
    >>> Polynomial(gamma=1.0, degree=2)
    Polynomial(gamma=(1.0,), degree=2)
    """

    degree: int = 3
    coef0: float = 1.0
    numbers: ClassVar[dict[str, Check]] = {
        "degree": Check("whole", least=1),
        "coef0": Check("real", least=0),
    }

    def value(self, work: Float) -> None:
        """Replace s by (s + coef0)^degree."""
        work += self.coef0
        work **= self.degree

    def operations(self, x: Any, Z: Float) -> Any:
        inner = x @ (Z * self.widths(Z.shape[1])).T + self.coef0
        return reduce(np.multiply, [inner] * self.degree)
