"""Counting of duplicate rows in one pass with a fixed amount of memory."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from partirvm.data.source import Float

KEPT = 1 << 17
"""Maximum number of hashes that are kept in memory."""


class DuplicateCounter:
    """A counter of rows that repeat an earlier row: exact for up to ``KEPT`` distinct rows, otherwise an estimate from
    a sample.

    Each row has a 64-bit hash. Only hashes below a threshold are kept; the threshold is halved when too many hashes are
    held. All copies of a row have the same hash, so the sample contains either all copies of a row or none.

    >>> counter = DuplicateCounter()
    >>> counter.add(np.array([[1.0, 2.0], [0.0, 2.0], [1.0, 2.0], [-0.0, 2.0]]))
    >>> counter.estimate(), counter.exact
    (2, True)
    >>> backwards = DuplicateCounter()
    >>> backwards.add(np.array([[0.0, 2.0], [1.0, 2.0], [0.0, 2.0], [1.0, 2.0]]))
    >>> backwards.checksum == counter.checksum
    True
    """

    def __init__(self) -> None:
        self._hashes = np.empty(0, dtype=np.uint64)
        self._new: list[NDArray[np.uint64]] = []
        self._n_new = 0
        self._shift = 0
        self._copies = 0
        self._sum = np.zeros(1, dtype=np.uint64)

    @property
    def checksum(self) -> str:
        """Sixteen hexadecimal digits that depend on the values of all rows, but not on the order of the rows."""
        return f"{int(self._sum[0]):016x}"

    @property
    def exact(self) -> bool:
        """Return True if every row was counted, that is, if the estimate is exact."""
        self._merge()
        return self._shift == 0

    def add(self, rows: Float) -> None:
        """Count the given rows (n, columns)."""
        hashes = _hashes(rows)
        self._sum += hashes.sum(dtype=np.uint64)
        self._new.append(self._sampled(hashes))
        self._n_new += len(self._new[-1])
        if self._n_new > KEPT:
            self._merge()

    def estimate(self) -> int:
        """Return the number of rows that repeat an earlier row."""
        self._merge()
        return self._copies << self._shift

    def _merge(self) -> None:
        before = len(self._hashes) + self._n_new
        self._hashes = np.unique(np.concatenate([self._hashes, *self._new]))
        self._copies += before - len(self._hashes)
        self._new, self._n_new = [], 0
        while len(self._hashes) > KEPT:
            self._shift += 1
            kept = self._sampled(self._hashes)
            self._copies = round(self._copies * len(kept) / len(self._hashes))
            self._hashes = kept

    def _sampled(self, hashes: NDArray[np.uint64]) -> NDArray[np.uint64]:
        return hashes[hashes >> np.uint64(64 - self._shift) == 0] if self._shift else hashes


def _hashes(rows: Float) -> NDArray[np.uint64]:
    """Return a hash of every row: multiply-add with random odd numbers, then the final mixing steps of splitmix64."""
    bits = (rows + 0.0).view(np.uint64)  # −0.0 becomes 0.0
    multipliers = np.random.default_rng(20230517).integers(0, 2**63, size=rows.shape[1], dtype=np.uint64)
    bits ^= bits >> np.uint64(32)
    mixed: NDArray[np.uint64] = bits @ (multipliers * np.uint64(2) + np.uint64(1))
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
