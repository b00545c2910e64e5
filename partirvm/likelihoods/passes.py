"""Passes of regression: Gram products, residuals, leave-one-out errors, scores.

Pass of kernel learning: derivatives of the tied evidence by the kernel's parameters.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from partirvm.core import tied
from partirvm.core.diagnostics import MOST_TARGETS, NORMAL_MULTIPLES, STATED_LEVELS, NumberDiagnostics
from partirvm.core.left_out import LeftOut
from partirvm.core.predictive import ExtraColumns, quadratic_forms
from partirvm.core.sampling import LargestErrors
from partirvm.core.scores import LEVELS, NORMAL, Scores, TargetScores
from partirvm.core.statistics import CrossBlock, GramBlock, ResidualStatistics
from partirvm.kernels.design import TEMPER, Design
from partirvm.likelihoods.base import Panel, Pass, Rows, TileRows, eligible
from partirvm.model import Model
from partirvm.types import PANEL_ROWS

Float = NDArray[np.float64]
Int = NDArray[np.int64]


@dataclass(frozen=True)
class GramPass(Pass):
    """Pass for Gram products of the columns of ``new`` with ``kept`` and ``new``: a ``core.statistics.GramBlock``.

    The pass reads the rows ``rows`` (row numbers, increasing), or all rows if None. ``offset`` (M_kept, T) is the
    offset of the statistics to be extended. With ``diagonal``, only the diagonal of the products of ``new`` with
    ``new`` is computed: the result is a ``CrossBlock``.
    """

    name: ClassVar[str] = "gram"
    kept: Design
    new: Design
    offset: Float
    diagonal: bool = False
    rows: Rows | None = None

    def of_panel(self, panel: Panel, *blocks: Float) -> GramBlock | CrossBlock:
        """Return the products over the panel's rows."""
        (kept, new), target = blocks, self.new.scaling.targets(panel.t)
        if self.offset.any():
            target = target - kept @ self.offset
        return (CrossBlock if self.diagonal else GramBlock).of(kept, new, target, panel.weights)


@dataclass(frozen=True)
class ResidualPass(Pass):
    """Pass for residuals of the mean μ (M, T): a ``core.statistics.ResidualStatistics``.

    The result includes the ``select`` rows of largest error outside ``exclude`` (sorted row numbers).
    The pass reads the rows ``rows`` (row numbers, increasing), or all rows if None.
    """

    name: ClassVar[str] = "residual"
    design: Design
    mean: Float
    select: int = 0
    exclude: Int = field(default_factory=lambda: np.zeros(0, np.int64))
    rows: Int | None = None

    def of_panel(self, panel: Panel, *blocks: Float) -> ResidualStatistics:
        """Return residual statistics of the panel's rows."""
        (block,) = blocks
        r = self.design.scaling.targets(panel.t) - block @ self.mean
        weighted = r if panel.weights is None else r * panel.weights[:, None]
        there = eligible(panel, self.exclude) if self.select else np.zeros(len(r), bool)
        errors = np.abs(r[:, 0]) if r.shape[1] == 1 else np.sqrt(np.einsum("nt,nt->n", r, r))
        return ResidualStatistics(
            n=len(r) if panel.weights is None else int((panel.weights > 0).sum()),
            sum_squares=np.einsum("nt,nt->t", r, weighted),
            projection=block.T @ weighted,
            largest=LargestErrors.of(errors[there], panel.rows[there], panel.X[there], self.select),
        )


@dataclass(frozen=True)
class LeaveOneOutPass(Pass):
    """Pass for errors of rows left out of a fit with mean μ (M,), root (M, M) and β: a ``core.left_out.LeftOut``.

    The pass reads all rows, or those of ``rows`` (row numbers, increasing). ``least_square`` is a known lower bound of
    the mean squared error of new rows.
    """

    name: ClassVar[str] = "residual"
    design: Design
    mean: Float
    root: Float
    beta: float
    rows: Int | None = None
    least_square: float = 0.0

    def of_panel(self, panel: Panel, *blocks: Float) -> LeftOut:
        """Return leave-one-out errors of the panel's rows."""
        (block,) = blocks
        design = self.design
        centres = np.intersect1d(panel.rows, design.rows)
        own = [
            (int(place), design.n_leading + np.flatnonzero(design.rows == row))
            for place, row in zip(np.searchsorted(panel.rows, centres), centres, strict=True)
        ]
        t = design.scaling.targets(panel.t)[:, 0]
        peaks = np.concatenate([np.full(design.n_leading, np.inf), design.peaks()])
        factor = None if design.noise is None else design.noise_factor(panel.X) ** (TEMPER - 1.0)
        found = LeftOut.of(block, t, self.mean, self.root, self.beta, panel.weights, own, peaks, panel.rows, factor)
        return replace(found, least_square=self.least_square)


