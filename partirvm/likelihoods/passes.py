"""Passes: for numeric targets, Gram products, residuals, leave-one-out errors and scores; for
classes, the quadratic of the log likelihood, rows of improbable class, pool gains and scores; for
kernel learning, derivatives of the tied evidence.
"""

from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add
from typing import Any, Self

import numpy as np

from partirvm.core import tied
from partirvm.core.diagnostics import STATED_LEVELS
from partirvm.core.left_out import LeftOut, OwnColumns
from partirvm.core.link import LINKS, LogisticBlock, targets
from partirvm.core.local_quantiles import ends_at
from partirvm.core.ramp import LeftOutClasses
from partirvm.core.sampling import LargestErrors, drawn
from partirvm.core.scores import ClassScores, Scores
from partirvm.core.statistics import GramBlock, ResidualStatistics
from partirvm.kernels.design import TEMPER, Design
from partirvm.model import AnyModel, ClassModel, Model
from partirvm.spec.panel_pass import Panel, Pass, eligible
from partirvm.spec.problem import Draw
from partirvm.types import PANEL_ROWS, Float, Int

COPY = 1e-12
"""Relative distance from its peak within which a kernel value means that two rows are equal."""

FLOOR = 0.3
"""Classification candidates are drawn at random; in Newton fits, the probability is proportional to
1 − p of the row's class plus this constant. With 0, mislabelled rows are drawn; with large values,
arbitrary rows; intermediate values gave the highest evidence."""


def _targets(design: Design, panel: Panel, n_classes: int) -> Float:
    """Return the standardised targets (n, T) of a panel's rows or, for classes, their indicators
    (n, K)."""
    return targets(panel.t[:, 0], n_classes) if n_classes else design.scaling.targets(panel.t)


@dataclass(frozen=True)
class GramPass(Pass, name="gram", designs=("kept", "new")):
    """Pass for the Gram products of ``new`` columns with ``kept`` and ``new`` ones: a
    ``core.statistics.GramBlock``.

    Attributes:
        kept: the columns in the statistics to be extended
        new: the new columns
        offset: the offset of these statistics (M_kept, T)
        diagonal: True to compute only the diagonal of the products of ``new`` with itself
        n_classes: number of classes whose indicators are the targets, or 0
    """

    kept: Design
    new: Design
    offset: Float
    diagonal: bool = False
    n_classes: int = 0

    def of_panel(self, panel: Panel, kept: Float, new: Float) -> GramBlock:
        target = _targets(self.new, panel, self.n_classes)
        if self.offset.any():
            target = target - kept @ self.offset
        return GramBlock.of(kept, new, target, panel.weights, self.diagonal)


@dataclass(frozen=True)
class ResidualPass(Pass, name="residual", designs=("design",)):
    """Pass for the residuals of the mean μ (M, T), for classes the residuals of indicators: a
    ``core.statistics.ResidualStatistics``."""

    design: Design
    mean: Float
    n_classes: int = 0

    def of_panel(self, panel: Panel, block: Float) -> ResidualStatistics:
        r = _targets(self.design, panel, self.n_classes) - block @ self.mean
        weighted = r if panel.weights is None else r * panel.weights[:, None]
        return ResidualStatistics(np.einsum("nt,nt->t", r, weighted), block.T @ weighted)


