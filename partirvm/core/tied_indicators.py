"""The tied RVM of class indicators: least squares in place of the softmax, to learn kernels for several classes.

The K targets of a row are 1 for its class and 0 otherwise. All targets share α and β, so that they share Σ, and one
factorisation serves them all: an evaluation costs little more than that of one regression target. With T (N, K) and
M = βΣΦᵀT the evidence is (Tipping 2001, eq. 15, summed over targets; W are the weights of rows)

    L(Φ) = ½ [ K(log|A| − log|H| + N log β − N log 2π) − β tr (T − ΦM)ᵀW(T − ΦM) − tr MᵀAM ],     H = βΦᵀWΦ + A,

its slopes in Φ are those of ``core.tied``, D = βW[(T − ΦM)Mᵀ − KΦΣ], and MacKay's updates are α ← KΣγ_i / ΣM_ik² and
β ← K(N − Σγ) / tr (T − ΦM)ᵀW(T − ΦM).

The widths that suit the indicators suit the softmax, and the evidence of the indicators has no approximation: the
Laplace approximation of the softmax omits blocks and depends on α that MacKay's updates miss.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from partirvm.core.posterior import factorise
from partirvm.core.statistics import GramStatistics
from partirvm.core.tied import Tied, retied
from partirvm.core.tied_sums import Reduced, sums_of
from partirvm.core.updates import NOISE_FLOOR

Float = NDArray[np.float64]


@dataclass(frozen=True)
class Indicators:
    """Posterior of K indicators: ``mean`` M (M, K), ``covariance`` Σ (M, M), ‖T − ΦM‖² and the log evidence in nats."""

    mean: Float
    covariance: Float
    residual: float
    log_evidence: float

    def determinedness(self, alpha: Float) -> Float:
        """Return γ (M,) for α (M,)."""
        return np.clip(1.0 - alpha * np.diagonal(self.covariance), 0.0, 1.0)


def posterior(statistics: GramStatistics, tied: Tied) -> Indicators:
    """Return the posterior at the given α and β. Raises ``NumericalError`` if H is not positive definite."""
    alpha, beta, K = tied.alphas(statistics.labels), float(tied.beta), statistics.n_targets
    H = beta * statistics.gram
    H.flat[:: len(H) + 1] += alpha
    factor, scale, _ = factorise(H)
    half = scale[:, None] * lapack.dtrtri(factor, lower=1)[0].T
    covariance = half @ half.T
    mean = beta * covariance @ statistics.projection
    square = float(statistics.sum_squares.sum())
    explained = float(np.sum(mean * (2 * statistics.projection - statistics.gram @ mean)))
    residual = max(square - explained, NOISE_FLOOR * square)
    log_det = 2 * (np.log(np.diagonal(factor)).sum() - np.log(scale).sum())
    log_evidence = 0.5 * (
        K * (np.log(alpha).sum() - log_det + statistics.n * np.log(beta / (2 * np.pi)) + statistics.log_weight)
        - beta * residual
        - alpha @ np.square(mean).sum(axis=1)
    )
    return Indicators(mean, covariance, residual, float(log_evidence))


def updates(statistics: GramStatistics, tied: Tied, count: int) -> tuple[Tied, Indicators]:
    """Apply ``count`` updates of α and β on these statistics; return α, β and the posterior."""
    K, reduced = statistics.n_targets, Reduced.of(statistics)
    floor = NOISE_FLOOR * float(statistics.sum_squares.sum()) / max(K * statistics.n, 1)
    for _ in range(count):
        sums = None if reduced is None else reduced.sums(tied.alpha, tied.leading, float(tied.beta))
        if sums is None:
            found = posterior(statistics, tied)
            gamma = found.determinedness(tied.alphas(statistics.labels))
            sums = sums_of(statistics, gamma, found.mean, found.residual)
        freedom = K * max(statistics.n - sums.kernels.determined - sums.leading.determined, 1.0)
        beta = 1.0 / max(sums.residual / freedom, floor)
        tied = retied(tied, sums.kernels.shared_by(K), sums.leading.shared_by(K), beta)
    return tied, posterior(statistics, tied)


def slopes(block: Float, target: Float, found: Indicators, beta: float, weights: Float | None) -> Float:
    """Return D (n, M), nats: the derivative of the evidence in each element of a block Φ (n, M); T is (n, K)."""
    D: Float = (found.covariance @ block.T).T  # stored column by column, the fastest layout for kernels
    D *= -beta * target.shape[1]
    D += ((beta * found.mean) @ (target - block @ found.mean).T).T
    if weights is not None:
        D *= weights[:, None]
    return D
