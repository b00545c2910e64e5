"""Sources: tiles cut the rows exactly, gathering keeps the order, parts and pickles agree."""

import pickle
from dataclasses import dataclass
from itertools import product
from typing import Any

import dask.array as da
import numpy as np
import pytest
import zarr
from by_default import some
from numpy.random import default_rng
from numpy.testing import assert_array_equal

from partirvm.data import ArraySource, Source, ingest

N = 107
D = 3
TILE = 16


@dataclass
class Case:
    """A source, and the numbers of the rows that it must contain, in order."""

    source: Any
    order: np.ndarray
    weighted: bool = True
    targets: int = 1


def arrays(n=N):
    number = np.arange(n, dtype=np.float64)
    return number[:, None] + np.arange(D) / 10, 2 * number + 1, 1 + number % 3


X, Y, WEIGHTS = arrays()
ORDER = np.arange(N)
SHUFFLED = np.argsort(default_rng(5).random(N), kind="stable")


def foreign_zarr(folder, chunk=10):
    group = zarr.open_group(str(folder / "own.zarr"), mode="w")
    stored = []
    for name, values in zip("Xyw", arrays(), strict=True):
        array = group.create_array(
            name,
            shape=values.shape,
            dtype=values.dtype,
            chunks=(chunk, *values.shape[1:]),
            fill_value=0.0,
        )
        array[:] = values
        stored.append(array)
    return Case(ArraySource(*stored, tile_rows=TILE), np.arange(N))


def dask_arrays(chunk=20):
    chunked = (
        da.from_array(X, chunks=(chunk, 2)),
        da.from_array(Y, chunks=13),
        da.from_array(WEIGHTS, chunks=chunk),
    )
    return Case(ArraySource(*chunked, tile_rows=TILE), ORDER)


def ingested(folder, *parts, order=SHUFFLED, **options):
    shuffle = None if order is ORDER else 5
    source = ingest(parts, folder / "rows.zarr", tile_rows=TILE, shuffle=shuffle, **options)
    return Case(source, order, weighted=len(parts) == 3, targets=int(parts[1] is not None))


def class_weighted(folder):
    """Return a source with codes up to 2N as targets; class weights 1 and 1.5 multiply row
    weights."""
    of_class = np.where(np.arange(2 * N + 2) % 4 == 1, 1.0, 1.5)
    case = ingested(folder, X, Y, WEIGHTS / of_class[Y.astype(int)])
    return Case(case.source.with_class_weights(of_class), SHUFFLED)


CASES = {
    "arrays": lambda folder: Case(ArraySource(X, Y, WEIGHTS, tile_rows=TILE), ORDER),
    "permuted": lambda folder: Case(
        ArraySource(X, Y, WEIGHTS, tile_rows=TILE, permutation=SHUFFLED), SHUFFLED
    ),
    "two targets": lambda folder: Case(
        ArraySource(X, np.column_stack([Y, -Y]), tile_rows=TILE), ORDER, weighted=False, targets=2
    ),
    "data": lambda folder: ingested(folder, X, Y, WEIGHTS),
    "data in order": lambda folder: ingested(folder, X, Y, order=ORDER),
    "data without targets": lambda folder: ingested(folder, X, None, WEIGHTS, like=ArraySource(X)),
    "zarr": foreign_zarr,
    "zarr, large chunks": lambda folder: foreign_zarr(folder, chunk=50),
    "dask": lambda folder: dask_arrays(),
    "dask, large chunks": lambda folder: dask_arrays(chunk=60),
    "dask without targets": lambda folder: Case(
        ArraySource(da.from_array(X, chunks=(20, 3)), tile_rows=TILE),
        ORDER,
        weighted=False,
        targets=0,
    ),
    "class weights": class_weighted,
}


OFTEN = {
    "arrays",
    "permuted",
    "data",
    "data without targets",
    "zarr, large chunks",
    "dask",
    "class weights",
}
"""Cases that run by default."""


@pytest.fixture(params=some(CASES, OFTEN))
def case(request, tmp_path):
    return CASES[request.param](tmp_path)


def assert_same_tile(tile, expected):
    assert (tile.number, tile.start) == (expected.number, expected.start)
    assert_array_equal(tile.X, expected.X)
    assert_array_equal(tile.t, expected.t)
    assert (tile.weights is None) == (expected.weights is None)
    if tile.weights is not None:
        assert_array_equal(tile.weights, expected.weights)


