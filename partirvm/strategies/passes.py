"""Passes: what a strategy asks about rows, each answered by a statistic that is summed over tiles."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from partirvm.kernels.design import Design

Float = NDArray[np.float64]
Int = NDArray[np.int64]


@dataclass(frozen=True)
class GramPass:
    """What the columns of ``new`` add to those of ``kept``; answered by a ``core.statistics.GramBlock``.

    Over all rows, or over those of ``rows`` (row numbers, increasing). ``offset`` (M_kept, T) is that of the statistics
    to be extended. With ``diagonal`` the (P, P) block is left out but for its diagonal: a ``CrossBlock``.
    """

    kept: Design
    new: Design
    offset: Float
    diagonal: bool = False
    rows: Int | None = None


@dataclass(frozen=True)
class DesignPass:
    """Rows of the design itself, and of the target; answered by ``core.on_demand.DesignRows``.

    Over all rows, or over those of ``rows`` (row numbers, increasing).
    """

    design: Design
    rows: Int | None = None


@dataclass(frozen=True)
class ResidualPass:
    """Residuals of the mean μ (M, T); answered by a ``core.residuals.ResidualStatistics``.

    ``select`` rows of largest error are reported, none of those in ``exclude`` (sorted row numbers) among them. Over
    all rows, or over those of ``rows`` (row numbers, increasing).
    """

    design: Design
    mean: Float
    select: int = 0
    exclude: Int = field(default_factory=lambda: np.zeros(0, np.int64))
    rows: Int | None = None


@dataclass(frozen=True)
class LeaveOneOutPass:
    """Errors of rows left out of a fit with mean μ (M,), root (M, M) and β; answered by a ``core.left_out.LeftOut``.

    Over all rows.
    """

    design: Design
    mean: Float
    root: Float
    beta: float


@dataclass(frozen=True)
class ScorePass:
    """Over the held-out rows: ``core.residuals.Scores`` of a fit, in the target's own units.

    ``mean`` (M,), ``root`` (M, M) and ``noise_variance``; of T targets (M, T), (T, M, M) and (T,).
    """

    design: Design
    mean: Float
    root: Float
    noise_variance: float | Float


@dataclass(frozen=True)
class TargetScorePass(ScorePass):
    """The same of each target by itself: answered by ``core.residuals.TargetScores``."""


@dataclass(frozen=True)
class LogisticPass:
    """Log likelihood, gradient and curvature at weights ``mean`` (M, C); answered by a ``core.logistic.LogisticBlock``.

    Over all rows, or over those of ``rows`` (row numbers, increasing).
    """

    design: Design
    mean: Float
    likelihood: str
    rows: Int | None = None


@dataclass(frozen=True)
class SurprisePass:
    """Rows whose class the model holds for least probable; answered by a ``core.residuals.LargestErrors``.

    ``select`` rows of largest 1 − p_t are reported, none of those in ``exclude`` (sorted row numbers) among them. With
    a ``draw`` (two whole numbers, a seed) they are drawn at random instead, a row's chance in proportion to
    1 − p_t + ``floor``. Over all rows, or over those of ``rows`` (row numbers, increasing).
    """

    design: Design
    mean: Float
    likelihood: str
    select: int
    exclude: Int
    draw: tuple[int, int] | None = None
    floor: float = 0.0
    rows: Int | None = None


@dataclass(frozen=True)
class GainPass:
    """What s and q of the columns of ``pool`` need beside those of ``design`` at weights ``mean`` (M, C).

    Answered by a ``core.logistic.LogisticCross``. Over all rows, or over those of ``rows`` (row numbers, increasing).
    """

    design: Design
    mean: Float
    likelihood: str
    pool: Design
    rows: Int | None = None


@dataclass(frozen=True)
class LogisticScorePass:
    """Over all rows: ``core.scores.ClassScores`` of a classification with this mean (M, C), and roots (C, M, M) of Σ.

    With ``moderate`` the linear predictors are moderated by their variances first. ``codes`` (K',) are the codes that
    the fit has for the codes 0 … K'−1 of the data; None where they are the same.
    """

    design: Design
    mean: Float
    roots: Float
    likelihood: str
    moderate: bool
    codes: tuple[int, ...] | None = None


@dataclass(frozen=True)
class BendPass:
    """Φᵀc (M, C), an array: how log|H| changes with the weights ``mean`` (M, C) of classes (``core.tied_laplace``).

    ``covariance`` (C, M, M) is Σ. Over all rows, or over those of ``rows`` (row numbers, increasing).
    """

    design: Design
    mean: Float
    covariance: Float
    likelihood: str
    rows: Int | None = None


@dataclass(frozen=True)
class SlopePass:
    """Slopes of the evidence in the kernel's log parameters, an array (p,): Σ D ∘ ∂Φ/∂ log parameter.

    D is that of ``core.tied`` at μ (M, T), Σ (T, M, M) and β, or where ``likelihood`` is one of classes that of
    ``core.tied_laplace`` with ``shift`` (M, C). Over all rows, or over those of ``rows`` (row numbers, increasing).
    """

    design: Design
    mean: Float
    covariance: Float
    beta: float | Float = 1.0
    likelihood: str = "gaussian"
    shift: Float | None = None
    rows: Int | None = None


@dataclass(frozen=True)
class AugmentPass:
    """What extra columns have to do with all rows and a model of mean (M,); answered by ``core.augment.ExtraColumns``.

    ``extras`` are designs whose columns, G in all, follow each other. Each is evaluated and multiplied by itself, so
    that no column's bits depend on the designs beside its own.
    """

    design: Design
    mean: Float
    extras: tuple[Design, ...]


Pass: TypeAlias = (
    GramPass
    | DesignPass
    | ResidualPass
    | LeaveOneOutPass
    | ScorePass
    | LogisticPass
    | SurprisePass
    | GainPass
    | LogisticScorePass
    | BendPass
    | SlopePass
    | AugmentPass
)
