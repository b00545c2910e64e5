"""Rows without a target are ingested like training data, but only for prediction."""

from itertools import product

import numpy as np
import pandas as pd
import pytest
from by_default import some
from numpy.random import default_rng
from numpy.testing import assert_allclose, assert_array_equal

from partirvm.data import ingest

N = 300


def table(n=N, *, target=True):
    """Return rows of a number, a category and a target."""
    rng = default_rng(n)
    zone = np.array(["n", "s", "w"])[np.arange(n) % 3]
    rows = pd.DataFrame({"a": rng.normal(size=n), "zone": zone, "fare": rng.normal(size=n)})
    return rows if target else rows.drop(columns="fare")


@pytest.fixture(scope="module")
def train(tmp_path_factory):
    folder = tmp_path_factory.mktemp("train")
    return ingest(table(), folder / "train.zarr", target="fare", categorical=["zone"])


def csv(folder, rows):
    rows.to_csv(folder / "new.csv", index=False)
    return folder / "new.csv"


WRITERS = {"csv": csv, "frame": lambda folder, rows: (rows, None)}


@pytest.mark.parametrize(
    ("kind", "seed"), some(product(WRITERS, [3, None]), {("csv", 3), ("frame", None)})
)
def test_a_table_without_a_target_is_stored(kind, seed, train, tmp_path):
    rows = table(200, target=False)
    data = ingest(
        WRITERS[kind](tmp_path, rows), tmp_path / "new.zarr", like=train, shuffle=seed, tile_rows=64
    )
    assert (data.n_rows, data.n_targets, data.n_tiles, data.seed) == (200, 0, 4, seed)
    assert data.columns == train.columns
    numbers = np.concatenate([data.original_rows(number) for number in range(4)])
    expected = (
        np.arange(200) if seed is None else np.argsort(default_rng(seed).random(200), kind="stable")
    )
    assert_array_equal(numbers, expected)
    X = rows.replace({"zone": {"n": 0, "s": 1, "w": 2}}).to_numpy(float)
    tiles = [data.tile(number) for number in range(4)]
    assert_array_equal(np.concatenate([tile.X for tile in tiles]), X[expected])
    assert [tile.t.shape for tile in tiles] == [(64, 0)] * 3 + [(8, 0)]
    assert_allclose(data.moments.inputs.mean, X.mean(axis=0), atol=1e-14)
    assert (data.moments.inputs.n, data.moments.targets.mean.shape) == (200, (0,))
    assert "no target" in repr(data)
    assert "no target" not in repr(train)


def test_one_row_without_a_target_is_enough(train, tmp_path):
    rows = table(1, target=False)
    data = ingest(csv(tmp_path, rows), tmp_path / "one.zarr", like=train)
    assert (data.n_rows, data.tile(0).X.tolist()) == (1, [[rows["a"][0], 0]])
    assert ingest(pd.concat([rows, rows]), tmp_path / "two.zarr", like=train).n_rows == 2


def test_a_target_column_is_stored_with_the_rows(train, tmp_path):
    """This includes storing like data without a target, and y for a target of another name."""
    new = ingest(table(target=False), tmp_path / "new.zarr", like=train)
    assert ingest(table(50), tmp_path / "labelled.zarr", like=new).n_targets == 1
    pair = table(50, target=False), pd.Series(np.arange(50.0), name="y")
    assert ingest(pair, tmp_path / "pair.zarr", like=train).columns.target == "y"
