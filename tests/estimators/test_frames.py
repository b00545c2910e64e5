"""Data frames of pandas, Arrow, polars and Dask: names and categories; errors name the column."""

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from numpy.random import default_rng
from numpy.testing import assert_allclose, assert_array_equal
from regressions import plane
from scipy import sparse
from sklearn.base import clone

from partirvm import RVMClassifier, RVMRegressor
from partirvm.data import as_source, ingest
from partirvm.errors import DataError, PartirvmError

OPTIONS = {"gamma": 0.3, "strategy": "basic", "random_state": 0}
DAYS = pd.date_range("2020-01-01", periods=60)


def table(n=60):
    """Return a frame of two numbers and a category, and a target that depends on all three."""
    X, y = plane(n, d=2)
    kinds = np.array(["low", "high", "mid"])[np.arange(n) % 3]
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "kind": pd.Categorical(kinds)})
    return frame, y + (kinds == "high")


def polars():
    """Return polars, which only the tests depend on, if it is installed."""
    return pytest.importorskip("polars")


FRAMES = {"arrow": pa.table, "polars": lambda frame: polars().DataFrame(frame)}
FRAMES["dask"] = lambda frame: dd.from_pandas(frame, npartitions=2)


@pytest.mark.parametrize("library", FRAMES)
def test_frames_of_every_library_give_the_same_bits(library):
    """Names and levels equal those of the pandas frame, too."""
    frame, y = table()
    converted = FRAMES[library](frame)
    t = FRAMES[library](pd.DataFrame({"y": y}))["y"]
    expected = RVMRegressor(**OPTIONS).fit(frame, y)
    model = RVMRegressor(**OPTIONS)
    model.fit(converted, t, X_val=converted, y_val=t)
    assert model.feature_names_in_.tolist() == ["a", "b", "kind"]
    assert sorted(model.model_.columns.categories["kind"]) == ["high", "low", "mid"]
    assert_array_equal(model.predict(converted), expected.predict(frame))
    if library != "dask":
        assert_array_equal(model.model_.predict(converted), expected.predict(frame))
    assert_array_equal(model.predict_interval(converted), expected.predict_interval(frame))
    labels = np.where(y > np.median(y), "yes", "no")
    plain, classes = (RVMClassifier(**OPTIONS).fit(rows, labels) for rows in (frame, converted))
    assert_array_equal(classes.predict_proba(converted), plain.predict_proba(frame))
    numbers = frame[["a", "b"]]
    assert_array_equal(as_source(FRAMES[library](numbers), y).tile(0).X, numbers)


def test_polars_series_are_targets_and_enums_are_categories():
    """An enumeration keeps levels that occur in no row."""
    pl = polars()
    frame, y = table()
    converted = pl.DataFrame(frame[["a", "b"]]).with_columns(
        pl.Series(
            "kind", frame["kind"].astype(str).tolist(), dtype=pl.Enum(["low", "mid", "high", "top"])
        )
    )
    model = RVMRegressor(**OPTIONS).fit(converted, pl.Series(y))
    assert model.model_.columns.categories == {"kind": ("low", "mid", "high", "top")}
    labels = np.where(y > np.median(y), "yes", "no")
    classes = RVMClassifier(**OPTIONS).fit(converted, pl.Series(labels))
    assert classes.classes_.tolist() == ["no", "yes"]
    with pytest.raises(
        DataError, match=r"y has 60 missing labels, the first in row 0 \(counted from 0\)"
    ):
        classes.fit(converted, pl.Series([None] * 60, dtype=pl.String))
    with pytest.raises(DataError, match="a polars LazyFrame, not yet computed: call collect"):
        model.fit(converted.lazy(), y)
    with pytest.raises(DataError, match="X, a polars Series"):
        model.predict(pl.Series(y))


NUMBERS = pd.DataFrame({"a": np.arange(60.0), "b": np.arange(60) % 7})


@pytest.mark.parametrize(
    ("X", "message"),
    [
        pytest.param(
            NUMBERS.assign(a=[f"{k}?" for k in range(60)]),
            "a +text, not numbers|a +free text or an ID: 60 different",
            id="text",
        ),
        pytest.param(
            NUMBERS.assign(b=np.inf),
            "b +infinite values in 60 rows, the first is row 1",
            id="infinite",
        ),
        pytest.param(
            sparse.eye_array(60, 2**19),
            r"X takes 240 MiB as an array, .* limit of 900 MiB: ",
            id="sparse",
        ),
        pytest.param(NUMBERS.to_numpy()[:, 0], "Expected 2D array", id="one dimension"),
        pytest.param(NUMBERS.to_numpy() + 1j, "Complex data", id="complex"),
    ],
)
@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
@pytest.mark.parametrize("estimator", [RVMRegressor, RVMClassifier])
def test_unusable_rows_are_named(estimator, X, message):
    """The fit and the prediction raise an error that is also a ValueError or a MemoryError."""
    y = np.arange(60) >= 30
    model = estimator(**OPTIONS, memory_limit="900MiB").fit(NUMBERS, y)
    for attempt in (lambda: clone(model).fit(X, y), lambda: model.predict(X)):
        with pytest.raises(PartirvmError, match=message) as caught:
            attempt()
        assert isinstance(caught.value, ValueError | MemoryError)
        assert str(caught.value).count("\n") <= 10


