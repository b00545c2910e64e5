"""Ingest stores all rows of every kind of source, in an order that depends only on the seed."""

import tempfile
from itertools import product

import dask.array as da
import dask.dataframe as dd
import fsspec
import numpy as np
import pandas as pd
import pytest
import zarr
from by_default import examples, some
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.random import default_rng
from numpy.testing import assert_allclose, assert_array_equal

from partirvm.core import Moments, TreeSum
from partirvm.data import ZarrSource, ingest
from partirvm.data.ingest_budget import Budget
from partirvm.data.source import hash_tile, tile_rows_for
from partirvm.errors import UnseenLevelWarning


def rows(n=500, d=3, seed=0):
    rng = default_rng(seed)
    return rng.normal(size=(n, d)), rng.normal(size=n)


def frame(n=500):
    """Return columns a, b, t of numbers, a column of text, one of integers, and weights."""
    X, y = rows(n)
    number = np.arange(n)
    return pd.DataFrame(
        {
            "a": X[:, 0],
            "colour": np.array(["red", "green", "blue"])[number % 3],
            "b": X[:, 1],
            "count": number * 7 % 11,
            "t": y,
            "w": 1.0 + number % 2,
        }
    )


def all_rows(data):
    """Return X, t and the row numbers before shuffling, from all tiles."""
    tiles = [data.tile(number) for number in range(data.n_tiles)]
    numbers = np.concatenate([data.original_rows(number) for number in range(data.n_tiles)])
    return (
        np.concatenate([tile.X for tile in tiles]),
        np.concatenate([tile.t for tile in tiles]),
        numbers,
    )


def assert_holds(data, X, y, seed, weights=None):
    """Assert that ``data`` has moments and these rows in the order of
    ``default_rng(seed).random(N)``."""
    order = (
        np.arange(len(X))
        if seed is None
        else np.argsort(default_rng(seed).random(len(X)), kind="stable")
    )
    stored_X, stored_t, numbers = all_rows(data)
    assert_array_equal(numbers, order)
    assert_array_equal(stored_X, X[order])
    assert_array_equal(stored_t[:, 0], y[order])
    assert (data.seed, data.shuffled) == (seed, seed is not None)
    mean = np.average(y, weights=weights)
    variance = np.average((y - mean) ** 2, weights=weights)
    assert_array_equal(data.moments.inputs.minimum, X.min(axis=0))
    assert_allclose(
        data.moments.inputs.mean, np.average(X, axis=0, weights=weights), rtol=1e-12, atol=1e-14
    )
    assert_allclose(data.moments.targets.variance, variance, rtol=1e-12)
    if weights is not None:
        assert_array_equal(data.gather(range(len(X))).weights, weights[order])


def saved(path, save, **options):
    save(path, **options)
    return str(path)


def write_csv_folder(folder, table):
    (folder / "many").mkdir()
    for part, start in enumerate(range(0, len(table), 130)):
        columns = list(table.columns)[:: -1 if part % 2 else 1]
        table.iloc[start : start + 130][columns].to_csv(
            folder / "many" / f"part-{part}.csv", index=False
        )
    (folder / "many" / "_metadata.csv").write_text("nothing\n")
    return str(folder / "many")


def write_to_memory(folder, table):
    url = f"memory://{folder.name}/t.parquet"
    with fsspec.open(url, "wb") as file:
        table.to_parquet(file)
    return url


TABLES = {
    "csv": lambda folder, table: saved(folder / "t.csv", table.to_csv, index=False),
    "csv.gz": lambda folder, table: saved(folder / "t.csv.gz", table.to_csv, index=False),
    "folder": write_csv_folder,
    "parquet": lambda folder, table: saved(
        folder / "t.parquet", table.to_parquet, row_group_size=97
    ),
    "url": write_to_memory,
    "pandas": lambda folder, table: table,
    "dask": lambda folder, table: dd.from_pandas(table, npartitions=4),
}


