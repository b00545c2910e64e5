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
    """Return the positions, ``first`` or higher, of ``count`` columns, each the one whose deletion
    loses the least.

    ``alpha`` is (M,), ``mean`` (M, C) and ``roots`` (C, M, M), or (1, M, M) if all outputs share Σ;
    losses are totals.
    """
    mean, M = mean.copy(), len(mean)
    covariances = roots @ roots.transpose(0, 2, 1)
    variance = np.einsum("cmm->mc", covariances).copy()
    least = EPS * variance
    gone = np.empty((len(roots), count, M))
    order = np.arange(count)
    left = np.arange(M) >= first
    for k in range(count):
        losses = (np.log(alpha[:, None] * variance) + mean**2 / variance).sum(axis=1)
        i = order[k] = np.argmin(np.where(left, losses, np.inf))
        column = covariances[:, i] - (gone[:, None, :k, i] @ gone[:, :k])[:, 0]
        mean -= column.T * (mean[i] / variance[i])
        gone[:, k] = column / np.sqrt(variance[i])[:, None]
        variance = np.maximum(variance - gone[:, k].T ** 2, least)
        left[i] = False
    return order


def conditioned(
    alpha: Float, mean: Float, roots: Float, left: Int
) -> tuple[Float, Float, float, Float]:
    """Return the mean, roots, evidence loss (nats) and growth of β‖t − Φμ‖² (C,) if only the
    columns ``left`` remain.

    The arguments are those of ``least_loss``; the roots are upper triangular.
    """
    parts = []
    loss = 0.5 * mean.shape[1] * np.log(np.delete(alpha, left)).sum()
    for root, own in zip(roots, np.split(mean, len(roots), axis=1), strict=True):
        P = np.linalg.inv(root)
        Q, triangle = np.linalg.qr(P[:, left])
        inverse = np.linalg.inv(triangle)
        target = P @ own
        projected = Q.T @ target
        rest = ((target - Q @ projected) ** 2).sum(axis=0)
        loss += (
            own.shape[1] * np.log(np.abs([*root.diagonal(), *triangle.diagonal()])).sum()
            + 0.5 * rest.sum()
        )
        parts.append((inverse @ projected, inverse, rest))
    each, inverses, rests = zip(*parts, strict=True)
    means = np.hstack(each)
    return (
        means,
        np.stack(inverses),
        float(loss),
        np.hstack(rests) - alpha[left] @ means**2 + alpha @ mean**2,
    )
