"""Kernels of the inner product s = Σ_j gamma_j x_j z_j: linear, polynomial and sigmoid, as in scikit-learn.

These kernels are not functions of a distance. They depend on the origin of the inputs (with ``standardize``, the mean
of the training rows), and k(x, x) may be 0. For the sigmoid k(x, x) may also be negative: the sigmoid is not a Mercer
kernel, and an RVM does not require a Mercer kernel.
"""

from __future__ import annotations

import numbers
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from partirvm.errors import UsageError
from partirvm.kernels.base import Described, Fixed, FixedGradient, Products, runs
from partirvm.kernels.widths import Widths, logs_of, values_of

Float = NDArray[np.float64]


@dataclass(frozen=True)
class Linear(Fixed, Described):
    """Linear kernel k(x, z) = x·z. It has no parameters, since the prior of each weight already has a scale.

    Examples
    --------
    >>> Linear().diagonal(np.array([[1.0, 2.0]]))
    array([5.])
    """

    name = "linear"
    local = False

    def prepare(self, centres: Float, origin: Float | None = None) -> PreparedLinear:
        """Prepare the kernel for the centres (m, d); ``origin`` has no effect."""
        return PreparedLinear(Products.of(centres))

    def diagonal(self, points: Float) -> Float:
        """Return k(x, x) = ‖x‖² for each point (n, d), shape (n,)."""
        return np.asarray(np.einsum("nd,nd->n", points, points))


@dataclass(frozen=True)
class PreparedLinear(FixedGradient):
    """The linear kernel prepared for its centres: products of points and centres."""

    products: Products

    def __call__(self, points: Float, out: Float) -> None:
        """Write k(points, centres) into ``out`` (n, m)."""
        self.products.fill(points, out, lambda work: None)


@dataclass(frozen=True)
class Inner(Widths):
    """Base of the polynomial and the sigmoid kernel, which are functions of s = x·(gamma ∘ z)."""

    local = False

    def prepare(self, centres: Float, origin: Float | None = None) -> PreparedInner:
        """Prepare the kernel for the centres (m, d); ``origin`` has no effect."""
        scaled = centres * self.widths(centres.shape[1])
        return PreparedInner(self, scaled, Products.of(scaled))

    def diagonal(self, points: Float) -> Float:
        """Return k(x, x) for each point (n, d), shape (n,)."""
        found: Float = points**2 @ self.widths(points.shape[1])
        self.value(found)
        return found

    def value(self, work: Float) -> None:
        """Replace s (g, n) by k."""
        raise NotImplementedError

    def slope(self, work: Float) -> None:
        """Replace s (g, n) by ∂k/∂s."""
        raise NotImplementedError

    def complete(self, gradient: Float, slopes: float) -> Float:
        """Return the gradient in all parameters from ``gradient`` (d,) in log gamma and ``slopes``, Σ weights ∂k/∂s."""
        return self.shared(gradient)


@dataclass(frozen=True)
class Polynomial(Inner):
    """Polynomial kernel k(x, z) = (Σ_j gamma_j x_j z_j + coef0)^degree.

    Parameters
    ----------
    gamma : tuple of float
        In 1/unit² of the kernel's inputs: one for all features, or one per feature.
    degree : int
        At least 1.
    coef0 : float
        At least 0; learned unless it is 0.

    Examples
    --------
    >>> Polynomial(1.0, degree=2, coef0=1.0).diagonal(np.array([[1.0, 2.0]]))
    array([36.])
    """

    degree: int = 3
    coef0: float = 1.0
    name = "polynomial"

    def __post_init__(self) -> None:
        super().__post_init__()
        degree, coef0 = self.degree, self.coef0
        if isinstance(degree, bool) or not isinstance(degree, numbers.Integral) or degree < 1:
            raise UsageError(f"degree of the polynomial kernel is {degree!r}: it must be a whole number ≥ 1")
        _check_coef0(self.name, coef0, least=0.0)
        object.__setattr__(self, "degree", int(degree))
        object.__setattr__(self, "coef0", float(coef0))

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of gamma and coef0."""
        return (*super().parameters, "coef0")

    @property
    def logs(self) -> Float:
        """The logarithms of gamma and coef0."""
        return np.append(super().logs, logs_of((self.coef0,)))

    def with_logs(self, logs: Float) -> Self:
        """Return the kernel with the given log gamma and log coef0."""
        *gamma, coef0 = values_of(logs, len(self.gamma) + 1)
        return replace(self, gamma=tuple(gamma), coef0=coef0)

    def value(self, work: Float) -> None:
        """Replace s by (s + coef0)^degree."""
        work += self.coef0
        _raise(work, self.degree)

    def slope(self, work: Float) -> None:
        """Replace s by degree·(s + coef0)^(degree − 1)."""
        work += self.coef0
        _raise(work, self.degree - 1)
        work *= self.degree

    def complete(self, gradient: Float, slopes: float) -> Float:
        """Return the gradient in log gamma, followed by the gradient in log coef0: ∂k/∂ log coef0 = coef0 ∂k/∂s."""
        return np.append(self.shared(gradient), self.coef0 * slopes)


@dataclass(frozen=True)
class Sigmoid(Inner):
    """Sigmoid kernel k(x, z) = tanh(Σ_j gamma_j x_j z_j + coef0). ``coef0`` may be negative and is not learned.

    Examples
    --------
    >>> bool(np.isclose(Sigmoid(0.5, coef0=-1.0).diagonal(np.ones((1, 2)))[0], 0.0))
    True
    """

    coef0: float = 1.0
    name = "sigmoid"

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_coef0(self.name, self.coef0)
        object.__setattr__(self, "coef0", float(self.coef0))

    def value(self, work: Float) -> None:
        """Replace s by k = tanh(s + coef0)."""
        work += self.coef0
        np.tanh(work, out=work)

    def slope(self, work: Float) -> None:
        """Replace s by ∂k/∂s = 1 − k²."""
        self.value(work)
        work *= work
        np.subtract(1.0, work, out=work)


@dataclass(frozen=True)
class PreparedInner:
    """The kernel prepared for its centres: products with ``centres`` = gamma ∘ z (m, d), then the function of s."""

    kernel: Inner
    centres: Float
    products: Products

    def __call__(self, points: Float, out: Float) -> None:
        """Write k(points, centres) into ``out`` (n, m)."""
        self.products.fill(points, out, self.kernel.value)

    def gradient(self, points: Float, values: Float, weights: Float) -> Float:
        """Return the weighted sum of ∂k/∂ log gamma_j = (∂k/∂s) gamma_j x_j z_j; s is computed again."""
        total, slopes = np.zeros(points.shape[1]), 0.0
        for some in runs(len(self.centres), self.products.size):
            block = self.products.block(points, some)
            self.kernel.slope(block)
            block *= weights.T[some]
            total += np.einsum("md,md->d", block @ points, self.centres[some])
            slopes += float(block.sum())
        return self.kernel.complete(total, slopes)


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


def _check_coef0(name: str, value: float, least: float = -np.inf) -> None:
    right = isinstance(value, numbers.Real) and not isinstance(value, bool) and np.isfinite(float(value))
    if not right or value < least:
        bound = " ≥ 0" if least == 0 else ""
        raise UsageError(f"coef0 of the {name} kernel is {value!r}: it must be a number{bound}")
