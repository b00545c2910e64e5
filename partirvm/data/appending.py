"""Append rows with the same columns to existing DATA.

The new rows are first ingested into a temporary folder next to the DATA, so that errors in these rows are found before
the DATA change. Then a group is written there with the last tile, if it was not full, the new rows, and the attributes
of all rows (``data.layout``). One rename publishes the group. Until then readers see the old DATA, and an interrupted
append can be repeated. Full tiles keep their hashes. A job made from the old DATA can therefore verify that the new
DATA extend the old DATA (``has_grown``).

The new rows are shuffled only among each other. Neighbouring rows are then no longer a random sample of all rows, so
the DATA count as unshuffled after the append: a fit draws each candidate separately.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from partirvm.data.budget import ALONE, IngestProcess
from partirvm.data.ingestion import Progress, written
from partirvm.data.layout import (
    DataAttributes,
    append_name,
    appends,
    create_arrays,
    local_path,
    open_data,
    require_small,
)
from partirvm.data.publish import claimed, partial_folder, storing
from partirvm.data.source import Fingerprint, Int, Tile, hash_tile, tile_slices
from partirvm.data.zarr_source import ZarrSource
from partirvm.errors import DataError, StorageError, UsageError
from partirvm.quoting import quoted
from partirvm.storage.address import require_address
from partirvm.storage.chunks import checksum
from partirvm.storage.lease import Lease
from partirvm.storage.local_folder import LocalFolder, flush, sync


def append(
    source: Any,
    data: str | os.PathLike[str],
    *,
    target: str | Sequence[str] | None = None,
    weights: str | None = None,
    noise: str | None = None,
    shuffle: int = 0,
    again: bool = False,
    memory_limit: int | None = None,
    progress: Progress | None = None,
    process: IngestProcess = ALONE,
) -> ZarrSource:
    """Append one or more rows of a table or of arrays to DATA on this machine. Returns the opened DATA.

    ``source``, ``target``, ``weights``, ``noise``, ``memory_limit``, ``progress`` and ``process`` have the same meaning
    as in ``ingest``. Features, categories and classes are taken from DATA. ``shuffle`` is the seed for shuffling the
    new rows, if the rows of DATA were shuffled. A fit that opens DATA again after the append
    stops with ``ChangedDataError``.

    Raises the errors of ``ingest``. Raises ``DataError`` if only one of DATA and the new rows has a target or weights,
    if the names or the order of several targets differ, or if the same rows were ingested or appended already and
    ``again`` is false. Raises ``LeaseError`` if another process writes the DATA.
    """
    require_address(os.fspath(data))
    path = local_path(data)
    if path is None:
        raise UsageError(f"{data}: rows can be appended only to DATA on this machine, not to a URL")
    path = Path(os.path.abspath(path))  # noqa: PTH100 - links stay
    with storing(str(data)), claimed(os.fspath(data)) as lease, partial_folder(path) as folder:
        _, old = open_data(os.fspath(data))
        _remove_unused(path, old)
        columns = {"target": target, "features": None, "categorical": (), "weights": weights, "noise": noise}
        written(
            source,
            folder / "new",
            roles={**columns, "classes": False, "like": old.columns},
            seed=None if old.seed is None else shuffle,
            memory_limit=memory_limit,
            tile_rows=old.tile_rows,
            progress=progress,
            process=process,
            least=1,
        )
        _, new = open_data(str(folder / "new"))
        _require_like(old, new, str(data))
        if not again:
            _refuse_repeated(old, new, str(data))
        grown = _extended(ZarrSource(data), old, ZarrSource(folder / "new"), new, folder / "segment")
        _publish(folder / "segment", path, grown, lease)
    return ZarrSource(data)


def _remove_unused(path: Path, attributes: DataAttributes) -> None:
    """Remove groups of appends that hold no tile of the DATA. A reader of older DATA gets ``ChangedDataError``."""
    folder, used = LocalFolder(str(path), path), {name for _, name in attributes.segments}
    for name in set(appends(folder)) - used:
        folder.remove(name)


def _publish(segment: Path, path: Path, grown: DataAttributes, lease: Lease) -> None:
    """Move a complete group into the DATA. Raises ``LeaseLostError`` if another process took over before that."""
    flush(segment)
    lease.check()
    with suppress(OSError):  # another process took over and was faster
        segment.rename(path / grown.segments[-1][1])
    sync(path)
    if open_data(str(path))[1].batches[: len(grown.batches)] != grown.batches:
        lease.check()
        raise StorageError(f"{path}: the new rows cannot be renamed into the DATA: check the permissions of the folder")


def _require_like(old: DataAttributes, new: DataAttributes, place: str) -> None:
    """Raise ``DataError`` if DATA and the new rows differ in having a target or weights, or in their targets."""
    for name, before, now in (
        ("the target", old.labelled, new.labelled),
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


def _refuse_repeated(old: DataAttributes, new: DataAttributes, place: str) -> None:
    """Raise ``DataError`` if an earlier batch has the same rows, in any order."""
    (batch,) = new.batches
    if batch in old.batches:
        number = old.batches.index(batch)
        raise DataError(
            f"{place}: these {new.n_rows:,} rows were {'appended' if number else 'ingested'} already (batch "
            f"{number + 1} of {len(old.batches)}): to append them once more, pass again=True (`--again`)"
        )


def _extended(
    before: ZarrSource, old: DataAttributes, new: ZarrSource, added: DataAttributes, place: Path
) -> DataAttributes:
    """Write the group of an append: the last tile of ``before``, if it is not full, and the rows of ``new``.

    Returns the attributes of all rows, which the group contains.
    """
    import zarr

    n_rows, R = old.n_rows + new.n_rows, old.tile_rows
    first, rest = divmod(old.n_rows, R)
    group: Any = zarr.open_group(str(place), mode="w", zarr_format=3)
    arrays = create_arrays(
        group,
        n_rows - first * R,
        old.n_features,
        R,
        n_targets=old.n_targets,
        weighted=old.weighted,
        ordered=old.seed is not None,
    )
    if rest:
        _put(arrays, 0, before.tile(first), before.original_rows(first))
    for number in range(new.n_tiles):
        _put(arrays, rest + number * R, new.tile(number), old.n_rows + new.original_rows(number))
    base = old.base or old.to_json()["digest"]
    tiles = tile_slices(n_rows - first * R, R)
    require_small(old.columns, first + len(tiles), len(arrays), str(before))
    hashes = {
        name: (*old.hashes[name][:first], *(checksum(array[tile]) for tile in tiles)) for name, array in arrays.items()
    }
    grown = replace(
        old,
        n_rows=n_rows,
        moments=old.moments + added.moments,
        hashes=hashes,
        batches=(*old.batches, *added.batches),
        segments=(
            *(segment for segment in old.segments if segment[0] < first),
            (first, append_name(len(old.batches), base)),
        ),
        base=base,
    )
    group.attrs.put(grown.to_json())
    return grown


def _put(arrays: dict[str, Any], start: int, tile: Tile, order: Int) -> None:
    """Write the rows of a tile, with their numbers in the original order, from the row ``start`` of arrays on."""
    y = tile.t if tile.t.shape[1] > 1 else tile.t.reshape(-1)
    parts: dict[str, Any] = {"X": tile.X, "y": y, "weights": tile.weights, "row": order}
    for name, array in arrays.items():
        array[start : start + len(tile.X)] = parts[name]


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
