"""An external sort for more records than memory can hold. Records are written to files by key range, and then one range
at a time is sorted.

The sort is stable: the order depends only on the keys and on the order in which records were added, not on the memory
or on batch sizes.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np
from numpy.typing import NDArray

from partirvm.data.source import Float

BUCKETS = 256
"""Maximum number of key ranges per spill; each range is an open file."""

READ_BYTES = 2 << 20
"""Number of bytes that are read at once from a range that is split again, or from a range with a single key."""


class ExternalSorter:
    """A context manager that sorts records of ``width`` float64 values by the first value, the key, in bounded memory.

    Each record is appended to one of ``BUCKETS`` files by its key range. A range that is larger than memory is split
    again into smaller ranges. Therefore only the interval of all keys must be known in advance.

    Parameters
    ----------
    folder : path
        Spill folder, created here and removed at the end. The folder needs 8·width bytes per record.
    width : int
        Number of values per record, including the key.
    low, high : float
        The interval [low, high) contains all keys.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, ExternalSorter(Path(folder, "spill"), width=2, high=3) as sorter:
    ...     sorter.add(np.array([[2.0, 20.0], [0.0, 0.0]]))
    ...     sorter.add(np.array([[1.0, 10.0]]))
    ...     np.concatenate(list(sorter.blocks())).tolist()
    [[0.0, 0.0], [1.0, 10.0], [2.0, 20.0]]
    """

    def __init__(self, folder: Path, width: int, *, low: float = 0.0, high: float = 1.0) -> None:
        self.n_records = 0
        self._folder, self._memory = Path(folder), 0
        self._spills = itertools.count()
        self._spill = self._new_spill(width, low, high)

    def add(self, records: Float) -> None:
        """Add records (n, width). Raises ``ValueError`` if a key is NaN or outside [low, high)."""
        self._spill.add(records)
        self.n_records += len(records)

    def blocks(self, memory: int = 64 << 20) -> Iterator[Float]:
        """Yield all records in order of their keys, as blocks (rows, width). The method may be called once.

        ``memory`` is the maximum number of bytes of a range that is sorted at once. The peak memory is twice this
        number.
        """
        self._memory = memory
        return self._sorted(self._spill)

    def close(self) -> None:
        """Delete the spill files."""
        self._spill.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _sorted(self, spill: _Spill) -> Iterator[Float]:
        for path, lowest, highest in spill.ranges():
            if path.stat().st_size <= self._memory:
                yield _read_sorted(path, spill.columns)  # without a name the array is freed after use
            elif lowest == highest:  # more records of a single key than memory can hold: keep the order of arrival
                yield from _batches(path, spill.columns)
                path.unlink()
            else:
                yield from self._cut_again(path, spill.columns, lowest, highest)

    def _new_spill(self, columns: int, low: float, high: float, buckets: int = BUCKETS) -> _Spill:
        return _Spill(self._folder, f"{next(self._spills)}", columns, low, high, buckets)

    def _cut_again(self, path: Path, columns: int, lowest: float, highest: float) -> Iterator[Float]:
        buckets = min(2 * path.stat().st_size // max(self._memory, 1) + 1, BUCKETS)
        finer = self._new_spill(columns, lowest, float(np.nextafter(highest, np.inf)), buckets)
        try:
            for batch in _batches(path, columns):
                finer.add(batch)
            path.unlink()
            yield from self._sorted(finer)
        finally:
            finer.close()


class Spool:
    """A store of records on disk in order of arrival, with the methods of ``ExternalSorter``."""

    def __init__(self, folder: Path, width: int) -> None:
        folder.mkdir(parents=True)
        self.n_records = 0
        self._folder, self._width = folder, width
        self._file: BinaryIO = (folder / "spool").open("wb", buffering=0)

    def add(self, records: Float) -> None:
        """Append records (n, width)."""
        _write(self._file, records)
        self.n_records += len(records)

    def blocks(self, memory: int = READ_BYTES) -> Iterator[Float]:
        """Yield all records in order of arrival, as blocks of at most ``memory`` bytes."""
        self._file.close()
        return _batches(self._folder / "spool", self._width, min(memory, READ_BYTES))

    def close(self) -> None:
        """Delete the spool file."""
        self._file.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class _Spill:
    """A set of files of raw records, one file per non-empty key range. The first column of a record is the key."""

    def __init__(self, folder: Path, name: str, columns: int, low: float, high: float, buckets: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.columns = columns
        self._edges = np.unique(np.linspace(low, high, buckets + 1))
        self._folder, self._name = folder, name
        self._ordered: Float = np.empty((0, columns))
        self._files: dict[int, BinaryIO] = {}
        self._keys: dict[int, tuple[float, float]] = {}

    def add(self, records: Float) -> None:
        """Append each record to the file of its key range."""
        if not len(records):
            return
        keys = records[:, 0]
        if not (keys.min() >= self._edges[0] and keys.max() < self._edges[-1]):
            raise ValueError(f"keys must lie in [{self._edges[0]}, {self._edges[-1]})")
        buckets = (np.searchsorted(self._edges, keys, side="right") - 1).astype(np.uint8)
        if len(self._ordered) < len(records):
            self._ordered = np.empty_like(records)
        order = np.argsort(buckets, kind="stable")  # NumPy uses a radix sort for bytes
        records = np.take(records, order, axis=0, out=self._ordered[: len(records)])
        counts = np.bincount(buckets)
        ends = np.cumsum(counts)
        for bucket in np.flatnonzero(counts).tolist():
            if bucket not in self._files:
                self._files[bucket] = self._path(bucket).open("wb", buffering=0)
                self._keys[bucket] = (np.inf, -np.inf)
            chosen = records[ends[bucket] - counts[bucket] : ends[bucket]]
            lowest, highest = self._keys[bucket]
            self._keys[bucket] = min(lowest, float(chosen[:, 0].min())), max(highest, float(chosen[:, 0].max()))
            _write(self._files[bucket], chosen)

    def ranges(self) -> Iterator[tuple[Path, float, float]]:
        """Close the files, and yield the path, lowest key and highest key of each file in order of keys."""
        self.close()
        for bucket in sorted(self._files):
            yield self._path(bucket), *self._keys[bucket]

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._ordered = self._ordered[:0].copy()

    def _path(self, bucket: int) -> Path:
        return self._folder / f"{self._name}-{bucket}"


def _write(file: BinaryIO, records: Float) -> None:
    """Write all bytes of the records. A single call of an unbuffered file may write only some of the bytes."""
    if not records.size:
        return
    view = memoryview(np.ascontiguousarray(records)).cast("B")
    while len(view):
        view = view[file.write(view) :]


def _read_sorted(path: Path, columns: int) -> Float:
    records: NDArray[Any] = np.fromfile(path, dtype=np.float64).reshape(-1, columns)
    path.unlink()
    return records[np.argsort(records[:, 0], kind="stable")]


def _batches(path: Path, columns: int, size: int = READ_BYTES) -> Iterator[Float]:
    rows = max(size // (8 * columns), 1)
    with path.open("rb") as file:
        while len(flat := np.fromfile(file, dtype=np.float64, count=rows * columns)):
            yield flat.reshape(-1, columns)
