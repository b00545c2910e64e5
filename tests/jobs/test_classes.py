"""Predictions of classification models: every type of label, in every kind of output."""

import numpy as np
import pyarrow.csv
import pyarrow.parquet
import pytest
import zarr
from by_default import some
from numpy.random import default_rng
from numpy.testing import assert_allclose

from partirvm import ingest, jobs
from partirvm.cli import main
from partirvm.options import Request

TYPES = {
    "text": ("blue", "n/a", "réd"),
    "numbers": (-3, 0, 7),
    "fractions": (0.1, 0.25, 2.5),
    "truth": (False, True),
    "two": ("no", "yes"),
}
N = 207
TILE = 20

pytestmark = pytest.mark.filterwarnings("ignore:.*far from every:partirvm.errors.DataWarning")


def table(classes, seed=0):
    """Return inputs (N, 2) and labels (N,) of all classes."""
    rng = default_rng(seed)
    codes = rng.integers(len(classes), size=N)
    return rng.normal(size=(N, 2)) + codes[:, None], np.array(classes)[codes]


def fitted(folder, kind):
    """Return the inputs and the model of a job whose labels have this type."""
    X, y = table(TYPES[kind])
    ingest((X, y), folder / "d.zarr", classes=True, shuffle=5, tile_rows=TILE)
    request = Request(gamma=0.3, partition_size=20, max_rounds=1, reference="none")
    return X, jobs.fit(str(folder / "d.zarr"), str(folder / "job"), request).model


def columns_of(path):
    """Return the columns of an output by name."""
    if path.suffix == ".zarr":
        group = zarr.open_group(path, mode="r")
        return {
            name: group[name.replace("/", "%2F")][...].tolist() for name in group.attrs["columns"]
        }
    if path.suffix == ".parquet":
        return pyarrow.parquet.read_table(path).to_pydict()
    plain = pyarrow.csv.ConvertOptions(null_values=[])  # "n/a" is a label here
    return pyarrow.csv.read_csv(path, convert_options=plain).to_pydict()


@pytest.mark.parametrize(
    ("kind", "ending"),
    some(
        [
            *zip(TYPES, [".parquet", ".csv", ".csv", ".parquet", ".parquet"], strict=True),
            ("text", ".zarr"),
        ],
        {("text", ".zarr"), ("fractions", ".csv"), ("truth", ".parquet")},
    ),
)
def test_outputs_contain_labels_and_probabilities_of_every_row(tmp_path, kind, ending):
    """Rows are in the order of the table; labels keep their type, columns the order of the
    classes."""
    X, model = fitted(tmp_path, kind)
    out = tmp_path / f"out{ending}"
    places = [str(tmp_path / "job"), str(tmp_path / "d.zarr"), str(out)]
    assert main(["predict", *places, "--quiet"]) == 0
    columns = columns_of(out)
    assert list(columns) == ["label", *(f"p_{label}" for label in TYPES[kind])]
    p = model.predict_proba(X)
    for k, label in enumerate(TYPES[kind]):
        assert_allclose(columns[f"p_{label}"], p[:, k], rtol=1e-12)
    expected = model.predict(X).tolist()
    assert columns["label"] == expected
    assert {type(label) for label in columns["label"]} == {type(label) for label in expected}
