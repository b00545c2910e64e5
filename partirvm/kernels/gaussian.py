"""The Gaussian kernel k(x, z) = exp(−Σ_j gamma_j (x_j − z_j)²), with one gamma or one per feature."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from partirvm.kernels.distances import SquaredDistances
from partirvm.kernels.widths import Widths

Float = NDArray[np.float64]


@dataclass(frozen=True)
class Gaussian(Widths):
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
    local = True

    def prepare(self, centres: Float, origin: Float | None = None) -> PreparedGaussian:
        """Prepare the kernel for centres (m, d). Coordinates are relative to ``origin``, default the centres' mean."""
        return PreparedGaussian(self, SquaredDistances.of(centres, self.widths(centres.shape[1]), origin))

    def diagonal(self, points: Float) -> Float:
        """Return k(x, x) = 1 for each point (n, d), shape (n,)."""
        return np.ones(len(points))


@dataclass(frozen=True)
class PreparedGaussian:
    """The kernel prepared for its centres: −r² is computed by matrix products, then ``exp`` is applied in place."""

    kernel: Gaussian
    distances: SquaredDistances

    def __call__(self, points: Float, out: Float) -> None:
        """Write k(points, centres) into ``out`` (n, m)."""
        self.distances.fill(points, out, _exponential)

    def gradient(self, points: Float, values: Float, weights: Float) -> Float:
        """Return the weighted sum of ∂k/∂ log gamma_j = −k gamma_j (x_j − z_j)²."""
        return self.kernel.shared(-self.distances.gradient(points, lambda some: weights.T[some] * values.T[some]))


def _exponential(work: Float) -> None:
    np.minimum(work, 0.0, out=work)
    np.exp(work, out=work)
