"""Labels beyond 2⁵³ are distinct in every source, and masked values are refused."""

from decimal import Decimal

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.random import default_rng
from numpy.testing import assert_array_equal

from partirvm import RVMClassifier, RVMRegressor
from partirvm.data import as_source, ingest
from partirvm.errors import DataError, UnseenLevelWarning

ODD = 2**53 + 1
"""The smallest integer that float64 cannot represent; it is next to 2**53."""


def table(column, dtype="int64"):
    """Return four rows of features a, b and a target y; row 2 of one column is special."""
    values = {"a": [1, 2, 3, 5], "b": [3, 1, 4, 1], "y": [2, 7, 1, 8]}
    values[column][2] = ODD
    return pd.DataFrame(values).astype({column: dtype})


def saved(path, save, **options):
    save(path, **options)
    return path


def as_decimals(frame, folder):
    columns = {
        name: pa.array([Decimal(int(v)) for v in frame[name]], pa.decimal128(38, 0))
        for name in frame
    }
    pq.write_table(pa.table(columns), folder / "d.parquet")
    return folder / "d.parquet"


KINDS = {
    "csv": lambda frame, folder: saved(folder / "t.csv", frame.to_csv, index=False),
    "parquet": lambda frame, folder: saved(folder / "t.parquet", frame.to_parquet),
    "decimals": as_decimals,
    "frame": lambda frame, folder: frame,
    "dask": lambda frame, folder: dd.from_pandas(frame, npartitions=2),
}


@pytest.mark.parametrize("kind", KINDS)
def test_labels_beyond_the_range_of_float64_are_distinct(kind, tmp_path):
    frame = table("b").assign(y=[2**53, ODD, 2**53, ODD])
    data = ingest(
        KINDS[kind](frame, tmp_path),
        tmp_path / "d.zarr",
        target="y",
        categorical=["b"],
        classes=True,
        shuffle=None,
    )
    assert data.tile(0).t[:, 0].tolist() == [0, 1, 0, 1]
    assert [str(label) for label in data.columns.classes] == [str(2**53), str(ODD)]
    assert str(ODD) in map(str, data.columns.categories["b"])


def test_a_csv_label_keeps_its_digits(tmp_path):
    """This also holds next to numeric labels; otherwise it would be confused with its neighbour."""
    (tmp_path / "t.csv").write_text(f"a,y\n5,1\n{ODD},2\n0.12345678901234567890,3\n")
    data = ingest(tmp_path / "t.csv", tmp_path / "d.zarr", target="y", categorical=["a"])
    assert set(data.columns.categories["a"]) == {"5", str(ODD), "0.12345678901234567890"}
    (tmp_path / "t.csv").write_text(f"a,y\n5,1\n{ODD},2\n0.5,3\n")
    data = ingest(tmp_path / "t.csv", tmp_path / "e.zarr", target="y", categorical=["a"])
    assert data.columns.categories["a"] == (0.5, 5, ODD)
    (tmp_path / "new.csv").write_text(f"a,y\n{2**53},1\n{ODD},2\n5.0,3\n")
    with pytest.warns(UnseenLevelWarning, match=str(2**53)):
        new = ingest(tmp_path / "new.csv", tmp_path / "f.zarr", like=data, shuffle=None)
    assert_array_equal(new.tile(0).X[:, 0], [np.nan, 2, 1])  # 2**53 is an unknown level


X = default_rng(0).uniform(0, 9, (20, 2))
Y = np.arange(20.0)


@pytest.mark.parametrize(
    "kind", [np.asarray, list, pd.Series, lambda y: pd.Series(y, dtype="Int64")]
)
def test_a_classifier_distinguishes_neighbouring_labels(kind):
    labels = np.where(Y % 2 == 0, 2**53, ODD)
    model = RVMClassifier(gamma=1.0, max_rounds=1).fit(X, kind(labels))
    assert model.classes_.tolist() == [2**53, ODD]


@pytest.mark.parametrize("place", ["X", "y"])
def test_masked_values_are_refused(place, tmp_path):
    rows, targets = (
        (np.ma.masked_array(X, mask=X > 5), Y)
        if place == "X"
        else (X, np.ma.masked_array(Y, mask=Y > 5))
    )
    for use in (RVMRegressor().fit, lambda *both: ingest(both, tmp_path / "d.zarr"), as_source):
        with pytest.raises(DataError, match=f"{place} has masked values"):
            use(rows, targets)
