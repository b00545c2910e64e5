"""Rows of data frames are those of the file with the same cells, read by ``ingest --auto``."""

import datetime
import decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from by_default import some
from numpy.random import default_rng
from numpy.testing import assert_array_equal

from partirvm import ColumnOptions
from partirvm.data import ingest
from partirvm.data.frame_rows import frame_rows, new_rows
from partirvm.data.frames import pandas_frame
from partirvm.errors import DataError, DataWarning

N = 60
RNG = default_rng(3)
X = RNG.normal(size=2 * N).round(3)
ROW = np.arange(2 * N)
AMOUNT = 1000 + 500.25 * RNG.permutation(2 * N)
DAYS = pd.Timestamp("2021-03-01") + pd.to_timedelta(RNG.permutation(2 * N) * 5, unit="D")
COLOUR = np.array(["red", "green", "blue"])[ROW % 3]
PLAIN = pd.DataFrame({"x": X})


def euros(amounts):
    """Return amounts with a decimal comma and points between thousands."""
    return [f"{amount:,.2f} €".translate(str.maketrans(",.", ".,")) for amount in amounts]


KINDS = {
    "numbers": PLAIN.assign(z=AMOUNT),
    "numbers as text": PLAIN.assign(z=AMOUNT.astype(str)),
    "money": PLAIN.assign(z=[f"${amount:,.2f}" for amount in AMOUNT]),
    "euros": PLAIN.assign(z=euros(AMOUNT)),
    "per cent": PLAIN.assign(z=[f"{100 * x:.1f}%" for x in X]),
    "units": pd.DataFrame({"x": [f"{x} kg" for x in X], "k": ROW % 7}),
    "marks of gaps": PLAIN.assign(z=np.where(ROW % 17 == 3, "?", AMOUNT.astype(str))),
    "numbers and marks": PLAIN.assign(z=[("-" if k % 19 == 3 else float(k**2)) for k in ROW]),
    "dates and texts": PLAIN.assign(
        day=[day if k % 3 else day.strftime("%Y-%m-%d %H:%M") for k, day in zip(ROW, DAYS)]  # noqa: B905
    ),
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
    "times of day": PLAIN.assign(at=[datetime.time(k * 7 % 24, k * 13 % 60) for k in ROW]),
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
    "sparse": PLAIN.assign(z=pd.arrays.SparseArray(np.where(ROW % 9, 0.0, X))),
    "decimals": PLAIN.assign(z=[decimal.Decimal(f"{amount:.2f}") for amount in AMOUNT]),
    "row numbers as text": PLAIN.assign(id=[str(row + 1) for row in ROW]),
    "constant text": PLAIN.assign(c="3.0", d="X"),
    "without values": PLAIN.assign(c=np.nan, d=None),
    "ordinals": PLAIN.assign(rooms=ROW**2 % 7, year=1990 + ROW * 7 % 30, hour=ROW * 5 % 24),
    "ordinals as text": PLAIN.assign(rooms=(ROW**2 % 7).astype(str)),
}


def polars(frame):
    return pytest.importorskip("polars").DataFrame(frame)


LIBRARIES = {"polars": polars, "arrow": pa.table}
MIXED = KINDS["days first"].assign(c=COLOUR, z=KINDS["euros"]["z"], gap=KINDS["marks of gaps"]["z"])
CASES = {
    **{name: (frame, lambda frame: frame) for name, frame in KINDS.items()},
    **{name: (MIXED, convert) for name, convert in LIBRARIES.items()},
}
DEFAULTS = {"euros", "marks of gaps", "days first", "ordinals as text", "polars", "arrow"}

pytestmark = pytest.mark.filterwarnings("ignore:the data frame was read like a file")


def rows_of(data):
    """Return the rows of DATA in the order of its file."""
    return data.tile(0).X[np.argsort(data.original_rows(0))]


@pytest.mark.parametrize("name", some(CASES, DEFAULTS))
def test_a_frame_has_the_rows_and_columns_of_its_file(name, tmp_path):
    """Both for rows of a fit and for rows to predict."""
    frame, convert = CASES[name]
    for part, rows in (("a", frame[:N].assign(y=X[:N])), ("b", frame[N:])):
        rows.to_csv(tmp_path / f"{part}.csv", index=False)
    data = ingest(str(tmp_path / "a.csv"), tmp_path / "a.zarr", target="y", auto=True)
    later = ingest(str(tmp_path / "b.csv"), tmp_path / "b.zarr", like=data, auto=True)
    fitted = new_rows(pandas_frame(convert(frame[:N])))
    assert fitted.columns == data.columns
    assert_array_equal(fitted.rows, rows_of(data))
    assert_array_equal(frame_rows(pandas_frame(convert(frame[N:])), data.columns), rows_of(later))


