"""Selection of the next candidates. Pure: row numbers in, row numbers out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partirvm.planning.cost import CandidateSearch

Float = NDArray[np.float64]
Int = NDArray[np.int64]
Codes = NDArray[np.integer[Any]]
Mask = NDArray[np.bool_]

SPREAD = 20
"""``error`` looks for the largest errors among about this × P random rows.

Among all rows of a large set the largest errors are outliers, or neighbours of one another. Where rows kept their order
a few tiles are no random sample, and all rows are looked at.
"""

POOL = 4
"""``gain`` ranks a random pool of this × P rows."""

SPAN = 1 << 16
"""Number of rows examined at a time."""


@dataclass(frozen=True)
class Selection:
    """How the working set chooses candidates: random rows, or by what the attributes say.

    ``by_error`` takes the rows of largest error, ``by_gain`` those of largest evidence gain in a random pool, and
    ``weighs_all`` those of largest weight in a fit of all rows together (``strategies.active_set``).
    """

    name: str
    by_error: bool = False
    by_gain: bool = False
    weighs_all: bool = False

    def candidate_search(
        self, partition_size: int, n_rows: int, n_candidates: int, *, shuffled: bool
    ) -> CandidateSearch:
        """The rows or columns that the selection evaluates, for planning."""
        if self.by_error:
            return CandidateSearch(rows=min(SPREAD * partition_size, n_rows) if shuffled else n_rows)
        return CandidateSearch(pool=min(POOL * partition_size, n_candidates) if self.by_gain else 0)


RANDOM = Selection("random")

SELECTIONS = {
    each.name: each
    for each in (
        Selection("error", by_error=True),
        RANDOM,
        Selection("gain", by_gain=True),
        Selection("map-weight", weighs_all=True),
    )
}
"""Every selection by name."""


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


def stratified_rows(
    codes: Codes,
    n_classes: int,
    used: Int,
    count: int,
    *,
    seed: int,
    draw: int,
    shuffled: bool,
    even: float,
    least: int = 1,
) -> Int:
    """``count`` rows outside ``used`` (sorted), or all that are left, increasing, of every class that has some left.

    ``codes`` (N,) are the classes' of all rows. A part ``even`` of the rows is dealt to classes alike, the rest in
    proportion; ``least`` go to each class that has them, and fewer classes than there are take turns from draw to
    draw. Where the data were shuffled at ingest the rows of a class are taken in order, from a place that moves on with
    ``draw``, so that few tiles are read.
    """
    free = np.ones(len(codes), dtype=bool)
    free[used] = False
    sizes = np.array([np.count_nonzero((codes == k) & free) for k in range(n_classes)], dtype=np.int64)
    turn = draw * count % n_classes
    shares = np.roll(quotas(np.roll(sizes, -turn), count, even, least), turn)
    chosen = []
    for k, (size, share) in enumerate(zip(sizes.tolist(), shares.tolist(), strict=True)):
        if shuffled:
            ranks = (draw * share + np.arange(share, dtype=np.int64)) % max(size, 1)
        else:
            ranks = np.random.default_rng((seed, draw, k)).choice(size, size=share, replace=False)
        chosen.append(ranked(codes == k, np.sort(ranks), free))
    return np.sort(np.concatenate(chosen))


def ranked(members: Mask, ranks: Int, free: Mask | None = None) -> Int:
    """Positions of those members (N,) that are free and have these ranks (k,), increasing, among such.

    All positions of a large set would take 8 bytes each, where the codes of all rows take one.

    >>> ranked(np.array([True, False, True, True]), np.array([0, 2])).tolist()
    [0, 3]
    """
    found = [np.zeros(0, np.int64)]
    before = 0
    for start in range(0, len(members), SPAN):
        span = slice(start, start + SPAN)
        here = members[span] if free is None else members[span] & free[span]
        count = int(np.count_nonzero(here))
        wanted = ranks[np.searchsorted(ranks, before) : np.searchsorted(ranks, before + count)]
        if len(wanted):
            found.append(start + np.flatnonzero(here)[wanted - before])
        before += count
    return np.concatenate(found)


def quotas(sizes: Int, count: int, even: float, least: int) -> Int:
    """How many of ``count`` rows each class gives, (K,), of those with so many rows; all of them if there are fewer.

    >>> quotas(np.array([900, 90, 10]), 100, 0.0, 5).tolist(), quotas(np.array([900, 90, 10]), 60, 0.5, 1).tolist()
    ([86, 9, 5], [37, 13, 10])
    """
    count = min(count, int(sizes.sum()))
    there = sizes > 0
    shares = (1 - even) * sizes / max(sizes.sum(), 1) + even * there / max(there.sum(), 1)
    found: Int = np.minimum(np.maximum(np.floor(count * shares).astype(np.int64), least * there), sizes)
    for _ in range(int(found.sum()) - count):
        found[np.argmax(found)] -= 1
    for _ in range(count - int(found.sum())):
        room = np.flatnonzero(found < sizes)
        found[room[np.argmax(count * shares[room] - found[room])]] += 1
    return found


def stratified_partition(codes: Codes, n_classes: int, count: int, number: int, *, seed: int, shuffled: bool) -> Int:
    """Rows of partition ``number`` of ``count``, increasing, with its part of the rows of each class.

    All partitions together hold every row once; they differ by one row of each class at most, and by one row in all:
    rows are dealt out one by one, class after class. Where the data were shuffled at ingest a partition's rows are
    neighbours among those of their class.

    >>> codes = np.array([0, 0, 1, 0, 0, 1, 0])
    >>> [stratified_partition(codes, 2, 2, number, seed=0, shuffled=True).tolist() for number in range(2)]
    [[0, 1, 2, 3], [4, 5, 6]]
    """
    parts, dealt = [], 0
    for k in range(n_classes):
        members = codes == k
        size = int(np.count_nonzero(members))
        more = (np.arange(number + 1) - dealt) % count < size % count
        first = number * (size // count) + np.count_nonzero(more[:number])
        ranks = np.arange(first, first + size // count + int(more[number]))
        if not shuffled:
            ranks = np.sort(np.random.default_rng((seed, k)).permutation(size)[ranks])
        parts.append(ranked(members, ranks))
        dealt += size
    return np.sort(np.concatenate(parts))


def stratified_length(n_rows: int, count: int, number: int) -> int:
    """Rows of that partition."""
    return n_rows // count + int(number < n_rows % count)


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


def distinct(points: Float, others: Float) -> Int:
    """Positions of the points (k, d) that equal no row of ``others`` (m, d) and no earlier point, in order."""
    _, first = np.unique(np.concatenate([others, points]), axis=0, return_index=True)
    return np.sort(first[first >= len(others)]) - len(others)
