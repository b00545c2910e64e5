"""More rows for DATA that are there: the same columns, after the last row.

The new rows are ingested beside the DATA first, so that whatever is wrong with them is found before anything is
touched. Then the arrays grow, the new rows are written, and the attributes, which say how many rows there are, come
last: until then readers see the DATA as they were, and an append that broke off is begun again. The tiles that were
full keep their hashes, so that what was made of the old DATA can tell that these are the same, grown.

The new rows are shuffled among themselves. Neighbours are no random sample of all rows any more, and the DATA count as
unshuffled from then on: a fit draws its candidates one by one.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from partirvm.core.moments import Moments
from partirvm.data.budget import ALONE, Process
from partirvm.data.ingestion import Progress, written
from partirvm.data.layout import DataAttributes, local_path, open_arrays, open_data
from partirvm.data.publish import storing
from partirvm.data.source import Fingerprint, Tile
from partirvm.data.tiled import hash_tile
from partirvm.data.zarr_source import ZarrSource
from partirvm.errors import DataError, UsageError
from partirvm.quoting import quoted


def append(
    source: Any,
    data: str | os.PathLike[str],
    *,
    target: str | Sequence[str] | None = None,
    weights: str | None = None,
    noise: str | None = None,
    shuffle: int = 0,
    memory_limit: int | None = None,
    progress: Progress | None = None,
    process: Process = ALONE,
) -> ZarrSource:
    """Append the rows of a table or arrays, or a single one, to DATA on this machine; returns the DATA, open.

    ``source``, ``target``, ``weights``, ``noise``, ``memory_limit``, ``progress`` and ``process`` are as ``ingest``
    has them; features, categories and classes are those of DATA. ``shuffle`` is the seed for the new rows, where DATA
    were shuffled. One at a time; a fit that is at work on DATA ends with ``ChangedDataError``. Raises as ``ingest``
    does, and ``DataError`` where the rows lack the target or the weights that DATA have, or have weights that these do
    not, or where one of both has several targets and the other not the same ones.
    """
    path = local_path(data)
    if path is None:
        raise UsageError(f"{data}: rows can be appended to DATA on this machine only, not behind a URL")
    _, old = open_data(os.fspath(data))
    with storing(str(data)), tempfile.TemporaryDirectory(prefix=f".{path.name}.append-", dir=path.parent) as folder:
        place = Path(folder) / "new"
        columns = {"target": target, "features": None, "categorical": (), "weights": weights, "noise": noise}
        written(
            source,
            place,
            roles={**columns, "classes": False, "like": old.columns},
            seed=None if old.seed is None else shuffle,
            memory_limit=memory_limit,
            tile_rows=old.tile_rows,
            progress=progress,
            process=process,
            least=1,
        )
        new = ZarrSource(place)
        _require_like(old, new, str(data))
        _extend(str(path), old, new)
    return ZarrSource(data)


def _require_like(old: DataAttributes, new: ZarrSource, place: str) -> None:
    for name, before, now in (
        ("the target", old.labelled, bool(new.n_targets)),
        ("weights", old.weighted, new.weighted),
    ):
        if before != now:
            has, lacks = ("DATA have", "the new rows do not") if before else ("the new rows have", "DATA do not")
            raise DataError(f"{place}: {has} {name}, and {lacks}: only rows with the same columns can be appended")
    if old.columns.targets != new.columns.targets:
        raise DataError(
            f"{place}: DATA have the target {quoted(old.columns.target)}, and the new rows "
            f"{quoted(new.columns.target)}: only rows "
            "with the same columns can be appended, targets in the same order"
        )


def _extend(path: str, old: DataAttributes, new: ZarrSource) -> None:
    """Write the rows of ``new`` after those of the DATA at this path, the attributes last."""
    import zarr

    group: Any = zarr.open_group(path, mode="r+", zarr_format=3)
    n_rows, R = old.n_rows + new.n_rows, old.tile_rows
    arrays = open_arrays(group, old, path)
    for array in arrays.values():
        array.resize((n_rows, *array.shape[1:]))
    for number in range(new.n_tiles):
        tile = new.tile(number)
        rows = slice(old.n_rows + tile.start, old.n_rows + tile.start + len(tile.X))
        y = tile.t if old.n_targets > 1 else tile.t.reshape(-1)
        parts: dict[str, Any] = {"X": tile.X, "y": y, "weights": tile.weights, "row": None}
        if "row" in arrays:
            parts["row"] = old.n_rows + new.original_rows(number)
        for name, array in arrays.items():
            array[rows] = parts[name]
    first = old.n_rows // R
    hashes = (*old.hashes[:first], *(_hash(arrays, number, R, n_rows) for number in range(first, -(-n_rows // R))))
    assert new.moments is not None
    moments: Moments = old.moments + new.moments
    appended = (*old.appended, old.n_rows)
    grown = replace(old, n_rows=n_rows, moments=moments, hashes=hashes, appended=appended)
    group.attrs.put(grown.to_json())


def _hash(arrays: dict[str, Any], number: int, tile_rows: int, n_rows: int) -> str:
    rows = slice(number * tile_rows, min((number + 1) * tile_rows, n_rows))
    X = np.asarray(arrays["X"][rows])
    t = np.asarray(arrays["y"][rows]).reshape(len(X), -1) if "y" in arrays else np.empty((len(X), 0))
    weights = np.asarray(arrays["weights"][rows]) if "weights" in arrays else None
    return hash_tile(Tile(number, rows.start, X, t, weights))


def has_grown(source: ZarrSource, then: Fingerprint) -> bool:
    """Whether DATA are those of this earlier fingerprint, and more rows after them.

    Full tiles are compared by their hashes, the rows of one that was not full are read.
    """
    full, rest = divmod(then.n_rows, source.tile_rows)
    now = source.fingerprint()
    if now.n_rows <= then.n_rows or now.about != then.about or now.hashes[:full] != then.hashes[:full]:
        return False
    if not rest:
        return True
    tile = source.tile(full)
    weights = None if tile.weights is None else tile.weights[:rest]
    return hash_tile(Tile(full, tile.start, tile.X[:rest], tile.t[:rest], weights)) == then.hashes[full]
