"""Data frames are read like the file with the same cells by ``ingest --auto``."""

import decimal

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
ROW = np.arange(2 * N)
Y = (3 * X + RNG.normal(0, 0.1, 2 * N)).round(3)
AMOUNT = 1000 + 500.25 * RNG.permutation(2 * N)
DAYS = pd.Timestamp("2021-03-01") + pd.to_timedelta(RNG.permutation(2 * N) * 5, unit="D")
COLOUR = np.array(["red", "green", "blue"])[ROW % 3]
PLAIN = pd.DataFrame({"x": X})


def euros(amounts):
    """Return amounts with a decimal comma and points between thousands."""
    return [f"{amount:,.2f} €".translate(str.maketrans(",.", ".,")) for amount in amounts]


def polars(frame):
    return pytest.importorskip("polars").DataFrame(frame)


KINDS = {
    "numbers": PLAIN.assign(z=AMOUNT),
    "numbers as text": PLAIN.assign(z=AMOUNT.astype(str)),
    "money": PLAIN.assign(z=[f"${amount:,.2f}" for amount in AMOUNT]),
    "euros": PLAIN.assign(z=euros(AMOUNT)),
    "per cent": PLAIN.assign(z=[f"{100 * x:.1f}%" for x in X]),
    "units": pd.DataFrame({"x": [f"{x} kg" for x in X], "k": ROW % 7}),
    "marks of gaps": PLAIN.assign(z=np.where(ROW % 17 == 3, "?", AMOUNT.astype(str))),
    "mixed objects": PLAIN.assign(z=[("-" if k % 19 == 3 else float(k**2)) for k in ROW]),
    "NA in text": PLAIN.assign(z=np.where(ROW % 11 == 3, "NA", COLOUR)),
    "days first": PLAIN.assign(day=DAYS.strftime("%d/%m/%Y")),
    "months first": PLAIN.assign(day=DAYS.strftime("%m/%d/%Y")),
    "ISO dates": PLAIN.assign(day=DAYS.strftime("%Y-%m-%d")),
    "two formats": PLAIN.assign(
        day=np.where(ROW % 2, DAYS.strftime("%d.%m.%Y %H:%M"), DAYS.strftime("%Y-%m-%d %H:%M"))
    ),
    "datetimes": PLAIN.assign(day=DAYS),
    "time zone": PLAIN.assign(day=DAYS.tz_localize("UTC")),
    "times": PLAIN.assign(at=[f"{k * 7 % 24:02}:{k * 13 % 60:02}" for k in ROW]),
    "objects of text": PLAIN.assign(c=pd.Series(COLOUR, dtype=object)),
    "strings": PLAIN.assign(c=pd.array(COLOUR, dtype="string")),
    "categories": PLAIN.assign(c=pd.Categorical(COLOUR)),
    "yes and no": PLAIN.assign(c=np.where(ROW % 4 == 1, "yes", "no")),
    "true and false": PLAIN.assign(c=ROW % 4 == 1),
    "true and false as text": PLAIN.assign(c=np.where(ROW % 4 == 1, "True", "False")),
    "nullable integers": PLAIN.assign(
        k=pd.array(np.where(ROW % 9, ROW**2 % 50, None), dtype="Int64")
    ),
    "nullable floats": PLAIN.assign(z=pd.array(np.where(ROW % 9, AMOUNT, None), dtype="Float64")),
    "decimals": PLAIN.assign(z=[decimal.Decimal(f"{amount:.2f}") for amount in AMOUNT]),
    "names": PLAIN.assign(name=[f"car {k}" for k in ROW]),
    "row numbers": PLAIN.assign(id=ROW + 1),
    "constant": PLAIN.assign(c=3.0, d="X"),
    "without values": PLAIN.assign(c=np.nan, d=None),
    "infinite": PLAIN.assign(z=np.where(ROW % 13 == 5, np.inf, AMOUNT)),
    "ordinals": PLAIN.assign(rooms=ROW**2 % 7, year=1990 + ROW * 7 % 30, hour=ROW * 5 % 24),
}
LIBRARIES = {
    "polars": (polars, KINDS["days first"].assign(c=COLOUR, z=KINDS["money"]["z"])),
    "arrow": (pa.table, KINDS["days first"].assign(c=COLOUR, z=KINDS["money"]["z"])),
}
CASES = {name: (lambda frame: frame, frame) for name, frame in KINDS.items()} | LIBRARIES

