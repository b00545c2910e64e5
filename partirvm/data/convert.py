"""Conversion of the user's data to a source for a fit, or to columns for ingest."""

import datetime
import numbers
import os
from collections.abc import Iterator, Sequence
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np

from partirvm.core.moments import refuse_masked
from partirvm.data.arrays import (
    ArraySource,
    client_of,
    computed,
    lengths_of,
    refuse_missing_chunks,
    shuffled_rows,
)
from partirvm.data.delimited import null_texts
from partirvm.data.frames import is_frame, pandas_column, pandas_frame
from partirvm.data.labels import LABELS, plain_label
from partirvm.data.layout import FileOptions
from partirvm.data.opening import opened
from partirvm.data.source import (
    Source,
    check_beside,
    check_dtype,
    check_shapes,
    default_names,
    numeric_array,
)
from partirvm.data.tables import Batch, Reader, file_table, rows_per_batch
from partirvm.data.zarr_source import ZarrSource
from partirvm.errors import DataError, MemoryLimitError, UsageError
from partirvm.quoting import listed, quoted
from partirvm.storage import open_filesystem
from partirvm.storage.address import address, without_query
from partirvm.types import Columns, Int


def as_source(
    X: Any,
    y: Any = None,
    weights: Any = None,
    *,
    groups: Int | None = None,
    seed: int | None = None,
    columns: Columns | None = None,
    tile_rows: int | None = None,
) -> Source:
    """Convert data to a source of row tiles. Large datasets are neither read nor copied.

    Args:
        X: inputs (N, d), a NumPy array, nested list, data frame, Zarr or Dask array; or a source or
            the path or URL of DATA, which contain the targets and weights
        y: targets, (N,) or (N, T), of the same kind as X or a NumPy array
        weights: precision weights (N,), of the same kind as X or a NumPy array
        groups: codes of the rows' groups (N,), which are left out together
        seed: seed that shuffles in-memory rows as ``ingest`` does
        columns: names of the columns; by default those of the data frame, or ``x0``, ``x1``, …
        tile_rows: rows per tile; by default computed from the shape

    Raises ``DataError`` for values that cannot be used, ``MissingDataError`` or ``FormatError`` for
    DATA or chunks that cannot be read, and ``UsageError`` if y or weights are passed along with
    DATA or a source.
    """
    if isinstance(X, str | os.PathLike | Source):
        if y is not None or weights is not None or groups is not None:
            raise UsageError(
                "y and weights are part of the dataset, and so are groups: pass the dataset alone."
            )
        return X if isinstance(X, Source) else ZarrSource(X)
    X = pandas_frame(X)
    y = pandas_column(y)
    if is_frame(X):
        names = () if y is None else _target_names(y)
        columns = columns or Columns(
            tuple(map(str, X.columns)), target=names[0] if len(names) == 1 else "y"
        )
    X = _array("X", X)
    y = _array("y", y)
    weights = _array("the weights", weights)
    loaded = not any(hasattr(values, "chunks") for values in (X, y, weights))
    order = shuffled_rows(len(X), seed) if loaded and seed is not None and X.ndim == 2 else None
    return ArraySource(
        X, y, weights, groups=groups, permutation=order, columns=columns, tile_rows=tile_rows
    )


def _array(name: str, values: Any, *, numbers: bool = True) -> Any:
    """Convert numbers or, without ``numbers``, labels to a NumPy, Zarr or Dask array. Raises
    ``DataError`` for masked values and, with ``numbers``, for values that are not numeric."""
    if hasattr(values, "to_dask_array"):
        plain = values
        if numbers:
            columns = values.dtypes.items() if values.ndim == 2 else [(name, values.dtype)]
            for column, dtype in columns:
                of_frame = f"the column {quoted(str(column))} of the data frame"
                check_dtype(of_frame if name == "X" else name, dtype)
            plain = values.astype(np.float64)
        elif values.ndim == 1 and not isinstance(values.dtype, np.dtype):
            plain = values.astype(object)  # pandas-specific text and category dtypes
        return plain.to_dask_array(lengths_of(values))
    if hasattr(values, "compute_chunk_sizes") and any(map(np.isnan, values.shape)):
        return values.compute_chunk_sizes()
    if values is None or hasattr(values, "chunks"):
        return values
    if numbers:
        return numeric_array(name, values)
    refuse_masked(values, name)
    return np.asarray(values)