@dataclass(frozen=True)
class ErrorPass(Pass, name="error", designs=("design",)):
    """Pass for the rows with the largest errors: a ``LargestErrors``.

    For numbers and class indicators, the error is |t − Φμ|. With the ``likelihood`` of a link, it
    is 1 − p_t, where p_t is the probability of the row's class.

    Attributes:
        design: Φ
        mean: μ (M, T)
        select: number of rows to find
        exclude: row numbers excluded from the search
        likelihood: name of a link, or ""
        draw: a seed to draw rows at random, with probabilities proportional to 1 − p_t + ``FLOOR``
            or, for indicators, to the squared error
        n_classes: number of classes whose indicators are the targets, or 0
    """

    design: Design
    mean: Float
    select: int
    exclude: Int = field(default_factory=lambda: np.zeros(0, np.int64))
    likelihood: str = ""
    draw: Draw = None
    n_classes: int = 0

    def of_panel(self, panel: Panel, block: Float) -> LargestErrors:
        errors = self._errors(panel, block @ self.mean)
        if self.draw is not None:
            chances = errors + FLOOR if self.likelihood else errors**2
            errors = drawn(chances, panel.rows, self.draw)
        mask = eligible(panel, self.exclude)
        return LargestErrors.of(errors[mask], panel.rows[mask], panel.X[mask], self.select)

    def _errors(self, panel: Panel, f: Float) -> Float:
        """Return the errors (n,) of a panel's rows with predictors f (n, T)."""
        if self.likelihood:
            log_p = LINKS[self.likelihood].log_probability(f, panel.t[:, 0])
            return np.asarray(-np.expm1(log_p))
        residuals: Float = _targets(self.design, panel, self.n_classes) - f
        if residuals.shape[1] == 1:
            return np.abs(residuals[:, 0])
        return np.asarray(np.sqrt(np.einsum("nt,nt->n", residuals, residuals)))


def _own(design: Design, panel: Panel) -> OwnColumns:
    """Return the panel's rows that are centres, by position, with the columns of each."""
    own_columns = []
    for place in np.flatnonzero(np.isin(panel.rows, design.rows)).tolist():
        columns = np.flatnonzero(design.rows == panel.rows[place])
        own_columns.append((place, design.n_leading + columns))
    return own_columns


def _copies(design: Design, block: Float) -> OwnColumns:
    """Return the rows of Φ that equal centres, by position, with the columns of each: two equal
    rows are equivalent to one row of weight two."""
    equal = block[:, design.n_leading :] >= (1.0 - COPY) * design.peaks()
    rows, columns = np.nonzero(equal)
    places, first = np.unique(rows, return_index=True)
    groups = np.split(design.n_leading + columns, first[1:])
    return list(zip(places.tolist(), groups, strict=False))


@dataclass(frozen=True)
class LeaveOneOutPass(Pass, name="residual", designs=("design",)):
    """Pass for the left-out errors of a fit with one target: a ``core.left_out.LeftOut``.

    Attributes:
        design: Φ
        mean: μ (M,)
        root: R (M, M), Σ = RRᵀ
        beta: noise precision
        least_square: a lower bound on the mean squared error
        target: number of the target
    """

    design: Design
    mean: Float
    root: Float
    beta: float
    least_square: float = 0.0
    target: int = 0

    def of_panel(self, panel: Panel, block: Float) -> LeftOut:
        design = self.design
        factor = None
        if design.weighs_rows:
            factor = np.asarray(design.noise_factor(panel.X)) ** (TEMPER - 1.0)
        left_out = LeftOut.of(
            block,
            design.scaling.targets(panel.t)[:, self.target],
            self.mean,
            self.root,
            self.beta,
            weights=panel.weights,
            own=_own(design, panel),
            peaks=np.concatenate([np.full(design.n_leading, np.inf), design.peaks()]),
            rows=panel.rows,
            factor=factor,
        )
        return replace(left_out, least_square=self.least_square)


@dataclass(frozen=True)
class LeftOutClassesPass(Pass, name="left-out", designs=("design",)):
    """Pass for the left-out predictors of a fit to indicators: a ``core.ramp.LeftOutClasses``.

    Attributes:
        design: Φ
        mean: μ (M, K)
        root: R (M, M), Σ = RRᵀ
        beta: noise precision
    """

    design: Design
    mean: Float
    root: Float
    beta: float

    def of_panel(self, panel: Panel, block: Float) -> LeftOutClasses:
        design = self.design
        return LeftOutClasses.of(
            block,
            panel.t[:, 0],
            self.mean,
            self.root,
            self.beta,
            weights=panel.weights,
            own=_copies(design, block) if design.kernel.local else _own(design, panel),
        )


