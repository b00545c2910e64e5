"""The data interface of a fit: numbered tiles of rows, single rows by number, and the identity of the data.

A *source* has N rows of d features, T targets and optional precision weights, and serves them in *tiles*: runs of
``tile_rows`` rows, numbered from 0, the last one shorter. Tiles are the unit of reading and of reduction. Their size
depends on the data and not on the machine, so that sums over tiles have the same bits everywhere.
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
"""Approximate bytes of inputs per tile for data with many rows."""


@dataclass(frozen=True)
class Tile:
    """One run of rows: ``X`` (rows, d), ``t`` (rows, T), ``weights`` (rows,) or None, all float64 and C-contiguous.

    ``start`` is the row number of its first row. The arrays must not be written to.
    """

    number: int
    start: int
    X: Float
    t: Float
    weights: Float | None = None


@dataclass(frozen=True)
class Fingerprint:
    """Identity of data: shape, and one short hash per tile of the raw bytes of X, t and weights.

    ``hashes`` may be a prefix (the first tiles) if hashing all would read everything. For DATA, ``about`` is a hash of
    the attributes that do not change when rows are appended (names, categories, classes), ``moments`` of the moments.
    """

    n_rows: int
    n_features: int
    hashes: tuple[str, ...]
    about: str = ""
    moments: str = ""


@runtime_checkable
class Source(Protocol):
    """A set of rows, read tile by tile. Thread-safe for reading; small to pickle if the data are on disk."""

    n_rows: int
    n_features: int
    n_targets: int
    tile_rows: int
    shuffled: bool  # neighbouring rows are a random sample of all rows
    columns: Columns
    moments: Moments | None  # over all rows, if already computed

    @property
    def n_tiles(self) -> int:
        """Number of tiles, ⌈n_rows / tile_rows⌉."""
        ...

    def tile(self, number: int) -> Tile:
        """Read one tile. Raises ``MissingDataError`` for a missing or damaged chunk; never substitutes values."""
        ...

    def gather(self, rows: Sequence[int] | Int) -> Float:
        """Inputs of the rows with these numbers, shape (len(rows), d), in the given order; each tile is read once."""
        ...

    def weights_of(self, rows: Sequence[int] | Int) -> Float | None:
        """Precision weights of these rows, (len(rows),), as ``gather``; None for unweighted data (all weights are 1).

        A row of weight zero counts as absent: it cannot be a candidate.
        """
        ...

    def part(self, tiles: Sequence[int]) -> Source:
        """A picklable source with which another process can read these tiles (same numbers); itself if on disk."""
        ...

    def fingerprint(self) -> Fingerprint:
        """Identity of the data, cheap to compute."""
        ...


def tile_rows_for(n_rows: int, n_features: int) -> int:
    """Rows per tile: a power of two, about ``TILE_BYTES`` of inputs, 32 tiles or more if each keeps 2048 rows.

    A function of the shape only, so that the same data have the same tiles on every machine.

    >>> tile_rows_for(36_000, 8), tile_rows_for(20_000_000, 16), tile_rows_for(583_740, 2)
    (2048, 8192, 16384)
    """
    by_size = max(TILE_BYTES // (8 * max(n_features, 1)), 1)
    by_count = max(n_rows // 32, 2048)
    return 1 << (min(by_size, by_count, 16384).bit_length() - 1)


def tile_slices(n_rows: int, tile_rows: int) -> list[slice]:
    """Row ranges of the tiles.

    >>> tile_slices(5, 2)
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    return [slice(start, min(start + tile_rows, n_rows)) for start in range(0, n_rows, tile_rows)]
