"""Passes of classification: the likelihood's quadratic, rows of improbable class, gains of a pool, scores.

Pass of class indicators, the targets (n, K) of kernel learning for several classes (``core.tied``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from partirvm.core.link import LINKS, LogisticBlock, LogisticCross, guesses, moderated, probabilities, targets
from partirvm.core.predictive import quadratic_forms
from partirvm.core.sampling import LargestErrors, drawn
from partirvm.core.scores import ClassScores
from partirvm.kernels.design import Design
from partirvm.likelihoods.base import Panel, Pass, TileRows, eligible

Float = NDArray[np.float64]
Int = NDArray[np.int64]


@dataclass(frozen=True)
class LogisticPass(Pass):
    """Pass for log likelihood, gradient and curvature at weights ``mean`` (M, C): a ``core.link.LogisticBlock``."""

    name: ClassVar[str] = "newton"
    design: Design
    mean: Float
    likelihood: str
    rows: Int | None = None

    def of_panel(self, panel: Panel, *blocks: Float) -> LogisticBlock:
        """Return the quadratic over the panel's rows."""
        (block,) = blocks
        return LogisticBlock.of(self.likelihood, block, panel.t[:, 0], self.mean, panel.weights)


@dataclass(frozen=True)
class MisclassificationPass(Pass):
    """Pass for the rows whose class has the smallest predicted probability p_t: a ``core.sampling.LargestErrors``.

    The result has the ``select`` rows of largest 1 − p_t outside ``exclude`` (sorted row numbers). With a ``draw`` (two
    integers, a seed) the rows are drawn at random instead, with probabilities proportional to 1 − p_t + ``floor``.
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

    def of_panel(self, panel: Panel, *blocks: Float) -> LargestErrors:
        """Return the selected rows of the panel."""
        (block,) = blocks
        keys = -np.expm1(LINKS[self.likelihood].log_probability(block @ self.mean, panel.t[:, 0]))
        if self.draw is not None:
            keys = drawn(keys + self.floor, panel.rows, self.draw)
        there = eligible(panel, self.exclude)
        return LargestErrors.of(keys[there], panel.rows[there], panel.X[there], self.select)


@dataclass(frozen=True)
class GainPass(Pass):
    """Pass for the sparsity and quality factors of the columns of ``pool``: a ``core.link.LogisticCross``.

    The factors are relative to the columns of ``design`` at weights ``mean`` (M, C).
    """

    name: ClassVar[str] = "gain"
    design: Design
    mean: Float
    likelihood: str
    pool: Design
    rows: Int | None = None

    def of_panel(self, panel: Panel, *blocks: Float) -> LogisticCross:
        """Return the products over the panel's rows."""
        kept, pool = blocks
        return LogisticCross.of(self.likelihood, kept, pool, panel.t[:, 0], self.mean, panel.weights)


@dataclass(frozen=True)
class LogisticScorePass(Pass):
    """Pass over the held-out rows for scores of a classification: a ``core.scores.ClassScores``.

    ``mean`` (M, C) are the weights, ``roots`` (C, M, M) are roots of Σ. With ``moderate`` the linear predictors are
    first moderated by their variances. ``codes`` (K',) are the class codes of the fit for the codes 0 … K'−1 of the
    data; None means that fit and data have equal codes.
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
        """Return scores of the tile's rows."""
        f = np.empty((len(tile.X), self.mean.shape[1]))
        for panel, block in tile.panels(None, self.design):
            rows = slice(panel.rows[0] - tile.start, panel.rows[-1] - tile.start + 1)
            f[rows] = block @ self.mean
            if self.moderate:
                variance = np.column_stack([quadratic_forms(block, root) for root in self.roots])
                f[rows] = moderated(f[rows], variance, LINKS[self.likelihood].moderation)
        codes = tile.t[:, 0].astype(np.int64)
        if self.codes is not None:
            codes = np.array(self.codes)[codes]
        # rank the whole tile at once: merging sorted panels would take longer than evaluating their design
        ranked = f[:, 0] if f.shape[1] == 1 else None
        return ClassScores.of(codes, probabilities(self.likelihood, f), ranked, tile.start)


@dataclass(frozen=True)
class IndicatorLossPass(Pass):
    """Pass for the sum of squared errors of the indicators at weights ``mean`` (M, K), and the number of wrong rows.

    A row of positive weight is wrong if its largest predicted indicator is that of another class. The result is (2,).
    """

    name: ClassVar[str] = "residual"
    design: Design
    mean: Float
    rows: Int | None = None

    def of_panel(self, panel: Panel, *blocks: Float) -> Float:
        """Return the sums over the panel's rows."""
        codes, found = panel.t[:, 0], blocks[0] @ self.mean
        squares = np.square(targets(codes, found.shape[1]) - found).sum(axis=1)
        wrong = guesses(found) != codes
        if panel.weights is None:
            return np.array([squares.sum(), wrong.sum()])
        return np.array([squares @ panel.weights, wrong[panel.weights > 0].sum()])
