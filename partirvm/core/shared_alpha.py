"""One α for the weights of a column in T targets: the evidence of α, the optimal α, and the gain of a column.

The evidence of T targets with a shared α_i is a sum of Tipping & Faul's terms (2003, eq. 18), one for each target,

    ℓ(α) = Σ_τ ½ [ log α − log(α + s_τ) + q_τ²/(α + s_τ) ],

and with γ_τ = s_τ/(α + s_τ), μ_τ = q_τ/(α + s_τ) its slope is

    dℓ/dα = ½ [ Σγ_τ/α − Σμ_τ² ],

so that MacKay's fixed point is α = Σγ_τ / Σμ_τ², and a step towards this point always increases ℓ. As α → ∞

    ℓ(α) → ½ Σ(q_τ² − s_τ)/α + O(1/α²):

so with Σq² > Σs the optimal α is finite. The converse holds for one target only. With several targets ℓ can have a peak
above zero although Σq² ≤ Σs: one target needs the column, and another target with large s does not. So a column *fails*
only if Σq² ≤ Σs and ℓ(α) ≤ 0 at the current α. The deletion of such a column changes the evidence by −ℓ(α) ≥ 0. For one
target the second condition follows from the first.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]

STEPS = 48
"""Number of points of the geometric grid on which the highest peak is searched."""

REFINEMENTS = 8
"""Number of fixed-point steps from the best grid point."""

TINY = 1e-200
"""Lower bound of the start of the grid."""

SPAN = 1e4
"""Ratio of the end of the grid to the largest s. Beyond the end, ℓ behaves as Σ(q² − s)/2α."""


def worth(s: Float, q: Float, alpha: Float) -> Float:
    """Return ℓ(α) (P,), nats, of columns with these s and q (P, T) at α (P,)."""
    total = alpha[:, None] + s
    with np.errstate(divide="ignore", invalid="ignore"):
        found: Float = 0.5 * (np.log(alpha[:, None] / total) + q**2 / total).sum(axis=1)
    return np.where(np.isfinite(alpha), found, 0.0)


def fails(s: Float, q: Float, alpha: Float) -> NDArray[np.bool_]:
    """Return True for columns (P,) at α (P,) whose deletion does not lower the evidence, given s and q (P, T)."""
    found: NDArray[np.bool_] = ((q**2).sum(axis=1) <= s.sum(axis=1)) & (worth(s, q, alpha) <= 0)
    return found


def fixed_point(determinedness: Float, mean: Float) -> Float:
    """Return MacKay's α (M,) from γ and μ (M, T): Σγ/Σμ² over targets; ∞ or NaN for columns of weight zero."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(determinedness.sum(axis=1) / (mean**2).sum(axis=1))


def optimum(s: Float, q: Float) -> tuple[Float, Float]:
    """Return the optimal α (P,) of columns with these s and q (P, T), and ℓ at the optimum (P,), nats.

    α is ∞ for columns without a peak above zero. Every peak lies above the smallest optimum of a single target,
    s²/(q² − s). The best grid point is refined.
    """
    excess = q**2 - s
    with np.errstate(divide="ignore", invalid="ignore"):
        low = np.where((excess > 0) & (s > 0), s**2 / excess, np.inf).min(axis=1).clip(TINY)
    best, alpha = np.zeros(len(s)), np.full(len(s), np.inf)
    there = np.flatnonzero(np.isfinite(low))
    low, high = low[there], np.maximum(SPAN * s[there].max(axis=1), 2 * low[there])
    places = [low * (high / low) ** (step / (STEPS - 1)) for step in range(STEPS)]
    values = np.array([worth(s[there], q[there], place) for place in places])
    found = np.array(places)[values.argmax(axis=0), np.arange(len(there))]
    for _ in range(REFINEMENTS):
        total = found[:, None] + s[there]
        moved = fixed_point(s[there] / total, q[there] / total)
        found = np.where(worth(s[there], q[there], moved) > worth(s[there], q[there], found), moved, found)
    value = worth(s[there], q[there], found)
    alpha[there], best[there] = np.where(value > 0, found, np.inf), np.maximum(value, 0.0)
    return alpha, best
