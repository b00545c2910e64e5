"""The Gaussian kernel k(x, z) = exp(−Σ_j gamma_j (x_j − z_j)²), with one gamma or one per feature."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from partirvm.kernels.distances import SquaredDistances
from partirvm.kernels.radial import RadialKernel

Float = NDArray[np.float64]


@dataclass(frozen=True)
class Gaussian(RadialKernel):
    """Gaussian kernel.

    Parameters
    ----------
    gamma : tuple of float
        Width parameters, in 1/unit² of the kernel's inputs: one for all features, or one per feature. A feature with
        gamma 0 is ignored. At least one gamma must be positive.

    Examples
    --------
    >>> out = np.empty((1, 1))
    >>> Gaussian((0.5,)).prepare(np.zeros((1, 2)))(np.array([[1.0, 1.0]]), out)
    >>> bool(np.isclose(out[0, 0], np.exp(-1.0)))
    True
    """

    name = "gaussian"

    def value(self, work: Float) -> None:
        """Replace −r² by k = exp(−r²)."""
        np.minimum(work, 0.0, out=work)
        np.exp(work, out=work)

    def slopes(
        self, distances: SquaredDistances, points: Float, values: Float, weights: Float
    ) -> Callable[[slice], Float]:
        """Return the function of a group of centres that gives weights ∘ ∂k/∂r² = −weights ∘ k, (g, n)."""
        return lambda some: -(weights.T[some] * values.T[some])
