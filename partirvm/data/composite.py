"""Numbers that consist of several numbers, such as 5 ft 11 in, 52°31'N, 3 1/2, 4.5 out of 5, or
30–39; and units that can be converted into each other.

A sum is in its first unit, a range is read as its middle, and a fraction as its value.

>>> composite("9 ft 99 in").unit, composite("99°99'N").unit, composite("9/9").unit
('ft', '°', 'fraction')
>>> values, _ = composite("9 ft 99 in").values(np.array([511, 600]), (0, 0))
>>> values.round(4).tolist()
[5.9167, 6.0]
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np

from partirvm.data.shapes import MOST_DIGITS, count_digits
from partirvm.types import Bool, Float, Int

RANGE = "range"
FRACTION = "fraction"
"""Units of columns whose numbers are ranges or fractions."""

FAMILIES = (
    {
        "mm": 0.001,
        "cm": 0.01,
        "m": 1.0,
        "km": 1000.0,
        "in": 0.0254,
        "ft": 0.3048,
        "yd": 0.9144,
        "mile": 1609.344,
    },
    {
        "mg": 1e-6,
        "g": 0.001,
        "kg": 1.0,
        "t": 1000.0,
        "oz": 0.45359237 / 16,
        "lb": 0.45359237,
        "st": 0.45359237 * 14,
    },
    {"ml": 0.001, "cl": 0.01, "l": 1.0},
    {
        "byte": 1.0,
        "kb": 1e3,
        "mb": 1e6,
        "gb": 1e9,
        "tb": 1e12,
        "kib": 2.0**10,
        "mib": 2.0**20,
        "gib": 2.0**30,
        "tib": 2.0**40,
    },
    {
        "second": 1.0,
        "minute": 60.0,
        "hour": 3600.0,
        "day": 86_400.0,
        "week": 604_800.0,
        "month": 365.25 * 7200,
        "year": 365.25 * 86_400,
    },
    {"°": 1.0, "′": 1 / 60, "″": 1 / 3600},
)
"""Units by quantity, with their sizes in a common unit."""

ALIASES = {
    "feet": "ft",
    "foot": "ft",
    "inch": "in",
    "inche": "in",
    "yard": "yd",
    "mi": "mile",
    "pound": "lb",
    "ounce": "oz",
    "stone": "st",
    "th": "st",  # "12 st" reads like an ordinal
    "gram": "g",
    "gm": "g",
    "kilo": "kg",
    "kilogram": "kg",
    "meter": "m",
    "metre": "m",
    "tonne": "t",
    "litre": "l",
    "liter": "l",
    "b": "byte",
    "s": "second",
    "sec": "second",
    "min": "minute",
    "h": "hour",
    "hr": "hour",
    "d": "day",
    "wk": "week",
    "mo": "month",
    "mth": "month",
    "mon": "month",
    "y": "year",
    "yr": "year",
    "º": "°",
}
"""Other names of units, in lower case and in the singular."""

FEET = {"'": "ft", "’": "ft", "′": "ft", '"': "in", "”": "in", "″": "in", "''": "in", "’’": "in"}
ARCS = {mark: {"ft": "′", "in": "″"}[unit] for mark, unit in FEET.items()}
"""Meanings of marks after a number: feet and inches or, after degrees, minutes and seconds."""

SMALLER = {
    "yd": "ft",
    "ft": "in",
    "st": "lb",
    "lb": "oz",
    "km": "m",
    "m": "cm",
    "t": "kg",
    "kg": "g",
    "year": "month",
    "month": "day",
    "week": "day",
    "day": "hour",
    "hour": "minute",
    "minute": "second",
    "°": "′",
    "′": "″",
}
"""The unit that may follow a unit in a sum."""

TERM = re.compile(
    r"\s*(?:,\s*|and\s+|&\s*)?(?P<core>9+(?:[.,]9+)?)\s*"
    r"(?P<unit>''|’’|[°º'’′\"”″]|[^\W\d_]+)?[.]?",
    re.IGNORECASE,
)
"""A term of a sum."""

QUOTIENT = re.compile(
    r"\s*(?P<sign>-?)(?:(?P<whole>9+)[ -])?\s*(?P<over>9+(?:[.,]9+)?)\s*"
    r"(?:/|⁄|\bof\b|\bout of\b)\s*(?P<under>9+)\s*(?:stars?|points?|inch|in|\")?\s*",
    re.IGNORECASE,
)
"""A fraction."""

BETWEEN = re.compile(
    r"(?P<low>[^-–—−~]*?9[^-–—−~9]{0,12}?)\s*(?:[-–—−~]|[.][.]+|\bto\b|\bbis\b)\s*(?P<high>.+)",
    re.IGNORECASE,
)
"""A range; each end is a number with its unit."""

BOUND = re.compile(
    r"\s*(?:(?:under|below|less than|up to|over|above|more than|at least|unter|über|ab|bis)\s+"
    r"(?P<after>.*9.*?)|(?P<before>.*9.*?)\s*(?:and|or|&|und)\s+"
    r"(?:over|older|above|more|up|under|younger|below|less|mehr|älter)\.?)\s*",
    re.IGNORECASE,
)
"""A bound in words, such as 65 and over."""

USUAL_UNDERS = frozenset([2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 32, 64, 100])
"""Denominators of fractions; 120/80 is another kind of pair."""

MOST_PAIRS = 500
"""Maximum number of distinct ranges or denominators that are collected."""


@dataclass(frozen=True)
class Composite:
    """A number that consists of several numbers.

    Attributes:
        cores: digits of each number, with their decimal marks
        factors: factor of each number of a sum; for ranges, the powers of ten of k, M, …
        unit: unit of a sum, or ``RANGE`` or ``FRACTION``
        negative: True for negative numbers
    """

    cores: tuple[str, ...]
    factors: tuple[float, ...]
    unit: str
    negative: bool = False

    def numbers(self, digits: Int, decimals: tuple[int, ...]) -> list[Float]:
        """Return each number of texts, (n,).

        Args:
            digits: all digits of each text as one integer, (n,)
            decimals: number of decimals of each number
        """
        numbers = list[Float]()
        left = digits
        places = zip(self.cores, self.factors, decimals, strict=True)
        for core, factor, count in reversed(list(places)):
            left, part = np.divmod(left, 10 ** count_digits(core))
            numbers.append(part / 10.0**count * factor)
        return numbers[::-1]

    def values(self, digits: Int, decimals: tuple[int, ...]) -> tuple[Float, Bool]:
        """Return the values of texts (n,), NaN for impossible ones, and True for possible ones."""
        parts = self.numbers(digits, decimals)
        usable = np.ones(len(digits), bool)
        if self.unit == RANGE:
            usable = parts[0] <= parts[1]
            values = (parts[0] + parts[1]) / 2
        elif self.unit == FRACTION:
            usable = parts[-1] > 0
            with np.errstate(all="ignore"):
                values = parts[-2] / parts[-1]
            values = values + (parts[0] if len(parts) == 3 else 0.0)
        else:
            values = np.sum(parts, axis=0)
        sign = -1.0 if self.negative else 1.0
        return np.where(usable, sign * values, np.nan), usable


@lru_cache(maxsize=1 << 14)
def composite(shape: str) -> Composite | None:
    """Return the sum or fraction in the shape of a text, or None."""
    if not 0 < count_digits(shape) <= MOST_DIGITS:
        return None
    return _fraction(shape) or _sum(shape)


def _fraction(shape: str) -> Composite | None:
    """Return the fraction in the shape of a text, or None."""
    match = QUOTIENT.fullmatch(shape)
    if match is None:
        return None
    cores = tuple(filter(None, match.group("whole", "over", "under")))
    return Composite(cores, (1.0,) * len(cores), FRACTION, negative=bool(match["sign"]))


def _sum(shape: str) -> Composite | None:
    """Return the sum in the shape of a text, or None."""
    text = shape.strip()
    negative = text.startswith(("-", "−"))
    text = text.lstrip("-−")
    cores = list[str]()
    units = list[str]()
    place = 0
    while match := TERM.match(text, place):
        unit = _unit_of_term(match["unit"] or "", units)
        if not unit and text[match.start() - 1] in FEET and count_digits(match["core"]) <= 2:
            unit = SMALLER.get(units[-1], "")  # as in 5'11
        units.append(unit)
        cores.append(match["core"])
        place = match.end()
    side = text[place:].strip().upper()
    has_angle = bool(units) and units[0] == "°"
    if side and not (has_angle and side in ("N", "S", "E", "W")):
        return None
    is_single = len(units) == 1 and (units[0] not in ("ft", "in") or text[-1].isalpha())
    if not units or (is_single and not side) or not _are_parts(units):
        return None
    size = sizes_of(units[0])
    factors = tuple(size[unit] / size[units[0]] for unit in units)
    return Composite(tuple(cores), factors, units[0], negative or side in ("S", "W"))


def _unit_of_term(text: str, before: list[str]) -> str:
    """Return the unit of a term; after degrees, marks are minutes and seconds."""
    marks = ARCS if before and before[0] == "°" else FEET
    return marks.get(text) or plain_unit(text)


def _are_parts(units: list[str]) -> bool:
    """Return True if each unit is a part of the unit before it. Hours, minutes and seconds alone
    are durations (``date_grammar``)."""
    if units[0] in ("hour", "minute", "second") or not sizes_of(units[0]):
        return False
    return all(_is_part(larger, smaller) for larger, smaller in pairwise(units))


def _is_part(larger: str, smaller: str) -> bool:
    """Return True if a unit may follow a larger one in a sum."""
    unit = SMALLER.get(larger, "")
    while unit and unit != smaller:
        unit = SMALLER.get(unit, "")
    return bool(unit)


def range_ends(shape: str) -> tuple[str, ...]:
    """Return the two ends of a range, or nothing.

    >>> range_ends("$9,999 - $9,999"), range_ends("99 to 99 km"), range_ends("9")
    (('$9,999', '$9,999'), ('99', '99 km'), ())
    """
    match = BETWEEN.fullmatch(shape)
    return () if match is None else (match["low"].strip(), match["high"].strip())


def without_bound(shape: str) -> tuple[str, bool]:
    """Return a number without words such as "and over", and True if it has such words.

    >>> without_bound("99 and over"), without_bound("less than 9 km"), without_bound("9")
    (('99', True), ('9 km', True), ('9', False))
    """
    match = BOUND.fullmatch(shape)
    return (shape, False) if match is None else (match["after"] or match["before"], True)


def singular(unit: str) -> str:
    """Return a unit in lower case without spaces, final points and the plural s. The endings of
    ordinals count as one unit.

    >>> singular("Hours"), singular("US$ "), singular("nd")
    ('hour', 'us$', 'th')
    """
    plain = re.sub(r"\s+", "", unit).rstrip(".").lower()
    if plain in ("st", "nd", "rd"):
        return "th"
    has_plural = len(plain) > 2 and plain.endswith("s") and plain[-2] not in "uis"
    return plain[:-1] if has_plural else plain


def plain_unit(unit: str) -> str:
    """Return the usual name of a unit.

    >>> plain_unit("Feet"), plain_unit("lbs."), plain_unit("st"), plain_unit("bhp")
    ('ft', 'lb', 'st', 'bhp')
    """
    name = "st" if unit.lower() == "st" else singular(unit)
    return ALIASES.get(name, name)


def sizes_of(unit: str) -> dict[str, float]:
    """Return the sizes of the units that measure the same quantity, or none."""
    return next((family for family in FAMILIES if unit in family), {})


def ratio(unit: str, expected: str) -> float:
    """Return how many times the expected unit a unit is, or 0 if it is another quantity.

    >>> ratio("kg", "g"), ratio("feet", "ft"), ratio("€", "€"), ratio("kg", "km")
    (1000.0, 1.0, 1.0, 0.0)
    """
    if unit == expected:
        return 1.0
    size = sizes_of(plain_unit(expected))
    return size.get(plain_unit(unit), 0.0) / size[plain_unit(expected)] if size else 0.0


def are_disjoint(ranges: set[tuple[float, float]]) -> bool:
    """Return True for ranges that do not overlap, as classes of ages and sizes: at most their ends
    are equal."""
    order = sorted(ranges)
    return len(order) < MOST_PAIRS and all(
        before[1] <= after[0] for before, after in pairwise(order)
    )


def are_usual(unders: set[float]) -> bool:
    """Return True for the denominators of fractions, or a single one of at most two digits."""
    return unders <= USUAL_UNDERS or (len(unders) == 1 and max(unders) < 100)
