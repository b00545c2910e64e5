"""Passes of kernel learning: derivatives of the tied evidence by the kernel's parameters."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from partirvm.core import tied, tied_laplace
from partirvm.kernels.design import Design
from partirvm.likelihoods.passes import DesignedPass, Panel, TileRows

Float = NDArray[np.float64]
Int = NDArray[np.int64]


@dataclass(frozen=True)
class LogDetGradientPass(DesignedPass):
    """Pass for Φᵀc (M, C), the gradient of log|H| by the weights of a classification (``core.tied_laplace``).

    ``mean`` (M, C) are the weights, ``covariance`` (C, M, M) is Σ.
    The pass reads the rows ``rows`` (row numbers, increasing), or all rows if None.
    """

    name: ClassVar[str] = "log-det-gradient"
    design: Design
    mean: Float
    covariance: Float
    likelihood: str
    rows: Int | None = None

    def statistic(self, tile: TileRows) -> Float:
        """Return the part of the tile's rows."""

        def statistic(panel: Panel, block: Float) -> Float:
            log_det_gradient = tied_laplace.log_det_gradient(
                self.likelihood, block, self.mean, self.covariance, panel.weights
            )
            return block.T @ log_det_gradient

        return cast(Float, self.summed(tile, statistic))


@dataclass(frozen=True)
class SlopePass(DesignedPass):
    """Pass for the derivatives (p,) of the evidence by the kernel's log parameters: Σ D ∘ ∂Φ/∂ log parameter.

    In regression, D is the matrix of ``core.tied`` at μ (M, T), Σ (T, M, M) and β. In classification, D is the matrix
    of ``core.tied_laplace`` with ``shift`` (M, C).
    The pass reads the rows ``rows`` (row numbers, increasing), or all rows if None.
    """

    name: ClassVar[str] = "slope"
    design: Design
    mean: Float
    covariance: Float
    beta: float | Float = 1.0
    likelihood: str = "gaussian"
    shift: Float | None = None
    rows: Int | None = None

    def statistic(self, tile: TileRows) -> Float:
        """Return the derivatives' part of the tile's rows."""
        return cast(Float, self.summed(tile, self._of_panel))

    def _of_panel(self, panel: Panel, block: Float) -> Float:
        design, mean = self.design, self.mean
        if self.shift is None:
            t, betas = design.scaling.targets(panel.t), np.atleast_1d(self.beta)
            slopes = reduce(
                add,
                (
                    tied.slopes(block, t[:, k], mean[:, k], self.covariance[k], float(beta), panel.weights)
                    for k, beta in enumerate(betas)
                ),
            )
        else:
            codes, shift = panel.t[:, 0], self.shift
            slopes = tied_laplace.slopes(self.likelihood, block, codes, mean, self.covariance, shift, panel.weights)
        return design.gradient(panel.X, block, slopes)
