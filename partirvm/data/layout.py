"""The format of DATA on disk: a Zarr v3 group with arrays and attributes.

====================  ==================================================================================
``X``                 (N, d) float64, one chunk per tile; a missing chunk reads as NaN, and ingest never writes NaN
``y``                 (N,) float64, one chunk per tile; class codes 0 … K−1 for a class target; (N, T) for T targets,
                      with their names in the attribute ``targets``; absent in data for prediction, where the
                      attribute ``labelled`` is false
``weights``           (N,) float64, optional: precision weights
``row``               (N,) int64, present if rows were shuffled: the number of the row in the original order
attributes            ``DataAttributes`` as JSON, with ``kind``, ``format`` and ``digest``, a hash of all other
                      attributes; written last. They contain a checksum of each chunk, compared whenever it is read
``append-NNNNNN-…``   a group of the same kind for each append: the arrays from the first tile that the append changed,
                      and the attributes of all rows. The name contains the beginning of ``base``; the newest one of
                      this DATA counts
====================  ==================================================================================

Nothing that was published is written again. An append becomes visible by one rename of a complete folder, which fails
if the name exists, so a writer that was killed or silent for long can damage nothing. ``segments`` states which group
holds which tiles: the full tiles stay where they are, and only the last tile, if it was not full, is copied. A group
whose tiles are all in later segments is removed by the next append but one.

Chunks are compressed (Blosc, lz4 with byte shuffle) and end with a CRC-32C checksum, so that no damaged chunk reaches
the decompressor. Readers use the attributes and the bytes of the chunks; the metadata that Zarr keeps of an array serve
other programs.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from partirvm.core.moments import ColumnMoments, Moments
from partirvm.data.source import Columns, Fingerprint, hash_of
from partirvm.errors import ChangedDataError, DataError, FormatError, MissingDataError
from partirvm.storage import Folder, open_filesystem, open_folder
from partirvm.storage.address import require_address
from partirvm.storage.records import HEAD, VALUES, digest, open_zarr, require_format

KIND = "partirvm-data"
FORMAT = 7

GROWING = ("n_rows", "moments", "hashes", "batches", "segments", "base")
"""The attributes that change when rows are appended."""

MOMENTS = ("mean", "square", "minimum", "maximum")


@dataclass(frozen=True)
class DataAttributes:
    """The attributes of a DATA group, stored as JSON.

    ``seed`` is the seed of the shuffle, None if the rows kept their order. ``hashes`` contains the checksums
    (``storage.records``) of the chunks of each array, in the order of the tiles. If ``labelled`` is false, the rows are
    for prediction: ``columns`` still contains the target and classes to predict, and the target moments have no
    columns. ``batches`` contains, for the ingest and each append, the number of rows and a checksum of their values.
    ``segments`` contains the first tile and the group name of each run of tiles. ``base`` is the digest of the
    attributes that ingest wrote, and empty before the first append.
    """

    n_rows: int
    n_features: int
    tile_rows: int
    columns: Columns
    seed: int | None
    weighted: bool
    moments: Moments
    hashes: Mapping[str, tuple[str, ...]]
    batches: tuple[tuple[int, str], ...]
    labelled: bool = True
    segments: tuple[tuple[int, str], ...] = ((0, ""),)
    base: str = ""

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

    def to_json(self) -> dict[str, Any]:
        """Return the attributes of the group as JSON; floats are exact."""
        own = {name: value for name, value in vars(self).items() if name != "columns"}
        text = json.dumps({"kind": KIND, "format": FORMAT, **asdict(self.columns), **own}, default=_plain)
        about: dict[str, Any] = json.loads(text)
        return {**about, "digest": digest(about)}

    def fingerprint(self) -> Fingerprint:
        """Return the identity of the data: the hashes of the rows, and a hash of the names, categories and classes."""
        about = self.to_json()
        fixed = {name: value for name, value in about.items() if name not in (*GROWING, "digest")}
        blocks = (self.hashes[name] for name in ("X", "y", "weights") if name in self.hashes)
        hashes = tuple(map(hash_of, zip(*blocks, strict=True)))
        return Fingerprint(self.n_rows, self.n_features, hashes, digest(fixed), digest(about["moments"]))

    @classmethod
    def from_json(cls, found: dict[str, Any], where: str) -> DataAttributes:
        """Read the attributes of a group.

        Raises ``FormatError`` if the kind or format is wrong or the attributes are damaged.
        """
        found = dict(found)
        if found.pop("kind", None) != KIND:
            raise FormatError(
                f"{where} is not DATA of partirvm: its attributes lack kind={KIND!r}. "
                "Make DATA of a table or arrays with `partirvm ingest SOURCE DATA`."
            )
        require_format(found.pop("format", None), FORMAT, where, "DATA", "ingest the data again")
        seal = found.pop("digest", None)
        if seal != digest({"kind": KIND, "format": FORMAT, **found}):
            raise FormatError(
                f"{where}: the attributes in zarr.json are damaged: restore the file, or ingest the data again."
            )
        try:
            read: dict[str, Any] = {
                "columns": Columns(
                    features=tuple(found.pop("features")),
                    target=found.pop("target"),
                    categories={name: tuple(levels) for name, levels in found.pop("categories").items()},
                    classes=None if found["classes"] is None else tuple(found["classes"]),
                    targets=tuple(found.pop("targets")),
                ),
                "moments": Moments(_moments(found["moments"]["inputs"]), _moments(found["moments"]["targets"])),
                "hashes": {name: tuple(each) for name, each in found["hashes"].items()},
                "batches": tuple((int(rows), str(checksum)) for rows, checksum in found["batches"]),
                "segments": tuple((int(first), str(name)) for first, name in found["segments"]),
            }
            del found["classes"]
            attributes = cls(**{**found, **read})
            n_tiles, moments = -(-attributes.n_rows // attributes.tile_rows), attributes.moments
            lengths = {name: len(each) for name, each in attributes.hashes.items()}
            if lengths != dict.fromkeys(attributes.chunks, n_tiles):
                raise ValueError("a checksum of a chunk is missing")
            for each, width in ((moments.inputs, "n_features"), (moments.targets, "n_targets")):
                if {len(getattr(each, name)) for name in MOMENTS} != {getattr(attributes, width)}:
                    raise ValueError(f"the moments have not {width} columns")
            if len(attributes.columns.features) != attributes.n_features:
                raise ValueError("the number of features differs from that of their names")
            return attributes
        except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            raise FormatError(
                f"the attributes of {where} are incomplete ({error!r}): ingest the data again."
            ) from error


def _plain(value: Any) -> Any:
    """Convert moments and arrays for ``json``."""
    return value.tolist() if isinstance(value, np.ndarray) else vars(value)


def _moments(found: dict[str, Any]) -> ColumnMoments:
    arrays = {name: np.array(found[name], dtype=np.float64) for name in MOMENTS}
    return ColumnMoments(n=int(found["n"]), total=float(found["total"]), **arrays)


def local_path(url: str | os.PathLike[str]) -> Path | None:
    """Return the path of a local name or ``file://`` URL, or None for a URL of another file system.

    >>> local_path("s3://bucket/trips.zarr") is None, local_path("file:///tmp/a").as_posix()
    (True, '/tmp/a')
    """
    text = os.fspath(url)
    if text.startswith("file://"):
        return Path(text.removeprefix("file://"))
    return None if "://" in text else Path(text)


def open_data(url: str) -> tuple[Folder, DataAttributes]:
    """Open a DATA group for reading. Returns its folder and the attributes after the last append.

    Raises ``MissingDataError`` if there is no group or its metadata cannot be read, ``FormatError`` if the kind or
    format is wrong or the attributes are damaged, and ``ChangedDataError`` if other writers replace the DATA in each of
    ``LOOKS`` tries to open them.
    """
    require_address(url)
    path = local_path(url)
    if path is not None and not path.exists():
        raise MissingDataError(f"{url}: there is no such folder. Make DATA with `partirvm ingest SOURCE {url}`.")
    store = url if path is None else str(path)
    if path is None:
        open_filesystem(url)  # raises a clear error if the store cannot be opened
    seen = None
    folder = open_folder(store)
    for _ in range(LOOKS):
        names = appends(folder)  # listed first: appends of DATA that replace these belong to no root that is read later
        try:
            _, found = open_zarr(store, "DATA")
        except MissingDataError as error:
            raise MissingDataError(
                f"{error}. Make DATA with `partirvm ingest SOURCE {url}`; if an interrupted ingest left "
                "the folder, delete the folder."
            ) from error
        base = str(found.get("digest"))
        attributes = DataAttributes.from_json(found, url)
        own = [name for name in names if name == append_name(int(name.split("-")[1]), base)]
        if not own:
            return folder, attributes
        try:
            _, found = open_zarr(f"{store.rstrip('/')}/{own[-1]}", "append")
        except MissingDataError:
            if (names, base) == seen:
                raise
            seen = names, base
            continue
        attributes = DataAttributes.from_json(found, f"{url}/{own[-1]}")
        if (attributes.base, attributes.segments[-1][1]) != (base, own[-1]):
            raise FormatError(
                f"{url}/{own[-1]}: this append was moved here from {attributes.segments[-1][1]!r} or from other DATA: "
                "restore the folder"
            )
        return folder, attributes
    raise ChangedDataError(f"{url}: the data were replaced each time they were opened: wait until the writers end")


LOOKS = 5
"""Maximum number of tries to open DATA that other processes replace."""


def append_name(number: int, base: str) -> str:
    """Return the name of the group of an append to DATA whose first attributes have the digest ``base``.

    A silent writer that goes on after the DATA were overwritten thus publishes under a name that is not read.
    """
    return f"append-{number:06d}-{base[:8]}"


def appends(folder: Folder) -> list[str]:
    """Return the names of the groups of appends in a DATA folder, the oldest first."""
    return sorted(name for name in folder.list() if re.fullmatch(r"append-\d{6,}-[0-9a-f]{8}", name))


def require_small(columns: Columns, n_tiles: int, n_arrays: int, place: str) -> None:
    """Raise ``DataError`` if the attributes of DATA would have more bytes than ``open_zarr`` admits."""
    text = json.dumps(asdict(columns), indent=4).encode()
    numbers = n_tiles * n_arrays + 8 * len(columns.features)  # checksums, and moments with their line of JSON
    if len(text) + 38 * numbers > HEAD or text.count(b",") + numbers > VALUES:
        raise DataError(
            f"{place}: the names and labels and {n_tiles:,} tiles of {len(columns.features):,} features have more "
            f"metadata than a process reads ({HEAD >> 20} MiB): choose a larger tile_rows, shorter labels, or "
            "divide the data"
        )


def dtype_of(name: str) -> str:
    """Return the dtype of an array of DATA."""
    return "<i8" if name == "row" else "<f8"


def create_arrays(group: Any, chunks: Mapping[str, tuple[int, ...]], n_rows: int) -> dict[str, Any]:
    """Create the empty arrays of a DATA group with these chunks."""
    from zarr.codecs import BloscCodec, Crc32cCodec

    return {
        name: group.create_array(
            name,
            shape=(n_rows, *chunk[1:]),
            dtype=dtype_of(name),
            chunks=chunk,
            compressors=[BloscCodec(cname="lz4", clevel=1, shuffle="shuffle"), Crc32cCodec()],
            fill_value=-1 if name == "row" else np.nan,
            config={"write_empty_chunks": True},
        )
        for name, chunk in chunks.items()
    }