@pytest.mark.parametrize(
    ("kind", "seed"),
    some(
        product(TABLES, [0, None]),
        {*product(["csv", "folder", "parquet", "url", "pandas", "dask"], [0]), ("csv", None)},
    ),
)
def test_stored_tables_have_all_rows_and_columns(kind, seed, tmp_path):
    table = frame()
    data = ingest(
        TABLES[kind](tmp_path, table), tmp_path / "d.zarr", target="t", categorical=["colour"], weights="w", shuffle=seed,
        tile_rows=64,
    )  # fmt: skip
    assert data.columns.features == ("a", "colour", "b", "count")
    assert data.columns.target == "t"
    assert data.columns.categories == {"colour": ("blue", "green", "red")}
    assert data.columns.classes is None
    X = (
        table[["a", "colour", "b", "count"]]
        .replace({"colour": {"blue": 0, "green": 1, "red": 2}})
        .to_numpy(float)
    )
    assert_holds(data, X, table["t"].to_numpy(), seed, table["w"].to_numpy())
    assert sorted(path.name for path in tmp_path.iterdir() if "partial" in path.name) == []


def zarr_pair(folder, X, y):
    group = zarr.open_group(str(folder / "own.zarr"), mode="w")
    stored = [
        group.create_array(name, shape=v.shape, dtype="f8", chunks=(90,) * v.ndim)
        for name, v in zip("Xy", (X, y), strict=True)
    ]
    stored[0][:] = X
    stored[1][:] = y
    return tuple(stored)


def npz(folder, X, y):
    np.savez_compressed(
        folder / "a.npz", X=np.asfortranarray(X), y=y, test_mask=np.zeros((len(X), 2), bool)
    )
    return folder / "a.npz"


ARRAYS = {
    "numpy": lambda folder, X, y: (X, y),
    "dask": lambda folder, X, y: (da.from_array(X, chunks=(77, 2)), da.from_array(y, chunks=100)),
    "zarr": zarr_pair,
    "npz": npz,
    "pandas": lambda folder, X, y: (
        pd.DataFrame(X, columns=["x0", "x1", "x2"]),
        pd.Series(y, name="y"),
    ),
}


@pytest.mark.parametrize(
    ("kind", "seed"),
    some(product(ARRAYS, [11, None]), {*product(ARRAYS, [11]), ("numpy", None)}),
)
def test_stored_arrays_have_all_rows(kind, seed, tmp_path):
    X, y = rows()
    data = ingest(ARRAYS[kind](tmp_path, X, y), tmp_path / "d.zarr", shuffle=seed)
    assert data.columns.features == ("x0", "x1", "x2")
    assert data.tile_rows == tile_rows_for(500, 3)
    assert_holds(data, X, y, seed)


@settings(max_examples=examples(5), deadline=None)
@given(
    n=st.integers(2, 40), d=st.integers(1, 4), seed=st.integers(0, 2**32), tile_rows=st.sampled_from([1, 7, 64]),
    batch=st.integers(64, 400), memory=st.sampled_from([64, 5000, 1 << 20]),
)  # fmt: skip
def test_stored_rows_do_not_depend_on_memory_or_batches(n, d, seed, tile_rows, batch, memory):
    X, y = rows(n, d, seed)

    class Small(Budget):
        def sort_bytes(self, width, tile_rows):
            return memory

        def batch_bytes(self, table, width, tile_rows, held):
            return batch * 8 * width

    with tempfile.TemporaryDirectory() as folder:
        options = {"shuffle": seed, "tile_rows": tile_rows, "memory_limit": Small(None)}
        data = ingest((X, y), f"{folder}/d.zarr", **options)
        assert_holds(data, X, y, seed)
        data.verify()


def test_shuffling_in_memory_gives_the_same_order(tmp_path):
    from partirvm.data import as_source

    X, y = rows()
    data = ingest((X, y), tmp_path / "d.zarr", shuffle=4)
    source = as_source(X, y, seed=4)
    assert data.fingerprint()["hashes"] == [
        hash_tile(source.tile(number)) for number in range(source.n_tiles)
    ]


