"""Selected rows of a source, read once and held in memory, in the same tiles as in the source.

A pass over selected rows sums tile statistics, over the tiles that contain any of the rows, in a fixed tree. Gathered
rows keep their tiles, order and panels, so a pass over them gives the same bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from partirvm.data.source import Float, Int, Source, Tile
from partirvm.data.tiled import TiledRows


class GatheredRows(TiledRows):
    """Rows of a source in memory. Its tiles are the source's tiles that contain any of these rows, numbered from 0.

    Tiles differ in length; row numbers within tiles count the held rows. ``gather`` and ``weights_of`` take row
    numbers of the source; ``rows`` (n,), increasing, are the row numbers held. ``pieces`` are the inputs, targets and
    weights of these rows, a few tiles at a time, in order.
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
        """Number of tiles that contain any of the rows."""
        return len(self._edges) - 1

    def tile(self, number: int) -> Tile:
        """The held rows of one tile."""
        mine = slice(*self._edges[number : number + 2])
        weights = None if self._weights is None else self._weights[mine]
        return Tile(number, mine.start, self._X[mine], self._t[mine], weights)

    def gather(self, rows: Sequence[int] | Int) -> Float:
        """Inputs of rows by their numbers in the source, (len(rows), d). Raises ``IndexError`` for one not held."""
        return self._X[self._places(rows)]

    def weights_of(self, rows: Sequence[int] | Int) -> Float | None:
        """Precision weights of rows by their numbers in the source, (len(rows),); None without weights."""
        return None if self._weights is None else self._weights[self._places(rows)]

    def only(self, rows: Int) -> GatheredRows:
        """A subset of the rows, by their numbers in the source (increasing), in the same tiles."""
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
    """Inputs, targets and weights of the rows (numbers, increasing) that lie in one tile."""
    tile = source.tile(number)
    first, last = np.searchsorted(rows, [tile.start, tile.start + len(tile.X)])
    some = rows[first:last] - tile.start
    return tile.X[some], tile.t[some], None if tile.weights is None else tile.weights[some]
