"""Files with numbers and dates as people write them are stored as their twins in plain notation
are, bit by bit; and undecidable columns ask."""

import re
import shlex
from datetime import datetime, timedelta

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from by_default import some
from numpy.random import default_rng
from numpy.testing import assert_array_equal

from partirvm.cli import main
from partirvm.data import ZarrSource, ingest
from partirvm.data.date_grammar import DateEvidence, read_dates
from partirvm.data.grammar import read_numbers
from partirvm.data.number_evidence import NumberEvidence
from partirvm.data.shapes import shaped
from partirvm.errors import DataError, UsageError
from partirvm.types import NumberGrammar

N = 60
GERMAN = str.maketrans(",.", ".,")
BLANKS = str.maketrans(",", " ")
RNG = default_rng(0)
AMOUNTS = RNG.uniform(0.01, 2e6, 2 * N).round(2).tolist()
SIGNED = RNG.normal(0, 900, 2 * N).round(2).tolist()
SMALL = RNG.uniform(0, 99, 2 * N).round(1).tolist()
COUNTS = [*RNG.integers(0, 3000, 2 * N - 2).tolist(), 1230, 7]
LARGE = [number * 10**12 + 7 for number in COUNTS]


def grouped(number, digits=2):
    return f"{number:,.{digits}f}"


def suffixed(number):
    """Write a multiple of 100 with k or M."""
    return f"{number / 1e6}M" if number >= 1e6 else f"{number / 1e3}k"


def indian(number):
    whole, _, fraction = f"{number:.2f}".partition(".")
    head, tail = whole[:-3], whole[-3:]
    pairs = [head[max(end - 2, 0) : end] for end in range(len(head), 0, -2)][::-1]
    return ",".join([*pairs, tail]) + f".{fraction}"


def numbers(values, write):
    return [write(value) for value in values], [repr(value) for value in values]


NUMBERS = {
    "dollars": numbers(AMOUNTS, lambda v: "$" + grouped(v)),
    "whole dollars": numbers([round(v) for v in AMOUNTS], lambda v: f"${v:,}"),
    "US$": numbers(AMOUNTS, lambda v: "US$ " + grouped(v)),
    "codes": numbers(AMOUNTS, lambda v: f"CHF {v:.2f}"),
    "negative dollars": numbers(SIGNED, lambda v: f"-${-v:,.2f}" if v < 0 else f"${v:,.2f}"),
    "German": numbers(AMOUNTS, lambda v: grouped(v).translate(GERMAN)),
    "euros after": numbers(AMOUNTS, lambda v: grouped(v).translate(GERMAN) + " €"),
    "French": numbers(AMOUNTS, lambda v: grouped(v).translate(BLANKS).replace(".", ",") + "\u00a0€"),
    "no-break blanks": numbers(AMOUNTS, lambda v: grouped(v).replace(",", "\u202f")),
    "Swiss": numbers(AMOUNTS, lambda v: grouped(v).replace(",", "’")),
    "apostrophes": numbers(AMOUNTS, lambda v: "Fr. " + grouped(v).replace(",", "'")),
    "Indian": numbers(AMOUNTS, lambda v: "₹" + indian(v)),
    "English": numbers(AMOUNTS, grouped),
    "counts": numbers(COUNTS, lambda v: f"{v:,}"),
    "percent": numbers(SMALL, lambda v: f"{v}%"),
    "decimal comma percent": numbers(SMALL, lambda v: f"{v} %".replace(".", ",")),
    "parentheses": numbers(SIGNED, lambda v: f"({-v:.2f})" if v < 0 else f"{v:.2f}"),
    "trailing minus": numbers(SIGNED, lambda v: f"{-v:.2f}-" if v < 0 else f"{v:.2f}"),
    "true minus": numbers(SIGNED, lambda v: f"{v:.2f}".replace("-", "−")),
    "kilograms": numbers(SMALL, lambda v: f"{v} kg"),
    "plural units": numbers([*SMALL[2:], 1.0, 1.0], lambda v: f"{v} hour{'s' * (v != 1)}"),
    "square metres": numbers(SMALL, lambda v: f"{v:.1f} m2"),
    "degrees": numbers(SIGNED, lambda v: f"{v}°C"),
    "decimal comma": numbers(SMALL, lambda v: str(v).replace(".", ",")),
    "comma exponents": numbers(SMALL, lambda v: f"{v:.1f}e0".replace(".", ",")),
    "suffixes": numbers([100.0 * max(v, 1) * 10 ** (v % 4) for v in COUNTS], suffixed),
    "bounds": numbers(SMALL, lambda v: f">{v}" if v > 90 else f"{v}"),
    "at least": numbers(COUNTS, lambda v: f"{v:,}+"),
    "some with a unit": numbers(SMALL, lambda v: f"{v} ml" if v < 80 else f"{v}"),
    "blanks around": numbers(SIGNED, lambda v: f"  {v:+.2f} "),
    "ordinals": numbers(COUNTS, lambda v: f"{v}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(v % 10, 'th') }"),
    "more than 15 digits": numbers(LARGE, lambda v: f"{v:,} m"),
}  # fmt: skip


