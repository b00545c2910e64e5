"""The mean target of each level of a feature: whether neighbouring levels have similar means."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import fdtrc

Float = NDArray[np.float64]
Int = NDArray[np.int64]

SIGNIFICANT = 1e-6
"""The p-value of the test of equal means below which the levels differ."""


def disorder(codes: Int, t: Float) -> float:
    """Return the mean squared difference of neighbouring levels' mean targets, relative to twice their variance.

    ``codes`` (n,) number the levels from 0, and t (n,) is the target. The result is near 1 for levels in random order,
    and near 0 if neighbouring levels have similar means. Both mean squares are weighted by the rows of the levels, and
    the sampling variance of the means is subtracted from both. The result is 0 if the levels do not differ
    significantly (F test of equal means).
    """
    t = t - t.mean()
    counts = np.bincount(codes)
    means = np.bincount(codes, weights=t) / counts
    others, freedom = len(counts) - 1, len(t) - len(counts)
    noise = float(np.sum((t - means[codes]) ** 2)) / freedom
    among = float(counts @ means**2)
    if not noise or fdtrc(others, freedom, among / others / noise) > SIGNIFICANT:
        return 0.0
    pairs = 1 / (1 / counts[1:] + 1 / counts[:-1])
    neighbours = (float(pairs @ np.diff(means) ** 2) - others * noise) / float(pairs.sum())
    return neighbours / (2 * (among - others * noise) / len(t))
