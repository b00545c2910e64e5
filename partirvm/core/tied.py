"""The tied RVM, with one α for all kernel columns and one for all leading columns, and the gradient of its evidence.

Without pruning, the evidence is a smooth function of the kernel's parameters, which kernel learning maximises. α and β
follow MacKay's fixed point (Tipping 2001, eqs. 16–18), α ← Σγ_i / Σμ_i² over tied columns. Priors are not used.

**Slopes.** The evidence of Tipping's eq. 15, with W the weights of rows, is

    L(Φ) = ½ [ log|A| − log|H| + N log β + log|W| − N log 2π − β (t − Φμ)ᵀW(t − Φμ) − μᵀAμ ],     H = βΦᵀWΦ + A.

μ maximises the last two terms, so only d log|H| = 2β tr(Σ ΦᵀW dΦ) remains: dL = Σ_nm D_nm dΦ_nm with D = β W [ (t −
Φμ)μᵀ − ΦΣ ]. ∂L/∂ log θ = Σ_nm D_nm ∂Φ_nm/∂ log θ is a sum over rows, which a pass computes, and over targets.

**Sums.** The updates need only tr Σ, ‖μ‖² and ‖t − Φμ‖². Let k be the K kernel columns and l the J leading columns,
with α and b. One decomposition G_kk = VΛVᵀ serves all α and β: with B = VᵀG_kl, c = Vᵀp_k and the diagonal matrix R =
βΛ + αI,

    S = βG_ll + bI − β²BᵀR⁻¹B,             μ_l = βS⁻¹(p_l − βBᵀR⁻¹c),      Vᵀμ_k = βR⁻¹(c − Bμ_l),
    tr Σ_kk = tr R⁻¹ + β² tr (R⁻¹BS⁻¹BᵀR⁻¹),   tr Σ_ll = tr S⁻¹.

**Class indicators**: least squares in place of the softmax. The K targets of a row are 1 for its class and 0 otherwise.
They share α and β, and so Σ. With T (N, K) and M = βΣΦᵀT the slopes are D = βW[(T − ΦM)Mᵀ − KΦΣ], and the updates α ←
KΣγ_i / ΣM_ik² and β ← K(N − Σγ) / tr (T − ΦM)ᵀW(T − ΦM). Widths that suit the indicators suit the softmax.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from partirvm.core.posterior import Posterior, factorise, posterior, require_positive, root_of
from partirvm.core.statistics import EPS, GramStatistics
from partirvm.core.updates import ALPHA_FLOOR, NOISE_FLOOR
from partirvm.types import Float, Int

ALPHA_CEILING = 1e5
"""Maximum α, as a multiple of the columns' largest data precision: larger values could hardly decrease again."""


@dataclass(frozen=True)
class Tied:
    """α of all kernel columns, α of the leading columns, and the noise precision β, (T,) for several targets."""

    alpha: float
    leading: float
    beta: float | Float = 1.0

    def alphas(self, labels: Int) -> Float:
        """Return α of the columns with these labels, (M,)."""
        return np.where(labels < 0, self.leading, self.alpha)


Sums: TypeAlias = tuple[Float, Float, float]
"""Σγ (2,), Σμ² (2,) over the kernel columns and over the leading ones, ‖t − Φμ‖²; the last two over all targets."""