NONE = ["u", "v"] * 29 + ["u", None]


@pytest.mark.parametrize(
    ("y", "message"),
    [
        pytest.param(
            [1, "u"] * 30, "mix several types|a different type|Unknown label", id="numbers and text"
        ),
        pytest.param(
            pd.Categorical(NONE), "1 missing labels, the first in row 59", id="None in categories"
        ),
        pytest.param(
            pd.array(NONE, dtype="string"), "1 missing labels, the first in row 59", id="NA of text"
        ),
        pytest.param(
            np.linspace(0, 1, 60),
            "Unknown label type: continuous|in y is not among",
            id="continuous",
        ),
    ],
)
def test_unusable_labels_are_named(y, message):
    """They occur in training and in validation rows."""
    model = RVMClassifier(**OPTIONS)
    with pytest.raises(DataError, match=message):
        model.fit(NUMBERS, y)
    with pytest.raises(DataError, match=message):
        model.fit(NUMBERS, np.arange(60) % 2, X_val=NUMBERS, y_val=y)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        pytest.param({"y": [[1], [2, 3]] * 30}, "y is not a regular array", id="ragged"),
        pytest.param(
            {"y": np.where(np.arange(60) == 7, np.nan, 1)},
            "y contains NaN: 1 .*row 7 .*remove",
            id="NaN",
        ),
        pytest.param(
            {"y": np.where(np.arange(60) == 7, np.inf, 1)},
            "y contains infinity.*row 7 ",
            id="infinite",
        ),
        pytest.param(
            {"sample_weight": np.where(np.arange(60) > 57, np.nan, 1)},
            "weight contains NaN: 2 .*row 58 .*fill",
            id="w",
        ),
        pytest.param(
            {"sample_weight": [1, 2, 3]}, r"shape == \(3,\), expected \(60,\)", id="three weights"
        ),
        pytest.param(
            {"X": [["1", "a"]] * 60}, "could not convert string to float: .*'a'", id="text"
        ),
    ],
)
def test_unusable_numbers_are_named(rows, message):
    with pytest.raises(DataError, match=message):
        RVMRegressor(**OPTIONS).fit(**{"X": NUMBERS, "y": np.arange(60), **rows})


@pytest.mark.parametrize("labels", [[3, 7], [True, False], [0.0, 1.0]])
def test_object_labels_of_one_type_get_that_type(labels):
    """The model equals that for the same labels in a typed array."""
    y = np.array(labels)[(np.arange(60) >= 30).astype(int)]
    expected = RVMClassifier(**OPTIONS).fit(NUMBERS, y)
    for objects in (y.astype(object), y.tolist(), pd.Series(y, dtype=object)):
        model = RVMClassifier(**OPTIONS).fit(NUMBERS, objects)
        assert model.classes_.dtype == expected.classes_.dtype
        assert_array_equal(model.predict_proba(NUMBERS), expected.predict_proba(NUMBERS))


@pytest.mark.filterwarnings("ignore:X has feature names")
def test_a_model_of_data_with_dates_predicts_frames(tmp_path):
    """Frames have the columns of the ingested frame; an array, which has no dates, is refused."""
    days = pd.date_range("2020-01-01", periods=60, freq="6h")
    frame = pd.DataFrame({"a": np.arange(60.0), "day": days})
    y = np.sin(2 * np.pi * days.hour / 24) + default_rng(0).normal(0, 0.3, 60)
    data = ingest(frame.assign(y=y), tmp_path / "d.zarr", target="y", shuffle=4, tile_rows=16)
    model = RVMRegressor(**{**OPTIONS, "gamma": "scale"}).fit(data)
    assert (model.n_features_in_, data.n_features) == (2, 6)
    assert_allclose(model.predict(frame.iloc[:, ::-1]), model.predict(data), atol=1e-12)
    with pytest.raises(DataError, match="was trained on dates"):
        model.predict(data.tile(0).X)


@pytest.mark.parametrize("labels", [np.array(["a", "b"] * 20), ["a", "b"] * 20])
def test_labels_given_to_a_regressor_name_the_classifier(labels):
    X = np.arange(40.0)[:, None]
    with pytest.raises(DataError, match="use RVMClassifier"):
        RVMRegressor(gamma=1.0).fit(X, labels)
