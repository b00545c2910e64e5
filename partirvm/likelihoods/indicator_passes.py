"""Passes of class indicators, the targets (n, K) of kernel learning for several classes (``core.tied_indicators``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from partirvm.core import tied_indicators
from partirvm.core.logistic import guesses, targets
from partirvm.core.statistics import GramBlock
from partirvm.core.tied_indicators import Indicators
from partirvm.kernels.design import Design
from partirvm.likelihoods.passes import DesignedPass, Panel, TileRows

Float = NDArray[np.float64]
Int = NDArray[np.int64]


@dataclass(frozen=True)
class IndicatorGramPass(DesignedPass):
    """Pass for Gram products of the design with itself and with the K indicators: a ``core.statistics.GramBlock``."""

    name: ClassVar[str] = "gram"
    design: Design
    n_classes: int
    rows: Int | None = None

    def statistic(self, tile: TileRows) -> GramBlock:
        """Return the products over the tile's rows."""

        def products(panel: Panel, block: Float) -> GramBlock:
            return GramBlock.of(block[:, :0], block, targets(panel.t[:, 0], self.n_classes), panel.weights)

        return cast(GramBlock, self.summed(tile, products))


@dataclass(frozen=True)
class IndicatorSlopePass(DesignedPass):
    """Pass for the derivatives (p,) of the evidence by the kernel's log parameters, at the posterior ``found``."""

    name: ClassVar[str] = "slope"
    design: Design
    found: Indicators
    beta: float
    rows: Int | None = None

    def statistic(self, tile: TileRows) -> Float:
        """Return the derivatives' part of the tile's rows."""

        def part(panel: Panel, block: Float) -> Float:
            target = targets(panel.t[:, 0], self.found.mean.shape[1])
            slopes = tied_indicators.slopes(block, target, self.found, self.beta, panel.weights)
            return self.design.gradient(panel.X, block, slopes)

        return cast(Float, self.summed(tile, part))


@dataclass(frozen=True)
class IndicatorLossPass(DesignedPass):
    """Pass for the sum of squared errors of the indicators at weights ``mean`` (M, K), and the number of wrong rows.

    A row of positive weight is wrong if its largest predicted indicator is that of another class. The result is (2,).
    """

    name: ClassVar[str] = "residual"
    design: Design
    mean: Float
    rows: Int | None = None

    def statistic(self, tile: TileRows) -> Float:
        """Return the sums over the tile's rows."""

        def sums(panel: Panel, block: Float) -> Float:
            codes, found = panel.t[:, 0], block @ self.mean
            squares = np.square(targets(codes, found.shape[1]) - found).sum(axis=1)
            wrong = guesses(found) != codes
            if panel.weights is None:
                return np.array([squares.sum(), wrong.sum()])
            return np.array([squares @ panel.weights, wrong[panel.weights > 0].sum()])

        return cast(Float, self.summed(tile, sums))
