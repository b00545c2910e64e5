"""The rows of local residuals, sorted into cells of nearby rows, and the exact nearest-row search.

A record holds a row's point in a metric (r,), its error for each of T targets, the logarithm of its
noise factor, the inverse of its weight, and its number before shuffling. Records are sorted by
their leaf in a k-d tree built on some of the points (``leaf_order``); consecutive records form a
cell, whose rows lie in a box. They are in memory, or in a Zarr array whose chunks are the cells. A
search looks for a point's nearest rows in the cell with the nearest box, and then in all cells
whose boxes are no farther than the last of these rows. Its result therefore does not depend on the
cells.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from typing import Any, Self

import numpy as np

from partirvm.errors import ChangedDataError, MissingDataError
from partirvm.storage import open_folder, reading, storing
from partirvm.storage.address import absolute
from partirvm.storage.records import checksum, create_blosc, read_blosc
from partirvm.types import RESIDUAL_COLUMNS, Float, Int

LOG_FACTOR, NOISE, NUMBER = -3, -2, -1
"""Columns of a record after the point and the errors."""

CELL_BYTES, CELL_ROWS = 1 << 23, 1 << 16
"""Maximum bytes and rows of a cell on disk. A search needs as much again for its tree."""

KEPT_BYTES = 1 << 28
"""Bytes of Zarr cells, with their trees, that a ``Cells`` object keeps in memory: at least 16 full
cells."""

FOUND_BYTES = 1 << 24
"""Bytes of records that are found at once. For points in ``near_order``, they come from a few
cells."""

ROWS, PAIRS = 128, 1 << 22
"""Maximum number of points whose neighbours are returned at once, and of pairs of their
neighbours."""

GROUP = 32
"""Number of points, at similar distances from their neighbours, that are searched in another cell
at once."""

TREE_LEAF = 32
"""Number of rows in a leaf of a cell's tree."""

SLACK, LEAST_DISTANCE = 1.0 - 1e-12, 1e-150
"""Boxes count as nearer by this ratio, since distances are rounded; limits below this distance
would square to 0."""

ADVICE = (
    "restore this folder, or fit again. A model that was not saved with copy=True refers to the "
    "rows of its local residuals in its job folder, where the second of later updates, a cancel "
    "or --overwrite removes them; model.sparse() predicts without them"
)


