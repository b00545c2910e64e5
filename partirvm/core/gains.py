"""Columns that may enter or leave a fit: what they gain, and the α at which they start; also for several targets.

The evidence of T targets with a shared α_i is a sum of Tipping & Faul's terms (2003, eq. 18), one for each target,

    ℓ(α) = Σ_τ ½ [ log α − log(α + s_τ) + q_τ²/(α + s_τ) ],

and with γ_τ = s_τ/(α + s_τ), μ_τ = q_τ/(α + s_τ) its slope is dℓ/dα = ½ [ Σγ_τ/α − Σμ_τ² ], so that MacKay's fixed
point is α = Σγ_τ / Σμ_τ², and a step towards this point always increases ℓ. As α → ∞, ℓ(α) → ½ Σ(q_τ² − s_τ)/α: with
Σq² > Σs the optimal α is finite. The converse holds for one target only. With several ℓ can have a peak above zero
although Σq² ≤ Σs: one target needs the column, and another target with large s does not. So a column *fails* only if
Σq² ≤ Σs and ℓ(α) ≤ 0 at the current α. Deleting it changes the evidence by −ℓ(α) ≥ 0.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas

from partirvm.core.posterior import Posterior
from partirvm.core.priors import FLAT, GammaDensity

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


JOINING = 1e-3
"""Columns that join together start at this fraction of their individually optimal α.

Columns are similar, and several share what one of them explains alone: started at their own optimal α they eliminate
each other before the noise estimate has decreased. With many candidates at once the difference is hundreds of nats
(Friedman#1, all of 3,000 rows: evidence −5,653 against −4,831).
"""

ABSENT = 1e-200
"""A column whose βφᵀφ is below this counts as zero."""

DEPENDENT = 1e-8
"""A new column whose s is below this fraction of its βG_ii counts as a copy of present columns."""


def sparsity_quality(
    old: Posterior, beta: float, offset: Float, cross: Float, diagonal: Float, projection: Float
) -> tuple[Float, Float]:
    """s = βφᵀφ − β²φᵀΦΣΦᵀφ and q = βφᵀ(t − Φμ) from cross (M, P), diagonal (P,) and projection (P,), one target."""
    if not len(cross):
        return beta * diagonal, beta * projection
    # the transposed problem: rows of ``cross`` are columns for BLAS, so nothing is copied
    whitened = blas.dtrsm(1.0, old.factor, (old.scale[:, None] * cross).T, side=1, lower=1, trans_a=1, overwrite_b=1)
    s = beta * diagonal - beta**2 * np.einsum("pm,pm->p", whitened, whitened)
    q = beta * (projection - cross.T @ (old.mean - offset))
    return np.maximum(s, 0.0), q


def evidence_gain(s: Float, q: Float, prior: GammaDensity = FLAT.alpha) -> Float:
    """Gain of log evidence when a column with these s and q joins at its best α: ½[q²/s − 1 − log(q²/s)], or 0.

    Tipping & Faul (2003), eq. 27 at α = s²/(q² − s); with a prior of α from ``core.priors``. Nats, any shape.
    """
    return prior.gain(s, q**2)


def joint_gain(s: Float, q: Float, prior: GammaDensity = FLAT.alpha) -> Float:
    """The same for each column (P,), if several targets share its α, from s and q (P, T)."""
    return optimum(s, q)[1] if s.ndim == 2 else evidence_gain(s, q, prior)


def entry_precision(s: Float, q: Float, precision: Float, prior: GammaDensity = FLAT.alpha) -> Float:
    """Initial α of new columns: ``JOINING`` × the individual optimum, or × s if there is none. Any shape.

    The optimum is s²/(q² − s) if q² > s (Tipping & Faul 2003, eq. 20), or from the prior. A column without gain alone
    may gain together with others: a small α makes its prior weak at first. ``precision`` is βφᵀφ: the s of a near-copy
    of present columns is a rounding error, and is raised to a fraction of it.
    """
    s = np.maximum(s, DEPENDENT * precision)
    return _entry(prior.peak(s, q**2), s, precision)


def joint_entry(s: Float, q: Float, precision: Float, prior: GammaDensity = FLAT.alpha) -> Float:
    """The same for each column (P,), if several targets share its α, from s, q and precision (P, T)."""
    if s.ndim == 1:
        return entry_precision(s, q, precision, prior)
    s = np.maximum(s, DEPENDENT * precision)
    return _entry(optimum(s, q)[0], s.mean(axis=1), precision.max(axis=1))


def _entry(best: Float, s: Float, precision: Float) -> Float:
    # a centre far from every row has a column of zeros: any α is valid, the first step prunes it
    return np.where(precision > ABSENT, JOINING * np.where(np.isfinite(best), best, s), 1.0)