pytestmark = pytest.mark.filterwarnings("ignore::partirvm.errors.PartirvmWarning")


@pytest.mark.parametrize("name", CASES)
def test_a_frame_and_its_file_give_the_same_bits(name, tmp_path):
    """The model predicts a second frame as it predicts a second file."""
    convert, frame = CASES[name]
    for part, rows in (("a", frame[:N].assign(y=Y[:N])), ("b", frame[N:])):
        rows.to_csv(tmp_path / f"{part}.csv", index=False)
    data = ingest(str(tmp_path / "a.csv"), tmp_path / "a.zarr", target="y", auto=True, shuffle=0)
    later = ingest(str(tmp_path / "b.csv"), tmp_path / "b.zarr", like=data, auto=True)
    expected = RVMRegressor(**OPTIONS).fit(data)
    model = RVMRegressor(**OPTIONS).fit(convert(frame[:N]), Y[:N])
    assert model.model_.columns.given == data.columns.given
    assert model.model_.columns.features == data.columns.features
    assert_array_equal(model.predict(convert(frame[:N])), expected.predict(data))
    assert_array_equal(model.predict(convert(frame[N:])), expected.predict(later))
    assert_array_equal(model.model_.predict(convert(frame[N:])), expected.predict(later))


UNDECIDED = {
    "days": (
        PLAIN.assign(day=[f"{1 + k % 12:02}/{1 + k % 11:02}/2023" for k in ROW]),
        {"dates": {"day": "dmy"}},
        {"dates": {"day": "mdy"}},
    ),
    "short years": (
        PLAIN.assign(day=[f"{1 + k % 12}/{1 + k % 11}/23" for k in ROW]),
        {"dates": {"day": "dmy"}},
        {"dates": {"day": "mdy"}},
    ),
    "thousands": (
        PLAIN.assign(z=[f"{1 + k % 9},{100 + 7 * k}" for k in ROW]),
        {"decimal": ",", "thousands": ""},
        {"decimal": ".", "thousands": ","},
    ),
}


@pytest.mark.parametrize("name", UNDECIDED)
def test_undecided_columns_ask_and_an_option_answers(name):
    """The message has the option in Python's words; both answers differ."""
    frame, first, second = UNDECIDED[name]
    with pytest.raises(DataError, match=r"may be .*\n(?s:.*)columns=ColumnOptions\(") as error:
        RVMRegressor(**OPTIONS).fit(frame[:N], Y[:N])
    assert "--" not in str(error.value)
    predictions = []
    for settings in (first, second):
        used = {key: value for key, value in settings.items() if value}
        model = RVMRegressor(**OPTIONS, columns=ColumnOptions(**used))
        predictions.append(model.fit(frame[:N], Y[:N]).model_.design.scaling.mean[1])
    assert predictions[0] != predictions[1]


def test_one_warning_lists_what_was_converted():
    """Plain numbers and labels need none."""
    frame = KINDS["money"].assign(day=KINDS["days first"]["day"], name=KINDS["names"]["name"])
    frame = frame.assign(gap=KINDS["marks of gaps"]["z"], c=COLOUR)[:N]
    with pytest.warns(DataWarning, match="read like a file") as caught:
        RVMRegressor(**OPTIONS).fit(frame, Y[:N])
    messages = [str(warning.message) for warning in caught if "file" in str(warning.message)]
    assert len(messages) == 1
    for text in ("z: numbers with", "day: dates, day first", "name: left out", "gap: ", "'?'"):
        assert text in messages[0]


