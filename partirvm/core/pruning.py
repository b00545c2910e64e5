"""Pruning from the posterior alone, without the rows of the fit.

At fixed α and β, the posterior without column i is N(μ, Σ) given w_i = 0, and the evidence falls by
the ratio of the densities of w_i = 0 after and before the data (Savage–Dickey). For columns that
are deleted one after another:

    μ ← μ − Σ_:i μ_i/Σ_ii,    Σ ← Σ − Σ_:i Σ_i:/Σ_ii,    loss = ½ [log(α_i Σ_ii) + μ_i²/Σ_ii].

μ minimises J(w) = β‖t − Φw‖² + wᵀAw, whose second derivative H = Σ⁻¹ loses the deleted rows and
columns. So with an upper triangular P, H = PᵀP, the new μ' is the least-squares solution of P_K μ'
= Pμ for the remaining columns K, and H' = P_KᵀP_K. Its residual is J(μ') − J(μ), from which the
errors follow, although tᵀt is unknown:

    β‖t − Φμ'‖² − β‖t − Φμ‖² = J(μ') − J(μ) − μ'ᵀAμ' + μᵀAμ.

The deletion order comes from the updates, O(M²) each; μ' and Σ' come from P, whose columns lose no
digits.
"""

import numpy as np

from partirvm.core.statistics import EPS
from partirvm.types import Float, Int


def least_loss(alpha: Float, mean: Float, roots: Float, first: int, count: int) -> Int:
    """Return the positions of the columns to delete, in order, each with the least loss.

    Args:
        alpha: α (M,)
        mean: μ (M, C)
        roots: R of the outputs (C, M, M), or (1, M, M) if all share Σ; losses are summed over
            outputs
        first: the first column that may be deleted
        count: number of columns to delete
    """
    mean = mean.copy()
    M = len(mean)
    covariances = roots @ roots.transpose(0, 2, 1)
    variance = np.einsum("cmm->mc", covariances).copy()
    least = EPS * variance
    moves = np.empty((len(roots), count, M))  # Σ_:i / √Σ_ii of the deleted columns
    order = np.arange(count)
    present = np.arange(M) >= first
    for k in range(count):
        losses = (np.log(alpha[:, None] * variance) + mean**2 / variance).sum(axis=1)
        i = np.argmin(np.where(present, losses, np.inf))
        order[k] = i
        present[i] = False
        column = covariances[:, i] - (moves[:, None, :k, i] @ moves[:, :k])[:, 0]
        mean -= column.T * (mean[i] / variance[i])
        moves[:, k] = column / np.sqrt(variance[i])[:, None]
        variance = np.maximum(variance - moves[:, k].T ** 2, least)
    return order


def conditioned(
    alpha: Float, mean: Float, roots: Float, left: Int
) -> tuple[Float, Float, float, Float]:
    """Return the mean, roots, evidence loss (nats) and growth of β‖t − Φμ‖² (C,) if only the
    columns in ``left`` remain.

    Args:
        alpha: α (M,)
        mean: μ (M, C)
        roots: upper triangular R of the outputs (C, M, M), or (1, M, M) if all share Σ
        left: positions of the remaining columns
    """
    means = []
    inverses = []
    rises = []
    loss = 0.5 * mean.shape[1] * np.log(np.delete(alpha, left)).sum()
    for root, outputs in zip(roots, np.split(mean, len(roots), axis=1), strict=True):
        P = np.linalg.inv(root)
        Q, triangle = np.linalg.qr(P[:, left])
        inverse = np.linalg.inv(triangle)
        target = P @ outputs
        projected = Q.T @ target
        rise = ((target - Q @ projected) ** 2).sum(axis=0)  # J(μ') − J(μ)
        log_dets = np.log(np.abs([*root.diagonal(), *triangle.diagonal()])).sum()
        loss += outputs.shape[1] * log_dets + 0.5 * rise.sum()
        means.append(inverse @ projected)
        inverses.append(inverse)
        rises.append(rise)
    moved = np.hstack(means)
    rise = np.hstack(rises) - alpha[left] @ moved**2 + alpha @ mean**2
    return moved, np.stack(inverses), float(loss), rise
