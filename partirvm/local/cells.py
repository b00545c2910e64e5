"""The training rows for local residuals, sorted into cells of nearby rows, and the exact
nearest-row search.

A record contains a row's point in a metric (r,), its error for each of T targets, the logarithm of
its noise factor, the inverse of its weight, and its number before shuffling. Records are sorted by
their leaf in a k-d tree built on a subset of the points (``leaf_order``); consecutive records form
a cell, whose rows lie in a box. The records are stored in memory, or in a Zarr array whose chunks
are the cells. A search finds a point's nearest rows in the cell with the nearest box, and then
searches all cells whose boxes are no farther than the last of these rows. The result therefore does
not depend on the cells.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, Self

import numpy as np

from partirvm.errors import ChangedDataError, MissingDataError
from partirvm.storage import open_folder, reading, storing
from partirvm.storage.address import absolute
from partirvm.storage.records import checksum, create_blosc, read_blosc
from partirvm.types import RESIDUAL_COLUMNS, Bool, Float, Int

LOG_FACTOR = -3
"""Column of a record with the logarithm of the row's noise factor."""

NOISE = -2
"""Column of a record with the inverse of the row's weight."""

NUMBER = -1
"""Column of a record with the row's number."""

CELL_BYTES = 1 << 23
"""Maximum bytes of a cell on disk. A search needs as many bytes again for the cell's tree."""

CELL_ROWS = 1 << 16
"""Maximum number of rows of a cell on disk."""

KEPT_BYTES = 1 << 28
"""Bytes of Zarr cells, with their trees, that a ``Cells`` object keeps in memory: at least 16 full
cells."""

SEARCH_BYTES = 1 << 24
"""Bytes of the neighbours' records in one search. For points in ``near_order``, these come from few
cells."""

PANEL_POINTS = 128
"""Maximum number of points whose neighbours are returned at once."""

PANEL_PAIRS = 1 << 22
"""Maximum number of neighbour pairs for the points that are returned at once."""

VISIT_POINTS = 32
"""Number of points at similar distances from their neighbours that are searched together in a
further cell."""

TREE_LEAF = 32
"""Number of rows in a leaf of a cell's tree."""

SLACK = 1.0 - 1e-12
"""Boxes count as nearer by this ratio, since distances are rounded."""

LEAST_DISTANCE = 1e-150
"""Smallest limit on distances in a search; the square of a smaller one would be 0."""

ADVICE = (
    "restore this folder, or fit again. A model that was not saved with copy=True refers to the "
    "rows of its local residuals in its job folder, where the second of later updates, a cancel "
    "or --overwrite removes them; model.sparse() predicts without them"
)


