"""Kernels k_j of one feature, the factors of an ANOVA kernel (``kernels.anova``).

An exponential takes as long as some thirty terms of a matrix product. Matérn and Laplacian kernels
are f(|u − v|) with f(s) = p(s) e⁻ˢ for a polynomial p, so that their exponentials are those of
single rows, with coordinate u, and of single centres, with coordinate v: by Taylor's theorem,

    f(u − v) = Σ_i [p⁽ⁱ⁾(u)/i! e⁻ᵘ] [(−v)ⁱ eᵛ],

and f(v − u) is the same at −u and −v. The kernel is the smaller of f(u − v) and f(v − u), or the
larger: f(s) − f(−s) has one sign for all s > 0.

The result has a relative error of up to 1e-13. ``factor_blocks`` computes blocks of values.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from partirvm.kernels.radial import Gaussian, Matern32, Matern52, RadialKernel
from partirvm.types import Float

REACH = 16.0
"""Maximum absolute coordinate, u or v, in products of polynomials and exponentials: their sum loses
two digits there. Pairs beyond it are computed directly."""

Pick: TypeAlias = Callable[..., Any]
"""``np.minimum`` or ``np.maximum``."""


class FeatureKernel(ABC):
    """The kernel k_j of one feature, as a function of differences c = root (x − z)."""

    def __init__(self, gamma: float, root: float, power: float) -> None:
        self.gamma = gamma
        self.root = root
        self.power = power
        """The exponent of gamma in ``root``."""

    @abstractmethod
    def value(self, work: Float) -> None:
        """Replace differences c by k."""

    @abstractmethod
    def slope(self, work: Float, values: Float) -> None:
        """Replace differences c by ∂k/∂c, given the values k."""

    def by_width(self, differences: Float, values: Float) -> Float:
        """Return ∂k/∂ log gamma."""
        slopes = differences.copy()
        self.slope(slopes, values)
        slopes *= differences
        slopes *= self.power
        return slopes

    def pairs(self, coordinates: Float) -> "FactorPairs":
        """Return the kernel between points with these coordinates (n,)."""
        return FactorPairs(self, coordinates)


class FactorPairs:
    """A kernel of one feature between n points with coordinates c (n,), computed directly."""

    def __init__(self, factor: FeatureKernel, coordinates: Float) -> None:
        self.factor = factor
        self.coordinates = coordinates

    def values(self, slab: slice) -> Float:
        """Return k (k, m) for the points of a slab and all points from its first on."""
        values = self._differences(slab)
        self.factor.value(values)
        return values

    def by_width(self, slab: slice, values: Float) -> Float:
        """Return ∂k/∂ log gamma (k, m), given the values k."""
        return self.factor.by_width(self._differences(slab), values)

    def _differences(self, slab: slice) -> Float:
        of_slab = self.coordinates[slab]
        return np.subtract.outer(of_slab, self.coordinates[slab.start :])


class RadialFeature(FeatureKernel):
    """A radial kernel of one feature, k = κ(c²) with c = √gamma (x − z)."""

    def __init__(self, kernel: RadialKernel, gamma: float) -> None:
        super().__init__(gamma, float(np.sqrt(gamma)), 0.5)
        self.kernel = kernel

    def value(self, work: Float) -> None:
        np.multiply(work, work, out=work)
        np.negative(work, out=work)
        self.kernel.value(work)

    def slope(self, work: Float, values: Float) -> None:
        slopes = -work * work
        self.kernel.slope(slopes, values)
        work *= slopes
        work *= 2.0

    def by_width(self, differences: Float, values: Float) -> Float:
        squares = differences * differences
        slopes = -squares
        self.kernel.slope(slopes, values)
        slopes *= squares
        return slopes


class GaussianFeature(RadialFeature):
    """The kernel exp(−c²)."""

    def __init__(self, gamma: float) -> None:
        super().__init__(Gaussian(1.0), gamma)

    def value(self, work: Float) -> None:
        np.multiply(work, work, out=work)
        np.negative(work, out=work)
        np.exp(work, out=work)

    def by_width(self, differences: Float, values: Float) -> Float:
        """Return ∂k/∂ log gamma = −c² k."""
        slopes = differences * differences
        slopes *= values
        return np.negative(slopes, out=slopes)


class LevelFeature(FeatureKernel):
    """exp(−gamma [x ≠ z]) for the codes of categories."""

    def __init__(self, gamma: float) -> None:
        super().__init__(gamma, 1.0, 0.0)
        self.other = float(np.exp(-gamma))

    def value(self, work: Float) -> None:
        differs = work != 0.0
        work[...] = 1.0
        work[differs] = self.other

    def slope(self, work: Float, values: Float) -> None:
        work[...] = 0.0

    def by_width(self, differences: Float, values: Float) -> Float:
        return np.asarray(-self.gamma * values * (differences != 0.0))


@dataclass(frozen=True)
class Sided:
    """A function p(s) e⁻ˢ of s = |u − v| as a matrix product for either sign of u − v.

    Attributes:
        coefficients: of p, from the constant on.
        pick: chooses between p(u − v) exp(v − u) and p(v − u) exp(u − v).
    """

    coefficients: tuple[float, ...]
    pick: Pick

    @property
    def count(self) -> int:
        """Number of terms of a product."""
        return len(self.coefficients)

    @cached_property
    def derivatives(self) -> list[Float]:
        """Coefficients of p⁽ⁱ⁾/i!."""
        derivatives = [np.array(self.coefficients)]
        for i in range(1, len(self.coefficients)):
            powers = np.arange(1, len(derivatives[-1]))
            derivatives.append(derivatives[-1][1:] * powers / i)
        return derivatives

    def left(self, u: Float) -> Float:
        """Return p⁽ⁱ⁾(u)/i! e⁻ᵘ of rows (…), (count, …)."""
        left = np.empty((self.count, *u.shape))
        decrease = np.exp(-u)
        for i, coefficients in enumerate(self.derivatives):
            np.multiply(_polynomial(coefficients, u), decrease, out=left[i])
        return left

    def right(self, v: Float) -> Float:
        """Return (−v)ⁱ eᵛ of centres (…), (count, …)."""
        right = np.empty((self.count, *v.shape))
        right[0] = np.exp(v)
        for i in range(1, len(self.coefficients)):
            right[i] = right[i - 1] * -v
        return right


def _polynomial(coefficients: Float, x: Float) -> Float:
    """Return the polynomial with coefficients, from the constant on, at x."""
    total = np.full(x.shape, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        total *= x
        total += coefficient
    return total


class SidedPairs(FactorPairs):
    """A kernel p(s) e⁻ˢ between n points, from two products for k and two for its slope."""

    def __init__(self, factor: "SidedFeature", coordinates: Float) -> None:
        super().__init__(factor, coordinates)
        self.function = factor.function
        self.slope = factor.by_log_gamma
        points = factor.scale * coordinates
        self.right = self._for_both_signs(self.slope.right, points)
        self.left = self._for_both_signs(self.function.left, points)
        self.slope_left = self._for_both_signs(self.slope.left, points)

    @staticmethod
    def _for_both_signs(factors: Callable[[Float], Float], points: Float) -> tuple[Float, Float]:
        return factors(points), factors(-points)

    def values(self, slab: slice) -> Float:
        return self._block(slab, self.left, self.function)

    def by_width(self, slab: slice, values: Float) -> Float:
        return self._block(slab, self.slope_left, self.slope)

    def _block(self, slab: slice, left: tuple[Float, Float], function: Sided) -> Float:
        """Return a function's values (k, m) from the factors of rows for both signs."""
        later = slice(slab.start, None)
        first = left[0][:, slab].T @ self.right[0][: function.count, later]
        second = left[1][:, slab].T @ self.right[1][: function.count, later]
        return np.asarray(function.pick(first, second, out=first))


