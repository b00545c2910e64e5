"""The base class of kernels of the squared distance r² = Σ_j gamma_j (x_j − z_j)²: Gaussian and Matérn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from partirvm.kernels.distances import SquaredDistances
from partirvm.kernels.widths import Widths

Float = NDArray[np.float64]


@dataclass(frozen=True)
class RadialKernel(Widths):
    """Base of kernels κ(r²) with κ(0) = 1. ``gamma`` (1/unit² of the kernel's inputs) is one number, or one each."""

    local = True

    def prepare(self, centres: Float, origin: Float | None = None) -> PreparedRadial:
        """Prepare the kernel for centres (m, d). Coordinates are relative to ``origin``, default the centres' mean."""
        return PreparedRadial(self, SquaredDistances.of(centres, self.widths(centres.shape[1]), origin))

    def diagonal(self, points: Float) -> Float:
        """Return k(x, x) = 1 for each point (n, d), shape (n,)."""
        return np.ones(len(points))

    def value(self, work: Float) -> None:
        """Replace −r² (g, n) by k."""
        raise NotImplementedError

    def slope(self, work: Float) -> None:
        """Replace −r² (g, n) by ∂k/∂r²."""
        raise NotImplementedError

    def slopes(
        self, distances: SquaredDistances, points: Float, values: Float, weights: Float
    ) -> Callable[[slice], Float]:
        """Return the function of a group of centres that gives weights ∘ ∂k/∂r², (g, n); r² is computed again."""
        widened = distances.widened(points)

        def of(some: slice) -> Float:
            block = distances.products.block(widened, some)
            self.slope(block)
            block *= weights.T[some]
            return block

        return of


@dataclass(frozen=True)
class PreparedRadial:
    """The kernel prepared for its centres: −r² is computed by matrix products, then the function of r²."""

    kernel: RadialKernel
    distances: SquaredDistances

    def __call__(self, points: Float, out: Float) -> None:
        """Write k(points, centres) into ``out`` (n, m)."""
        self.distances.fill(points, out, self.kernel.value)

    def gradient(self, points: Float, values: Float, weights: Float) -> Float:
        """Return the weighted sum of ∂k/∂ log gamma_j = (∂k/∂r²) gamma_j (x_j − z_j)²."""
        return self.kernel.shared(self.distances.gradient(points, self.slopes(points, values, weights)))

    def input_gradient(self, points: Float, values: Float, weights: Float) -> Float:
        """Return Σ_m weights[n, m] ∂k(x_n, z_m)/∂x_n, shape (n, d)."""
        return self.distances.input_gradient(points, self.slopes(points, values, weights))

    def slopes(self, points: Float, values: Float, weights: Float) -> Callable[[slice], Float]:
        """Return the function of a group of centres that gives weights ∘ ∂k/∂r², (g, n)."""
        return self.kernel.slopes(self.distances, points, values, weights)