@dataclass(frozen=True)
class ScorePass(Pass, name="held-out", held_out=True):
    """Pass over the held-out rows for scores in the target's units: a ``core.scores.Scores``, or
    ``ClassScores``.

    ``stated`` is the model with the predicted uncertainty; ``multiples`` are those of its intervals
    at the ``STATED_LEVELS`` (``Model.multiples``).
    """

    stated: AnyModel
    multiples: Any

    @classmethod
    def of(cls, model: AnyModel) -> Self:
        """Return the pass that scores a model's predictions."""
        return cls(model.predictive, model.multiples(STATED_LEVELS))

    def statistic(self, tile: Any) -> Any:
        """Return the scores of one tile; the moments of all its rows are computed together, as
        ``local.cells`` requires."""
        if not isinstance(self.stated, Model):
            return super().statistic(tile)
        mean, variance, _ = self.stated.moments(tile.X)
        rows = tile.start + np.arange(len(tile.X))
        target = self.stated.design.scaling.target
        scores = []
        for start in range(0, len(rows), PANEL_ROWS):
            at = slice(start, start + PANEL_ROWS)
            deviation = np.sqrt(variance[at])
            ends = ends_at(self.multiples, deviation.reshape(len(deviation), -1))
            scores.append(Scores.of(tile.t[at], mean[at], variance[at], rows[at], ends, target))
        return reduce(add, scores)

    def of_panel(self, panel: Panel) -> ClassScores:
        assert isinstance(self.stated, ClassModel)
        f, _ = self.stated.predictors(panel.X)
        ranked = None
        if f.shape[1] == 1:
            ranked = f[:, 0]
        elif f.shape[1] == 2:
            ranked = f[:, -1] - f[:, 0]
        probabilities = LINKS[self.stated.likelihood].probabilities(f)
        return ClassScores.of(panel.t[:, 0], probabilities, ranked, int(panel.rows[0]))


@dataclass(frozen=True)
class SlopePass(Pass, name="slope", designs=("design",)):
    """Pass for the evidence's derivatives (p,) with respect to log kernel parameters: Σ D ∘ ∂Φ/∂
    log parameter, with D as in ``core.tied``.

    Attributes:
        design: Φ
        mean: μ (M, T)
        covariance: Σ (T, M, M); (1, M, M) for class indicators, which share it
        beta: noise precision (T,), shared by class indicators
        n_classes: number of classes whose indicators are the targets, or 0
    """

    design: Design
    mean: Float
    covariance: Float
    beta: float | Float = 1.0
    n_classes: int = 0

    def of_panel(self, panel: Panel, block: Float) -> Float:
        count = len(self.covariance)
        t = np.split(_targets(self.design, panel, self.n_classes), count, axis=1)
        means = np.split(self.mean, count, axis=1)
        betas = np.atleast_1d(self.beta).tolist()
        slopes = (
            tied.slopes(block, t[k], means[k], self.covariance[k], betas[k], panel.weights)
            for k in range(count)
        )
        return self.design.gradient(panel.X, block, reduce(add, slopes))


@dataclass(frozen=True)
class InputGradientPass(Pass, name="input gradient", designs=("design",)):
    """Pass for Σ_n ∇f(x_n)∇f(x_n)ᵀ (d, d), with f = Φμ, in the kernel's coordinates, summed over
    the columns of μ.

    Its eigenvectors are the directions in which f changes most and least (Trivedi et al. 2014, "A
    consistent estimator of the expected gradient outer product").
    """

    design: Design
    mean: Float

    def of_panel(self, panel: Panel, block: Float) -> Float:
        weights = 1.0 if panel.weights is None else panel.weights[:, None]
        gradients = (self.design.input_gradient(panel.X, block, mean) for mean in self.mean.T)
        return reduce(add, (gradient.T @ (gradient * weights) for gradient in gradients))


@dataclass(frozen=True)
class LogisticPass(Pass, name="newton", designs=("design",)):
    """Pass for the log likelihood, gradient and curvature at weights ``mean`` (M, C): a
    ``core.link.LogisticBlock``."""

    design: Design
    mean: Float
    likelihood: str

    def of_panel(self, panel: Panel, block: Float) -> LogisticBlock:
        return LogisticBlock.of(self.likelihood, block, panel.t[:, 0], self.mean, panel.weights)
