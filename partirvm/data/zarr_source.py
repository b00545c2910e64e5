"""Sources of rows in Zarr: DATA made by ``ingest``, and Zarr arrays made by the user."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from partirvm.core.moments import Moments
from partirvm.data.checks import check_shapes
from partirvm.data.layout import DataAttributes, dtype_of, open_data
from partirvm.data.source import Columns, Fingerprint, Float, Int, Tile, tile_rows_for
from partirvm.data.tiled import ChunkedRows, TiledRows, as_rows, default_names
from partirvm.errors import ChangedDataError, MissingDataError
from partirvm.storage.address import allow_protocols, protocol_of
from partirvm.storage.chunks import checksum, chunk_name, read_blosc
from partirvm.storage.folder import Folder, digest, reading


class ZarrSource(TiledRows):
    """A source for DATA on disk or at an fsspec URL. The object holds the address and the metadata. Each chunk
    is compared with its checksum when it is read.

    A pickled source contains the address and the expected fingerprint. A process that finds different data at the
    address raises ``ChangedDataError``.

    Parameters
    ----------
    url : str or path
        Folder or fsspec URL of a DATA group.
    storage_options : dict, optional
        Options of the fsspec file system.

    Attributes
    ----------
    n_rows, n_features, n_targets, tile_rows, n_tiles, shuffled, columns, moments
        The attributes of every source. ``moments`` were computed by ingest from all rows. ``n_targets`` is T, or 0 for
        data without a target; the ``t`` of their tiles has shape (rows, 0).
    seed : int or None
        Seed of the shuffle; None if the rows kept their order.
    weighted : bool
        True if rows have precision weights.
    url : str
        Address of the data.

    Raises
    ------
    MissingDataError
        There are no DATA at the address. Also raised by ``tile`` and ``gather`` if a chunk is missing or damaged.
    ChangedDataError
        Raised by ``tile`` and ``gather`` for a chunk with other values than those ingested, such as those of another
        tile.
    FormatError
        The group is not DATA, or has a newer format.
    """

    def __init__(self, url: str | os.PathLike[str], storage_options: dict[str, Any] | None = None) -> None:
        self.url = os.fspath(url)
        self._storage_options = storage_options
        self._lock = threading.Lock()
        self._opened: tuple[Folder, DataAttributes] | None = None
        self._open()

    def _open(self) -> tuple[Folder, DataAttributes]:
        with self._lock:
            if self._opened is None:
                folder, attributes = open_data(self.url, self._storage_options)
                self._take(attributes)
                self._opened = folder, attributes
            return self._opened

    def _take(self, attributes: DataAttributes) -> None:
        shape = (attributes.n_rows, attributes.n_features, attributes.tile_rows, attributes.n_targets)
        self._fingerprint: Fingerprint | None = attributes.fingerprint()
        identity = digest(asdict(self._fingerprint))
        expected, self._identity = getattr(self, "_identity", identity), identity
        if self._identity != expected:
            raise ChangedDataError(f"{self.url}: the data were replaced while they were in use. Start a new fit.")
        self.n_rows, self.n_features, self.tile_rows, self.n_targets = shape
        self.columns: Columns = attributes.columns
        self.moments: Moments | None = attributes.moments
        self.seed, self.weighted = attributes.seed, attributes.weighted
        self._ordered = attributes.seed is not None
        self.shuffled = self._ordered and len(attributes.batches) == 1

    def _read(self, name: str, number: int) -> np.ndarray[Any, Any]:
        start, stop = self._span(number)
        folder, attributes = self._open()
        place = f"{self.url}: chunk {number} of the array {name!r}"
        advice = "restore the file, or ingest the data again"
        shape = attributes.chunks[name]
        first, segment = next(each for each in reversed(attributes.segments) if each[0] <= number)
        file = chunk_name(f"{segment}/{name}".lstrip("/"), (number - first, *(0 for _ in shape[1:])))
        try:
            with reading(place, advice, MissingDataError):
                chunk = read_blosc(folder, file, shape, dtype_of(name))
            rows = chunk[: stop - start]
            if checksum(rows) != attributes.hashes[name][number]:
                raise ChangedDataError(f"{place} has other values than those ingested: {advice}")
        except (MissingDataError, ChangedDataError):
            self._take(open_data(self.url, self._storage_options)[1])  # raises an error if other DATA are here now
            raise
        return rows

    def tile(self, number: int) -> Tile:
        """Read one tile. Raises ``MissingDataError`` for a missing or damaged chunk, and ``ChangedDataError`` for other
        values than those ingested.
        """
        X = self._read("X", number)
        t = self._read("y", number).reshape(len(X), -1) if self.n_targets else np.empty((len(X), 0))
        weights = self._weights_in(number) if self.weighted else None
        return Tile(number, number * self.tile_rows, as_rows(X), as_rows(t), weights)

    def _inputs(self, number: int) -> Float:
        return self._read("X", number)

    def _weights_in(self, number: int) -> Float:
        return as_rows(self._read("weights", number))

    def original_rows(self, number: int) -> Int:
        """Return the numbers of a tile's rows in the original order, (rows,) int64."""
        if not self._ordered:
            return np.arange(*self._span(number), dtype=np.int64)
        return self._read("row", number)

    def part(self, tiles: Sequence[int]) -> ZarrSource:
        """Return this source, because any process with access to the address can read any tile."""
        return self

    def fingerprint(self) -> Fingerprint:
        """Return the shape and the hashes of all tiles and of the attributes, as recorded by ingest."""
        if self._fingerprint is None:
            self._open()
        assert self._fingerprint is not None
        return self._fingerprint

    def verify(self) -> None:
        """Read all rows, and the numbers of the rows. Raises ``ChangedDataError`` or ``MissingDataError``."""
        for number in range(self.n_tiles):
            self.tile(number)
            self.original_rows(number)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_lock": None, "_opened": None, "_fingerprint": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.Lock()
        allow_protocols(protocol_of(self.url))  # the process that pickled it was allowed to open it

    def __str__(self) -> str:
        return self.url

    def __repr__(self) -> str:
        order = f"shuffled with seed {self.seed}" if self._ordered else "in the original order"
        target = {0: ", no target", 1: ""}.get(self.n_targets, f", {self.n_targets} targets")
        return f"<DATA {self.url}: {self.n_rows:,} rows × {self.n_features} features{target}, {order}>"


