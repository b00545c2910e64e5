"""Write predictions to a table, which appears under its name only when it is complete."""

import math
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partirvm.data.labels import label_array
from partirvm.data.tables import file_table
from partirvm.errors import PartirvmError, UsageError
from partirvm.storage import Folder, open_folder, require_replaceable, storing
from partirvm.storage.records import create_blosc

KIND = "partirvm-prediction"
"""The ``kind`` attribute of a Zarr group of predictions. Only a folder with this attribute may be
overwritten."""

Table = dict[str, NDArray[Any]]
"""Columns (rows,) by name, containing numbers, booleans or text."""


def written_labels(labels: Sequence[Any]) -> NDArray[Any]:
    """Return class labels as an array (K,) of the type in which they are written.

    Labels of several types, and integers beyond 64 bits, are written as text. Labels are never
    changed: ``=1+1`` is not escaped in CSV, and a spreadsheet may evaluate it unless the column is
    imported as text.
    """
    written = label_array(labels)
    return np.array(list(map(str, labels))) if written.dtype.kind == "O" else written


def write_output(
    output: Folder,
    part: Path,
    tables: Iterable[Table],
    n_rows: int,
    check: Callable[[], None],
    labels: Collection[Any] = (),
) -> None:
    """Write tables with equal columns one after another to OUTPUT, whose extension selects the
    format.

    Parameters
    ----------
    output : Folder
        The table to write or replace.
    part : Path
        Where the table is first written, on this machine. The caller removes anything left there
        after an error.
    tables : iterable of Table
        The parts of the table, in order.
    n_rows : int
        The total number of rows.
    check : callable
        Called before ``output`` is replaced; it may raise.
    labels : collection
        All labels that the tables may contain.
    """
    with storing(output.location):
        if output.suffix == ".zarr":
            _write_zarr(part, tables, n_rows, labels)
        else:
            _write_file(part, tables, output.suffix)
        output.publish(part, check)


def check_output(output: str, *, overwrite: bool = False) -> Folder:
    """Return OUTPUT if it may be written; ``overwrite`` permits replacing earlier predictions, but
    no other file.

    Raises ``UsageError`` for a wrong location or extension, ``ExistsError`` if it may not be
    overwritten.
    """
    place = open_folder(output)
    if place.suffix not in (".zarr", ".parquet", ".csv"):
        raise UsageError(f"output {output!r} must end in .zarr, .parquet or .csv")
    require_replaceable(place, "a prediction", _is_prediction, overwrite=overwrite)
    return place


def _is_prediction(place: Folder) -> bool:
    """Return True for a table of predictions: a Zarr group has the attribute, other tables have the
    columns."""
    if place.suffix == ".zarr":
        return place.exists("zarr.json") and KIND.encode() in place.read("zarr.json", 1 << 20)
    if not place.is_file():
        return False
    try:
        columns = file_table(place.location).columns
    except PartirvmError:
        return False  # it may be a damaged table that belongs to the user
    means = tuple(column for column in columns if re.match("mean(_|$)", column))
    if means:
        deviations = tuple(f"std{column.removeprefix('mean')}" for column in means)
        return columns[: 2 * len(means)] == means + deviations
    is_class_value = re.compile("(p|lower|upper)_").match
    return columns[0] == "label" and all(map(is_class_value, columns[1:]))


def array_name(column: str) -> str:
    """Return the name of a column's array in a Zarr group. Slashes are replaced by ``%2F``, since
    they separate groups.

    >>> array_name("p_n/a"), array_name("p_blue")
    ('p_n%2Fa', 'p_blue')
    """
    return re.sub(r"[%/\\\x00-\x1f]", lambda match: f"%{ord(match[0]):02X}", column)


def _write_zarr(path: Path, tables: Iterable[Table], n_rows: int, labels: Collection[Any]) -> None:
    """Write tables to a Zarr group with checksums and with fill values that cannot be predictions.

    Args:
        path: folder of the group
        tables: parts of the table, in order
        n_rows: total number of rows
        labels: labels that the tables may contain, none of which is a fill value
    """
    import zarr

    group = zarr.open_group(str(path), mode="w", zarr_format=3)
    arrays = dict[str, Any]()
    done = 0
    for table in tables:
        for name, values in table.items():
            if values.dtype.kind == "b":  # no boolean is free to mark a missing chunk
                values = values.astype(np.int8)
            if name not in arrays:
                dtype: Any = str if values.dtype.kind == "U" else values.dtype
                chunk = (min(1 << 16, n_rows),)
                place = f"{path}/{array_name(name)}"
                fill = fill_of(values.dtype, labels)
                arrays[name] = create_blosc(place, (n_rows,), chunk, dtype, fill)
            arrays[name][done : done + len(values)] = values
        done += len(values)
    group.update_attributes({"kind": KIND, "columns": list(arrays)})


def fill_of(dtype: np.dtype[Any], labels: Collection[Any]) -> Any:
    """Return a value of a dtype that cannot be a prediction and that marks a missing chunk: NaN, or
    a value that is not a label.

    >>> outputs = ("f8", ()), ("U3", ("red", "missing")), ("i1", (0, -128))
    >>> tuple(fill_of(np.dtype(dtype), labels) for dtype, labels in outputs)
    (nan, 'missing_', -127)
    """
    if dtype.kind == "f":
        return math.nan
    if dtype.kind == "U":
        text = "missing"
        while text in labels:
            text += "_"
        return text
    lowest = np.iinfo(dtype).min
    highest = np.iinfo(dtype).max
    candidates = range(lowest, highest) if lowest else range(highest, lowest, -1)
    return next(value for value in candidates if value not in labels)


def _write_file(path: Path, tables: Iterable[Table], suffix: str) -> None:
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    arrow_tables = map(pa.table, tables)
    first = next(arrow_tables)
    writer = pa.csv.CSVWriter if suffix == ".csv" else pa.parquet.ParquetWriter
    with writer(path, first.schema) as file:
        for table in chain([first], arrow_tables):
            file.write_table(table)
