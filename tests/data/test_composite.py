"""Numbers that consist of several numbers, and columns whose numbers nobody can read."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from partirvm.data import ingest
from partirvm.data.grammar import read_numbers
from partirvm.data.shapes import shaped
from partirvm.data.written import are_unknown_numbers, recognise
from partirvm.errors import DataError
from partirvm.types import NumberGrammar

INCH = 1 / 12

READ = {
    "feet and inches": (["5 ft 11 in", "6 ft", "5 ft 2.5 in"], [5 + 11 * INCH, 6, 5 + 2.5 * INCH]),
    "marks": (["5'11\"", "6'", "6' 2\""], [5 + 11 * INCH, 6, 6 + 2 * INCH]),
    "curly marks": (["5’11”", "6’2”"], [5 + 11 * INCH, 6 + 2 * INCH]),
    "primes": (["5′11″", "6′2″"], [5 + 11 * INCH, 6 + 2 * INCH]),
    "no last mark": (["5'11", "6'2"], [5 + 11 * INCH, 6 + 2 * INCH]),
    "words": (["5 feet 11 inches", "1 foot, 1 inch"], [5 + 11 * INCH, 1 + INCH]),
    "pounds": (["6 lb 3 oz", "7 lbs 12 oz"], [6 + 3 / 16, 7.75]),
    "stones": (["11 st 7 lb", "12 st"], [11.5, 12]),
    "metres": (["1 m 80 cm", "2 m"], [1.8, 2]),
    "years": (["2yrs 6mon", "0 years and 3 months"], [2.5, 0.25]),
    "days": (["2 days 3 hours", "1 day"], [2.125, 1]),
    "degrees": (["52°30'N", "33°15'S", "0°0'36\"W"], [52.5, -33.25, -0.01]),
    "decimal degrees": (["52.5° N", "33.9°S"], [52.5, -33.9]),
    "two units": (["1.5 kg", "2 kg", "500 g"], [1.5, 2, 0.5]),
    "bytes": (["3.4 MB", "2 MB", "512 KB", "2M", "800 B"], [3.4, 2, 0.512, 2, 0.0008]),
    "times": (["2 weeks", "3 days", "4 days"], [14, 3, 4]),
    "millions": (["USD 1.2 million", "USD 800,000"], [1.2e6, 8e5]),
    "lakhs": (["42 Lac", "1.4 Cr"], [42e5, 1.4e7]),
    "fractions": (["1/2", "3/4", "1 1/2", "2"], [0.5, 0.75, 1.5, 2]),
    "ratings": (["4.5 out of 5", "3 out of 5"], [0.9, 0.6]),
    "decades": (["30-39", "40-49", "80+", "50–59"], [34.5, 44.5, 80, 54.5]),
    "money": (["$1,000 - $1,999", "$2,000 - $4,999"], [1499.5, 3499.5]),
    "bounds in words": (["65 and over", "18 to 24", "25 to 64"], [65, 21, 44.5]),
    "years of service": (["< 1 year", "3 years", "10+ years"], [1, 3, 10]),
    "no cents": (["CHF 1'850.–", "CHF 900.–"], [1850, 900]),
    "euros without cents": (["850,- €", "1.200,- €", "0,50 €"], [850, 1200, 0.5]),
    "ranges of money": (["$0-$50", "$50-$100", "$100+"], [25, 75, 100]),
    "footnotes": (["1,234[a]", "3,456 [12]", "7,890,123*"], [1234, 3456, 7890123]),
    "thousands": (["1'234", "12'345"], [1234, 12345]),
    "square metres": (["12 m2", "14 m2"], [12, 14]),
}


@pytest.mark.parametrize("kind", READ)
def test_composite_numbers_are_one_number(kind):
    texts, expected = READ[kind]
    reading = recognise(pa.array(texts))
    assert reading.kind == "numbers"
    values, usable = read_numbers(shaped(pa.array(texts)), reading.grammar)
    assert usable.all()
    assert values == pytest.approx(expected, rel=1e-12)


UNREAD = {
    "blood pressures": [f"{120 + k}/{80 - k}" for k in range(30)],
    "scores": ["2-1", "0-3", "1-1", "3-0", "0-0"],
    "telephones": ["555-1234", "555-2345", "556-1234"],
    "versions": ["1.2.3", "1.2.4", "2.0.1"],
    "addresses": ["10.0.0.1", "10.0.0.2", "192.168.0.1"],
    "seasons": ["2019/20", "2020/21"],
    "hexadecimals": ["0x1F", "0x2A", "0x3C"],
    "sizes": ["3x4", "5x7", "8x10"],
    "positions": ["52.5, 13.4", "48.1, 11.6"],
    "days without a year": ["11-Dec", "12-Jan"],
    "remarks": ["12 (est.)", "13 (est.)", "15 (est.)"],
}


@pytest.mark.parametrize("kind", UNREAD)
def test_other_texts_of_numbers_are_recognised_as_unknown(kind):
    texts = UNREAD[kind]
    assert recognise(pa.array(texts)).kind == "labels"
    assert are_unknown_numbers(texts)


@pytest.mark.parametrize(
    "texts", [["1st class", "2nd class"], ["2A", "3B"], ["4-door", "2-seat"], ["x1", "x2"], ["7"]]
)
def test_labels_with_a_number_are_labels(texts):
    assert not are_unknown_numbers(texts)


def test_an_unknown_notation_asks(tmp_path):
    """With ``--auto``, too; a column that is named as categorical does not."""
    texts = np.tile(UNREAD["versions"], 10)
    frame = pd.DataFrame({"v": texts, "y": np.arange(30) / 7})
    for auto in (False, True):
        with pytest.raises(DataError, match="begins with numbers in an unknown") as error:
            ingest(frame, tmp_path / "d.zarr", target="y", auto=auto)
        assert "--categorical auto,v or --exclude v" in str(error.value)
    data = ingest(frame, tmp_path / "d.zarr", target="y", categorical=["v"])
    assert data.columns.categories == {"v": ("1.2.3", "1.2.4", "2.0.1")}


def test_new_rows_are_converted_to_the_unit_of_the_column(tmp_path):
    old = pd.DataFrame({"a": ["5'11\"", "6'2\"", "5'6\""], "y": [1, 2, 3]})
    new = pd.DataFrame({"a": ["72 in", "6 ft", "6'"], "y": [1, 2, 3]})
    data = ingest(old, tmp_path / "d.zarr", target="y")
    assert data.columns.numbers == {"a": NumberGrammar(unit="ft")}
    more = ingest(new, tmp_path / "e.zarr", like=data)
    assert more.tile(0).X[:, 0] == pytest.approx([6, 6, 6], rel=1e-12)


def test_a_target_of_ranges_is_a_class(tmp_path):
    frame = pd.DataFrame({"a": np.arange(40) / 7, "y": ["18-24", "25-34"] * 20})
    data = ingest(frame, tmp_path / "d.zarr", target="y", auto=True)
    assert data.columns.classes == ("18-24", "25-34")


def test_times_that_have_passed_may_exceed_a_day(tmp_path):
    """In minutes and seconds, 90:15 is 90.25 times 0:01:00, whatever the unit of 0:01 is."""
    frame = pd.DataFrame({"a": ["3:30", "90:15", "25:00", "0:01"], "y": [1, 2, 3, 4]})
    data = ingest(frame, tmp_path / "d.zarr", target="y", shuffle=None)
    assert data.tile(0).X[:, 0] * 1440 == pytest.approx([210, 5415, 1500, 1], rel=1e-12)
