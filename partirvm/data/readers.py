"""Where ingest reads from: every reader offers named columns and streams them in batches of bounded size.

A batch maps column names to one-dimensional Arrow or NumPy arrays of one length.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from partirvm.core.exact import refuse_masked
from partirvm.data.checks import check_shapes, numeric_array
from partirvm.data.dask_source import client_of, computed
from partirvm.data.tiled import default_names
from partirvm.errors import DataError
from partirvm.quoting import listed, quoted

Batch = Mapping[str, Any]


class Reader(Protocol):
    """A table to be ingested.

    ``features`` are the columns that are features unless the user says otherwise (None: all but targets and weights);
    ``targets`` and ``weights`` are the columns of these roles where the format has them. An ``untyped`` format does not
    tell numbers from text. ``leaner`` says how the source could be read in less memory, and batches of more than
    ``most_batch`` bytes are no faster.
    """

    name: str
    columns: tuple[str, ...]
    features: tuple[str, ...] | None
    targets: tuple[str, ...]
    weights: str | None
    n_rows: int | None
    untyped: bool
    leaner: str
    most_batch: int

    def held(self, wanted: Sequence[str]) -> int:
        """Bytes that reading these columns takes beside the batches."""
        ...

    def batches(self, wanted: Sequence[str], levels: frozenset[str], batch_bytes: int) -> Iterator[Batch]:
        """Stream the wanted columns, about ``batch_bytes`` at a time; those in ``levels`` hold labels, not numbers."""
        ...


class Lean:
    """What readers have in common that hold nothing beside their batches."""

    leaner = ""
    most_batch = 64 << 20

    def held(self, wanted: Sequence[str]) -> int:
        """Bytes that reading these columns takes beside the batches."""
        return 0


def rows_per_batch(batch_bytes: int, n_columns: int) -> int:
    """Rows of float64 that fit ``batch_bytes``, at least 64.

    >>> rows_per_batch(16 << 20, 16)
    131072
    """
    return max(batch_bytes // (8 * max(n_columns, 1)), 64)


def numbers(values: Any) -> np.ndarray[Any, Any]:
    """An Arrow array of numbers as a NumPy array, a missing one, which only floats may have, as NaN.

    Arrow's own ``to_numpy`` imports pandas, some 45 MiB.

    >>> import pyarrow as pa
    >>> numbers(pa.array([1.5, None])).tolist(), numbers(pa.array([2, 3])[1:]).tolist()
    ([1.5, nan], [3])
    """
    return np.from_dlpack(values.fill_null(float("nan")) if values.null_count else values)


def module_of(value: Any) -> str:
    """Top-level package that a value's class comes from.

    >>> module_of(np.zeros(2))
    'numpy'
    """
    return type(value).__module__.partition(".")[0]


def is_frame(value: Any) -> bool:
    """Whether this is a pandas or Dask data frame; imports neither."""
    return module_of(value) in ("pandas", "dask", "dask_expr") and hasattr(value, "columns")


class PairReader(Lean):
    """A tuple (X, y) or (X, y, weights) of arrays that can be sliced: NumPy, Zarr, Dask. ``y`` may be None.

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
            from partirvm.data.zarr_source import refuse_missing_chunks

            for name, array in (("X", self._X), ("y", self._y), ("weights", self._weights)):
                refuse_missing_chunks(name, array)

    def batches(self, wanted: Sequence[str], levels: frozenset[str], batch_bytes: int) -> Iterator[Batch]:
        """Slices of the arrays, in whole chunks of X where it has any and they are small."""
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
    """Names of the columns of an array y of this shape.

    >>> target_columns((9,)), target_columns((9, 2))
    (('y',), ('y0', 'y1'))
    """
    return ("y",) if len(shape) == 1 else tuple(f"y{k}" for k in range(shape[1]))


def by_column(names: tuple[str, ...], values: Any) -> dict[str, Any]:
    """The columns of an array (rows,) or (rows, columns) by these names."""
    return dict(zip(names, [values] if values.ndim == 1 else values.T, strict=True))


def _by_position(values: Any) -> Any:
    """``values``, numbers or labels, as an array that can be sliced; (N, 1) is (N,)."""
    if hasattr(values, "to_dask_array"):
        values = values.to_dask_array(lengths=True)
    refuse_masked(values, "y")
    array = _known_chunks(values if _is_array(values) else np.asarray(values))
    return array[:, 0] if len(array.shape) == 2 and array.shape[1] == 1 else array


