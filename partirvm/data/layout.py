"""DATA on disk: a Zarr v3 group, its attributes, and where it lives.

====================  ==================================================================================
``X``                 (N, d) float64, one chunk per tile; a missing chunk reads as NaN, which ingest never writes
``y``                 (N,) float64, one chunk per tile; class codes 0 … K−1 where the target is a class;
                      not there in data for prediction, whose attribute ``labelled`` is false; (N, T) of T targets,
                      whose names are the attribute ``targets``
``weights``           (N,) float64, optional: precision weights
``row``               (N,) int64, where rows were shuffled: the number of the row in the order before
attributes            ``DataAttributes`` as JSON, with ``kind`` and ``format``; written last of all. Where rows were
                      appended arrays may be longer than they say: that is an append that broke off
====================  ==================================================================================

Chunks are compressed (Blosc, lz4 with byte shuffle) and end in a CRC-32C, so that damage is noticed.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from partirvm.core.moments import ColumnMoments, Moments
from partirvm.data.source import Columns
from partirvm.errors import FormatError, MissingDataError
from partirvm.storage import reading

KIND = "partirvm-data"
FORMAT = 3
"""The newest format that is read. Format 1 has no ``appended`` rows: versions that know only it would take neighbours
for a random sample. Format 3 is of several targets, with or without such rows."""


@dataclass(frozen=True)
class DataAttributes:
    """What the attributes of a DATA group say.

    ``seed`` is the seed of the shuffle, None where the rows kept their order; ``hashes`` has one hash per tile. Where
    rows are not ``labelled``, target and classes of ``columns`` are those that a prediction is of, and the moments of
    the targets have no columns. ``appended`` are the numbers of rows to which others were appended, one after another.
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
        """T; 0 where rows are not labelled."""
        return max(len(self.columns.targets), 1) if self.labelled else 0

    def to_json(self) -> dict[str, Any]:
        """Attributes of the group; floats keep all their bits."""
        columns = self.columns
        return {
            "kind": KIND,
            "format": 3 if columns.targets else 2 if self.appended else 1,
            "n_rows": self.n_rows,
            "n_features": self.n_features,
            "tile_rows": self.tile_rows,
            "features": list(columns.features),
            "target": columns.target,
            "categories": {name: list(levels) for name, levels in columns.categories.items()},
            "classes": None if columns.classes is None else list(columns.classes),
            "shuffle": self.seed,
            "weighted": self.weighted,
            "labelled": self.labelled,
            "moments": {"inputs": _moments_json(self.moments.inputs), "targets": _moments_json(self.moments.targets)},
            "hashes": list(self.hashes),
            **({"appended": list(self.appended)} if self.appended else {}),
            **({"targets": list(columns.targets)} if columns.targets else {}),
        }

    @classmethod
    def from_json(cls, found: dict[str, Any], where: str) -> DataAttributes:
        """Read the attributes of a group. Raises ``FormatError`` for another kind, a newer format, torn attributes."""
        if found.get("kind") != KIND:
            raise FormatError(
                f"{where} is not DATA of partirvm: its attributes lack kind={KIND!r}. "
                "Make DATA of a table or arrays with `partirvm ingest SOURCE DATA`."
            )
        if not isinstance(found.get("format"), int) or found["format"] > FORMAT:
            raise FormatError(
                f"{where} has format {found.get('format')!r}, and this version of partirvm reads format {FORMAT}: "
                "update partirvm, or ingest the data again."
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
                    targets=tuple(found.get("targets", ())),
                ),
                seed=found["shuffle"],
                weighted=found["weighted"],
                moments=Moments(_moments(found["moments"]["inputs"]), _moments(found["moments"]["targets"])),
                hashes=tuple(found["hashes"]),
                appended=tuple(found.get("appended", ())),
                labelled=found.get("labelled", True),  # data of earlier versions have a target and do not say so
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
    """The path behind a local name or ``file://`` URL, or None for a URL of another file system.

    >>> local_path("s3://bucket/trips.zarr") is None, local_path("file:///tmp/a").as_posix()
    (True, '/tmp/a')
    """
    text = os.fspath(url)
    if text.startswith("file://"):
        return Path(text.removeprefix("file://"))
    return None if "://" in text or "::" in text else Path(text)


def open_data(url: str, storage_options: dict[str, Any] | None = None) -> tuple[Any, DataAttributes]:
    """Open a DATA group for reading: the Zarr group and its attributes.

    Raises ``MissingDataError`` where there is none, ``FormatError`` for another kind of thing or a newer format.
    """
    import zarr

    path = local_path(url)
    if path is not None and not path.exists():
        raise MissingDataError(f"{url}: there is no such folder. Make it with `partirvm ingest SOURCE {url}`.")
    try:
        with reading(f"{url}: the attributes of the Zarr group", "is it DATA? Then ingest the data again"):
            store = url if path is None else str(path)
            group = zarr.open_group(store, mode="r", storage_options=storage_options if path is None else None)
            found = dict(group.attrs)
    except MissingDataError as error:
        raise MissingDataError(
            f"{url}: there is no Zarr group here. Make it with `partirvm ingest SOURCE {url}`; "
            "a folder that an interrupted ingest left behind can be deleted."
        ) from error
    return group, DataAttributes.from_json(found, url)


def create_arrays(
    group: Any, n_rows: int, n_features: int, tile_rows: int, *, n_targets: int, weighted: bool, ordered: bool
) -> dict[str, Any]:
    """Create the empty arrays of a DATA group: ``X``, and ``y``, ``weights`` and ``row`` where they are wanted.

    Without targets (``n_targets`` 0) there is no ``y``.
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
