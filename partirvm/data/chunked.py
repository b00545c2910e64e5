"""A source of tiles from Zarr or Dask arrays made by the user. Rows are read or computed when a tile is read."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partirvm.data.checks import check_shapes
from partirvm.data.source import Columns, Float, Source, Tile, as_rows, default_names, tile_rows_for
from partirvm.errors import DataError, MissingDataError
from partirvm.storage import reading


class ChunkedSource(Source):
    """A source of tiles from Zarr and Dask arrays, possibly with NumPy arrays of targets or weights.

    Chunks keep their sizes, and only the chunks of a tile are read. If chunks are larger than two tiles, the last two
    chunks are cached, so that each chunk is read once per pass and not once per tile. Dask arrays are computed by
    Dask's synchronous scheduler in the calling thread; chunks of unknown size are computed at construction to find
    their sizes. Every pass computes the graph again, so ingest the result of an expensive graph first. Rows persisted
    on a cluster are fetched through the client of the cluster; a part of such a source holds its rows in memory.

    Parameters
    ----------
    X, t, weights : zarr.Array, dask.array or array
        Arrays of the shapes (N, d), (N,) or (N, T), and (N,). t and weights are optional.
    columns : Columns, optional
        Names of the columns; default: ``x0``, ``x1``, …
    tile_rows : int, optional
        Number of rows per tile; default: ``tile_rows_for(N, d)``.
    allow_missing_chunks : bool
        If True, missing chunks of Zarr arrays are read as the fill value. By default missing chunks are an error.

    Raises
    ------
    DataError
        The shape, length or dtype of an array is wrong.
    MissingDataError
        A chunk is missing. ``tile`` also raises this error if a chunk cannot be decoded.
    """

    def __init__(
        self,
        X: Any,
        t: Any = None,
        weights: Any = None,
        *,
        columns: Columns | None = None,
        tile_rows: int | None = None,
        allow_missing_chunks: bool = False,
    ) -> None:
        given = {"X": X, "y": t, "weights": weights}
        self._arrays = {name: with_known_sizes(array) for name, array in given.items() if array is not None}
        check_shapes(*map(self._arrays.get, given))
        for name, array in self._arrays.items():
            if not allow_missing_chunks:
                refuse_missing_chunks(name, array)
        self.n_rows, self.n_features = (int(n) for n in self._arrays["X"].shape)
        self.n_targets = 0 if t is None else int(math.prod(self._arrays["y"].shape[1:]))
        self.tile_rows = tile_rows or tile_rows_for(self.n_rows, self.n_features)
        self.columns = columns or Columns(default_names(self.n_features))
        self.weighted = weights is not None
        self._first = dict.fromkeys(self._arrays, 0)  # number of the first row of each array
        self._set_readers()

    def _set_readers(self) -> None:
        self._readers = {name: self._reader(name) for name in self._arrays}

    def _reader(self, name: str) -> Callable[[int, int], NDArray[Any]]:
        """Return a function that reads rows of an array by the numbers of the first row and of the row after the last.

        Two large chunks are cached, so that two threads can read on both sides of a chunk boundary.
        """
        array, first, lock = self._arrays[name], self._first[name], threading.Lock()
        if hasattr(array, "dask"):
            edges = np.cumsum([first, *array.chunks[0]])
        else:
            step = (getattr(array, "shards", None) or getattr(array, "chunks", None) or array.shape)[0]
            edges = first + np.array([*range(0, array.shape[0], step), array.shape[0]])

        def load(start: int, stop: int) -> NDArray[Any]:
            rows = slice(start - first, stop - first)
            if hasattr(array, "dask"):
                return np.asarray(computed(array[rows], client=self._client)[0])
            place = f"rows {start:,} to {stop - 1:,} of the Zarr array {name}"
            with reading(place, "restore the file or write the array again", MissingDataError):
                return np.asarray(array[rows])

        if isinstance(array, np.ndarray) or int(np.diff(edges).max(initial=0)) <= 2 * self.tile_rows:
            return load
        cached = lru_cache(maxsize=2)(load)

        def read(start: int, stop: int) -> NDArray[Any]:
            pieces = []
            with lock:
                for low, high in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
                    if low < stop and high > start:
                        pieces.append(cached(low, high)[max(start - low, 0) : stop - low])
            return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

        return read

    @cached_property
    def _client(self) -> Any:
        # searched when rows are read, since a pickled source passes through processes without a client
        return client_of(*self._arrays.values())

    def _read(self, name: str, number: int, columns: Sequence[str] | None = None) -> Float:
        start, stop = self._span(number)
        return as_rows(self._readers[name](start, stop), "the rows" if columns is None else name, start, columns)

    def tile(self, number: int) -> Tile:
        """Read one tile. Raises ``DataError`` for a tile that is not in this part, and ``MissingDataError`` for a chunk
        that cannot be read.
        """
        X, start = self._inputs(number), number * self.tile_rows
        t = np.empty((len(X), 0))
        if self.n_targets:
            t = self._read("y", number, self.columns.target_names(self.n_targets)).reshape(len(X), -1)
        return Tile(number, start, X, t, self._weights_in(number) if self.weighted else None)

    def _inputs(self, number: int) -> Float:
        return self._read("X", number, self.columns.features)

    def _weights_in(self, number: int) -> Float:
        return self._read("weights", number)

    def part(self, tiles: Sequence[int]) -> ChunkedSource:
        """Return a source with the rows of the given tiles of NumPy arrays, and with the graph of these rows.

        The part has all rows from the first to the last of the tiles. Zarr arrays are opened again in another process.
        """
        cut = {name: array for name, array in self._arrays.items() if _is_in_process(array)}
        if not cut:
            return self
        start, stop = self._rows_of(tiles)
        rows = {name: array[start - self._first[name] : stop - self._first[name]] for name, array in cut.items()}
        lazy = [name for name, array in rows.items() if hasattr(array, "dask")]
        if self._client is not None:
            rows |= zip(lazy, computed(*(rows[name] for name in lazy), client=self._client), strict=True)
        elif lazy:
            from dask.base import optimize

            rows |= zip(lazy, optimize(*(rows[name] for name in lazy)), strict=True)  # type: ignore[no-untyped-call,unused-ignore]
        fingerprint = self.fingerprint()
        part = object.__new__(ChunkedSource)
        part.__setstate__(
            {
                **self.__getstate__(),
                "_fingerprint": fingerprint,
                "_held": (start, stop),
                "_arrays": {**self._arrays, **rows},
                "_first": {**self._first, **dict.fromkeys(rows, start)},
            }
        )
        return part

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_readers", "_client")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._set_readers()


def _is_in_process(array: Any) -> bool:
    return isinstance(array, np.ndarray) or hasattr(array, "dask")


def client_of(*collections: Any) -> Any:
    """Return the client of the cluster on which the collections were persisted, or None if they were not persisted.

    Raises ``DataError`` if this client cannot be reached.
    """
    if "distributed" not in sys.modules:
        return None
    for collection in collections:
        for value in collection.__dask_graph__().values() if hasattr(collection, "__dask_graph__") else ():
            if type(value).__module__.startswith("distributed.") and hasattr(value, "client"):
                return _running(value.client)
    return None


def _running(client: Any) -> Any:
    if getattr(client, "status", None) != "running":
        raise DataError(
            "the data were persisted on a Dask cluster whose client is closed or cannot be reached: pass the array or "
            "data frame from before persist(), or ingest it while the client is open."
        )
    return client


def computed(*collections: Any, client: Any = None) -> tuple[Any, ...]:
    """Compute the values of Dask collections through the client, or in the calling thread if ``client`` is None."""
    import dask

    scheduler = "synchronous" if client is None else _running(client)
    values: tuple[Any, ...] = dask.compute(*collections, scheduler=scheduler)  # type: ignore[attr-defined,no-untyped-call,unused-ignore]
    return values


def with_known_sizes(array: Any) -> Any:
    """Compute unknown chunk sizes of a Dask array. All other values are returned unchanged."""
    if hasattr(array, "compute_chunk_sizes") and any(np.isnan(n) for n in array.shape):
        return array.compute_chunk_sizes()
    return array


def in_process(name: str, values: Any, meant: str) -> np.ndarray[Any, Any]:
    """Return the values of an array, list or series as a NumPy array; arrays of Zarr and Dask are read whole.

    Raises ``MissingDataError`` for missing chunks, with the advice ``meant``.
    """
    refuse_missing_chunks(name, values, meant)
    if hasattr(values, "__dask_graph__"):
        (values,) = computed(values, client=client_of(values))
    return np.asarray(values)


MEANT = "if the fill value is intended, pass `partirvm.data.as_source(X, y, allow_missing_chunks=True)` to fit"


def refuse_missing_chunks(name: str, array: Any, meant: str = MEANT) -> None:
    """Raise ``MissingDataError`` if chunks of a Zarr array are missing, because reads would return the fill value.

    ``meant`` is the advice in the error for users who intended the fill value.
    """
    if not hasattr(array, "nchunks_initialized"):
        return
    stored, there = array.nchunks, array.nchunks_initialized
    if getattr(array, "shards", None):  # stored objects are shards; zarr before 3.1 counts shards as chunks
        stored = math.prod(-(-n // step) for n, step in zip(array.shape, array.shards, strict=True))
        there = getattr(array, "_nshards_initialized", there)
    missing = stored - there
    if missing > 0:
        raise MissingDataError(
            f"the Zarr array {name} ({array.store_path}) lacks {missing} of its {stored} chunks, which would "
            f"be read as {array.fill_value}. Write the missing chunks, or, {meant}."
        )
