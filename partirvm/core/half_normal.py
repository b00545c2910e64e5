"""Half-normal priors of a kernel's widths, each with a separate, bounded precision.

``half_normal`` is this library's, on relative inverse length scales; ``half_normal_gamma`` is that of the TMB paper.

A Gaussian kernel has the inverse length scale √γ_j for feature j. The prior is on s_j = √(γ_j/Σγ), the inverse length
scales relative to each other. A prior on absolute inverse lengths would increase all length scales together until the
kernel is constant, because few rows hardly distinguish a wide kernel from a wider kernel with larger weights. The prior
is p(s_j) ∝ √β_j exp(−½β_j s_j²), with the optimal precision β_j ≤ 1/``LEAST``² (MacKay's automatic relevance
determination):

    −log p = log(s_j/``LEAST``) + ½   where s_j > ``LEAST``,      ½ (s_j/``LEAST``)²   below,

up to a constant: half a nat per unit of log γ_j while the feature is on. Without the bound, the prior would reward ever
smaller γ_j. The prior would also reward an unneeded growth of one γ_j, since this reduces the shares of all others.

**PFCVM's** prior (TMB paper, eq. 19) is on γ_j itself, for standardised features: γ_j ~ 2N(0, β_j⁻¹), γ_j ≥ 0, with the
optimal β_j ≤ ``BOUND``. It decreases with every γ_j, also if all grow together.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]

LEAST = 0.01
"""Inverse length scale, as a fraction of √Σγ, at which β_j is at its bound; the feature is then off."""

BOUND = float(np.exp(5.0))
"""Bound of the precision of γ_j in PFCVM's prior, the paper's ν."""


def half_normal(logs: Float) -> tuple[float, Float]:
    """Return log p at log γ (d,), up to a constant, and the gradient (d,), whose elements sum to zero.

    >>> value, slope = half_normal(np.log([4.0, 1.0, 1e-12]))  # shares 0.8 and 0.2; ½·2·0.8 − ½ = 0.3
    >>> round(value, 3), slope.round(3).tolist()[:2]
    (-9.294, [0.3, -0.3])
    """
    share = np.exp(logs - logs.max())
    share /= share.sum()
    above = 0.5 * np.log(np.maximum(share, np.finfo(float).tiny)) - np.log(LEAST)
    square = np.exp(2 * np.minimum(above, 0.0))
    value = -float(np.where(above > 0, above + 0.5, 0.5 * square).sum())
    pull = 0.5 * square
    return value, pull.sum() * share - pull


def half_normal_gamma(logs: Float) -> tuple[float, Float]:
    """Return PFCVM's log p at log γ (d,), up to a constant, and the gradient (d,).

    >>> value, slope = half_normal_gamma(np.log([1.0, 0.1, 1e-12]))
    >>> round(value, 3), slope.round(3).tolist()
    (-3.697, [-1.0, -1.0, -0.0])
    """
    above = np.maximum(logs, -700.0) + 0.5 * np.log(BOUND)
    square = np.exp(2 * np.minimum(above, 0.0))
    return -float(np.where(above > 0, above + 0.5, 0.5 * square).sum()), -square


PRIORS = {"half-normal": half_normal, "half-normal-gamma": half_normal_gamma}
"""Priors other than the flat one, by name."""