def leaf_order(points: Float, count: int) -> Callable[[Float], Float]:
    """Return a function whose values in [0, 1) order points by their leaf in a k-d tree of
    ``points`` (n, r).

    There are at least ``count`` leaves if the points differ enough.
    """
    from scipy.spatial import cKDTree  # importing it takes megabytes

    tree = cKDTree(points, max(len(points) // count, 1))

    def order(points: Float, node: Any = tree.tree, least: float = 0.0, half: float = 0.5) -> Float:
        """Return the values (n,) of points according to the leaves below a node.

        Args:
            points: (n, r), points within the node
            node: a node of the k-d tree
            least: smallest value in the node
            half: half the length of the node's interval of values
        """
        values = np.full(len(points), least)
        if node.lesser is not None:
            right = points[:, node.split_dim] >= node.split
            values[~right] = order(points[~right], node.lesser, least, half / 2)
            values[right] = order(points[right], node.greater, least + half, half / 2)
        return values

    return order


@dataclass(frozen=True, eq=False)
class Cells:
    """Records in cells; all cells except the last one have ``rows_of_cell`` records.

    Attributes:
        n_rows: N, the number of records
        width: the number of columns in a record
        boxes: (C, 2, r), the smallest and largest coordinates in each cell
        records: (N, width), or None if a Zarr array holds the records, with the cells as chunks
        place: the path or URL of the Zarr array
        hashes: the checksums of the chunks, excluding the padding after the last record
    """

    n_rows: int
    width: int
    boxes: Float
    records: Float | None = None
    place: str = ""
    hashes: tuple[str, ...] = ()

    @classmethod
    def of(cls, records: Float, n_targets: int = 1) -> Self:
        """Return the cells of records (N, width) in memory, in the given order."""
        n, width = records.shape
        rows = rows_of_cell(width)
        cells = np.split(records[:, : -n_targets - RESIDUAL_COLUMNS], range(rows, n, rows))
        return cls(n, width, np.array(list(map(box, cells))), records)

    @classmethod
    def written(
        cls,
        place: str,
        cells: Iterable[Float],
        count: int,
        width: int,
        n_targets: int = 1,
    ) -> Self:
        """Write records to a new Zarr array, and return their cells. Raises ``StorageError``.

        Args:
            place: the path or URL of the array
            cells: the records of each cell; all cells except the last one are full
            count: the maximum number of cells
            width: the number of columns in a record
            n_targets: T
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
        """Return the fields, with a place that is valid in every working folder; trees are rebuilt
        later."""
        place = absolute(self.place) if self.place else ""
        state = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**state, "place": place}

    @property
    def rank(self) -> int:
        """The number r of coordinates of a point."""
        return int(self.boxes.shape[2])

    @property
    def n_targets(self) -> int:
        """The number T of errors in a record."""
        return self.width - self.rank - RESIDUAL_COLUMNS

    @property
    def nbytes(self) -> int:
        """The size of the uncompressed records in bytes."""
        return 8 * self.n_rows * self.width

    def copied(self, place: str) -> Self:
        """Write the records to a new Zarr array in this folder or at this URL, and return the new
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
            chunk = read_blosc(
                open_folder(self.place),
                f"records/c/{number}/0",
                (rows, self.width),
                "<f8",
            )
        records = chunk[: self.n_rows - number * rows].copy()  # without padding
        if checksum(records) != self.hashes[number]:
            raise ChangedDataError(
                f"{place} has values that differ from those of the fit: {ADVICE}"
            )
        return records

    @cached_property
    def _searched(self) -> Callable[[int], tuple[Float, Any]]:
        """A function that returns a cell's records and their tree; for records in memory, all trees
        are kept."""

        def searched(number: int) -> tuple[Float, Any]:
            records = self.cell(number)
            return records, _tree(records[:, : self.rank], TREE_LEAF)

        if self.records is not None:
            return lru_cache(None)(searched)
        cell_bytes = 2 * 8 * self.width * rows_of_cell(self.width)
        return lru_cache(max(KEPT_BYTES // cell_bytes, 1))(searched)

    def neighbours(
        self, points: Float, k: int, own: Float | None = None
    ) -> Iterator[tuple[slice, Float]]:
        """Yield successive slices of the points (n, r), each with the records (m, k, width) of the
        points' nearest rows in order.

        Of two rows at equal distance, the one with the smaller number counts as nearer. ``own``
        (n,) are numbers of rows to ignore, one per point; if there are fewer than k other rows, all
        are returned.
        """
        k = min(k, self.n_rows - (own is not None))
        if not k:  # the only row is ignored
            yield slice(0, len(points)), np.empty((len(points), 0, self.width))
            return
        row_bytes = 8 * self.width * k
        block = max(SEARCH_BYTES // row_bytes // PANEL_POINTS, 1) * PANEL_POINTS
        panel = panel_rows(k)
        for start in range(0, max(len(points), 1), block):
            rows = slice(start, start + block)
            records = self._nearest(points[rows], k, None if own is None else own[rows])
            for first in range(0, max(len(records), 1), panel):
                part = records[first : first + panel]
                yield slice(start + first, start + first + len(part)), part

    def _nearest(self, points: Float, k: int, own: Float | None) -> Float:
        """Return the records (n, k, width) of the nearest rows of points (n, r)."""
        cells = range(len(self.boxes))
        if len(cells) == 1:
            records, tree = self._searched(0)
            return records[nearest(tree, records[:, NUMBER], points, k, own)[1]]
        best = NearestRows.empty(points, own, k, self.width)
        to_boxes = np.stack([distances_of(corners, points) for corners in self.boxes], axis=1)
        home = to_boxes.argmin(axis=1)
        for number in cells:
            places = np.flatnonzero(home == number)
            for start in range(0, len(places), PANEL_POINTS):
                best.search(*self._searched(number), places[start : start + PANEL_POINTS])
        for number in reversed(cells):  # the most recent cells are still in memory
            is_near = to_boxes[:, number] <= best.distances[:, -1]
            places = np.flatnonzero((home != number) & is_near)
            places = places[np.argsort(best.distances[places, -1])]
            for start in range(0, len(places), VISIT_POINTS):
                best.search(*self._searched(number), places[start : start + VISIT_POINTS])
        return best.records


@dataclass(frozen=True, eq=False)
class NearestRows:
    """The nearest rows of n points in the cells searched so far; ``search`` updates the arrays.

    Attributes:
        points: (n, r)
        own: (n,), numbers of rows to ignore, or None
        distances: (n, k), of the nearest rows in order, ∞ where there are fewer than k
        records: (n, k, width), of the nearest rows in order
    """

    points: Float
    own: Float | None
    distances: Float
    records: Float

    @classmethod
    def empty(cls, points: Float, own: Float | None, k: int, width: int) -> Self:
        """Return the state before any search.

        Args:
            points: (n, r)
            own: (n,), numbers of rows to ignore, or None
            k: the number of neighbours
            width: the number of columns in a record
        """
        distances = np.full((len(points), k), np.inf)
        records = np.zeros((len(points), k, width))
        return cls(points, own, distances, records)

    def search(self, records: Float, tree: Any, places: Int) -> None:
        """Search a cell's records and their tree, and update the nearest rows of the points at
        ``places`` (m,)."""
        k = self.distances.shape[1]
        nearest_distances, rows = nearest(
            tree,
            records[:, NUMBER],
            self.points[places],
            k,
            own=None if self.own is None else self.own[places],
            within=float(self.distances[places, -1].max()),
        )
        distances = np.concatenate([self.distances[places], nearest_distances], axis=1)
        candidates = np.concatenate([self.records[places], records[rows]], axis=1)
        order = np.lexsort((candidates[:, :, NUMBER], distances))[:, :k]
        self.distances[places] = np.take_along_axis(distances, order, axis=1)
        self.records[places] = np.take_along_axis(candidates, order[:, :, None], axis=1)


def panel_rows(k: int) -> int:
    """Return how many points, with k neighbours each, are returned at once."""
    return max(min(PANEL_POINTS, PANEL_PAIRS // max(k, 1) ** 2), 1)


def rows_of_cell(width: int) -> int:
    """Return the maximum number of records with ``width`` columns in a cell on disk."""
    return min(max(CELL_BYTES // (8 * width), 1), CELL_ROWS)


def near_order(points: Float) -> Int:
    """Return an order of the points (n, r) in which consecutive points are near each other."""
    return np.asarray(_tree(points, PANEL_POINTS).indices)


def _tree(points: Float, leaf_rows: int) -> Any:
    """Return a k-d tree whose boxes are split in the middle, which takes half as long as splitting
    at medians."""
    from scipy.spatial import cKDTree  # importing it takes megabytes

    return cKDTree(points, leaf_rows, compact_nodes=False, balanced_tree=False)


def box(points: Float) -> Float:
    """Return the smallest and largest coordinates (2, r) of points (n, r)."""
    return np.stack([points.min(axis=0), points.max(axis=0)])


def distances_of(corners: Float, points: Float) -> Float:
    """Return lower bounds (n,) on the distances between points (n, r) and all rows in the box with
    these corners (2, r)."""
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
    """Return the distances (n, k) and the positions (n, k) of a tree's nearest rows, in order.

    At equal distances, the row with the smaller number counts as nearer. Distances are ∞ where
    there are fewer than k eligible rows.

    Args:
        tree: the k-d tree of N rows
        numbers: (N,), the row numbers
        points: (n, r)
        k: the number of rows for each point
        own: (n,), numbers of rows to ignore
        within: the largest distance to consider
    """
    n = len(points)
    k = min(k, tree.n)
    within = max(within / SLACK, LEAST_DISTANCE)
    distances = np.empty((n, k))
    rows = np.empty((n, k), dtype=np.int64)
    places = np.arange(n)
    count = k + 2
    while len(places):
        count = min(count, tree.n)
        query = _query(
            tree,
            numbers,
            points[places],
            count,
            within,
            excluded=None if own is None else own[places, None],
        )
        is_final = query.is_final(k)
        distances[places[is_final]] = query.distances[is_final, :k]
        rows[places[is_final]] = query.rows[is_final, :k]
        places = places[~is_final]
        count = 2 * count
    return distances, rows


class Query(NamedTuple):
    """A tree's rows that are near n points, in order of distance and row number.

    Attributes:
        distances: (n, m), ∞ for ignored rows
        rows: (n, m), positions of the rows
        has_all: (n,), True if no other row is eligible
    """

    distances: Float
    rows: Int
    has_all: Bool

    def is_final(self, k: int) -> Bool:
        """Return True (n,) where the first k rows are certainly the nearest: rows that the query
        did not return may be as near as its last eligible row."""
        last = self.distances.max(axis=1, where=np.isfinite(self.distances), initial=0.0)
        return np.asarray(self.has_all | (self.distances[:, k - 1] < last))


def _query(
    tree: Any,
    numbers: Float,
    points: Float,
    m: int,
    within: float,
    excluded: Float | None,
) -> Query:
    """Return the m nearest rows for each point.

    Args:
        tree: the k-d tree of N rows
        numbers: (N,), the row numbers
        points: (n, r)
        m: the number of rows
        within: the largest distance to consider
        excluded: (n, 1), numbers of rows to ignore
    """
    distances, rows = tree.query(points, np.arange(1, m + 1), distance_upper_bound=within)
    is_missing = np.isinf(distances)
    has_all = is_missing[:, -1] | (m == tree.n)
    rows[is_missing] = 0
    if excluded is not None:
        distances[numbers[rows] == excluded] = np.inf
    order = np.lexsort((numbers[rows], distances))
    ordered = np.take_along_axis(distances, order, axis=1)
    return Query(ordered, np.take_along_axis(rows, order, axis=1), has_all)
