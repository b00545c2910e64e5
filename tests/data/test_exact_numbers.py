"""Whole numbers beyond 2⁵³ are refused wherever they come from, and no two labels become one."""

from __future__ import annotations

from decimal import Decimal

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from partirvm import RVMClassifier, RVMRegressor
from partirvm.core.moments import require_exact
from partirvm.data import as_source, ingest
from partirvm.errors import DataError

ODD = 2**53 + 1
"""The smallest whole number that float64 does not hold; 2**53 is next to it."""

REFUSED = rf"column '(b|y)' holds the whole number {ODD} in row 2 .*--categorical"


def table(column, dtype="int64"):
    """Four rows of features a, b and a target y; row 2 of one column is odd."""
    values = {"a": [1, 2, 3, 5], "b": [3, 1, 4, 1], "y": [2, 7, 1, 8]}
    values[column][2] = ODD
    return pd.DataFrame(values).astype({column: dtype})


def saved(path, save, **options):
    save(path, **options)
    return path


def as_decimals(frame, folder):
    columns = {name: pa.array([Decimal(int(v)) for v in frame[name]], pa.decimal128(38, 0)) for name in frame}
    pq.write_table(pa.table(columns), folder / "d.parquet")
    return folder / "d.parquet"


KINDS = {
    "csv": lambda frame, folder: saved(folder / "t.csv", frame.to_csv, index=False),
    "parquet": lambda frame, folder: saved(folder / "t.parquet", frame.to_parquet),
    "decimals": as_decimals,
    "frame": lambda frame, folder: frame,
    "dask": lambda frame, folder: dd.from_pandas(frame, npartitions=2),
}


@pytest.mark.parametrize("column", ["b", "y"])
@pytest.mark.parametrize("dtype", ["int64", "uint64", "Int64", "int64[pyarrow]"])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("csv", "decimals")])
def test_ingest_refuses(kind, dtype, column, tmp_path):
    source = KINDS[kind](table(column, dtype), tmp_path)
    with pytest.raises(DataError, match=REFUSED):
        ingest(source, tmp_path / "d.zarr", target="y")
    assert not (tmp_path / "d.zarr").exists()


@pytest.mark.parametrize("kind", KINDS)
def test_as_labels_they_are_kept(kind, tmp_path):
    frame = table("b").assign(y=[2**53, ODD, 2**53, ODD])
    data = ingest(
        KINDS[kind](frame, tmp_path), tmp_path / "d.zarr", target="y", categorical=["b"], classes=True, shuffle=None
    )
    assert data.tile(0).t[:, 0].tolist() == [0, 1, 0, 1]
    assert [str(label) for label in data.columns.classes] == [str(2**53), str(ODD)]
    assert str(ODD) in map(str, data.columns.categories["b"])


def test_a_single_label_of_csv_keeps_its_digits(tmp_path):
    """Beside others that are numbers, too: it would be found again as its neighbour otherwise."""
    (tmp_path / "t.csv").write_text(f"a,y\n5,1\n{ODD},2\n0.12345678901234567890,3\n")
    data = ingest(tmp_path / "t.csv", tmp_path / "d.zarr", target="y", categorical=["a"])
    assert set(data.columns.categories["a"]) == {"5", str(ODD), "0.12345678901234567890"}
    (tmp_path / "t.csv").write_text(f"a,y\n5,1\n{ODD},2\n0.5,3\n")
    data = ingest(tmp_path / "t.csv", tmp_path / "e.zarr", target="y", categorical=["a"])
    assert data.columns.categories["a"] == (0.5, 5, ODD)
    (tmp_path / "new.csv").write_text(f"a,y\n{2**53},1\n{ODD},2\n5.0,3\n")
    found = ingest(tmp_path / "new.csv", tmp_path / "f.zarr", like=data, shuffle=None)
    assert found.tile(0).X[:, 0].tolist() == [3, 2, 1]  # 2**53 is a level of its own


def test_bytes_that_are_no_text_stay_different(tmp_path):
    pq.write_table(pa.table({"a": [b"\xff", b"\xfe", b"x"], "y": [1.0, 2.0, 3.0]}), tmp_path / "t.parquet")
    data = ingest(tmp_path / "t.parquet", tmp_path / "d.zarr", target="y", categorical=["a"], shuffle=None)
    assert len(set(data.tile(0).X[:, 0].tolist())) == 3


X, Y = np.random.default_rng(0).uniform(0, 9, (20, 2)), np.arange(20.0)
ODD_X, ODD_Y = X.astype(np.int64), Y.astype(np.int64)
ODD_X[3, 1] = ODD_Y[3] = ODD

FITTED = {
    "X": (ODD_X, Y),
    "y": (X, ODD_Y),
    "several targets": (X, np.column_stack([ODD_Y, ODD_Y])),
    "frame": (pd.DataFrame(ODD_X, columns=["a", "b"]).assign(c=0.5), Y),
    "dask frame": (dd.from_pandas(pd.DataFrame(ODD_X, columns=["a", "b"]).assign(c=0.5), npartitions=2), Y),
    "dask series": (dd.from_pandas(pd.DataFrame(X), npartitions=2), dd.from_pandas(pd.Series(ODD_Y), npartitions=2)),
}


@pytest.mark.parametrize("case", FITTED)
def test_a_fit_refuses(case):
    with pytest.raises(DataError, match=rf"the whole number {ODD} in row 3 .*categorical, in a data frame"):
        RVMRegressor(gamma=1.0, max_rounds=1).fit(*FITTED[case])


@pytest.mark.parametrize("kind", [np.asarray, list, pd.Series, lambda y: pd.Series(y, dtype="Int64")])
def test_a_classifier_keeps_neighbours_apart(kind):
    labels = np.where(Y % 2 == 0, 2**53, ODD)
    model = RVMClassifier(gamma=1.0, max_rounds=1).fit(X, kind(labels))
    assert model.classes_.tolist() == [2**53, ODD]


@pytest.mark.parametrize("place", ["X", "y"])
def test_masked_values_do_not_count_silently(place, tmp_path):
    rows, targets = (np.ma.masked_array(X, mask=X > 5), Y) if place == "X" else (X, np.ma.masked_array(Y, mask=Y > 5))
    for use in (RVMRegressor().fit, lambda *both: ingest(both, tmp_path / "d.zarr"), as_source):
        with pytest.raises(DataError, match=f"{place} has masked values"):
            use(rows, targets)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1) | st.lists(st.integers(0, 2**64 - 1), min_size=1))
def test_the_first_number_beyond_the_digits_of_float64(values):
    dtype = np.int64 if min(values) < 0 or max(values) < 2**63 else np.uint64
    wrong = [value for value in values if abs(value) > 2**53]
    array = np.array(values, dtype=dtype)
    if not wrong:
        require_exact(array, "X")
        return
    with pytest.raises(DataError, match=rf"number {wrong[0]} in row {7 + values.index(wrong[0])} "):
        require_exact(array, "X", 7)