def test_stored_moments_and_hashes_equal_those_of_a_pass(tmp_path):
    X, y = rows()
    data = ingest((X, y, np.abs(y)), tmp_path / "d.zarr", tile_rows=64)
    total = TreeSum(data.n_tiles)
    for number in range(data.n_tiles):
        tile = data.tile(number)
        total.add(number, Moments.of(tile.X, tile.t, tile.weights, tile.start))
    for part in ("inputs", "targets"):
        stored, expected = (getattr(moments, part) for moments in (data.moments, total.result()))
        assert stored.n == expected.n
        for name in ("missing", "total", "mean", "square", "minimum", "maximum"):
            assert getattr(stored, name).tobytes() == getattr(expected, name).tobytes()
    assert data.fingerprint()["hashes"] == [
        hash_tile(data.tile(number)) for number in range(data.n_tiles)
    ]


def test_values_equal_to_a_fill_value_are_written(tmp_path):
    X = np.zeros((130, 1))
    X[-1] = 1
    data = ingest((X, np.arange(130)), tmp_path / "d.zarr", tile_rows=64, shuffle=None)
    assert data.tile(0).X.sum() == 0
    assert list((tmp_path / "d.zarr").glob("rows-*/X/c/1/0"))


SHUFFLED = default_rng(2).permutation(500)


TARGETS = {
    "series": lambda y: pd.Series(y, name="cost"),
    "other index": lambda y: pd.Series(y, index=SHUFFLED, name="cost"),
    "one column": lambda y: pd.DataFrame({"cost": y}, index=SHUFFLED + 1000),
    "array": lambda y: y,
    "list": lambda y: y.tolist(),
    "column": lambda y: y[:, None],
    "dask array": lambda y: da.from_array(y, chunks=((125, 125, 100, 150),)),
    "zarr": lambda y: zarr.array(y),
    "dask series": lambda y: dd.from_pandas(pd.Series(y, name="cost"), npartitions=4),
}

FEW = {
    *product(["pandas"], ["other index", "one column", "column", "zarr"]),
    ("dask", "dask array"),
    ("lists", "dask series"),
}


