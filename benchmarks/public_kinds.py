"""More tables as people write them, in the style of public data: surveys, portals, exports."""

from __future__ import annotations

import csv
import datetime
from typing import Any

import numpy as np

from benchmarks.table_kinds import Start, Table, comma, grouped, kind, separated


def texts(values: Any) -> list[str]:
    """Return values as texts."""
    return [str(value) for value in np.asarray(values).tolist()]


def binned(values: Any, edges: list[int]) -> np.ndarray[Any, Any]:
    """Return the number of the bin of each value."""
    return np.searchsorted(edges, values, "right") - 1


@kind("survey: ages 30-39, yes/no")
def _(table: Table) -> None:
    age = table.rng.integers(20, 80, table.n_rows)
    low = age // 10 * 10
    table.add("age", texts(low + 4.5), [f"{v}-{v + 9}" for v in low])
    table.number("income_k", 10, 99, 0)
    score = age / 20 + table.rng.standard_normal(table.n_rows)
    table.add("smoker", ["yes" if v > np.median(score) else "no" for v in score])
    table.target, table.classes = "smoker", True


@kind("survey: Under 18, 18 to 24, 65 and over")
def _(table: Table) -> None:
    names = ["Under 18", "18 to 24", "25 to 44", "45 to 64", "65 and over"]
    middles = [18, 21, 34.5, 54.5, 65]
    code = table.rng.integers(0, 5, table.n_rows)
    table.add("age group", [str(middles[c]) for c in code], [names[c] for c in code])
    hours = table.number("hours", 0, 50, 0)
    table.answer(code * 3 + hours / 10)


@kind("ratings: 4.5 out of 5")
def _(table: Table) -> None:
    price = table.number("price", 5, 90, 2, lambda v: f"${v}")
    stars = np.round(np.clip(5 - price / 30 + table.rng.normal(0, 0.3, table.n_rows), 1, 5), 1)
    table.add("rating", [str(v / 5) for v in stars.tolist()], [f"{v} out of 5" for v in stars])
    table.target = "rating"


@kind("stars: 4 stars; reviews in quotation marks with line ends", separated(quoting=csv.QUOTE_ALL))
def _(table: Table) -> None:
    stars = table.rng.integers(1, 6, table.n_rows)
    table.add("stars", texts(stars), [f"{v} star{'s' * (v != 1)}" for v in stars.tolist()])
    table.useless(
        "review", [f'Room {k},\nwas "fine"'.replace('"', "'") for k in range(table.n_rows)]
    )
    table.answer(stars * 20, "price", 0)


@kind("apps: 3.4 MB, 512 KB")
def _(table: Table) -> None:
    size = np.round(table.rng.uniform(0.1, 60, table.n_rows), 2)
    kilobytes = np.round(size * 1000)
    small = size < 1
    written = [
        f"{k:.0f} KB" if s else f"{v} MB" for k, v, s in zip(kilobytes, size, small, strict=True)
    ]
    table.add("size", texts(np.where(small, kilobytes / 1000, size)), written)
    table.number("installs", 1000, 90_000, 0, lambda v: f"{v:,}+")
    table.answer(size / 10)


@kind("companies: USD 1.2 million")
def _(table: Table) -> None:
    staff = table.number("employees", 3, 900, 0)
    value = np.round(staff / 50 + table.rng.uniform(0.2, 3, table.n_rows), 1)
    table.add("revenue", texts(value * 1e6), [f"USD {v} million" for v in value])
    table.target = "revenue"


@kind("recipes: 1/2, 1 1/4")
def _(table: Table) -> None:
    quarters = table.rng.integers(1, 12, table.n_rows)
    names = {0: "", 1: "1/4", 2: "1/2", 3: "3/4"}
    written = [f"{q // 4 or ''} {names[q % 4]}".strip() for q in quarters.tolist()]
    table.add("cups", texts(quarters / 4), written)
    minutes = table.number("minutes", 5, 90, 0, lambda v: f"{v} min")
    table.answer(quarters * 100 + minutes, "kcal", 0)


