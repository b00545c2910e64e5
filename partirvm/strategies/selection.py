"""Selection of the next candidates: functions of row numbers, and the columns that a fit does not contain yet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partirvm.core.sampling import Purpose, random_order, stream
from partirvm.kernels import Several
from partirvm.kernels.design import Design
from partirvm.planning.cost import CandidateSearch

Float = NDArray[np.float64]
Int = NDArray[np.int64]
Codes = NDArray[np.integer[Any]]
Mask = NDArray[np.bool_]

SPREAD = 20
"""``error`` searches for the largest errors among about this × P random rows, where P is the partition size.

Among all rows of a large data set, the largest errors belong to outliers or to neighbouring rows. If the rows were not
shuffled at ingest, a few tiles are no random sample: the search then uses all rows.
"""

POOL = 4
"""``gain`` ranks a random pool of this × P rows, where P is the partition size."""

SPAN = 1 << 16
"""Number of rows that ``ranked`` processes at a time."""


@dataclass(frozen=True)
class Selection:
    """Method by which the working set chooses candidates; if all attributes are false, candidates are random rows.

    ``by_error`` chooses the rows of largest error, with ``everywhere`` among all rows. ``by_gain`` chooses the rows of
    largest evidence gain in a random pool.
    """

    name: str
    by_error: bool = False
    everywhere: bool = False
    by_gain: bool = False

    def candidate_search(
        self, partition_size: int, n_rows: int, n_candidates: int, *, shuffled: bool
    ) -> CandidateSearch:
        """Return the number of rows or columns that the selection evaluates, for planning."""
        if self.by_error:
            some = shuffled and not self.everywhere
            return CandidateSearch(rows=min(SPREAD * partition_size, n_rows) if some else n_rows)
        return CandidateSearch(pool=min(POOL * partition_size, n_candidates) if self.by_gain else 0)


RANDOM = Selection("random")

SELECTIONS = {
    each.name: each
    for each in (
        Selection("error", by_error=True),
        Selection("largest-error", by_error=True, everywhere=True),
        RANDOM,
        Selection("gain", by_gain=True),
    )
}
"""Selections by name."""


def random_rows(
    n_rows: int, used: Int, count: int, *, seed: int, draw: int, shuffled: bool, purpose: Purpose = Purpose.CANDIDATES
) -> Int:
    """Return ``count`` random rows outside ``used`` (sorted), or all remaining rows, in increasing order.

    If the data were shuffled at ingest, neighbouring rows are a random sample, and reading them takes one or two tiles.
    Each value of ``draw`` gives other neighbouring rows. Otherwise rows are drawn uniformly.
    """
    count = min(count, n_rows - len(used))
    window = min(count + len(used), n_rows)
    if shuffled:
        rows = (draw * count + np.arange(window, dtype=np.int64)) % n_rows
    else:
        rows = stream(seed, purpose, draw).choice(n_rows, size=window, replace=False).astype(np.int64)
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
    purpose: Purpose = Purpose.CANDIDATES,
) -> Int:
    """Return ``count`` rows outside ``used`` (sorted), or all remaining rows, in increasing order, from all classes.

    ``codes`` (N,) are the class codes of all rows. The fraction ``even`` of the rows is divided equally among the
    classes, the rest in proportion to the class sizes. Each class gives at least ``least`` rows if it has enough. If
    ``count`` is smaller than the number of classes, the classes take turns from draw to draw. If the data were shuffled
    at ingest, each class gives consecutive rows of this class, so that few tiles are read; ``draw`` determines the
    first one.
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
            ranks = stream(seed, purpose, draw, k).choice(size, size=share, replace=False)
        chosen.append(ranked(codes == k, np.sort(ranks), free))
    return np.sort(np.concatenate(chosen))


def ranked(members: Mask, ranks: Int, free: Mask | None = None) -> Int:
    """Return the positions of the free members with these ranks (k,), in increasing order.

    ``members`` and ``free`` (N,) are masks. The rank of a free member is its index among all free members. The search
    never holds all positions at once: positions take 8 bytes per row, the masks one byte.

    >>> ranked(np.array([True, False, True, True]), np.array([0, 2])).tolist()
    [0, 3]
    """
    found = [np.zeros(0, np.int64)]
    before = 0
    for start in range(0, len(members), SPAN):
        span = slice(start, start + SPAN)
        here = members[span] if free is None else members[span] & free[span]
        count = int(np.count_nonzero(here))
        inside = ranks[np.searchsorted(ranks, before) : np.searchsorted(ranks, before + count)]
        if len(inside):
            found.append(start + np.flatnonzero(here)[inside - before])
        before += count
    return np.concatenate(found)


