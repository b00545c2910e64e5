"""Conversion of the user's data: to a source for a fit, and to columns for ingest. Dask and pandas are imported only if
needed.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from partirvm.core.moments import refuse_masked, require_exact_frame
from partirvm.data.arrays import ArraySource, shuffled_rows
from partirvm.data.checks import check_dtype, check_shapes, numeric_array
from partirvm.data.chunked import ChunkedSource, client_of, computed, refuse_missing_chunks, with_known_sizes
from partirvm.data.source import Columns, Source, default_names
from partirvm.data.tables import Batch, Reader, open_binary, open_table, reading_file, rows_per_batch
from partirvm.data.zarr_source import ZarrSource
from partirvm.errors import DataError, MemoryLimitError, UsageError
from partirvm.frames import is_frame, module_of, pandas_column, pandas_frame
from partirvm.quoting import listed, quoted


def as_source(
    X: Any,
    y: Any = None,
    weights: Any = None,
    *,
    seed: int | None = None,
    columns: Columns | None = None,
    tile_rows: int | None = None,
    allow_missing_chunks: bool = False,
) -> Source:
    """Convert data of any supported kind to a source of row tiles. Large data are neither read nor copied.

    Parameters
    ----------
    X : array, data frame, path, URL or Source
        NumPy array or nested list (N, d); pandas, polars or Dask data frame; Zarr or Dask array (N, d); path or URL of
        DATA made by ``ingest``; or a source, which is returned unchanged. DATA and sources already contain y and
        weights.
    y, weights : array, optional
        Targets (N,) or (N, T) and precision weights (N,), of the same kind as X or as NumPy arrays.
    seed : int, optional
        Seed for shuffling the rows of data in memory (NumPy, pandas), as in ``ingest``. The rows of all other data keep
        their order.
    columns : Columns, optional
        Names of the columns; default: the names in the data frame, or ``x0``, ``x1``, …
    tile_rows : int, optional
        Number of rows per tile; default: computed from the shape of the data.
    allow_missing_chunks : bool
        For Zarr arrays: if True, chunks that were never written are read as the fill value; if False, they are an
        error.

    Raises
    ------
    DataError
        X or y contains text or complex numbers, has a wrong shape or length, has no rows, or has a single row with a
        target.
    MissingDataError, FormatError
        DATA or chunks are missing or cannot be read.
    UsageError
        y or weights are given together with DATA or a source.

    Examples
    --------
    >>> source = as_source([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]], [1, 2, 3])
    >>> source.n_rows, source.n_features, source.columns.features
    (3, 2, ('x0', 'x1'))
    """
    if isinstance(X, str | os.PathLike | Source):
        if y is not None or weights is not None:
            raise UsageError("y and weights are part of DATA: pass only the DATA.")
        return X if isinstance(X, Source) else ZarrSource(X)
    X, y = pandas_frame(X), pandas_column(y)
    if is_frame(X):
        columns = columns or Columns(tuple(str(name) for name in X.columns), target=_name(y))
    X, y, weights = _numbers("X", X), _numbers("y", y), _numbers("the weights", weights)
    if {"dask", "zarr"} & {module_of(X), module_of(y)}:
        return ChunkedSource(
            X, y, weights, columns=columns, tile_rows=tile_rows, allow_missing_chunks=allow_missing_chunks
        )
    order = None if seed is None or X.ndim != 2 else shuffled_rows(len(X), seed)
    return ArraySource(X, y, weights, permutation=order, tile_rows=tile_rows, columns=columns, seed=seed)


def _name(y: Any) -> str:
    names: Sequence[Any] = getattr(y, "columns", [])
    name = names[0] if len(names) == 1 else getattr(y, "name", None)
    return str(name) if isinstance(name, (str, int)) and module_of(y) in ("pandas", "dask", "dask_expr") else "y"


def _numbers(name: str, values: Any) -> Any:
    """Convert numbers to an array that supports slicing; arrays of Zarr and Dask are unchanged."""
    if values is None or module_of(values) == "zarr" or hasattr(values, "chunks"):
        return with_known_sizes(values)
    if module_of(values) not in ("pandas", "dask", "dask_expr"):
        return numeric_array(name, values)
    names, dtypes = (list(values.columns), list(values.dtypes)) if values.ndim == 2 else ([name], [values.dtype])
    twice = [str(column) for place, column in enumerate(names) if column in names[:place]]
    if twice:
        raise DataError(f"the data frame has several columns named {quoted(min(twice))}: rename them.")
    for column, dtype in zip(names, dtypes, strict=True):
        check_dtype(f"the column {quoted(str(column))} of the data frame" if name == "X" else name, dtype)
    if hasattr(values, "npartitions"):
        floats = values.map_partitions(_floats, meta=values._meta.astype(np.float64))
        return floats.to_dask_array(lengths=_lengths(values))
    if len(set(dtypes)) == 1 and isinstance(dtypes[0], np.dtype):
        return values.to_numpy()
    require_exact_frame(values if values.ndim == 2 else values.to_frame(name))
    return values.to_numpy(dtype=np.float64, na_value=np.nan)


def _floats(frame: Any) -> Any:
    """Convert a partition, a pandas frame or series, to float64."""
    require_exact_frame(frame if frame.ndim == 2 else frame.to_frame(), "row {:,} of its partition")
    return frame.astype(np.float64)


def open_reader(source: Any, room: int | None = None) -> Reader:
    """Return the reader for a path, an fsspec URL, a data frame, or a tuple (X, y) or (X, y, weights); y may be None.

    ``room`` is the maximum number of bytes of an .npz file. Raises ``DataError``, ``MissingDataError``, ``UsageError``
    or ``MemoryLimitError`` for a source that cannot be read.
    """
    if isinstance(source, (str, os.PathLike)):
        found = open_table(os.fspath(source))
        return found if isinstance(found, Reader) else _npz(*found, room)
    if isinstance(source, (tuple, list)) and len(source) in (2, 3):
        return ColumnsReader(pandas_frame(source[0]), *map(pandas_column, source[1:]))
    source = pandas_frame(source, "the source")
    if is_frame(source):
        return ColumnsReader(source)
    raise UsageError(
        f"cannot ingest a {type(source).__name__}: pass a file, a folder, a data frame of pandas, polars or Dask, or a "
        "tuple (X, y) of arrays; for rows to predict pass (X, None) and like=…"
    )


class ColumnsReader(Reader):
    """A reader of a data frame or array X, with targets and weights beside X. Rows are matched by position.

    X is a pandas or Dask frame, or a NumPy, Zarr or Dask array; ``y`` and ``weights`` are arrays, series, frames or
    lists, or None. The columns of an array X are called ``names``, default ``x0``, ``x1``, …; those of an array y (N,
    T) are called ``y0``, ``y1``, …. ``others`` are more columns (N,). Dask frames are computed partition by partition.
    ``categorical`` are the columns of pandas' categorical type, which are categories by default.
    """

    def __init__(
        self,
        X: Any,
        y: Any = None,
        weights: Any = None,
        *,
        name: str = "",
        names: Sequence[str] | None = None,
        others: Mapping[str, Any] | None = None,
    ) -> None:
        frame = is_frame(X)
        self.name = name or ("the data frame" if frame else "the array X" if y is None else "the arrays (X, y)")
        self._X = X if frame else _numbers("X", X)
        if not frame:
            check_shapes(self._X)
        beside = [] if y is None else _targets(y, named=frame)
        self.targets = tuple(column for columns, _ in beside for column in columns)
        if weights is not None:
            self.weights = "weights"
            beside.append((("weights",), _positional(weights) if frame else _numbers("the weights", weights)))
        beside += [((other,), values) for other, values in (others or {}).items()]
        self._names, self._arrays = [columns for columns, _ in beside], [array for _, array in beside]
        if frame:
            self._own = tuple(str(column) for column in X.columns)
            kinds = zip(self._own, X.dtypes, strict=True)
            self.categorical = tuple(column for column, dtype in kinds if hasattr(dtype, "categories"))
        else:
            self._own = self.features = tuple(names or default_names(self._X.shape[1]))
        self.columns = (*self._own, *(column for columns in self._names for column in columns))
        self._edges: list[int] | None = None  # numbers of the first rows of the partitions, and the number of rows
        if hasattr(X, "npartitions") and frame and beside:
            self._edges = [0, *accumulate(_lengths(X))]
        self._check(beside, frame)

    def _check(self, beside: Sequence[tuple[tuple[str, ...], Any]], frame: bool) -> None:
        """Check names and shapes, and that X, y and the weights have the same number of rows."""
        X, taken = self._X, list(self._own) * frame
        if len(self._own) != (len(X.columns) if frame else X.shape[1]):
            raise DataError(f"{self.name}: X has {X.shape[1]} columns, but `columns` has {len(self._own)} names.")
        for column in (name for columns, _ in beside for name in columns if frame):
            if column in taken:
                raise DataError(
                    f"a column of y or the weights and a column of X have the same name {quoted(column)}: rename one."
                )
            taken.append(column)
        if not frame or not hasattr(X, "npartitions"):
            self.n_rows = len(X) if frame else int(X.shape[0])
        elif self._edges is not None:
            self.n_rows = self._edges[-1]
        else:
            return
        refuse_missing_chunks("X", X)
        X = np.broadcast_to(0.0, (self.n_rows, 1)) if frame else X
        for columns, array in beside:
            refuse_missing_chunks(", ".join(columns), array)
            shape = np.broadcast_to(0.0, array.shape)
            check_shapes(X, *((None, shape) if columns == ("weights",) else (shape, None)), least=1)

    def batches(self, wanted: Sequence[str], levels: frozenset[str], batch_bytes: int) -> Iterator[Batch]:
        """Yield rows of X with the same rows of the other arrays."""
        step = rows_per_batch(batch_bytes, len(self.columns))
        places = {name: place for place, name in enumerate(self._own)}
        for X, arrays in self._blocks(step):
            columns: dict[str, Any] = {}
            for names, array in zip(self._names, arrays, strict=True):
                columns |= zip(names, [array] if len(array.shape) == 1 else array.T, strict=True)
            for start in range(0, len(X), step):
                rows, batch = slice(start, start + step), {}
                for name in wanted:
                    if name in columns:
                        values = columns[name][rows]
                    else:
                        values = X.iloc[rows, places[name]] if is_frame(X) else X[rows, places[name]]
                    batch[name] = self._arrow(name, values)
                yield batch

    def _blocks(self, step: int) -> Iterator[tuple[Any, Sequence[Any]]]:
        """Yield the rows of X, and the same rows of the other arrays, in memory: partitions, or ``step`` rows."""
        client, X, n_rows = client_of(self._X, *self._arrays), self._X, self.n_rows or 0
        if is_frame(X) and hasattr(X, "npartitions"):
            edges = self._edges or [0] * (X.npartitions + 1)
            spans = [slice(*edges[number : number + 2]) for number in range(X.npartitions)]
            pieces = (X.partitions[number] for number in range(X.npartitions))
        else:
            spans = [slice(start, start + step) for start in range(0, n_rows, step)]
            pieces = ((X.iloc if is_frame(X) else X)[rows] for rows in spans)
        for piece, rows in zip(pieces, spans, strict=True):
            blocks = [piece, *(array[rows] for array in self._arrays)]
            # one by one: Dask does not optimize expressions of frames together with graphs of arrays
            loaded = [computed(b, client=client)[0] if hasattr(b, "__dask_graph__") else b for b in blocks]
            yield loaded[0], loaded[1:]

    def _arrow(self, name: str, values: Any) -> Any:
        """Convert values of a column to an Arrow array."""
        import pyarrow as pa

        if isinstance(values, np.ndarray) and values.dtype.kind in "fiu":
            # pa.array would import pandas (about 45 MiB)
            dtype = np.float64 if values.dtype.kind == "f" else values.dtype.newbyteorder("=")
            plain = np.ascontiguousarray(values, dtype)
            return pa.Array.from_buffers(pa.from_numpy_dtype(plain.dtype), len(plain), [None, pa.py_buffer(plain)])
        try:
            array = pa.array(values, from_pandas=True)
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
            raise DataError(
                f"{self.name}: the column {quoted(name)} holds values of several types, values that are neither "
                f"numbers nor labels, or numbers that do not fit into 64 bits ({error})."
            ) from error
        return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def _lengths(frame: Any) -> list[int]:
    """Return the number of rows of each partition of a Dask frame or series."""
    (lengths,) = computed(frame.map_partitions(len), client=client_of(frame))
    return [int(n) for n in lengths]


def _targets(y: Any, *, named: bool) -> list[tuple[tuple[str, ...], Any]]:
    """Return arrays (N,) or (N, T) of targets with the names of their columns; ``named`` uses the names in y."""
    if is_frame(y):
        names = tuple(str(name or "y") for name in y.columns)
        if len(set(names)) < len(names) or not names:
            raise DataError(f"ingest: the columns of y need distinct names, found {listed(y.columns)}.")
        if not hasattr(y, "npartitions") and named:
            return [((name,), _positional(y[column])) for name, column in zip(names, y.columns, strict=True)]
    elif hasattr(y, "to_frame"):
        names = (str(y.name or "y"),)
    else:
        names, named = (), False
    array = _positional(y)
    return [(names if named else target_columns(array.shape), array)]


def target_columns(shape: tuple[int, ...]) -> tuple[str, ...]:
    """Return the names of the columns of an array y of the given shape.

    >>> target_columns((9,)), target_columns((9, 2))
    (('y',), ('y0', 'y1'))
    """
    return ("y",) if len(shape) == 1 or shape[1] == 1 else tuple(f"y{k}" for k in range(shape[1]))


def _positional(values: Any) -> Any:
    """Convert numbers or labels to an array that is sliced by position."""
    if hasattr(values, "to_dask_array"):
        return values.to_dask_array(lengths=_lengths(values))
    refuse_masked(values, "y")
    if module_of(values) == "pandas":
        return values.array if values.ndim == 1 else values.to_numpy()
    return with_known_sizes(values if hasattr(values, "shape") and hasattr(values, "dtype") else np.asarray(values))


def _npz(filesystem: Any, path: str, room: int | None) -> ColumnsReader:
    """Return the reader of an archive with ``X`` (N, d), and optionally ``y`` (N,) or (N, T), ``weights`` (N,) and the
    feature names ``columns`` (d,). Other arrays (N,) are columns too, and may be named as target or weights.

    The arrays are read whole. Raises ``MemoryLimitError`` if they have more than ``room`` bytes.
    """
    with reading_file(path), open_binary(filesystem, path) as file:
        with zipfile.ZipFile(file) as archive:
            nbytes = sum(member.file_size for member in archive.infolist())
        if room is not None and nbytes > room:
            raise MemoryLimitError(
                f"{path}: its arrays have {nbytes >> 20:,} MiB and are read whole, but the memory limit leaves "
                f"{max(room, 0) >> 20:,} MiB: raise memory_limit, or write the rows as Parquet."
            )
        file.seek(0)
        try:
            arrays = dict(np.load(file, allow_pickle=False))
        except MemoryError as error:
            raise DataError(
                f"{path}: an array states more values than the file holds: write the file again."
            ) from error
    if "X" not in arrays:
        raise DataError(f"{path}: there is no array X in the archive. Its arrays: {listed(sorted(arrays))}.")
    X, y, weights = (arrays.pop(name, None) for name in ("X", "y", "weights"))
    names = arrays.pop("columns", None)
    others = {name: array for name, array in arrays.items() if array.shape == X.shape[:1]}
    names = None if names is None else [str(name) for name in names.reshape(-1)]
    reader = ColumnsReader(X, y, weights, name=path, names=names, others=others)
    reader.memory_advice = ", or write the rows as Parquet, which is read in batches"
    return reader
