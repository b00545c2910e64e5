"""Selected rows of a source, read once and held in memory, in the tiles of the source.

A pass over selected rows sums the statistics of all tiles that contain selected rows, in a fixed tree. Gathered rows
keep their tiles, order and panels, so a pass over gathered rows gives the same bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from partirvm.data.source import Float, Int, Source, Tile
from partirvm.data.tiled import TiledRows


class GatheredRows(TiledRows):
    """Selected rows of a source in memory. The tiles are those of the source that contain selected rows, numbered from
    0.

    Tiles differ in length, and row numbers within a tile count only the held rows. ``gather`` and ``weights_of`` take
    row numbers of the source. ``rows`` (n,) are the increasing row numbers of the held rows. ``pieces`` are the inputs,
    targets and weights of these rows in order, a few tiles at a time.
    """

    def __init__(self, source: Source, rows: Int, pieces: Iterable[tuple[Float, Float, Float | None]]) -> None:
        inputs, targets, weights = zip(*pieces, strict=True)
        self.rows, self._X, self._t = rows, np.concatenate(inputs), np.concatenate(targets)
        self.weighted = weights[0] is not None
        self._weights = np.concatenate(weights) if self.weighted else None
        self.n_rows, self.n_features, self.n_targets = len(rows), source.n_features, source.n_targets
        self.tile_rows, self.shuffled, self.columns = source.tile_rows, source.shuffled, source.columns
        self._edges = np.append(np.unique(rows // source.tile_rows, return_index=True)[1], len(rows)).tolist()

    @property
    def n_tiles(self) -> int:
        """Return the number of tiles that contain selected rows."""
        return len(self._edges) - 1

    def tile(self, number: int) -> Tile:
        """Return the held rows of one tile."""
        held = slice(*self._edges[number : number + 2])
        weights = None if self._weights is None else self._weights[held]
        return Tile(number, held.start, self._X[held], self._t[held], weights)

    def gather(self, rows: Sequence[int] | Int) -> Float:
        """Return the inputs of rows by their numbers in the source, (len(rows), d). Raises ``IndexError`` for a missing
        row.
        """
        return self._X[self._places(rows)]

    def weights_of(self, rows: Sequence[int] | Int) -> Float | None:
        """Return the precision weights of rows by their numbers in the source, (len(rows),); None without weights."""
        return None if self._weights is None else self._weights[self._places(rows)]

    def only(self, rows: Int) -> GatheredRows:
        """Return a subset of the held rows, given by increasing row numbers of the source, in the same tiles."""
        places = self._places(rows)
        weights = None if self._weights is None else self._weights[places]
        return GatheredRows(self, rows, [(self._X[places], self._t[places], weights)])

    def _places(self, rows: Sequence[int] | Int) -> Int:
        wanted = np.asarray(rows, dtype=np.int64)
        places = np.minimum(np.searchsorted(self.rows, wanted), len(self.rows) - 1)
        if not (self.rows[places] == wanted).all():
            raise IndexError("some of the requested rows are not held")
        return places


def rows_of_tile(rows: Int, source: Source, number: int) -> tuple[Float, Float, Float | None]:
    """Return the inputs, targets and weights of the given rows (increasing numbers) that lie in one tile."""
    tile = source.tile(number)
    first, last = np.searchsorted(rows, [tile.start, tile.start + len(tile.X)])
    some = rows[first:last] - tile.start
    return tile.X[some], tile.t[some], None if tile.weights is None else tile.weights[some]
