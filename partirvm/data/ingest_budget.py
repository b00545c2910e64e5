"""The memory that reading a table may take."""

from collections.abc import Callable

from partirvm.data.tables import Reader
from partirvm.errors import MemoryLimitError
from partirvm.options.constraints import parse_bytes
from partirvm.process import settled_memory

MORE = "raise memory_limit, or use fewer columns (`--features`)"
"""Advice for a memory limit that is too low."""

ALLOWANCE = 28 << 20
"""Bytes reserved for libraries loaded on first use, uncollected objects and fragmentation."""

BATCHES = 6
"""Number of copies of a batch: raw, as records, ordered by spill file, masks, and the reader's
buffers."""

LEAST_BATCH = 1 << 20
"""Minimum size of a batch, in bytes."""

LEAST_SORT = 4 << 20
"""Minimum size of the records that are sorted at once, in bytes."""


def room_of(memory_limit: "int | str | Budget | None") -> int | None:
    """Return the bytes that an opened table may take; None without a given limit."""
    if memory_limit is None or isinstance(memory_limit, Budget):
        return None
    return parse_bytes(memory_limit, "memory_limit") - settled_memory() - ALLOWANCE


class Budget:
    """The memory limit of a process: ``limit`` is the passed or default limit in bytes, ``base``
    the number of bytes in use at the beginning, and ``used`` returns the number in use."""

    def __init__(self, limit: int | None, used: Callable[[], int] | None = None) -> None:
        import zarr.codecs  # noqa: F401 - so that its memory is counted

        self.used = used or settled_memory
        self.base = self.used()
        self.limit = max(512 << 20, self.base + (256 << 20)) if limit is None else limit

    @classmethod
    def of(cls, memory_limit: "int | str | Budget | None") -> "Budget":
        """Return the budget of a memory limit, or the given budget."""
        if isinstance(memory_limit, Budget):
            return memory_limit
        return cls(None if memory_limit is None else parse_bytes(memory_limit, "memory_limit"))

    def batch_bytes(self, table: Reader, width: int, tile_rows: int, held: int) -> int:
        """Return the bytes per batch. Raises ``MemoryLimitError`` if the limit is too low.

        Args:
            table: table to read
            width: number of values of a record
            tile_rows: rows per tile that will be written
            held: bytes needed to read the table, in addition to the batches
        """
        least = max(LEAST_BATCH, 64 * 8 * width)
        reading = held + BATCHES * least
        writing = tile_bytes(width, tile_rows) + 2 * LEAST_SORT
        needs = self.base + ALLOWANCE + max(reading, writing)
        if needs > self.limit:
            raise MemoryLimitError(
                f"{table.name}: ingesting {width - 2} columns needs {-(-needs >> 20):,} MiB "
                f"({self.base >> 20:,} MiB of it are already in use), but the memory limit is "
                f"{self.limit >> 20:,} MiB: {MORE}."
            )
        available = self.limit - self.base - ALLOWANCE - held
        return min(available // BATCHES, max(table.most_batch, least))

    def sort_bytes(self, width: int, tile_rows: int) -> int:
        """Return how many bytes of records to sort at a time, once all rows have been read."""
        available = self.limit - self.used() - ALLOWANCE - tile_bytes(width, tile_rows)
        return max(available // 2, LEAST_SORT)


def tile_bytes(width: int, tile_rows: int) -> int:
    """Return the bytes taken up by tiles being written, for records of ``width`` values."""
    # copies of a tile: 4 being filled or queued, 3 for hashing rows, and 6 in each of the two
    # writer threads
    return 20 * 8 * tile_rows * width
