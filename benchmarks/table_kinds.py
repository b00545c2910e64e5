"""Tables as people write them: small seeded tables of many kinds, each with a plain twin.

The twin has the same rows as numbers, labels and ISO dates in a plain CSV file.
"""

from __future__ import annotations

import csv
import datetime
import gzip
import io
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

Texts = Sequence[str]
Start = datetime.datetime(2021, 3, 1)


@dataclass
class Table:
    """A table as text and as plain values.

    Attributes:
        rng: source of all random values
        n_rows: number of rows
        written: texts by column, as people write them
        plain: texts of the same columns in plain notation; columns without information are missing
        target: the target's name
        classes: True if the target is a class
    """

    rng: np.random.Generator
    n_rows: int
    written: dict[str, list[str]] = field(default_factory=dict)
    plain: dict[str, list[str]] = field(default_factory=dict)
    target: str = "y"
    classes: bool = False

    def add(self, name: str, plain: Texts, written: Texts | None = None) -> None:
        """Add a column."""
        self.plain[name] = list(plain)
        self.written[name] = list(plain if written is None else written)

    def useless(self, name: str, written: Texts) -> None:
        """Add a column that says nothing about the target, and that the twin lacks."""
        self.written[name] = list(written)

    def number(
        self, name: str, low: float, high: float, digits: int = 2, write: Callable[..., str] = str
    ) -> np.ndarray[Any, Any]:
        """Add a column of uniform numbers, written by ``write``; return the numbers."""
        values = np.round(self.rng.uniform(low, high, self.n_rows), digits)
        values = values.astype(int) if digits <= 0 else values
        self.add(name, [str(v) for v in values], [write(v) for v in values.tolist()])
        return values

    def label(self, name: str, levels: Texts) -> np.ndarray[Any, Any]:
        """Add a column of labels; return the numbers of the levels."""
        codes = self.rng.integers(0, len(levels), self.n_rows)
        self.add(name, [levels[code] for code in codes])
        return codes

    def answer(
        self,
        values: Any,
        name: str = "y",
        digits: int = 2,
        write: Callable[..., str] = str,
    ) -> None:
        """Add a numeric target with noise."""
        values = np.asarray(values, float)
        noisy = values + 0.1 * values.std() * self.rng.standard_normal(self.n_rows)
        noisy = np.round(noisy, digits)
        noisy = noisy.astype(int) if digits <= 0 else noisy
        self.target = name
        self.add(name, [str(v) for v in noisy], [write(v) for v in noisy.tolist()])

    def gaps(self, name: str, mark: str, share: float = 0.08) -> None:
        """Replace values of a column by a mark, which is empty in the twin."""
        for row in np.flatnonzero(self.rng.random(self.n_rows) < share):
            self.written[name][row] = mark
            self.plain[name][row] = ""

    def rows(self) -> list[list[str]]:
        """Return the rows as written."""
        return [list(row) for row in zip(*self.written.values(), strict=True)]


@dataclass(frozen=True)
class Kind:
    """A kind of table.

    Attributes:
        name: its name
        fill: function that adds the columns to a table
        write: function that writes a table to a file; its path has no ending
        target: name of the target in the file, if it is another one than in the twin
    """

    name: str
    fill: Callable[[Table], None]
    write: Callable[[Table, Path], Path]
    target: str = ""


def lines(
    table: Table, separator: str = ",", *, header: bool = True, quoting: int = csv.QUOTE_MINIMAL
) -> str:
    """Return a table as separated text."""
    text = io.StringIO()
    writer = csv.writer(text, delimiter=separator, lineterminator="\n", quoting=quoting)  # type: ignore[arg-type]
    if header:
        writer.writerow(table.written)
    writer.writerows(table.rows())
    return text.getvalue()


def stored(path: Path, ending: str, text: str, encoding: str = "utf-8") -> Path:
    """Write a text file and return its path."""
    place = path.with_name(path.name + ending)
    place.write_bytes(text.encode(encoding))
    return place


