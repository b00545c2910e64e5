"""The format of DATA on disk: a Zarr v3 group with arrays and attributes.

====================  ==================================================================================
``X``                 (N, d) float64, one chunk per tile; a missing chunk reads as NaN, and ingest never writes NaN
``y``                 (N,) float64, one chunk per tile; class codes 0 … K−1 for a class target; (N, T) for T targets,
                      with their names in the attribute ``targets``; absent in data for prediction, where the
                      attribute ``labelled`` is false
``weights``           (N,) float64, optional: precision weights
``row``               (N,) int64, present if rows were shuffled: the number of the row in the original order
attributes            ``DataAttributes`` as JSON, with ``kind``, ``format`` and ``digest``, a hash of all other
                      attributes; written last. After an interrupted append arrays may be longer than the number of
                      rows in the attributes
====================  ==================================================================================

Chunks are compressed (Blosc, lz4 with byte shuffle) and end with a CRC-32C checksum, so that damage is detected.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from partirvm.core.moments import ColumnMoments, Moments
from partirvm.data.source import Columns, Fingerprint
from partirvm.errors import FormatError, MissingDataError
from partirvm.storage.address import require_address
from partirvm.storage.folder import digest, open_filesystem, reading
from partirvm.storage.sealed import open_sealed, require_array, require_format

KIND = "partirvm-data"
FORMAT = 4

GROWING = ("n_rows", "moments", "hashes", "appended")
"""The attributes that change when rows are appended."""


@dataclass(frozen=True)
class DataAttributes:
    """The attributes of a DATA group, stored as JSON.

    ``seed`` is the seed of the shuffle, None if the rows kept their order. ``hashes`` contains one hash per tile. If
    ``labelled`` is false, the rows are for prediction: ``columns`` still contains the target and classes to predict,
    and the target moments have no columns. ``appended`` contains the number of rows before each append.
    """

    n_rows: int
    n_features: int
    tile_rows: int
    columns: Columns
    seed: int | None
    weighted: bool
    moments: Moments
    hashes: tuple[str, ...]
    labelled: bool = True
    appended: tuple[int, ...] = ()

    @property
    def n_targets(self) -> int:
        """The number of targets; 0 if the rows have no target."""
        return max(len(self.columns.targets), 1) if self.labelled else 0

    def to_json(self) -> dict[str, Any]:
        """Return the attributes of the group as JSON; floats are exact."""
        columns = self.columns
        about = {
            "kind": KIND,
            "format": FORMAT,
            "n_rows": self.n_rows,
            "n_features": self.n_features,
            "tile_rows": self.tile_rows,
            "features": list(columns.features),
            "target": columns.target,
            "targets": list(columns.targets),
            "categories": {name: list(levels) for name, levels in columns.categories.items()},
            "classes": None if columns.classes is None else list(columns.classes),
            "shuffle": self.seed,
            "weighted": self.weighted,
            "labelled": self.labelled,
            "moments": {"inputs": _moments_json(self.moments.inputs), "targets": _moments_json(self.moments.targets)},
            "hashes": list(self.hashes),
            "appended": list(self.appended),
        }
        return {**about, "digest": digest(about)}

    def fingerprint(self) -> Fingerprint:
        """Return the identity of the data: the hashes of the rows, and a hash of the names, categories and classes."""
        about = self.to_json()
        fixed = {name: value for name, value in about.items() if name not in (*GROWING, "digest")}
        return Fingerprint(self.n_rows, self.n_features, self.hashes, digest(fixed), digest(about["moments"]))

    @classmethod
    def from_json(cls, found: dict[str, Any], where: str) -> DataAttributes:
        """Read the attributes of a group.

        Raises ``FormatError`` if the kind or format is wrong or the attributes are damaged.
        """
        if found.get("kind") != KIND:
            raise FormatError(
                f"{where} is not DATA of partirvm: its attributes lack kind={KIND!r}. "
                "Make DATA of a table or arrays with `partirvm ingest SOURCE DATA`."
            )
        require_format(found.get("format"), FORMAT, where, "DATA", "ingest the data again")
        if found.pop("digest", None) != digest(found):
            raise FormatError(
                f"{where}: the attributes in zarr.json are damaged: restore the file, or ingest the data again."
            )
        try:
            return cls(
                n_rows=found["n_rows"],
                n_features=found["n_features"],
                tile_rows=found["tile_rows"],
                columns=Columns(
                    features=tuple(found["features"]),
                    target=found["target"],
                    categories={name: tuple(levels) for name, levels in found["categories"].items()},
                    classes=None if found["classes"] is None else tuple(found["classes"]),
                    targets=tuple(found["targets"]),
                ),
                seed=found["shuffle"],
                weighted=found["weighted"],
                moments=Moments(_moments(found["moments"]["inputs"]), _moments(found["moments"]["targets"])),
                hashes=tuple(found["hashes"]),
                appended=tuple(found["appended"]),
                labelled=found["labelled"],
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise FormatError(
                f"the attributes of {where} are incomplete ({error!r}): ingest the data again."
            ) from error


def _moments_json(moments: ColumnMoments) -> dict[str, Any]:
    arrays = {name: getattr(moments, name).tolist() for name in ("mean", "square", "minimum", "maximum")}
    return {"n": moments.n, "total": moments.total, **arrays}


def _moments(found: dict[str, Any]) -> ColumnMoments:
    arrays = {name: np.array(found[name], dtype=np.float64) for name in ("mean", "square", "minimum", "maximum")}
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


def open_data(url: str, storage_options: dict[str, Any] | None = None) -> tuple[Any, DataAttributes]:
    """Open a DATA group for reading. Returns the Zarr group and its attributes.

    Raises ``MissingDataError`` if there is no group or its metadata cannot be read, and ``FormatError`` if the kind or
    format is wrong or the attributes are damaged.
    """
    require_address(url, storage_options)
    path = local_path(url)
    if path is not None and not path.exists():
        raise MissingDataError(f"{url}: there is no such folder. Make DATA with `partirvm ingest SOURCE {url}`.")
    store = url if path is None else str(path)
    if path is None:
        open_filesystem(url, storage_options)  # raises a clear error if the store cannot be opened
    try:
        group, found = open_sealed(store, "DATA", storage_options if path is None else None)
    except MissingDataError as error:
        raise MissingDataError(
            f"{error}. Make DATA with `partirvm ingest SOURCE {url}`; if an interrupted ingest left "
            "the folder, delete the folder."
        ) from error
    return group, DataAttributes.from_json(found, url)


def open_arrays(group: Any, attributes: DataAttributes, url: str) -> dict[str, Any]:
    """Return the arrays of a DATA group, checked against the shapes in the attributes of the group.

    Raises ``MissingDataError`` if an array is missing or too short, or if its layout differs from ``create_arrays``.
    """
    n, d, rows, T = attributes.n_rows, attributes.n_features, attributes.tile_rows, attributes.n_targets
    widths: dict[str, tuple[int, ...]] = {"X": (d,)}
    widths |= {"y": () if T == 1 else (T,)} if T else {}
    widths |= {"weights": ()} if attributes.weighted else {}
    widths |= {"row": ()} if attributes.seed is not None else {}
    arrays = {}
    for name, width in widths.items():
        place = f"{url}: the array {name!r}"
        with reading(place, "ingest the data again", MissingDataError):
            if name not in group:
                raise MissingDataError(f"{place} is missing: ingest the data again.")
            array = group[name]
        said = {
            "dtype": "<i8" if name == "row" else "<f8",
            "chunks": [rows, *width],
            "shape": [*array.shape[:1], *width],
        }
        require_array(array, said, place)
        if array.shape[0] < n:
            raise MissingDataError(
                f"{place} has {array.shape[0]:,} rows, but should have {n:,}: ingest the data again."
            )
        arrays[name] = array
    return arrays


def create_arrays(
    group: Any, n_rows: int, n_features: int, tile_rows: int, *, n_targets: int, weighted: bool, ordered: bool
) -> dict[str, Any]:
    """Create the empty arrays of a DATA group: ``X``, and ``y``, ``weights`` and ``row`` if needed.

    If ``n_targets`` is 0, ``y`` is not created.
    """
    from zarr.codecs import BloscCodec, Crc32cCodec

    def create(name: str, dtype: str, shape: tuple[int, ...], fill: float) -> Any:
        chunks = (tile_rows, *shape[1:])
        return group.create_array(
            name,
            shape=shape,
            dtype=dtype,
            chunks=chunks,
            compressors=[BloscCodec(cname="lz4", clevel=1, shuffle="shuffle"), Crc32cCodec()],
            fill_value=fill,
            config={"write_empty_chunks": True},
        )

    arrays = {"X": create("X", "float64", (n_rows, n_features), np.nan)}
    if n_targets:
        arrays["y"] = create("y", "float64", (n_rows,) if n_targets == 1 else (n_rows, n_targets), np.nan)
    if weighted:
        arrays["weights"] = create("weights", "float64", (n_rows,), np.nan)
    if ordered:
        arrays["row"] = create("row", "int64", (n_rows,), -1)
    return arrays