def csv(path, columns, sep=","):
    pd.DataFrame(columns).to_csv(path, index=False, sep=sep, quoting=1)
    return path


def stored(data):
    tile = data.tile(0)
    return tile.X.tobytes(), tile.t.tobytes()


def twins_of(columns, tmp_path):
    """Return DATA of written columns, of a second file like it, and the same of plain columns.

    Args:
        columns: (written, plain) texts by column name; a column ``y`` is the target
        tmp_path: a folder
    """
    twins = list[ZarrSource]()
    for place, name in enumerate(("written", "plain")):
        table = pd.DataFrame({column: texts[place] for column, texts in columns.items()})
        first = csv(tmp_path / f"{name}.csv", table.iloc[:N])
        second = csv(tmp_path / f"{name}-2.csv", table.iloc[N:])
        data = ingest(first, tmp_path / f"{name}.zarr", target="y", auto=True)
        twins += [data, ingest(second, tmp_path / f"{name}-2.zarr", like=data)]
    return twins


def require_equal_twins(twins):
    """A second file is read with the grammar of the first one."""
    written, second, plain, plain_second = twins
    assert_array_equal(written.tile(0).X, plain.tile(0).X)
    assert stored(written) == stored(plain)
    assert stored(second) == stored(plain_second)


OTHER = [repr(value) for value in (RNG.permutation(2 * N) / 7).tolist()]


def test_written_numbers_are_stored_as_plain_numbers(tmp_path):
    """Each column of one table is written otherwise."""
    twins = twins_of({**NUMBERS, "y": (OTHER, OTHER)}, tmp_path)
    assert twins[0].columns.features == tuple(NUMBERS)
    require_equal_twins(twins)


@pytest.mark.parametrize("kind", some(NUMBERS, {"euros after"}))
def test_a_target_is_read_like_a_feature(kind, tmp_path):
    require_equal_twins(twins_of({"a": (OTHER, OTHER), "y": NUMBERS[kind]}, tmp_path))


