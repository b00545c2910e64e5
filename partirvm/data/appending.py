"""Append rows with the same columns to existing DATA.

The new rows are first ingested into a temporary folder next to the DATA, so that errors in these rows are found before
the DATA change. Then the arrays are extended, the new rows are written, and the attributes, which hold the number of
rows, are written last. Until then readers see the old DATA, and an interrupted append can be repeated. Full tiles keep
their hashes. A job made from the old DATA can therefore verify that the new DATA extend the old DATA (``has_grown``).

The new rows are shuffled only among each other. Neighbouring rows are then no longer a random sample of all rows, so
the DATA count as unshuffled after the append: a fit draws each candidate separately.
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
from partirvm.storage.address import require_address


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
    """Append one or more rows of a table or of arrays to DATA on this machine. Returns the opened DATA.

    ``source``, ``target``, ``weights``, ``noise``, ``memory_limit``, ``progress`` and ``process`` have the same meaning
    as in ``ingest``. Features, categories and classes are taken from DATA. ``shuffle`` is the seed for shuffling the
    new rows, if the rows of DATA were shuffled. Only one append may run at a time. A fit that is using DATA stops with
    ``ChangedDataError``.

    Raises the errors of ``ingest``. Raises ``DataError`` if only one of DATA and the new rows has a target or weights,
    or if the names or the order of several targets differ.
    """
    require_address(os.fspath(data))
    path = local_path(data)
    if path is None:
        raise UsageError(f"{data}: rows can be appended only to DATA on this machine, not to a URL")
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
    """Raise ``DataError`` if DATA and the new rows differ in having a target or weights, or in their targets."""
    for name, before, now in (
        ("the target", old.labelled, bool(new.n_targets)),
        ("weights", old.weighted, new.weighted),
    ):
        if before != now:
            has, lacks = ("DATA have", "the new rows do not") if before else ("the new rows have", "DATA do not")
            raise DataError(f"{place}: {has} {name}, but {lacks}: append only rows with the same columns")
    if old.columns.targets != new.columns.targets:
        raise DataError(
            f"{place}: the target of DATA is {quoted(old.columns.target)}, but the target of the new rows is "
            f"{quoted(new.columns.target)}: append only rows "
            "with the same columns, and several targets in the same order"
        )


def _extend(path: str, old: DataAttributes, new: ZarrSource) -> None:
    """Write the rows of ``new`` after the rows of the DATA at this path. The attributes are written last."""
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
    """Return True if DATA consist of the rows of an earlier fingerprint followed by more rows.

    Full tiles are compared by their hashes. If the last tile was not full, its rows are read and compared.
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
