"""A random order of N rows in which any part is computed without the rest: no memory for the other rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Int = NDArray[np.int64]
Word = NDArray[np.uint64]

ROUNDS = 6
"""Rounds of the Feistel network; four are enough for a pseudorandom permutation (Luby & Rackoff 1988)."""


def random_order(n_rows: int, seed: int | tuple[int, ...], places: Int) -> Int:
    """Return the row at each of these ``places`` (k,) of a random order of the rows 0 … ``n_rows`` − 1.

    A Feistel network permutes the numbers below the next power of four; a number that is no row is permuted again until
    it is one (cycle walking, Black & Rogaway 2002). Time and memory are those of k numbers.

    >>> sorted(random_order(7, 0, np.arange(7)).tolist())
    [0, 1, 2, 3, 4, 5, 6]
    """
    half = max((max(n_rows - 1, 1).bit_length() + 1) // 2, 1)
    keys = np.random.default_rng(seed).integers(1 << 63, size=ROUNDS, dtype=np.uint64)
    found = np.asarray(places).astype(np.uint64)
    rest = np.arange(len(found))
    while len(rest):
        found[rest] = _permuted(found[rest], half, keys)
        rest = rest[found[rest] >= n_rows]
    return found.astype(np.int64)


def _permuted(values: Word, half: int, keys: Word) -> Word:
    """Apply the network to numbers of 2 × ``half`` bits."""
    width, mask = np.uint64(half), np.uint64((1 << half) - 1)
    left, right = values >> width, values & mask
    for key in keys:
        left, right = right, left ^ (_mixed(right + key) & mask)
    return (left << width) | right


def _mixed(x: Word) -> Word:
    """Scramble all bits: the finaliser of SplitMix64 (Steele, Lea & Flood 2014)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
