"""The data interface of a fit. A source gives numbered tiles of rows, single rows by number, and the identity of the
data.

A *source* has N rows of d features, T targets and optional precision weights. Its *tiles* are runs of ``tile_rows``
rows, numbered from 0; the last tile may be shorter. Tiles are the unit of reading and of summation. The tile size
depends on the data and not on the machine, so that sums over tiles have the same bits on all machines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from partirvm.core.moments import Moments
from partirvm.types import Columns as Columns

Float = NDArray[np.float64]
Int = NDArray[np.int64]

TILE_BYTES = 1 << 20
"""Approximate number of bytes of inputs per tile for data with many rows."""


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

    ``hashes`` may contain only the first tiles, if the hashes of all tiles would require reading all rows. For DATA,
    ``about`` is a hash of the attributes that do not change when rows are appended (names, categories, classes), and
    ``moments`` is a hash of the moments.
    """

    n_rows: int
    n_features: int
    hashes: tuple[str, ...]
    about: str = ""
    moments: str = ""


@runtime_checkable
class Source(Protocol):
    """The interface of a set of rows that is read tile by tile. Reading is thread-safe. A source on disk is small when
    pickled.
    """

    n_rows: int
    n_features: int
    n_targets: int
    tile_rows: int
    shuffled: bool  # neighbouring rows are a random sample of all rows
    columns: Columns
    moments: Moments | None  # over all rows, if already computed

    @property
    def n_tiles(self) -> int:
        """Return the number of tiles, ⌈n_rows / tile_rows⌉."""
        ...

    def tile(self, number: int) -> Tile:
        """Read one tile. Raises ``MissingDataError`` for a missing or damaged chunk; values are never replaced."""
        ...

    def gather(self, rows: Sequence[int] | Int) -> Float:
        """Return the inputs of the rows with the given numbers, shape (len(rows), d), in the given order. Each tile is
        read once.
        """
        ...

    def weights_of(self, rows: Sequence[int] | Int) -> Float | None:
        """Return the precision weights of the given rows, (len(rows),), in the given order; None for unweighted data.

        Rows of unweighted data have the weight 1. A row of weight zero counts as absent and cannot be a candidate.
        """
        ...

    def part(self, tiles: Sequence[int]) -> Source:
        """Return a picklable source from which another process can read the given tiles, with unchanged tile numbers.

        A source on disk returns itself.
        """
        ...

    def fingerprint(self) -> Fingerprint:
        """Return the identity of the data, without reading all rows."""
        ...


def tile_rows_for(n_rows: int, n_features: int) -> int:
    """Return the number of rows per tile: a power of two, with inputs of about ``TILE_BYTES`` bytes. There are at least
    32 tiles, provided that each tile keeps 2048 rows.

    The result depends only on the shape, so that the same data have the same tiles on every machine.

    >>> tile_rows_for(36_000, 8), tile_rows_for(20_000_000, 16), tile_rows_for(583_740, 2)
    (2048, 8192, 16384)
    """
    by_size = max(TILE_BYTES // (8 * max(n_features, 1)), 1)
    by_count = max(n_rows // 32, 2048)
    return 1 << (min(by_size, by_count, 16384).bit_length() - 1)


def tile_slices(n_rows: int, tile_rows: int) -> list[slice]:
    """Return the row ranges of the tiles.

    >>> tile_slices(5, 2)
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    return [slice(start, min(start + tile_rows, n_rows)) for start in range(0, n_rows, tile_rows)]