def open_table(source: Any, room: int | None = None, options: FileOptions | None = None) -> Reader:
    """Open a path, URL, data frame or tuple of arrays as a table.

    Args:
        source: table to open
        room: maximum size of an .npz file in bytes
        options: how a file is read
    """
    if isinstance(source, str | os.PathLike):
        url = address(source)
        is_archive = without_query(url).lower().endswith(".npz") and "*" not in url
        return _archive_table(url, room) if is_archive else file_table(url, options)
    if isinstance(source, tuple | list) and len(source) in (2, 3):
        return arrays_table(pandas_frame(source[0]), *map(pandas_column, source[1:]))
    source = pandas_frame(source, "the source")
    if is_frame(source):
        return arrays_table(source)
    raise UsageError(
        f"cannot ingest a {type(source).__name__}: pass a file, a folder, a data frame of pandas, "
        "polars or Dask, or a tuple (X, y) of arrays; for rows to predict (X, None) and like=…"
    )


def _archive_table(url: str, room: int | None) -> Reader:
    """Read an entire .npz file and return it as a table. Raises ``MemoryLimitError`` if it exceeds
    ``room`` bytes."""
    filesystem, path = open_filesystem(url)
    with opened(filesystem, path) as file, np.load(file, allow_pickle=False) as archive:
        sizes = {member.filename: member.file_size for member in archive.zip.infolist()}
        nbytes = sum(sizes.values())
        if room is not None and nbytes > room:
            raise MemoryLimitError(
                f"{url}: its arrays have {nbytes >> 20:,} MiB and are read whole, but the memory "
                f"limit leaves {max(room, 0) >> 20:,} MiB: raise memory_limit, or write Parquet, "
                "which is read in batches"
            )
        if sizes.get("columns.npy", 0) > LABELS:
            raise DataError(
                f"{url}: the array `columns` has more than {LABELS >> 20} MiB: it must hold short "
                "names"
            )
        try:
            arrays = dict(archive)
        except MemoryError as error:
            raise DataError(
                f"{url}: an array declares more values than the archive holds"
            ) from error
    if "X" not in arrays:
        raise DataError(
            f"{url}: there is no array X in the archive. Its arrays: {listed(sorted(arrays))}."
        )
    names = map(str, arrays["columns"].reshape(-1)) if "columns" in arrays else ()
    return arrays_table(arrays["X"], arrays.get("y"), arrays.get("weights"), url, tuple(names))


def arrays_table(
    X: Any, y: Any = None, weights: Any = None, name: str = "", names: Sequence[str] = ()
) -> Reader:
    """Return a data frame or array X as a table, along with its targets and weights. Rows are
    matched by position.

    Args:
        X: features (N, d); columns with pandas' categorical dtype are categories by default
        y: targets, (N,) or (N, T), or None
        weights: weights (N,), or None
        name: name of the table in messages; by default, derived from the arguments
        names: column names of an array X; by default x0, x1, …
    """
    lazy = False
    if is_frame(X):
        name = name or "the data frame"
        lazy = hasattr(X, "npartitions")
        features = tuple(map(str, X.columns))
    else:
        name = name or ("the array X" if y is None else "the arrays (X, y)")
        X = _array("X", X)
        check_shapes(X)
        features = tuple(names) or default_names(X.shape[1])
    if len(features) != X.shape[1]:
        raise DataError(
            f"{name}: X has {X.shape[1]} columns, but `columns` has {len(features)} names."
        )
    targets = () if y is None else _target_names(y)
    n_rows: int | None = None
    if not lazy:
        n_rows = int(X.shape[0])
    elif y is not None or weights is not None:
        n_rows = sum(lengths_of(X))
    refuse_missing_chunks("X", X)
    parts = [(X, features)]
    if y is not None:
        parts.append((_beside("y", y, n_rows), targets))
    if weights is not None:
        parts.append((_beside("the weights", weights, n_rows), ("weights",)))
    return Reader(
        name,
        tuple(column for _, columns in parts for column in columns),
        partial(_batches, name, parts),
        n_rows,
        targets,
        weights=None if weights is None else "weights",
        categorical=_categories(X) if is_frame(X) else {},
        ambiguous=tuple(null_texts()) if is_frame(X) else (),
    )


def _categories(frame: Any) -> dict[str, tuple[Any, ...] | None]:
    """Return the levels of each categorical column of a data frame; None for the columns of a Dask
    frame."""
    lazy = hasattr(frame, "npartitions")
    return {
        str(name): None if lazy else tuple(map(plain_label, dtype.categories))
        for name, dtype in frame.dtypes.items()
        if hasattr(dtype, "categories")
    }


