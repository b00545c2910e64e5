"""The tied RVM, with one α for all kernel columns and one for all leading columns, and the gradient of its evidence.

Without pruning, the evidence is a smooth function of the kernel's parameters. Kernel learning maximises this function.
α and β follow MacKay's fixed point with sums over the tied columns in place of single columns (Tipping 2001, eqs.
16–18): γ_i = 1 − αΣ_ii, α ← Σγ_i / Σμ_i², β ← (N − Σγ)/‖t − Φμ‖². Kernel learning does not use the priors, the EM
updates and the fixed α of ``core.priors``. If the noise variance is given, kernel learning uses it.

**Slopes.** The evidence of Tipping's eq. 15, with W the weights of rows, is

    L(Φ) = ½ [ log|A| − log|H| + N log β + log|W| − N log 2π − β (t − Φμ)ᵀW(t − Φμ) − μᵀAμ ],     H = βΦᵀWΦ + A.

μ maximises the last two terms, so their derivative in μ is zero; d log|H| = 2β tr(Σ ΦᵀW dΦ) remains. Hence
dL = Σ_nm D_nm dΦ_nm with

    D = β W [ (t − Φμ)μᵀ − ΦΣ ],

and ∂L/∂ log θ = Σ_nm D_nm ∂Φ_nm/∂ log θ. This is a sum over rows, which a pass computes by weighting the gradient of
the kernel with D. For several targets D is the sum over targets, each with separate t, μ, Σ and β.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from partirvm.core.posterior import AnyPosterior, any_posterior
from partirvm.core.statistics import GramStatistics
from partirvm.core.updates import ALPHA_FLOOR, NOISE_FLOOR

Float = NDArray[np.float64]
Int = NDArray[np.int64]

ALPHA_CEILING = 1e5
"""Maximum α, as a multiple of the columns' largest data precision: larger values could hardly decrease again."""


@dataclass(frozen=True)
class Tied:
    """α of all kernel columns, α of the leading columns, and the noise precision β, which is (T,) for several targets.

    β is 1 for classification.
    """

    alpha: float
    leading: float
    beta: float | Float = 1.0

    def alphas(self, labels: Int) -> Float:
        """Return α of the columns with these labels, (M,)."""
        return np.where(labels < 0, self.leading, self.alpha)


@dataclass(frozen=True)
class Held:
    """α (M,) of each column and β, fixed at the values of an earlier fit."""

    alpha: Float
    beta: float | Float


@dataclass(frozen=True)
class Noise:
    """Constraints of β: the ``target_variance``, which defines the noise floor, or a ``fixed`` value of β.

    For several targets both are arrays (T,).
    """

    target_variance: float | Float
    fixed: float | Float | None = None

    def precision(self, statistics: GramStatistics, old: AnyPosterior) -> float | Float:
        """Return MacKay's β, limited by the noise floor."""
        if self.fixed is not None:
            return self.fixed
        floor = NOISE_FLOOR * np.atleast_1d(self.target_variance)
        freedom = np.maximum(statistics.n - np.atleast_1d(old.determinedness.sum(axis=0)), 1.0)
        beta = np.minimum(freedom / np.maximum(np.atleast_1d(old.residual), floor * freedom), 1 / floor)
        return beta if isinstance(self.target_variance, np.ndarray) else float(beta[0])


def updates(statistics: GramStatistics, tied: Tied, count: int, noise: Noise) -> tuple[Tied, AnyPosterior]:
    """Apply ``count`` updates of α and β on these statistics, and return α, β and the posterior.

    An update takes M³ flops per target, and no pass. Raises ``NumericalError`` as ``posterior`` does.
    """
    labels, diagonal = statistics.labels, np.diagonal(statistics.gram)
    found = any_posterior(statistics, tied.alphas(labels), tied.beta)
    for _ in range(count):
        beta = noise.precision(statistics, found)
        precision = np.multiply.outer(diagonal, beta)
        tied = retied(tied, labels, found.determinedness, found.mean**2, precision, beta)
        found = any_posterior(statistics, tied.alphas(labels), tied.beta)
    return tied, found


def retied(
    tied: Tied, labels: Int, determinedness: Float, square: Float, precision: Float, beta: float | Float
) -> Tied:
    """Update α ← Σγ_i/Σμ_i² over the kernel columns, and over the leading columns.

    γ, μ² and the data precisions are (M,) or (M, C).
    """

    def ratio(columns: NDArray[np.bool_], before: float) -> float:
        if not columns.any():
            return before
        largest = float(precision[columns].max())
        if not largest > 0:
            return before
        total = float(square[columns].sum())
        alpha = float(determinedness[columns].sum()) / total if total > 0 else np.inf
        return float(np.clip(alpha, ALPHA_FLOOR * largest, ALPHA_CEILING * largest))

    kernels = labels >= 0
    return Tied(ratio(kernels, tied.alpha), ratio(~kernels, tied.leading), beta)


def slopes(block: Float, target: Float, mean: Float, covariance: Float, beta: float, weights: Float | None) -> Float:
    """Return D (n, M), nats: the derivative of the evidence in each element of a block Φ (n, M) of the design.

    ``target`` (n,), ``mean`` (M,) and ``covariance`` (M, M) are t, μ and Σ; ``weights`` (n,) are the row weights.
    """
    found: Float = (covariance @ block.T).T  # stored column by column, the fastest layout for kernels
    found *= -beta
    found += (beta * (target - block @ mean))[:, None] * mean
    if weights is not None:
        found *= weights[:, None]
    return found
