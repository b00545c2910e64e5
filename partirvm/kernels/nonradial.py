"""Kernels that are not radial: Laplacian, categorical, linear spline; linear, polynomial and sigmoid.

The first three are evaluated one feature at a time. The linear spline kernel of Vapnik and Tipping (2001, eq. 29) is a
product over dimensions. In each dimension, with a = min(x, z) and b = max(x, z),

    1 + xz + xz·min(x, z) − (x + z)/2·min(x, z)² + min(x, z)³/3  =  1 + ab + a²(3b − a)/6,

derived from ∫₀^min (x − u)(z − u) du. For x, z ≥ 0 this is a Mercer kernel. The formula is also used for negative
inputs, as in Tipping (2001) with x from −10 to 10. The formula also equals 1 + (z + z²/2) x − z³/6 + max(z − x, 0)³/6:
a cubic spline in x with its knot at z. So the span of the basis functions does not depend on the position of zero. For
negative inputs the kernel is not a Mercer kernel: k(x, x) = 1 + x² + x³/3 < 0 for x < −3.37.

The last three are functions of the inner product s = Σ_j gamma_j x_j z_j, as in scikit-learn. They depend on the origin
of the inputs (with ``standardize``, the mean of the training rows). k(x, x) may be 0, and for the sigmoid negative. An
RVM does not require a Mercer kernel.
"""

from __future__ import annotations

import numbers
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from partirvm.errors import UsageError
from partirvm.kernels.base import GROUP, Kernel, PreparedKernel, Products, by_groups, runs
from partirvm.kernels.family import Family, PreparedFamily
from partirvm.options.values import documented

Float = NDArray[np.float64]


@dataclass(frozen=True)
class PreparedSteps(PreparedFamily):
    """The kernel exp(−Σ_j c_j(x_j, z_j)), prepared for ``centres`` (d, m) in coordinates (x − origin) ∘ scale.

    A step c_j is |u − v| of scaled coordinates, or gamma_j [x ≠ z] if ``compared``.
    """

    kernel: Family
    widths: Float
    origin: Float
    centres: Float
    compared: bool

    @classmethod
    def of(cls, kernel: Any, centres: Float, widths: Float, origin: Float | None) -> Self:
        m, d = centres.shape
        compared = isinstance(kernel, Categorical)
        if compared or origin is None:
            origin = centres.mean(axis=0) if m and not compared else np.zeros(d)
        moved = centres if compared else (centres - origin) * widths
        return cls(kernel, widths, origin, np.ascontiguousarray(moved.T), compared)

    def __call__(self, points: Float, out: Float) -> None:
        U, steps = self._scaled(points), np.empty((GROUP, len(points)))

        def write(some: slice, work: Float) -> None:
            work[...] = 0.0
            for j in np.flatnonzero(self.widths).tolist():
                found = self._steps(U, j, some, steps)
                if self.compared:
                    found *= self.widths[j]
                work -= found
            np.exp(work, out=work)

        by_groups(out, write)

    def gradient(self, points: Float, values: Float, weights: Float) -> Float:
        """Return the weighted sum of ∂k/∂ log gamma_j = −k c_j."""
        U, steps = self._scaled(points), np.empty((GROUP, len(points)))
        total = np.zeros(len(self.widths))
        for some in runs(self.centres.shape[1]):
            slopes = weights.T[some] * values.T[some]
            for j in np.flatnonzero(self.widths).tolist():
                found = np.einsum("mn,mn->", slopes, self._steps(U, j, some, steps))
                total[j] -= self.widths[j] * found if self.compared else found
        return self.kernel.shared(total)

    def input_gradient(self, points: Float, values: Float, weights: Float) -> Float:
        """Return zeros (n, d) of categories, which have no derivative."""
        if not self.compared:
            raise NotImplementedError
        return np.zeros(points.shape)

    def _scaled(self, points: Float) -> Float:
        return np.ascontiguousarray((points if self.compared else (points - self.origin) * self.widths).T)

    def _steps(self, U: Float, j: int, some: slice, steps: Float) -> Float:
        """Compute |u_n − v_m|, or [x_n ≠ z_m], of feature j, (g, n), in the buffer ``steps``."""
        v = self.centres[j, some, None]
        found = steps[: len(v)]
        if self.compared:
            np.not_equal(U[j], v, out=found)
        else:
            np.abs(np.subtract(U[j], v, out=found), out=found)
        return found


