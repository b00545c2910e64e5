"""Messy tables: one ingest with ``--auto``, a fit, a report, and predictions for the same file."""

import shlex

import numpy as np
import pandas as pd
import pytest
from by_default import some
from numpy.random import default_rng
from numpy.testing import assert_array_equal
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine

from partirvm.cli import main
from partirvm.data import ZarrSource, ingest
from partirvm.errors import DataError

N = 120
RNG = default_rng(0)
NUMBER = np.arange(N)
X = RNG.normal(size=N).round(2)
ORT = np.array(["Köln", "Bern", "Ulm"])[NUMBER % 3]
TABLE = pd.DataFrame({"x": X, "Ort": ORT, "y": (2 * X + RNG.normal(size=N)).round(3)})
DAYS = pd.Timestamp("2023-01-01 08:05") + pd.to_timedelta(NUMBER * 36, unit="h")
GAPS = (
    pd.Series(X, dtype=object)
    .mask(NUMBER % 17 == 0, "?")
    .mask(NUMBER % 19 == 0, "-")
    .mask(NUMBER % 23 == 0, "NA")
)
KIND = pd.Series(np.where(X > 0, "good", "bad"), dtype=object).mask(NUMBER % 40 == 0)

MESSY = {
    "decimal commas": (TABLE, {"sep": ";", "decimal": ",", "encoding": "cp1252"}, ("x", "Ort")),
    "markers": (TABLE.assign(x=GAPS, Ort=TABLE["Ort"].mask(NUMBER % 9 == 0, "?")), {}, ("x", "Ort")),
    "gaps in the target": (TABLE.assign(y=TABLE["y"].astype(object).mask(NUMBER % 30 == 0, "?")), {}, ("x", "Ort")),
    "days first": (TABLE.assign(day=[f"{1 + k % 28:02}/{1 + k % 7:02}/2023" for k in NUMBER]), {}, ("x", "Ort", "day")),
    "months first": (TABLE.assign(day=DAYS.strftime("%m/%d/%Y %H:%M")), {"sep": "|"}, ("x", "Ort", "day")),
    "no information": (TABLE.assign(one=1, none="", id=[f"A{k}" for k in NUMBER]), {"index": True}, ("x", "Ort")),
    "infinite": (TABLE.assign(r=np.where(NUMBER % 11 == 0, np.inf, X**2)), {"compression": "gzip"}, ("x", "Ort", "r")),
    "classes": (TABLE.assign(y=KIND, ok=np.where(X > 1, "TRUE", "false")), {}, ("x", "Ort", "ok")),
    "headers": (TABLE.rename(columns={"x": ' x, "m" ', "Ort": "Ort "}), {"sep": "\t"}, ('x, "m"', "Ort")),
    "codes": (TABLE.assign(plz=1000 + NUMBER % 4, at=DAYS.strftime("%H:%M")), {"encoding": "utf-16"},
              ("x", "Ort", "plz", "at")),
}  # fmt: skip
for load in (load_diabetes, load_wine, load_breast_cancer):
    data = load(as_frame=True)
    names = [f" {name.title()}, {place}. " for place, name in enumerate(data.data)]
    labels = getattr(data, "target_names", None)
    y = data.target if labels is None else np.array(labels)[data.target]
    messy = data.data.set_axis(names, axis=1).assign(y=y).iloc[::2]
    MESSY[load.__name__] = messy, {"sep": ";", "decimal": ","}, tuple(map(str.strip, names))


DEFAULT = {
    "markers",
    "gaps in the target",
    "days first",
    "classes",
    "codes",
    "load_diabetes",
    "load_wine",
}


@pytest.mark.usefixtures("default_fits")
@pytest.mark.usefixtures("without_charts")
@pytest.mark.parametrize("name", some(MESSY, DEFAULT))
def test_a_messy_table_is_ingested_fitted_reported_and_predicted(
    name, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    table, options, features = MESSY[name]
    source = "my table.csv" + ".gz" * ("compression" in options)
    table.to_csv(source, **{"index": False, **options})
    assert main(["ingest", source, "d.zarr", "--target", "y", "--auto", "--quiet"]) == 0
    assert ZarrSource("d.zarr").columns.given == features
    options = "--gamma scale --max-rounds 1 --effort quick --quiet"
    assert main(["fit", "d.zarr", "job", *options.split()]) == 0
    assert main(["report", "job", "page.html"]) == 0
    assert main(["predict", "job", source, "p.csv", "--quiet"]) == 0
    assert len(pd.read_csv("p.csv")) == len(table)
    if main(["ingest", source, "e.zarr", "--target", "y"]) != 0:
        command = capsys.readouterr().err.splitlines()[-1]
        assert main(shlex.split(command)[1:]) == 0
    assert ZarrSource("e.zarr").n_rows == ZarrSource("d.zarr").n_rows


@pytest.mark.parametrize("label", some(["NA", "null", "NaN", "#N/A"], {"NA"}))
def test_classes_of_new_data_may_have_names_that_mark_gaps_in_other_columns(label, tmp_path):
    """A feature with the same text has a gap, in a file and in a frame; an empty class is one."""
    frame = pd.DataFrame(
        {"a": ["1.5", label, "2.5", "4"] * 5, "y": [label, "low", label, "high"] * 5}
    )
    frame.to_csv(tmp_path / "t.csv", index=False)
    options = {"target": "y", "classes": True, "shuffle": None}
    for kind, rows in (("file", tmp_path / "t.csv"), ("frame", frame)):
        data = ingest(rows, tmp_path / f"{kind}.zarr", **options)
        assert data.columns.classes == tuple(sorted([label, "low", "high"]))
        assert_array_equal(np.isnan(data.tile(0).X[:4, 0]), [False, True, False, False])
    frame.loc[0, "y"] = ""
    with pytest.raises(DataError, match=r"y +no value in 1 row"):
        ingest(frame, tmp_path / "gap.zarr", **options)


@pytest.mark.parametrize("label", ["NA", "None", "null", "NaN", "#N/A"])
@pytest.mark.parametrize("column", some(["y", "b"], {"y"}))
def test_labels_of_the_training_rows_are_no_gaps(label, column, tmp_path):
    """A CSV file without quotation marks may have labels that elsewhere mark missing values."""
    gap = 1.5 if label == "None" else None
    frame = pd.DataFrame({"a": [0.5, gap, 2.5, 4], "b": list("uvuv"), "y": list("pqpq")})
    frame[column] = pd.Categorical([label, "low", label, "high"])
    old = ingest(frame, tmp_path / "d.zarr", target="y", classes=True)
    assert label in (old.columns.classes if column == "y" else old.columns.categories["b"])
    frame.to_csv(tmp_path / "t.csv", index=False, na_rep=label)
    new = ingest(tmp_path / "t.csv", tmp_path / "e.zarr", like=old, shuffle=None)
    again = ingest(frame, tmp_path / "f.zarr", like=old, shuffle=None)
    assert new.tile(0).X.tobytes() == again.tile(0).X.tobytes()
    assert new.tile(0).t.tobytes() == again.tile(0).t.tobytes()
