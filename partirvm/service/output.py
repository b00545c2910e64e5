"""Where predictions go: a table that appears under its name only when it is whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partirvm.errors import ExistsError, UsageError
from partirvm.storage import storing
from partirvm.storage.local import flush, replacing, sync

KIND = "partirvm-prediction"
"""Attribute ``kind`` of a Zarr group of predictions: only such a folder is ever replaced."""

Write = Callable[[NDArray[np.float64]], None]

CHUNK_ROWS = 1 << 16


@contextmanager
def open_output(
    path: Path, part: Path, names: tuple[str, ...], n_rows: int, check: Callable[[], None]
) -> Iterator[Write]:
    """Open OUTPUT for rows of the columns ``names``; yields a function that appends a block (rows, columns).

    The ending says what it is: .zarr (one array per column), .parquet or .csv. It is written to ``part``, on the same
    disk, flushed, and renamed at the end, in place of what is there; an error leaves nothing behind. ``check`` is
    called before it is renamed, and may raise. Raises ``StorageError`` if it cannot be written.
    """
    with storing(str(path)):
        with replacing(path, part):
            with _WRITERS[path.suffix](part, names, n_rows) as write:
                yield write
            flush(part)
            check()
        sync(path.parent)


def check_output(output: str, inputs: tuple[str, ...] = (), *, overwrite: bool = False) -> Path:
    """The path of OUTPUT, where it may be written. With ``overwrite`` a file may be, and a folder of predictions.

    Raises ``UsageError`` for another ending than those above, a URL, and a place that is or lies inside one of
    ``inputs``, ``ExistsError`` if something is there that may not be replaced.
    """
    if "://" in output:
        raise UsageError(f"output {output!r} is a URL: predictions are written to local paths, copy them from there")
    path = Path(output)
    if path.suffix not in _WRITERS:
        raise UsageError(f"output {output!r}: it must end in .zarr, .parquet or .csv")
    place = path.resolve()
    for given in inputs:
        local = Path(given.removeprefix("file://"))
        if ("://" not in given or given.startswith("file://")) and place.is_relative_to(local.resolve()):
            raise UsageError(f"output {output!r} is {given!r}, which is read, or lies inside it: choose another place")
    if path.exists():
        if not overwrite:
            raise ExistsError(f"{output}: there is something here already; --overwrite replaces it")
        replaceable = _holds_predictions(path) if path.suffix == ".zarr" else path.is_file()
        if not replaceable:
            raise ExistsError(f"{output}: these are not predictions, they will not be overwritten")
    return path


def _holds_predictions(path: Path) -> bool:
    import zarr

    try:
        return zarr.open_group(str(path), mode="r").attrs.get("kind") == KIND
    except (OSError, KeyError, ValueError):
        return False


@contextmanager
def _zarr(path: Path, names: tuple[str, ...], n_rows: int) -> Iterator[Write]:
    import zarr

    group = zarr.open_group(str(path), mode="w")
    chunks = (min(CHUNK_ROWS, n_rows),)
    arrays = [group.create_array(name, shape=(n_rows,), dtype="f8", chunks=chunks, fill_value=np.nan) for name in names]
    blocks: list[NDArray[np.float64]] = []
    done = 0

    def flush(last: bool) -> None:
        nonlocal done, blocks
        rows = np.concatenate(blocks) if blocks else np.empty((0, len(names)))
        whole = len(rows) if last else len(rows) // chunks[0] * chunks[0]
        for column, array in enumerate(arrays):
            if whole:
                array[done : done + whole] = rows[:whole, column]
        done, blocks = done + whole, [rows[whole:]]

    def write(block: NDArray[np.float64]) -> None:
        blocks.append(block)
        if sum(map(len, blocks)) >= chunks[0]:
            flush(last=False)

    yield write
    flush(last=True)
    group.update_attributes({"kind": KIND})


def _table(block: NDArray[np.float64], names: tuple[str, ...]) -> Any:
    import pyarrow as pa

    return pa.table({name: np.ascontiguousarray(block[:, column]) for column, name in enumerate(names)})


@contextmanager
def _parquet(path: Path, names: tuple[str, ...], n_rows: int) -> Iterator[Write]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pq.ParquetWriter(path, pa.schema([(name, pa.float64()) for name in names])) as writer:
        yield lambda block: writer.write_table(_table(block, names))


@contextmanager
def _csv(path: Path, names: tuple[str, ...], n_rows: int) -> Iterator[Write]:
    import pyarrow as pa
    import pyarrow.csv

    with pa.csv.CSVWriter(path, pa.schema([(name, pa.float64()) for name in names])) as writer:
        yield lambda block: writer.write_table(_table(block, names))


_WRITERS = {".zarr": _zarr, ".parquet": _parquet, ".csv": _csv}