@pytest.mark.parametrize(
    ("kind", "target"), some(product(["pandas", "dask", "lists"], TARGETS), FEW)
)
def test_parts_of_a_table_are_joined_by_position(kind, target, tmp_path):
    X, targets = rows()
    table = pd.DataFrame(
        {"a": X[:, 0], "b": np.array(["u", "v"])[np.arange(500) % 2]}, index=SHUFFLED[::-1]
    )
    if kind == "dask":
        table = dd.from_pandas(table, npartitions=4, sort=False)
    if kind == "lists":
        table = np.column_stack([X[:, 0], np.arange(500) % 2]).tolist()
    weights = pd.Series(1.0 + np.arange(500), index=SHUFFLED)
    data = ingest(
        (table, TARGETS[target](targets), weights),
        tmp_path / "d.zarr",
        categorical=[] if kind == "lists" else ["b"],
    )
    stored_X, stored_t, numbers = all_rows(data)
    assert_array_equal(stored_X, np.column_stack([X[:, 0], np.arange(500) % 2])[numbers])
    assert_array_equal(stored_t[:, 0], targets[numbers])
    assert_array_equal(data.gather(range(500)).weights, 1.0 + numbers)
    assert data.columns.target in ("y", "cost")


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        ([1, -1, 1, -1], (-1, 1)), ([1.5, 0.5, 1.5, 0.5], (0.5, 1.5)), ([2.0, 1.0, 2.0, 1.0], (1, 2)),
        (["10", "9", "10", "9"], (9, 10)), (["010", "9", "010", "9"], ("010", "9")),
        ([True, False, True, False], (False, True)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", some(["csv", "parquet", "pandas"], {"csv", "pandas"}))
def test_labels_keep_the_type_declared_by_the_source(labels, classes, kind, tmp_path):
    table = pd.DataFrame({"a": [0.0, 1.0, 2.0, 3.0], "label": labels})
    data = ingest(
        TABLES[kind](tmp_path, table),
        tmp_path / "d.zarr",
        target="label",
        classes=True,
        shuffle=None,
    )
    if kind != "csv" and isinstance(labels[0], str):
        classes = tuple(sorted(labels[:2]))  # a table with types has text columns
    if kind == "csv" and isinstance(labels[0], bool):
        classes = ("False", "True")
    assert [str(label) for label in data.columns.classes or ()] == [str(label) for label in classes]
    first = [str(label) for label in classes].index(
        str(data.columns.classes[int(data.tile(0).t[0, 0])])
    )
    assert data.tile(0).t[:, 0].tolist() == [first, 1 - first] * 2


def test_a_test_set_gets_the_columns_and_codes_of_the_training_set(tmp_path):
    train = pd.DataFrame({"a": [1.0, 2.0, 3.0], "zone": ["n", "s", "n"], "y": ["u", "v", "u"]})
    test = pd.DataFrame({"y": ["v", "u"], "more": [0, 1], "zone": ["w", "s"], "a": [5.0, 6.0]})
    first = ingest(train, tmp_path / "train.zarr", target="y", categorical=["zone"], classes=True)
    with pytest.warns(UnseenLevelWarning, match=r"1 of 2 rows .*'zone': 'w'$"):
        second = ingest(test, tmp_path / "test.zarr", like=first, shuffle=None)
    assert second.columns == first.columns
    assert_array_equal(second.tile(0).X, [[5, np.nan], [6, 1]])  # "w" counts as missing
    assert second.tile(0).t[:, 0].tolist() == [1, 0]
    with pytest.warns(UnseenLevelWarning):
        by_path = ingest(test, tmp_path / "again.zarr", like=tmp_path / "train.zarr", shuffle=None)
    assert by_path.fingerprint() == second.fingerprint()


def test_numeric_categories_match_between_file_formats(tmp_path):
    train = pd.DataFrame({"zone": [3, 7, 7, 5], "y": [0.5, 1.0, 2.0, 3.0]})
    first = ingest(train, tmp_path / "train.zarr", target="y", categorical=["zone"])
    assert first.columns.categories == {"zone": (3, 5, 7)}
    (tmp_path / "test.csv").write_text("zone,y\n7.0,1\n3,2\n4,3\n")
    with pytest.warns(UnseenLevelWarning, match="'zone': 4$"):
        second = ingest(tmp_path / "test.csv", tmp_path / "test.zarr", like=first, shuffle=None)
    assert_array_equal(second.tile(0).X[:, 0], [2, 0, np.nan])


def test_npz_files_name_their_columns(tmp_path):
    X, y = rows(50)
    np.savez(
        tmp_path / "a.npz", X=X, y=2 * y, columns=np.array(["p", "q", "r"]), weights=np.ones(50)
    )
    data = ingest(tmp_path / "a.npz", tmp_path / "d.zarr", features=["r", "p"], shuffle=None)
    assert data.columns.features == ("r", "p")
    assert data.weighted
    assert_array_equal(data.tile(0).X, X[:, [2, 0]])
    assert_array_equal(data.tile(0).t[:, 0], 2 * y)


def test_integers_in_a_csv_may_become_fractions_in_later_rows(tmp_path):
    lines = [f"{i},{i}" for i in range(30_000)] + ["0.5,7.25", "1e3,-2"]
    (tmp_path / "t.csv").write_text("a,y\n" + "\n".join(lines) + "\n")
    data = ingest(tmp_path / "t.csv", tmp_path / "d.zarr", target="y", shuffle=None)
    assert data.gather([30_000, 30_001]).X[:, 0].tolist() == [0.5, 1000]


def test_data_can_be_stored_at_a_url(tmp_path):
    X, y = rows()
    url = f"memory://{tmp_path.name}/d.zarr"
    assert_holds(ingest((X, y), url, tile_rows=64), X, y, 0)
    assert_holds(ZarrSource(url), X, y, 0)
    with pytest.raises(FileExistsError, match="overwrite"):
        ingest((X, y), url)
    fsspec.filesystem("memory").pipe(f"/{tmp_path.name}/d.zarr/notes.txt", b"kept")
    assert_holds(ingest((X, y), url, overwrite=True, shuffle=1), X, y, 1)
    left = fsspec.filesystem("memory").ls(f"/{tmp_path.name}/d.zarr", detail=False)
    assert sorted(name.rpartition("/")[2].partition("-")[0] for name in left) == [
        "notes.txt",
        "rows",
        "versions",
    ]