@kind("stations: 52°31'N, 13°24'E")
def _(table: Table) -> None:
    latitude = table.rng.integers(-60 * 60, 60 * 60, table.n_rows)
    longitude = table.rng.integers(0, 170 * 60, table.n_rows)
    table.add(
        "lat",
        texts(latitude / 60),
        [f"{abs(v) // 60}°{abs(v) % 60:02}'{'S' if v < 0 else 'N'}" for v in latitude.tolist()],
    )
    table.add(
        "lon", texts(longitude / 60), [f"{v // 60}°{v % 60:02}'E" for v in longitude.tolist()]
    )
    table.answer(30 - np.abs(latitude) / 120, "temperature", 1, lambda v: f"{v} °C")


@kind("software: versions 1.2.3")
def _(table: Table) -> None:
    codes = table.rng.integers(0, 9, table.n_rows)
    table.add("version", [f"{c // 3 + 1}.{c % 3}.{c % 2}" for c in codes])
    load = table.number("load", 0, 9)
    table.answer(load + codes)


@kind("logs: IP addresses, hexadecimal codes, paths")
def _(table: Table) -> None:
    hosts = table.rng.integers(0, 12, table.n_rows)
    table.add("ip", [f"10.0.{h // 4}.{h}" for h in hosts])
    table.add("flag", [f"0x{h % 5 + 10:02X}" for h in hosts])
    table.label("path", ["/index", "/cart", "/buy"])
    size = table.number("bytes", 100, 90_000, 0)
    table.answer(size / 1000 + hosts, "ms", 1)


@kind("colours: #1F2A3C")
def _(table: Table) -> None:
    table.label("colour", ["#1F2A3C", "#FFFFFF", "#00AA10", "#9B9B9B"])
    area = table.number("area", 1, 90, 1)
    table.answer(area * 3)


@kind(
    "postcodes 01067, Latin-1, semicolons, no target in the middle",
    separated(";", encoding="latin-1"),
)
def _(table: Table) -> None:
    table.label("PLZ", ["01067", "10115", "80331", "04109", "09111"])
    area = table.number("Wohnfläche", 20, 180, 1, comma)
    table.answer(area * 11, "Miete", 2, lambda v: grouped(v, ".", ",", 2))
    table.label("Küche", ["ja", "nein"])


@kind("TRUE/FALSE, the target first")
def _(table: Table) -> None:
    age = np.round(table.rng.uniform(20, 80, table.n_rows))
    member = table.rng.random(table.n_rows) < 0.4
    table.answer(age + 20 * member, "spend", 1)
    table.add("age", texts(age))
    table.add("member", texts(member.astype(int)), ["TRUE" if m else "FALSE" for m in member])


@kind("gaps: unknown, n/a, -, ?")
def _(table: Table) -> None:
    first = table.number("height", 150, 200, 0)
    second = table.number("weight", 50, 120, 0)
    third = table.number("pulse", 50, 110, 0)
    table.gaps("height", "unknown", 0.05)
    table.gaps("weight", "n/a")
    table.gaps("pulse", "-")
    table.label("ward", ["A", "B", "C"])
    table.answer(first + second + third)


@kind("units in the names, byte order mark", separated(encoding="utf-8-sig"))
def _(table: Table) -> None:
    speed = table.number("Wind speed (km/h)", 0, 90, 1)
    table.number("Temp. [°C]", -9, 35, 1)
    table.answer(speed**2 / 100, "Power, kW")


@kind("UTF-16 with tabs and decimal commas", separated("\t", ".txt", encoding="utf-16"))
def _(table: Table) -> None:
    first = table.number("Länge", 1, 9, 2, comma)
    table.label("Material", ["Stahl", "Kupfer"])
    table.answer(first * 2, "Gewicht", 2, comma)


@kind("separators at the ends of the lines", separated(change=lambda t: t.replace("\n", ",\n")))
def _(table: Table) -> None:
    first = table.number("a", 0, 9)
    table.label("b", ["u", "v"])
    table.answer(first * 2)


@kind("equal names, semicolons", separated(";", change=lambda t: t.replace("score2", "score", 1)))
def _(table: Table) -> None:
    first = table.number("score", 0, 9, 1, comma)
    second = table.number("score2", 0, 9, 1, comma)
    table.answer(first - second, "y", 2, comma)