@pytest.mark.parametrize("dtype", ["int64", "float32", "bool", "Int64", "double[pyarrow]"])
def test_columns_of_numbers_are_kept_as_they_are(dtype):
    """Even if they are constant or count the rows: the user chose them."""
    frame = pd.DataFrame({"constant": 1, "id": ROW, "k": ROW**2 % 3}).astype(dtype)
    fitted = new_rows(frame)
    assert fitted.columns.features == ("constant", "id", "k")
    assert fitted.columns.numbers == fitted.columns.categories == {}
    assert_array_equal(fitted.rows, frame.to_numpy(np.float64))


QUESTIONS = {
    "days": (
        [f"{1 + k % 12:02}/{1 + k % 11:02}/2023" for k in ROW],
        "'12/01/2023' (row 12) may be January or December",
        ({"dates": {"z": "dmy"}}, {"dates": {"z": "mdy"}}),
    ),
    "short years": (
        [f"{1 + k % 12}/{1 + k % 11}/23" for k in ROW],
        "'1/2/23' (row 13) may be February or January",
        ({"dates": {"z": "dmy"}}, {"dates": {"z": "mdy"}}),
    ),
    "thousands": (
        [f"{1 + k % 9},{100 + 7 * k}" for k in ROW[:N]] * 2,
        "'1,100' (row 1) may be 1100 or 1.1;",
        ({"decimal": ","}, {"thousands": ","}),
    ),
    "gaps or labels": (
        np.where(ROW % 5, AMOUNT.astype(str), "low"),
        "text, not numbers: 'low' in 24",
        ({"missing": ("low",)}, {"categorical": ("auto", "z")}),
    ),
    "names": (
        [f"car {k}" for k in ROW],
        "free text or an ID: 120 different texts, 'car 0',",
        ({"exclude": ("z",)}, {"categorical": ("auto", "z")}),
    ),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_undecided_columns_ask_and_an_option_answers(name):
    """The message names the column and offers options of Python; both answers differ."""
    texts, message, answers = QUESTIONS[name]
    frame = PLAIN.assign(z=texts)
    with pytest.raises(DataError) as error:
        new_rows(frame)
    words = " ".join(str(error.value).split())  # of a table whose cells are wrapped
    assert "column found remedy z " in words
    assert set(message.split()) <= set(words.split())
    assert "pass to the estimator: columns=ColumnOptions(" in words
    assert "--" not in words
    readings = [new_rows(frame, ColumnOptions(**answer)) for answer in answers]
    first, second = (reading.rows for reading in readings)
    assert first.shape != second.shape or not np.array_equal(first, second, equal_nan=True)


@pytest.mark.parametrize("z", [np.where(ROW % 13 == 5, np.inf, X), [b"a", b"b"] * N])
def test_columns_of_unusable_values_ask(z):
    """They are not changed or left out without a word."""
    frame = PLAIN.assign(z=z)
    with pytest.raises(DataError, match=r"\nz +(infinite values|binary, not numbers)") as error:
        new_rows(frame)
    assert "columns=ColumnOptions(" in str(error.value)


MEASURED = {
    "numbers": AMOUNT.astype(str),
    "money": KINDS["money"]["z"],
    "euros": KINDS["euros"]["z"],
    "dates": KINDS["ISO dates"]["day"],
}


@pytest.mark.parametrize("name", some(MEASURED, {"numbers", "dates"}))
def test_a_word_among_many_numbers_or_dates_asks(name, tmp_path):
    """A fifth of the rows: missing values or labels. Neither a frame nor a file with ``auto``
    becomes a category of numbers in silence."""
    frame = PLAIN.assign(z=np.where(ROW % 5 == 0, "closed", MEASURED[name]))
    with pytest.raises(DataError) as error:
        new_rows(frame)
    assert "missing=('closed',) or" in str(error.value)
    assert "categorical=('auto', 'z')" in str(error.value)
    frame.assign(y=X).to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(DataError, match="--categorical"):
        ingest(str(tmp_path / "a.csv"), tmp_path / "a.zarr", target="y", auto=True)


def test_words_among_few_numbers_are_labels():
    """Floors of houses, of which some have names."""
    frame = PLAIN.assign(z=np.where(ROW % 5 == 0, "ground", (ROW % 4).astype(str)))
    assert new_rows(frame).columns.categories == {"z": ("0", "1", "2", "3", "ground")}


def test_an_offered_option_keeps_the_options_of_the_user():
    frame = PLAIN.assign(a=[f"car {k}" for k in ROW], b=[f"way {k}" for k in ROW])
    with pytest.raises(DataError, match=r"columns=ColumnOptions\(exclude=\('a', 'b'\)\)"):
        new_rows(frame, ColumnOptions(exclude="a"))


REFUSALS = {
    "decimal marks": (euros(AMOUNT), [f"${amount:,.2f}" for amount in AMOUNT], r"'\$1"),
    "units": ([f"{x} kg" for x in X], [f"{x} g" for x in X], " g'"),
    "numbers": (AMOUNT, [f"${amount:,.2f}" for amount in AMOUNT], r"not numbers: '\$"),
    "words": (AMOUNT, np.where(ROW % 9, AMOUNT.astype(str), "unknown"), "'unknown' in 14"),
    "orders of days": (
        DAYS.strftime("%d/%m/%Y"),
        DAYS.strftime("%m/%d/%Y"),
        r"dates \(day first\)",
    ),
    "dates": (DAYS, DAYS.strftime("%d/%m/%Y"), "not dates: '"),
    "numbers for dates": (DAYS, AMOUNT, "double, not dates"),
    "dates for numbers": (AMOUNT, DAYS, "timestamp.*not numbers"),
}


@pytest.mark.parametrize("name", some(REFUSALS, {"decimal marks", "orders of days", "words"}))
def test_new_frames_of_another_grammar_are_refused(name):
    """The message has the name of the column, a text, and what to do."""
    before, after, message = REFUSALS[name]
    columns = new_rows(PLAIN.assign(z=before)).columns
    with pytest.raises(DataError, match=rf"\nz +(?s:.*){message}") as error:
        frame_rows(PLAIN.assign(z=after), columns)
    words = " ".join(str(error.value).split())  # of a table whose cells are wrapped
    assert "write them as" in words or "correct these cells" in words or "convert" in words


@pytest.mark.parametrize("other", ["ISO dates", "datetimes", "time zone"])
def test_dates_agree_however_they_are_written(other):
    """A model of dates as day/month/year reads the same days in other notations."""
    fitted = new_rows(KINDS["days first"])
    assert_array_equal(frame_rows(KINDS[other], fitted.columns), fitted.rows)


def test_one_warning_lists_what_was_converted():
    frame = MIXED.assign(id=KINDS["row numbers as text"]["id"])
    with pytest.warns(DataWarning, match="read like a file") as caught:
        new_rows(frame)
    assert len(caught) == 1
    message = str(caught[0].message)
    parts = (
        "day: dates, day first",
        "z: numbers with decimal mark ',', thousands separator '.', unit €",
        "gap: numbers, missing where it has '?'",
        "c: a category of 3 levels",
        "id: left out: only numbers the rows (1, 2, …)",
    )
    for part in parts:
        assert part in message


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", ["numbers", "strings", "categories", "datetimes", "ordinals"])
def test_plain_frames_give_no_warning(name):
    """Ordinals keep their order: they are numbers."""
    columns = new_rows(KINDS[name]).columns
    assert set(columns.categories) <= {"c"}


def test_column_options_change_the_reading():
    """Each field has the effect of the option of ``ingest``."""
    low = np.where(ROW % 5, AMOUNT.astype(str), "low")
    frame = PLAIN.assign(id=ROW, zip=ROW % 5, t=[str(k) for k in ROW], s=low)
    options = ColumnOptions(exclude="id", categorical=("auto", "zip"), numeric=["t", "s"])
    columns = new_rows(frame, options).columns
    assert columns.given == ("x", "zip", "t", "s")
    assert columns.categories == {"zip": (0, 1, 2, 3, 4)}
    columns = new_rows(frame, ColumnOptions(exclude=("id", "t"), missing="low")).columns
    assert (columns.given, columns.missing) == (("x", "zip", "s"), ("low",))


def test_columns_with_numbers_for_names_and_lonely_features():
    """The only feature is kept, even if it counts the rows."""
    frame = pd.DataFrame({0: X, 1: "3.0", 2: KINDS["money"]["z"]})
    fitted = new_rows(frame)
    assert fitted.columns.given == ("x0", "x2")
    assert_array_equal(frame_rows(frame, fitted.columns), fitted.rows)
    alone = new_rows(pd.DataFrame({"t": [str(k) for k in ROW]}))
    assert alone.columns.given == ("t",)
