"""Predictions and scores of models of classes: every ending, every type of label, interrupted or not; bad DATA."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow.csv
import pyarrow.parquet
import pytest
import zarr
from reference import saved

from partirvm import ingest
from partirvm.cli import main
from partirvm.kernels import Gaussian
from partirvm.kernels.design import Design
from partirvm.model import ClassModel
from partirvm.types import Scaling

TYPES = {
    "text": ("blue", "n/a", "réd"),
    "numbers": (-3, 0, 7),
    "fractions": (0.1, 0.25, 2.5),
    "truth": (False, True),
    "two": ("no", "yes"),
}
N, TILE = 407, 40

pytestmark = pytest.mark.filterwarnings("ignore:.*far from every:partirvm.errors.DataWarning")


def table(classes, seed=0):
    """Inputs (N, 2) and labels (N,) of all classes."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(len(classes), size=N)
    return rng.normal(size=(N, 2)) + codes[:, None], np.array(classes)[codes]


def model_of(data, **changes):
    """A model of any numbers for the columns of DATA."""
    rng = np.random.default_rng(3)
    classes = data.columns.classes
    outputs = 1 if len(classes) == 2 else len(classes)
    scaling = Scaling(np.zeros(2), np.ones(2), np.zeros(1), np.ones(1))
    design = Design(Gaussian((0.3, 0.3)), scaling, rng.normal(size=(4, 2)), np.arange(4), True)
    model = ClassModel(
        design=design,
        mean=rng.normal(size=(5, outputs)),
        root=0.5 * np.tril(rng.normal(size=(outputs, 5, 5))),
        alpha=np.ones((5, outputs)),
        likelihood="bernoulli" if outputs == 1 else "multinomial",
        moderate=True,
        log_evidence=-1.0,
        n_rows=N,
        columns=data.columns,
    )
    return replace(model, **changes)


def made(folder, kind):
    """DATA, JOB, inputs, labels and model of one type of label."""
    X, y = table(TYPES[kind])
    data = ingest((X, y), folder / "d.zarr", classes=True, shuffle=5, tile_rows=TILE)
    model = model_of(data)
    saved(folder / "job", model)
    return X, y, model


def read(path):
    """Columns of an output by their names."""
    if path.suffix == ".zarr":
        group = zarr.open_group(path, mode="r")
        return {name: group[name.replace("/", "%2F")][...].tolist() for name in group.attrs["columns"]}
    if path.suffix == ".parquet":
        return pyarrow.parquet.read_table(path).to_pydict()
    plain = pyarrow.csv.ConvertOptions(null_values=[])  # "n/a" is a label here
    return pyarrow.csv.read_csv(path, convert_options=plain).to_pydict()


@pytest.mark.parametrize(
    ("kind", "ending"),
    [*zip(TYPES, [".zarr", ".parquet", ".csv", ".zarr", ".parquet"], strict=True), ("text", ".csv")],
)
def test_every_row_has_its_label_and_probabilities(tmp_path, kind, ending):
    """In the order of the table, by the command line; labels of their own type, columns in the order of the classes."""
    X, _, model = made(tmp_path, kind)
    out = tmp_path / f"out{ending}"
    assert main(["predict", str(tmp_path / "job"), str(tmp_path / "d.zarr"), str(out), "--quiet"]) == 0
    found = read(out)
    assert list(found) == ["label", *(f"p_{label}" for label in TYPES[kind])]
    p = model.predict_proba(X)
    for k, label in enumerate(TYPES[kind]):
        np.testing.assert_allclose(found[f"p_{label}"], p[:, k], rtol=1e-12)
    expected = model.predict(X).tolist()
    assert found["label"] == expected
    assert {type(label) for label in found["label"]} == {type(label) for label in expected}
