"""Which rows become candidates next. Pure: row numbers in, row numbers out."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from partirvm.core.statistics import CrossBlock
from partirvm.core.updates import HyperState, evidence_gain, sparsity_quality

Float = NDArray[np.float64]
Int = NDArray[np.int64]

SELECTIONS = ("error", "random", "gain")

SPREAD = 20
"""``error`` looks for the largest errors among about this × P random rows.

Among all rows of a large set the largest errors are outliers, or neighbours of one another. Where rows kept their order
a few tiles are no random sample, and all rows are looked at.
"""

POOL = 4
"""``gain`` ranks a random pool of this × P rows."""


def random_rows(n_rows: int, used: Int, count: int, *, seed: int, draw: int, shuffled: bool) -> Int:
    """``count`` rows that are not in ``used`` (sorted), or all that are left, in increasing order.

    Where the data were shuffled at ingest, a run of neighbouring rows is a random sample and costs a tile or two to
    read; the run moves on with ``draw``. Elsewhere rows are drawn uniformly.
    """
    count = min(count, n_rows - len(used))
    window = min(count + len(used), n_rows)
    if shuffled:
        rows = (draw * count + np.arange(window, dtype=np.int64)) % n_rows
    else:
        rows = np.random.default_rng((seed, draw)).choice(n_rows, size=window, replace=False).astype(np.int64)
    unused = rows[~np.isin(rows, used, assume_unique=True)]
    return np.sort(unused[:count])


def partition_count(n_rows: int, partition_size: int) -> int:
    """⌈N/P⌉."""
    return -(-n_rows // partition_size)


def partition_rows(n_rows: int, count: int, number: int, *, seed: int, shuffled: bool) -> Int:
    """Rows of partition ``number`` of ``count``, increasing; all partitions together hold every row once.

    They differ by one row at most. Where the data were shuffled at ingest a partition is a run of neighbouring rows,
    elsewhere a part of one random permutation.

    >>> [partition_rows(7, 3, number, seed=0, shuffled=True).tolist() for number in range(3)]
    [[0, 1], [2, 3], [4, 5, 6]]
    """
    first, last = number * n_rows // count, (number + 1) * n_rows // count
    if shuffled:
        return np.arange(first, last, dtype=np.int64)
    return np.sort(_permutation(n_rows, seed)[first:last])


@lru_cache(maxsize=1)
def _permutation(n_rows: int, seed: int) -> Int:
    return np.random.default_rng(seed).permutation(n_rows).astype(np.int64)


def gain_ranking(fit: HyperState, block: CrossBlock) -> Int:
    """Positions of a pool's columns by falling evidence gain (Tipping & Faul 2003), ties by position.

    ``block`` may come from a sample of the rows; it is scaled up to all of them.
    """
    scale = fit.statistics.n / block.n if fit.statistics.n else 1.0
    s, q = sparsity_quality(
        fit.posterior,
        fit.beta,
        fit.statistics.offset[:, 0],
        block.cross * scale,
        block.diagonal * scale,
        block.projection[:, 0] * scale,
    )
    return np.argsort(-evidence_gain(s, q), kind="stable")


def distinct(points: Float, others: Float) -> Int:
    """Positions of the points (k, d) that equal no row of ``others`` (m, d) and no earlier point, in order."""
    _, first = np.unique(np.concatenate([others, points]), axis=0, return_index=True)
    return np.sort(first[first >= len(others)]) - len(others)