START = datetime(2021, 3, 1, 0, 5)
MOMENTS = [START + timedelta(hours=17 * k) for k in range(2 * N)]
DAYS = [START.replace(hour=0, minute=0) + timedelta(days=k) for k in range(2 * N)]
GERMAN_MONTHS = {3: "März", 4: "April", 5: "Mai", 6: "Juni"}
MONTHS = [datetime(2015 + k // 12, 1 + k % 12, 1) for k in range(2 * N)]
MONDAYS = [datetime(2019, 12, 30) + timedelta(weeks=k) for k in range(2 * N)]
TIMES = [START + timedelta(minutes=37 * k) for k in range(2 * N)]


def dates(moments, write, plain="%Y-%m-%d %H:%M:%S"):
    return [write(moment) for moment in moments], [f"{moment:{plain}}" for moment in moments]


DATES = {
    "two formats": dates(MOMENTS, lambda t: f"{t:%d.%m.%Y %H:%M}" if t.day % 2 else f"{t:%Y-%m-%d %H:%M}"),
    "days first": dates(DAYS, lambda t: f"{t:%d/%m/%Y}"),
    "months first": dates(MOMENTS, lambda t: f"{t:%m/%d/%Y %H:%M:%S}"),
    "no zeros": dates(DAYS, lambda t: f"{t.day}.{t.month}.{t.year}"),
    "years of two digits": dates(DAYS, lambda t: f"{t:%m/%d/%y}"),
    "slashes and ISO": dates(DAYS, lambda t: f"{t:%Y/%m/%d}" if t.day % 3 else f"{t:%d-%m-%Y}"),
    "names of months": dates(DAYS, lambda t: f"{t:%d %b %Y}"),
    "American names": dates(MOMENTS, lambda t: f"{t:%B %d, %Y %I:%M %p}"),
    "German names": dates(DAYS, lambda t: f"{t.day}. {GERMAN_MONTHS[t.month]} {t.year}"),
    "weekdays": dates(DAYS, lambda t: f"{t:%a, %d %b %Y}"),
    "zones": dates(MOMENTS, lambda t: f"{t + timedelta(hours=2):%d.%m.%Y %H:%M}+02:00"),
    "two zones": dates(MOMENTS, lambda t: f"{t:%Y-%m-%d %H:%M}Z" if t.day % 2 else f"{t - timedelta(hours=5):%Y-%m-%d %H:%M}-0500"),
    "twelve hours": dates(TIMES, lambda t: f"{t:%I:%M %p}", "%H:%M"),
    "hours of one digit": dates(TIMES, lambda t: f"{t.hour}:{t:%M}", "%H:%M"),
    "months": dates(MONTHS, lambda t: f"{t:%b %Y}"),
    "months after a hyphen": dates(MONTHS, lambda t: f"{t:%B-%Y}"),
    "ISO months": dates(MONTHS, lambda t: f"{t:%Y-%m}"),
    "ISO weeks": dates(MONDAYS, lambda t: f"{t.isocalendar().year}-W{t.isocalendar().week:02}"),
    "quarters": dates(MONTHS[::3] * 3, lambda t: f"{t.year}-Q{t.month // 3 + 1}"),
    "months after slashes": dates(MONTHS, lambda t: f"{t.month}/{t.year}"),
    "Python's durations": dates(TIMES, lambda t: f"0 days, {t.hour}:{t:%M}:{t:%S}", "%H:%M:%S"),
    "quarters first": dates(MONTHS[::3] * 3, lambda t: f"Q{t.month // 3 + 1} {t.year}"),
    "months and short years": dates(MONTHS, lambda t: f"{t:%b-%y}"),
    "eight digits": dates(DAYS, lambda t: f"{t:%Y%m%d}"),
    "times with points": dates(TIMES, lambda t: f"{t:%H.%M.%S}", "%H:%M:%S"),
    "short dates with points": dates(DAYS, lambda t: f"{t:%d.%m.%y}"),
    "points and months first": dates(DAYS, lambda t: f"{t:%d.%m.%y}" if t.day % 2 else f"{t:%m/%d/%Y}"),
    "durations": dates(TIMES, lambda t: f"{t.hour}h {t.minute}m" if t.minute else f"{t.hour}h", "%H:%M"),
    "durations in words": dates(TIMES, lambda t: f"{t.hour} hrs, {t.minute} min", "%H:%M"),
    "milliseconds": dates(MOMENTS, lambda t: f"{t:%d.%m.%Y %H:%M:%S}.000"),
}  # fmt: skip


def test_written_dates_are_stored_as_iso_dates(tmp_path):
    twins = twins_of({**DATES, "y": (OTHER, OTHER)}, tmp_path)
    assert twins[0].columns.dates.keys() == DATES.keys()
    require_equal_twins(twins)


THREE = [f"{k % 9 + 1},{(37 * k) % 900 + 100 + (k % 10 == 0)}" for k in range(N)]
SHORT = [f"{k % 12 + 1:02}/{(k * 5) % 12 + 1:02}/2023" for k in range(N)]
UNDECIDED = {
    "commas": (THREE, ",", 2),
    "commas, semicolons": (THREE, ";", 2),
    "points, semicolons": ([text.replace(",", ".") for text in THREE], ";", 2),
    "euros": (["€" + text.replace(",", ".") for text in THREE], ",", 2),
    "kilograms": ([f"{text} kg" for text in THREE], ",", 2),
    "parentheses": ([f"({text})" for text in THREE], ",", 2),
    "small integers": ([*THREE[1:10], "7", "12"] * 4, ",", 2),
    "days or months": (SHORT, ",", 2),
    "with times": ([f"{text} 10:30" for text in SHORT], ",", 2),
    "hyphens": ([text.replace("/", "-") for text in SHORT], ",", 2),
    "two digits": ([text.replace("/20", "/") for text in SHORT], ",", 2),
    "three orders": ([text.replace("/20", "/").replace("/", "-") for text in SHORT], ",", 2),
    "with ISO dates": ([*SHORT, *["2023-05-17"] * 9], ",", 2),
    "zones in some rows": ([*["2023-05-17 10:00Z"] * 9, *["2023-05-18 10:00"] * 9, "22.04.2023 11:00"], ",", 1),
}  # fmt: skip


OTHER_FLAG = {"--thousands": "--decimal", "--decimal": "--thousands", "--dates": "--dates"}
"""The flag of the second reading, by the flag of the first."""


ASKED = {"commas, semicolons", "euros", "small integers", "with times", "zones in some rows"}


@pytest.mark.parametrize("kind", some(UNDECIDED, ASKED))
def test_an_undecided_column_asks(kind, tmp_path, monkeypatch, capsys):
    """The message shows both readings of an example, and options that settle it."""
    monkeypatch.chdir(tmp_path)
    texts, sep, n_ways = UNDECIDED[kind]
    table = pd.DataFrame({"a": texts, "b": np.arange(len(texts)) / 7, "y": range(len(texts))})
    table.to_csv("t.csv", index=False, sep=sep)
    for option in ([], ["--auto"]):
        command = ["ingest", "t.csv", "d.zarr", "--target", "y", "--quiet", *option]
        assert main(command) == 2
    lines = capsys.readouterr().err.splitlines()
    pasted = shlex.split(lines[-1])[1:]
    assert main([*pasted, "--quiet"]) == 0
    results = {stored(ZarrSource("d.zarr"))}
    if n_ways == 2:
        text = " ".join(" ".join(lines).split())
        assert re.search(r"\(row \d+\) may be ", text)
        place = next(k for k, word in enumerate(pasted) if word in OTHER_FLAG)
        flag = OTHER_FLAG[pasted[place]]
        reading = pasted[place + 1].replace("a=dmy", "a=mdy")
        assert re.search(rf"{flag} '?{re.escape(reading)}", text)  # marks are quoted
        second = [*pasted[:place], flag, reading, *pasted[place + 2 :]]
        assert main([*second, "--overwrite", "--quiet"]) == 0
        results.add(stored(ZarrSource("d.zarr")))
    assert len(results) == n_ways


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["1.974,66", "280,074"], [1974.66, 280.074]),
        (["1.974,66", "280.074"], [1974.66, 280074]),
        (["1,234", "0,234"], [1.234, 0.234]),
        (["1,234", "1,234,567"], [1234, 1234567]),
        (["1,234", "1234,5"], [1.234, 1234.5]),
        (["999", "1,230"], [999, 1230]),
        (["$1,234", "$2,345"], [1234, 2345]),
        (["1,234", "9.5"], [1234, 9.5]),
        (["1.234", "5.678"], [1.234, 5.678]),
        (["1 234,5", "7"], [1234.5, 7]),
        (["1.5", "0.25k", "3M"], [1.5, 250, 3e6]),
        (["1e-3", "2,5E+2"], [0.001, 250]),
    ],
)
def test_the_column_decides_how_a_text_is_read(texts, expected):
    shapes = shaped(pa.array(texts))
    evidence = NumberEvidence()
    evidence.add(shapes, 0)
    decision = evidence.decision()
    assert decision.alternative is None
    values, usable = read_numbers(shapes, decision.grammar)
    assert values.tolist() == expected
    assert usable.all()


