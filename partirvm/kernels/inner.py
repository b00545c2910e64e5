"""Kernels of the inner product s = Σ_j gamma_j x_j z_j: linear, polynomial and sigmoid, as in scikit-learn.

These kernels are not functions of a distance. They depend on the origin of the inputs (with ``standardize``, the mean
of the training rows), and k(x, x) may be 0. For the sigmoid k(x, x) may also be negative: the sigmoid is not a Mercer
kernel, and an RVM does not require a Mercer kernel.
"""

from __future__ import annotations

import numbers
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from partirvm.errors import UsageError
from partirvm.kernels.base import Kernel, Products, runs
from partirvm.kernels.family import Family, PreparedFamily
from partirvm.options.values import documented

Float = NDArray[np.float64]


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