class ZarrArraySource(TiledRows):
    """A source for Zarr arrays made by the user. Chunks much larger than a tile are cached while their tiles are read.

    Parameters
    ----------
    X, t, weights : zarr.Array
        Arrays of the shapes (N, d), (N,) or (N, T), and (N,). t and weights are optional and may be NumPy arrays.
    allow_missing_chunks : bool
        If True, missing chunks are read as the fill value. By default missing chunks are an error.
    columns : Columns, optional
        Names of the columns.

    Raises
    ------
    DataError
        An array has a wrong shape or dtype.
    MissingDataError
        A chunk is missing. ``tile`` also raises this error if a chunk cannot be decoded.
    """

    def __init__(
        self,
        X: Any,
        t: Any = None,
        weights: Any = None,
        *,
        allow_missing_chunks: bool = False,
        columns: Columns | None = None,
        tile_rows: int | None = None,
    ) -> None:
        check_shapes(X, t, weights)
        if not allow_missing_chunks:
            for name, array in (("X", X), ("y", t), ("weights", weights)):
                refuse_missing_chunks(name, array)
        self.n_rows, self.n_features = (int(n) for n in X.shape)
        self.n_targets = 0 if t is None else 1 if len(t.shape) == 1 else int(t.shape[1])
        self.tile_rows = tile_rows or tile_rows_for(self.n_rows, self.n_features)
        self.columns = columns or Columns(default_names(self.n_features))
        self.weighted = weights is not None
        self._arrays = {name: array for name, array in (("X", X), ("y", t), ("weights", weights)) if array is not None}
        self._readers: dict[str, ChunkedRows] = {}
        self._set_readers()

    def _set_readers(self) -> None:
        self._readers = {name: self._reader(name, array) for name, array in self._arrays.items()}

    def _reader(self, name: str, array: Any) -> ChunkedRows:
        shards = getattr(array, "shards", None)
        step = (shards or getattr(array, "chunks", None) or array.shape)[0]

        def load(start: int, stop: int) -> np.ndarray[Any, Any]:
            place = f"rows {start:,} to {stop - 1:,} of the Zarr array {name}"
            with reading(place, "restore the file or write the array again", MissingDataError):
                return np.asarray(array[start:stop])

        return ChunkedRows(load, [*range(0, self.n_rows, step), self.n_rows], self.tile_rows)

    def tile(self, number: int) -> Tile:
        """Read one tile. Raises ``MissingDataError`` for a chunk that cannot be read."""
        start, stop = self._span(number)
        t = self._readers["y"](start, stop) if "y" in self._readers else np.empty((stop - start, 0))
        weights = self._weights_in(number) if self.weighted else None
        t = as_rows(t if t.ndim == 2 else t[:, None], "y", start, self.columns.target_names(t[:1].size))
        return Tile(number, start, self._inputs(number), t, weights)

    def _inputs(self, number: int) -> Float:
        start, stop = self._span(number)
        return as_rows(self._readers["X"](start, stop), "X", start, self.columns.features)

    def _weights_in(self, number: int) -> Float:
        return as_rows(self._readers["weights"](*self._span(number)))

    def part(self, tiles: Sequence[int]) -> ZarrArraySource:
        """Return this source. In another process the arrays are opened again through their store."""
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_readers": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._set_readers()


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