def test_tiles_cut_the_rows_exactly(case):
    """The tiles are contiguous, read-only float64 arrays."""
    source = case.source
    (X, y, weights) = arrays()
    assert isinstance(source, Source)
    assert (source.n_rows, source.n_features, source.n_tiles) == (N, D, 7)
    assert (source.n_targets, source.tile_rows) == (case.targets, TILE)
    assert source.shuffled == bool((case.order != np.arange(N)).any())
    assert source.columns.features == ("x0", "x1", "x2")
    for number, rows in enumerate(
        slice(start, min(start + TILE, N)) for start in range(0, N, TILE)
    ):
        tile = source.tile(number)
        order = case.order[rows]
        assert (tile.number, tile.start) == (number, rows.start)
        assert_array_equal(tile.X, X[order])
        assert_array_equal(tile.t, np.column_stack([y, -y])[order, : case.targets])
        assert (tile.weights is not None) == case.weighted
        if case.weighted:
            assert_array_equal(tile.weights, weights[order])
        for block in [tile.X, tile.t, *[tile.weights] * case.weighted]:
            assert block.dtype == np.float64
            assert block.flags.c_contiguous
            assert not block.flags.writeable or block.size == 0
    for number in (-1, 7):
        with pytest.raises(IndexError, match="tile"):
            source.tile(number)


ROWS = [[], [3, 3, 100, 0, 17, 16], list(range(N))[::-1]]


def test_gathered_rows_are_in_the_requested_order(case):
    """Inputs and weights are gathered; rows that do not exist are refused."""
    part = pickle.loads(pickle.dumps(case.source.part(range(7))))
    for source, rows in product((case.source, part), ROWS):
        order = case.order[np.array(rows, dtype=int)]
        gathered = source.gather(rows).X
        weights = source.gather(rows).weights
        assert gathered.shape == (len(rows), D)
        assert_array_equal(gathered, X[order])
        assert (weights is not None) == case.weighted
        if case.weighted:
            assert (weights.shape, weights.dtype) == ((len(rows),), np.float64)
            assert_array_equal(weights, WEIGHTS[order])
    for row in (-1, N):
        with pytest.raises(IndexError):
            case.source.gather([0, row])


def test_a_part_reads_the_same_tiles_in_another_process(case):
    for tiles in ([0], [6], [5, 1, 2]):
        part = pickle.loads(pickle.dumps(case.source.part(tiles)))
        assert (part.n_rows, part.n_tiles, part.tile_rows) == (N, 7, TILE)
        assert part.n_targets == case.targets
        assert part.columns == case.source.columns
        for number in tiles:
            assert_same_tile(part.tile(number), case.source.tile(number))
        gathered = [number * TILE + 1 for number in tiles]
        assert_array_equal(part.gather(gathered).X, X[case.order[gathered]])
        again = part.part(tiles[:1])
        assert_same_tile(again.tile(tiles[0]), case.source.tile(tiles[0]))


def test_pickled_parts_are_small(tmp_path):
    """A part of arrays in memory or of Dask contains its rows; DATA is pickled as an address."""
    source = ArraySource(np.zeros((100_000, 4)), np.zeros(100_000))
    assert len(pickle.dumps(source.part([3]))) < 1.1 * source.tile_rows * 5 * 8
    chunks = da.from_array(np.zeros((100_000, 4)), chunks=(1000, 4))
    chunked = ArraySource(chunks, chunks[:, 0], tile_rows=2000)
    assert len(pickle.dumps(chunked.part([3]))) < 2 * 2000 * 5 * 8 + 20_000
    assert len(pickle.dumps(CASES["data"](tmp_path).source)) < 2000


def test_large_chunks_are_computed_once_per_pass():
    computed = []

    def block(values):
        computed.append(len(values))
        return values

    X = da.from_array(arrays()[0], chunks=(60, 3)).map_blocks(
        block, dtype=float, meta=np.empty((0, 0))
    )
    source = ArraySource(X, tile_rows=TILE)
    for number in range(source.n_tiles):
        source.tile(number)
    assert computed == [60, 47]


def test_float64_arrays_are_not_copied():
    X, y, _ = arrays()
    source = ArraySource(X, y, tile_rows=TILE)
    assert np.shares_memory(source.tile(2).X, X)
    X[0, 0] = 5.0  # the arrays themselves are writeable
    assert source.tile(0).X[0, 0] == 5.0
