"""A sort for more records than memory can hold."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Self

import numpy as np

from partirvm.types import Float

BUCKETS = 256
"""Number of key ranges of equal width; each is an open file."""


class ExternalSorter:
    """A context manager that sorts records of ``width`` float64 values by the first value, the key, in bounded memory.

    Each record is appended to one of ``BUCKETS`` files by its key range in ``folder``, which is created and removed
    here. Each file is sorted; one that is larger than memory is scattered again. Therefore the keys, all in
    [low, high), should be nearly uniform. The sort is stable. Without ``high``, records keep their order of arrival.
    """

    def __init__(self, folder: Path, width: int, *, low: float = 0.0, high: float | None = 1.0) -> None:
        folder.mkdir(parents=True)
        self.n_records = 0
        self._folder, self._width, self._low, self._high = folder, width, low, high
        self._files: dict[int, BinaryIO] = {}

    def add(self, records: Float) -> None:
        """Add records (n, width). Raises ``ValueError`` if a key is NaN or far outside [low, high)."""
        self.n_records += len(records)
        if self._high is None:
            self._append(0, records)
            return
        places = (records[:, 0] - self._low) * (BUCKETS / (self._high - self._low))  # rounding keeps the order of keys
        if not ((places > -1) & (places < BUCKETS + 1)).all():
            raise ValueError(f"keys must lie in [{self._low}, {self._high})")
        buckets = np.minimum(places, BUCKETS - 1).astype(np.uint8)
        order = np.argsort(buckets, kind="stable")  # NumPy uses a radix sort for bytes
        ends = np.cumsum(np.bincount(buckets, minlength=BUCKETS))
        for bucket, rows in enumerate(np.split(order, ends[:-1])):
            if len(rows):
                self._append(bucket, records[rows])

    def blocks(self, memory: int = 64 << 20) -> Iterator[Float]:
        """Yield all records in order of their keys, as blocks (rows, width); call this once.

        ``memory`` is the maximum number of bytes that are sorted at once. The peak memory is twice this number.
        """
        for bucket, file in sorted(self._files.items()):
            file.close()
            path = Path(file.name)
            size = path.stat().st_size
            if self._high is None:
                yield from self._batches(path)
            elif size <= memory or size == 8 * self._width * self.n_records:  # one file cannot be divided further
                records = next(self._batches(path, size))
                yield records[np.argsort(records[:, 0], kind="stable")]
                del records
            else:
                span = (self._high - self._low) / BUCKETS
                low = self._low + bucket * span
                with ExternalSorter(self._folder / f"{bucket}-finer", self._width, low=low, high=low + span) as finer:
                    for batch in self._batches(path):
                        finer.add(batch)
                    yield from finer.blocks(memory)
            path.unlink()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for file in self._files.values():
            file.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _append(self, bucket: int, records: Float) -> None:
        if bucket not in self._files:
            self._files[bucket] = (self._folder / f"{bucket}").open("wb")
        self._files[bucket].write(np.ascontiguousarray(records).data)

    def _batches(self, path: Path, size: int = 2 << 20) -> Iterator[Float]:
        rows = max(size // (8 * self._width), 1)
        with path.open("rb") as file:
            while len(flat := np.fromfile(file, dtype=np.float64, count=rows * self._width)):
                yield flat.reshape(-1, self._width)
