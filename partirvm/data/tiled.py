"""The common parts of all sources: tile arithmetic, gathering of rows tile by tile, hashes, and reading of chunked
arrays.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partirvm.core.exact import require_exact
from partirvm.core.moments import Moments
from partirvm.data.source import Columns, Fingerprint, Float, Int, Source, Tile
from partirvm.errors import ChangedDataError, DataError
from partirvm.storage.chunks import checksum

FINGERPRINT_TILES = 16
"""Number of tiles that are hashed for a fingerprint if ingest did not record hashes."""


def hash_tile(tile: Tile) -> str:
    """Return a hash of sixteen hexadecimal digits of X, t and the weights of a tile.

    >>> zeros = np.zeros((2, 1))
    >>> hash_tile(Tile(0, 0, zeros, zeros)) == hash_tile(Tile(7, 14, zeros, zeros))
    True
    """
    return hash_of(checksum(block) for block in (tile.X, tile.t, tile.weights) if block is not None and block.size)


def hash_of(checksums: Iterable[str]) -> str:
    """Return the hash of a tile from the checksums of its X, t and weights."""
    return hashlib.blake2b("".join(checksums).encode(), digest_size=8).hexdigest()


def as_rows(block: Any, name: str = "the rows", start: int = 0, columns: Sequence[str] | None = None) -> Float:
    """Return a read-only, C-contiguous float64 view or copy of ``block``.

    Raises ``DataError`` for an integer that float64 cannot represent. The error states the position of the integer by
    ``name``, the number ``start`` of the first row, and the names of the ``columns``.
    """
    require_exact(np.asarray(block), name, start, columns=columns)
    rows = np.ascontiguousarray(block, dtype=np.float64).view()
    rows.flags.writeable = False
    return rows


def default_names(n_features: int) -> tuple[str, ...]:
    """Return the names of the features of an array, as in scikit-learn.

    >>> default_names(2)
    ('x0', 'x1')
    """
    return tuple(f"x{j}" for j in range(n_features))


class TiledRows:
    """Base class of the sources. A subclass reads single tiles. ``partirvm.data.source.Source`` describes the
    interface.
    """

    n_rows: int
    n_features: int
    n_targets: int
    tile_rows: int
    shuffled: bool = False
    columns: Columns
    moments: Moments | None = None
    seed: int | None = None
    weighted: bool = False

    @property
    def n_tiles(self) -> int:
        """Return the number of tiles, ⌈n_rows / tile_rows⌉."""
        return -(-self.n_rows // self.tile_rows)

    def tile(self, number: int) -> Tile:
        """Read one tile. Raises ``IndexError`` for an invalid tile number."""
        raise NotImplementedError

    def part(self, tiles: Sequence[int]) -> Source:
        """Return a source from which another process can read the given tiles."""
        raise NotImplementedError

    def gather(self, rows: Sequence[int] | Int) -> Float:
        """Return the inputs of the rows with the given numbers, shape (len(rows), d), in the given order. Each tile is
        read once.

        The method holds the result and one tile in memory. Raises ``IndexError`` for a number outside [0, n_rows).
        """
        wanted = self._row_numbers(rows)
        return self._collect(wanted, np.empty((len(wanted), self.n_features)), self._inputs)

    def weights_of(self, rows: Sequence[int] | Int) -> Float | None:
        """Return the precision weights of the rows with the given numbers, shape (len(rows),). Each tile is read once.

        Returns None for unweighted data. Raises ``IndexError`` for a number outside [0, n_rows).
        """
        wanted = self._row_numbers(rows)
        return self._collect(wanted, np.empty(len(wanted)), self._weights_in) if self.weighted else None

    def _collect(self, wanted: Int, collected: Float, read: Callable[[int], Float]) -> Float:
        """Fill ``collected`` with the wanted rows of the arrays that ``read`` returns for each tile. Each tile is read
        once.
        """
        tiles = wanted // self.tile_rows
        order = np.argsort(tiles, kind="stable")
        for places in np.split(order, np.flatnonzero(np.diff(tiles[order])) + 1):
            if len(places):
                number = int(tiles[places[0]])
                collected[places] = read(number)[wanted[places] - number * self.tile_rows]
        return collected

    def fingerprint(self) -> Fingerprint:
        """Return the shape and the hashes of the first ``FINGERPRINT_TILES`` tiles, or of all tiles if ingest recorded
        hashes.
        """
        hashes = tuple(hash_tile(self.tile(number)) for number in range(min(self.n_tiles, FINGERPRINT_TILES)))
        return Fingerprint(self.n_rows, self.n_features, hashes)

    def check(self, expected: Fingerprint) -> None:
        """Compare the shape and the common hashes with an earlier fingerprint.

        Raises ``ChangedDataError``, which states the difference.
        """
        check_fingerprint(self.fingerprint(), expected, str(self))

    def _inputs(self, number: int) -> Float:
        return self.tile(number).X

    def _weights_in(self, number: int) -> Float:
        """Return the weights of a tile; called only for weighted data."""
        weights = self.tile(number).weights
        assert weights is not None
        return weights

    def _span(self, number: int) -> tuple[int, int]:
        """Return the number of the first row of a tile, and the number of the first row after the tile."""
        if not 0 <= number < self.n_tiles:
            raise IndexError(f"there is no tile {number}: {self} has tiles 0 to {self.n_tiles - 1}")
        return number * self.tile_rows, min((number + 1) * self.tile_rows, self.n_rows)

    def _row_numbers(self, rows: Sequence[int] | Int) -> Int:
        wanted = np.asarray(rows, dtype=np.int64).reshape(-1)
        if len(wanted) and not (wanted.min() >= 0 and wanted.max() < self.n_rows):
            raise IndexError(f"row numbers from {wanted.min()} to {wanted.max()} are outside {self}")
        return wanted

    def __str__(self) -> str:
        return f"{type(self).__name__} of {self.n_rows:,} rows × {self.n_features} features"


def check_fingerprint(found: Fingerprint, expected: Fingerprint, name: str) -> None:
    """Raise ``ChangedDataError`` unless shape, attributes and common hashes of two fingerprints are equal."""
    if (found.n_rows, found.n_features) != (expected.n_rows, expected.n_features):
        raise ChangedDataError(
            f"{name}: the data have {found.n_rows:,} rows × {found.n_features} features, but had "
            f"{expected.n_rows:,} × {expected.n_features} before. Pass the same data again, or start a new fit."
        )
    for number, (now, before) in enumerate(zip(found.hashes, expected.hashes, strict=False)):
        if now != before:
            raise ChangedDataError(
                f"{name}: the values of tile {number} have changed (hash {now}, was {before}). "
                "Pass the same data again, or start a new fit."
            )
    pairs = ((found.about, expected.about), (found.moments, expected.moments))
    if any(now != before for now, before in pairs if now and before):
        raise ChangedDataError(
            f"{name}: names, categories, classes, moments or the tile size have changed. Pass the same data again, "
            "or start a new fit."
        )


class HeldTiles(TiledRows):
    """Selected tiles of a source with their numbers, for processes that cannot read the arrays."""

    def __init__(self, source: TiledRows, tiles: Sequence[int]) -> None:
        self.n_rows, self.n_features, self.n_targets = source.n_rows, source.n_features, source.n_targets
        self.tile_rows, self.shuffled, self.seed = source.tile_rows, source.shuffled, source.seed
        self.weighted = source.weighted
        self.columns, self.moments = source.columns, source.moments
        self._tiles = {number: source.tile(number) for number in tiles}
        self._fingerprint = source.fingerprint()

    def tile(self, number: int) -> Tile:
        """Return one of the held tiles. Raises ``DataError`` for a tile that is not held."""
        self._span(number)
        if number not in self._tiles:
            raise DataError(f"tile {number} is not in this part of the data, which holds tiles {sorted(self._tiles)}")
        return self._tiles[number]

    def part(self, tiles: Sequence[int]) -> HeldTiles:
        """Return a source that holds only the given tiles of this part."""
        return HeldTiles(self, tiles)

    def fingerprint(self) -> Fingerprint:
        """Return the fingerprint of the whole source."""
        return self._fingerprint


class ChunkedRows:
    """A reader of runs of rows of a chunked array. The last chunks are cached if they are larger than a tile.

    Without the cache, every tile of a large chunk would decode or compute the whole chunk again. Two chunks are cached,
    so that two threads can read on both sides of a chunk boundary.

    Parameters
    ----------
    load : callable
        ``load(start, stop)`` returns the rows from ``start`` to ``stop`` as a NumPy array.
    edges : sequence of int
        Numbers of the first rows of the chunks, followed by the number of rows.
    tile_rows : int
        Number of rows per tile. Chunks of at most twice this number of rows are not cached.
    """

    def __init__(self, load: Callable[[int, int], NDArray[Any]], edges: Sequence[int], tile_rows: int) -> None:
        self._load = load
        self._edges = np.asarray(edges, dtype=np.int64)
        self.holds = int(np.diff(self._edges).max(initial=0)) > 2 * tile_rows
        self._held: OrderedDict[int, NDArray[Any]] = OrderedDict()
        self._lock = threading.Lock()

    def __call__(self, start: int, stop: int) -> NDArray[Any]:
        """Return the rows from ``start`` to ``stop``."""
        if not self.holds:
            return self._load(start, stop)
        first, last = np.searchsorted(self._edges, [start, stop - 1], side="right") - 1
        pieces = []
        for chunk in range(int(first), int(last) + 1):
            low, high = int(self._edges[chunk]), int(self._edges[chunk + 1])
            pieces.append(self._chunk(chunk, low, high)[max(start - low, 0) : stop - low])
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def _chunk(self, chunk: int, low: int, high: int) -> NDArray[Any]:
        with self._lock:
            if chunk not in self._held:
                while len(self._held) >= 2:
                    self._held.popitem(last=False)
                self._held[chunk] = self._load(low, high)
            self._held.move_to_end(chunk)
            return self._held[chunk]
