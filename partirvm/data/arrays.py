"""A source of tiles from NumPy arrays in memory, in the order of the arrays or permuted. The arrays are not copied."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partirvm.core.exact import require_exact
from partirvm.data.checks import check_shapes, check_weights, numeric_array
from partirvm.data.source import Columns, Fingerprint, Float, Int, Tile, tile_rows_for
from partirvm.data.tiled import HeldTiles, TiledRows, as_rows, default_names
from partirvm.errors import DataError


def shuffled_rows(n_rows: int, seed: int) -> Int:
    """Return the order of rows after shuffling, (n_rows,) int64: row i of the shuffled data is row ``order[i]``.

    Every row gets a random number in [0, 1) from ``numpy.random.default_rng(seed)``, in the order of rows. The rows are
    then sorted by these numbers. ``ingest`` produces the same order by sorting on disk.

    >>> sorted(shuffled_rows(4, seed=0).tolist())
    [0, 1, 2, 3]
    """
    return np.argsort(np.random.default_rng(seed).random(n_rows), kind="stable").astype(np.int64)


class ArraySource(TiledRows):
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
    least : int
        Minimum number of rows if there is a target. The value is 1 for rows that are appended to other rows.

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
        least: int = 2,
    ) -> None:
        self._X = numeric_array("X", X)
        self._t = None if t is None else numeric_array("y", t)
        self._weights = None if weights is None else numeric_array("the weights", weights)
        check_shapes(self._X, self._t, self._weights, least=least)
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
        self._fingerprint: Fingerprint | None = None

    def tile(self, number: int) -> Tile:
        """Return one tile: a view if the arrays are float64 and not permuted, otherwise a copy of its rows."""
        start, stop = self._span(number)
        rows: slice | Int = slice(start, stop) if self._permutation is None else self._permutation[start:stop]
        t = np.empty((stop - start, 0)) if self._t is None else self._t[rows]
        weights = None if self._weights is None else as_rows(self._weights[rows])
        return Tile(number, start, as_rows(self._X[rows]), as_rows(t), weights)

    def gather(self, rows: Sequence[int] | Int) -> Float:
        """Return the inputs of the rows with the given numbers, shape (len(rows), d)."""
        wanted = self._row_numbers(rows)
        return self._X[wanted if self._permutation is None else self._permutation[wanted]].astype(
            np.float64, copy=False
        )

    def weights_of(self, rows: Sequence[int] | Int) -> Float | None:
        """Return the precision weights of the rows with the given numbers, shape (len(rows),); None for unweighted
        data.
        """
        wanted = self._row_numbers(rows)
        if self._weights is None:
            return None
        return self._weights[wanted if self._permutation is None else self._permutation[wanted]].astype(
            np.float64, copy=False
        )

    def part(self, tiles: Sequence[int]) -> HeldTiles:
        """Return a source that holds only the rows of the given tiles."""
        return HeldTiles(self, tiles)

    def fingerprint(self) -> Fingerprint:
        """Return the shape and the hashes of the first tiles. The fingerprint is computed once."""
        if self._fingerprint is None:
            self._fingerprint = super().fingerprint()
        return self._fingerprint


def _checked(permutation: NDArray[Any], n_rows: int) -> Int:
    order = np.asarray(permutation)
    if order.shape != (n_rows,) or order.dtype.kind not in "iu":
        raise DataError(f"the permutation must be {n_rows} row numbers, found {order.dtype} of shape {order.shape}.")
    order = order.astype(np.int64, copy=False)
    if not (np.bincount(np.clip(order, 0, n_rows - 1), minlength=n_rows) == 1).all() or order.min() < 0:
        raise DataError(f"the permutation must contain each of the {n_rows} row numbers exactly once.")
    return order
