"""Conversion of the arguments of ``fit`` to a source. Dask and pandas are imported only if needed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from partirvm.core.exact import require_exact_frame
from partirvm.data.arrays import ArraySource, shuffled_rows
from partirvm.data.checks import check_dtype, numeric_array
from partirvm.data.chunked import ChunkedSource
from partirvm.data.source import Columns, Source
from partirvm.data.zarr_source import ZarrSource
from partirvm.errors import DataError, UsageError
from partirvm.frames import is_frame, module_of, pandas_column, pandas_frame
from partirvm.quoting import quoted


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
        return values
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
        return floats.to_dask_array(lengths=True)
    if len(set(dtypes)) == 1 and isinstance(dtypes[0], np.dtype):
        return values.to_numpy()
    require_exact_frame(values if values.ndim == 2 else values.to_frame(name))
    return values.to_numpy(dtype=np.float64, na_value=np.nan)


def _floats(frame: Any) -> Any:
    """Convert a partition, a pandas frame or series, to float64."""
    require_exact_frame(frame if frame.ndim == 2 else frame.to_frame(), "row {:,} of its partition")
    return frame.astype(np.float64)
