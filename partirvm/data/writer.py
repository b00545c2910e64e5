"""Writing of DATA: an external sort for larger-than-memory data, the tiles of a new group, and its
publication."""

import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import chain, islice
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
from partirvm.types import Float, squeezed

Progress = Callable[[str, int, int | None], None]
"""A function called with the phase ("read" or "write"), rows done and the total, if known."""

BUCKETS = 128
"""Number of key ranges of equal width, with one file each."""


class ExternalSorter:
    """A context manager that sorts records of ``width`` float64 values by the first value, the key,
    in bounded memory.

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
        if self._high is None:
            places = np.zeros(len(records))
        else:
            places = records[:, 0] * (BUCKETS / self._high)
        # keys scattered again have the same high part, which the remainder drops
        buckets = (places % BUCKETS).astype(np.uint8)
        order = np.argsort(buckets, kind="stable")  # NumPy uses a radix sort for bytes
        ends = np.cumsum(np.bincount(buckets, minlength=BUCKETS))
        for bucket, rows in enumerate(np.split(order, ends[:-1])):
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
            elif size <= memory or size == 8 * self._width * self.n_records:
                # also if all records are in one file, which cannot be divided further
                records = next(self._batches(path, size))
                yield records[np.argsort(records[:, 0], kind="stable")]
                del records
            else:
                folder = self._folder / f"{path.name}-finer"
                with ExternalSorter(folder, self._width, high=self._high / BUCKETS) as finer:
                    for batch in self._batches(path):
                        finer.add(batch)
                    yield from finer.blocks(memory)
            path.unlink()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()

    def remove(self) -> None:
        """Remove the files."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _batches(self, path: Path, size: int = 2 << 20) -> Iterator[Float]:
        rows = max(size // (8 * self._width), 1)
        with path.open("rb") as file:
            while len(flat := np.fromfile(file, dtype=np.float64, count=rows * self._width)):
                yield flat.reshape(-1, self._width)


class Publication:
    """A new group of DATA arrays.

    Attributes:
        folder: folder of the DATA
        name: name of the group
        spill: folder for temporary files
        lease: lease of this writer on the DATA
        published: True once the group may be visible: the next writer then removes it, not this
            writer after an error
        before: attributes of the DATA to append to, or None; their groups are kept until the next
            append, for fits that read them
        groups: names of all other groups
        number: version of the group
    """

    def __init__(
        self, folder: Folder, name: str, spill: Path, lease: Lease, *, overwrite: bool, append: bool
    ) -> None:
        """Raise ``ExistsError`` for files, and for DATA that must not be replaced or appended to.

        Args:
            folder: folder of the DATA
            name: name of the group
            spill: folder for temporary files
            lease: lease on the DATA
            overwrite: True to replace existing DATA
            append: True to append to existing DATA
        """
        url = folder.location
        names = folder.list()
        numbers = listed_numbers(folder, VERSIONS)
        self.folder = folder
        self.name = name
        self.spill = spill
        self.lease = lease
        self.published = False
        self.before = open_data(url)[1] if append else None
        self.groups = list(filter(GROUP.fullmatch, names))
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
            for name in set(self.groups) - {name for _, name in read}:
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
            group = Publication(
                folder, name, Path(scratch, "spill"), lease, overwrite=overwrite, append=append
            )
        try:
            yield group
        finally:
            with suppress(OSError):
                if not group.published:
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
    attributes: DataAttributes,
    last_rows: Float,
    blocks: Iterable[Float],
    n_new: int,
    report: Progress,
) -> DataAttributes:
    """Write records as tiles of a group, two at a time. Return the attributes of all rows.

    A record contains a key, the row number, features, targets, weights and the group.

    Args:
        place: group to write
        attributes: attributes of the rows so far
        last_rows: records of the last tile so far if it is not full, with which the group begins
        blocks: records of the new rows
        n_new: number of new rows
        report: function called with "write", rows done and the total
    """
    tile_rows = attributes.tile_rows
    n_rows = len(last_rows) + n_new
    group = _Group(attributes, _create_arrays(place, attributes, n_rows), len(last_rows))
    moments = TreeSum(-(-n_rows // tile_rows))
    row_hash = 0
    checksums = list[dict[str, str]]()
    tiles = enumerate(runs_of(chain([last_rows], blocks), tile_rows))
    with ThreadPoolExecutor(2) as pool:
        while pair := list(islice(tiles, 2)):
            for tile in pool.map(group.write, pair):
                moments.add(len(checksums), tile.moments)
                row_hash += tile.row_hash
                checksums.append(tile.checksums)
                report("write", min(len(checksums) * tile_rows, n_rows), n_rows)
    first = attributes.n_rows // tile_rows
    hashes = dict[str, tuple[str, ...]]()
    for name in group.arrays:
        hashes[name] = (
            *attributes.hashes.get(name, ())[:first],
            *(by_array[name] for by_array in checksums),
        )
    return replace(
        attributes,
        n_rows=attributes.n_rows + n_new,
        moments=attributes.moments + moments.result(),
        hashes=hashes,
        batches=(*attributes.batches, (n_new, f"{row_hash % (1 << 64):016x}")),
        segments=(
            *(segment for segment in attributes.segments if segment[0] < first),
            (first, place.name),
        ),
    )


def _create_arrays(place: Publication, attributes: DataAttributes, n_rows: int) -> dict[str, Any]:
    """Create the arrays of a group, of ``n_rows`` rows, and return them by name."""
    arrays = dict[str, Any]()
    with storing("the data"):
        for name, chunk in attributes.chunks.items():
            location = place.folder.place(f"{place.name}/{name}")
            fill = np.nan if dtype_of(name) == "<f8" else -1
            shape = (n_rows, *chunk[1:])
            arrays[name] = create_blosc(location, shape, chunk, dtype_of(name), fill)
    return arrays


@dataclass(frozen=True)
class _WrittenTile:
    """Facts about a tile that are stored in the attributes.

    Attributes:
        moments: moments of its new rows
        checksums: checksum of its chunk of each array
        row_hash: sum of the hashes of its new rows, modulo 2⁶⁴
    """

    moments: Moments
    checksums: dict[str, str]
    row_hash: int


@dataclass(frozen=True)
class _Group:
    """A group of arrays to which tiles are written.

    Attributes:
        attributes: attributes that define the contents of a record
        arrays: arrays (n, …) by name
        n_old: number of old rows with which the group begins
    """

    attributes: DataAttributes
    arrays: dict[str, Any]
    n_old: int

    def write(self, tile: tuple[int, Float]) -> _WrittenTile:
        """Write a tile, given as its number in the group and its records."""
        number, records = tile
        attributes = self.attributes
        start = 2 + attributes.n_features
        stop = start + attributes.n_targets
        X = np.ascontiguousarray(records[:, 2:start])
        t = np.ascontiguousarray(records[:, start:stop])
        weights = np.ascontiguousarray(records[:, stop]) if attributes.weighted else None
        blocks: dict[str, Any] = {
            "X": X,
            "y": squeezed(t, axis=1),
            "weights": weights,
            "row": records[:, 1].astype(np.int64),
        }
        if attributes.groups is not None:
            blocks["groups"] = records[:, -1].astype(np.int64)
        first = number * attributes.tile_rows
        with storing("the data"):
            for name, array in self.arrays.items():
                array[first : first + len(X)] = blocks[name]
        new = slice(self.n_old if number == 0 else 0, None)
        return _WrittenTile(
            Moments.of(X[new], t[new], None if weights is None else weights[new]),
            {name: checksum(blocks[name]) for name in self.arrays},
            int(row_hashes(records[new, 2:]).sum(dtype=np.uint64)),
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
    bits ^= bits >> np.uint64(32)
    rng = np.random.default_rng(20230517)
    multipliers = rng.integers(0, 2**63, size=rows.shape[1], dtype=np.uint64)
    return scrambled(bits @ (multipliers * np.uint64(2) + np.uint64(1)))