@dataclass(frozen=True)
class ScorePass(Pass):
    """Pass over the held-out rows for scores in the units of the target: a ``core.scores.Scores``.

    ``mean`` is (M,), ``root`` (M, M) and ``noise_variance`` a scalar; for T targets (M, T), (T, M, M) and (T,).
    ``multiples`` are the half widths of intervals in standard deviations (``core.scores.LEVELS``), ``stated`` those
    of the diagnostics (``core.diagnostics.STATED_LEVELS``).
    """

    name: ClassVar[str] = "held-out"
    held_out: ClassVar[bool] = True
    design: Design
    mean: Float
    root: Float
    noise_variance: float | Float
    multiples: tuple[float, ...] = NORMAL
    stated: tuple[float, ...] = NORMAL_MULTIPLES

    @classmethod
    def of(cls, model: Model) -> Self:
        """The pass that scores a model by its stated uncertainty."""
        stated, variance = model.predictive, model.design.scaling.t_variance
        noise = stated.noise_variance / variance
        multiples = model.multiples(LEVELS), model.multiples(STATED_LEVELS)
        return cls(stated.design, stated.mean, stated.root, noise, *multiples)

    def of_panel(self, panel: Panel, *blocks: Float) -> Any:
        """Return scores of the panel's rows, combined over targets."""
        return Scores.over(self.scores(panel, *blocks))

    def scores(self, panel: Panel, block: Float) -> list[Scores]:
        """Return the scores of each target."""
        scaling, n_targets, found = self.design.scaling, len(self.design.scaling.t_scale), []
        means = self.mean.reshape(-1, n_targets)
        roots = self.root.reshape(n_targets, len(means), len(means))
        noise = np.atleast_1d(self.noise_variance)
        for target in range(n_targets):
            shift, scale, unit = (float(each[target]) for each in (scaling.t_shift, scaling.t_scale, scaling.t_unit))
            variance = quadratic_forms(block, roots[target])
            variance += noise[target] * self.design.noise_factor(panel.X)
            mean = shift + scale * (block @ means[:, target])
            variance *= float(scaling.t_variance[target])
            t = panel.t[:, target]
            scores = Scores.of(t, mean, variance, unit, self.multiples)
            if target < MOST_TARGETS:
                shown = NumberDiagnostics.of(t, mean, np.sqrt(variance) * unit, panel.rows, self.stated)
                scores = replace(scores, diagnostics=(shown,))
            found.append(scores)
        return found


@dataclass(frozen=True)
class TargetScorePass(ScorePass):
    """Pass over the held-out rows for separate scores of each target: a ``core.scores.TargetScores``."""

    def of_panel(self, panel: Panel, *blocks: Float) -> Any:
        """Return separate scores of each target over the panel's rows."""
        return TargetScores(tuple(self.scores(panel, *blocks)))


@dataclass(frozen=True)
class AugmentPass(Pass):
    """Pass for products of extra columns with a model's columns and residuals: a ``core.predictive.ExtraColumns``.

    ``mean`` (M,) is the mean of the weights. ``extras`` are designs with G columns in all. Each design is evaluated and
    multiplied separately, so that the bits of its columns do not depend on the other designs.
    """

    name: ClassVar[str] = "augment"
    design: Design
    mean: Float
    extras: tuple[Design, ...]

    def statistic(self, tile: TileRows) -> ExtraColumns:
        """Return the products over the tile's rows."""
        design, ends = self.design, np.cumsum([0, *(extra.n_columns for extra in self.extras)])
        widest = max((extra.n_columns for extra in self.extras), default=0)
        place = np.empty(min(PANEL_ROWS, len(tile.X)) * widest)
        total = ExtraColumns.none(int(ends[-1]), design.n_columns)
        for panel, block in tile.panels(None, design):
            residual = design.scaling.targets(panel.t)[:, 0] - block @ self.mean
            if panel.weights is not None:
                block *= panel.weights[:, None]
                residual *= panel.weights
            for extra, first, end in zip(self.extras, ends[:-1], ends[1:], strict=True):
                n, columns = len(panel.X), extra.n_columns
                F = extra.block(panel.X, place[: n * columns].reshape(columns, n).T)
                total.add_rows(slice(first, end), F, block, residual, panel.weights)
        return total


@dataclass(frozen=True)
class SlopePass(Pass):
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

    def of_panel(self, panel: Panel, *blocks: Float) -> Float:
        """Return the derivatives' part of the panel's rows."""
        (block,) = blocks
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
class InputGradientPass(Pass):
    """Pass for Σ_n ∇f(x_n)∇f(x_n)ᵀ (d, d), with f = Φμ, in the kernel's coordinates; summed over the columns of μ.

    Divided by N, this is the mean outer product of the gradient (Trivedi et al. 2014, "A consistent estimator of the
    expected gradient outer product"): its eigenvectors are the directions in which f changes most and least.
    """

    name: ClassVar[str] = "input gradient"
    design: Design
    mean: Float

    def of_panel(self, panel: Panel, *blocks: Float) -> Float:
        """Return the sum over the panel's rows."""
        (block,) = blocks
        d = panel.X.shape[1]
        total = np.zeros((d, d))
        for mean in self.mean.T:
            found = self.design.input_gradient(panel.X, block, mean)
            total += found.T @ (found if panel.weights is None else found * panel.weights[:, None])
        return total