@pytest.mark.filterwarnings("error::partirvm.errors.DataWarning")
@pytest.mark.parametrize("name", ["numbers", "strings", "categories", "datetimes", "ordinals"])
def test_plain_frames_give_no_warning(name):
    model = RVMRegressor(**OPTIONS).fit(KINDS[name][:N], Y[:N])
    if name == "ordinals":
        assert model.model_.columns.categories == {}


def test_column_options_change_the_reading():
    """Each field has the effect of the option of ``ingest``."""
    frame = pd.DataFrame(
        {
            "x": X,
            "id": ROW,
            "zip": ROW % 5,
            "t": ROW,
            "s": np.where(ROW % 5, AMOUNT.astype(str), "low"),
        }
    )
    options = ColumnOptions(exclude="id", categorical=("auto", "zip"), numeric=["t", "s"])
    model = RVMRegressor(**OPTIONS, columns=options).fit(frame[:N], Y[:N])
    columns = model.model_.columns
    assert columns.given == ("x", "zip", "t", "s")
    assert columns.categories == {"zip": (0, 1, 2, 3, 4)}
    assert model.feature_names_in_.tolist() == ["x", "zip", "t", "s"]
    assert np.isfinite(model.predict(frame[N:])).all()
    none = ColumnOptions(exclude=("id", "t"), missing="low")
    columns = RVMRegressor(**OPTIONS, columns=none).fit(frame[:N], Y[:N]).model_.columns
    assert (columns.given, columns.missing) == (("x", "zip", "s"), ("low",))


def test_classifiers_updates_validation_and_files_read_alike(tmp_path):
    frame = KINDS["days first"].assign(z=KINDS["money"]["z"])
    labels = np.where(Y > 0, "up", "down")
    plain = PLAIN.assign(day=DAYS, z=AMOUNT)
    options = {"gamma": 0.3, "strategy": "basic", "random_state": 0}
    classes = RVMClassifier(**options).fit(frame[:N], labels[:N])
    expected = RVMClassifier(**options).fit(plain[:N], labels[:N])
    assert_array_equal(classes.predict_proba(frame[N:]), expected.predict_proba(plain[N:]))
    assert classes.score(frame[N:], labels[N:]) == expected.score(plain[N:], labels[N:])
    model = RVMRegressor(**OPTIONS, columns=ColumnOptions(dates={"day": "dmy"}))
    model.fit(frame[:N], Y[:N], X_val=frame[N:], y_val=Y[N:])
    save_model(model, tmp_path / "m.rvm")
    again = load_model(tmp_path / "m.rvm")
    assert again.columns == ColumnOptions(dates={"day": "dmy"})
    assert_array_equal(again.predict(frame[N:]), model.predict(frame[N:]))
    parts = RVMRegressor(**OPTIONS).partial_fit(frame[:N], Y[:N]).partial_fit(frame[N:], Y[N:])
    others = RVMRegressor(**OPTIONS).partial_fit(plain[:N], Y[:N]).partial_fit(plain[N:], Y[N:])
    assert_array_equal(parts.predict(frame), others.predict(plain))


def test_columns_with_numbers_for_names_and_lonely_features():
    """The only feature is kept, even if it counts the rows."""
    frame = pd.DataFrame({0: X, 1: 3.0, 2: KINDS["money"]["z"]})
    model = RVMRegressor(**OPTIONS).fit(frame[:N], Y[:N])
    assert model.model_.columns.given == ("x0", "x2")
    assert len(model.predict(frame[N:])) == N
    alone = RVMRegressor(**OPTIONS).fit(pd.DataFrame({"t": ROW[:N]}), Y[:N])
    assert alone.model_.columns.given == ("t",)


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
