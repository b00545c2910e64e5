"""How DATA are written: an external sort for larger-than-memory data, the tiles of a new group, and
its publication."""

import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import chain, count, islice
from pathlib import Path
from typing import Any, Self

import numpy as np

from partirvm.core.moments import Moments
from partirvm.core.sampling import Word, scrambled
from partirvm.core.statistics import TreeSum
from partirvm.data.zarr_source import (
    CODEC,
    FORMAT,
    GROUP,
    KIND,
    VERSIONS,
    DataAttributes,
    dtype_of,
    open_data,
)
from partirvm.errors import ExistsError, LeaseLostError
from partirvm.storage import Folder, open_folder, storing
from partirvm.storage.address import absolute
from partirvm.storage.lease import Lease, acquire
from partirvm.storage.records import checksum, create_blosc, listed_numbers, numbered, to_json
from partirvm.types import Float

Progress = Callable[
    [str, int, int | None], None
]  # the phase, "read" or "write", rows done, and the total

BUCKETS = 128
"""Number of key ranges of equal width, with one file each."""


class ExternalSorter:
    """A context manager that sorts records of ``width`` float64 values by the first, the key, in
    bounded memory.

    Each record is appended to one of ``BUCKETS`` files, one per key range, in ``folder``, which is
    created and removed here. Each file is sorted; a file larger than memory is scattered again.
    Therefore the keys, all in [0, high), should be nearly uniform. The sort is stable. Without
    ``high``, records keep their order of arrival.
    """

    def __init__(self, folder: Path, width: int, *, high: float | None = 1.0) -> None:
        folder.mkdir(parents=True)
        self.n_records = 0
        self._folder = folder
        self._width = width
        self._high = high

    def add(self, records: Float) -> None:
        """Add records (n, width)."""
        self.n_records += len(records)
        places = (
            np.zeros(len(records)) if self._high is None else records[:, 0] * (BUCKETS / self._high)
        )
        buckets = (places % BUCKETS).astype(
            np.uint8
        )  # the high part of a key gives the file when scattered again
        order = np.argsort(buckets, kind="stable")  # NumPy uses a radix sort for bytes
        for bucket, rows in enumerate(
            np.split(order, np.cumsum(np.bincount(buckets, minlength=BUCKETS))[:-1])
        ):
            if len(rows):
                with (self._folder / f"{bucket}").open("ab") as file:
                    file.write(np.ascontiguousarray(records[rows]).data)

    def blocks(self, memory: int = 64 << 20) -> Iterator[Float]:
        """Yield all records in key order, as blocks (rows, width); call this only once.

        ``memory`` is the maximum number of bytes sorted at once. Peak memory is twice that.
        """
        for path in sorted(self._folder.iterdir(), key=lambda path: int(path.name)):
            size = path.stat().st_size
            if self._high is None:
                yield from self._batches(path)
            elif (
                size <= memory or size == 8 * self._width * self.n_records
            ):  # a single file cannot be divided further
                records = next(self._batches(path, size))
                yield records[np.argsort(records[:, 0], kind="stable")]
                del records
            else:
                finer = ExternalSorter(
                    self._folder / f"{path.name}-finer", self._width, high=self._high / BUCKETS
                )
                with finer:
                    for batch in self._batches(path):
                        finer.add(batch)
                    yield from finer.blocks(memory)
            path.unlink()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def _batches(self, path: Path, size: int = 2 << 20) -> Iterator[Float]:
        rows = max(size // (8 * self._width), 1)
        with path.open("rb") as file:
            while len(flat := np.fromfile(file, dtype=np.float64, count=rows * self._width)):
                yield flat.reshape(-1, self._width)


class Publication:
    """A new group of DATA arrays, which gets version ``number``; ``spill`` is a folder for
    temporary files.

    ``before`` holds the attributes of the DATA to append to, whose groups stay until the next
    append for fits that read them; ``found`` lists all groups. A group that may be ``published`` is
    removed by the next writer, not on an error.
    """

    def __init__(
        self, folder: Folder, name: str, spill: Path, lease: Lease, *, overwrite: bool, append: bool
    ) -> None:
        url = folder.location
        names = folder.list()
        numbers = listed_numbers(folder, VERSIONS)
        self.folder = folder
        self.name = name
        self.spill = spill
        self.lease = lease
        self.published = False
        self.before = open_data(url)[1] if append else None
        self.found = list(filter(GROUP.fullmatch, names))
        self.number = max(numbers, default=0) + 1
        if numbers and not overwrite and not append:
            raise ExistsError(
                f"{url} already exists. Choose another name, or pass overwrite=True "
                "(`--overwrite`)."
            )
        if folder.is_file() or not (numbers or all(map(GROUP.fullmatch, names))):
            raise ExistsError(f"{url} exists and is not a partirvm dataset. Choose another name.")

    def commit(self, attributes: DataAttributes) -> None:
        """Write the attributes and publish the group. Raises ``LeaseLostError`` if another process
        published first."""
        version = numbered(VERSIONS, self.number)
        with storing("the data"):
            CODEC.write(attributes, self.folder.place(f"{self.name}/attributes"), KIND, FORMAT)
            self.folder.flush(self.name)
            self.lease.check()
            try:
                self.published = True
                self.folder.create(version, to_json(version, {"group": self.name}))
            except FileExistsError as error:
                self.published = False
                raise LeaseLostError(
                    f"{self.folder.location}: another process published other rows first"
                ) from error
            if listed_numbers(self.folder, VERSIONS)[-1] > self.number:
                raise LeaseLostError(
                    f"{self.folder.location}: other processes have since published other rows"
                )
        with suppress(OSError):
            for number in listed_numbers(self.folder, VERSIONS):
                if number < self.number:
                    self.folder.remove(numbered(VERSIONS, number))
            read = (*attributes.segments, *(self.before.segments if self.before else ()))
            for name in set(self.found) - {name for _, name in read}:
                self.folder.remove(name)


@contextmanager
def publication(
    url: str, *, overwrite: bool = False, append: bool = False
) -> Iterator[Publication]:
    """Yield a ``Publication`` for new DATA at ``url``, or for rows to append. On any error, its
    group is removed."""
    folder = open_folder(url)
    name = f"rows-{uuid.uuid4().hex}"
    with claimed(url) as lease, folder.scratch(name) as scratch:
        with storing(url):
            made = Publication(
                folder, name, Path(scratch, "spill"), lease, overwrite=overwrite, append=append
            )
        try:
            yield made
        finally:
            with suppress(OSError):
                if not made.published:
                    folder.remove(name)
                    folder.remove_empty(VERSIONS)
                    folder.remove_empty()


@contextmanager
def claimed(url: str) -> Iterator[Lease]:
    """Hold the lease on a path or URL. Once another process has taken over, errors become
    ``LeaseLostError``."""
    place = open_folder(absolute(url.removeprefix("file://").rstrip("/")))
    folder = place.sibling(f".{place.name}.lease")
    folder.location = url  # for messages
    with storing(url), acquire(folder) as lease:
        try:
            yield lease
        except Exception:
            lease.check()
            raise
        finally:
            lease.withdraw()


def write_tiles(
    place: Publication,
    old: DataAttributes,
    before: Float,
    blocks: Iterable[Float],
    n_new: int,
    report: Progress,
) -> DataAttributes:
    """Write records, ``n_new`` of them new, as tiles of a group, two at a time. Return the
    attributes of all the rows.

    A record contains a key, the row number, features, targets and weights. ``old`` holds the
    attributes of the rows so far, and ``before`` the records of their last tile if it is not full,
    with which the group begins.
    """
    R = old.tile_rows
    n = len(before) + n_new
    first = old.n_rows // R
    n_tiles = -(-n // R)
    moments = TreeSum(n_tiles)
    checksums = list[dict[str, str]]()
    total = np.zeros(1, np.uint64)
    arrays: dict[str, Any] = {}
    with storing("the data"):
        for name, chunk in old.chunks.items():
            group = place.folder.place(f"{place.name}/{name}")
            fill = -1 if name == "row" else np.nan
            arrays[name] = create_blosc(group, (n, *chunk[1:]), chunk, dtype_of(name), fill)
    runs = runs_of(chain([before], blocks), R)
    write = partial(_write_tile, old, arrays, len(before))
    with ThreadPoolExecutor(2) as pool:
        while pair := list(islice(runs, 2)):
            for of_tile, of_arrays, of_rows in pool.map(write, count(len(checksums)), pair):
                moments.add(len(checksums), of_tile)
                checksums.append(of_arrays)
                total += of_rows
                report("write", min(len(checksums) * R, n), n)
    hashes = {name: tuple(each[name] for each in checksums) for name in arrays}
    return replace(
        old,
        n_rows=old.n_rows + n_new,
        moments=old.moments + moments.result(),
        hashes={name: (*old.hashes.get(name, ())[:first], *each) for name, each in hashes.items()},
        batches=(*old.batches, (n_new, f"{int(total[0]):016x}")),
        segments=(*(each for each in old.segments if each[0] < first), (first, place.name)),
    )


def _write_tile(
    old: DataAttributes, arrays: dict[str, Any], n_old: int, number: int, records: Float
) -> tuple[Moments, dict[str, str], np.uint64]:
    """Write a tile. Return the moments and hash of its rows from ``n_old`` on, and the checksums of
    its arrays."""
    start = 2 + old.n_features
    stop = 2 + old.n_features + old.n_targets
    X = np.ascontiguousarray(records[:, 2:start])
    t = np.ascontiguousarray(records[:, start:stop])
    weights = np.ascontiguousarray(records[:, -1]) if old.weighted else None
    y = t if old.n_targets > 1 else t.reshape(-1)
    parts: dict[str, Any] = {
        "X": X,
        "y": y,
        "weights": weights,
        "row": records[:, 1].astype(np.int64),
    }
    first = number * old.tile_rows
    with storing("the data"):
        for name, array in arrays.items():
            array[first : first + len(X)] = parts[name]
    new = slice(n_old if number == 0 else 0, None)
    moments = Moments.of(X[new], t[new], None if weights is None else weights[new])
    return (
        moments,
        {name: checksum(parts[name]) for name in arrays},
        row_hashes(records[new, 2:]).sum(dtype=np.uint64),
    )


def runs_of(blocks: Iterable[Float], rows: int) -> Iterator[Float]:
    """Divide blocks of any length into separate arrays of ``rows`` rows each; the last array may be
    shorter."""
    pieces = list[Float]()
    n_held = 0
    for block in blocks:
        while len(block):
            pieces.append(block[: rows - n_held].copy())
            block = block[rows - n_held :]
            n_held = n_held + len(pieces[-1])
            if n_held == rows:
                yield np.concatenate(pieces)
                pieces = []
                n_held = 0
        del block  # free the memory before the next block is read
    if pieces:
        yield np.concatenate(pieces)


def row_hashes(rows: Float) -> Word:
    """Return a splitmix64 hash of every row; their sum identifies the values of all rows,
    regardless of order."""
    bits = (rows + 0.0).view(np.uint64)  # −0.0 becomes 0.0
    multipliers = np.random.default_rng(20230517).integers(
        0, 2**63, size=rows.shape[1], dtype=np.uint64
    )
    bits ^= bits >> np.uint64(32)
    return scrambled(bits @ (multipliers * np.uint64(2) + np.uint64(1)))
