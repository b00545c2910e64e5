"""Dates as people write them: a column may mix formats, and whether the day or the month comes
first is decided from all its dates.

The order of a numeric date is "dmy" (day first), "mdy" (month first) or "ymd" (a year of two digits
first). A year of four digits, the name of a month or points between the numbers (day first) leave
no choice.

>>> import pyarrow as pa
>>> from partirvm.data.shapes import shaped
>>> texts = shaped(pa.array(["22.04.2023 21:00", "2023-04-22 21:00", "4/22/23 9 PM"]))
>>> evidence = DateEvidence()
>>> evidence.add(texts, 0)
>>> order = evidence.decision().order
>>> order, (read_dates(texts, order)[0] / 3_600_000_000).tolist()
('mdy', [467277.0, 467277.0, 467277.0])
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import numpy as np

from partirvm.data.shapes import MOST_DIGITS, ShapedTexts, count_digits, shaped
from partirvm.types import Bool, Int

ORDERS = ("dmy", "mdy", "ymd", "hms")
"""Possible orders of day, month and year; and a time of day, as in 18.30.00."""

ORDER_NAMES = {"dmy": "day first", "mdy": "month first", "ymd": "year first", "hms": "a time"}

MONTHS = {
    name: number
    for number, names in enumerate(
        (
            "jan january januar jänner",
            "feb february februar",
            "mar march mär mrz märz",
            "apr april",
            "may mai",
            "jun june juni",
            "jul july juli",
            "aug august",
            "sep sept september",
            "oct october okt oktober",
            "nov november",
            "dec december dez dezember",
        ),
        1,
    )
    for name in names.split()
}
"""Names of months in English and German."""

WEEKDAY = r"(?:(?:mon|tue|wed|thu|fri|sat|sun|mo|di|mi|do|fr|sa|so)[a-z]*[.]?,? +)?"
TIME = (
    r"(?P<h>99?)(?::(?P<min>99)(?::(?P<s>99)(?:[.,](?P<f>9{1,9}))?)?)?"
    r"(?: ?(?P<half>[ap])[.]?m[.]?| uhr)?"
)
ZONE = r" ?(?P<zone>z|utc|gmt|[+-]99(?::?99)?)?"
DATES = tuple(
    re.compile(rf" *{WEEKDAY}{date}(?:(?:t|,? +){TIME}{ZONE})? *", re.IGNORECASE)
    for date in (
        r"(?P<y>9999)(?P<mark>[-/.])(?P<m>99?)(?P=mark)(?P<d>99?)",
        r"(?P<first>99?)(?P<mark>[-/.])(?P<second>99?)(?P=mark)(?P<third>9999|99)",
        r"(?P<d>99?)(?:[.]|st|nd|rd|th)?[ /-]?(?P<name>[^\W\d_]{3,9})[.]?,?[ /-]?(?P<y>9999|99)",
        r"(?P<name>[^\W\d_]{3,9})[.]? (?P<d>99?)(?:st|nd|rd|th)?,? (?P<y>9999)",
        r"(?P<name>[^\W\d_]{3,9})[.]?,?[ /-]?(?P<y>9999)",
        r"(?P<y>9999)-(?P<m>99)",
        r"(?P<m>99?)[/-](?P<y>9999)",
        r"(?P<name>[^\W\d_]{3,9})(?:-| ?['’])(?P<y>99)",
        r"(?P<y>9999)-?w(?P<week>99)",
        r"(?P<y>9999)[ /-]?q(?P<quarter>9)",
        r"q(?P<quarter>9)[ /-]?(?P<y>9999)",
        r"(?P<compact>9999)(?P<m>99)(?P<d>99)",
    )
)
"""Dates, with an optional time, in the shapes of texts."""

TIMES = re.compile(rf" *(?=99?:|99? ?[ap]){TIME} *", re.IGNORECASE)
"""Times of day in the shapes of texts."""

DURATION = re.compile(
    r" *(?=9)(?:(?P<h>9{1,4}) ?h(?:(?:ou)?rs?|std)?[.]?,? *)?"
    r"(?:(?P<min>9{1,4}) ?m(?:in(?:ute)?s?)?[.]?,? *)?"
    r"(?:(?P<s>9{1,4}) ?s(?:ec(?:ond)?s?)?[.]?)? *",
    re.IGNORECASE,
)
"""Durations such as 2h 50m in the shapes of texts."""

ELAPSED = re.compile(rf" *(?P<days>9{{1,6}}) days?,? +{TIME} *", re.IGNORECASE)
"""Durations such as 1 day, 2:03:04 in the shapes of texts."""

PIVOT = 69
"""Years of two digits from here on belong to the 20th century, as in POSIX."""

SECOND = 1_000_000
DAY = 86_400 * SECOND
"""Microseconds of a second and of a day."""


@dataclass(frozen=True)
class DateLayout:
    """The digits of a date in the shape of a text.

    Attributes:
        fields: names and numbers of digits, in the order of the text
        month: number of a month that is written as a name, or 0
        orders: possible orders; empty if there is no choice
        half: "a" or "p" in times of 12 hours, or ""
        zone: "" for no time zone, "+" for UTC and zones east of it, and "-" for zones west of it
        dated: False for a time of day or a duration
        elapsed: True for a duration, which may exceed a day
    """

    fields: tuple[tuple[str, int], ...]
    month: int
    orders: tuple[str, ...]
    half: str
    zone: str
    dated: bool = True
    elapsed: bool = False

    @property
    def has_time(self) -> bool:
        """True if there is a time of day."""
        return any(name == "h" for name, _ in self.fields)

    @property
    def is_open(self) -> bool:
        """True if only the column can tell the order."""
        return len(self.orders) > 1

    def order_in(self, order: str) -> str:
        """Return the order of these dates in a column with this order, or "" if that leaves a
        choice."""
        if order in self.orders:
            return order
        return self.orders[0] if self.orders in (("dmy",), ("dmy", "hms")) else ""

    def is_date(self, order: str) -> bool:
        """Return True for dates, False for times of day, in a column with this order."""
        return self.dated and self.order_in(order) != "hms"

    def values(self, digits: Int) -> dict[str, Int]:
        """Return the fields of the digits of texts (n,), by name."""
        values = dict[str, Int]()
        left = digits
        for name, width in reversed(self.fields):
            left, values[name] = np.divmod(left, 10**width)
        return values


@lru_cache(maxsize=1 << 14)
def layout(shape: str) -> DateLayout | None:
    """Return the layout of the dates or times of a shape, or None for other texts.

    >>> layout("99/99/9999").orders, layout("9 May 9999 99:99").month, layout("9.9")
    (('dmy', 'mdy'), 5, None)
    """
    if count_digits(shape) > MOST_DIGITS:
        return None
    for pattern in DATES:
        match = pattern.fullmatch(shape)
        if match is not None:
            break
    else:
        patterns = (TIMES, ELAPSED, DURATION)
        match = next(filter(None, (pattern.fullmatch(shape) for pattern in patterns)), None)
        return None if match is None else _layout(match, dated=False)
    name = match.groupdict().get("name")
    if name is not None and name.lower() not in MONTHS:
        return None
    return _layout(match, dated=True)


def _layout(match: re.Match[str], *, dated: bool) -> DateLayout:
    """Return the layout of a matched date or time."""
    groups = {name: text for name, text in match.groupdict().items() if text}
    digits = sorted((match.start(name), name, count_digits(text)) for name, text in groups.items())
    fields = tuple((name, width) for _, name, width in digits if width)
    orders: tuple[str, ...] = ()
    if "first" in groups:
        orders = ("dmy",)
        if groups["mark"] != ".":
            may_begin_with_year = groups["mark"] == "-" and len(groups["third"]) == 2
            orders = ORDERS[:3] if may_begin_with_year else ORDERS[:2]
        elif len(groups["third"]) == 2 and "h" not in groups:
            orders = ("dmy", "hms")
    zone = groups.get("zone", "")
    return DateLayout(
        fields,
        MONTHS.get(groups.get("name", "").lower(), 0),
        orders,
        groups.get("half", "").lower(),
        zone and ("-" if zone.startswith("-") else "+"),
        dated,
        elapsed=match.re in (DURATION, ELAPSED),
    )


def read_dates(texts: ShapedTexts, order: str = "") -> tuple[Int, Bool]:
    """Return the microseconds since 1970 in UTC of dates, or since midnight of times, (n,), and
    True for texts that are dates.

    Args:
        texts: the texts
        order: order of day, month and year; "" reads only dates that leave no choice
    """
    ticks = np.zeros(len(texts.codes), np.int64)
    readable = np.zeros(len(texts.codes), bool)
    for shape, rows in texts.rows_by_shape():
        place = layout(shape)
        if place is not None:
            ticks[rows], readable[rows] = _ticks(place, place.values(texts.digits[rows]), order)
    return ticks, readable


def day_of(text: str, order: str) -> str:
    """Return the day of a date as words, if this is the order of day, month and year.

    >>> day_of("03/04/2023", "dmy"), day_of("03/04/2023", "mdy")
    ('3 April 2023', '4 March 2023')
    """
    import pyarrow as pa

    ticks, _ = read_dates(shaped(pa.array([text])), order)
    moment = datetime.fromtimestamp(int(ticks[0]) / SECOND, UTC)
    return f"{moment.day} {moment:%B %Y}"


def _ticks(place: DateLayout, values: Mapping[str, Int], order: str) -> tuple[Int, Bool]:
    """Return the microseconds of dates (n,), and True for those that exist.

    Args:
        place: layout of the dates
        values: fields of the dates by name, (n,)
        order: order of day, month and year
    """
    used = place.order_in(order)
    names = values
    if place.orders:
        if not used:
            return np.zeros_like(values["first"]), np.zeros(len(values["first"]), bool)
        fields = ("h", "min", "s") if used == "hms" else tuple(used)
        parts = map(values.__getitem__, ("first", "second", "third"))
        names = {**values, **dict(zip(fields, parts, strict=True))}
    ticks, usable = _time_ticks(place, names)
    if not place.is_date(order):
        return ticks, usable
    if "compact" in names:
        usable &= (names["compact"] >= 1900) & (names["compact"] < 2100)
    years = names["compact"] if "compact" in names else names["y"]
    widths = dict(place.fields)
    if widths.get("y", widths.get("first" if used == "ymd" else "third")) == 2:
        years = years + np.where(years < PIVOT, 2000, 1900)
    if "week" in names:
        days, exist = _days_of_weeks(years, names["week"])
    else:
        months = names["m"] if "m" in names else np.full_like(years, place.month)
        if "quarter" in names:
            months = 3 * names["quarter"] - 2
        days, exist = _days(years, months, names.get("d", np.ones_like(years)))
    return ticks + days * DAY, usable & exist


def _days_of_weeks(years: Int, weeks: Int) -> tuple[Int, Bool]:
    """Return the Mondays of ISO weeks (n,) in days since 1970, and True for those that exist."""
    fourth, _ = _days(years, np.ones_like(years), np.full_like(years, 4))
    first = fourth - (fourth + 3) % 7
    return first + 7 * (weeks - 1), (weeks >= 1) & (weeks <= 53)


def _days(years: Int, months: Int, days: Int) -> tuple[Int, Bool]:
    """Return the days since 1970 of dates (n,), and True for those that exist."""
    month = (years - 1970) * 12 + np.clip(months, 1, 12) - 1
    first = month.astype("M8[M]").astype("M8[D]").astype(np.int64)
    after = (month + 1).astype("M8[M]").astype("M8[D]").astype(np.int64)
    exist = (months >= 1) & (months <= 12) & (days >= 1) & (days <= after - first)
    return first + days - 1, exist


def _time_ticks(place: DateLayout, values: Mapping[str, Int]) -> tuple[Int, Bool]:
    """Return the microseconds since midnight in UTC of times (n,), and True for those that
    exist."""
    zero = np.zeros_like(next(iter(values.values())))
    hours = values.get("h", zero)
    minutes = values.get("min", zero)
    seconds = values.get("s", zero)
    # 90:15 alone is a time that has passed
    most_hours = 24 if place.dated or place.half else 100
    usable = place.elapsed | ((hours < most_hours) & (minutes < 60) & (seconds < 60))
    if place.half:
        usable &= (hours >= 1) & (hours <= 12)
        hours = hours % 12 + (12 if place.half == "p" else 0)
    hours = hours + 24 * values.get("days", zero)
    ticks = ((hours * 60 + minutes) * 60 + seconds) * SECOND
    widths = dict(place.fields)
    if "f" in values:
        ticks = ticks + values["f"] * SECOND // 10 ** widths["f"]
    if "zone" in values:
        east, minutes_east = np.divmod(values["zone"], 100)
        if widths["zone"] == 2:
            east, minutes_east = values["zone"], zero
        offset = (east * 60 + minutes_east) * 60 * SECOND
        ticks = ticks + offset if place.zone == "-" else ticks - offset
    return ticks, usable


@dataclass
class DateFacts:
    """Facts about the dates of one shape.

    Attributes:
        count: number of texts
        row: row of the example, from 0
        text: an example: the first text, or the first that depends on the order
        unusable: number of texts that are no dates, by order; by "" if there is no choice
        differs: True if the example depends on the order
    """

    count: int
    row: int
    text: str
    unusable: dict[str, int] = field(default_factory=dict)
    differs: bool = False

    def show_difference(self, texts: Any, rows: Int, values: Mapping[str, Int], row: int) -> None:
        """Make a text that depends on the order the example.

        Args:
            texts: Arrow array of texts
            rows: rows of texts of this shape
            values: fields of their dates by name
            row: first row of the texts in the table
        """
        different = np.flatnonzero(values["first"] != values["second"])
        if not self.differs and len(different):
            place = int(rows[different[0]])
            self.row = row + place
            self.text = texts[place].as_py()
            self.differs = True


@dataclass(frozen=True)
class DateDecision:
    """How a column writes its dates.

    Attributes:
        order: order of day, month and year in all dates; "" if no date leaves a choice
        n_read: number of texts that are dates in this order
        n_texts: number of texts
        alternative: another order that is as possible, or ""
        text: a date that the two orders read differently
        row: its row, from 0
        zones: True if dates have time zones; both if only some have
        dated: True for dates, False for times; both if the column has both
    """

    order: str
    n_read: int
    n_texts: int
    alternative: str = ""
    text: str = ""
    row: int = -1
    zones: frozenset[bool] = frozenset()
    dated: frozenset[bool] = frozenset()


class DateEvidence:
    """The shapes of a column's texts, merged over batches: at most ``most`` shapes."""

    def __init__(self, most: int = 10_000) -> None:
        self.shapes = dict[str, DateFacts]()
        self._most = most

    def add(self, texts: ShapedTexts, row: int) -> None:
        """Add a batch of texts that begins at this row."""
        for shape, rows in texts.rows_by_shape():
            facts = self.shapes.get(shape)
            if facts is None:
                if len(self.shapes) >= self._most:
                    continue
                facts = DateFacts(0, row + int(rows[0]), texts.texts[int(rows[0])].as_py())
                self.shapes[shape] = facts
            facts.count += len(rows)
            place = layout(shape)
            is_known = facts.count > len(rows)
            if place is None or (is_known and not place.is_open):
                continue  # only the choice of an order depends on all dates
            values = place.values(texts.digits[rows])
            if place.is_open:
                facts.show_difference(texts.texts, rows, values, row)
            for order in place.orders or ("",):
                usable = _ticks(place, values, order)[1]
                n_unusable = int((~usable).sum())
                facts.unusable[order] = facts.unusable.get(order, 0) + n_unusable

    def decision(self, order: str = "") -> DateDecision:
        """Decide the order of the column's dates; a given ``order`` settles it."""
        dates = {shape: place for shape in self.shapes if (place := layout(shape)) is not None}
        open_shapes = [shape for shape, place in dates.items() if place.is_open]
        orders = [order] if order else self._best_orders(open_shapes)
        best = orders[0] if open_shapes or order else ""
        n_read = 0
        for shape, place in dates.items():
            facts = self.shapes[shape]
            used = place.order_in(best)
            n_read += facts.count - facts.unusable.get(used, facts.count)
        decision = DateDecision(
            best,
            n_read,
            n_texts=sum(facts.count for facts in self.shapes.values()),
            zones=frozenset(place.zone != "" for place in dates.values() if place.has_time),
            dated=frozenset(place.is_date(best) for place in dates.values()),
        )
        if not open_shapes or len(orders) == 1:
            return decision
        facts = max((self.shapes[shape] for shape in open_shapes), key=lambda facts: facts.differs)
        return replace(decision, alternative=orders[1], text=facts.text, row=facts.row)

    def _best_orders(self, shapes: Sequence[str]) -> list[str]:
        """Return the orders in which the fewest texts of these shapes are no dates; of orders that
        read all of them alike, the first."""
        unusable = dict[str, int]()
        for order in ORDERS:
            unusable[order] = sum(self._n_unusable(shape, order) for shape in shapes)
        least = min(unusable.values())
        orders = [order for order in ORDERS if unusable[order] == least]
        if orders[-1] == "hms" and len(orders) > 1:
            orders = orders[:-1]
        places = [place for shape in shapes if (place := layout(shape)) is not None]
        first = dict[tuple[str, ...], str]()
        for order in orders:
            first.setdefault(tuple(place.order_in(order) for place in places), order)
        return list(first.values())

    def _n_unusable(self, shape: str, order: str) -> int:
        """Return the number of texts of a shape that are no dates in this order."""
        facts = self.shapes[shape]
        place = layout(shape)
        used = "" if place is None else place.order_in(order)
        return facts.unusable.get(used, facts.count)
