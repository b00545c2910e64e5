"""Damping of updates that overshoot. The applied share of an update shrinks after a reversal and grows otherwise."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]

LEAST_SHARE = 2.0**-5
"""Minimum share of a change that is applied."""

REGAIN = 1.25
"""Factor by which the share grows while changes keep their direction."""


def next_share(drift: Float, last_drift: Float, last_share: Float) -> Float:
    """Return the share of the changes ``drift`` to apply.

    ``last_drift`` are the last proposed changes, and ``last_share`` is the share of these changes that was applied.

    All arrays have the same shape.

    >>> next_share(np.array([1.0, -1.0, 1.0]), np.array([1.0, 1.0, 2.0]), np.array([1.0, 1.0, 0.5])).tolist()
    [1.0, 0.5, 0.625]
    """
    return np.clip(np.where(drift * last_drift < 0, 0.5, REGAIN) * last_share, LEAST_SHARE, 1.0)
