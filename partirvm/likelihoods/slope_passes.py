"""Pass of kernel learning: derivatives of the tied evidence by the kernel's parameters."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from partirvm.core import tied
from partirvm.kernels.design import Design
from partirvm.likelihoods.passes import DesignedPass, Panel, TileRows

Float = NDArray[np.float64]
Int = NDArray[np.int64]


@dataclass(frozen=True)
class SlopePass(DesignedPass):
    """Pass for the derivatives (p,) of the evidence by the kernel's log parameters: Σ D ∘ ∂Φ/∂ log parameter.

    D is the matrix of ``core.tied`` at μ (M, T), Σ (T, M, M) and β.
    The pass reads the rows ``rows`` (row numbers, increasing), or all rows if None.
    """

    name: ClassVar[str] = "slope"
    design: Design
    mean: Float
    covariance: Float
    beta: float | Float = 1.0
    rows: Int | None = None

    def statistic(self, tile: TileRows) -> Float:
        """Return the derivatives' part of the tile's rows."""
        return cast(Float, self.summed(tile, self._of_panel))

    def _of_panel(self, panel: Panel, block: Float) -> Float:
        design, mean = self.design, self.mean
        t, betas = design.scaling.targets(panel.t), np.atleast_1d(self.beta)
        slopes = reduce(
            add,
            (
                tied.slopes(block, t[:, k], mean[:, k], self.covariance[k], float(beta), panel.weights)
                for k, beta in enumerate(betas)
            ),
        )
        return design.gradient(panel.X, block, slopes)


@dataclass(frozen=True)
class InputGradientPass(DesignedPass):
    """Pass for Σ_n ∇f(x_n)∇f(x_n)ᵀ (d, d), with f = Φμ, in the kernel's coordinates; summed over the columns of μ.

    Divided by N, this is the mean outer product of the gradient (Trivedi et al. 2014, "A consistent estimator of the
    expected gradient outer product"): its eigenvectors are the directions in which f changes most and least.
    """

    name: ClassVar[str] = "input gradient"
    design: Design
    mean: Float

    def statistic(self, tile: TileRows) -> Float:
        """Return the sum over the tile's rows."""
        return cast(Float, self.summed(tile, self._of_panel))

    def _of_panel(self, panel: Panel, block: Float) -> Float:
        d = panel.X.shape[1]
        total = np.zeros((d, d))
        for mean in self.mean.T:
            found = self.design.input_gradient(panel.X, block, mean)
            total += found.T @ (found if panel.weights is None else found * panel.weights[:, None])
        return total
