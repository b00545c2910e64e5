"""How an ingest shares out its memory, as arithmetic on bytes.

An ingest reads, then writes; its peak is the larger of both beside what the process holds already. With b a batch of
float64, w numbers in a record and R rows in a tile,

    reading   = ALLOWANCE + held + BATCHES b      ``held`` by the reader beside a batch (``Reader.held``)
    writing   = ALLOWANCE + tiles + 2 s           s bytes of records sorted at a time, read and in their order
    tiles     = DUPLICATES + TILES 8 R w          being filled, hashed, compressed, written

What the limit leaves decides b before anything is read, and s when all is read: ``Budget`` does both, and refuses what
cannot fit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from partirvm.errors import MemoryLimitError

FLOAT = 8

ALLOWANCE = 28 << 20
"""Bytes beside the formula: what libraries load when they are first used, the interpreter's garbage, fragments."""

BATCHES = 6
"""Copies of a batch: as it was read, as records, these ordered by spill file, masks, and buffers of the reader."""

LEAST_BATCH = 1 << 20
LEAST_ROWS = 64
LEAST_SORT = 4 << 20

TILES = 20
"""Copies of a tile: 4 that are filled or wait, 3 for the hashes of its rows, 6 in each of two writing threads."""

DUPLICATES = 8 << 20
"""Bytes that the counter of duplicates takes."""

USUAL_LIMIT = 512 << 20
USUAL_ROOM = 256 << 20
"""Without a limit: 512 MiB in all, or 256 MiB beside a process that holds more."""


class Process(Protocol):
    """The memory of this process."""

    def resident(self) -> int:
        """Give back to the system what was freed; returns the bytes that the process holds then."""
        ...

    def reuse(self) -> None:
        """From now on keep what is freed, for blocks of the same sizes that come again."""
        ...


@dataclass(frozen=True)
class Bare:
    """A process that holds a known number of bytes: limits are on what the ingest takes by itself."""

    held: int = 0

    def resident(self) -> int:
        """The number."""
        return self.held

    def reuse(self) -> None:
        """Nothing to do."""


ALONE = Bare()


@dataclass(frozen=True)
class Budget:
    """The limit on a process and what it holds already (``base``), in bytes."""

    limit: int
    base: int
    process: Process

    @classmethod
    def of(cls, limit: int | None, process: Process) -> Budget:
        """The budget under a limit, or the usual one; call it when the libraries have been imported.

        >>> Budget.of(None, Bare(100 << 20)).limit >> 20, Budget.of(None, Bare(900 << 20)).limit >> 20
        (512, 1156)
        """
        base = process.resident()
        return cls(max(USUAL_LIMIT, base + USUAL_ROOM) if limit is None else limit, base, process)

    def batch_bytes(self, source: str, width: int, tile_rows: int, held: int, most: int, advice: str) -> int:
        """Bytes of float64 to read at a time, ``most`` if there is room, of records of ``width`` numbers.

        Raises ``MemoryLimitError`` where reading or writing cannot fit, with what it needs, what it has and ``advice``.

        >>> budget = Budget.of(192 << 20, Bare(110 << 20))
        >>> budget.batch_bytes("t.parquet", 17, 8192, held=40 << 20, most=4 << 20, advice="")  # (82 − 28 − 40) / 6 MiB
        2446677
        """
        least = max(LEAST_BATCH, LEAST_ROWS * FLOAT * width)
        reading = ALLOWANCE + held + BATCHES * least
        writing = ALLOWANCE + tile_bytes(width, tile_rows) + 2 * LEAST_SORT
        need = self.base + max(reading, writing)
        if need > self.limit:
            raise MemoryLimitError(
                f"{source}: ingesting {width - 2} columns needs {_mebibytes(need)} ({_mebibytes(self.base)} of it the "
                f"process itself), the memory limit is {_mebibytes(self.limit)}: raise memory_limit (`--memory-limit`)"
                f"{advice}."
            )
        return min((self.limit - self.base - ALLOWANCE - held) // BATCHES, max(most, least))

    def sort_bytes(self, width: int, tile_rows: int) -> int:
        """Bytes of records to sort at a time, beside what the process holds now that all rows were read."""
        return max((self.limit - self.process.resident() - ALLOWANCE - tile_bytes(width, tile_rows)) // 2, LEAST_SORT)


def tile_bytes(width: int, tile_rows: int) -> int:
    """Bytes of the tiles being written, of records of ``width`` numbers.

    >>> tile_bytes(18, 8192) >> 20
    30
    """
    return DUPLICATES + TILES * FLOAT * tile_rows * width


def _mebibytes(number: int) -> str:
    return f"{-(-number >> 20):,} MiB"
