"""Equal rows, seeds and options give equal bits, whatever container holds the rows."""

from functools import cache
from itertools import product

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import zarr
from by_default import some
from numpy.random import default_rng
from numpy.testing import assert_array_equal

from partirvm import RVMClassifier, RVMRegressor, ingest
from partirvm.data import as_source

SEED = 5
QUICK = {
    "gamma": 1.0,
    "effort": "quick",
    "max_rounds": 1,
    "reference": "none",
    "residual": "local",
    "random_state": SEED,
}
NAMES = ["a", "b", "c"]


def rows(n=180):
    rng = default_rng(0)
    X = rng.uniform(-2, 2, (n, 3))
    X[:, 0].sort()  # an order that tells nothing would hide a container that keeps it
    y = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + 0.1 * rng.standard_normal(n)
    w = rng.choice([0.0, 0.5, 2.0], n)
    return X, y, w


def zarr_array(values, chunks):
    array = zarr.create_array(store={}, shape=values.shape, chunks=chunks, dtype=values.dtype)
    array[:] = values
    return array


def as_frame(X):
    return pd.DataFrame(X, columns=NAMES)


CONTAINERS = {
    "lists": lambda X, y, w: (X.tolist(), y.tolist(), None if w is None else w.tolist()),
    "pandas": lambda X, y, w: (as_frame(X), pd.Series(y), None if w is None else pd.Series(w)),
    "polars": lambda X, y, w: (pl.DataFrame(X, schema=NAMES), y, w),
    "arrow": lambda X, y, w: (pa.table(dict(zip(NAMES, X.T, strict=True))), y, w),
    "dask": lambda X, y, w: (
        da.from_array(X, chunks=(80, 3)),
        da.from_array(y, chunks=80),
        None if w is None else da.from_array(w, chunks=80),
    ),
    "uneven dask": lambda X, y, w: (da.from_array(X, chunks=((1, 99, 80), (2, 1))), y, w),
    "dask frame": lambda X, y, w: (dd.from_pandas(as_frame(X), npartitions=4), y, w),
    "zarr": lambda X, y, w: (
        zarr_array(X, (64, 2)),
        zarr_array(y, (50,)),
        None if w is None else zarr_array(w, (37,)),
    ),
    "fortran": lambda X, y, w: (np.asfortranarray(X), y, w),
}


@cache
def of_arrays(weighted):
    """Return the regressor of NumPy arrays."""
    X, y, w = rows()
    return RVMRegressor(**QUICK).fit(X, y, w if weighted else None)


@pytest.mark.parametrize(
    ("container", "weighted"),
    some(product(CONTAINERS, [False, True]), [("pandas", True), ("zarr", True)]),
)
def test_regressions(container, weighted):
    X, y, w = rows()
    w = w if weighted else None
    expected = of_arrays(weighted)
    found = RVMRegressor(**QUICK).fit(*CONTAINERS[container](X, y, w))
    assert found.model_.digest() == expected.model_.digest() or container in FRAMES
    new = default_rng(1).uniform(-2, 2, (50, 3))
    new = as_frame(new) if container in FRAMES else new
    for part, other in zip(
        found.predict(new, return_std=True),
        expected.predict(np.asarray(new), return_std=True),
        strict=True,
    ):
        assert_array_equal(part, other)


FRAMES = ("pandas", "polars", "arrow", "dask frame")
"""Containers with names of columns, which a digest includes."""


@pytest.mark.parametrize("weighted", some([False, True], {True}))
def test_data(weighted, tmp_path):
    """DATA made with the same seed have the same order."""
    X, y, w = rows()
    expected = of_arrays(weighted)
    arrays = (X, y, w) if weighted else (X, y)
    data = ingest(arrays, tmp_path / "data.zarr", shuffle=SEED)
    found = RVMRegressor(**QUICK).fit(data)
    assert found.model_.digest() == expected.model_.digest()


@pytest.mark.usefixtures("quick_learning")
@pytest.mark.parametrize("container", some(["dask", "zarr", "pandas"], {"pandas"}))
def test_classes(container):
    X, y, w = rows(90)
    options = {"effort": "quick", "random_state": SEED}
    expected = RVMClassifier(**options).fit(X, y > 0, w)
    found = RVMClassifier(**options).fit(*CONTAINERS[container](X, y > 0, w))
    new = as_frame(X[:50]) if container in FRAMES else X[:50]
    assert_array_equal(found.predict_proba(new), expected.predict_proba(X[:50]))


@pytest.mark.parametrize("name", ["dask", "zarr", "uneven dask"])
def test_sources_of_collections_keep_their_order(name):
    """Collections that are too large for this process are read tile by tile as they are."""
    X, y, _ = rows()
    source = as_source(*CONTAINERS[name](X, y, None), seed=SEED)
    tiles = [source.tile(number).X for number in range(source.n_tiles)]
    assert_array_equal(np.concatenate(tiles), X)
