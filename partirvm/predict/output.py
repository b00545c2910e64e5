"""Write predictions to a table. The table appears under its name only when it is complete."""

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

from partirvm.errors import ExistsError, MissingDataError, UsageError
from partirvm.model import label_array
from partirvm.storage import Folder, open_folder, storing
from partirvm.storage.folder import remove
from partirvm.storage.sealed import open_sealed

KIND = "partirvm-prediction"
"""The attribute ``kind`` of a Zarr group of predictions. Only a folder with this attribute may be overwritten."""

Write = Callable[[NDArray[np.float64]], None]

CHUNK_ROWS = 1 << 16


@dataclass(frozen=True)
class Column:
    """A column of OUTPUT. Its values are numbers, or ``labels`` if they are given, one for each code 0 … K−1.

    Labels that all are strings, integers, floats or booleans are written with this type. Labels of several types, and
    integers beyond 64 bits, are written as text. Labels are never changed, also in CSV, where text is quoted: a label
    such as ``=1+1`` is not escaped, and a spreadsheet may evaluate this label unless the column is imported as text.
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
        """The dtype of the column: float64, int64, bool or ``str``."""
        if self._table is None:
            return np.dtype(np.float64)
        return str if self._table.dtype.kind == "U" else self._table.dtype

    def values(self, numbers: NDArray[np.float64]) -> NDArray[Any]:
        """Return the values to write for an array (rows,) of numbers, or of codes if the column has labels."""
        return np.ascontiguousarray(numbers) if self._table is None else self._table[numbers.astype(np.int64)]


@contextmanager
def open_output(
    output: Folder, part: Path, columns: tuple[Column, ...], n_rows: int, check: Callable[[], None]
) -> Iterator[Write]:
    """Open OUTPUT with these columns, and yield a function that appends a block of numbers (rows, columns).

    The file name extension selects the format: .zarr (one array per column; text has variable length), .parquet or
    .csv. The table is written to ``part`` on this machine, and finally moved to ``output``, where it replaces an
    existing file. After an error no file is left. ``check`` is called before the move and may raise. Raises
    ``StorageError`` if the table cannot be written.
    """
    with storing(output.location):
        try:
            with _WRITERS[output.suffix](part, columns, n_rows) as write:
                yield write
            output.publish(part, check)
        finally:
            remove(part)


def check_output(output: str, inputs: tuple[str, ...] = (), *, overwrite: bool = False) -> Folder:
    """Return the destination OUTPUT if it may be written: a path or an fsspec URL.

    ``overwrite`` permits replacing a file or a prediction in Zarr. Raises ``UsageError`` for an unknown kind of URL,
    for an extension other than .zarr, .parquet and .csv, and for a place that equals or lies inside one of ``inputs``.
    Raises ``ExistsError`` if OUTPUT exists and may not be overwritten.
    """
    place = open_folder(output)
    if place.suffix not in _WRITERS:
        raise UsageError(f"output {output!r} must end in .zarr, .parquet or .csv")
    for given in inputs:
        if place.is_inside(given):
            raise UsageError(f"output {output!r} equals or lies inside the input {given!r}: choose another path")
    if place.exists():
        if not overwrite:
            raise ExistsError(f"{output} exists already: replace it with --overwrite")
        replaceable = _holds_predictions(place) if place.suffix == ".zarr" else place.is_file()
        if not replaceable:
            raise ExistsError(
                f"{output} exists and does not contain predictions: it is not overwritten; choose another path"
            )
    return place


def _holds_predictions(place: Folder) -> bool:
    try:
        return bool(open_sealed(place.place(), "prediction")[1].get("kind") == KIND)
    except MissingDataError:
        return False


def array_name(column: str) -> str:
    """Return the name of a column's array in a Zarr group. Slashes are replaced by ``%2F``, as they separate groups.

    >>> array_name("p_n/a"), array_name("p_blue")
    ('p_n%2Fa', 'p_blue')
    """
    return re.sub(r"[%/\\\x00-\x1f]", lambda found: f"%{ord(found[0]):02X}", column)


@contextmanager
def _zarr(path: Path, columns: tuple[Column, ...], n_rows: int) -> Iterator[Write]:
    import zarr

    group = zarr.open_group(str(path), mode="w", zarr_format=3)
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
    done = 0

    def write(block: NDArray[np.float64]) -> None:
        nonlocal done
        for place, (column, array) in enumerate(zip(columns, arrays, strict=True)):
            array[done : done + len(block)] = column.values(block[:, place])
        done += len(block)

    yield write
    group.update_attributes({"kind": KIND, "columns": [column.name for column in columns]})


@contextmanager
def _table(path: Path, columns: tuple[Column, ...], n_rows: int) -> Iterator[Write]:
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    kinds = [pa.string() if column.dtype is str else pa.from_numpy_dtype(column.dtype) for column in columns]
    schema = pa.schema(list(zip([column.name for column in columns], kinds, strict=True)))
    writer = pa.csv.CSVWriter if path.suffix == ".csv" else pa.parquet.ParquetWriter
    with writer(path, schema) as table:

        def write(block: NDArray[np.float64]) -> None:
            arrays = [pa.array(column.values(block[:, place])) for place, column in enumerate(columns)]
            table.write_table(pa.Table.from_arrays(arrays, schema=schema))

        yield write


_WRITERS = {".zarr": _zarr, ".parquet": _table, ".csv": _table}
