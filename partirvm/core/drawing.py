"""Random draws of rows, tile by tile: the key of a row depends only on its number and the seed.

The keys sample without replacement with probability proportional to w (Efraimidis & Spirakis 2006): the rows with the
largest log(u)/w, u uniform in (0, 1), form the sample. A sum over tiles that keeps the largest keys finds this sample.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]
Int = NDArray[np.int64]


def drawn(chances: Float, rows: Int, draw: tuple[int, int]) -> Float:
    """Return negative keys (n,) of rows with weights ``chances`` ≥ 0 (n,) and row numbers (n,).

    The rows with the largest keys form the sample. Rows with weight zero have the lowest keys, which may be −∞.
    """
    with np.errstate(over="ignore"):
        keys: Float = np.log(uniform(rows, draw)) / np.maximum(chances, np.finfo(np.float64).tiny)
    return keys


def uniform(rows: Int, draw: tuple[int, int]) -> Float:
    """Return a uniform number in (0, 1) per row number (n,), by two rounds of SplitMix64 (Steele, Lea & Flood 2014).

    >>> bool(0.49 < uniform(np.arange(100_000), (0, 1)).mean() < 0.51)
    True
    """
    seed, number = np.asarray(draw, dtype=np.uint64)[:, None]
    state = _mixed(np.asarray(rows, dtype=np.uint64) + _mixed(_mixed(seed) + number))
    return (_mixed(state) >> np.uint64(11)).astype(np.float64) * 2.0**-53 + 2.0**-54


def _mixed(state: NDArray[np.uint64]) -> NDArray[np.uint64]:
    state = (state + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))