def test_the_evidence_of_batches_is_that_of_all_rows():
    texts = [f"{value:,.2f}" for value in AMOUNTS] + ["1,230", "0"]
    whole = NumberEvidence()
    whole.add(shaped(pa.array(texts)), 0)
    batches = NumberEvidence()
    for start in range(0, len(texts), 7):
        batches.add(shaped(pa.array(texts).slice(start, 7)), start)
    assert batches.shapes == whole.shapes
    dates = DateEvidence()
    for start in range(0, N, 7):
        dates.add(shaped(pa.array(SHORT).slice(start, 7)), start)
    assert dates.decision().alternative == "mdy"
    dates.add(shaped(pa.array(["17/04/2023"])), N)
    assert dates.decision().order == "dmy"


def test_durations_may_exceed_a_day():
    texts = shaped(pa.array(["25h 5m", "90 min", "2h 5m 3s"]))
    ticks, usable = read_dates(texts)
    assert usable.all()
    assert ticks.tolist() == [1505 * 60e6, 90 * 60e6, 7503e6]


def test_no_such_dates_are_refused():
    texts = shaped(
        pa.array(["31.04.2023", "29.02.2024", "00.01.2024", "1.13.2024", "1.1.2024 24:00"])
    )
    assert read_dates(texts)[1].tolist() == [False, True, False, False, False]


