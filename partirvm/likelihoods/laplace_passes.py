"""Passes of a classification: the quadratic of the likelihood, improbable rows, gains of a pool, scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from partirvm.core.drawing import drawn
from partirvm.core.link import LINKS, moderated, probabilities, variances
from partirvm.core.logistic import LogisticBlock, LogisticCross, misclassification_probabilities
from partirvm.core.residuals import LargestErrors
from partirvm.core.scores import ClassScores
from partirvm.kernels.design import Design
from partirvm.likelihoods.passes import DesignedPass, Panel, TileRows, eligible

Float = NDArray[np.float64]
Int = NDArray[np.int64]


@dataclass(frozen=True)
class LogisticPass(DesignedPass):
    """Log likelihood, gradient and curvature at weights ``mean`` (M, C); answered by a ``core.logistic.LogisticBlock``.

    Over all rows, or over those of ``rows`` (row numbers, increasing).
    """

    name: ClassVar[str] = "newton"
    design: Design
    mean: Float
    likelihood: str
    rows: Int | None = None

    def statistic(self, tile: TileRows) -> LogisticBlock:
        """The quadratic of the tile's rows."""
        total: LogisticBlock | None = None
        for panel, block in tile.panels(self.rows, self.design):
            part = LogisticBlock.of(self.likelihood, block, panel.t[:, 0], self.mean, panel.weights)
            total = part if total is None else total.accumulate(part)
        return cast(LogisticBlock, total)


@dataclass(frozen=True)
class MisclassificationPass(DesignedPass):
    """Rows whose class has the smallest predicted probability; answered by a ``core.residuals.LargestErrors``.

    ``select`` rows of largest 1 − p_t are reported, none of those in ``exclude`` (sorted row numbers) among them. With
    a ``draw`` (two whole numbers, a seed) they are drawn at random instead, a row's chance in proportion to
    1 − p_t + ``floor``. Over all rows, or over those of ``rows`` (row numbers, increasing).
    """

    name: ClassVar[str] = "misclassification"
    design: Design
    mean: Float
    likelihood: str
    select: int
    exclude: Int
    draw: tuple[int, int] | None = None
    floor: float = 0.0
    rows: Int | None = None

    def statistic(self, tile: TileRows) -> LargestErrors:
        """Those of the tile's rows."""
        return cast(LargestErrors, self.summed(tile, self._of_panel))

    def _of_panel(self, panel: Panel, block: Float) -> LargestErrors:
        keys = misclassification_probabilities(self.likelihood, panel.t[:, 0], block @ self.mean)
        if self.draw is not None:
            keys = drawn(keys + self.floor, panel.rows, self.draw)
        there = eligible(panel, self.exclude)
        return LargestErrors.of(self.select, keys[there], panel.rows[there], panel.X[there])


@dataclass(frozen=True)
class GainPass(DesignedPass):
    """What s and q of the columns of ``pool`` need beside those of ``design`` at weights ``mean`` (M, C).

    Answered by a ``core.logistic.LogisticCross``. Over all rows, or over those of ``rows`` (row numbers, increasing).
    """

    name: ClassVar[str] = "gain"
    design: Design
    mean: Float
    likelihood: str
    pool: Design
    rows: Int | None = None

    @property
    def designs(self) -> tuple[Design, ...]:
        """Those of both."""
        return self.design, self.pool

    def statistic(self, tile: TileRows) -> LogisticCross:
        """Products of the tile's rows."""
        total: LogisticCross | None = None
        for panel, kept, pool in tile.panels(self.rows, self.design, self.pool):
            part = LogisticCross.of(self.likelihood, kept, pool, panel.t[:, 0], self.mean, panel.weights)
            total = part if total is None else total.accumulate(part)
        return cast(LogisticCross, total)


@dataclass(frozen=True)
class LogisticScorePass(DesignedPass):
    """Over the held-out rows: ``core.scores.ClassScores`` of a classification of mean (M, C) and roots (C, M, M) of Σ.

    With ``moderate`` the linear predictors are moderated by their variances first. ``codes`` (K',) are the codes that
    the fit has for the codes 0 … K'−1 of the data; None where they are the same.
    """

    name: ClassVar[str] = "held-out"
    held_out: ClassVar[bool] = True
    design: Design
    mean: Float
    roots: Float
    likelihood: str
    moderate: bool
    codes: tuple[int, ...] | None = None

    def statistic(self, tile: TileRows) -> ClassScores:
        """Scores of the tile's rows."""
        f = np.empty((len(tile.X), self.mean.shape[1]))
        for panel, block in tile.panels(None, self.design):
            rows = slice(panel.rows[0] - tile.start, panel.rows[-1] - tile.start + 1)
            f[rows] = block @ self.mean
            if self.moderate:
                f[rows] = moderated(f[rows], variances(block, self.roots), LINKS[self.likelihood].moderation)
        codes = tile.t[:, 0].astype(np.int64)
        if self.codes is not None:
            codes = np.array(self.codes)[codes]
        # one ranking of a tile: sorting and joining those of its panels would take longer than their design
        return ClassScores.of(codes, probabilities(self.likelihood, f), f[:, 0] if f.shape[1] == 1 else None)