@documented
@dataclass(frozen=True, repr=False)
class Laplacian(Family):
    """Laplacian (ℓ1) kernel ``exp(−Σ_j gamma_j |x_j − z_j|)``, as in ``sklearn.metrics.pairwise.laplacian_kernel``.

    Examples
    --------
    >>> import numpy as np
    >>> from partirvm import Laplacian, RVMRegressor
    >>> X = np.linspace(-5, 5, 100)[:, None]
    >>> y = np.sinc(X[:, 0]) + 0.05 * np.random.default_rng(0).normal(size=len(X))
    >>> model = RVMRegressor(kernel=Laplacian(gamma=0.5), strategy="working-set", partition_size=20, max_rounds=1)
    >>> model.set_params(random_state=0).fit(X, y).score(X, y) > 0.8
    True
    """

    name = "laplacian"
    decreasing = True
    form = PreparedSteps


@documented
@dataclass(frozen=True, repr=False)
class Categorical(Family):
    """Categories that agree or not: ``exp(−Σ_j gamma_j [x_j ≠ z_j])``.

    Codes are only compared for equality, so a level that no centre has differs equally from all centres. For data that
    also have numeric columns use ``partirvm.kernels.OnColumns``.

    Examples
    --------
    >>> import numpy as np
    >>> from partirvm import Categorical, RVMRegressor
    >>> X = np.stack(np.meshgrid(np.arange(6), np.arange(7)), axis=-1).reshape(-1, 2)  # two codes
    >>> y = np.array([0.0, 3.0, -1.0, 5.0, 2.0, 4.0])[X[:, 0]] + 0.1 * np.random.default_rng(0).normal(size=42)
    >>> model = RVMRegressor(kernel=Categorical(gamma=(2.0, 0.01)), standardize=False, noise_variance=0.01).fit(X, y)
    >>> model.predict([[0, 3], [1, 3], [2, 3]]).round().astype(int)
    array([ 0,  3, -1])
    """

    name = "categorical"
    decreasing = True
    form = PreparedSteps


@dataclass(frozen=True)
class LinearSpline(Kernel):
    """Linear spline kernel, without parameters.

    Examples
    --------
    >>> LinearSpline().diagonal(np.array([[3.0]]))
    array([19.])
    """

    name = "linear-spline"

    def prepare(self, centres: Float, origin: Float | None = None) -> PreparedSpline:
        return PreparedSpline(np.ascontiguousarray(centres.T))

    def diagonal(self, points: Float) -> Float:
        """Return k(x, x) = Π_j (1 + x_j² + x_j³/3) for each point (n, d), shape (n,)."""
        return np.asarray(np.prod(1.0 + points**2 + points**3 / 3.0, axis=1))


@dataclass(frozen=True)
class PreparedSpline(PreparedKernel):
    """The linear spline prepared for ``centres`` (d, m)."""

    centres: Float

    def __call__(self, points: Float, out: Float) -> None:
        X, places = np.ascontiguousarray(points.T), np.empty((3, GROUP, len(points)))

        def write(some: slice, work: Float) -> None:
            work[...] = 1.0
            for x, z in zip(X, self.centres[:, some, None], strict=True):
                work *= _factor(x, z, places[:, : len(work)])

        by_groups(out, write)


def _factor(x: Float, z: Float, places: Float) -> Float:
    """Compute the factor 1 + ab + a²(3b − a)/6 = 1 + a(2h + a(h − a/6)) of one dimension, with h = b/2.

    ``places`` (3, g, n) are buffers; the result (g, n) is in the third buffer.
    """
    a, h = np.minimum(x, z, out=places[0]), np.maximum(0.5 * x, 0.5 * z, out=places[1])
    found: Float = np.multiply(a, -1.0 / 6.0, out=places[2])
    found += h
    found *= a
    found += h
    found += h
    found *= a
    found += 1.0
    return found


@dataclass(frozen=True)
class Linear(Kernel):
    """Linear kernel k(x, z) = x·z. It has no parameters, since the prior of each weight already has a scale.

    Examples
    --------
    >>> Linear().diagonal(np.array([[1.0, 2.0]]))
    array([5.])
    """

    name = "linear"

    def prepare(self, centres: Float, origin: Float | None = None) -> PreparedInner:
        return PreparedInner(self, centres, Products.of(centres))

    def value(self, work: Float) -> None:
        """Leave s, which is k."""

    def diagonal(self, points: Float) -> Float:
        """Return k(x, x) = ‖x‖² for each point (n, d), shape (n,)."""
        return np.asarray(np.einsum("nd,nd->n", points, points))