LATE = [("1,234", "1,5", 1.234), ("1,234", "1,234,567", 1234.0), ("1.234", "1.234,5", 1234.0)]


@pytest.mark.parametrize(("first", "late", "expected"), some(LATE, LATE[:1]))
def test_a_late_row_decides_all_rows(first, late, expected, tmp_path):
    """The first rows, from which kinds are recognised, leave a choice."""
    texts = [first] * 10_500 + [late]
    path = csv(tmp_path / "t.csv", {"a": texts, "b": range(10_501), "y": range(10_501)})
    data = ingest(path, tmp_path / "d.zarr", target="y", shuffle=None)
    assert data.gather([5]).X[0, 0] == expected


def test_a_late_date_decides_all_rows(tmp_path):
    texts = ["03/04/2023"] * 10_500 + ["04/17/2023"]
    path = csv(tmp_path / "t.csv", {"a": texts, "b": range(10_501), "y": range(10_501)})
    data = ingest(path, tmp_path / "d.zarr", target="y", shuffle=None)
    assert data.columns.formats == {"a": "mdy"}
    assert data.gather([5]).X[0, 0] == (datetime(2023, 3, 4) - datetime(2000, 1, 1)).days


CONTRADICTIONS = {
    "decimal mark": ("1.234,50", "1,234.50", "'1,234.50'"),
    "another unit": ("12 kg", "12 km", "'12 km'"),
    "plain, then commas": ("12.5", "12,5", "'12,5'"),
    "days first, then months": ("17/04/2023", "04/17/2023", "'04/17/2023'"),
    "percent, then none": ("12.5%", "12.5", "'12.5'"),
    "dates, then words": ("2023-04-17", "tomorrow", "'tomorrow'"),
}


