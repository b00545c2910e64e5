"""The tied RVM: one α for all kernel columns, one for the bias, and the slopes of its evidence in the design.

With nothing to prune, its evidence is a smooth function of the kernel's parameters: this is what they are learned by.
α and β follow MacKay's fixed point with the sums over the tied columns in place of single ones (Tipping 2001,
eqs. 16–18): γ_i = 1 − αΣ_ii, α ← Σγ_i / Σμ_i², β ← (N − Σγ)/‖t − Φμ‖².

**Slopes.** The evidence of Tipping's eq. 15, with W the weights of rows, is

    L(Φ) = ½ [ log|A| − log|H| + N log β + log|W| − N log 2π − β (t − Φμ)ᵀW(t − Φμ) − μᵀAμ ],     H = βΦᵀWΦ + A.

μ maximises its last two terms, so that their change with μ is nothing; d log|H| = 2β tr(Σ ΦᵀW dΦ) is left. Hence
dL = Σ_nm D_nm dΦ_nm with

    D = β W [ (t − Φμ)μᵀ − ΦΣ ],

and ∂L/∂ log θ = Σ_nm D_nm ∂Φ_nm/∂ log θ, a sum over rows: a pass of any kernel's gradient weighted by D. Of several
targets D is the sum of theirs, each with its own t, μ, Σ and β.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from partirvm.core.posterior import AnyPosterior, any_posterior
from partirvm.core.statistics import BIAS, GramStatistics
from partirvm.core.updates import ALPHA_FLOOR, NOISE_FLOOR

Float = NDArray[np.float64]
Int = NDArray[np.int64]

ALPHA_CEILING = 1e5
"""Most α, as a multiple of the columns' largest data precision: what is as good as gone may still come back."""


@dataclass(frozen=True)
class Tied:
    """α of all kernel columns, α of the bias, and the noise precision β (1 for classes; of several targets (T,))."""

    alpha: float
    bias: float
    beta: float | Float = 1.0

    def alphas(self, labels: Int) -> Float:
        """α of the columns with these labels, (M,)."""
        return np.where(labels == BIAS, self.bias, self.alpha)


@dataclass(frozen=True)
class Held:
    """α (M,) of each column, and β, that stay as a fit has found them."""

    alpha: Float
    beta: float | Float


@dataclass(frozen=True)
class Noise:
    """What β is held to: the target's mean square ``power``, which its floor refers to, or ``fixed`` itself.

    Of several targets all are (T,).
    """

    power: float | Float
    fixed: float | Float | None = None

    def precision(self, statistics: GramStatistics, old: AnyPosterior) -> float | Float:
        """MacKay's β, not above that of the noise floor."""
        if self.fixed is not None:
            return self.fixed
        floor = NOISE_FLOOR * np.atleast_1d(self.power)
        freedom = np.maximum(statistics.n - np.atleast_1d(old.determinedness.sum(axis=0)), 1.0)
        beta = np.minimum(freedom / np.maximum(np.atleast_1d(old.residual), floor * freedom), 1 / floor)
        return beta if isinstance(self.power, np.ndarray) else float(beta[0])


def updates(statistics: GramStatistics, tied: Tied, count: int, noise: Noise) -> tuple[Tied, AnyPosterior]:
    """``count`` updates of α and β on these statistics, and the posterior there.

    M³ flops each and for each target, no pass. Raises ``NumericalError`` as ``posterior`` does.
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
    """α ← Σγ_i/Σμ_i² over the kernel columns, and over the bias, from γ, μ² and data precisions, (M,) or (M, C)."""

    def ratio(columns: NDArray[np.bool_], before: float) -> float:
        if not columns.any():
            return before
        largest = float(precision[columns].max())
        if not largest > 0:
            return before
        total = float(square[columns].sum())
        alpha = float(determinedness[columns].sum()) / total if total > 0 else np.inf
        return float(np.clip(alpha, ALPHA_FLOOR * largest, ALPHA_CEILING * largest))

    kernels = labels != BIAS
    return Tied(ratio(kernels, tied.alpha), ratio(~kernels, tied.bias), beta)


def slopes(block: Float, target: Float, mean: Float, covariance: Float, beta: float, weights: Float | None) -> Float:
    """D (n, M), nats: the change of the evidence with each element of a block Φ (n, M) of the design.

    ``target`` (n,), ``mean`` (M,) and ``covariance`` (M, M) are t, μ and Σ, ``weights`` (n,) those of rows.
    """
    found: Float = (covariance @ block.T).T  # stored column by column, as kernels like it
    found *= -beta
    found += (beta * (target - block @ mean))[:, None] * mean
    if weights is not None:
        found *= weights[:, None]
    return found
