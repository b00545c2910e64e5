"""The data interface of a fit. A source gives numbered tiles of rows, single rows by number, and the identity of the
data.

A *source* has N rows of d features, T targets and optional precision weights. Its *tiles* are runs of ``tile_rows``
rows, the last one perhaps shorter. The tile size depends on the data and not on the machine, so that sums over tiles
have the same bits on all machines.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partirvm.core.moments import Moments, require_exact
from partirvm.errors import ChangedDataError, DataError
from partirvm.storage.records import checksum
from partirvm.types import Columns as Columns

Float = NDArray[np.float64]
Int = NDArray[np.int64]

TILE_BYTES = 1 << 20
"""Approximate number of bytes of the inputs of a tile, for data with many rows."""

FINGERPRINT_TILES = 16
"""Number of tiles that are hashed if ingest did not record hashes."""


@dataclass(frozen=True)
class Tile:
    """A run of rows: ``X`` (rows, d), ``t`` (rows, T), ``weights`` (rows,) or None, all float64 and C-contiguous.

    ``start`` is the row number of the first row of the tile. The arrays must not be changed.
    """

    number: int
    start: int
    X: Float
    t: Float
    weights: Float | None = None


@dataclass(frozen=True)
class Fingerprint:
    """The identity of data: the shape, and one short hash per tile of the raw bytes of X, t and weights.

    ``hashes`` may contain only the first tiles. For DATA, ``about`` is a hash of the attributes that do not change when
    rows are appended (names, categories, classes), and ``moments`` one of the moments.
    """

    n_rows: int
    n_features: int
    hashes: tuple[str, ...]
    about: str = ""
    moments: str = ""


class Source:
    """A set of rows that is read tile by tile. Reading is thread-safe. A source on disk is small when pickled.

    ``shuffled`` states that neighbouring rows are a random sample. ``moments`` are those of all rows, if known.
    """

    n_rows: int
    n_features: int
    n_targets: int
    tile_rows: int
    columns: Columns
    shuffled: bool = False
    moments: Moments | None = None
    weighted: bool = False
    _fingerprint: Fingerprint | None = None
    _held: tuple[int, int] | None = None  # first row of a part, and the row after its last one

    @property
    def n_tiles(self) -> int:
        """Return the number of tiles, ⌈n_rows / tile_rows⌉."""
        return -(-self.n_rows // self.tile_rows)

    def tile(self, number: int) -> Tile:
        """Read one tile. Raises ``IndexError`` for its number, and ``MissingDataError`` for a damaged chunk."""
        raise NotImplementedError

    def original_rows(self, number: int) -> Int:
        """Return the numbers of a tile's rows in the order before shuffling, (rows,) int64."""
        start = number * self.tile_rows
        return np.arange(start, min(start + self.tile_rows, self.n_rows), dtype=np.int64)

    def part(self, tiles: Sequence[int]) -> Source:
        """Return a picklable source from which another process can read the given tiles, with the same numbers."""
        return self

    def gather(self, rows: Sequence[int] | Int) -> Float:
        """Return the inputs of the rows with the given numbers, shape (len(rows), d), in the given order.

        Each tile is read once. Raises ``IndexError`` for a number outside [0, n_rows).
        """
        wanted = self._row_numbers(rows)
        return self._collect(wanted, np.empty((len(wanted), self.n_features)), "X")

    def weights_of(self, rows: Sequence[int] | Int) -> Float | None:
        """As ``gather``, the precision weights, (len(rows),). None for unweighted data, whose rows have the weight 1.

        A row of weight zero counts as absent and cannot be a candidate.
        """
        wanted = self._row_numbers(rows)
        return self._collect(wanted, np.empty(len(wanted)), "weights") if self.weighted else None

    def _collect(self, wanted: Int, collected: Float, name: str) -> Float:
        """Fill ``collected`` with the wanted rows of an array of the tiles."""
        tiles = wanted // self.tile_rows
        order = np.argsort(tiles, kind="stable")
        for places in np.split(order, np.flatnonzero(np.diff(tiles[order])) + 1):
            if len(places):
                number = int(tiles[places[0]])
                collected[places] = getattr(self.tile(number), name)[wanted[places] - number * self.tile_rows]
        return collected

    def fingerprint(self) -> Fingerprint:
        """Return the shape and the hashes of the first ``FINGERPRINT_TILES`` tiles, computed once."""
        if self._fingerprint is None:
            hashes = tuple(hash_tile(self.tile(number)) for number in range(min(self.n_tiles, FINGERPRINT_TILES)))
            self._fingerprint = Fingerprint(self.n_rows, self.n_features, hashes)
        return self._fingerprint

    def check(self, expected: Fingerprint) -> None:
        """Raise ``ChangedDataError`` unless shape, attributes and common hashes are those of an earlier fingerprint."""
        now, pairs = self.fingerprint(), zip(self.fingerprint().hashes, expected.hashes, strict=False)
        others = [number for number, (hash_now, before) in enumerate(pairs) if hash_now != before]
        about = ((now.about, expected.about), (now.moments, expected.moments))
        if (now.n_rows, now.n_features) != (expected.n_rows, expected.n_features):
            shapes = f"{now.n_rows:,} rows × {now.n_features} features, but had {expected.n_rows:,} × "
            found = f"the data have {shapes}{expected.n_features} before"
        elif others:
            found = f"the values of tile {others[0]} have changed"
        elif any(each != before for each, before in about if each and before):
            found = "names, categories, classes, moments or the tile size have changed"
        else:
            return
        raise ChangedDataError(f"{self}: {found}. Pass the same data again, or start a new fit.")

    def _span(self, number: int) -> tuple[int, int]:
        """Return the number of the first row of a tile, and the number of the first row after the tile."""
        if not 0 <= number < self.n_tiles:
            raise IndexError(f"there is no tile {number}: {self} has tiles 0 to {self.n_tiles - 1}")
        start, stop = number * self.tile_rows, min((number + 1) * self.tile_rows, self.n_rows)
        if self._held is not None and not self._held[0] <= start < stop <= self._held[1]:
            raise DataError(f"tile {number} is not in this part of the data")
        return start, stop

    def _row_numbers(self, rows: Sequence[int] | Int) -> Int:
        wanted, (start, stop) = np.asarray(rows, dtype=np.int64).reshape(-1), self._held or (0, self.n_rows)
        if len(wanted) and not (wanted.min() >= start and wanted.max() < stop):
            raise IndexError(f"row numbers from {wanted.min()} to {wanted.max()} are outside {self}")
        return wanted

    def _take_shape_of(self, source: Source) -> None:
        """Take shape, tiles, columns and order of another source."""
        self.n_rows, self.n_features, self.n_targets = source.n_rows, source.n_features, source.n_targets
        self.tile_rows, self.columns = source.tile_rows, source.columns
        self.shuffled, self.weighted = source.shuffled, source.weighted

    def __str__(self) -> str:
        return f"{type(self).__name__} of {self.n_rows:,} rows × {self.n_features} features"