class SidedFeature(FeatureKernel):
    """A kernel p(s) e⁻ˢ of s = scale |c|: Matérn kernels and the Laplacian kernel.

    Args:
        gamma: the width.
        power: the exponent of gamma in c = gammaᵖᵒʷᵉʳ (x − z).
        scale: s ÷ |c|.
        function: k as a product.
        by_log_gamma: ∂k/∂ log gamma as a product.
    """

    def __init__(
        self, gamma: float, power: float, scale: float, function: Sided, by_log_gamma: Sided
    ) -> None:
        super().__init__(gamma, gamma**power, power)
        self.scale = scale
        self.function = function
        self.by_log_gamma = by_log_gamma

    def value(self, work: Float) -> None:
        np.abs(work, out=work)
        work *= self.scale
        decrease = np.exp(-work)
        np.multiply(_polynomial(self.function.derivatives[0], work), decrease, out=work)

    def slope(self, work: Float, values: Float) -> None:
        """Replace c by ∂k/∂c = scale sign(c) (p′ e⁻ˢ − k)."""
        s = self.scale * np.abs(work)
        slopes = np.exp(-s)
        slopes *= self._derivative(s)
        slopes -= values
        np.sign(work, out=work)
        work *= self.scale
        work *= slopes

    def _derivative(self, s: Float) -> Float:
        """Return p′(s)."""
        if len(self.function.derivatives) == 1:
            return np.zeros(s.shape)
        return _polynomial(self.function.derivatives[1], s)

    def pairs(self, coordinates: Float) -> FactorPairs:
        is_within = np.abs(self.scale * coordinates).max(initial=0.0) <= REACH
        return SidedPairs(self, coordinates) if is_within else FactorPairs(self, coordinates)


SIDED = {
    "laplacian": (1.0, 1.0, Sided((1.0,), np.minimum), Sided((0.0, -1.0), np.minimum)),
    Matern32.name: (
        0.5,
        3.0**0.5,
        Sided((1.0, 1.0), np.maximum),
        Sided((0.0, 0.0, -1 / 2), np.maximum),
    ),
    Matern52.name: (
        0.5,
        5.0**0.5,
        Sided((1.0, 1.0, 1 / 3), np.minimum),
        Sided((0.0, 0.0, -1 / 6, -1 / 6), np.minimum),
    ),
}
"""The other parameters of ``SidedFeature`` by the name of a kernel."""