@pytest.mark.parametrize("kind", CONTRADICTIONS)
def test_a_new_file_written_otherwise_is_refused(kind, tmp_path):
    """The message names the column, the row, the text, and what to do."""
    old, new, message = CONTRADICTIONS[kind]
    rows = {"b": range(20), "y": range(20)}
    first = csv(tmp_path / "t.csv", {"a": [old] * 19 + [old.replace("2", "3")], **rows})
    second = csv(tmp_path / "u.csv", {"a": [old] * 4 + [new] * 16, **rows})
    data = ingest(first, tmp_path / "d.zarr", target="y", exclude=[])
    with pytest.raises(DataError) as caught:
        ingest(second, tmp_path / "e.zarr", like=data)
    text = " ".join(str(caught.value).split())
    assert re.search(rf" a text, not .*{message}", text)
    assert (
        "row 5" in str(caught.value).replace("\n", " ").replace("row  ", "row ") or "row 5" in text
    )
    assert "write them as in the training rows" in text or "correct these cells" in text
    with pytest.raises(DataError, match=message):
        ingest(second, tmp_path / "d.zarr", append=True)


def test_appended_rows_are_read_with_the_stored_grammar(tmp_path):
    """The new rows alone would leave a choice."""
    first = csv(tmp_path / "t.csv", {"a": ["1.234,5", "7,25"], "y": [1, 2]})
    second = csv(tmp_path / "u.csv", {"a": ["1.234", "2.345"], "y": [1, 2]})
    ingest(first, tmp_path / "d.zarr", target="y", shuffle=None)
    data = ingest(second, tmp_path / "d.zarr", append=True)
    assert data.tile(0).X[:, 0].tolist() == [1234.5, 7.25, 1234, 2345]
    assert data.columns.numbers == {"a": NumberGrammar(",", ".")}


def test_numbers_are_never_labels(tmp_path):
    """Of 100 distinct texts, 96 are numbers, and only few rows are there for each."""
    texts = [f"{k}.5 kg" for k in range(96)] + ["none", "a lot", "lost", "see note"]
    table = {"a": texts * 3, "b": range(300), "y": range(300)}
    for kind, source in (("csv", csv(tmp_path / "t.csv", table)), ("frame", pd.DataFrame(table))):
        with pytest.raises(DataError, match="--missing"):
            ingest(source, tmp_path / f"{kind}.zarr", target="y")
        data = ingest(source, tmp_path / f"{kind}.zarr", target="y", auto=True, shuffle=None)
        assert data.columns.categories == {}
        assert data.tile(0).X[:3, 0].tolist() == [0.5, 1.5, 2.5]
        assert np.isnan(data.tile(0).X[96:100, 0]).all()


def test_a_named_column_of_numbers_has_gaps(tmp_path):
    """New files are read alike."""
    table = {"a": ["1,5", "none", "2,5", "much", "0,5", "more"], "y": range(6)}
    path = csv(tmp_path / "t.csv", table)
    data = ingest(path, tmp_path / "d.zarr", target="y", numeric=["a"], shuffle=None)
    assert data.tile(0).X[:, 0].tolist()[::2] == [1.5, 2.5, 0.5]
    assert "missing: 'none', 'much', 'more' in 3 rows" in data.notes["a"]
    again = ingest(path, tmp_path / "e.zarr", like=data, shuffle=None)
    assert stored(again) == stored(data)
    with pytest.raises(UsageError, match="cannot contain both"):
        ingest(path, tmp_path / "f.zarr", target="y", numeric=["a"], categorical=["a"])


def test_typed_text_is_read_like_csv(tmp_path):
    table = pa.table({"a": ["1.234,50 €", "7,25 €"], "y": [1, 2]})
    pq.write_table(table, tmp_path / "t.parquet")
    data = ingest(tmp_path / "t.parquet", tmp_path / "d.zarr", target="y", shuffle=None)
    assert data.tile(0).X[:, 0].tolist() == [1234.5, 7.25]


