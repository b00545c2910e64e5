"""Cells of nearby rows: exact neighbours, in memory and in Zarr, and damaged files."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from by_default import some
from fits import small_cells
from numpy.random import default_rng
from numpy.testing import assert_array_equal
from scipy.spatial.distance import cdist

from partirvm.errors import MissingDataError, PartirvmError
from partirvm.fit.residual_rows import sorted_cells
from partirvm.local import Cells
from partirvm.local.cells import leaf_order


def records(points, targets=1):
    """Return records of points, with random numbers and errors."""
    rng = default_rng(0)
    return np.column_stack(
        [points, rng.normal(size=(len(points), targets + 2)), rng.permutation(len(points))]
    )


def found(cells, points, k, own=None):
    return np.concatenate([near for _, near in cells.neighbours(points, k, own)])


def brute(rows, points, k, own=None):
    """Return the nearest rows, from all distances; ties go to the smaller row numbers."""
    squares = cdist(points, rows[:, : points.shape[1]], "sqeuclidean")
    if own is not None:
        squares[own[:, None] == rows[:, -1]] = np.inf
    order = np.lexsort((np.broadcast_to(rows[:, -1], squares.shape), squares))
    return rows[order[:, :k]]


def made(rows, place=None, targets=1):
    """Return cells made from pieces of the records, in memory or in a new folder."""
    keep = place and (lambda make: make(str(place)))
    return sorted_cells(
        np.array_split(rows, 7), len(rows), rows[:100, : -targets - 3], keep, targets
    )


@pytest.fixture(params=[50, 1000], ids=["many cells", "one cell"])
def some_rows(request, monkeypatch):
    """Set the maximum number of rows in a cell on disk."""
    small_cells(monkeypatch, request.param)
    return request.param


@pytest.mark.parametrize(
    ("width", "levels", "own"),
    some(
        product([1, 3, 8], [1, 2, 4, 1000], [False, True]),
        {(1, 4, True), (3, 1, True), (3, 2, False), (3, 1000, True), (8, 1000, False)},
    ),
)
def test_neighbours_equal_those_found_by_brute_force(levels, width, own, some_rows, tmp_path):
    """Ties, duplicates, categories and errors of further targets do not matter."""
    points = default_rng(levels).integers(levels, size=(601, width)).astype(float)
    targets = 2 if width == 3 else 1
    rows = records(points, targets)
    in_memory, on_disk = (made(rows, place, targets) for place in (None, tmp_path / "cells"))
    assert len(in_memory.boxes) == len(on_disk.boxes) == -(-601 // some_rows)
    new = default_rng(1).normal(levels / 2, levels / 2, size=(80, width))
    if own:
        new = rows[::7, :width]
    own = rows[::7, -1] if own else None
    expected = brute(rows, new, 9, own)
    for cells in (in_memory, on_disk):
        assert_array_equal(found(cells, new, 9, own), expected)


def test_leaves_divide_points_evenly():
    """A leaf depends only on the point; equal points share a leaf."""
    points = default_rng(0).normal(size=(800, 2))
    places = leaf_order(points, 8)
    found, counts = np.unique(places(points), return_counts=True)
    assert_array_equal(found, np.arange(8) / 8)
    assert_array_equal(counts, 8 * [100])
    assert_array_equal(places(points[::3]), places(points)[::3])
    assert leaf_order(np.ones((50, 2)), 8)(points).tolist() == 800 * [0.0]


def test_the_number_of_cells_in_memory_is_limited(tmp_path, monkeypatch):
    """The memory holds three cells of 50 rows with their trees."""
    small_cells(monkeypatch, 50, 3 * 2 * 50 * 6 * 8)
    rows = records(default_rng(0).normal(size=(600, 2)))
    cells = made(rows, tmp_path / "cells")
    assert_array_equal(found(cells, rows[:, :2], 9), brute(rows, rows[:, :2], 9))
    assert cells._searched.cache_info().currsize == 3


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("n", [1, 12])
@pytest.mark.usefixtures("some_rows")
def test_with_few_rows_all_are_neighbours(n, own):
    rows = records(default_rng(0).normal(size=(n, 2)))
    own = rows[:, -1] if own else None
    near = found(made(rows), rows[:, :2], 20, own)
    assert_array_equal(near, brute(rows, rows[:, :2], n if own is None else n - 1, own))


@pytest.mark.parametrize("damage", ["changed", "swapped", "missing"])
def test_damaged_cells_are_refused(damage, tmp_path, monkeypatch):
    """A byte is changed, a chunk belongs to another cell, or a chunk is missing."""
    small_cells(monkeypatch, 50)
    rows = records(default_rng(0).normal(size=(200, 2)))
    cells = Cells.written(str(tmp_path), np.split(rows, 4), 4, rows.shape[1])
    chunk, other = (tmp_path / "records" / "c" / number / "0" for number in "12")
    if damage == "changed":
        data = bytearray(chunk.read_bytes())
        data[40] ^= 1
        chunk.write_bytes(data)
    elif damage == "swapped":
        chunk.write_bytes(other.read_bytes())
    else:
        chunk.unlink()
    with pytest.raises(PartirvmError, match="cell 1 of the local residuals"):
        found(replace(cells), rows[:, :2], 5)
    if damage == "missing":
        with pytest.raises(MissingDataError, match="restore"):
            cells.cell(1)
