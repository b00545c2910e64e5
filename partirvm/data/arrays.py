"""Sources of rows in memory: NumPy arrays, in their order or permuted, and rows gathered from another source; and the
source that multiplies row weights by class weights. Arrays are not copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partirvm.core.moments import require_exact
from partirvm.data.checks import check_shapes, check_weights, numeric_array
from partirvm.data.source import Columns, Float, Int, Source, Tile, as_rows, default_names, tile_rows_for
from partirvm.errors import DataError


def shuffled_rows(n_rows: int, seed: int) -> Int:
    """Return the order of rows after shuffling, (n_rows,) int64: row i of the shuffled data is row ``order[i]``.

    Every row gets a random number in [0, 1) from ``numpy.random.default_rng(seed)``, in the order of rows. The rows are
    then sorted by these numbers. ``ingest`` produces the same order by sorting on disk.

    >>> sorted(shuffled_rows(4, seed=0).tolist())
    [0, 1, 2, 3]
    """
    return np.argsort(np.random.default_rng(seed).random(n_rows), kind="stable").astype(np.int64)


class ArraySource(Source):
    """A source of tiles from NumPy arrays. Numeric types other than float64 are converted tile by tile.

    Parameters
    ----------
    X : (N, d) array of real numbers
    t : (N,) or (N, T) array, optional
        Targets; without targets the ``t`` of each tile has shape (rows, 0).
    weights : (N,) array, optional
        Precision weights, zero or positive.
    permutation : (N,) int64 array, optional
        Row i of the source is row ``permutation[i]`` of the arrays. The source then counts as shuffled.
    tile_rows : int, optional
        Number of rows per tile; default: ``tile_rows_for(N, d)``.
    columns : Columns, optional
        Names of the columns; default: ``x0``, ``x1``, …
    seed : int, optional
        Seed of the permutation; only recorded.

    Raises
    ------
    DataError
        The shape, length or dtype is wrong, or float64 cannot represent an integer exactly.

    Examples
    --------
    >>> source = ArraySource(np.arange(6.0).reshape(3, 2), np.arange(3), tile_rows=2)
    >>> source.n_tiles, source.tile(1).X.tolist(), source.tile(1).t.tolist()
    (2, [[4.0, 5.0]], [[2.0]])
    """

    def __init__(
        self,
        X: Any,
        t: Any = None,
        weights: Any = None,
        *,
        permutation: Int | None = None,
        tile_rows: int | None = None,
        columns: Columns | None = None,
        seed: int | None = None,
    ) -> None:
        self._X = numeric_array("X", X)
        self._t = None if t is None else numeric_array("y", t)
        self._weights = None if weights is None else numeric_array("the weights", weights)
        check_shapes(self._X, self._t, self._weights)
        if self._weights is not None:
            check_weights(self._weights)
        self.weighted = self._weights is not None
        self.n_rows, self.n_features = self._X.shape
        if self._t is not None and self._t.ndim == 1:
            self._t = self._t[:, None]
        self.n_targets = 0 if self._t is None else self._t.shape[1]
        self.tile_rows = tile_rows or tile_rows_for(self.n_rows, self.n_features)
        self.columns = columns or Columns(default_names(self.n_features))
        require_exact(self._X, "X", columns=self.columns.features)
        if self._t is not None:
            require_exact(self._t, "y", columns=self.columns.target_names(self.n_targets))
        self._permutation = None if permutation is None else _checked(permutation, self.n_rows)
        self.shuffled, self.seed = permutation is not None, seed

    def tile(self, number: int) -> Tile:
        """Return one tile: a view if the arrays are float64 and not permuted, otherwise a copy of its rows."""
        start, stop = self._span(number)
        first, rows = 0 if self._held is None else self._held[0], slice(start, stop)
        places = slice(start - first, stop - first) if self._permutation is None else self._permutation[rows]
        t = np.empty((stop - start, 0)) if self._t is None else self._t[places]
        weights = None if self._weights is None else as_rows(self._weights[places])
        return Tile(number, start, as_rows(self._X[places]), as_rows(t), weights)

    def gather(self, rows: Sequence[int] | Int) -> Float:
        """Return the inputs of the rows with the given numbers, shape (len(rows), d)."""
        return self._X[self._places(rows)].astype(np.float64, copy=False)

    def weights_of(self, rows: Sequence[int] | Int) -> Float | None:
        """Return the precision weights of the given rows, shape (len(rows),); None for unweighted data."""
        places = self._places(rows)
        return None if self._weights is None else self._weights[places].astype(np.float64, copy=False)

    def _places(self, rows: Sequence[int] | Int) -> Int:
        wanted = self._row_numbers(rows)
        first = 0 if self._held is None else self._held[0]
        return wanted - first if self._permutation is None else self._permutation[wanted]

    def part(self, tiles: Sequence[int]) -> ArraySource:
        """Return a source that holds only the rows from the first to the last of the given tiles."""
        start, stop = self._rows_of(tiles)
        places, part = self._places(range(start, stop)), copy(self)
        part._fingerprint, part._held, part._permutation = self.fingerprint(), (start, stop), None
        part._X = self._X[places]
        part._t, part._weights = (None if array is None else array[places] for array in (self._t, self._weights))
        return part


def _checked(permutation: NDArray[Any], n_rows: int) -> Int:
    order = np.asarray(permutation)
    if order.shape != (n_rows,) or order.dtype.kind not in "iu":
        raise DataError(f"the permutation must be {n_rows} row numbers, found {order.dtype} of shape {order.shape}.")
    if not np.array_equal(np.sort(order), np.arange(n_rows)):
        raise DataError(f"the permutation must contain each of the {n_rows} row numbers exactly once.")
    return order.astype(np.int64, copy=False)


class GatheredRows(Source):
    """Selected rows of a source in memory. The tiles are those of the source that contain selected rows, numbered from
    0.

    A pass over some rows of a source sums the statistics of the tiles that contain these rows, in a fixed tree.
    Gathered rows keep their tiles, order and panels, so a pass over gathered rows gives the same bits. Tiles differ in
    length, and row numbers within a tile count only the held rows. ``gather`` and ``weights_of`` take row numbers of
    the source. ``rows`` (n,) are the increasing row numbers of the held rows. ``pieces`` are the inputs, targets and
    weights of these rows in order, a few tiles at a time.
    """

    def __init__(self, source: Source, rows: Int, pieces: Iterable[tuple[Float, Float, Float | None]]) -> None:
        inputs, targets, weights = zip(*pieces, strict=True)
        self._take_shape_of(source)
        self.rows, self._X, self._t, self.n_rows = rows, np.concatenate(inputs), np.concatenate(targets), len(rows)
        self.weighted = weights[0] is not None
        self._weights = np.concatenate(weights) if self.weighted else None
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


class ClassWeighted(Source):
    """A source whose row weights are multiplied by ``weights[code]``, (K,), the weight of the class of the row.

    The codes are the first column of the targets. Only the row weights change, so class weights have exactly the effect
    of equal sample weights. The rows of a class of weight zero count as absent. ``moments`` is None until a pass
    computes the moments, because the moments of ``source`` ignore the class weights.

    >>> source = ArraySource(np.zeros((3, 1)), np.array([0.0, 1.0, 1.0]), np.array([1.0, 1.0, 4.0]))
    >>> ClassWeighted(source, np.array([3.0, 0.5])).tile(0).weights.tolist()
    [3.0, 0.5, 2.0]
    """

    def __init__(self, source: Source, weights: Float) -> None:
        self._source, self._class_weights = source, np.asarray(weights, dtype=np.float64)
        self._take_shape_of(source)
        self.weighted = True

    def tile(self, number: int) -> Tile:
        """Return one tile of the source; its row weights include the class weights."""
        tile = self._source.tile(number)
        weights = self._class_weights[tile.t[:, 0].astype(np.int64)]
        return replace(tile, weights=as_rows(weights if tile.weights is None else weights * tile.weights))

    def gather(self, rows: Sequence[int] | Int) -> Float:
        """Return the inputs of the rows with the given numbers, shape (len(rows), d)."""
        return self._source.gather(rows)

    def part(self, tiles: Sequence[int]) -> ClassWeighted:
        """Return a part of the source with the same class weights."""
        part = ClassWeighted(self._source.part(tiles), self._class_weights)
        part._fingerprint = self.fingerprint()
        return part

    def __str__(self) -> str:
        return str(self._source)
