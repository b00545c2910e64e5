"""Selection of rows: random streams, random draws tile by tile, a random order of all rows, and
largest errors.

A stream is keyed by the seed, a purpose and numbers such as the round. In a tile-by-tile draw, the
rows with the largest log(u)/w, where u is uniform in (0, 1) by row number, are a sample without
replacement with probability proportional to w (Efraimidis & Spirakis 2006).
"""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from partirvm.types import Float, Int

Word = NDArray[np.uint64]


class Purpose(IntEnum):
    """Purpose of random numbers. The values determine the draws and must not change."""

    SAMPLE = 1  # rows of a fit to a sample
    CANDIDATES = 2  # candidates of a round
    POOL = 3  # candidates, from which the largest gains are selected
    PARTITIONS = 4  # partitions of the rows
    CENTRES = 6  # centres of a tied RVM that learns the kernel
    PROCESS_ROWS = 7  # rows of an exact Gaussian process
    PROCESS_STARTS = 8  # initial widths in the search for such a process
    COMPARED_ROWS = 12  # rows on which other methods are trained
    DIAGNOSED_ROWS = 13  # rows that diagnostics show
    LEFT_OUT_ROWS = 14  # left-out rows that calibrate the intervals
    LEVELS = 15  # rows that determine the coordinates of levels
    RELEVANCE_ROWS = 16  # rows from which the relevance of features is computed
    LEVEL_FOLDS = 17  # rows that are left out when the effects of levels are learned
    TREE_FOLDS = 18  # rows that are left out when boosted trees are learned
    CORRECTION_FOLDS = 19  # rows that are left out when a correction of probabilities is learned


def stream(seed: int, purpose: Purpose, *numbers: int) -> np.random.Generator:
    """Return the random generator for a purpose and for ``numbers`` such as the round."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(purpose, *numbers)))


def draw_key(seed: int, purpose: Purpose, *numbers: int) -> tuple[int, int]:
    """Return the key of a draw by row number (see ``drawn`` and ``uniform``)."""
    first, second = (
        np.random.SeedSequence(seed, spawn_key=(purpose, *numbers))
        .generate_state(2, np.uint64)
        .tolist()
    )
    return first, second


def drawn(chances: Float, rows: Int, draw: tuple[int, int]) -> Float:
    """Return negative keys (n,) of rows with weights ``chances`` (n,) and row numbers (n,); −∞ for
    a weight of zero."""
    with np.errstate(over="ignore"):
        return np.log(uniform(rows, draw)) / np.maximum(chances, np.finfo(np.float64).tiny)


def uniform(rows: Int, draw: tuple[int, int]) -> Float:
    """Return a uniform number in (0, 1) per row number (n,), by two rounds of SplitMix64 (Steele et
    al. 2014)."""
    seed, number = np.asarray(draw, dtype=np.uint64)[:, None]
    state = _mixed(np.asarray(rows, dtype=np.uint64) + _mixed(_mixed(seed) + number))
    return (_mixed(state) >> np.uint64(11)).astype(np.float64) * 2.0**-53 + 2.0**-54


def random_order(n_rows: int, draws: np.random.Generator, places: Int) -> Int:
    """Return the row at each of these ``places`` (k,) in a random order of the rows 0 … ``n_rows``
    − 1.

    A Feistel network of six rounds permutes the numbers below the next power of four; a number that
    is not a row number is permuted again until it is one (cycle walking, Black & Rogaway 2002).
    """
    half = max((max(n_rows - 1, 1).bit_length() + 1) // 2, 1)
    keys = draws.integers(1 << 63, size=6, dtype=np.uint64)
    width = np.uint64(half)
    mask = np.uint64((1 << half) - 1)
    rows = np.asarray(places).astype(np.uint64)
    beyond = np.arange(len(rows))
    while len(beyond):
        high = rows[beyond] >> width
        low = rows[beyond] & mask
        for key in keys:
            high, low = low, high ^ (scrambled(low + key) & mask)
        rows[beyond] = (high << width) | low
        beyond = beyond[rows[beyond] >= n_rows]
    return rows.astype(np.int64)


def _mixed(state: Word) -> Word:
    return scrambled((state + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15))


def scrambled(x: Word) -> Word:
    """Scramble all bits with the finaliser of SplitMix64 (Steele, Lea & Flood 2014)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@dataclass(frozen=True)
class LargestErrors:
    """At most ``limit`` rows in order of decreasing error; ties are ordered by row number.

    Attributes:
        rows: row numbers (k,)
        errors: errors of these rows (k,)
        values: further data for these rows, such as their inputs (k, c)
        limit: maximum number of rows
    """

    rows: Int
    errors: Float
    values: Float
    limit: int = 10

    @classmethod
    def of(cls, errors: Float, rows: Int, values: Float, limit: int = 10) -> "LargestErrors":
        """Return the rows with the largest errors.

        Args:
            errors: errors of all rows (n,)
            rows: row numbers (n,)
            values: further data for these rows (n, c)
            limit: maximum number of rows
        """
        order = np.lexsort((rows, -errors))[:limit]
        return cls(rows[order], errors[order], values[order], limit)

    def __add__(self, other: "LargestErrors") -> "LargestErrors":
        errors = np.concatenate([self.errors, other.errors])
        rows = np.concatenate([self.rows, other.rows])
        return LargestErrors.of(
            errors, rows, np.concatenate([self.values, other.values]), self.limit
        )
