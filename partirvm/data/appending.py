"""Append rows with the same columns to existing DATA.

The new rows are written to a group in a temporary folder next to the DATA: the last tile, if it was not full, the new
rows, and the attributes of all rows (``data.layout``). Errors in these rows are found before the DATA change. One
rename publishes the group. Until then readers see the old DATA, and an interrupted append can be repeated. Full tiles
keep their hashes. A job made from the old DATA can therefore verify that the new DATA extend the old DATA
(``has_grown``).

The new rows are shuffled only among each other. Neighbouring rows are then no longer a random sample of all rows, so
the DATA count as unshuffled after the append: a fit draws each candidate separately.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

from partirvm.data.ingestion import written
from partirvm.data.layout import append_name, appends, local_path, open_data
from partirvm.data.publish import Publication, claimed, partial_folder, storing
from partirvm.data.source import Fingerprint, Tile, hash_tile
from partirvm.data.writer import Extended, Progress
from partirvm.data.zarr_source import ZarrSource
from partirvm.errors import StorageError, UsageError
from partirvm.storage import Folder
from partirvm.storage.address import require_address
from partirvm.storage.folder import flush, sync


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
    resident: Callable[[], int] = lambda: 0,
) -> ZarrSource:
    """Append one or more rows of a table or of arrays to DATA on this machine. Returns the opened DATA.

    ``source``, ``target``, ``weights``, ``noise``, ``memory_limit``, ``progress`` and ``resident`` have the same
    meaning as in ``ingest``. Features, categories and classes are taken from DATA. ``shuffle`` is the seed for
    shuffling the new rows, if the rows of DATA were shuffled. A fit that opens DATA again after the append stops with
    ``ChangedDataError``.

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
        import zarr

        _, old = open_data(os.fspath(data))
        for unused in set(appends(Folder(str(path), path))) - {name for _, name in old.segments}:
            Folder(str(path), path).remove(unused)  # a reader of older DATA gets ChangedDataError
        name = append_name(len(old.batches), old.base or old.to_json()["digest"])
        group = zarr.open_group(str(folder / "segment"), mode="w", zarr_format=3)

        def publish(attributes: dict[str, Any]) -> None:
            group.attrs.put(attributes)
            flush(folder / "segment")
            lease.check()
            with suppress(OSError):  # another process took over and was faster
                (folder / "segment").rename(path / name)
            sync(path)
            batches = tuple(map(tuple, attributes["batches"]))
            if open_data(str(path))[1].batches[: len(batches)] != batches:
                lease.check()
                raise StorageError(
                    f"{path}: the new rows cannot be renamed into the DATA: check the permissions of the folder"
                )

        columns = {"target": target, "features": None, "categorical": (), "weights": weights, "noise": noise}
        written(
            source,
            os.fspath(data),
            nullcontext(Publication(group, folder / "spill", publish, name)),
            roles={**columns, "classes": False, "like": old.columns},
            seed=None if old.seed is None else shuffle,
            memory_limit=memory_limit,
            tile_rows=old.tile_rows,
            progress=progress,
            resident=resident,
            extended=Extended(ZarrSource(data), old, again),
        )
    return ZarrSource(data)


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
