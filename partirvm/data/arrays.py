"""Sources that read the user's NumPy, Zarr or Dask arrays without copying them, and rows gathered
from a source."""

import math
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import replace
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partirvm.core.moments import ColumnMoments
from partirvm.data.source import (
    Source,
    Tile,
    check_shapes,
    concatenated,
    default_names,
    tile_rows_for,
)
from partirvm.errors import MissingDataError
from partirvm.kernels.base import PIECE_ROWS
from partirvm.storage import reading
from partirvm.types import PANEL_ROWS, Columns, Int


def shuffled_rows(n_rows: int, seed: int) -> Int:
    """Return a random order of the rows, (n_rows,) int64: row i of the shuffled data is row
    ``order[i]``."""
    return np.argsort(np.random.default_rng(seed).random(n_rows), kind="stable").astype(np.int64)


class ArraySource(Source):
    """A source of tiles from NumPy, Zarr or Dask arrays. Dtypes other than float64 are converted
    tile by tile.

    Only the chunks that a tile needs are read from Zarr and Dask arrays; if chunks are larger than
    two tiles, the last two chunks are cached. Dask arrays are computed in the calling thread, again
    in every pass; rows persisted on a cluster are fetched by its client. A part keeps its rows of
    NumPy and persisted arrays in memory. Raises ``DataError`` for wrong shapes and dtypes, and
    ``MissingDataError`` for missing chunks of Zarr arrays.

    Args:
        X: inputs (N, d)
        t: targets, (N,) or (N, T); without targets, the ``t`` of each tile has shape (rows, 0)
        weights: precision weights (N,), zero or positive, or None
        groups: codes of the rows' groups (N,), a NumPy array, or None
        permutation: order (N,) of the rows of in-memory arrays: row i of the source is row
            ``permutation[i]`` of the arrays, and the source counts as shuffled
        tile_rows: rows per tile; by default computed from the shape
        columns: names of the columns; by default ``x0``, ``x1``, …
    """

    def __init__(
        self,
        X: Any,
        t: Any = None,
        weights: Any = None,
        *,
        groups: Int | None = None,
        permutation: Int | None = None,
        tile_rows: int | None = None,
        columns: Columns | None = None,
    ) -> None:
        check_shapes(X, t, weights)
        arrays = {"X": X, "y": t, "weights": weights, "groups": groups}
        self._arrays = {name: array for name, array in arrays.items() if array is not None}
        self.n_rows, self.n_features = map(int, X.shape)
        self.n_targets = 0 if t is None else math.prod(t.shape[1:])
        self.tile_rows = tile_rows or tile_rows_for(self.n_rows, self.n_features)
        self.columns = columns or Columns(default_names(self.n_features))
        self.weighted = weights is not None
        self.grouped = groups is not None
        self.shuffled = permutation is not None
        for name, array in self._arrays.items():
            refuse_missing_chunks(name, array)
        self._permutation = permutation
        self._first = dict.fromkeys(self._arrays, 0)  # number of the first row of each array
        self._readers: dict[str, Callable[[int, int], NDArray[Any]]] = {}

    def _read(self, name: str, number: int) -> Any:
        """Return one tile's rows of an array: a view if the array is not permuted, otherwise a
        copy."""
        if name not in self._readers:
            self._readers[name] = self._reader(name)
        return self._readers[name](*self._span(number))

    def _places(self, name: str, start: int, stop: int) -> Any:
        """Return the positions of a run of consecutive rows in a NumPy array."""
        first = self._first[name]
        if self._permutation is None:
            return slice(start - first, stop - first)
        return self._permutation[start:stop]

    def _reader(self, name: str) -> Callable[[int, int], NDArray[Any]]:
        """Return the function that reads an array's rows; if a tile straddles two chunks, both are
        cached."""
        array = self._arrays[name]
        if isinstance(array, np.ndarray):
            return lambda start, stop: array[self._places(name, start, stop)]
        first = self._first[name]
        if hasattr(array, "dask"):
            # looked up when rows are read, since a pickled source passes through processes without
            # a client
            load = partial(_load_dask, array, first, client_of(array))
            edges = np.cumsum([first, *array.chunks[0]])
        else:
            load = partial(_load_zarr, array, name)
            step = (getattr(array, "shards", None) or array.chunks)[0]
            edges = np.array([*range(0, array.shape[0], step), array.shape[0]])
        if int(np.diff(edges).max(initial=0)) <= 2 * self.tile_rows:
            return load
        return _CachedChunks(load, edges.tolist()).read

    def original_rows(self, number: int) -> Int:
        rows = super().original_rows(number)
        return rows if self._permutation is None else self._permutation[rows]

    def of_targets(self, places: Sequence[int], seed: int | None) -> "ArraySource":
        """Return the rows in memory in which the targets at these ``places`` are present, with
        these targets alone, shuffled with ``seed`` unless it is None."""
        t = self._arrays["y"][:, list(places)]
        present = ~np.isnan(t).any(axis=1)
        weights = self._arrays.get("weights")
        groups = self._arrays.get("groups")
        names = tuple(self.columns.targets[place] for place in places if self.columns.targets)
        target = names[0] if len(names) == 1 else self.columns.target
        columns = replace(self.columns, target=target, targets=names if len(names) > 1 else ())
        return ArraySource(
            self._arrays["X"][present],
            t[present] if len(places) > 1 else t[present, 0],
            None if weights is None else weights[present],
            groups=None if groups is None else groups[present],
            permutation=None if seed is None else shuffled_rows(int(present.sum()), seed),
            columns=columns,
        )

    def groups_of_targets(self) -> list[tuple[int, ...]]:
        """Return the positions of targets that are fitted together: those that are missing in the
        same rows, and each constant target alone; with groups of rows, each target alone, since
        calibrations and effects of groups belong to one target."""
        t = self._arrays["y"]
        if not isinstance(t, np.ndarray) or t.ndim != 2:
            return [tuple(range(self.n_targets))]
        if self.grouped:
            return [(place,) for place in range(t.shape[1])]
        missing = np.isnan(t)
        constant = ColumnMoments.of(t, self._arrays.get("weights")).constant
        groups = dict[Any, list[int]]()
        for place in range(t.shape[1]):
            key = place if constant[place] and not constant.all() else missing[:, place].tobytes()
            groups.setdefault(key, []).append(place)
        return [tuple(places) for places in groups.values()]

    def part(self, tiles: Sequence[int]) -> "ArraySource":
        """Return a source of the rows from the first to the last of the given tiles."""
        start = self._span(min(tiles))[0]
        stop = self._span(max(tiles))[1]
        rows = dict[str, Any]()
        lazy = dict[str, Any]()
        for name, array in self._arrays.items():
            if isinstance(array, np.ndarray):
                rows[name] = array[self._places(name, start, stop)]
            elif hasattr(array, "dask"):
                lazy[name] = array[start - self._first[name] : stop - self._first[name]]
        if lazy:
            from dask.base import optimize

            client = client_of(*lazy.values())
            fetch = optimize if client is None else partial(computed, client=client)
            rows |= zip(lazy, fetch(*lazy.values()), strict=True)
        part = copy(self)
        part._permutation = None
        part._arrays = {**self._arrays, **rows}
        part._first = {**self._first, **dict.fromkeys(rows, start)}
        return part

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_readers": {}}


