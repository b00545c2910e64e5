"""Estimators read data frames like files, and predict reads them as fit did."""

import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from numpy.random import default_rng
from numpy.testing import assert_array_equal

from partirvm import ColumnOptions, RVMClassifier, RVMRegressor, load_model, save_model
from partirvm.data import ingest
from partirvm.errors import DataError, DataWarning, UsageError

N = 60
OPTIONS = {"gamma": 0.05, "strategy": "basic", "residual": "none", "random_state": 0}
RNG = default_rng(3)
X = RNG.normal(size=2 * N).round(3)
AMOUNT = 1000 + 500.25 * RNG.permutation(2 * N)
DAYS = pd.Timestamp("2021-03-01") + pd.to_timedelta(RNG.permutation(2 * N) * 5, unit="D")
COLOUR = np.array(["red", "green", "blue"])[np.arange(2 * N) % 3]
Y = (3 * X + RNG.normal(0, 0.5, 2 * N)).round(3)
PLAIN = pd.DataFrame({"x": X, "day": DAYS, "z": AMOUNT})
WRITTEN = PLAIN.assign(day=DAYS.strftime("%d/%m/%Y"), z=[f"${amount:,.2f}" for amount in AMOUNT])

pytestmark = pytest.mark.filterwarnings("ignore:the data frame was read like a file")


def polars(frame):
    return pytest.importorskip("polars").DataFrame(frame)


@pytest.mark.parametrize("convert", [pd.DataFrame, polars, pa.table])
def test_a_frame_and_its_file_give_the_same_predictions(convert, tmp_path):
    """To the bit, with ``ingest --auto`` of both files."""
    frame = WRITTEN.assign(c=COLOUR)
    for part, rows in (("a", frame[:N].assign(y=Y[:N])), ("b", frame[N:])):
        rows.to_csv(tmp_path / f"{part}.csv", index=False)
    data = ingest(str(tmp_path / "a.csv"), tmp_path / "a.zarr", target="y", auto=True, shuffle=0)
    later = ingest(str(tmp_path / "b.csv"), tmp_path / "b.zarr", like=data, auto=True)
    expected = RVMRegressor(**OPTIONS).fit(data)
    model = RVMRegressor(**OPTIONS).fit(convert(frame[:N]), Y[:N])
    assert model.feature_names_in_.tolist() == ["x", "day", "z", "c"]
    assert_array_equal(model.predict(convert(frame[:N])), expected.predict(data))
    assert_array_equal(model.predict(convert(frame[N:])), expected.predict(later))
    assert_array_equal(model.model_.predict(convert(frame[N:])), expected.predict(later))


def test_classifiers_read_texts_as_their_numbers():
    labels = np.where(Y > 0, "up", "down")
    options = {"gamma": 0.05, "strategy": "basic", "random_state": 0}
    classes = RVMClassifier(**options).fit(WRITTEN[:N], labels[:N])
    expected = RVMClassifier(**options).fit(PLAIN[:N], labels[:N])
    assert_array_equal(classes.predict_proba(WRITTEN[N:]), expected.predict_proba(PLAIN[N:]))
    assert classes.score(WRITTEN[N:], labels[N:]) == expected.score(PLAIN[N:], labels[N:])


def test_validation_rows_and_stored_models_read_alike(tmp_path):
    model = RVMRegressor(**OPTIONS, columns=ColumnOptions(dates={"day": "dmy"}))
    model.fit(WRITTEN[:N], Y[:N], X_val=WRITTEN[N:], y_val=Y[N:])
    save_model(model, tmp_path / "m.rvm")
    again = load_model(tmp_path / "m.rvm")
    assert again.columns == ColumnOptions(dates={"day": "dmy"})
    assert_array_equal(again.predict(WRITTEN[N:]), model.predict(WRITTEN[N:]))


def test_updates_read_alike():
    parts = RVMRegressor(**OPTIONS).partial_fit(WRITTEN[:N], Y[:N])
    others = RVMRegressor(**OPTIONS).partial_fit(PLAIN[:N], Y[:N])
    parts.partial_fit(WRITTEN[N:], Y[N:])
    others.partial_fit(PLAIN[N:], Y[N:])
    assert_array_equal(parts.predict(WRITTEN), others.predict(PLAIN))


def test_a_fit_warns_once_of_what_was_converted():
    """A prediction does not repeat it."""
    with pytest.warns(DataWarning, match="day: dates, day first.*z: numbers with") as caught:
        model = RVMRegressor(**OPTIONS).fit(WRITTEN[:N], Y[:N])
    assert sum("read like a file" in str(warning.message) for warning in caught) == 1
    with warnings.catch_warnings(record=True) as later:
        warnings.simplefilter("always")
        model.predict(WRITTEN[N:])
    assert not any("read like a file" in str(warning.message) for warning in later)


def test_excluded_columns_are_no_features():
    frame = PLAIN.assign(name=[f"car {k}" for k in range(2 * N)])
    with pytest.raises(DataError, match="free text or an ID"):
        RVMRegressor(**OPTIONS).fit(frame[:N], Y[:N])
    model = RVMRegressor(**OPTIONS, columns=ColumnOptions(exclude="name"))
    model.fit(frame[:N], Y[:N])
    assert model.feature_names_in_.tolist() == ["x", "day", "z"]
    assert_array_equal(model.predict(frame), model.predict(PLAIN))


@pytest.mark.parametrize(
    ("columns", "error", "message"),
    [
        ({"exclude": "id"}, UsageError, "must be None or a ColumnOptions"),
        (ColumnOptions(exclude="id"), DataError, "no column 'id'"),
        (ColumnOptions(decimal=";"), UsageError, "decimal is ';'"),
    ],
)
def test_wrong_options_are_refused(columns, error, message):
    with pytest.raises(error, match=message):
        RVMRegressor(**OPTIONS, columns=columns).fit(PLAIN[:N], Y[:N])
