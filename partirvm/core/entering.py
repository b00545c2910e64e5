"""Columns that may enter a fit: their sparsity s and quality q, what they gain, and the α at which they start."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas

from partirvm.core.posterior import Posterior
from partirvm.core.priors import FLAT, GammaDensity
from partirvm.core.shared_alpha import optimum

Float = NDArray[np.float64]

HOPE = 1e-3
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
    """Initial α of new columns: ``HOPE`` × the individual optimum, or × s if there is none. Any shape.

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
    return np.where(precision > ABSENT, HOPE * np.where(np.isfinite(best), best, s), 1.0)
