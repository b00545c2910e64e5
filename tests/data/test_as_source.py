"""Each kind of rows that users pass to fit becomes the right source, or is refused by name."""

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import zarr
from numpy.testing import assert_array_equal

from partirvm.data import ArraySource, as_source
from partirvm.errors import DataError, UsageError

X = np.arange(60.0).reshape(20, 3)
Y = np.arange(20.0)
FRAME = pd.DataFrame({"a": X[:, 0], "b": X[:, 1].astype(int), "c": X[:, 2] > 30})
COST = pd.Series(Y, name="cost")
VALUES = np.column_stack([X[:, 0], X[:, 1], X[:, 2] > 30])


@pytest.mark.parametrize(
    ("data", "target", "names", "values"),
    [
        (X, Y, ("x0", "x1", "x2"), X),
        (X.tolist(), Y.tolist(), ("x0", "x1", "x2"), X),
        (X.astype(object), Y.astype(np.float32), ("x0", "x1", "x2"), X),
        (FRAME, COST, ("a", "b", "c"), VALUES),
        (FRAME.astype({"b": "Int64"}), pd.DataFrame({"cost": Y}), ("a", "b", "c"), VALUES),
        (FRAME, Y, ("a", "b", "c"), VALUES),
        (dd.from_pandas(FRAME, 3), dd.from_pandas(COST, 3), ("a", "b", "c"), VALUES),
        (da.from_array(X, chunks=(7, 2)), da.from_array(Y, chunks=5), ("x0", "x1", "x2"), X),
        (da.from_array(X, chunks=(7, 2)), Y, ("x0", "x1", "x2"), X),
        (X, da.from_array(Y, chunks=5), ("x0", "x1", "x2"), X),
        (zarr.array(X, chunks=(7, 2)), zarr.array(Y), ("x0", "x1", "x2"), X),
        (zarr.array(X, chunks=(7, 2)), Y, ("x0", "x1", "x2"), X),
    ],
    ids=["numpy", "lists", "objects", "pandas", "nullable", "pandas+numpy", "dask frame", "dask", "dask+numpy",
         "numpy+dask", "zarr", "zarr+numpy"],
)  # fmt: skip
def test_every_kind_of_rows_becomes_a_source(data, target, names, values):
    source = as_source(data, target)
    assert type(source) is ArraySource
    assert source.columns.features == names
    assert source.columns.target == (
        "cost" if isinstance(target, pd.Series | pd.DataFrame | dd.Series) else "y"
    )
    assert_array_equal(source.tile(0).X, values)
    assert_array_equal(source.tile(0).t[:, 0], Y)
    assert not source.shuffled
    assert as_source(source) is source


def test_dask_chunks_may_have_unknown_sizes():
    known = da.from_array(X, chunks=(7, 3))
    source = as_source(known[known[:, 0] > 20], None)
    assert_array_equal(source.tile(0).X, X[X[:, 0] > 20])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((X[:, 0], Y), r"two dimensions \(rows, features\), found shape \(20,\).*reshape\(-1, 1\)"),
        ((X, Y[:-1]), r"X has 20 rows, so y must have the shape .* but has \(19,\)"),
        ((X, Y, Y[:-2]), r"the weights must have the shape \(rows,\) but has \(18,\)"),
        ((X, Y, Y - 5), "some are negative"),
        ((X, Y, 0 * Y), "all zero"),
        ((X[:1], Y[:1]), "only one row"),
        ((X[:, :0], Y), "no features"),
        ((X + 1j, Y), r"X holds complex .*\(complex128\)"),
        (
            (np.array([["a", 1], ["b", 2]], dtype=object), [1, 2]),
            "X holds .*text, dates or objects.*--categorical",
        ),
        (
            (dd.from_pandas(FRAME.assign(d="u"), npartitions=2), Y),
            "the column 'd' of the data frame holds .*text",
        ),
    ],
)
def test_unusable_rows_are_refused(arguments, message):
    with pytest.raises(DataError, match=message):
        as_source(*arguments)


def test_data_refuses_a_separate_target(tmp_path):
    with pytest.raises(UsageError, match="y and weights are part of the dataset"):
        as_source(tmp_path / "d.zarr", Y)
