"""A source of tiles from Dask arrays. Each tile is computed when the tile is read."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from partirvm.data.checks import check_shapes
from partirvm.data.source import Columns, Fingerprint, Float, Tile, tile_rows_for
from partirvm.data.tiled import ChunkedRows, TiledRows, as_rows, default_names
from partirvm.errors import DataError


class DaskSource(TiledRows):
    """A source of tiles from Dask arrays. The chunk sizes are unchanged, and only the chunks of a tile are computed.

    Tiles are computed by Dask's synchronous scheduler in the calling thread. If chunks are larger than two tiles, the
    last two computed chunks are cached. Each chunk is then computed once per pass and not once per tile. Chunks of
    unknown size are computed at construction to find their sizes. Every pass computes the graph again, so ingest the
    result of an expensive graph first. Rows persisted on a cluster are fetched through the client of the cluster; a
    part of such a source holds its rows in memory.

    Parameters
    ----------
    X : dask.array (N, d)
    t : dask.array or array (N,) or (N, T), optional
    weights : dask.array or array (N,), optional
    columns : Columns, optional
        Names of the columns.
    tile_rows : int, optional
        Number of rows per tile; default: ``tile_rows_for(N, d)``.

    Raises
    ------
    DataError
        The shape, length or dtype of an array is wrong.
    """

    def __init__(
        self,
        X: Any,
        t: Any = None,
        weights: Any = None,
        *,
        columns: Columns | None = None,
        tile_rows: int | None = None,
    ) -> None:
        arrays = {"X": X, "y": t, "weights": weights}
        arrays = {name: _known_sizes(array) for name, array in arrays.items() if array is not None}
        check_shapes(arrays["X"], arrays.get("y"), arrays.get("weights"))
        self.weighted = weights is not None
        self.n_rows, self.n_features = (int(n) for n in arrays["X"].shape)
        self.n_targets = 0 if t is None else 1 if arrays["y"].ndim == 1 else int(arrays["y"].shape[1])
        self.tile_rows = tile_rows or tile_rows_for(self.n_rows, self.n_features)
        self.columns = columns or Columns(default_names(self.n_features))
        self._pieces = [_Piece(0, self.n_rows, arrays, self.tile_rows)]
        self._fingerprint: Fingerprint | None = None

    def tile(self, number: int) -> Tile:
        """Compute one tile. Raises ``DataError`` for a tile that is not in this part."""
        start, stop = self._span(number)
        piece = self._piece(number)
        t = piece.rows("y", start, stop) if self.n_targets else np.empty((stop - start, 0))
        weights = self._weights_in(number) if self.weighted else None
        t = as_rows(t if t.ndim == 2 else t[:, None], "y", start, self.columns.target_names(t[:1].size))
        return Tile(number, start, self._inputs(number), t, weights)

    def _inputs(self, number: int) -> Float:
        start, stop = self._span(number)
        return as_rows(self._piece(number).rows("X", start, stop), "X", start, self.columns.features)

    def _weights_in(self, number: int) -> Float:
        return as_rows(self._piece(number).rows("weights", *self._span(number)))

    def _piece(self, number: int) -> _Piece:
        start, stop = self._span(number)
        for piece in self._pieces:
            if piece.start <= start and stop <= piece.stop:
                return piece
        raise DataError(f"tile {number} is not in this part of the data")

    def part(self, tiles: Sequence[int]) -> DaskSource:
        """Return a source with the slices of the graph for the given tiles."""
        part = object.__new__(DaskSource)
        part.__dict__.update(self.__dict__)
        part._fingerprint = self.fingerprint() if self._fingerprint is None else self._fingerprint
        part._pieces = []
        for first, last in _runs(tiles):
            piece = self._piece(first) if first == last else self._covering(first, last)
            part._pieces.append(piece.cut(self._span(first)[0], self._span(last)[1], self.tile_rows))
        return part

    def _covering(self, first: int, last: int) -> _Piece:
        start, stop = self._span(first)[0], self._span(last)[1]
        for piece in self._pieces:
            if piece.start <= start and stop <= piece.stop:
                return piece
        raise DataError(f"tiles {first} to {last} are not all in this part of the data")

    def fingerprint(self) -> Fingerprint:
        """Return the shape and the hashes of the first tiles. The fingerprint is computed once."""
        if self._fingerprint is None:
            self._fingerprint = super().fingerprint()
        return self._fingerprint


@dataclass
class _Piece:
    """Rows ``start`` to ``stop`` of the source, as Dask arrays that contain only these rows."""

    start: int
    stop: int
    arrays: dict[str, Any]
    tile_rows: int

    def __post_init__(self) -> None:
        self._readers = {name: self._reader(array) for name, array in self.arrays.items()}

    @cached_property
    def client(self) -> Any:
        """Return the client of the cluster. The client is searched when rows are read, since a pickled source passes
        through processes without a client.
        """
        return client_of(*self.arrays.values())

    def rows(self, name: str, start: int, stop: int) -> np.ndarray[Any, Any]:
        """Return rows of one of the arrays; ``start`` and ``stop`` are row numbers of the source."""
        return self._readers[name](start - self.start, stop - self.start)

    def cut(self, start: int, stop: int, tile_rows: int) -> _Piece:
        """Return a part of this piece: the graph reduced to the given rows, or the rows if a cluster holds them."""
        from dask.base import optimize

        names = list(self.arrays)
        slices = [self.arrays[name][start - self.start : stop - self.start] for name in names]
        if self.client is None:
            cut = optimize(*slices)  # type: ignore[no-untyped-call,unused-ignore]
        else:
            cut = tuple(_known_sizes(rows) for rows in computed(*slices, client=self.client))
        return _Piece(start, stop, dict(zip(names, cut, strict=True)), tile_rows)

    def _reader(self, array: Any) -> ChunkedRows:
        def load(start: int, stop: int) -> np.ndarray[Any, Any]:
            return np.asarray(computed(array[start:stop], client=self.client)[0])

        return ChunkedRows(load, np.cumsum([0, *array.chunks[0]]).tolist(), self.tile_rows)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_readers", "client")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.__post_init__()


def _runs(tiles: Sequence[int]) -> list[tuple[int, int]]:
    """Return the first and last number of every run of consecutive tiles.

    >>> _runs([4, 1, 2])
    [(1, 2), (4, 4)]
    """
    numbers = np.unique(np.asarray(tiles, dtype=np.int64))
    return [
        (int(run[0]), int(run[-1])) for run in np.split(numbers, np.flatnonzero(np.diff(numbers) != 1) + 1) if len(run)
    ]


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


def _known_sizes(array: Any) -> Any:
    """Convert an array to a Dask array with known chunk sizes."""
    import dask.array as da

    if not hasattr(array, "dask"):
        return da.from_array(np.asarray(array), chunks=-1)  # type: ignore[no-untyped-call,unused-ignore]
    if any(np.isnan(n) for n in array.shape):
        return array.compute_chunk_sizes()
    return array
