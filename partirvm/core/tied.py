"""The tied RVM, with one α for all kernel columns and one for all leading columns, and the gradient
of its evidence.

Without pruning, the evidence is a smooth function of the kernel parameters, which kernel learning
maximises. α and β follow MacKay's fixed point (Tipping 2001, eqs. 16–18), α ← Σγ_i / Σμ_i² over
tied columns. Priors are not used.

**Slopes.** The evidence (Tipping's eq. 15), with row weights W, is

    L(Φ) = ½ [ log|A| − log|H| + N log β + log|W| − N log 2π − β (t − Φμ)ᵀW(t − Φμ) − μᵀAμ ],     H
    = βΦᵀWΦ + A.

μ maximises the last two terms, so only d log|H| = 2β tr(Σ ΦᵀW dΦ) remains: dL = Σ_nm D_nm dΦ_nm
with D = β W [ (t − Φμ)μᵀ − ΦΣ ]. ∂L/∂ log θ = Σ_nm D_nm ∂Φ_nm/∂ log θ is a sum over rows, which a
pass computes, and over targets.

**Updates** each compute a posterior, M³ products. One eigendecomposition of ΦᵀΦ would serve them
all, but takes as long as five updates, and three suffice when a search changes the kernel slightly.

**Class indicators**: least squares in place of the softmax. The K targets of a row are 1 for its
class and 0 otherwise. They share α and β, hence Σ. With T (N, K) and M = βΣΦᵀT the slopes are D =
βW[(T − ΦM)Mᵀ − KΦΣ], and the updates α ← KΣγ_i / ΣM_ik² and β ← K(N − Σγ) / tr (T − ΦM)ᵀW(T − ΦM).
Widths that suit the indicators also suit the softmax.
"""

from dataclasses import dataclass

import numpy as np

from partirvm.core.posterior import Posterior, posterior
from partirvm.core.statistics import GramStatistics
from partirvm.core.updates import ALPHA_FLOOR, NOISE_FLOOR
from partirvm.types import Each, Float, Int

ALPHA_CEILING = 1e5
"""Maximum α, as a multiple of the columns' largest data precision: larger values could hardly
decrease again."""


@dataclass(frozen=True)
class Tied:
    """α of all kernel columns, α of the leading columns, and the noise precision β, (T,) for
    several targets."""

    alpha: float
    leading: float
    beta: Each = 1.0

    def alphas(self, labels: Int) -> Float:
        """Return α of the columns with these labels, (M,)."""
        return np.where(labels < 0, self.leading, self.alpha)


def updates(
    statistics: GramStatistics,
    tied: Tied,
    count: int,
    target_variance: Each | None = None,
    fixed: Each | None = None,
) -> tuple[Tied, Posterior]:
    """Apply ``count`` updates of α and β on these statistics, and return α, β and the posterior.

    ``target_variance`` defines the noise floor, ``fixed`` is a given β; both are (T,) for several
    targets. Without a ``target_variance``, the targets are class indicators, which share β. Raises
    ``NumericalError``.
    """
    size = 1
    squares = statistics.sum_squares
    if target_variance is None:
        size = len(squares)
        target_variance = float(squares.mean()) / max(statistics.n, 1)
    parts = statistics.labels >= 0, statistics.labels < 0
    largest = np.array([statistics.gram.diagonal()[part].max(initial=0.0) for part in parts])
    found = posterior(statistics, tied.alphas(statistics.labels), tied.beta)
    for _ in range(count):
        beta = tied.beta
        gammas = size * found.determinedness
        squares = found.mean**2
        if fixed is None:
            freedom = np.maximum(size * statistics.n - gammas.sum(axis=0), size)
            limited = freedom / np.maximum(found.residual, NOISE_FLOOR * target_variance * freedom)
            beta = limited if isinstance(target_variance, np.ndarray) else float(limited)
        bound = np.max(beta) * largest
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.array([gammas[part].sum() / squares[part].sum() for part in parts])
        ratio = np.clip(
            np.where(np.isnan(ratio), np.inf, ratio), ALPHA_FLOOR * bound, ALPHA_CEILING * bound
        )
        alpha, leading = np.where(bound > 0, ratio, [tied.alpha, tied.leading]).tolist()
        tied = Tied(alpha, leading, beta)
        found = posterior(statistics, tied.alphas(statistics.labels), tied.beta)
    return tied, found


def slopes(
    block: Float, target: Float, mean: Float, covariance: Float, beta: float, weights: Float | None
) -> Float:
    """Return D (n, M), in nats, for a design block Φ (n, M) and K targets that share Σ (M, M) and
    β.

    ``target`` is (n, K), ``mean`` is (M, K), and ``weights`` (n,) are the row weights. D has the
    floating-point precision of Σ: in single precision, its product takes half the time.
    """
    # one product of [Φ, r] with [−βKΣ, μ]ᵀ, in arrays stored column by column, like Φ
    left = np.concatenate([block.T, (beta * (target - block @ mean)).T], dtype=covariance.dtype)
    right = np.concatenate([-beta * target.shape[1] * covariance, mean.T], dtype=covariance.dtype)
    found: Float = (right.T @ left).T
    if weights is not None:
        found *= weights[:, None]
    return found