def _sliceable(name: str, values: Any) -> Any:
    """Numbers as an array that can be sliced. Raises ``DataError`` for what is none."""
    if hasattr(values, "to_dask_array"):
        values = values.to_dask_array(lengths=True)
    lazy = _is_array(values) and not isinstance(values, np.ma.MaskedArray) and not hasattr(values, "toarray")
    return _known_chunks(values if lazy else numeric_array(name, values))


def _is_array(values: Any) -> bool:
    """Whether slices of it are by position; those of pandas may be by label."""
    return hasattr(values, "shape") and hasattr(values, "dtype") and module_of(values) != "pandas"


def _computed(block: Any, client: Any) -> np.ndarray[Any, Any]:
    return np.asarray(computed(block, client=client)[0] if hasattr(block, "dask") else block)


def _known_chunks(array: Any) -> Any:
    """A Dask array with the sizes of its chunks computed; anything else as it is."""
    if hasattr(array, "compute_chunk_sizes") and any(np.isnan(n) for n in array.shape):
        return array.compute_chunk_sizes()
    return array


class FrameReader(Lean):
    """A pandas or Dask data frame; a Dask one is computed partition by partition.

    ``categorical`` are its columns of pandas' categorical type: such features are categories without being named.
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
        """A data frame of features with targets, unless y is None, and weights, of their own.

        Rows belong together by position, as in a fit: no index is looked at.
        """
        targets = {} if y is None else _targets_by_name(y)
        beside: dict[str, Any] = {}
        parts = [*(("y", name, values) for name, values in targets.items()), ("weights", "weights", weights)]
        for role, name, values in parts:
            if values is None:
                continue
            if name in (*map(str, X.columns), *beside):
                raise DataError(f"{role} is called {quoted(name)}, and so is a column of X: rename one of them.")
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
                        f"X has {len(X):,} rows, but {name} has {len(column):,}: they must belong together."
                    )
            X, beside = X.assign(**{name: _values_of(column) for name, column in beside.items()}), {}
        return cls(X, tuple(targets), None if weights is None else "weights", beside)

    def batches(self, wanted: Sequence[str], levels: frozenset[str], batch_bytes: int) -> Iterator[Batch]:
        """Slices of the frame, or of its partitions one after another."""
        places = [self.columns.index(name) for name in wanted]
        step = rows_per_batch(batch_bytes, len(wanted))
        for part in self._partitions() if hasattr(self._frame, "npartitions") else [self._frame]:
            yield from self._slices(part, places, wanted, step)

    def _partitions(self) -> Iterator[Any]:
        """The partitions of a Dask frame, computed, each with its rows of the columns beside it."""
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
                        raise DataError(f"{name} has {held:,} rows, but X has more: they must belong together.")
                    raise _not_together(name, f"{len(column):,} rows for partition {number} of X", f"{len(part):,}")
            yield part.assign(**{name: _values_of(column) for name, column in rows.items()})
            start = stop
        for name, column in arrays.items():
            if len(column) != start:
                raise DataError(f"X has {start:,} rows, but {name} has {len(column):,}: they must belong together.")

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
    """Each column of y: by the names of a pandas or Dask series or frame, otherwise as ``target_columns`` has them."""
    if _is_series(y):
        return {str(y.name or "y"): y}
    if is_frame(y):
        if len(set(map(str, y.columns))) < len(y.columns) or not len(y.columns):
            raise DataError(f"ingest: the columns of y must have names of their own, found {listed(y.columns)}.")
        return {str(name or "y"): y[name] for name in y.columns}
    array = _by_position(y)
    if len(array.shape) not in (1, 2):
        raise DataError(f"y must have shape (rows,) or (rows, targets), found {tuple(array.shape)}.")
    names = target_columns(array.shape)
    return {name: array if len(array.shape) == 1 else array[:, k] for k, name in enumerate(names)}


def _is_series(values: Any) -> bool:
    return hasattr(values, "to_frame") and values.ndim == 1


def _positional(name: str, values: Any) -> Any:
    """One column: a Dask series or array, or values in memory that are sliced by position."""
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
    """The values of a pandas series, without its index; anything else as it is."""
    return column.array if module_of(column) == "pandas" and _is_series(column) else column


def _not_together(name: str, found: str, expected: str) -> DataError:
    return DataError(
        f"{name} has {found}, and X has {expected}: partitions are paired in their order, and must have the same "
        f"lengths. Ingest one data frame that has {name} as a column, or repartition both alike."
    )
