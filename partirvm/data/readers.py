"""Readers for ingest. A reader streams named columns in batches of bounded size.

A batch maps column names to one-dimensional Arrow or NumPy arrays of one length.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from partirvm.core.exact import refuse_masked
from partirvm.data.checks import check_shapes, numeric_array
from partirvm.data.chunked import client_of, computed, refuse_missing_chunks
from partirvm.data.source import default_names
from partirvm.errors import DataError
from partirvm.frames import is_frame, module_of
from partirvm.quoting import listed, quoted

Batch = Mapping[str, Any]


class Reader(Protocol):
    """The interface of a table to be ingested.

    ``features`` are the default feature columns; None stands for all columns except targets and weights. ``targets``
    and ``weights`` are the columns of these roles if the format defines the roles. An ``untyped`` format does not
    distinguish numbers from text. ``memory_advice`` states how to read the source with less memory. Batches larger than
    ``most_batch`` bytes are not faster.
    """

    name: str
    columns: tuple[str, ...]
    features: tuple[str, ...] | None
    targets: tuple[str, ...]
    weights: str | None
    n_rows: int | None
    untyped: bool
    memory_advice: str
    most_batch: int

    def held(self, wanted: Sequence[str]) -> int:
        """Return the bytes needed to read the given columns, in addition to the batches."""
        ...

    def batches(self, wanted: Sequence[str], levels: frozenset[str], batch_bytes: int) -> Iterator[Batch]:
        """Stream the wanted columns in batches of about ``batch_bytes`` bytes. Columns in ``levels`` contain labels."""
        ...


class StreamingReader:
    """Base class of readers that hold nothing in memory except their batches."""

    memory_advice = ""
    most_batch = 64 << 20

    def held(self, wanted: Sequence[str]) -> int:
        """Return the bytes needed to read the given columns, in addition to the batches."""
        return 0


def rows_per_batch(batch_bytes: int, n_columns: int) -> int:
    """Return the number of rows of float64 that fit into ``batch_bytes``, at least 64.

    >>> rows_per_batch(16 << 20, 16)
    131072
    """
    return max(batch_bytes // (8 * max(n_columns, 1)), 64)


def numbers(values: Any) -> np.ndarray[Any, Any]:
    """Convert a numeric Arrow array to a NumPy array. Missing values, which occur only in arrays of floats, become NaN.

    Arrow's ``to_numpy`` is not used, because this method imports pandas (about 45 MiB).

    >>> import pyarrow as pa
    >>> numbers(pa.array([1.5, None])).tolist(), numbers(pa.array([2, 3])[1:]).tolist()
    ([1.5, nan], [3])
    """
    return np.from_dlpack(values.fill_null(float("nan")) if values.null_count else values)


class PairReader(StreamingReader):
    """A reader of a tuple (X, y) or (X, y, weights) of sliceable arrays: NumPy, Zarr, Dask. ``y`` may be None.

    The columns of y (N, T) are called ``y0``, ``y1``, …
    """

    untyped = False

    def __init__(self, X: Any, y: Any, weights: Any = None) -> None:
        self.name = "the arrays (X, y)" if y is not None else "the array X"
        self._X = _sliceable("X", X)
        self._y: Any = None if y is None else _by_position(y)
        self._weights = None if weights is None else _sliceable("the weights", weights)
        check_shapes(self._X, None if self._y is None else np.broadcast_to(0.0, self._y.shape), self._weights, least=1)
        self._check_chunks()
        self.n_rows: int | None = int(self._X.shape[0])
        self.features: tuple[str, ...] | None = default_names(int(self._X.shape[1]))
        self.targets = () if self._y is None else target_columns(self._y.shape)
        self.weights: str | None = None if weights is None else "weights"
        self.columns = (*self.features, *self.targets, *["weights"] * (weights is not None))

    def _check_chunks(self) -> None:
        if "zarr" in (module_of(self._X), module_of(self._y)):
            for name, array in (("X", self._X), ("y", self._y), ("weights", self._weights)):
                refuse_missing_chunks(name, array)

    def batches(self, wanted: Sequence[str], levels: frozenset[str], batch_bytes: int) -> Iterator[Batch]:
        """Yield slices of the arrays. If the chunks of X are small, each slice contains whole chunks."""
        n_rows, n_features = (int(n) for n in self._X.shape)
        step = rows_per_batch(batch_bytes, n_features + len(self.targets))
        client = client_of(self._X, self._y, self._weights)
        for start in range(0, n_rows, step):
            rows = slice(start, start + step)
            X = _computed(self._X[rows], client)
            batch = {f"x{j}": X[:, j] for j in range(n_features)}
            if self._y is not None:
                batch |= by_column(self.targets, _computed(self._y[rows], client))
            if self._weights is not None:
                batch["weights"] = _computed(self._weights[rows], client)
            yield batch


def target_columns(shape: tuple[int, ...]) -> tuple[str, ...]:
    """Return the names of the columns of an array y of the given shape.

    >>> target_columns((9,)), target_columns((9, 2))
    (('y',), ('y0', 'y1'))
    """
    return ("y",) if len(shape) == 1 else tuple(f"y{k}" for k in range(shape[1]))


def by_column(names: tuple[str, ...], values: Any) -> dict[str, Any]:
    """Return the columns of an array (rows,) or (rows, columns), by name."""
    return dict(zip(names, [values] if values.ndim == 1 else values.T, strict=True))


def _by_position(values: Any) -> Any:
    """Convert ``values``, numbers or labels, to a sliceable array; shape (N, 1) becomes (N,)."""
    if hasattr(values, "to_dask_array"):
        values = values.to_dask_array(lengths=True)
    refuse_masked(values, "y")
    array = _known_chunks(values if _is_array(values) else np.asarray(values))
    return array[:, 0] if len(array.shape) == 2 and array.shape[1] == 1 else array


def _sliceable(name: str, values: Any) -> Any:
    """Convert numeric values to a sliceable array. Raises ``DataError`` for all other values."""
    if hasattr(values, "to_dask_array"):
        values = values.to_dask_array(lengths=True)
    lazy = _is_array(values) and not isinstance(values, np.ma.MaskedArray) and not hasattr(values, "toarray")
    return _known_chunks(values if lazy else numeric_array(name, values))


def _is_array(values: Any) -> bool:
    """Return True if slices are by position; slices of pandas objects may be by label."""
    return hasattr(values, "shape") and hasattr(values, "dtype") and module_of(values) != "pandas"


def _computed(block: Any, client: Any) -> np.ndarray[Any, Any]:
    return np.asarray(computed(block, client=client)[0] if hasattr(block, "dask") else block)


def _known_chunks(array: Any) -> Any:
    """Compute unknown chunk sizes of a Dask array. All other values are returned unchanged."""
    if hasattr(array, "compute_chunk_sizes") and any(np.isnan(n) for n in array.shape):
        return array.compute_chunk_sizes()
    return array


class FrameReader(StreamingReader):
    """A reader of a pandas or Dask data frame. Dask data frames are computed partition by partition.

    ``categorical`` are the columns of pandas' categorical type. Such features are categories by default.
    """

    name = "the data frame"
    untyped = False
    features: tuple[str, ...] | None = None

    def __init__(
        self,
        frame: Any,
        targets: tuple[str, ...] = (),
        weights: str | None = None,
        beside: Mapping[str, Any] | None = None,
    ) -> None:
        self._frame, self._beside = frame, beside or {}
        self.columns = (*(str(name) for name in frame.columns), *self._beside)
        self.targets, self.weights = targets, weights
        self.categorical = tuple(
            str(name) for name, dtype in zip(frame.columns, frame.dtypes, strict=True) if hasattr(dtype, "categories")
        )
        self.n_rows: int | None = None if hasattr(frame, "npartitions") else len(frame)

    @classmethod
    def of_parts(cls, X: Any, y: Any, weights: Any = None) -> FrameReader:
        """Make a reader of a data frame of features together with targets (unless y is None) and weights.

        Rows are matched by position, as in a fit. Indexes are ignored.
        """
        targets = {} if y is None else _targets_by_name(y)
        beside: dict[str, Any] = {}
        parts = [*(("y", name, values) for name, values in targets.items()), ("weights", "weights", weights)]
        for role, name, values in parts:
            if values is None:
                continue
            if name in (*map(str, X.columns), *beside):
                raise DataError(f"{role} and a column of X have the same name {quoted(name)}: rename one column.")
            column = beside[name] = _positional(role, values)
            if hasattr(X, "npartitions"):
                if hasattr(column, "npartitions") and column.npartitions != X.npartitions:
                    raise _not_together(role, f"{column.npartitions} partitions", f"{X.npartitions}")
            elif hasattr(column, "npartitions"):
                (beside[name],) = computed(column, client=client_of(column))
        if not hasattr(X, "npartitions"):
            for name, column in beside.items():
                if len(column) != len(X):
                    raise DataError(
                        f"X has {len(X):,} rows, but {name} has {len(column):,}: the lengths must be equal."
                    )
            X, beside = X.assign(**{name: _values_of(column) for name, column in beside.items()}), {}
        return cls(X, tuple(targets), None if weights is None else "weights", beside)

    def batches(self, wanted: Sequence[str], levels: frozenset[str], batch_bytes: int) -> Iterator[Batch]:
        """Yield slices of the frame, or of its partitions in order."""
        places = [self.columns.index(name) for name in wanted]
        step = rows_per_batch(batch_bytes, len(wanted))
        for part in self._partitions() if hasattr(self._frame, "npartitions") else [self._frame]:
            yield from self._slices(part, places, wanted, step)

    def _partitions(self) -> Iterator[Any]:
        """Yield the computed partitions of a Dask frame, each with the same rows of y and the weights."""
        series = {name: column for name, column in self._beside.items() if _is_series(column)}
        arrays = {name: column for name, column in self._beside.items() if name not in series}
        client, start = client_of(self._frame, *series.values(), *arrays.values()), 0
        for number in range(self._frame.npartitions):
            together = [each.partitions[number] for each in (self._frame, *series.values())]
            part, *columns = computed(*together, client=client)
            stop = start + len(part)
            rows = dict(zip(series, columns, strict=True))
            for name, array in arrays.items():
                lazy = hasattr(array, "npartitions")
                rows[name] = _computed(array.partitions[number] if lazy else array[start:stop], client)
            for name, column in rows.items():
                if len(column) != len(part):
                    if not hasattr(self._beside[name], "npartitions"):
                        held = len(self._beside[name])
                        raise DataError(f"{name} has {held:,} rows, but X has more: the lengths must be equal.")
                    raise _not_together(name, f"{len(column):,} rows for partition {number} of X", f"{len(part):,}")
            yield part.assign(**{name: _values_of(column) for name, column in rows.items()})
            start = stop
        for name, column in arrays.items():
            if len(column) != start:
                raise DataError(f"X has {start:,} rows, but {name} has {len(column):,}: the lengths must be equal.")

    def _slices(self, frame: Any, places: list[int], wanted: Sequence[str], step: int) -> Iterator[Batch]:
        import pyarrow as pa

        for start in range(0, len(frame), step):
            rows = frame.iloc[start : start + step, places]
            batch = {}
            for place, name in enumerate(wanted):
                try:
                    batch[name] = pa.Array.from_pandas(rows.iloc[:, place])
                except (pa.ArrowException, OverflowError) as error:
                    raise DataError(
                        f"{self.name}: the column {quoted(name)} holds values of several types, or numbers that do "
                        f"not fit into 64 bits ({error})."
                    ) from error
                if isinstance(batch[name], pa.ChunkedArray):
                    batch[name] = batch[name].combine_chunks()
            yield batch


def _targets_by_name(y: Any) -> dict[str, Any]:
    """Return the columns of y by name. A pandas or Dask series or frame has names; other names are from
    ``target_columns``.
    """
    if _is_series(y):
        return {str(y.name or "y"): y}
    if is_frame(y):
        if len(set(map(str, y.columns))) < len(y.columns) or not len(y.columns):
            raise DataError(f"ingest: the columns of y need distinct names, found {listed(y.columns)}.")
        return {str(name or "y"): y[name] for name in y.columns}
    array = _by_position(y)
    if len(array.shape) not in (1, 2):
        raise DataError(f"y must have shape (rows,) or (rows, targets), found {tuple(array.shape)}.")
    names = target_columns(array.shape)
    return {name: array if len(array.shape) == 1 else array[:, k] for k, name in enumerate(names)}


def _is_series(values: Any) -> bool:
    return hasattr(values, "to_frame") and values.ndim == 1


def _positional(name: str, values: Any) -> Any:
    """Return one column: a Dask series or array, or values in memory that are sliced by position."""
    if is_frame(values) and values.ndim == 2:
        if len(values.columns) != 1:
            raise DataError(f"ingest: {name} must be one column, found {len(values.columns)}.")
        values = values[values.columns[0]]
    if _is_series(values):
        return _values_of(values)
    column = _by_position(values)
    if len(column.shape) != 1:
        raise DataError(f"ingest: {name} must have shape (rows,), found {tuple(column.shape)}.")
    return column if hasattr(column, "npartitions") else np.asarray(column)


def _values_of(column: Any) -> Any:
    """Return the values of a pandas series without its index. All other values are returned unchanged."""
    return column.array if module_of(column) == "pandas" and _is_series(column) else column


def _not_together(name: str, found: str, expected: str) -> DataError:
    return DataError(
        f"{name} has {found}, but X has {expected}: partitions are matched in order and must have equal "
        f"lengths. Ingest one data frame that has {name} as a column, or repartition X and {name} equally."
    )
