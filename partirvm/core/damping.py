"""How much of a change is made where changes overshoot: less after each reversal, more again while none comes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]

LEAST_SHARE = 2.0**-5
"""The least part of a change that is made."""

REGAIN = 1.25
"""Factor by which that part grows again while changes keep their direction."""


def next_share(drift: Float, last_drift: Float, last_share: Float) -> Float:
    """The part to be made of changes ``drift``, after those that were wanted last and the part that was made of them.

    All of one shape.

    >>> next_share(np.array([1.0, -1.0, 1.0]), np.array([1.0, 1.0, 2.0]), np.array([1.0, 1.0, 0.5])).tolist()
    [1.0, 0.5, 0.625]
    """
    return np.clip(np.where(drift * last_drift < 0, 0.5, REGAIN) * last_share, LEAST_SHARE, 1.0)
