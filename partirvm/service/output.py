"""Where predictions go: a table that appears under its name only when it is whole."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partirvm.errors import ExistsError, StorageError, UsageError

KIND = "partirvm-prediction"
"""Attribute ``kind`` of a Zarr group of predictions: only such a folder is ever replaced."""

Write = Callable[[NDArray[np.float64]], None]

CHUNK_ROWS = 1 << 16


@contextmanager
def open_output(
    output: str, names: tuple[str, ...], n_rows: int, *, overwrite: bool = False, inputs: tuple[str, ...] = ()
) -> Iterator[Write]:
    """Open OUTPUT for rows of the columns ``names``; yields a function that appends a block (rows, columns).

    The ending says what it is: .zarr (one array per column), .parquet or .csv. It is written under a temporary name
    beside it and renamed at the end; an error leaves nothing behind. With ``overwrite`` a file is replaced, and a
    folder that holds earlier predictions. Raises ``UsageError`` for another ending, a URL, and a place that is or lies
    inside one of ``inputs``, ``ExistsError`` if something is there that may not be replaced, ``StorageError`` if it
    cannot be written.
    """
    path = _checked(output, inputs, overwrite)
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part{path.suffix}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _WRITERS[path.suffix](part, names, n_rows) as write:
            yield write
        _remove(path)
        os.replace(part, path)  # noqa: PTH105
    except OSError as error:
        if isinstance(error, ExistsError | StorageError):
            raise
        raise StorageError(f"{output}: the predictions cannot be written: {error}") from error
    finally:
        _remove(part)


def _checked(output: str, inputs: tuple[str, ...], overwrite: bool) -> Path:
    """The path of OUTPUT, where it may be written."""
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


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


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
