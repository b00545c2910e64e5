"""Storage of columns of Φ: some columns over the rows of one panel are a *segment*, in memory or on disk.

On disk a segment consists of chunks of one Zarr array per process, uncompressed (kernel values do not compress) and
with a checksum each: damaged or incomplete chunks are detected when they are read, and evaluated again.
"""

from __future__ import annotations

import threading
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from partirvm.types import PANEL_ROWS

Float = NDArray[np.float64]
Int = NDArray[np.int64]

FLOAT = 8

WASTE = 0.25
"""Maximum fraction of unneeded columns in a segment in memory."""

CHUNK = 64
"""Columns of a chunk on disk: smaller chunks take longer to read than to evaluate."""


class Damaged(Exception):
    """Columns cannot be stored, or stored columns cannot be read."""


class Segment(Protocol):
    """Some columns over the rows of a panel; ``labels`` (k,) name them."""

    labels: Int

    @property
    def nbytes(self) -> int:
        """Bytes used."""
        ...

    def read(self, places: Int, rows: Float, where: Int) -> None:
        """Copy the columns at ``places`` to ``rows[where]``; rows (M, n) is Φ transposed. Raises ``Damaged``."""
        ...

    def compact(self, places: Int) -> None:
        """Keep only the columns at these places."""
        ...

    def release(self) -> None:
        """Free the whole segment."""
        ...


class Segments(Protocol):
    """Creates segments."""

    def affordable(self, columns: int, height: int, room: int) -> tuple[int, int]:
        """Number of columns of ``height`` rows that fit into ``room`` bytes, at most ``columns``, and their bytes."""
        ...

    def make(self, labels: Int, values: Float) -> Segment:
        """Store these columns, (k, n). Raises ``Damaged`` on failure."""
        ...

    def close(self) -> None:
        """Remove all segments."""
        ...


class MemorySegments:
    """Segments in this process's memory."""

    def affordable(self, columns: int, height: int, room: int) -> tuple[int, int]:
        """As many columns as fit."""
        count = min(columns, max(room, 0) // (FLOAT * height))
        return count, count * FLOAT * height

    def make(self, labels: Int, values: Float) -> Segment:
        """Keep the array itself if it owns its memory."""
        return MemorySegment(labels, values if values.base is None else values.copy())

    def close(self) -> None:
        """No-op."""


class MemorySegment:
    """Columns in an array of their own."""

    def __init__(self, labels: Int, values: Float) -> None:
        self.labels, self._values = labels, values

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return self._values.nbytes

    def read(self, places: Int, rows: Float, where: Int) -> None:
        """Copy."""
        _copy(self._values, places, rows, where)

    def compact(self, places: Int) -> None:
        """Copy the remaining columns once unneeded columns are more than ``WASTE`` of the array."""
        if len(places) < (1 - WASTE) * len(self.labels):
            self.labels, self._values = self.labels[places], self._values[places]

    def release(self) -> None:
        """No-op: the array is freed with its last reference."""


class DiskSegments:
    """Segments in one Zarr array of this process, in ``folder``, which must exist; at most ``budget`` bytes."""

    def __init__(self, folder: str, budget: int) -> None:
        self._folder, self._slots = Path(folder), max(budget // _SLOT, 0)
        self._free: list[int] = []
        self._begun = 0
        self._array: Any = None
        self._place: Path | None = None
        self._lock = threading.Lock()

    def affordable(self, columns: int, height: int, room: int) -> tuple[int, int]:
        """Number of columns in whole chunks."""
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
                self._array[slot * CHUNK : (slot + 1) * CHUNK] = chunk
        except Exception as error:  # any error of a store or codec: it must not end the fit
            segment.release()
            raise Damaged(str(error)) from error
        return segment

    def chunk(self, slot: int) -> Float:
        """The columns of a chunk. Raises ``Damaged``."""
        try:
            values = np.asarray(self._array[slot * CHUNK : (slot + 1) * CHUNK])
        except Exception as error:
            raise Damaged(str(error)) from error
        if np.isnan(values[0, 0]):
            raise Damaged("a chunk is missing")
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
            from zarr.codecs import Crc32cCodec

            self._place = self._folder / f"blocks-{uuid.uuid4().hex}"
            self._array = zarr.create_array(
                str(self._place),
                shape=(max(self._slots, 1) * CHUNK, PANEL_ROWS),
                chunks=(CHUNK, PANEL_ROWS),
                dtype="f8",
                compressors=[Crc32cCodec()],
                fill_value=np.nan,
                config={"write_empty_chunks": True},
            )


_SLOT = FLOAT * CHUNK * PANEL_ROWS


class DiskSegment:
    """Columns in some chunks of the process's array, ``CHUNK`` columns each."""

    def __init__(self, disk: DiskSegments, labels: Int, height: int, slots: list[int]) -> None:
        self.labels = labels
        self._disk, self._height, self._slots = disk, height, slots

    @property
    def nbytes(self) -> int:
        """Bytes of the chunks."""
        return len(self._slots) * _SLOT

    def read(self, places: Int, rows: Float, where: Int) -> None:
        """Read each chunk that contains one of the columns, and copy from it."""
        for k, slot in enumerate(self._slots):
            mine = places // CHUNK == k
            if mine.any():
                _copy(self._disk.chunk(slot)[:, : self._height], places[mine] - k * CHUNK, rows, where[mine])

    def compact(self, places: Int) -> None:
        """No-op: a chunk with any needed column stays unchanged."""

    def release(self) -> None:
        """Free the chunks."""
        self._disk.give(self._slots)
        self._slots = []


def _copy(values: Float, places: Int, rows: Float, where: Int) -> None:
    """``rows[where] = values[places]``, without a temporary array if ``where`` is consecutive."""
    first, last = int(where[0]), int(where[-1])
    if last - first + 1 == len(where) and values.flags.c_contiguous:
        np.take(values, places, axis=0, out=rows[first : last + 1], mode="clip")
    else:
        rows[where] = values[places]