def tile_rows_for(n_rows: int, n_features: int) -> int:
    """Return the number of rows per tile: a power of two, with inputs of about ``TILE_BYTES`` bytes.

    There are at least 32 tiles, provided that each tile keeps 2048 rows. The result depends only on the shape.
    """
    by_size = max(TILE_BYTES // (8 * max(n_features, 1)), 1)
    by_count = max(n_rows // 32, 2048)
    return 1 << (min(by_size, by_count, 16384).bit_length() - 1)


def hash_tile(tile: Tile) -> str:
    """Return a hash of sixteen hexadecimal digits of X, t and the weights of a tile."""
    return hash_of(checksum(block) for block in (tile.X, tile.t, tile.weights) if block is not None and block.size)


def hash_of(checksums: Iterable[str]) -> str:
    """Return the hash of a tile from the checksums of its X, t and weights."""
    return hashlib.blake2b("".join(checksums).encode(), digest_size=8).hexdigest()


def as_rows(block: Any, name: str = "the rows", start: int = 0, columns: Sequence[str] | None = None) -> Float:
    """Return a read-only, C-contiguous float64 view or copy of ``block``, as checked by ``require_exact``."""
    require_exact(np.asarray(block), name, start, columns=columns)
    rows = np.ascontiguousarray(block, dtype=np.float64).view()
    rows.flags.writeable = False
    return rows


def default_names(n_features: int) -> tuple[str, ...]:
    """Return the names of the features of an array, as in scikit-learn: ``x0``, ``x1``, …"""
    return tuple(f"x{j}" for j in range(n_features))
