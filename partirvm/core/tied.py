"""The tied RVM, with one α for all kernel columns and one for all leading columns, and the gradient
of its evidence.

Without pruning, the evidence is a smooth function of the kernel parameters, which kernel learning
maximises. α and β follow MacKay's fixed point (Tipping 2001, eqs. 16–18), α ← Σγ_i / Σμ_i² over
tied columns. Priors are not used.

**Slopes.** The evidence (Tipping's eq. 15), with row weights W, is

    L(Φ) = ½ [ log|A| − log|H| + N log β + log|W| − N log 2π − β (t − Φμ)ᵀW(t − Φμ) − μᵀAμ ],
    H = βΦᵀWΦ + A.

μ maximises the last two terms, so only d log|H| = 2β tr(Σ ΦᵀW dΦ) remains: dL = Σ_nm D_nm dΦ_nm
with D = β W [ (t − Φμ)μᵀ − ΦΣ ]. ∂L/∂ log θ = Σ_nm D_nm ∂Φ_nm/∂ log θ is a sum over rows, which a
pass computes, and over targets.

**Updates** each compute a posterior, M³ products. One eigendecomposition of ΦᵀΦ would serve all
updates, but takes as long as five updates, and three suffice when a search changes the kernel
slightly.

**Class indicators**: least squares replaces the softmax. The K targets of a row are 1 for its class
and 0 otherwise. They share α and β, hence Σ. With T (N, K) and M = βΣΦᵀT the slopes are D = βW[(T −
ΦM)Mᵀ − KΦΣ], and the updates α ← KΣγ_i / ΣM_ik² and β ← K(N − Σγ) / tr (T − ΦM)ᵀW(T − ΦM). Widths
that suit the indicators also suit the softmax.
"""

from dataclasses import dataclass

import numpy as np

from partirvm.core.posterior import Posterior, posterior
from partirvm.core.statistics import GramStatistics
from partirvm.core.updates import ALPHA_FLOOR, NOISE_FLOOR
from partirvm.types import Bool, Each, Float, Int

ALPHA_CEILING = 1e5
"""Maximum α, as a multiple of the columns' largest data precision: larger values could hardly
decrease again."""


@dataclass(frozen=True)
class Tied:
    """The parameters of a tied RVM.

    Attributes:
        alpha: α shared by all kernel columns
        leading: α shared by the leading columns
        beta: noise precision β, (T,) for several targets
    """

    alpha: float
    leading: float
    beta: Each = 1.0

    def alphas(self, labels: Int) -> Float:
        """Return α for the columns with these labels, (M,)."""
        return np.where(labels < 0, self.leading, self.alpha)


def updates(
    statistics: GramStatistics,
    tied: Tied,
    count: int,
    target_variance: Each | None = None,
    fixed: Each | None = None,
) -> tuple[Tied, Posterior]:
    """Update α and β, and return both with the posterior. Raises ``NumericalError``.

    Args:
        statistics: statistics of all columns
        tied: initial α and β
        count: number of updates
        target_variance: defines the noise floor, (T,) for several targets; without it, the targets
            are class indicators, which share β
        fixed: given β, (T,) for several targets
    """
    sharing = 1  # number of targets that share Σ
    if target_variance is None:
        sharing = len(statistics.sum_squares)
        target_variance = float(statistics.sum_squares.mean()) / max(statistics.n, 1)
    current = posterior(statistics, tied.alphas(statistics.labels), tied.beta)
    for _ in range(count):
        beta = tied.beta
        if fixed is None:
            determined = (sharing * current.determinedness).sum(axis=0)
            freedom = np.maximum(sharing * statistics.n - determined, sharing)
            limited = freedom / np.maximum(
                current.residual, NOISE_FLOOR * target_variance * freedom
            )
            beta = limited if isinstance(target_variance, np.ndarray) else float(limited)
        kernels = statistics.labels >= 0
        alpha = _tied_alpha(statistics, current, sharing, beta, kernels, tied.alpha)
        leading = _tied_alpha(statistics, current, sharing, beta, ~kernels, tied.leading)
        tied = Tied(alpha, leading, beta)
        current = posterior(statistics, tied.alphas(statistics.labels), beta)
    return tied, current


def _tied_alpha(
    statistics: GramStatistics,
    current: Posterior,
    sharing: int,
    beta: Each,
    columns: Bool,
    default: float,
) -> float:
    """Return the next α of tied columns, Σγ_i / Σμ_i² within bounds.

    Args:
        statistics: statistics of all columns
        current: the posterior
        sharing: number of targets that share Σ
        beta: noise precision
        columns: True for the tied columns (M,)
        default: α of columns without data
    """
    bound = np.max(beta) * statistics.gram.diagonal()[columns].max(initial=0.0)
    if not bound > 0:
        return default
    with np.errstate(divide="ignore", invalid="ignore"):
        gammas = (sharing * current.determinedness)[columns].sum()
        ratio = gammas / (current.mean**2)[columns].sum()
    if np.isnan(ratio):
        ratio = np.inf
    return float(np.clip(ratio, ALPHA_FLOOR * bound, ALPHA_CEILING * bound))


def slopes(
    block: Float, target: Float, mean: Float, covariance: Float, beta: float, weights: Float | None
) -> Float:
    """Return D (n, M), in nats, of K targets that share Σ and β.

    D has the floating-point precision of Σ: in single precision, its product takes half the time.

    Args:
        block: design Φ at the rows (n, M)
        target: targets of the rows (n, K)
        mean: μ (M, K)
        covariance: Σ (M, M)
        beta: noise precision
        weights: row weights (n,), or None
    """
    # one product of [Φ, r] with [−βKΣ, μ]ᵀ, in arrays stored column by column, like Φ
    left = np.concatenate([block.T, (beta * (target - block @ mean)).T], dtype=covariance.dtype)
    right = np.concatenate([-beta * target.shape[1] * covariance, mean.T], dtype=covariance.dtype)
    D: Float = (right.T @ left).T
    if weights is not None:
        D *= weights[:, None]
    return D
