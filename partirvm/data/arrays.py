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

    Zarr and Dask arrays are read only in the chunks that a tile needs; if chunks exceed two tiles,
    the last two are cached. Dask arrays are computed in the calling thread, again in every pass;
    the client fetches rows persisted on its cluster. A part holds its rows of NumPy and persisted
    arrays in memory. X is (N, d), ``t`` is (N,) or (N, T), and ``weights``, zero or positive, is
    (N,). Without targets, the ``t`` of each tile has shape (rows, 0). With ``permutation`` (N,),
    row i of the source is row ``permutation[i]`` of the in-memory arrays, and the source counts as
    shuffled. Raises ``DataError`` for wrong shapes and dtypes, and ``MissingDataError`` for missing
    chunks of Zarr arrays.
    """

    def __init__(
        self,
        X: Any,
        t: Any = None,
        weights: Any = None,
        *,
        permutation: Int | None = None,
        tile_rows: int | None = None,
        columns: Columns | None = None,
    ) -> None:
        check_shapes(X, t, weights)
        given = {"X": X, "y": t, "weights": weights}
        self._arrays: dict[str, Any] = {
            name: array for name, array in given.items() if array is not None
        }
        self.n_rows, self.n_features = map(int, X.shape)
        self.n_targets = 0 if t is None else math.prod(t.shape[1:])
        self.tile_rows = tile_rows or tile_rows_for(self.n_rows, self.n_features)
        self.columns = columns or Columns(default_names(self.n_features))
        self.weighted = weights is not None
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
        """Return the positions of a run of rows in a NumPy array."""
        first = self._first[name]
        return (
            slice(start - first, stop - first)
            if self._permutation is None
            else self._permutation[start:stop]
        )

    def _reader(self, name: str) -> Callable[[int, int], NDArray[Any]]:
        """Return the function that reads rows; if a tile straddles two chunks, both chunks are
        cached."""
        array = self._arrays[name]
        first = self._first[name]
        lock = threading.Lock()
        if isinstance(array, np.ndarray):
            return lambda start, stop: array[self._places(name, start, stop)]
        # looked up when rows are read, since a pickled source passes through processes without a
        # client
        client = client_of(array)
        if hasattr(array, "dask"):
            edges = np.cumsum([first, *array.chunks[0]])
        else:
            step = (getattr(array, "shards", None) or array.chunks)[0]
            edges = np.array([*range(0, array.shape[0], step), array.shape[0]])

        def load(start: int, stop: int) -> NDArray[Any]:
            rows = slice(start - first, stop - first)
            if hasattr(array, "dask"):
                return np.asarray(computed(array[rows], client=client)[0])
            place = f"rows {start:,} to {stop - 1:,} of the Zarr array {name}"
            with reading(place, "restore the file or write the array again", MissingDataError):
                return np.asarray(array[rows])

        if int(np.diff(edges).max(initial=0)) <= 2 * self.tile_rows:
            return load
        cached = lru_cache(maxsize=2)(load)

        def read(start: int, stop: int) -> NDArray[Any]:
            chunks = [
                (low, high) for low, high in pairwise(edges.tolist()) if low < stop and high > start
            ]
            with lock:
                pieces = [
                    cached(low, high)[max(start - low, 0) : stop - low] for low, high in chunks
                ]
            return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

        return read

    def original_rows(self, number: int) -> Int:
        found = super().original_rows(number)
        return found if self._permutation is None else self._permutation[found]

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


class GatheredRows(Source):
    """Rows (n,) of a source, in memory, increasing, in an even number of tiles; ``gather`` takes
    source row numbers."""

    def __init__(self, source: Source, rows: Int, pieces: Iterable[Tile]) -> None:
        self._take_shape_of(source)
        self.rows, self.n_rows, self._kept = rows, len(rows), concatenated(list(pieces))
        self.tile_rows = PIECE_ROWS * -(
            -self.n_rows // (PIECE_ROWS * 2 * max(self.n_rows // PANEL_ROWS, 1))
        )

    def tile(self, number: int) -> Tile:
        start, stop = self._span(number)
        return replace(self._kept.take(slice(start, stop), start), number=number)

    def gather(self, rows: Sequence[int] | Int) -> Tile:
        return self._kept.take(np.searchsorted(self.rows, rows), 0)

    def only(self, rows: Int) -> "GatheredRows":
        """Return a subset of the held rows, given by the source's row numbers in increasing
        order."""
        return GatheredRows(self, rows, [self.gather(rows)])


def rows_of_tile(rows: Int, source: Source, number: int) -> Tile:
    """Return those of the given rows (increasing numbers) that are in one tile."""
    tile = source.tile(number)
    first, last = np.searchsorted(rows, [tile.start, tile.start + len(tile.X)])
    return tile.take(rows[first:last] - tile.start, tile.start)


def client_of(*collections: Any) -> Any:
    """Return the client of the cluster on which the collections were persisted, or None if they
    were not."""
    for collection in collections if "distributed" in sys.modules else ():
        for value in (
            collection.__dask_graph__().values() if hasattr(collection, "__dask_graph__") else ()
        ):
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
    whole."""
    refuse_missing_chunks(name, values)
    if hasattr(values, "__dask_graph__"):
        (values,) = computed(values, client=client_of(values))
    return np.asarray(values)


def refuse_missing_chunks(name: str, array: Any) -> None:
    """Raise ``MissingDataError`` if chunks of a Zarr array are missing: reading them would return
    the fill value."""
    if not hasattr(array, "nchunks_initialized"):
        return
    stored = array.nchunks
    there = array.nchunks_initialized
    if getattr(
        array, "shards", None
    ):  # stored objects are shards; zarr before 3.1 counts shards as chunks
        stored = math.prod(-(-n // step) for n, step in zip(array.shape, array.shards, strict=True))
        there = getattr(array, "_nshards_initialized", there)
    missing = stored - there
    if missing > 0:
        lacks = (
            f"lacks {missing} of its {stored} chunks, which would be read as {array.fill_value}: "
            "write them"
        )
        advice = (
            "if Zarr omitted them because they hold only this value, pass "
            "config={'write_empty_chunks': True}"
        )
        raise MissingDataError(f"the Zarr array {name} ({array.store_path}) {lacks}; {advice}.")