def _beside(name: str, values: Any, n_rows: int | None) -> Any:
    """Return targets or weights as an array. Raises ``DataError`` unless they have ``n_rows``
    rows."""
    refuse_missing_chunks(name, values)
    values = _array(name, values, numbers=False)
    check_beside(name, values, n_rows or 0)
    return values


Parts = list[tuple[Any, tuple[str, ...]]]
"""Arrays and data frames with the same rows, each with the names of its columns."""


def _batches(where: str, parts: Parts, wanted: Sequence[str], batch_bytes: int) -> Iterator[Batch]:
    """Yield the wanted columns of a table in batches.

    Args:
        where: name of the table in messages
        parts: arrays and data frames of the table
        wanted: names of the columns to read
        batch_bytes: approximate size of a batch
    """
    n_columns = sum(len(columns) for _, columns in parts)
    arrays = [values for values, _ in parts]
    for blocks in _blocks(arrays, rows_per_batch(batch_bytes, n_columns)):
        yield {
            column: _arrow(where, column, block, place)
            for block, (_, columns) in zip(blocks, parts, strict=True)
            for place, column in enumerate(columns)
            if column in wanted
        }


def _blocks(arrays: Sequence[Any], step: int) -> Iterator[list[Any]]:
    """Yield blocks of at most ``step`` rows, the same rows of every array, in memory; Dask frames
    are loaded partition by partition."""
    client = client_of(*arrays)
    X = arrays[0]
    start = 0

    def in_memory(values: Any) -> Any:
        return computed(values, client=client)[0] if hasattr(values, "__dask_graph__") else values

    def rows(values: Any, start: int, stop: int) -> Any:
        return in_memory((values.iloc if hasattr(values, "iloc") else values)[start:stop])

    lazy = is_frame(X) and hasattr(X, "npartitions")
    for part in X.partitions if lazy else [X]:
        partition = in_memory(part) if lazy else part
        for first in range(0, partition.shape[0], step):
            block = rows(partition, first, first + step)
            # one by one: Dask does not optimize frame expressions together with array graphs
            yield [block, *(rows(values, start, start + len(block)) for values in arrays[1:])]
            start += len(block)


def _arrow(where: str, name: str, block: Any, place: int) -> Any:
    """Convert one column of a block of rows to an Arrow array.

    Args:
        where: name of the table in messages
        name: name of the column in messages
        block: rows of an array or data frame
        place: number of the column in the block
    """
    import pyarrow as pa

    values = block
    if is_frame(block):
        values = block.iloc[:, place]
    elif len(block.shape) == 2:
        values = block[:, place]
    if isinstance(values, np.ndarray) and values.dtype.kind in "fiu":
        # pa.array would import pandas (about 45 MiB)
        dtype = np.float64 if values.dtype.kind == "f" else values.dtype.newbyteorder("=")
        plain = np.ascontiguousarray(values, dtype)
        return pa.Array.from_buffers(
            pa.from_numpy_dtype(plain.dtype), len(plain), [None, pa.py_buffer(plain)]
        )
    if hasattr(values, "sparse"):  # pandas' accessor, which only sparse columns have
        values = values.sparse.to_dense()
    try:
        try:
            array = pa.array(values, from_pandas=True)
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            if not is_frame(block):
                raise
            array = pa.array(_as_cells(values))
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise DataError(
            f"{where}: the column {quoted(name)} holds values of mixed types, values that are "
            f"neither numbers nor labels, or numbers beyond 64 bits ({error})."
        ) from error
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


CELLS = (str, numbers.Real, Decimal, datetime.date, datetime.time)
"""Types that one column of objects may mix: their texts are those of a file."""


def _as_cells(values: Any) -> list[str | None]:
    """Return a column of texts, numbers and dates as the texts that a file would have. Raises
    ``TypeError`` for other values."""
    cells = list[str | None]()
    for value in values:
        if value is None or value != value:
            cells.append(None)
        elif isinstance(value, CELLS):
            cells.append(str(value))
        else:
            raise TypeError(f"{type(value).__name__} among the values")
    return cells


def _target_names(y: Any) -> tuple[str, ...]:
    """Return the target names: the names in a series or data frame y, otherwise y, or y0, y1, …."""
    if is_frame(y):
        return tuple(str(name or "y") for name in y.columns)
    if hasattr(y, "to_frame"):
        return (str(y.name or "y"),)
    shape = y.shape if hasattr(y, "shape") else np.shape(y)
    if len(shape) == 1 or shape[1] == 1:
        return ("y",)
    return tuple(f"y{k}" for k in range(shape[1]))