def separated(
    separator: str = ",",
    ending: str = ".csv",
    encoding: str = "utf-8",
    change: Callable[[str], str] = lambda text: text,
    **options: Any,
) -> Callable[[Table, Path], Path]:
    """Return a function that writes text files.

    Args:
        separator: separator of fields
        ending: ending of the file
        encoding: encoding of the file
        change: change to the whole text
        options: options of ``lines``
    """
    return lambda table, path: stored(
        path, ending, change(lines(table, separator, **options)), encoding
    )


def plain_twin(table: Table, path: Path) -> Path:
    """Write the plain twin of a table."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table.plain)
    writer.writerows(zip(*table.plain.values(), strict=True))
    return stored(path, ".csv", text.getvalue())


KINDS: list[Kind] = []


def kind(
    name: str, write: Callable[[Table, Path], Path] | None = None, target: str = ""
) -> Callable[[Callable[[Table], None]], Callable[[Table], None]]:
    """Return a decorator that registers a kind of table."""

    def register(fill: Callable[[Table], None]) -> Callable[[Table], None]:
        KINDS.append(Kind(name, fill, write or separated(), target))
        return fill

    return register


def grouped(value: float, mark: str = ",", decimal: str = ".", digits: int = 0) -> str:
    """Return a number with thousands separators."""
    text = f"{value:,.{digits}f}"
    return text.replace(",", "\0").replace(".", decimal).replace("\0", mark)


def comma(value: float) -> str:
    """Return a number with a decimal comma."""
    return str(value).replace(".", ",")


def cars(table: Table) -> str:
    """Return lines like those of auto-mpg.data."""
    columns = list(table.written.values())
    return "".join("   ".join(row[:-1]) + f'\t"{row[-1]}"\n' for row in zip(*columns, strict=True))


@kind(
    "auto-mpg: white space, quoted car names, ?, no header",
    lambda table, path: stored(path, ".data", cars(table)),
    target="x1",
)
def _(table: Table) -> None:
    power = np.round(table.rng.uniform(46, 230, table.n_rows), 1)
    weight = np.round(table.rng.uniform(1600, 5100, table.n_rows))
    table.answer(50 - power / 10 - weight / 300, "x1", 1)
    table.label("x2", ["4", "6", "8", "3", "5"])
    table.add("x3", [str(v) for v in power])
    table.gaps("x3", "?", 0.02)
    table.add("x4", [f"{v:.0f}" for v in weight], [f"{v:.0f}." for v in weight])
    makes = table.rng.choice(["ford", "chevrolet", "plymouth"], table.n_rows)
    table.useless("x5", [f"{make} model {k}" for k, make in enumerate(makes)])


@kind(
    "adult: no header, ' ?' gaps, class",
    separated(change=lambda t: t.replace(",", ", "), header=False),
    target="x5",
)
def _(table: Table) -> None:
    age = table.number("x1", 17, 90, 0)
    table.label("x2", ["Private", "State-gov", "Self-emp-not-inc"])
    table.gaps("x2", "?")
    hours = table.number("x3", 1, 99, 0)
    sex = table.label("x4", ["Male", "Female"])
    score = age / 20 + hours / 25 + sex + table.rng.standard_normal(table.n_rows)
    table.add("x5", [">50K" if v > np.median(score) else "<=50K" for v in score])
    table.target, table.classes = "x5", True


@kind(
    "wine: semicolons, quoted names",
    separated(
        ";",
        quoting=csv.QUOTE_NONNUMERIC,
        change=lambda t: "\n".join(
            line if k == 0 else line.replace('"', "") for k, line in enumerate(t.split("\n"))
        ),
    ),
)
def _(table: Table) -> None:
    acid = table.number("volatile acidity", 0.1, 1.2)
    alcohol = table.number("alcohol", 8, 14, 1)
    table.answer(alcohol / 2 - 2 * acid, "quality", 0)


@kind("Seoul bikes: Latin-1, degree signs, day first", separated(encoding="latin-1"))
def _(table: Table) -> None:
    days = [Start + datetime.timedelta(days=k // 4) for k in range(table.n_rows)]
    table.add("Date", [f"{d:%Y-%m-%d}" for d in days], [f"{d:%d/%m/%Y}" for d in days])
    warm = table.number("Temperature(°C)", -15, 35, 1)
    table.number("Dew point temperature(°C)", -30, 25, 1)
    season = table.label("Seasons", ["Winter", "Spring", "Été"])
    table.answer(600 + 20 * warm + 50 * season, "Rented Bike Count", 0)


@kind(
    "Air quality: decimal commas, empty trailing columns and rows, -200",
    separated(";", change=lambda t: t.replace("\n", ";;\n") + ";" * 6 + "\n"),
)
def _(table: Table) -> None:
    moments = [Start + datetime.timedelta(hours=k) for k in range(table.n_rows)]
    table.add("Date", [f"{d:%Y-%m-%d}" for d in moments], [f"{d:%d/%m/%Y}" for d in moments])
    table.add("Time", [f"{d:%H:%M:%S}" for d in moments], [f"{d:%H.%M.%S}" for d in moments])
    sensor = table.number("PT08.S1(CO)", 600, 2000, 0)
    warm = table.number("T", -2, 45, 1, comma)
    table.answer(sensor / 400 + warm / 20, "CO(GT)", 1, comma)


@kind("bank: semicolons, all text quoted, yes/no", separated(";", quoting=csv.QUOTE_ALL))
def _(table: Table) -> None:
    age = table.number("age", 18, 90, 0)
    table.label("job", ["admin.", "blue-collar", "unknown", "self-employed"])
    rate = table.number("euribor3m", 0.6, 5, 3)
    score = age / 30 - rate + table.rng.standard_normal(table.n_rows)
    table.add("y", ["yes" if v > np.median(score) else "no" for v in score])
    table.classes = True


@kind("housing: rupees, area units")
def _(table: Table) -> None:
    area = table.number("area", 400, 5000, 0, lambda v: f"{v:,} sq. ft.")
    rooms = table.number("bedrooms", 1, 6, 0, lambda v: f"{v} BHK")
    table.answer(area * 90 + rooms * 30_000, "price", 0, lambda v: f"₹{v:,}")


@kind("salaries: Not Provided")
def _(table: Table) -> None:
    base = table.number("BasePay", 20_000, 200_000)
    table.number("OvertimePay", 0, 50_000)
    table.gaps("OvertimePay", "Not Provided", 0.03)
    table.label("Status", ["FT", "PT"])
    table.answer(base * 1.3, "TotalPayBenefits")


@kind("flights: 2:35 PM")
def _(table: Table) -> None:
    minutes = table.rng.integers(0, 1440, table.n_rows)
    clock = [Start + datetime.timedelta(minutes=int(m)) for m in minutes]
    texts = [f"{d.hour % 12 or 12}:{d:%M} {'AM' if d.hour < 12 else 'PM'}" for d in clock]
    table.add("departure", [f"{d:%H:%M}" for d in clock], texts)
    miles = table.number("distance", 100, 3000, 0)
    table.answer(miles / 8 + minutes / 60, "delay", 1)


@kind("fares: durations 2h 50m, non-stop")
def _(table: Table) -> None:
    minutes = table.rng.integers(1, 40, table.n_rows) * 5 + 60
    texts = [f"{m // 60}h {m % 60}m" if m % 60 else f"{m // 60}h" for m in minutes]
    table.add("Duration", [str(m / 60) for m in minutes], texts)
    table.label("Total_Stops", ["non-stop", "1 stop", "2 stops"])
    table.answer(minutes * 20 + 3000, "Price", 0)


@kind("Melbourne: day-first dates, prices")
def _(table: Table) -> None:
    days = [
        Start + datetime.timedelta(days=int(k)) for k in table.rng.integers(0, 300, table.n_rows)
    ]
    table.add("Date", [f"{d:%Y-%m-%d}" for d in days], [f"{d.day}/{d:%m/%Y}" for d in days])
    table.label("Type", ["h", "u", "t"])
    far = table.number("Distance", 0, 30, 1)
    table.number("YearBuilt", 1880, 2018, 0)
    table.gaps("YearBuilt", "", 0.3)
    table.answer(1_500_000 - 20_000 * far, "Price", 0, lambda v: f"$ {v:,}")


@kind(
    "Excel export: title lines, totals",
    separated(
        change=lambda t: "Sales report 2023;;\n\n".replace(";", ",") + t + "Total,,1234567.8,\n"
    ),
)
def _(table: Table) -> None:
    table.label("Region", ["North", "South", "West"])
    units = table.number("Units", 1, 900, 0)
    price = table.number("Unit price", 1, 30)
    table.answer(units * price / 10, "Revenue")


@kind("percentages: 12.5%")
def _(table: Table) -> None:
    rate = table.number("int_rate", 5, 25, 2, lambda v: f"{v}%")
    used = table.number("revol_util", 0, 120, 1, lambda v: f"{v}%")
    table.gaps("revol_util", "", 0.02)
    table.answer(rate * 2 + used / 10, "loss", 2, lambda v: f"{v} %")


@kind("German: 31.12.2023, 1.234,56", separated(";", encoding="cp1252"))
def _(table: Table) -> None:
    days = [Start + datetime.timedelta(days=k) for k in range(table.n_rows)]
    table.add("Datum", [f"{d:%Y-%m-%d}" for d in days], [f"{d:%d.%m.%Y}" for d in days])
    amount = table.number("Menge", 500, 9000, 2, lambda v: grouped(v, ".", ",", 2))
    share = table.number("Anteil", 0, 1, 3, comma)
    table.label("Straße", ["Köln", "Zürich", "Graz"])
    table.answer(amount * (1 + share), "Umsatz (€)", 2, lambda v: grouped(v, ".", ",", 2))


@kind("US: 3/14/2021 2:05:00 PM")
def _(table: Table) -> None:
    moments = [Start + datetime.timedelta(hours=7 * k) for k in range(table.n_rows)]
    texts = [
        f"{d.month}/{d.day}/{d.year} {d.hour % 12 or 12}:{d:%M:%S} {'AM' if d.hour < 12 else 'PM'}"
        for d in moments
    ]
    table.add("when", [f"{d:%Y-%m-%d %H:%M:%S}" for d in moments], texts)
    speed = table.number("speed", 0, 90, 1)
    table.answer(speed + np.arange(table.n_rows) / 10, "load")


@kind("epoch seconds")
def _(table: Table) -> None:
    seconds = 1_614_556_800 + table.rng.integers(0, 10**7, table.n_rows)
    table.add("timestamp", [str(v) for v in seconds])
    value = table.number("reading", 0, 5, 3)
    table.answer(value + (seconds - 1_614_556_800) / 1e7, "y", 3)


@kind("epoch milliseconds, scientific notation")
def _(table: Table) -> None:
    millis = 1_614_556_800_000 + table.rng.integers(0, 10**9, table.n_rows) * 10
    table.add("ts", [str(v) for v in millis])
    small = table.rng.uniform(1, 9, table.n_rows).round(3)
    table.add("conc", [repr(float(f"{v}e-7")) for v in small], [f"{v}E-07" for v in small])
    table.answer(small, "y", 3)


@kind("ISO weeks: 2021-W05")
def _(table: Table) -> None:
    days = [
        Start + datetime.timedelta(weeks=int(k)) for k in table.rng.integers(0, 90, table.n_rows)
    ]
    weeks = [d.isocalendar() for d in days]
    table.add("week", [f"{d:%Y-%m-%d}" for d in days], [f"{w.year}-W{w.week:02}" for w in weeks])
    value = table.number("sales", 0, 900, 1)
    table.answer(value * 2)


@kind("months: Mar 2021")
def _(table: Table) -> None:
    days = [
        datetime.date(2019 + int(k) // 12, int(k) % 12 + 1, 1)
        for k in table.rng.integers(0, 40, table.n_rows)
    ]
    table.add("month", [f"{d:%Y-%m-%d}" for d in days], [f"{d:%b %Y}" for d in days])
    value = table.number("visits", 100, 900, 0)
    table.answer(value * 2)


@kind("counts: 1,234 quoted")
def _(table: Table) -> None:
    votes = table.number("votes", 5, 90_000, 0, lambda v: f"{v:,}")
    size = table.number("size", 1000, 999_999, 0, lambda v: f"{v:,}")
    table.answer(votes + size / 100, "installs", 0, lambda v: f"{v:,}+")


@kind("accounts: (1,234.50)")
def _(table: Table) -> None:
    def money(v: float) -> str:
        return f"({-v:,.2f})" if v < 0 else f"{v:,.2f}"

    flow = table.number("cash flow", -5000, 5000, 2, money)
    debt = table.number("debt", 0, 90_000, 2, money)
    table.answer(flow * 2 - debt / 10, "profit", 2, money)


@kind("euros: € 1.234,50", separated("\t", ".tsv"))
def _(table: Table) -> None:
    cost = table.number("Kosten", 100, 9000, 2, lambda v: "€ " + grouped(v, ".", ",", 2))
    table.label("Art", ["A", "B"])
    table.answer(cost * 1.2, "Preis", 2, lambda v: "€ " + grouped(v, ".", ",", 2))


@kind("weights: 12 kg; engines: 1248 CC; 23.4 kmpl")
def _(table: Table) -> None:
    mass = table.number("Weight", 1, 90, 1, lambda v: f"{v} kg")
    size = table.number("Engine", 600, 5000, 0, lambda v: f"{v} CC")
    table.number("Mileage", 8, 30, 1, lambda v: f"{v} kmpl")
    table.answer(mass + size / 50, "Max_power", 1, lambda v: f"{v} bhp")


@kind("heights: 5 ft 11 in")
def _(table: Table) -> None:
    inches = table.rng.integers(58, 80, table.n_rows)
    table.add(
        "height",
        [str(v) for v in (inches / 12).tolist()],
        [f"{v // 12} ft {v % 12} in" for v in inches],
    )
    table.number("weight", 90, 260, 0, lambda v: f"{v}lbs")
    table.answer(inches * 1.5, "reach", 1)


@kind("heights: 5'11\"")
def _(table: Table) -> None:
    inches = table.rng.integers(58, 80, table.n_rows)
    table.add(
        "height",
        [str(v) for v in (inches / 12).tolist()],
        [f"{v // 12}'{v % 12}\"" for v in inches],
    )
    age = table.number("age", 16, 40, 0)
    table.answer(inches * 1.5 + age, "reach", 1)


@kind("bounds: >100")
def _(table: Table) -> None:
    assay = table.number("titre", 1, 120, 1, lambda v: ">100" if v > 100 else str(v))
    table.plain["titre"] = ["100" if v > 100 else str(v) for v in assay.tolist()]
    dose = table.number("dose", 0, 5, 1, lambda v: "<0.5" if v < 0.5 else str(v))
    table.plain["dose"] = ["0.5" if v < 0.5 else str(v) for v in dose.tolist()]
    table.answer(assay + 10 * dose)


@kind("gaps: N/A, -, NULL")
def _(table: Table) -> None:
    first = table.number("a", 0, 9)
    second = table.number("b", 0, 9)
    third = table.number("c", 0, 900, 0)
    table.gaps("a", "N/A")
    table.gaps("b", "-")
    table.gaps("c", "NULL")
    table.answer(first + second + third / 100)


@kind("yes/no features and target")
def _(table: Table) -> None:
    smoker = table.label("smoker", ["yes", "no"])
    age = table.number("age", 18, 64, 0)
    score = age / 20 + 2 * smoker + table.rng.standard_normal(table.n_rows)
    table.add("ill", ["Yes" if v > np.median(score) else "No" for v in score])
    table.target, table.classes = "ill", True


@kind("classes: None is a level")
def _(table: Table) -> None:
    sleep = table.number("sleep", 4, 10, 1)
    stress = table.number("stress", 0, 10, 0)
    names = np.array(["None", "Insomnia", "Apnea"])
    noise = table.rng.standard_normal(table.n_rows)
    table.add(
        "disorder", names[np.clip((stress - sleep + noise + 6) // 5, 0, 2).astype(int)].tolist()
    )
    table.target, table.classes = "disorder", True


@kind("NA is a level of a feature and of the class")
def _(table: Table) -> None:
    area = table.number("area", 50, 900, 0)
    region = table.label("region", ["EU", "AS", "AF"])
    names = np.array(["NA", "Low", "High"])
    noise = table.rng.standard_normal(table.n_rows)
    table.add("zone", names[np.clip((area / 300 + region / 2 + noise), 0, 2).astype(int)].tolist())
    table.target, table.classes = "zone", True


@kind("labels 1 and 2")
def _(table: Table) -> None:
    age = table.number("age", 7, 78, 0)
    dose = table.number("bilirubin", 0.3, 5, 1)
    score = age / 20 + dose + table.rng.standard_normal(table.n_rows)
    table.add("Class", [str(int(v > np.median(score)) + 1) for v in score])
    table.target, table.classes = "Class", True


@kind("zip codes with leading zeros")
def _(table: Table) -> None:
    table.label("zip", ["02139", "10001", "00501", "94103"])
    area = table.number("sqft", 400, 4000, 0)
    table.answer(area / 10)


@kind("telephone numbers and unique ids")
def _(table: Table) -> None:
    phones = table.rng.integers(10**9, 10**10, table.n_rows)
    table.useless("phone", [f"{str(p)[:3]}-{str(p)[3:6]}-{str(p)[6:]}" for p in phones])
    table.useless(
        "customerID", [f"{k * 7919 % 9973:04}-{'ABCDEFG'[k % 7]}XQ" for k in range(table.n_rows)]
    )
    tenure = table.number("tenure", 0, 72, 0)
    table.answer(tenure * 20)


@kind("constant and nearly empty columns")
def _(table: Table) -> None:
    table.useless("Country", ["US"] * table.n_rows)
    table.useless("Over18", ["Y"] * table.n_rows)
    table.useless("StandardHours", ["80"] * table.n_rows)
    table.useless("Notes", [""] * table.n_rows)
    rate = table.number("DailyRate", 100, 1500, 0)
    table.answer(rate / 2)


@kind("duplicated names", separated(change=lambda t: t.replace("value2", "value", 1)))
def _(table: Table) -> None:
    first = table.number("value", 0, 9)
    second = table.number("value2", 0, 9)
    table.answer(first - second)


@kind("Unnamed: 0")
def _(table: Table) -> None:
    table.useless("Unnamed: 0", [str(k) for k in range(table.n_rows)])
    carat = table.number("carat", 0.2, 3)
    table.label("cut", ["Ideal", "Good", "Fair"])
    table.answer(carat * 4000, "price", 0)


@kind("French: thousands blanks", separated(";"))
def _(table: Table) -> None:
    people = table.number("habitants", 200, 90_000, 0, lambda v: grouped(v, "\u202f"))
    income = table.number("revenu", 9000, 40_000, 2, lambda v: grouped(v, " ", ",", 2))
    table.answer(
        people / 100 + income / 100, "impôts", 2, lambda v: grouped(v, "\u00a0", ",", 2) + " €"
    )


@kind("Swiss: apostrophes")
def _(table: Table) -> None:
    rent = table.number("Miete", 600, 5000, 2, lambda v: "CHF " + grouped(v, "'", ".", 2))
    area = table.number("Fläche", 20, 3000, 0, lambda v: grouped(v, "’"))
    table.answer(rent + area, "Wert", 2, lambda v: grouped(v, "'", ".", 2))


@kind("tabs and quotes", separated("\t", ".txt", quoting=csv.QUOTE_ALL))
def _(table: Table) -> None:
    table.label("review", ["good, very", "bad", "so so"])
    value = table.number("rating", 0, 5, 1)
    table.answer(value * 2)


@kind("pipes", separated("|", ".txt"))
def _(table: Table) -> None:
    value = table.number("amount", 0, 500)
    table.label("code", ["A,1", "B,2"])
    table.answer(value / 3)


def packed(table: Table, path: Path) -> Path:
    """Write a table as a gzip file."""
    place = path.with_name(path.name + ".csv.gz")
    place.write_bytes(gzip.compress(lines(table).encode()))
    return place


def zstandard(table: Table, path: Path) -> Path:
    """Write a table as a Zstandard file."""
    import pyarrow as pa

    place = path.with_name(path.name + ".csv.zst")
    with pa.CompressedOutputStream(str(place), "zstd") as file:
        file.write(lines(table).encode())
    return place


def zipped(table: Table, path: Path) -> Path:
    """Write a table as a zip archive."""
    place = path.with_name(path.name + ".zip")
    with zipfile.ZipFile(place, "w") as archive:
        archive.writestr("data.csv", lines(table))
    return place


def simple(table: Table) -> None:
    """Add the columns of a simple table."""
    first = table.number("a", 0, 9)
    second = table.number("b", 0, 9)
    table.label("kind", ["x", "y", "z"])
    table.answer(first * second)


def simple_commas(table: Table) -> None:
    """Add the columns of a simple table with decimal commas."""
    first = table.number("a", 0, 9, 3, comma)
    second = table.number("b", 0, 9, 3, comma)
    table.answer(first * second, "y", 2, comma)


def hive(table: Table, path: Path) -> Path:
    """Write a table as a folder with the year in the names of folders."""
    years = table.written.pop("year")
    head, *rows = lines(table).splitlines()
    table.written["year"] = years
    for year in sorted(set(years)):
        place = path / f"year={year}" / "part-0.csv"
        place.parent.mkdir(parents=True)
        chosen = [row for row, of in zip(rows, years, strict=True) if of == year]
        place.write_text("\n".join([head, *chosen]) + "\n")
    return path


@kind("Hive folders", hive)
def _(table: Table) -> None:
    value = table.number("a", 0, 9)
    years = np.sort(table.rng.integers(2019, 2023, table.n_rows))
    table.answer(value + years - 2019)
    table.add("year", [str(v) for v in years])


def workbook(table: Table, path: Path) -> Path:
    """Write a table as the second sheet of an Excel file."""
    import openpyxl

    book = openpyxl.Workbook()
    book.active.append(["About this file"])
    sheet = book.create_sheet("data")
    sheet.append(list(table.written))
    for row in table.rows():
        sheet.append([typed(text) for text in row])
    place = path.with_name(path.name + ".xlsx")
    book.save(place)
    return place


def typed(text: str) -> Any:
    """Return a cell of a spreadsheet."""
    try:
        return float(text)
    except ValueError:
        return text or None


def open_document(table: Table, path: Path) -> Path:
    """Write a table as an OpenDocument sheet."""
    import pandas as pd

    place = path.with_name(path.name + ".ods")
    rows = [[typed(text) for text in row] for row in table.rows()]
    pd.DataFrame(rows, columns=list(table.written)).to_excel(place, index=False)
    return place


def r_names(text: str) -> str:
    """Return a table as R's write.table writes it: no name above the names of the rows."""
    head, *rows = text.splitlines()
    named = [f'"{k + 1}",{row}' for k, row in enumerate(rows)]
    return "\n".join([head, *named]) + "\n"


def ragged(text: str) -> str:
    """Return a table with one row that is too long."""
    rows = text.splitlines()
    return "\n".join([*rows[:50], rows[50] + ",extra", *rows[50:]]) + "\n"


PACKAGES = {
    "gzip": packed,
    "Zstandard": zstandard,
    "zip": zipped,
    "UTF-16": separated(encoding="utf-16"),
    "byte order mark, CRLF": separated(
        encoding="utf-8-sig", change=lambda text: text.replace("\n", "\r\n")
    ),
    "R: row names": separated(change=r_names),
    "ragged row": separated(change=ragged),
    "white space": separated(" ", ".dat", change=lambda text: "  " + text.replace(" ", "   ")),
    "xlsx with two sheets": workbook,
    "ods": open_document,
    "sep= line of Excel": separated(";", change=lambda text: "sep=;\n" + text),
    "lines of comments": separated(change=lambda text: "# station 7\n# unit: m\n" + text),
}
KINDS += [Kind(name, simple, write) for name, write in PACKAGES.items()]
KINDS.append(Kind("decimal commas and tabs", simple_commas, separated("\t", ".txt")))
KINDS.append(Kind("decimal commas in a comma-separated file", simple_commas, separated()))
