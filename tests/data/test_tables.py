"""Tables with gaps, dates, booleans and text become features, the same for later tables."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from partirvm.data import ingest
from partirvm.data.frame_rows import frame_rows, new_rows
from partirvm.errors import DataError, DataWarning, UnseenLevelWarning

N = 400
TWO_YEARS = pd.Timestamp("2021-01-01 06:00") + pd.to_timedelta(np.arange(N) * 1.9, unit="D")


def messy():
    """Return a table with one column of each kind."""
    number = np.arange(N)
    return pd.DataFrame(
        {
            "Stadt Ü": np.array(["Köln", "Bern", None, "Ulm"], dtype=object)[number % 4],
            "offen": number % 3 == 0,
            "wann": TWO_YEARS.round("min"),
            "gap": np.where(number % 5 == 0, np.nan, number / 7),
            "y": number * 0.5,
        }
    )


def stored(data):
    """Return X of all rows, in the order of the source."""
    tile = data.tile(0)
    order = data.original_rows(0)
    return tile.X[np.argsort(order)]


KINDS = {
    "csv": lambda folder, table: (table.to_csv(folder / "t.csv", index=False), folder / "t.csv")[1],
    "parquet": lambda folder, table: (table.to_parquet(folder / "t.parquet"), folder / "t.parquet")[
        1
    ],
    "pandas": lambda folder, table: table,
}


def expected():
    """Return features by formula: sorted levels, days since 2000, weekly and yearly waves, 0 and
    1."""
    table = messy()
    codes = table["Stadt Ü"].map({"Bern": 0.0, "Köln": 1.0, "Ulm": 2.0})
    days = (table["wann"] - pd.Timestamp("2000-01-01")).dt.total_seconds() / 86400
    waves = [
        wave(2 * np.pi * days / period) for period in (7, 365.2425) for wave in (np.sin, np.cos)
    ]
    return np.column_stack([codes, table["offen"], days, *waves, table["gap"]]).astype(float)


@pytest.mark.parametrize("kind", KINDS)
def test_a_messy_table_needs_only_a_target(kind, tmp_path):
    """The step of 1.9 days is coarser than half a day, so that there is no daily cycle."""
    data = ingest(KINDS[kind](tmp_path, messy()), tmp_path / "d.zarr", target="y")
    assert_allclose(stored(data), expected(), rtol=1e-12, atol=1e-11)
    assert data.columns.given == ("Stadt Ü", "offen", "wann", "gap")
    assert data.columns.categories == {"Stadt Ü": ("Bern", "Köln", "Ulm")}
    assert data.columns.dates == {"wann": ("week", "year")}
    assert data.columns.features[2:5] == (
        "wann",
        "wann (sine of the week)",
        "wann (cosine of the week)",
    )
    assert data.moments.inputs.missing.tolist() == [100, 0, 0, 0, 0, 0, 0, 80]
    assert data.notes == {
        "Stadt Ü": "3 levels of a category; 25.0% of the rows have no value",
        "offen": "true and false, as 1 and 0",
        "wann": "5 features: days since 2000-01-01, sine and cosine of the week, sine and cosine of the year",
        "gap": "20.0% of the rows have no value",
    }


@pytest.mark.parametrize("kind", KINDS)
def test_later_rows_get_the_same_features(kind, tmp_path):
    """Rows to predict and appended rows get the cycles and levels of the training rows."""
    data = ingest(messy(), tmp_path / "d.zarr", target="y", shuffle=None)
    later = messy().head(3).assign(**{"Stadt Ü": ["Bern", "Wien", None]})
    features = np.where(np.arange(8) == 0, [[0.0], [np.nan], [np.nan]], expected()[:3])
    source = KINDS[kind](tmp_path, later.drop(columns="y")[["gap", "wann", "offen", "Stadt Ü"]])
    with pytest.warns(UnseenLevelWarning, match="1 of 3 rows .*'Wien'$"):
        new = ingest(source, tmp_path / "new.zarr", like=data)
    assert_allclose(stored(new), features, rtol=1e-12, atol=1e-11)
    assert new.notes.keys() == {"Stadt Ü", "gap"}
    with pytest.warns(UnseenLevelWarning, match="1 of 3 rows .*'Wien'$"):
        both = ingest(KINDS[kind](tmp_path, later), tmp_path / "d.zarr", append=True)
    assert_allclose(stored(both)[N:], features, rtol=1e-12, atol=1e-11)
    assert both.moments.inputs.missing[0] == 102


def test_frames_with_other_types_and_order_give_the_same_rows():
    """Numbers and dates may be text, types nullable, the order different; errors name missing
    columns."""
    fitted = new_rows(messy().drop(columns="y"))
    rows = fitted.rows
    columns = fitted.columns
    assert_allclose(rows, expected(), rtol=1e-12, atol=1e-11)
    with pytest.warns(DataWarning, match="wann: dates"):
        texts = new_rows(messy().drop(columns="y").astype({"wann": str}))
    assert_array_equal(texts.rows, rows)
    other = (
        messy()
        .iloc[:, ::-1]
        .astype({"wann": str, "offen": "Int64", "gap": "Float64", "Stadt Ü": "category"})
    )
    other["gap"] = other["gap"].astype("string")
    assert_array_equal(frame_rows(other, columns), rows)
    zone = other.assign(wann=TWO_YEARS.round("min").tz_localize("UTC").tz_convert("Asia/Tokyo"))
    assert_array_equal(frame_rows(zone, columns), rows)
    empty, filled = (frame_rows(messy().assign(wann=wann), columns) for wann in (np.nan, TWO_YEARS))
    assert np.isnan(empty[:, 2:7]).all()
    assert_array_equal(empty[:, [0, 1, 7]], filled[:, [0, 1, 7]])
    for wrong, message in [
        (
            other.drop(columns=["gap", "wann"]),
            "lacks columns on which the model was trained: wann, gap",
        ),
        (other.assign(wann=2021), "wann +int64, not dates"),
        (other.assign(gap="many"), "gap +text, not numbers: 'many'"),
        (other.assign(gap=TWO_YEARS), "gap +timestamp.*not numbers"),
    ]:
        with pytest.raises(DataError, match=message):
            frame_rows(wrong, columns)


@pytest.mark.parametrize(
    ("dates", "cycles"),
    [
        (pd.date_range("2020-01-01", periods=60, freq="6h"), ("day", "week")),
        (pd.date_range("2020-01-01", periods=60, freq="h"), ("day",)),
        (pd.date_range("2020-01-01", periods=60, freq="D"), ("week",)),
        (pd.date_range("2000-01-03", periods=120, freq="7D"), ("year",)),
        (pd.date_range("2000-01-01", periods=60, freq="YS"), ()),
        (pd.to_timedelta(np.arange(60) * 6, unit="h"), ()),
    ],
)  # fmt: skip
def test_a_cycle_needs_two_periods_and_a_resolution_below_half_a_period(dates, cycles):
    fitted = new_rows(pd.DataFrame({"a": dates}))
    assert fitted.columns.dates == {"a": cycles}
    origin = pd.Timestamp("2000-01-01") if isinstance(dates, pd.DatetimeIndex) else pd.Timedelta(0)
    assert_allclose(fitted.rows[:, 0], (dates - origin) / pd.Timedelta("1D"), rtol=1e-13)


def test_columns_that_may_be_codes_or_row_numbers_are_reported(tmp_path):
    table = pd.DataFrame(
        {"my id": np.arange(N), "zone": np.arange(N) % 9, "y": np.arange(N) ** 0.5}
    )
    data = ingest(table, tmp_path / "d.zarr", target="y")
    assert data.columns.categories == {}
    assert data.notes == {
        "my id": "only numbers the rows (0, 1, …): perhaps `--exclude 'my id'`",
        "zone": "9 different whole numbers, read as numbers; if they are codes, list it with "
        "auto (the text columns): `--categorical auto,zone`",
    }
    assert list(data.notes) == ["my id", "zone"]
    changed = ingest(
        table, tmp_path / "e.zarr", target="y", categorical=["auto", "zone"], exclude=["my id"]
    )
    assert (changed.columns.features, len(changed.columns.categories["zone"])) == (("zone",), 9)


@pytest.mark.parametrize("classes", [False, True])
def test_rows_without_a_target_are_left_out_on_request(classes, tmp_path):
    """The other rows keep their order and are numbered without gaps."""
    table = (
        messy()
        .drop(columns="wann")
        .assign(y=np.where(np.arange(N) % 4 == 1, np.nan, np.arange(N) // 200))
    )
    options = {"target": "y", "classes": classes}
    with pytest.raises(DataError, match=r"row 2 +--drop-missing-targets"):
        ingest(table, tmp_path / "d.zarr", **options)
    data = ingest(table, tmp_path / "d.zarr", drop_missing_targets=True, **options)
    assert sorted(data.original_rows(0).tolist()) == list(range(300))
    assert_array_equal(stored(data)[:, 2], table["gap"][table["y"].notna()])
    assert data.notes["y"].endswith("100 rows without it left out")


def test_times_of_day_are_days_since_midnight(tmp_path):
    table = tmp_path / "times.csv"
    table.write_text("begins,y\n" + "\n".join(f"{hour:02}:30,{hour}" for hour in range(24)))
    data = ingest(str(table), tmp_path / "d.zarr", target="y", shuffle=None)
    assert_allclose(stored(data)[:, 0], (np.arange(24) + 0.5) / 24, rtol=1e-12)
    assert data.notes["begins"].startswith("days since midnight")
