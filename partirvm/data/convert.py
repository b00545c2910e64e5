"""Conversion of the user's data to a source for a fit, or to columns for ingest."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
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
from partirvm.data.encode import Encoder
from partirvm.data.labels import LABELS, plain_label
from partirvm.data.problems import refuse
from partirvm.data.roles import Roles, check_roles
from partirvm.data.source import (
    Source,
    check_beside,
    check_dtype,
    check_shapes,
    default_names,
    numeric_array,
)
from partirvm.data.tables import Batch, Reader, file_table, opened, rows_per_batch
from partirvm.data.zarr_source import ZarrSource
from partirvm.errors import DataError, MemoryLimitError, UsageError
from partirvm.quoting import listed, quoted
from partirvm.storage import open_filesystem
from partirvm.storage.address import address, without_query
from partirvm.types import Columns, Float, is_frame, pandas_column, pandas_frame


def as_source(
    X: Any,
    y: Any = None,
    weights: Any = None,
    *,
    seed: int | None = None,
    columns: Columns | None = None,
    **how: Any,
) -> Source:
    """Convert data to a source of row tiles. Large datasets are neither read nor copied.

    X (N, d) is a NumPy array, nested list, data frame, Zarr or Dask array; the targets y, (N,) or
    (N, T), and precision weights (N,) are of the same kind or NumPy arrays. X may also be a source
    or the path or URL of DATA, which contain the targets and weights. ``seed`` shuffles in-memory
    rows as ``ingest`` does. ``columns`` defaults to the names in the data frame, or ``x0``, ``x1``,
    …. ``how`` may contain ``tile_rows``.

    Raises ``DataError`` for values that cannot be used, ``MissingDataError`` or ``FormatError`` for
    DATA or chunks that cannot be read, and ``UsageError`` if y or weights are passed along with
    DATA or a source.
    """
    if isinstance(X, str | os.PathLike | Source):
        if y is not None or weights is not None:
            raise UsageError("y and weights are part of the dataset: pass the dataset alone.")
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
    return ArraySource(X, y, weights, permutation=order, columns=columns, **how)


def _array(name: str, values: Any, *, numbers: bool = True) -> Any:
    """Convert ``numbers`` or labels to a NumPy, Zarr or Dask array. Raises ``DataError`` if masked
    or not numeric."""
    if hasattr(values, "to_dask_array"):
        columns = values.dtypes.items() if values.ndim == 2 else [(name, values.dtype)]
        for column, dtype in columns if numbers else ():
            check_dtype(
                f"the column {quoted(str(column))} of the data frame" if name == "X" else name,
                dtype,
            )
        extended = values.ndim == 1 and not isinstance(
            values.dtype, np.dtype
        )  # pandas' own text and category dtypes
        plain = values.astype(np.float64 if numbers else object) if numbers or extended else values
        return plain.to_dask_array(lengths_of(values))
    if values is None or hasattr(values, "chunks"):
        unknown = hasattr(values, "compute_chunk_sizes") and any(np.isnan(n) for n in values.shape)
        return values.compute_chunk_sizes() if unknown else values
    if numbers:
        return numeric_array(name, values)
    refuse_masked(values, name)
    return np.asarray(values)


def open_table(source: Any, room: int | None = None) -> Reader:
    """Open a path, URL, data frame or tuple of arrays as a table. ``room`` limits the bytes of an
    .npz file."""
    if isinstance(source, str | os.PathLike):
        url = address(source)
        is_archive = without_query(url).lower().endswith(".npz") and "*" not in url
        return _archive_table(url, room) if is_archive else file_table(url)
    if isinstance(source, tuple | list) and len(source) in (2, 3):
        return arrays_table(pandas_frame(source[0]), *map(pandas_column, source[1:]))
    source = pandas_frame(source, "the source")
    if is_frame(source):
        return arrays_table(source)
    kinds = "a file, a folder, a data frame of pandas, polars or Dask, or a tuple (X, y) of arrays"
    raise UsageError(
        f"cannot ingest a {type(source).__name__}: pass {kinds}; for rows to predict (X, None) "
        "and like=…"
    )


def _archive_table(url: str, room: int | None) -> Reader:
    """Return an .npz file, which is read whole, as a table. Raises ``MemoryLimitError`` beyond
    ``room`` bytes."""
    filesystem, path = open_filesystem(url)
    with opened(filesystem, path) as file, np.load(file, allow_pickle=False) as archive:
        sizes = {member.filename: member.file_size for member in archive.zip.infolist()}
        nbytes = sum(sizes.values())
        if room is not None and nbytes > room:
            needs = (
                f"{nbytes >> 20:,} MiB and are read whole, but the memory limit leaves "
                f"{max(room, 0) >> 20:,} MiB"
            )
            advice = "raise memory_limit, or write Parquet, which is read in batches"
            raise MemoryLimitError(f"{url}: its arrays have {needs}: {advice}")
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

    ``names`` are the column names of an array. Columns with pandas' categorical dtype are
    categories by default.
    """
    frame = is_frame(X)
    name = name or (
        "the data frame" if frame else "the array X" if y is None else "the arrays (X, y)"
    )
    if not frame:
        X = _array("X", X)
        check_shapes(X)
    own = tuple(map(str, X.columns)) if frame else tuple(names) or default_names(X.shape[1])
    if len(own) != X.shape[1]:
        raise DataError(f"{name}: X has {X.shape[1]} columns, but `columns` has {len(own)} names.")
    lazy = frame and hasattr(X, "npartitions")
    targets = () if y is None else _target_names(y)
    n_rows = (
        None
        if lazy and y is None and weights is None
        else sum(lengths_of(X))
        if lazy
        else int(X.shape[0])
    )
    refuse_missing_chunks("X", X)
    parts = [(X, own)]
    for role, given, names in (("y", y, targets), ("the weights", weights, ("weights",))):
        if given is not None:
            refuse_missing_chunks(role, given)
            values = _array(role, given, numbers=False)
            check_beside(role, values, n_rows or 0)
            parts.append((values, names))
    columns = tuple(column for _, names in parts for column in names)
    kinds = (
        {str(name): dtype for name, dtype in X.dtypes.items() if hasattr(dtype, "categories")}
        if frame
        else {}
    )
    coded = {
        name: None if lazy else tuple(map(plain_label, kind.categories))
        for name, kind in kinds.items()
    }

    def batches(wanted: Sequence[str], batch_bytes: int) -> Iterator[Batch]:
        for blocks in _blocks(
            [values for values, _ in parts], rows_per_batch(batch_bytes, len(columns))
        ):
            yield {
                column: _arrow(name, column, block, place)
                for block, (_, names) in zip(blocks, parts, strict=True)
                for place, column in enumerate(names)
                if column in wanted
            }

    return Reader(
        name, columns, batches, n_rows, targets, None if weights is None else "weights", coded
    )


