"""Matérn kernels of smoothness 3/2 and 5/2, for r² = Σ_j gamma_j (x_j − z_j)² (Rasmussen & Williams 2006, eq. 4.17).

With s = √(2ν) r the kernels are (1 + s) e⁻ˢ for ν = 3/2 and (1 + s + s²/3) e⁻ˢ for ν = 5/2. scikit-learn's length scale
is 1/√gamma. The derivatives ∂k/∂r² are −(3/2) e⁻ˢ and −(5/6)(1 + s) e⁻ˢ. Both derivatives are finite at r = 0, so that
no gradient divides by r, and rounding errors of r² near 0 are not amplified.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from partirvm.kernels.distances import SquaredDistances
from partirvm.kernels.widths import Widths

Float = NDArray[np.float64]


@dataclass(frozen=True)
class Matern(Widths):
    """Base of the Matérn kernels. ``gamma`` (1/unit² of the kernel's inputs) is one number, or one per feature."""

    local = True

    def prepare(self, centres: Float, origin: Float | None = None) -> PreparedMatern:
        """Prepare the kernel for centres (m, d). Coordinates are relative to ``origin``, default the centres' mean."""
        return PreparedMatern(self, SquaredDistances.of(centres, self.widths(centres.shape[1]), origin))

    def diagonal(self, points: Float) -> Float:
        """Return k(x, x) = 1 for each point (n, d), shape (n,)."""
        return np.ones(len(points))

    def value(self, work: Float) -> None:
        """Replace −r² (g, n) by k."""
        raise NotImplementedError

    def slope(self, work: Float) -> None:
        """Replace −r² (g, n) by ∂k/∂r²."""
        raise NotImplementedError


@dataclass(frozen=True)
class Matern32(Matern):
    """Matérn kernel (1 + s) e⁻ˢ with s = √3 r, for once differentiable functions.

    Examples
    --------
    >>> Matern32(3.0).diagonal(np.zeros((2, 1)))
    array([1., 1.])
    """

    name = "matern32"

    def value(self, work: Float) -> None:
        """Replace −r² by k = (1 + s) e⁻ˢ."""
        falling = _scaled(work, 3.0)
        work += 1.0
        work *= falling

    def slope(self, work: Float) -> None:
        """Replace −r² by ∂k/∂r² = −(3/2) e⁻ˢ."""
        np.multiply(_scaled(work, 3.0), -1.5, out=work)


@dataclass(frozen=True)
class Matern52(Matern):
    """Matérn kernel (1 + s + s²/3) e⁻ˢ with s = √5 r, for twice differentiable functions."""

    name = "matern52"

    def value(self, work: Float) -> None:
        """Replace −r² by k = (1 + s + s²/3) e⁻ˢ."""
        falling = _scaled(work, 5.0)
        falling *= 1.0 + work * (1.0 + work / 3.0)
        work[...] = falling

    def slope(self, work: Float) -> None:
        """Replace −r² by ∂k/∂r² = −(5/6)(1 + s) e⁻ˢ."""
        falling = _scaled(work, 5.0)
        work += 1.0
        work *= falling
        work *= -5.0 / 6.0


def _scaled(work: Float, factor: float) -> Float:
    """Replace −r² by s = √(factor·r²), and return e⁻ˢ."""
    np.minimum(work, 0.0, out=work)
    work *= -factor
    np.sqrt(work, out=work)
    falling = np.negative(work)
    return np.exp(falling, out=falling)


@dataclass(frozen=True)
class PreparedMatern:
    """The kernel prepared for its centres: −r² is computed by matrix products, then the function of r²."""

    kernel: Matern
    distances: SquaredDistances

    def __call__(self, points: Float, out: Float) -> None:
        """Write k(points, centres) into ``out`` (n, m)."""
        self.distances.fill(points, out, self.kernel.value)

    def gradient(self, points: Float, values: Float, weights: Float) -> Float:
        """Return the weighted sum of ∂k/∂ log gamma_j = (∂k/∂r²) gamma_j (x_j − z_j)²; r² is computed again."""
        widened = self.distances.widened(points)

        def slopes(some: slice) -> Float:
            block = self.distances.products.block(widened, some)
            self.kernel.slope(block)
            block *= weights.T[some]
            return block

        return self.kernel.shared(self.distances.gradient(points, slopes))
