"""Matérn kernels of smoothness 3/2 and 5/2, for r² = Σ_j gamma_j (x_j − z_j)² (Rasmussen & Williams 2006, eq. 4.17).

With s = √(2ν) r the kernels are (1 + s) e⁻ˢ for ν = 3/2 and (1 + s + s²/3) e⁻ˢ for ν = 5/2. scikit-learn's length scale
is 1/√gamma. The derivatives ∂k/∂r² are −(3/2) e⁻ˢ and −(5/6)(1 + s) e⁻ˢ. Both derivatives are finite at r = 0, so that
no gradient divides by r, and rounding errors of r² near 0 are not amplified.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from partirvm.kernels.radial import RadialKernel

Float = NDArray[np.float64]


@dataclass(frozen=True)
class Matern32(RadialKernel):
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
class Matern52(RadialKernel):
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