def _load_dask(array: Any, first: int, client: Any, start: int, stop: int) -> NDArray[Any]:
    """Compute rows of a Dask array.

    Args:
        array: Dask array
        first: row number of its first row
        client: client of the cluster on which it was persisted, or None
        start: number of the first row to read
        stop: number of the row after the last row to read
    """
    return np.asarray(computed(array[start - first : stop - first], client=client)[0])


def _load_zarr(array: Any, name: str, start: int, stop: int) -> NDArray[Any]:
    """Read rows of a Zarr array.

    Args:
        array: Zarr array
        name: name of the array in messages
        start: number of the first row to read
        stop: number of the row after the last row to read
    """
    place = f"rows {start:,} to {stop - 1:,} of the Zarr array {name}"
    with reading(place, "restore the file or write the array again", MissingDataError):
        return np.asarray(array[start:stop])


class _CachedChunks:
    """Rows of an array that is loaded in chunks; the last two chunks are cached.

    ``load(start, stop)`` loads the rows from ``start`` up to but not including ``stop``; ``edges``
    contains the number of each chunk's first row, followed by the number of rows.
    """

    def __init__(self, load: Callable[[int, int], NDArray[Any]], edges: list[int]) -> None:
        self._load = lru_cache(maxsize=2)(load)
        self._chunks = list(pairwise(edges))
        self._lock = threading.Lock()

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Return the rows from ``start`` up to but not including ``stop``."""
        pieces = list[NDArray[Any]]()
        with self._lock:
            for low, high in self._chunks:
                if low < stop and high > start:
                    pieces.append(self._load(low, high)[max(start - low, 0) : stop - low])
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


class GatheredRows(Source):
    """Rows of a source, held in memory in increasing order and divided into an even number of
    tiles; ``gather`` takes the source's row numbers, as in ``rows`` (n,)."""

    def __init__(self, source: Source, rows: Int, pieces: Iterable[Tile]) -> None:
        self._take_shape_of(source)
        self.rows = rows
        self.n_rows = len(rows)
        self._tile = concatenated(list(pieces))
        n_tiles = 2 * max(self.n_rows // PANEL_ROWS, 1)
        self.tile_rows = PIECE_ROWS * -(-self.n_rows // (PIECE_ROWS * n_tiles))

    def tile(self, number: int) -> Tile:
        start, stop = self._span(number)
        return replace(self._tile.take(slice(start, stop), start), number=number)

    def gather(self, rows: Sequence[int] | Int) -> Tile:
        return self._tile.take(np.searchsorted(self.rows, rows), 0)

    def only(self, rows: Int) -> "GatheredRows":
        """Return a subset of the held rows, given by the source's row numbers in increasing
        order."""
        return GatheredRows(self, rows, [self.gather(rows)])


def rows_of_tile(rows: Int, source: Source, number: int) -> Tile:
    """Return the given rows (in increasing order) that lie in one tile."""
    tile = source.tile(number)
    first, last = np.searchsorted(rows, [tile.start, tile.start + len(tile.X)])
    return tile.take(rows[first:last] - tile.start, tile.start)


def client_of(*collections: Any) -> Any:
    """Return the client of the cluster on which the collections were persisted, or None if they
    were not persisted."""
    if "distributed" not in sys.modules:
        return None
    for collection in collections:
        if hasattr(collection, "__dask_graph__"):
            for value in collection.__dask_graph__().values():
                if type(value).__module__.startswith("distributed.") and hasattr(value, "client"):
                    return value.client
    return None


def computed(*collections: Any, client: Any = None) -> tuple[Any, ...]:
    """Compute Dask collections through the client, or in the calling thread if ``client`` is
    None."""
    import dask

    return tuple(dask.compute(*collections, scheduler=client or "synchronous"))  # type: ignore[attr-defined,no-untyped-call,unused-ignore]


def lengths_of(frame: Any) -> list[int]:
    """Return the number of rows of each partition of a Dask frame or series."""
    (lengths,) = computed(frame.map_partitions(len), client=client_of(frame))
    return [int(n) for n in lengths]


def in_process(name: str, values: Any) -> np.ndarray[Any, Any]:
    """Return the values of an array, list or series as a NumPy array; Zarr and Dask arrays are read
    in full."""
    refuse_missing_chunks(name, values)
    if hasattr(values, "__dask_graph__"):
        (values,) = computed(values, client=client_of(values))
    return np.asarray(values)


def loaded_rows(name: str, values: Any) -> Any:
    """Return a Zarr array, or a Dask array, frame or series, in memory; anything else unchanged."""
    refuse_missing_chunks(name, values)
    if hasattr(values, "__dask_graph__"):
        return computed(values, client=client_of(values))[0]
    if hasattr(values, "nchunks_initialized"):
        return _load_zarr(values, name, 0, values.shape[0])
    return values


def refuse_missing_chunks(name: str, array: Any) -> None:
    """Raise ``MissingDataError`` if chunks of a Zarr array are missing: reading them would return
    the fill value."""
    if not hasattr(array, "nchunks_initialized"):
        return
    n_chunks = array.nchunks
    n_stored = array.nchunks_initialized
    if getattr(array, "shards", None):
        # stored objects are shards; zarr before 3.1 counts shards as chunks
        lengths = zip(array.shape, array.shards, strict=True)
        n_chunks = math.prod(-(-length // step) for length, step in lengths)
        n_stored = getattr(array, "_nshards_initialized", n_stored)
    if n_stored < n_chunks:
        raise MissingDataError(
            f"the Zarr array {name} ({array.store_path}) lacks {n_chunks - n_stored} of its "
            f"{n_chunks} chunks, which would be read as {array.fill_value}: write them; if Zarr "
            "omitted them because they hold only this value, pass "
            "config={'write_empty_chunks': True}."
        )