def checked_rows(X: Any, columns: Columns) -> Float:
    """Return X, an array, nested lists or a data frame with labels, as a float64 array, or raise
    ``DataError``."""
    X = pandas_frame(X)
    rows = frame_rows(X, columns)[0] if is_frame(X) else numeric_array("X", X).astype(np.float64)
    if np.isinf(rows).any():
        raise DataError("X has infinite values: remove or fill them")
    return rows


def frame_rows(X: Any, columns: Columns | None = None) -> tuple[Float, Columns]:
    """Return float64 rows (n, d) and the columns of a pandas frame, or a model's. Raises
    ``DataError`` if unusable."""
    names = default_names(X.shape[1])
    if columns is not None:
        X = in_order(X, columns)
        names = columns.given
    elif all(isinstance(name, str) for name in X.columns):
        names = tuple(X.columns)
    table = arrays_table(X.set_axis(list(names), axis=1))
    coded = tuple(table.categorical if columns is None else columns.categories)
    known = columns or Columns(())
    roles = Roles(
        names,
        (),
        None,
        coded,
        False,
        auto=columns is None,
        missing=known.missing,
        formats=known.formats,
    )
    check_roles(roles, table)
    encoder = Encoder(roles, table, columns)
    records = [block.copy() for block in encoder.records(None, table.most_batch)]
    refuse(table.name, [replace(each, remedy={}) for each in encoder.findings() if each.fatal])
    rows = encoder.finished(np.concatenate([np.empty((0, 2 + len(names))), *records]), 0)[:, 2:]
    return np.ascontiguousarray(rows), columns or encoder.columns()


def in_order(X: Any, columns: Columns) -> Any:
    """Return a frame's columns in the model's order, or all if unnamed. Raises ``DataError`` if
    columns are missing."""
    names = list(map(str, X.columns))
    wanted = columns.given
    missing = [name for name in wanted if name not in names]
    if missing and wanted != default_names(len(names)):
        lacking = "lacks columns on which the model was trained"
        raise DataError(f"the data frame {lacking}: {listed(missing)}. It has {listed(names)}")
    return (
        X
        if missing or tuple(names) == wanted
        else X.iloc[:, [names.index(name) for name in wanted]]
    )


def _blocks(arrays: Sequence[Any], step: int) -> Iterator[list[Any]]:
    """Yield the same rows of all arrays, at most ``step``, in memory; Dask frames are loaded by
    whole partitions."""
    client = client_of(*arrays)
    X = arrays[0]
    start = 0

    def rows(values: Any, start: int, stop: int) -> Any:
        some = (values.iloc if hasattr(values, "iloc") else values)[start:stop]
        return computed(some, client=client)[0] if hasattr(some, "__dask_graph__") else some

    lazy = is_frame(X) and hasattr(X, "npartitions")
    for part in X.partitions if lazy else [X]:
        held = computed(part, client=client)[0] if lazy else part
        for first in range(0, held.shape[0], step):
            block = rows(held, first, first + step)
            # one by one: Dask does not optimize frame expressions together with array graphs
            yield [block, *(rows(each, start, start + len(block)) for each in arrays[1:])]
            start += len(block)


def _arrow(where: str, name: str, block: Any, place: int) -> Any:
    """Convert one column of a block of rows to an Arrow array."""
    import pyarrow as pa

    values = (
        block.iloc[:, place]
        if is_frame(block)
        else block[:, place]
        if len(block.shape) == 2
        else block
    )
    if isinstance(values, np.ndarray) and values.dtype.kind in "fiu":
        # pa.array would import pandas (about 45 MiB)
        dtype = np.float64 if values.dtype.kind == "f" else values.dtype.newbyteorder("=")
        plain = np.ascontiguousarray(values, dtype)
        return pa.Array.from_buffers(
            pa.from_numpy_dtype(plain.dtype), len(plain), [None, pa.py_buffer(plain)]
        )
    try:
        array = pa.array(values, from_pandas=True)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        held = (
            "values of mixed types, values that are neither numbers nor labels, or numbers beyond "
            "64 bits"
        )
        raise DataError(f"{where}: the column {quoted(name)} holds {held} ({error}).") from error
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def _target_names(y: Any) -> tuple[str, ...]:
    """Return the target names: those of a series or data frame y, otherwise y, or y0, y1, …."""
    if hasattr(y, "to_frame") or is_frame(y):
        return tuple(str(name or "y") for name in (y.columns if is_frame(y) else [y.name]))
    shape = y.shape if hasattr(y, "shape") else np.shape(y)
    return ("y",) if len(shape) == 1 or shape[1] == 1 else tuple(f"y{k}" for k in range(shape[1]))