def leaf_order(points: Float, count: int) -> Callable[[Float], Float]:
    """Return a function whose values in [0, 1) order points by the leaves of a k-d tree of
    ``points`` (n, r).

    There are at least ``count`` leaves if the points differ enough.
    """
    from scipy.spatial import cKDTree  # its import takes megabytes

    tree = cKDTree(points, max(len(points) // count, 1))

    def places(points: Float, node: Any = None, least: float = 0.0, half: float = 0.5) -> Float:
        found = np.full(len(points), least)
        node = tree.tree if node is None else node
        if node.lesser is not None:
            right = points[:, node.split_dim] >= node.split
            found[~right] = places(points[~right], node.lesser, least, half / 2)
            found[right] = places(points[right], node.greater, least + half, half / 2)
        return found

    return places


@dataclass(frozen=True, eq=False)
class Cells:
    """N records of ``width`` columns, and the boxes (C, 2, r) of their cells: smallest and largest
    coordinates.

    All cells but the last one have ``rows_of_cell`` records. The ``records`` (N, width) are None if
    they are in a Zarr array at ``place``, a path or URL, whose chunks are the cells; ``hashes`` are
    the checksums of the chunks, excluding what follows the last record.
    """

    n_rows: int
    width: int
    boxes: Float
    records: Float | None = None
    place: str = ""
    hashes: tuple[str, ...] = ()

    @classmethod
    def of(cls, records: Float, n_targets: int = 1) -> Self:
        """The cells of records (N, width) in memory, in the given order."""
        n, width = records.shape
        cells = np.split(
            records[:, : -n_targets - RESIDUAL_COLUMNS],
            range(rows_of_cell(width), n, rows_of_cell(width)),
        )
        return cls(n, width, np.array([box(cell) for cell in cells]), records)

    @classmethod
    def written(
        cls, place: str, cells: Iterable[Float], count: int, width: int, n_targets: int = 1
    ) -> Self:
        """Write records, passed cell by cell (at most ``count``), to a new Zarr array, and return
        their cells.

        All cells but the last one are full. Raises ``StorageError``.
        """
        boxes = list[Float]()
        hashes = list[str]()
        n = 0
        rows = rows_of_cell(width)
        with storing(place):
            array = create_blosc(f"{place}/records", (count * rows, width), (rows, width), "<f8")
            for records in cells:
                array[n : n + len(records)] = records
                boxes.append(box(records[:, : -n_targets - RESIDUAL_COLUMNS]))
                hashes.append(checksum(records))
                n += len(records)
        return cls(n, width, np.array(boxes), None, place, tuple(hashes))

    def __getstate__(self) -> dict[str, Any]:
        """The fields, with a place that is valid in every working folder; trees are rebuilt
        later."""
        place = absolute(self.place) if self.place else ""
        return {each.name: getattr(self, each.name) for each in fields(self)} | {"place": place}

    @property
    def rank(self) -> int:
        """r, the number of coordinates of a point."""
        return int(self.boxes.shape[2])

    @property
    def n_targets(self) -> int:
        """T, the number of errors in a record."""
        return self.width - self.rank - RESIDUAL_COLUMNS

    @property
    def nbytes(self) -> int:
        """Bytes of the uncompressed records."""
        return 8 * self.n_rows * self.width

    def copied(self, place: str) -> Self:
        """Write the records to a new Zarr array in this folder or at this URL, and return its
        cells."""
        count = len(self.boxes)
        return self.written(place, map(self.cell, range(count)), count, self.width, self.n_targets)

    def cell(self, number: int) -> Float:
        """Read the records of a cell. Raises ``MissingDataError`` if they are missing or
        damaged."""
        rows = rows_of_cell(self.width)
        if self.records is not None:
            return self.records[number * rows : (number + 1) * rows]
        place = f"{self.place}/records: cell {number} of the local residuals"
        with reading(place, ADVICE, MissingDataError):
            whole = read_blosc(
                open_folder(self.place), f"records/c/{number}/0", (rows, self.width), "<f8"
            )
        records = whole[: self.n_rows - number * rows].copy()  # without the padding of the chunk
        if checksum(records) != self.hashes[number]:
            raise ChangedDataError(
                f"{place} has values that differ from those of the fit: {ADVICE}"
            )
        return records

    @cached_property
    def _searched(self) -> Callable[[int], tuple[Float, Any]]:
        """A function that returns the records of a cell and their tree; for records in memory, all
        trees are kept."""

        def searched(number: int) -> tuple[Float, Any]:
            from scipy.spatial import cKDTree  # its import takes megabytes

            records = self.cell(number)
            # boxes are split at their middles, which takes half the time of medians
            return records, cKDTree(
                records[:, : self.rank], TREE_LEAF, compact_nodes=False, balanced_tree=False
            )

        full = 2 * 8 * self.width * rows_of_cell(self.width)
        return lru_cache(max(KEPT_BYTES // full, 1) if self.records is None else None)(searched)

    def neighbours(
        self, points: Float, k: int, own: Float | None = None
    ) -> Iterator[tuple[slice, Float]]:
        """Yield a slice of the points (n, r) at a time, and the records (m, k, width) of their
        nearest rows, in order.

        Of rows at equal distance, the one with the smaller number counts as nearer. ``own`` (n,)
        are numbers of rows to ignore; if there are fewer than k other rows, all are returned.
        """
        k = min(k, self.n_rows - (own is not None))
        if not k:  # the only row does not count
            yield slice(0, len(points)), np.empty((len(points), 0, self.width))
            return
        at_once = max(FOUND_BYTES // (8 * self.width * k) // ROWS, 1) * ROWS
        for start in range(0, max(len(points), 1), at_once):
            some = slice(start, start + at_once)
            found = self._nearest(points[some], k, None if own is None else own[some])
            rows = panel_rows(k)
            for first in range(0, max(len(found), 1), rows):
                part = found[first : first + rows]
                yield slice(start + first, start + first + len(part)), part

    def _nearest(self, points: Float, k: int, own: Float | None) -> Float:
        """Return the records (n, k, width) of the nearest rows of points (n, r)."""
        n = len(points)
        cells = range(len(self.boxes))
        if len(cells) == 1:
            records, tree = self._searched(0)
            return records[nearest(tree, records[:, NUMBER], points, k, own)[1]]
        best = np.full((n, k), np.inf), np.zeros((n, k, self.width))
        far = np.stack([distances_of(each, points) for each in self.boxes], axis=1)
        home = far.argmin(axis=1)
        for number in cells:
            some = np.flatnonzero(home == number)
            for start in range(0, len(some), ROWS):
                self._visit(number, some[start : start + ROWS], points, own, best)
        for number in reversed(cells):  # the last cells are still in memory
            some = np.flatnonzero((home != number) & (far[:, number] <= best[0][:, -1]))
            some = some[np.argsort(best[0][some, -1])]
            for start in range(0, len(some), GROUP):
                self._visit(number, some[start : start + GROUP], points, own, best)
        return best[1]

    def _visit(
        self, number: int, some: Int, points: Float, own: Float | None, best: tuple[Float, Float]
    ) -> None:
        """Merge a cell's rows into the ``best`` rows, distances (n, k) and records, of the points
        ``some`` (m,)."""
        records, tree = self._searched(number)
        k = best[0].shape[1]
        within = float(best[0][some, -1].max())
        distances, near = nearest(
            tree, records[:, NUMBER], points[some], k, None if own is None else own[some], within
        )
        together = np.concatenate([best[0][some], distances], axis=1)
        rows = np.concatenate([best[1][some], records[near]], axis=1)
        order = np.lexsort((rows[:, :, NUMBER], together))[:, :k]
        best[0][some] = np.take_along_axis(together, order, axis=1)
        best[1][some] = np.take_along_axis(rows, order[:, :, None], axis=1)


def panel_rows(k: int) -> int:
    """Return the number of points with k neighbours each that are returned at once."""
    return max(min(ROWS, PAIRS // max(k, 1) ** 2), 1)


def rows_of_cell(width: int) -> int:
    """Return the maximum number of records with ``width`` columns in a cell on disk."""
    return min(max(CELL_BYTES // (8 * width), 1), CELL_ROWS)


def near_order(points: Float) -> Int:
    """Return an order of points (n, r) in which nearby points follow one another."""
    from scipy.spatial import cKDTree

    return np.asarray(cKDTree(points, ROWS, compact_nodes=False, balanced_tree=False).indices)


def box(points: Float) -> Float:
    """Return the smallest and the largest coordinates (2, r) of points (n, r)."""
    return np.stack([points.min(axis=0), points.max(axis=0)])


def distances_of(corners: Float, points: Float) -> Float:
    """Return lower bounds (n,) on the distances of points (n, r) from all rows in a box with these
    corners (2, r)."""
    outside = np.maximum(np.maximum(corners[0] - points, points - corners[1]), 0.0)
    return np.asarray(SLACK * np.sqrt(np.einsum("ij,ij->i", outside, outside)))


def nearest(
    tree: Any,
    numbers: Float,
    points: Float,
    k: int,
    own: Float | None = None,
    within: float = np.inf,
) -> tuple[Float, Int]:
    """Return the distances (n, k) and the positions of the nearest rows of a tree to ``points`` (n,
    r), in order.

    At equal distances, the row with the smaller number counts as nearer; ``numbers`` (N,) are the
    row numbers. ``own`` (n,) are numbers to ignore. Distances are ∞ where fewer than k rows are
    ``within`` this distance.
    """
    n = len(points)
    k = min(k, tree.n)
    within = max(within / SLACK, LEAST_DISTANCE)
    distances = np.empty((n, k))
    found = np.empty((n, k), dtype=np.int64)
    open_rows = np.arange(n)
    asked = k + 2
    while len(open_rows):
        asked = min(asked, tree.n)
        apart, near = tree.query(
            points[open_rows], np.arange(1, asked + 1), distance_upper_bound=within
        )
        whole = np.isinf(apart[:, -1]) | (asked == tree.n)
        near[np.isinf(apart)] = 0
        if own is not None:
            apart[numbers[near] == own[open_rows, None]] = np.inf
        order = np.lexsort((numbers[near], apart))[:, :k]
        # rows beyond the last one of the query may be as near as the last one that counts
        last = apart.max(axis=1, where=np.isfinite(apart), initial=0.0)
        done = whole | (np.take_along_axis(apart, order, axis=1)[:, -1] < last)
        distances[open_rows[done]] = np.take_along_axis(apart, order, axis=1)[done]
        found[open_rows[done]] = np.take_along_axis(near, order, axis=1)[done]
        open_rows = open_rows[~done]
        asked = 2 * asked
    return distances, found
