"""Where predictions go: a table that appears under its name only when it is whole."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partirvm.errors import ExistsError, UsageError
from partirvm.model import label_array
from partirvm.storage import storing
from partirvm.storage.local_folder import flush, replacing, sync

KIND = "partirvm-prediction"
"""Attribute ``kind`` of a Zarr group of predictions: only such a folder is ever replaced."""

Write = Callable[[NDArray[np.float64]], None]

CHUNK_ROWS = 1 << 16


@dataclass(frozen=True)
class Column:
    """A column of OUTPUT: numbers, or where there are ``labels`` what stands for the codes 0 … K−1.

    Labels that are all text, all whole numbers, all numbers or all truth values are written as such; labels of several
    types, and integers beyond 64 bits, as text. No label is changed, in CSV either, where text stands between quotation
    marks: ``=1+1`` is not escaped, and a spreadsheet that does not import it as text calculates it.
    """

    name: str
    labels: tuple[Any, ...] | None = None

    @cached_property
    def _table(self) -> NDArray[Any] | None:
        if self.labels is None:
            return None
        table = label_array(self.labels)
        return np.array([str(label) for label in self.labels]) if table.dtype.kind == "O" else table

    @property
    def dtype(self) -> Any:
        """The type of its values: float64, int64, bool or ``str``."""
        if self._table is None:
            return np.dtype(np.float64)
        return str if self._table.dtype.kind == "U" else self._table.dtype

    def values(self, numbers: NDArray[np.float64]) -> NDArray[Any]:
        """What is written for numbers or codes (rows,)."""
        return np.ascontiguousarray(numbers) if self._table is None else self._table[numbers.astype(np.int64)]


@contextmanager
def open_output(
    path: Path, part: Path, columns: tuple[Column, ...], n_rows: int, check: Callable[[], None]
) -> Iterator[Write]:
    """Open OUTPUT for rows of these columns; yields a function that appends a block of numbers (rows, columns).

    The ending says what it is: .zarr (one array per column; text has variable length), .parquet or .csv. It is written
    to ``part``, on the same disk, flushed, and renamed at the end, in place of what is there; an error leaves nothing
    behind. ``check`` is called before it is renamed, and may raise. Raises ``StorageError`` if it cannot be written.
    """
    with storing(str(path)):
        with replacing(path, part):
            with _WRITERS[path.suffix](part, columns, n_rows) as write:
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


def array_name(column: str) -> str:
    """The name of a column's array in a Zarr group, where a slash would be a group within: ``%2F`` stands for it.

    >>> array_name("p_n/a"), array_name("p_blue")
    ('p_n%2Fa', 'p_blue')
    """
    return re.sub(r"[%/\\\x00-\x1f]", lambda found: f"%{ord(found[0]):02X}", column)


@contextmanager
def _zarr(path: Path, columns: tuple[Column, ...], n_rows: int) -> Iterator[Write]:
    import zarr

    group = zarr.open_group(str(path), mode="w")
    chunks = (min(CHUNK_ROWS, n_rows),)
    fills = {"f": np.nan, "i": 0, "b": False}
    arrays = [
        group.create_array(
            array_name(column.name),
            shape=(n_rows,),
            dtype=column.dtype,
            chunks=chunks,
            fill_value="" if column.dtype is str else fills[column.dtype.kind],
        )
        for column in columns
    ]
    blocks: list[NDArray[np.float64]] = []
    done = 0

    def flush(last: bool) -> None:
        nonlocal done, blocks
        rows = np.concatenate(blocks) if blocks else np.empty((0, len(columns)))
        whole = len(rows) if last else len(rows) // chunks[0] * chunks[0]
        for place, (column, array) in enumerate(zip(columns, arrays, strict=True)):
            if whole:
                array[done : done + whole] = column.values(rows[:whole, place])
        done, blocks = done + whole, [rows[whole:]]

    def write(block: NDArray[np.float64]) -> None:
        blocks.append(block)
        if sum(map(len, blocks)) >= chunks[0]:
            flush(last=False)

    yield write
    flush(last=True)
    group.update_attributes({"kind": KIND, "columns": [column.name for column in columns]})


def _schema(columns: tuple[Column, ...]) -> Any:
    import pyarrow as pa

    def kind(column: Column) -> Any:
        return pa.string() if column.dtype is str else pa.from_numpy_dtype(column.dtype)

    return pa.schema([(column.name, kind(column)) for column in columns])


def _table(block: NDArray[np.float64], columns: tuple[Column, ...]) -> Any:
    import pyarrow as pa

    arrays = [pa.array(column.values(block[:, place])) for place, column in enumerate(columns)]
    return pa.Table.from_arrays(arrays, schema=_schema(columns))


@contextmanager
def _parquet(path: Path, columns: tuple[Column, ...], n_rows: int) -> Iterator[Write]:
    import pyarrow.parquet as pq

    with pq.ParquetWriter(path, _schema(columns)) as writer:
        yield lambda block: writer.write_table(_table(block, columns))


@contextmanager
def _csv(path: Path, columns: tuple[Column, ...], n_rows: int) -> Iterator[Write]:
    import pyarrow as pa
    import pyarrow.csv

    with pa.csv.CSVWriter(path, _schema(columns)) as writer:
        yield lambda block: writer.write_table(_table(block, columns))


_WRITERS = {".zarr": _zarr, ".parquet": _parquet, ".csv": _csv}


def write_text(path: Path, text: str) -> None:
    """Write a file whole, in place of what is there. Raises ``StorageError`` if it cannot be written."""
    with storing(str(path)), replacing(path) as part:
        part.write_text(text, encoding="utf-8")
