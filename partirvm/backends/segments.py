"""Storage of columns of Φ in *segments*, each with some columns over the rows of one panel, in memory or on disk.

On disk, a segment consists of chunks of one Zarr array per process. Chunks are not compressed, since kernel values do
not compress well. The process keeps a checksum of each chunk, so that damaged, incomplete or exchanged chunks are
detected when they are read. The columns of such chunks are evaluated again.
"""

from __future__ import annotations

import threading
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from partirvm.storage.chunks import checksum
from partirvm.types import PANEL_ROWS

Float = NDArray[np.float64]
Int = NDArray[np.int64]

FLOAT = 8

WASTE = 0.25
"""Maximum fraction of unneeded columns in a segment in memory."""

CHUNK = 64
"""Number of columns of a chunk on disk. Smaller chunks take longer to read than to evaluate."""


class Damaged(Exception):
    """Error for columns that cannot be stored, and for stored columns that cannot be read."""


class Segment(Protocol):
    """Interface of some stored columns over the rows of a panel, with the ``labels`` (k,) of the columns."""

    labels: Int

    @property
    def nbytes(self) -> int:
        """Number of used bytes."""
        ...

    def read(self, places: Int, rows: Float, where: Int) -> None:
        """Copy the columns at ``places`` to ``rows[where]``; ``rows`` (M, n) is Φ transposed. May raise ``Damaged``."""
        ...

    def compact(self, places: Int) -> None:
        """Keep only the columns at these positions."""
        ...

    def release(self) -> None:
        """Free the whole segment."""
        ...


class Segments(Protocol):
    """Interface of a store that creates segments."""

    def affordable(self, columns: int, height: int, room: int) -> tuple[int, int]:
        """Return how many of ``columns`` columns of ``height`` rows fit into ``room`` bytes, and their bytes."""
        ...

    def make(self, labels: Int, values: Float) -> Segment:
        """Store the columns ``values`` (k, n) as a segment. Raises ``Damaged`` on failure."""
        ...

    def close(self) -> None:
        """Remove all segments."""
        ...


