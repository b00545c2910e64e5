"""The source of rows of DATA made by ``ingest``."""

from __future__ import annotations

import os
import threading
from dataclasses import asdict
from typing import Any

import numpy as np

from partirvm.data.layout import DataAttributes, dtype_of, open_data
from partirvm.data.source import Fingerprint, Int, Source, Tile, as_rows, hash_tile
from partirvm.errors import ChangedDataError, MissingDataError
from partirvm.storage import Folder, reading
from partirvm.storage.address import allow_protocols, protocol_of
from partirvm.storage.records import checksum, digest, read_blosc


class ZarrSource(Source):
    """A source for DATA on disk or at an fsspec URL ``url``. Each chunk is compared with its checksum when it is read.

    ``seed`` is that of the shuffle, None if the rows kept their order. A pickled source
    contains the address and the expected fingerprint. Raises ``MissingDataError`` if DATA or a chunk are missing or
    damaged, ``ChangedDataError`` for other DATA or values than those ingested, and ``FormatError`` for another format.
    """

    def __init__(self, url: str | os.PathLike[str]) -> None:
        self.url = os.fspath(url)
        self._lock = threading.Lock()
        self._opened: tuple[Folder, DataAttributes] | None = None
        self._identity: str | None = None
        self._open()

    def _open(self, *, again: bool = False) -> tuple[Folder, DataAttributes]:
        """Return the folder and the attributes. Raises ``ChangedDataError`` if other DATA are here now."""
        with self._lock:
            if self._opened is None or again:
                folder, attributes = open_data(self.url)
                self._fingerprint = attributes.fingerprint()
                identity = digest(asdict(self._fingerprint))
                if self._identity not in (None, identity):
                    raise ChangedDataError(
                        f"{self.url}: the data were replaced while they were in use. Start a new fit."
                    )
                self._identity = identity
                self.n_rows, self.n_features = attributes.n_rows, attributes.n_features
                self.tile_rows, self.n_targets = attributes.tile_rows, attributes.n_targets
                self.columns, self.moments = attributes.columns, attributes.moments
                self.seed, self.weighted = attributes.seed, attributes.weighted
                self.shuffled = self.seed is not None and len(attributes.batches) == 1
                self._opened = folder, attributes
            return self._opened

    def _read(self, name: str, number: int) -> np.ndarray[Any, Any]:
        start, stop = self._span(number)
        folder, attributes = self._open()
        place, advice = f"{self.url}: chunk {number} of the array {name!r}", "restore it, or ingest the data again"
        shape = attributes.chunks[name]
        first, group = next(each for each in reversed(attributes.segments) if each[0] <= number)
        file = "/".join([group, name, "c", str(number - first), *("0" for _ in shape[1:])])
        try:
            with reading(place, advice, MissingDataError):
                chunk = read_blosc(folder, file, shape, dtype_of(name))
            rows = chunk[: stop - start]
            if checksum(rows) != attributes.hashes[name][number]:
                raise ChangedDataError(f"{place} has other values than those ingested: {advice}")
        except (MissingDataError, ChangedDataError):
            self._open(again=True)
            raise
        return rows

    def tile(self, number: int) -> Tile:
        """Read one tile."""
        X = self._read("X", number)
        t = self._read("y", number).reshape(len(X), -1) if self.n_targets else np.empty((len(X), 0))
        weights = as_rows(self._read("weights", number)) if self.weighted else None
        return Tile(number, number * self.tile_rows, as_rows(X), as_rows(t), weights)

    def original_rows(self, number: int) -> Int:
        return super().original_rows(number) if self.seed is None else self._read("row", number)

    def fingerprint(self) -> Fingerprint:
        """Return the shape and the hashes of all tiles and of the attributes, as recorded by ingest."""
        self._open()
        return super().fingerprint()

    def has_grown(self, then: Fingerprint) -> bool:
        """Return True if the DATA consist of the rows of an earlier fingerprint followed by more rows."""
        (full, rest), now = divmod(then.n_rows, self.tile_rows), self.fingerprint()
        if now.n_rows <= then.n_rows or now.about != then.about or now.hashes[:full] != then.hashes[:full]:
            return False
        if not rest:
            return True
        tile = self.tile(full)
        weights = None if tile.weights is None else tile.weights[:rest]
        return hash_tile(Tile(full, tile.start, tile.X[:rest], tile.t[:rest], weights)) == then.hashes[full]

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
        order = f"shuffled with seed {self.seed}" if self.seed is not None else "in the original order"
        target = {0: ", no target", 1: ""}.get(self.n_targets, f", {self.n_targets} targets")
        return f"<DATA {self.url}: {self.n_rows:,} rows × {self.n_features} features{target}, {order}>"