def test_labels_of_a_target_are_never_gaps(tmp_path):
    stages = ["won", "lost", "", "", "", "", "", "", "", "", "", ""] * 30
    path = csv(tmp_path / "t.csv", {"a": AMOUNTS[:60] * 6, "stage": stages})
    with pytest.raises(DataError, match="--classes --drop-missing-targets") as caught:
        ingest(path, tmp_path / "d.zarr", target="stage")
    assert "--missing" not in str(caught.value)
    data = ingest(path, tmp_path / "d.zarr", target="stage", auto=True)
    assert data.columns.classes == ("lost", "won")
    assert "300 rows without it left out" in data.notes["stage"]


def test_unique_text_is_no_target(tmp_path):
    path = csv(tmp_path / "t.csv", {"a": AMOUNTS[:50], "y": [f"car{k}" for k in range(50)]})
    for auto in (False, True):
        with pytest.raises(DataError) as caught:
            ingest(path, tmp_path / "d.zarr", target="y", auto=auto)
        text = " ".join(str(caught.value).split())
        assert all(f"'car{k}'" in str(caught.value) for k in range(5))
        assert "too many different ones for classes" in text
        assert "--classes" not in text


def test_a_binary_target_says_that_it_is_a_number(tmp_path):
    path = csv(tmp_path / "t.csv", {"a": range(50), "y": [k % 2 for k in range(50)]})
    data = ingest(path, tmp_path / "d.zarr", target="y")
    assert "fitted as a number: for classes pass `--classes`" in data.notes["y"]
    path = csv(tmp_path / "u.csv", {"a": range(50), "y": ["yes", "no"] * 25})
    with pytest.raises(DataError, match="--classes"):
        ingest(path, tmp_path / "e.zarr", target="y")


def test_data_without_features_are_refused(tmp_path):
    path = csv(tmp_path / "t.csv", {"name": [f"car {k}" for k in range(50)], "y": range(50)})
    for auto in (False, True):
        with pytest.raises(DataError, match=r"no feature is left.* in name; "):
            ingest(path, tmp_path / "d.zarr", target="y", auto=auto)
    assert not (tmp_path / "d.zarr").exists()


def test_features_of_like_may_leave_out_categories(tmp_path):
    table = {
        "a": ["u", "v"] * 9,
        "b": range(18),
        "c": ["17/04/2021"] * 17 + ["18/04/2021"],
        "y": range(18),
    }
    data = ingest(csv(tmp_path / "t.csv", table), tmp_path / "d.zarr", target="y")
    part = ingest(tmp_path / "t.csv", tmp_path / "e.zarr", like=data, features=["b"])
    assert part.columns.features == ("b",)


def test_auto_makes_no_category_of_numbers_or_of_too_many_levels(tmp_path):
    table = {
        "rooms": [k % 5 for k in range(60)],
        "name": [f"car {k % 31}" for k in range(60)],
        "y": range(60),
    }
    data = ingest(csv(tmp_path / "t.csv", table), tmp_path / "d.zarr", target="y", auto=True)
    assert data.columns.categories == {}
    assert data.columns.features == ("rooms",)
    assert "left out" in data.notes["name"]


@pytest.mark.parametrize(
    ("texts", "note"),
    [
        (["134 m2", "80 m2", "99 m2"], "numbers with unit m²"),
        (["134 m3", "80 m3", "99 m3"], "numbers with unit m³"),
        (["5", "2", "7"], ""),
        (["5,001", "2", "7"], "numbers with decimal mark '.', thousands separator ','"),
    ],
)
def test_notes_name_marks_that_occur_and_the_power_of_a_unit(texts, note, tmp_path):
    """The separator of the option says nothing about a column without any."""
    table = pa.table({"a": texts * 9, "b": np.arange(27) ** 0.5, "y": np.arange(27) / 7})
    data = ingest(table, tmp_path / "d.zarr", target="y", thousands=",")
    assert data.notes.get("a", "") == note