class MemorySegments:
    """Store of segments in this process's memory."""

    def affordable(self, columns: int, height: int, room: int) -> tuple[int, int]:
        """Return the number of columns that fit, and their bytes."""
        count = min(columns, max(room, 0) // (FLOAT * height))
        return count, count * FLOAT * height

    def make(self, labels: Int, values: Float) -> Segment:
        """Return a segment with the array ``values``, which is copied if it is a view."""
        return MemorySegment(labels, values if values.base is None else values.copy())

    def close(self) -> None:
        """Do nothing, since arrays in memory need no cleanup."""


class MemorySegment:
    """Segment in a separate array in memory."""

    def __init__(self, labels: Int, values: Float) -> None:
        self.labels, self._values = labels, values

    @property
    def nbytes(self) -> int:
        """Number of bytes of the array."""
        return self._values.nbytes

    def read(self, places: Int, rows: Float, where: Int) -> None:
        """Copy."""
        _copy(self._values, places, rows, where)

    def compact(self, places: Int) -> None:
        """Copy the remaining columns if unneeded columns are more than the fraction ``WASTE`` of the array."""
        if len(places) < (1 - WASTE) * len(self.labels):
            self.labels, self._values = self.labels[places], self._values[places]

    def release(self) -> None:
        """Do nothing, since the array is freed with its last reference."""


class DiskSegments:
    """Store of segments in one Zarr array of this process, in an existing ``folder``, with at most ``budget`` bytes."""

    def __init__(self, folder: str, budget: int) -> None:
        self._folder, self._slots = Path(folder), max(budget // _SLOT, 0)
        self._free: list[int] = []
        self._checksums: dict[int, str] = {}
        self._begun = 0
        self._array: Any = None
        self._place: Path | None = None
        self._lock = threading.Lock()

    def affordable(self, columns: int, height: int, room: int) -> tuple[int, int]:
        """Return the number of columns whose whole chunks fit, and the bytes of the chunks."""
        slots = min(-(-columns // CHUNK), max(room, 0) // _SLOT)
        return min(columns, slots * CHUNK), slots * _SLOT

    def make(self, labels: Int, values: Float) -> Segment:
        """Write the columns to free chunks."""
        with self._lock:
            slots = [self._slot() for _ in range(-(-len(labels) // CHUNK))]
        segment = DiskSegment(self, labels, values.shape[1], slots)
        try:
            self._open()
            for k, slot in enumerate(slots):
                chunk = np.zeros((CHUNK, PANEL_ROWS))
                some = values[k * CHUNK : (k + 1) * CHUNK]
                chunk[: len(some), : some.shape[1]] = some
                self._checksums[slot] = checksum(chunk)
                self._array[slot * CHUNK : (slot + 1) * CHUNK] = chunk
        except Exception as error:  # no error of a store or codec may end the fit
            segment.release()
            raise Damaged(str(error)) from error
        return segment

    def chunk(self, slot: int) -> Float:
        """Read the columns of a chunk. Raises ``Damaged`` if the chunk is missing or damaged."""
        try:
            values = np.asarray(self._array[slot * CHUNK : (slot + 1) * CHUNK])
        except Exception as error:
            raise Damaged(str(error)) from error
        if checksum(values) != self._checksums[slot]:
            raise Damaged("a chunk is missing, damaged or exchanged")
        return values

    def give(self, slots: list[int]) -> None:
        """Mark these chunks as free."""
        with self._lock:
            self._free.extend(slots)

    def close(self) -> None:
        """Remove the array."""
        if self._place is not None:
            with suppress(OSError):
                from shutil import rmtree

                rmtree(self._place)

    def _slot(self) -> int:
        if self._free:
            return self._free.pop()
        self._begun += 1
        return self._begun - 1

    def _open(self) -> None:
        with self._lock:
            if self._array is not None:
                return
            if not self._folder.is_dir():
                raise FileNotFoundError(self._folder)
            import zarr

            self._place = self._folder / f"blocks-{uuid.uuid4().hex}"
            self._array = zarr.create_array(
                str(self._place),
                shape=(max(self._slots, 1) * CHUNK, PANEL_ROWS),
                chunks=(CHUNK, PANEL_ROWS),
                dtype="f8",
                compressors=None,
                fill_value=np.nan,
                config={"write_empty_chunks": True},
            )


_SLOT = FLOAT * CHUNK * PANEL_ROWS


class DiskSegment:
    """Segment in some chunks of the process's Zarr array, with ``CHUNK`` columns each."""

    def __init__(self, disk: DiskSegments, labels: Int, height: int, slots: list[int]) -> None:
        self.labels = labels
        self._disk, self._height, self._slots = disk, height, slots

    @property
    def nbytes(self) -> int:
        """Number of bytes of the chunks."""
        return len(self._slots) * _SLOT

    def read(self, places: Int, rows: Float, where: Int) -> None:
        """Read each chunk that contains a requested column, and copy the columns."""
        for k, slot in enumerate(self._slots):
            mine = places // CHUNK == k
            if mine.any():
                _copy(self._disk.chunk(slot)[:, : self._height], places[mine] - k * CHUNK, rows, where[mine])

    def compact(self, places: Int) -> None:
        """Do nothing, since a chunk with any needed column stays unchanged."""

    def release(self) -> None:
        """Free the chunks."""
        self._disk.give(self._slots)
        self._slots = []


def _copy(values: Float, places: Int, rows: Float, where: Int) -> None:
    """Assign ``rows[where] = values[places]``, without a temporary array if ``where`` is consecutive."""
    first, last = int(where[0]), int(where[-1])
    if last - first + 1 == len(where) and values.flags.c_contiguous:
        np.take(values, places, axis=0, out=rows[first : last + 1], mode="clip")
    else:
        rows[where] = values[places]