def quotas(sizes: Int, count: int, even: float, least: int) -> Int:
    """Return the number of rows (K,) that each of K classes gives, ``count`` rows in all or every row.

    ``sizes`` (K,) are the class sizes; ``even`` and ``least`` have the meaning of ``stratified_rows``.

    >>> quotas(np.array([900, 90, 10]), 100, 0.0, 5).tolist(), quotas(np.array([900, 90, 10]), 60, 0.5, 1).tolist()
    ([86, 9, 5], [37, 13, 10])
    """
    count = min(count, int(sizes.sum()))
    present = sizes > 0
    shares = (1 - even) * sizes / max(sizes.sum(), 1) + even * present / max(present.sum(), 1)
    found: Int = np.minimum(np.maximum(np.floor(count * shares).astype(np.int64), least * present), sizes)
    for _ in range(int(found.sum()) - count):
        found[np.argmax(found)] -= 1
    for _ in range(count - int(found.sum())):
        room = np.flatnonzero(found < sizes)
        found[room[np.argmax(count * shares[room] - found[room])]] += 1
    return found


def stratified_partition(codes: Codes, n_classes: int, count: int, number: int, *, seed: int, shuffled: bool) -> Int:
    """Return the rows of partition ``number`` of ``count``, in increasing order, with equal fractions of each class.

    The partitions together hold every row once. The sizes of two partitions differ by at most one row, also within each
    class. If the data were shuffled at ingest, a partition has neighbouring rows of each class.

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
            ranks = np.sort(random_order(size, stream(seed, Purpose.PARTITIONS, k), ranks))
        parts.append(ranked(members, ranks))
        dealt += size
    return np.sort(np.concatenate(parts))


def partition_count(n_rows: int, partition_size: int) -> int:
    """Return ⌈N/P⌉, the number of partitions of N rows, P rows each."""
    return -(-n_rows // partition_size)


def partition_rows(n_rows: int, count: int, number: int, *, seed: int, shuffled: bool) -> Int:
    """Return the rows of partition ``number`` of ``count``, in increasing order.

    The partitions together hold every row once, and their sizes differ by at most one row. If the data were shuffled at
    ingest, a partition has neighbouring rows. Otherwise a partition is a part of one random order.

    >>> [partition_rows(7, 3, number, seed=0, shuffled=True).tolist() for number in range(3)]
    [[0, 1], [2, 3], [4, 5, 6]]
    """
    first, last = number * n_rows // count, (number + 1) * n_rows // count
    if shuffled:
        return np.arange(first, last, dtype=np.int64)
    return np.sort(random_order(n_rows, stream(seed, Purpose.PARTITIONS), np.arange(first, last)))


def distinct(points: Float, others: Float) -> Int:
    """Return positions of points (k, d) that differ from all ``others`` (m, d) and all earlier points, in order."""
    _, first = np.unique(np.concatenate([others, points]), axis=0, return_index=True)
    return np.sort(first[first >= len(others)]) - len(others)


def fresh(new: Design, present: Design) -> Int:
    """Return positions of the columns of ``new`` that differ from all present and all earlier new columns, in order."""
    kernel = new.kernel
    if not isinstance(kernel, Several):
        return distinct(new.centres, present.centres)
    found = [np.zeros(0, np.int64)]
    for k in range(len(kernel.kernels)):
        own = np.flatnonzero(new.which == k)
        points = kernel.without_ignored(new.centres[own], k)
        others = kernel.without_ignored(present.centres[present.which == k], k)
        found.append(own[distinct(points, others)])
    return np.sort(np.concatenate(found))


def count_duplicates(chosen: Design, new: Design) -> int:
    """Return the number of chosen rows that give no new column."""
    return len(np.setdiff1d(chosen.rows, new.rows))