@dataclass(frozen=True)
class PreparedInner(PreparedFamily):
    """The kernel prepared for its centres: products with ``centres`` = gamma ∘ z (m, d), then the function of s."""

    kernel: Linear | Polynomial | Sigmoid
    centres: Float
    products: Products

    @classmethod
    def of(cls, kernel: Any, centres: Float, widths: Float, origin: Float | None) -> Self:
        scaled = centres * widths
        return cls(kernel, scaled, Products.of(scaled))

    @staticmethod
    def diagonal(kernel: Any, points: Float) -> Float:
        found: Float = points**2 @ kernel.widths(points.shape[1])
        kernel.value(found)
        return found

    def __call__(self, points: Float, out: Float) -> None:
        self.products.fill(points, out, self.kernel.value)

    def gradient(self, points: Float, values: Float, weights: Float) -> Float:
        """Return the weighted sum of ∂k/∂ log gamma_j = (∂k/∂s) gamma_j x_j z_j; s is computed again.

        For a learned coef0 the sum of ∂k/∂ log coef0 = coef0 ∂k/∂s follows.
        """
        if isinstance(self.kernel, Linear):
            return np.zeros(0)
        total, slopes = np.zeros(points.shape[1]), 0.0
        for some in runs(len(self.centres), self.products.size):
            block = self.products.block(points, some)
            self.kernel.slope(block)
            block *= weights.T[some]
            total += np.einsum("md,md->d", block @ points, self.centres[some])
            slopes += float(block.sum())
        of_gamma = self.kernel.shared(total)
        return np.append(of_gamma, self.kernel.coef0 * slopes) if "coef0" in self.kernel.learned else of_gamma


@documented
@dataclass(frozen=True, repr=False)
class Polynomial(Family):
    """Polynomial kernel ``(Σ_j gamma_j x_j z_j + coef0)^degree``.

    Other values of ``degree`` (at least 1, default 3) and ``coef0`` (at least 0, default 1; learned unless it is 0)
    need numbers as gamma.

    Examples
    --------
    >>> import numpy as np
    >>> from partirvm import Polynomial, RVMRegressor
    >>> X = np.linspace(-5, 5, 100)[:, None]
    >>> y = X[:, 0] ** 3 - 10 * X[:, 0] + np.random.default_rng(0).normal(size=len(X))
    >>> model = RVMRegressor(kernel=Polynomial(gamma=1.0)).fit(X, y)
    >>> model.score(X, y) > 0.95
    True
    """

    degree: int = 3
    coef0: float = 1.0
    name = "polynomial"
    learned: ClassVar[tuple[str, ...]] = ("gamma", "coef0")
    form = PreparedInner

    def __post_init__(self) -> None:
        super().__post_init__()
        degree = self.degree
        if isinstance(degree, bool) or not isinstance(degree, numbers.Integral) or degree < 1:
            raise UsageError(f"degree of the polynomial kernel is {degree!r}: it must be a whole number ≥ 1")
        object.__setattr__(self, "degree", int(degree))
        object.__setattr__(self, "coef0", _number(self.name, self.coef0, least=0.0))

    def value(self, work: Float) -> None:
        """Replace s by (s + coef0)^degree."""
        work += self.coef0
        _raise(work, self.degree)

    def slope(self, work: Float) -> None:
        """Replace s by degree·(s + coef0)^(degree − 1)."""
        work += self.coef0
        _raise(work, self.degree - 1)
        work *= self.degree


@documented
@dataclass(frozen=True, repr=False)
class Sigmoid(Family):
    """Sigmoid kernel ``tanh(Σ_j gamma_j x_j z_j + coef0)``.

    Values of ``coef0`` other than 1 need numbers as gamma. ``coef0`` may be negative and is not learned.

    Examples
    --------
    >>> import numpy as np
    >>> from partirvm import Sigmoid
    >>> bool(np.isclose(Sigmoid(0.5, coef0=-1.0).diagonal(np.ones((1, 2)))[0], 0.0))
    True
    """

    coef0: float = 1.0
    name = "sigmoid"
    form = PreparedInner

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "coef0", _number(self.name, self.coef0))

    def value(self, work: Float) -> None:
        """Replace s by k = tanh(s + coef0)."""
        work += self.coef0
        np.tanh(work, out=work)

    def slope(self, work: Float) -> None:
        """Replace s by ∂k/∂s = 1 − k²."""
        self.value(work)
        work *= work
        np.subtract(1.0, work, out=work)


def _raise(values: Float, power: int) -> None:
    """Raise values to an integer power ≥ 0 in place, by repeated squaring, since ``**`` would use logarithms."""
    if power == 0:
        values[...] = 1.0
        return
    base = values.copy() if power > 2 else values
    for bit in f"{power:b}"[1:]:
        values *= values
        if bit == "1":
            values *= base


def _number(name: str, value: float, least: float = -np.inf) -> float:
    right = isinstance(value, numbers.Real) and not isinstance(value, bool) and np.isfinite(float(value))
    if not right or value < least:
        bound = " ≥ 0" if least == 0 else ""
        raise UsageError(f"coef0 of the {name} kernel is {value!r}: it must be a number{bound}")
    return float(value)