@kind("orders: index, ISO times, Rs. 1,20,000")
def _(table: Table) -> None:
    table.useless("", [str(k) for k in range(table.n_rows)])
    moments = [Start + datetime.timedelta(hours=5 * k) for k in range(table.n_rows)]
    table.add(
        "ordered_at", [m.isoformat(" ") for m in moments], [m.isoformat() + "Z" for m in moments]
    )
    price = np.round(table.rng.uniform(100_000, 990_000, table.n_rows))
    table.add(
        "price",
        texts(price),
        [f"Rs. {int(v) // 100_000},{int(v) // 1000 % 100:02},{int(v) % 1000:03}" for v in price],
    )
    table.answer(price / 1000, "profit", 1)


@kind("300 columns")
def _(table: Table) -> None:
    total = np.zeros(table.n_rows)
    for k in range(299):
        total += table.number(f"v{k}", 0, 9, 1) * (k < 4)
    table.answer(total)


@kind("sex M/F, sparse dummies")
def _(table: Table) -> None:
    male = table.label("sex", ["M", "F"])
    for k in range(12):
        rare = (table.rng.random(table.n_rows) < 0.06).astype(int)
        table.add(f"icd_{k}", texts(rare))
    age = table.number("age", 18, 90, 0)
    table.answer(age + 5 * male, "cost", 1)


@kind("laboratory: 1,5e3", separated(";"))
def _(table: Table) -> None:
    value = np.round(table.rng.uniform(1, 9, table.n_rows), 2)
    table.add("cells", texts(value * 1e3), [comma(v) + "e3" for v in value])
    table.number("pH", 5, 9, 1, comma)
    table.answer(value * 3, "growth", 2, comma)


@kind("trips: two date formats, HH:MM")
def _(table: Table) -> None:
    days = [Start + datetime.timedelta(days=k) for k in range(table.n_rows)]
    table.add(
        "day",
        [f"{d:%Y-%m-%d}" for d in days],
        [f"{d:%d.%m.%Y}" if k % 3 else f"{d:%Y-%m-%d}" for k, d in enumerate(days)],
    )
    minutes = table.rng.integers(0, 1440, table.n_rows)
    table.add("start", [f"{m // 60:02}:{m % 60:02}" for m in minutes])
    table.answer(minutes / 10 + np.arange(table.n_rows) / 5, "fare")


@kind("quarters: 2021-Q3")
def _(table: Table) -> None:
    code = table.rng.integers(0, 32, table.n_rows)
    table.add(
        "period",
        [f"{2014 + c // 4}-{c % 4 * 3 + 1:02}-01" for c in code],
        [f"{2014 + c // 4}-Q{c % 4 + 1}" for c in code],
    )
    rate = table.number("rate", 0, 9, 2, lambda v: f"{v}%")
    table.answer(code + rate, "gdp")


@kind("quarters: Q3 2021")
def _(table: Table) -> None:
    code = table.rng.integers(0, 32, table.n_rows)
    table.add(
        "period",
        [f"{2014 + c // 4}-{c % 4 * 3 + 1:02}-01" for c in code],
        [f"Q{c % 4 + 1} {2014 + c // 4}" for c in code],
    )
    table.number("staff", 5, 90, 0)
    table.answer(code, "sales")


