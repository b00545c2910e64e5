"""The memory that an ingest needs, in bytes.

An ingest first reads and then writes. Its peak memory is the larger of both phases, plus the memory that the process
already uses. With b the bytes of a batch of float64, w the number of values per record and R the number of rows per
tile,

    reading   = ALLOWANCE + held + BATCHES b      ``held``: bytes of the reader besides a batch (``Reader.held``)
    writing   = ALLOWANCE + tiles + 2 s           s: bytes of records sorted at a time (unsorted and sorted copy)
    tiles     = HASHES + TILES 8 R w              tiles being filled, hashed, compressed, written

``Budget`` computes b from the memory limit before reading starts, and computes s after all rows are read.
``MemoryLimitError`` is raised if one of the phases needs more than the limit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from partirvm.errors import MemoryLimitError

ALLOWANCE = 28 << 20
"""Bytes that the formula does not contain: libraries loaded at first use, uncollected Python objects, fragmentation."""

BATCHES = 6
"""Number of copies of a batch: raw, as records, records ordered by spill file, masks, and buffers of the reader."""

LEAST_BATCH = 1 << 20
LEAST_ROWS = 64
LEAST_SORT = 4 << 20

TILES = 20
"""Number of copies of a tile: 4 being filled or queued, 3 for hashing rows, and 6 in each of two writer threads."""

HASHES = 8 << 20
"""Number of bytes of the hashes of rows that find duplicates."""

USUAL_LIMIT = 512 << 20
USUAL_ROOM = 256 << 20
"""The default limit is the larger of 512 MiB and the current memory of the process plus 256 MiB."""


@dataclass(frozen=True)
class Budget:
    """The memory limit of a process, the bytes that the process already uses (``base``), and a function that returns
    the current number of resident bytes.
    """

    limit: int
    base: int
    resident: Callable[[], int]

    @classmethod
    def of(cls, limit: int | None, resident: Callable[[], int]) -> Budget:
        """Return the budget for the given limit, or for the default limit if ``limit`` is None. Call this method after
        the libraries are imported.

        >>> Budget.of(None, lambda: 100 << 20).limit >> 20, Budget.of(None, lambda: 900 << 20).limit >> 20
        (512, 1156)
        """
        base = resident()
        return cls(max(USUAL_LIMIT, base + USUAL_ROOM) if limit is None else limit, base, resident)

    def batch_bytes(self, source: str, width: int, tile_rows: int, held: int, most: int, advice: str) -> int:
        """Return the bytes of float64 per batch for records of ``width`` values; ``most`` if there is enough memory.

        Raises ``MemoryLimitError`` if the limit is too small for reading or writing. The error states the bytes needed,
        the bytes available and ``advice``.

        >>> budget = Budget.of(192 << 20, lambda: 110 << 20)
        >>> budget.batch_bytes("t.parquet", 17, 8192, held=40 << 20, most=4 << 20, advice="")  # (82 − 28 − 40) / 6 MiB
        2446677
        """
        least = max(LEAST_BATCH, LEAST_ROWS * 8 * width)
        reading = ALLOWANCE + held + BATCHES * least
        writing = ALLOWANCE + tile_bytes(width, tile_rows) + 2 * LEAST_SORT
        need = self.base + max(reading, writing)
        if need > self.limit:
            raise MemoryLimitError(
                f"{source}: ingesting {width - 2} columns needs {_mebibytes(need)} ({_mebibytes(self.base)} of it are "
                f"used by the process already), but the memory limit is {_mebibytes(self.limit)}: raise "
                f"memory_limit{advice}."
            )
        return min((self.limit - self.base - ALLOWANCE - held) // BATCHES, max(most, least))

    def sort_bytes(self, width: int, tile_rows: int) -> int:
        """Return the number of bytes of records to sort at a time; call this method after all rows are read."""
        return max((self.limit - self.resident() - ALLOWANCE - tile_bytes(width, tile_rows)) // 2, LEAST_SORT)


def tile_bytes(width: int, tile_rows: int) -> int:
    """Return the bytes of the tiles being written, for records of ``width`` values.

    >>> tile_bytes(18, 8192) >> 20
    30
    """
    return HASHES + TILES * 8 * tile_rows * width


def _mebibytes(number: int) -> str:
    return f"{-(-number >> 20):,} MiB"