def reduction(statistics: GramStatistics) -> Callable[[float, float, float, slice], Sums]:
    """Rotate the kernel columns by V; return a function of α, b, β and a range of targets that computes their sums.

    The statistics have the offset 0. Raises ``NumericalError`` if they are not finite, the function as ``factorise``.
    """
    kernels, gram = statistics.labels >= 0, statistics.gram
    require_positive(1.0 + statistics.gram.diagonal())
    eigenvalues, V = np.linalg.eigh(gram[np.ix_(kernels, kernels)])
    eigenvalues = np.maximum(eigenvalues, 0.0)
    B, rotated = V.T @ gram[np.ix_(kernels, ~kernels)], V.T @ statistics.projection[kernels]
    corner, size = gram[np.ix_(~kernels, ~kernels)], np.array([kernels.sum(), (~kernels).sum()])

    def sums(alpha: float, leading: float, beta: float, targets: slice) -> Sums:
        c, p = rotated[:, targets], statistics.projection[~kernels][:, targets]
        R = beta * eigenvalues + alpha
        X = beta * B / R[:, None]
        root = root_of(*factorise(beta * (corner - B.T @ X) + leading * np.eye(len(corner))))
        covariance = root @ root.T
        mean = beta * covariance @ (p - X.T @ c)
        own = beta * (c - B @ mean) / R[:, None]
        squares = float(statistics.sum_squares[targets].sum())
        explained = float(np.sum(own * (2 * c - eigenvalues[:, None] * own - 2 * B @ mean)))
        explained += float(np.sum(mean * (2 * p - corner @ mean)))
        traces = np.array([np.sum(1.0 / R) + np.sum(covariance * (X.T @ X)), np.trace(covariance)])
        square = np.array([np.sum(own**2), np.sum(mean**2)])
        determined = np.clip(size - np.array([alpha, leading]) * traces, 0.0, size)
        return determined, square, max(squares - explained, EPS * squares)

    return sums


def updates(
    statistics: GramStatistics,
    tied: Tied,
    count: int,
    target_variance: float | Float | None = None,
    fixed: float | Float | None = None,
) -> tuple[Tied, Posterior]:
    """Apply ``count`` updates of α and β on these statistics, and return α, β and the posterior.

    ``target_variance`` defines the noise floor, ``fixed`` is a given β; both (T,) for several targets. Without a
    ``target_variance`` the targets are class indicators, which share β. Raises ``NumericalError``.
    """
    T, shared = len(statistics.sum_squares), target_variance is None
    size = T if shared else 1
    if target_variance is None:
        target_variance = float(statistics.sum_squares.mean()) / max(statistics.n, 1)
    floor, sums = NOISE_FLOOR * np.atleast_1d(target_variance), reduction(statistics)
    kernels = statistics.labels >= 0
    largest = np.array([statistics.gram.diagonal()[group].max(initial=0.0) for group in (kernels, ~kernels)])
    for _ in range(count):
        betas = np.atleast_1d(tied.beta).tolist()
        found = [sums(tied.alpha, tied.leading, beta, slice(k * size, (k + 1) * size)) for k, beta in enumerate(betas)]
        beta = tied.beta
        if fixed is None:
            freedom = size * np.maximum(statistics.n - np.array([each[0].sum() for each in found]), 1.0)
            residual = np.array([each[2] for each in found])
            limited = freedom / np.maximum(residual, floor * freedom)
            beta = limited if isinstance(target_variance, np.ndarray) else float(limited[0])
        bound = np.max(beta) * largest
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = size * sum(each[0] for each in found) / sum(each[1] for each in found)
        ratio = np.clip(np.where(np.isnan(ratio), np.inf, ratio), ALPHA_FLOOR * bound, ALPHA_CEILING * bound)
        alpha, leading = np.where(bound > 0, ratio, [tied.alpha, tied.leading]).tolist()
        tied = Tied(alpha, leading, beta)
    return tied, posterior(statistics, tied.alphas(statistics.labels), tied.beta)


def slopes(block: Float, target: Float, mean: Float, covariance: Float, beta: float, weights: Float | None) -> Float:
    """Return D (n, M), nats, of a block Φ (n, M) of the design and K targets that share Σ (M, M) and β.

    ``target`` is (n, K), ``mean`` (M, K), and ``weights`` (n,) are the row weights.
    """
    scaled = -beta * target.shape[1] * covariance
    found: Float = (scaled @ block.T).T  # stored column by column, the fastest layout for kernels
    found += (mean @ (beta * (target - block @ mean)).T).T
    if weights is not None:
        found *= weights[:, None]
    return found