@kind("months: Dec-11")
def _(table: Table) -> None:
    code = table.rng.integers(0, 60, table.n_rows)
    days = [datetime.date(2009 + int(c) // 12, int(c) % 12 + 1, 1) for c in code]
    table.add("issue_d", [f"{d:%Y-%m-%d}" for d in days], [f"{d:%b-%y}" for d in days])
    amount = table.number("amount", 500, 9000, 0)
    table.answer(code * 10 + amount / 100)


@kind("days as 20210315")
def _(table: Table) -> None:
    days = [
        Start + datetime.timedelta(days=int(k)) for k in table.rng.integers(0, 900, table.n_rows)
    ]
    table.add("date", [f"{d:%Y-%m-%d}" for d in days], [f"{d:%Y%m%d}" for d in days])
    value = table.number("demand", 0, 90)
    table.answer(value + [d.toordinal() - Start.toordinal() for d in days])


@kind("blanks in thousands, totals", separated(";", change=lambda t: t + "Gesamt;1 234 567;;\n"))
def _(table: Table) -> None:
    table.label("Land", ["Bayern", "Hessen", "Sachsen"])
    people = table.number("Einwohner", 1000, 900_000, 0, lambda v: grouped(v, "\u00a0"))
    table.number("Quote", 0, 20, 1, lambda v: comma(v) + " %")
    table.answer(people / 1000, "Ausgaben", 1, comma)


@kind("loans: 10+ years, < 1 year, 36 months")
def _(table: Table) -> None:
    years = table.rng.integers(0, 11, table.n_rows)
    names = ["< 1 year", "1 year", *(f"{k} years" for k in range(2, 10)), "10+ years"]
    table.add("emp_length", texts(np.maximum(years, 1)), [names[y] for y in years])
    term = table.rng.choice([36, 60], table.n_rows)
    table.add("term", texts(term), [f" {t} months" for t in term])
    table.label("grade", ["A", "B", "C", "D"])
    table.answer(years + term / 12, "rate", 2, lambda v: f"{v}%")


@kind("salaries: $40K-$60K that overlap")
def _(table: Table) -> None:
    low = table.rng.integers(30, 40, table.n_rows) * 1
    width = table.rng.integers(1, 3, table.n_rows) * 10
    table.add("range", [f"${a}K-${a + w}K" for a, w in zip(low, width, strict=True)])
    table.number("size", 10, 900, 0)
    table.answer(low + width / 2)


@kind("patients: blood pressure 120/80")
def _(table: Table) -> None:
    upper = table.rng.integers(11, 15, table.n_rows) * 10
    lower = table.rng.integers(6, 10, table.n_rows) * 10 + 5
    table.add("pressure", [f"{a}/{b}" for a, b in zip(upper, lower, strict=True)])
    age = table.number("age", 20, 90, 0)
    table.answer(age / 9 + upper / 50 + lower / 50)


@kind("encyclopedia: 1,234,567[a]")
def _(table: Table) -> None:
    people = table.rng.integers(1_000_000, 9_000_000, table.n_rows)
    marks = [f"[{'abc'[k % 3]}]" if k % 4 == 0 else "" for k in range(table.n_rows)]
    table.add(
        "population", texts(people), [f"{p:,}{m}" for p, m in zip(people, marks, strict=True)]
    )
    table.number("area", 1, 90, 1, lambda v: f"{v} km²")
    table.answer(people / 1e5)


@kind("runs: 1:23:45, pace 5:30 /km")
def _(table: Table) -> None:
    seconds = table.rng.integers(3600, 4 * 3600, table.n_rows)
    written = [f"{s // 3600}:{s // 60 % 60:02}:{s % 60:02}" for s in seconds.tolist()]
    table.add("time", [f"0{w}" for w in written], written)
    table.label("club", ["none", "SC", "TV"])
    table.answer(seconds / 60, "place", 0)


@kind("answers: Strongly agree, grade 9th")
def _(table: Table) -> None:
    levels = ["Strongly agree", "Agree", "Neutral", "Disagree", "Strongly disagree"]
    code = table.label("q1", levels)
    grade = table.rng.integers(7, 13, table.n_rows)
    table.add("grade", texts(grade), [f"{g}th" for g in grade])
    table.answer(code + grade, "points", 1)


@kind("flats: 3.5 Zimmer, 2. OG, CHF 1'850.–", separated(";"))
def _(table: Table) -> None:
    rooms = table.rng.integers(2, 12, table.n_rows) / 2
    table.add("Zimmer", texts(rooms), [f"{r} Zimmer" for r in rooms])
    rent = table.rng.integers(800, 4000, table.n_rows)
    table.answer(rooms * 30, "Fläche", 0, lambda v: f"{v} m²")
    table.add("Miete", texts(rent), [f"CHF {grouped(r, chr(39))}.–" for r in rent.tolist()])


@kind("cars: 12,345 miles, 2.0L, 5-speed")
def _(table: Table) -> None:
    miles = table.number("mileage", 1000, 150_000, 0, lambda v: f"{v:,} mi.")
    table.number("engine", 1, 5, 1, lambda v: f"{v}L")
    table.label("gearbox", ["5-speed manual", "6-speed automatic", "8-speed automatic"])
    table.answer(30 - miles / 10_000, "price", 1, lambda v: f"${v}k")
    table.plain["price"] = [repr(float(f"{v}e3")) for v in table.plain["price"]]


@kind("weather: Trace of rain, NW wind")
def _(table: Table) -> None:
    rain = table.number("precip_in", 0, 2, 2)
    table.gaps("precip_in", "T", 0.06)
    table.label("wind", ["N", "NW", "SSE", "Calm"])
    table.number("temp", -20, 100, 0, lambda v: f"{v}°F")
    table.answer(rain * 10)
