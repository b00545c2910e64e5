"""The format of DATA, and how writers publish them: versions of the attributes, and groups of arrays.

    versions/000002.json      the name of the newest group
    rows-TOKEN/attributes     ``DataAttributes``, stored by ``storage.codec``
    rows-TOKEN/X              (n, d) float64, a Zarr (version 3) array with one chunk per tile
    rows-TOKEN/y              (n,) or (n, T) float64; class codes 0 … K−1; absent in data for prediction
    rows-TOKEN/weights        (n,) float64, optional: precision weights
    rows-TOKEN/row            (n,) int64, if rows were shuffled: the number of the row in the original order

An ingest writes a group of all rows. An append writes a group that begins with the first tile that it changes: only the
last tile, if it was not full, is copied. ``segments`` states which group holds which tiles. Nothing that was published
is written again.

A group becomes visible when the next version is created. Of two processes that create the same version exactly one
succeeds, and the newest version counts. A writer that was killed, or silent for long, can therefore damage nothing:
until its version exists nobody reads its group, and when another version exists it cannot publish. Each writer also
holds the lease in the folder ``.NAME.lease`` next to the DATA, which is removed at the end.

Chunks are compressed (Blosc) and end with a CRC-32C checksum, so that no damaged chunk reaches the decompressor.
Readers use the attributes, which contain a checksum of each chunk; Zarr's metadata of an array serve other programs.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from partirvm import storage
from partirvm.core.moments import ColumnMoments, Moments
from partirvm.data.source import Columns, Fingerprint, hash_of
from partirvm.errors import ExistsError, FormatError, LeaseLostError, MissingDataError
from partirvm.storage import Folder, open_folder
from partirvm.storage.codec import Codec
from partirvm.storage.lease import Lease, acquire
from partirvm.storage.records import digest, listed_numbers, numbered, read_json, to_json

KIND, FORMAT, VERSIONS, GROUP = "partirvm-data", 9, "versions", re.compile("rows-[0-9a-f]{32}")

storing = partial(
    storage.storing,
    advice="make room or choose another place; ingest needs about twice the size of the data, 8 bytes per number",
)

NO_MOMENTS = Moments.of(np.empty((0, 0)), np.empty((0, 0)))  # adding other moments gives these


@dataclass(frozen=True)
class DataAttributes:
    """The attributes of DATA; without rows before the first ingest.

    ``seed`` is None if the rows kept their order. ``hashes`` contains the checksums of the chunks of each array. Rows
    not ``labelled`` are for prediction: ``columns`` still contains the target and classes to predict. ``batches``
    contains, for the ingest and each append, the number of rows and a checksum of their values, and ``segments`` the
    first tile and the group name of each run of tiles.
    """

    columns: Columns
    tile_rows: int
    seed: int | None
    weighted: bool
    labelled: bool
    moments: Moments = NO_MOMENTS
    n_rows: int = 0
    hashes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    batches: tuple[tuple[int, str], ...] = ()
    segments: tuple[tuple[int, str], ...] = ()

    @property
    def n_features(self) -> int:
        """The number of features."""
        return len(self.columns.features)

    @property
    def n_targets(self) -> int:
        """The number of targets; 0 if the rows have no target."""
        return max(len(self.columns.targets), 1) if self.labelled else 0

    @property
    def chunks(self) -> dict[str, tuple[int, ...]]:
        """The shape of a chunk of each array."""
        R, T = self.tile_rows, self.n_targets
        arrays = {
            "X": (R, self.n_features),
            "y": None if T == 0 else (R,) if T == 1 else (R, T),
            "weights": (R,) if self.weighted else None,
            "row": None if self.seed is None else (R,),
        }
        return {name: shape for name, shape in arrays.items() if shape is not None}

    def fingerprint(self) -> Fingerprint:
        """Return the identity of the data."""
        blocks = (self.hashes[name] for name in ("X", "y", "weights") if name in self.hashes)
        hashes = tuple(map(hash_of, zip(*blocks, strict=True)))
        fixed = (asdict(self.columns), self.tile_rows, self.seed, self.weighted, self.labelled)
        moments = [vars(each) for each in (self.moments.inputs, self.moments.targets)]
        values = [repr(np.asarray(value).tolist()) for each in moments for value in each.values()]
        return Fingerprint(self.n_rows, self.n_features, hashes, digest(fixed), digest(values))

    def agree(self) -> bool:
        """Return whether the attributes agree with each other, as those of a damaged file may not."""
        firsts, n_tiles = [first for first, _ in self.segments], -(-self.n_rows // max(self.tile_rows, 1))
        widths = ((self.moments.inputs, self.n_features), (self.moments.targets, self.n_targets))
        arrays = [(getattr(each, name), n) for each, n in widths for name in ("mean", "square", "minimum", "maximum")]
        return (
            min(self.n_rows, self.tile_rows, self.n_features) > 0
            and {name: len(each) for name, each in self.hashes.items()} == dict.fromkeys(self.chunks, n_tiles)
            and all(array.dtype == np.float64 and array.shape == (n,) for array, n in arrays)
            and firsts[:1] == [0]
            and firsts == sorted(set(firsts))
            and all(GROUP.fullmatch(name) for _, name in self.segments)
        )


CODEC = Codec([DataAttributes, Columns, Moments, ColumnMoments])


def open_data(url: str) -> tuple[Folder, DataAttributes]:
    """Return the folder of DATA and their newest attributes."""
    folder = open_folder(url)
    while True:
        numbers = listed_numbers(folder, VERSIONS)
        if not numbers:
            raise MissingDataError(
                f"{url}: there are no DATA of partirvm here. Make DATA with `partirvm ingest SOURCE {url}`; if an "
                "interrupted ingest left the folder, delete the folder."
            )
        try:
            pointer = read_json(folder, numbered(VERSIONS, numbers[-1]), {"group": str})
            group = pointer["group"] if GROUP.fullmatch(pointer["group"]) else "damaged"
            place = folder.place(f"{group}/attributes")
            attributes: DataAttributes = CODEC.read(place, KIND, FORMAT)
        except MissingDataError:
            if listed_numbers(folder, VERSIONS)[-1:] == numbers[-1:]:
                raise
            continue
        if not (isinstance(attributes, DataAttributes) and attributes.agree() and attributes.segments[-1][1] == group):
            raise FormatError(
                f"{place}: the attributes contradict each other, or are those of another group: restore the folder, or "
                "ingest the data again"
            )
        return folder, attributes


@dataclass
class Publication:
    """A new group of arrays of DATA, which gets the version ``number``; ``spill`` is a folder for temporary files.

    ``before`` are the attributes of the DATA to which rows are appended, and ``found`` the groups so far. A group that
    is ``published``, or may be, is not removed after an error: the next writer does it, if nobody reads the group.
    """

    folder: Folder
    name: str
    spill: Path
    before: DataAttributes | None
    number: int
    found: list[str]
    lease: Lease
    published: bool = False

    def create_arrays(self, chunks: Mapping[str, tuple[int, ...]], n_rows: int) -> dict[str, Any]:
        """Create the empty arrays of the group with these chunks."""
        import zarr
        from zarr.codecs import BloscCodec, Crc32cCodec

        return {
            name: zarr.create_array(
                self.folder.place(f"{self.name}/{name}"),
                shape=(n_rows, *chunk[1:]),
                dtype=dtype_of(name),
                chunks=chunk,
                compressors=[BloscCodec(cname="lz4", clevel=1, shuffle="shuffle"), Crc32cCodec()],
                fill_value=-1 if name == "row" else np.nan,
                config={"write_empty_chunks": True},
                zarr_format=3,
            )
            for name, chunk in chunks.items()
        }

    def commit(self, attributes: DataAttributes) -> None:
        """Write the attributes and publish the group. Raises ``LeaseLostError`` if another process published first."""
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
                raise LeaseLostError(f"{self.folder.location}: another process published other rows first") from error
            if listed_numbers(self.folder, VERSIONS)[-1] > self.number:
                raise LeaseLostError(f"{self.folder.location}: other processes have published other rows meanwhile")
        with suppress(OSError):
            for number in listed_numbers(self.folder, VERSIONS):
                if number < self.number:
                    self.folder.remove(numbered(VERSIONS, number))
            for name in set(self.found) - {name for _, name in attributes.segments}:
                self.folder.remove(name)


@contextmanager
def publication(url: str, *, overwrite: bool = False, append: bool = False) -> Iterator[Publication]:
    """Yield a ``Publication`` for new DATA at ``url``, or for rows to append. On any error its group is removed."""
    folder, name = open_folder(url), f"rows-{uuid.uuid4().hex}"
    with claimed(url) as lease, folder.scratch(name) as scratch:
        with storing(url):
            names, before = folder.list(), open_data(url)[1] if append else None
            numbers = listed_numbers(folder, VERSIONS)
            if numbers and not overwrite and not append:
                raise ExistsError(f"{url} exists already. Choose another name, or pass overwrite=True (`--overwrite`).")
            if folder.is_file() or not (numbers or all(map(GROUP.fullmatch, names))):
                raise ExistsError(f"{url} exists and is not DATA of partirvm. Choose another name.")
        found, number = list(filter(GROUP.fullmatch, names)), max(numbers, default=0) + 1
        made = Publication(folder, name, Path(scratch, "spill"), before, number, found, lease)
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
    """Hold the lease of a path or URL. Raises ``LeaseLostError`` in place of errors after another process took over."""
    place = open_folder(url.rstrip("/"))
    if place.path is not None:
        place = Folder(url, os.path.abspath(place.path))  # noqa: PTH100 - resolve() would follow links
    folder = place.sibling(f".{place.name}.lease")
    folder.location = url  # for messages
    with storing(url), acquire(folder, dict) as lease:
        try:
            yield lease
        except Exception:
            lease.check()
            raise
        finally:
            lease.withdraw()


def dtype_of(name: str) -> str:
    """Return the dtype of an array of DATA."""
    return "<i8" if name == "row" else "<f8"
