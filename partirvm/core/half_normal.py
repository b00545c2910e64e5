"""A half-normal prior with a precision of its own on each inverse length of a kernel, up to a bound.

A Gaussian kernel falls with feature j as its inverse length √γ_j. With s_j = √(γ_j/Σγ), as lengths matter relative to
one another (few rows hardly tell one width from a wider one, whose weights are larger; a prior on the absolute ones
would widen all together until the kernel sees nothing), the prior is p(s_j) ∝ √β_j exp(−½β_j s_j²), with the best
precision β_j ≤ 1/``LEAST``² (MacKay's automatic relevance determination; PFCVM has such a prior):

    −log p = log(s_j/``LEAST``) + ½   where s_j > ``LEAST``,      ½ (s_j/``LEAST``)²   below,

up to a constant: half a nat for each unit of log γ_j, as long as it is on. Unbounded precisions would pay for ever
lower γ_j, and for one that grows without need, as it lowers the shares of all others.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]

LEAST = 0.01
"""Inverse length, as a fraction of √Σγ, at which β_j is at its bound: that of a feature that is off."""


def half_normal(logs: Float) -> tuple[float, Float]:
    """log p up to a constant at log γ (d,), and its slopes in them (d,), which sum to zero.

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
