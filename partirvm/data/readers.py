"""Where ingest reads from: every reader offers named columns and streams them in batches of bounded size.

A batch maps column names to one-dimensional Arrow or NumPy arrays of one length. ``open_reader`` finds the reader for
what a user passed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from partirvm.data.checks import check_shapes, numeric_array
from partirvm.data.tiled import default_names
from partirvm.errors import DataError, UsageError

Batch = Mapping[str, Any]


class Reader(Protocol):
    """A table to be ingested.

    ``features`` are the columns that are features unless the user says otherwise (None: all but target and weights);
    ``target`` and ``weights`` are the columns of these roles where the format has them. An ``untyped`` format does not
    tell numbers from text.
    """

    name: str
    columns: tuple[str, ...]
    features: tuple[str, ...] | None
    target: str | None
    weights: str | None
    n_rows: int | None
    untyped: bool

    def batches(self, wanted: Sequence[str], levels: frozenset[str], batch_bytes: int) -> Iterator[Batch]:
        """Stream the wanted columns, about ``batch_bytes`` at a time; those in ``levels`` hold labels, not numbers."""
        ...


def rows_per_batch(batch_bytes: int, n_columns: int) -> int:
    """Rows of float64 that fit ``batch_bytes``, at least 64.

    >>> rows_per_batch(16 << 20, 16)
    131072
    """
    return max(batch_bytes // (8 * max(n_columns, 1)), 64)


def open_reader(source: Any) -> Reader:
    """The reader for a path, an fsspec URL, a data frame or a tuple (X, y) or (X, y, weights), where y may be None.

    Raises ``DataError``, ``MissingDataError`` or ``UsageError`` for what cannot be read.
    """
    if isinstance(source, (str, os.PathLike)):
        from partirvm.data.tables import open_table

        return open_table(os.fspath(source))
    if is_frame(source):
        return FrameReader(source)
    if isinstance(source, (tuple, list)) and len(source) in (2, 3):
        if is_frame(source[0]):
            return FrameReader.of_parts(*source)
        return PairReader(*source)
    raise UsageError(
        f"cannot ingest a {type(source).__name__}: pass a file, a folder, a data frame or a tuple (X, y) of arrays; "
        "(X, None) with like=… for rows to be predicted."
    )


def module_of(value: Any) -> str:
    """Top-level package that a value's class comes from.

    >>> module_of(np.zeros(2))
    'numpy'
    """
    return type(value).__module__.partition(".")[0]


def is_frame(value: Any) -> bool:
    """Whether this is a pandas or Dask data frame; imports neither."""
    return module_of(value) in ("pandas", "dask", "dask_expr") and hasattr(value, "columns")


class PairReader:
    """A tuple (X, y) or (X, y, weights) of arrays that can be sliced: NumPy, Zarr, Dask. ``y`` may be None."""

    untyped = False

    def __init__(self, X: Any, y: Any, weights: Any = None) -> None:
        self.name = "the arrays (X, y)" if y is not None else "the array X"
        self._X = _sliceable("X", X)
        self._y: Any = None if y is None else _one_column("y", y)
        self._weights = None if weights is None else _sliceable("the weights", weights)
        check_shapes(self._X, None if self._y is None else np.broadcast_to(0.0, self._y.shape), self._weights)
        self._check_chunks()
        self.n_rows: int | None = int(self._X.shape[0])
        self.features: tuple[str, ...] | None = default_names(int(self._X.shape[1]))
        self.target: str | None = None if y is None else "y"
        self.weights: str | None = None if weights is None else "weights"
        self.columns = (*self.features, *["y"] * (y is not None), *["weights"] * (weights is not None))

    def _check_chunks(self) -> None:
        if "zarr" in (module_of(self._X), module_of(self._y)):
            from partirvm.data.zarr_source import refuse_missing_chunks

            for name, array in (("X", self._X), ("y", self._y), ("weights", self._weights)):
                refuse_missing_chunks(name, array)

    def batches(self, wanted: Sequence[str], levels: frozenset[str], batch_bytes: int) -> Iterator[Batch]:
        """Slices of the arrays, in whole chunks of X where it has any and they are small."""
        n_rows, n_features = (int(n) for n in self._X.shape)
        step = rows_per_batch(batch_bytes, n_features)
        for start in range(0, n_rows, step):
            rows = slice(start, start + step)
            X = _computed(self._X[rows])
            batch = {f"x{j}": X[:, j] for j in range(n_features)}
            if self._y is not None:
                batch["y"] = _computed(self._y[rows])
            if self._weights is not None:
                batch["weights"] = _computed(self._weights[rows])
            yield batch


def _one_column(name: str, values: Any) -> Any:
    """``values``, numbers or labels, as one column that can be sliced. Raises ``DataError`` for several."""
    if hasattr(values, "to_dask_array"):
        values = values.to_dask_array(lengths=True)
    column = _known_chunks(values if _is_array(values) else np.asarray(values))
    if len(column.shape) == 2 and column.shape[1] == 1:
        column = column[:, 0]
    if len(column.shape) != 1:
        kind = "target" if name == "y" else "column of weights"
        raise DataError(f"ingest: {name} must have shape (rows,), found {tuple(column.shape)}: one {kind} per DATA.")
    return column


def _sliceable(name: str, values: Any) -> Any:
    """Numbers as an array that can be sliced. Raises ``DataError`` for what is none."""
    if hasattr(values, "to_dask_array"):
        values = values.to_dask_array(lengths=True)
    return _known_chunks(values if _is_array(values) else numeric_array(name, values))


def _is_array(values: Any) -> bool:
    """Whether slices of it are by position; those of pandas may be by label."""
    return hasattr(values, "shape") and hasattr(values, "dtype") and module_of(values) != "pandas"


def _computed(block: Any) -> np.ndarray[Any, Any]:
    return np.asarray(block.compute(scheduler="synchronous") if hasattr(block, "compute") else block)


def _known_chunks(array: Any) -> Any:
    """A Dask array with the sizes of its chunks computed; anything else as it is."""
    if hasattr(array, "compute_chunk_sizes") and any(np.isnan(n) for n in array.shape):
        return array.compute_chunk_sizes()
    return array


class FrameReader:
    """A pandas or Dask data frame; a Dask one is computed partition by partition."""

    name = "the data frame"
    untyped = False
    features: tuple[str, ...] | None = None

    def __init__(self, frame: Any, target: str | None = None, weights: str | None = None) -> None:
        self._frame = frame
        self.columns = tuple(str(name) for name in frame.columns)
        self.target, self.weights = target, weights
        self.n_rows: int | None = None if hasattr(frame, "npartitions") else len(frame)

    @classmethod
    def of_parts(cls, X: Any, y: Any, weights: Any = None) -> FrameReader:
        """A data frame of features with a target, unless that is None, and weights, of their own."""
        if y is None:
            return cls(X) if weights is None else cls(X.assign(weights=weights), weights="weights")
        target = str(getattr(y, "name", None) or "y")
        if target in [str(name) for name in X.columns]:
            raise DataError(f"y is called {target!r}, and so is a column of X: rename one of them.")
        if hasattr(y, "__len__") and not hasattr(X, "npartitions") and len(y) != len(X):
            raise DataError(f"X has {len(X):,} rows, but y has {len(y):,}: they must belong together.")
        extra = {target: y} if weights is None else {target: y, "weights": weights}
        return cls(X.assign(**extra), target, None if weights is None else "weights")

    def batches(self, wanted: Sequence[str], levels: frozenset[str], batch_bytes: int) -> Iterator[Batch]:
        """Slices of the frame, or of its partitions one after another."""
        places = [self.columns.index(name) for name in wanted]
        step = rows_per_batch(batch_bytes, len(wanted))
        if not hasattr(self._frame, "npartitions"):
            yield from self._slices(self._frame, places, wanted, step)
            return
        for number in range(self._frame.npartitions):
            part = self._frame.get_partition(number).compute(scheduler="synchronous")
            yield from self._slices(part, places, wanted, step)

    def _slices(self, frame: Any, places: list[int], wanted: Sequence[str], step: int) -> Iterator[Batch]:
        import pyarrow as pa

        for start in range(0, len(frame), step):
            rows = frame.iloc[start : start + step, places]
            batch = {}
            for place, name in enumerate(wanted):
                try:
                    batch[name] = pa.Array.from_pandas(rows.iloc[:, place])
                except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
                    raise DataError(f"{self.name}: the column {name!r} mixes kinds of values ({error}).") from error
                if isinstance(batch[name], pa.ChunkedArray):
                    batch[name] = batch[name].combine_chunks()
            yield batch
