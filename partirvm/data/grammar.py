"""Numbers as people write them: how a column writes its numbers is decided from the shapes of all
its texts, and is stored as a ``NumberGrammar``.

A text has a sign or parentheses, a currency, digits with separators, an exponent or a suffix such
as k, and a unit. Which marks a column uses is decided by ``data.number_evidence``.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from partirvm.data.composite import (
    RANGE,
    Composite,
    composite,
    plain_unit,
    range_ends,
    ratio,
    singular,
    sizes_of,
    without_bound,
)
from partirvm.data.shapes import (
    MOST_DIGITS,
    ShapedTexts,
    arrow_numbers,
    count_digits,
    filled,
    shaped,
)
from partirvm.types import Bool, Float, Int, NumberGrammar

SIGNS = "$€£¥₹₩₽₺₪₫₴₦₱฿¢"

CODES = (
    "AUD|BRL|CAD|CHF|CNY|CZK|DKK|EUR|GBP|HKD|HUF|IDR|ILS|INR|JPY|KRW|MXN|MYR|NOK|NZD|PHP|PLN|RMB|"
    "RON|RUB|SEK|SGD|THB|TRY|TWD|USD|VND|ZAR|Rs|Fr|kr|zł|Kč|R|US|A|C|NZ|HK|S"
)

CURRENCY = rf"(?:(?i:{CODES})\.?\s*)?[{SIGNS}]|(?i:{CODES.partition('|R|')[0]})\b\.?"
"""Currency before a number: a sign, a code, or both, as in US$."""

DOLLARS = ("$", "us$", "usd", "£", "gbp")
"""Currencies that are never written with a decimal comma and three decimals."""

SCALES = {"k": 3, "K": 3, "M": 6, "G": 9, "B": 9, "bn": 9, "Mio": 6, "Mrd": 9}
"""Suffixes that stand for powers of ten, and their exponents."""

SCALE_WORDS = {
    "thousand": 3,
    "tsd": 3,
    "lac": 5,
    "lakh": 5,
    "million": 6,
    "mln": 6,
    "mn": 6,
    "cr": 7,
    "crore": 7,
    "billion": 9,
    "trillion": 12,
}
"""Words for powers of ten, in lower case and in the singular."""

MINUS = "−–-"

NUMERAL = re.compile(
    rf"\s*(?P<bound>[<>≤≥~≈]=?)?\s*(?P<open>\()?\s*(?P<sign>[+{MINUS}]?)\s*"
    rf"(?P<prefix>{CURRENCY})?\s*(?P<second>[+{MINUS}]?)\s*"
    r"(?P<core>[.,]?9(?:[.,'’_ \u00a0\u2009\u202f]?9)*[.,]?)"
    r"(?P<exponent>[eE][+-]?9{1,3})?"
    rf"(?:\s?(?P<scale>{'|'.join(SCALES)}|(?i:{'|'.join(SCALE_WORDS)})s?)\.?(?![^\W\d_]))?"
    rf"(?P<plus>\+)?\s*(?P<unit>[kcdm]?m9|ft9|mi9|yd9|[%‰°{SIGNS}²³/]|[%‰°{SIGNS}/]?[^\W\d_]"
    rf"(?:[^\W\d_]|[ .%°²³/^·{SIGNS}-]){{0,19}}?)?"
    r"\s*(?P<more>\+)?(?:\s?(?:\[[^\[\]]{1,9}\]|[*†‡]))*"
    rf"\s*(?P<close>\))?\s*(?P<last>[{MINUS}])?\s*"
)
"""A number in the shape of a text."""

NO_CENTS = re.compile(rf"(?<=9)[.,][–—-]{{1,2}}(?=\s*(?:$|[^\W\d_]|[{SIGNS}]))")
"""The end of an amount without cents, such as Fr. 850.– or 850,- €."""

CONSTANTS = {
    "": np.nan,
    "nan": np.nan,
    "inf": np.inf,
    "infinity": np.inf,
    "true": 1.0,
    "false": 0.0,
}
"""Texts without digits that are numbers, in lower case and without a sign."""

THOUSANDS = ("", ",", ".", " ", "'", "_")
PAIRS = tuple((decimal, mark) for decimal in ".," for mark in THOUSANDS if mark != decimal)
"""Possible decimal marks and thousands separators, the plainest first."""

Pair = tuple[str, str]
"""A decimal mark and a thousands separator."""

SUPERSCRIPTS = str.maketrans("23", "²³")
"""The powers of units, as they are shown."""

PLAIN_SHAPE = re.compile(r"[+-]?9*[.]?9*(?:[eE][+-]?9+)?")
"""Shape of a number in plain notation."""

PLAIN = NumberGrammar()
"""Numbers as computers write them."""

EXACT_DIGITS = 15
"""Maximum number of digits of an integer that float64 always represents exactly."""

ONE_SEPARATOR = re.compile("9{1,3}[.,]9{3}")
"""A number that may be in thousands or have three decimals."""


@dataclass(frozen=True)
class Numeral:
    """A number in the shape of a text.

    Attributes:
        core: digits with separators
        start: position of the core in the shape
        exponent: exponent as written, such as "e9"
        negative: True if the number has a minus sign or is in parentheses
        suffix: suffix that stands for a power of ten, such as "k"; "" for none
        unit: unit or currency, in lower case and in the singular
        bound: True for a bound such as >100 or 1000+
        extra: number of digits after the core
        composite: the numbers of which the number consists, or None
    """

    core: str
    start: int
    exponent: str
    negative: bool
    suffix: str
    unit: str
    bound: bool
    extra: int
    composite: Composite | None = None

    @property
    def scale(self) -> int:
        """The exponent of the suffix, 3 for k."""
        word = self.suffix.lower().removesuffix("s")
        return SCALES.get(self.suffix, SCALE_WORDS.get(word, 0))

    def in_column(self, unit: str) -> "Numeral":
        """Return the number in a column with this unit. In a column of MB, a suffix M means MB."""
        if not self.suffix or self.unit or "byte" not in sizes_of(plain_unit(unit)):
            return self
        letter = self.suffix.lower()
        return replace(self, suffix="", unit="byte" if letter == "b" else f"{letter}b")


@lru_cache(maxsize=1 << 14)
def numeral(shape: str) -> Numeral | None:
    """Return the number in the shape of a text, or None.

    >>> numeral("(€9,999.99)").unit, numeral("9.9 hours").unit, numeral("9x9")
    ('€', 'hour', None)
    >>> numeral("9 ft 99 in").unit, numeral("99-99 years").unit, numeral("99 and over").bound
    ('ft', 'range', True)
    """
    shape = NO_CENTS.sub("", shape)
    parts = composite(shape)
    if parts is not None:
        return _composed(parts, shape)
    plain, bound = without_bound(shape)
    number = _numeral(plain)
    if number is not None:
        start = number.start + shape.index(plain)
        return replace(number, bound=number.bound or bound, start=start)
    return _range(shape)


def _numeral(shape: str) -> Numeral | None:
    """Return the single number in the shape of a text, or None."""
    match = NUMERAL.fullmatch(shape)
    if match is None or bool(match["open"]) != bool(match["close"]):
        return None
    minus = [mark for mark in match.group("sign", "second", "last") if mark and mark in MINUS]
    if len(minus) + bool(match["open"]) > 1:
        return None
    unit = "".join(filter(None, match.group("prefix", "unit")))
    return Numeral(
        core=re.sub("[\u00a0\u2009\u202f]", " ", match["core"]).replace("’", "'"),
        start=match.start("core"),
        exponent=match["exponent"] or "",
        negative=bool(minus or match["open"]),
        suffix=match["scale"] or "",
        unit=singular(unit),
        bound=any(match.group("bound", "plus", "more")),
        extra=count_digits(shape[match.end("core") :]),
    )


def _range(shape: str) -> Numeral | None:
    """Return the range in the shape of a text, or None."""
    ends = range_ends(shape)
    numbers = [_numeral(end) for end in ends]
    if len(numbers) != 2 or count_digits(shape) > MOST_DIGITS:
        return None
    low, high = numbers
    if low is None or high is None or any(_is_special(end) for end in (low, high)):
        return None
    if low.unit not in ("", high.unit) and high.unit:
        return None
    if not low.suffix and not low.unit:
        low = replace(low, suffix=high.suffix)
    parts = Composite((low.core, high.core), (10.0**low.scale, 10.0**high.scale), RANGE)
    return _composed(parts, shape)


def _is_special(number: Numeral) -> bool:
    """Return True for a number that is no end of a range."""
    return number.negative or number.bound or bool(number.exponent or number.extra)


def _composed(parts: Composite, shape: str) -> Numeral:
    """Return the number that consists of several numbers."""
    core = max(parts.cores, key=len)
    return Numeral(core, shape.index(core), "", parts.negative, "", parts.unit, False, 0, parts)


@lru_cache(maxsize=1 << 14)
def decimals(core: str, decimal: str, thousands: str) -> int | None:
    """Return the number of decimals of digits with separators, or None if these marks do not read
    it.

    >>> decimals("9,999", ".", ","), decimals("9,999", ",", ""), decimals("99,9", ".", ",")
    (0, 3, None)
    """
    whole = "9*"
    if thousands:
        mark = re.escape(thousands)
        whole = f"9*|9{{1,3}}(?:{mark}999)+"
        if thousands == ",":
            whole += "|99?(?:,99)+,999"  # as in India
    match = re.fullmatch(rf"(?:{whole})(?:{re.escape(decimal)}(9*))?", core)
    return None if match is None else len(match[1] or "")


def has_unit(number: Numeral, expected: str) -> bool:
    """Return True if a number belongs to a column whose unit is ``expected``: its unit is the same,
    can be converted, or is missing."""
    number = number.in_column(expected)
    if number.unit:
        return size_in(number, expected) > 0
    has_size = bool(sizes_of(plain_unit(expected)))
    return not expected or (expected not in ("%", "‰") and not (number.suffix and has_size))


def size_in(number: Numeral, unit: str) -> float:
    """Return the size of a number's unit in the unit of its column, or 0 if it cannot be converted.
    In a column of ranges, a bound such as $100+ has the unit of their ends."""
    is_end = unit == RANGE and number.bound
    return 1.0 if is_end or not number.unit else ratio(number.unit, unit)


def decimals_in(core: str, grammar: NumberGrammar) -> int | None:
    """Return the number of decimals of digits with separators, or None if they are not in the
    grammar.

    A column without a thousands separator also contains numbers that can be read in one way only,
    such as 1.250,00.
    """
    count = decimals(core, grammar.decimal, grammar.thousands)
    if count is None and not grammar.thousands and not ONE_SEPARATOR.fullmatch(core):
        counts = [decimals(core, grammar.decimal, mark) for mark in THOUSANDS[1:]]
        return next((count for count in counts if count is not None), None)
    return count


@dataclass(frozen=True)
class _ShapeTable:
    """How to convert the digits of each shape: digits · factor / divisor, or a constant. The last
    entry stands for missing texts, which have code −1.

    Attributes:
        factors: factor of each shape, (shapes + 1,)
        divisors: divisor of each shape
        constants: value of each shape without digits, NaN for missing and unreadable texts; else 0
        readable: True for shapes in the grammar, and for missing texts
        long_shapes: shapes that are converted as text: those with exponents or too many digits
        composites: shapes of numbers that consist of several numbers
    """

    factors: Float
    divisors: Float
    constants: Float
    readable: Bool
    long_shapes: frozenset[str]
    composites: frozenset[str]


def _shape_table(shapes: Sequence[str], grammar: NumberGrammar) -> _ShapeTable:
    """Return how to convert the digits of these shapes."""
    factors = np.zeros(len(shapes) + 1)
    divisors = np.ones(len(shapes) + 1)
    constants = np.append(np.zeros(len(shapes)), np.nan)
    readable = np.ones(len(shapes) + 1, bool)
    long_shapes = set[str]()
    composites = set[str]()
    for place, shape in enumerate(shapes):
        number = numeral(shape)
        count = None if number is None else decimals_in(number.core, grammar)
        if number is None or count is None or not has_unit(number, grammar.unit):
            constants[place] = constant(shape)
            readable[place] = is_constant(shape)
            continue
        number = number.in_column(grammar.unit)
        if number.composite is not None:
            composites.add(shape)
            continue
        if number.exponent or number.extra or count_digits(shape) > EXACT_DIGITS:
            long_shapes.add(shape)
        power = number.scale - count
        factors[place] = (-1.0 if number.negative else 1.0) * 10.0 ** max(power, 0)
        factors[place] *= size_in(number, grammar.unit)
        divisors[place] = 10.0 ** max(-power, 0)
    return _ShapeTable(
        factors, divisors, constants, readable, frozenset(long_shapes), frozenset(composites)
    )


def flags_of(values: Any) -> Bool:
    """Return Arrow booleans (n,) as a NumPy array; nulls are false."""
    return np.from_dlpack(filled(values.cast("uint8"), 0)).astype(bool)


def read_numbers(texts: ShapedTexts, grammar: NumberGrammar) -> tuple[Float, Bool]:
    """Return the numbers in texts (n,), NaN for missing and other texts; and True for texts that
    are numbers or missing.

    A number has the same bits as the same number in plain notation.
    """
    table = _shape_table(texts.shapes, grammar)
    codes = texts.codes
    values: Float = texts.digits * table.factors[codes] / table.divisors[codes]
    readable: Bool = table.readable[codes]
    special = table.constants != 0
    if special[:-1].any() or texts.missing:
        rows = special[codes]
        values[rows] = table.constants[codes[rows]]
    if table.long_shapes or table.composites:
        for shape, places in texts.rows_by_shape():
            number = numeral(shape)
            if number is None:
                continue
            if shape in table.long_shapes:
                long_texts = texts.texts.take(arrow_numbers(places))
                plain = _plain_texts(long_texts, shape, number, grammar.decimal)
                values[places] = np.from_dlpack(plain.cast("float64"))
                values[places] *= size_in(number, grammar.unit)
            elif shape in table.composites and number.composite is not None:
                digits = texts.digits[places]
                values[places], readable[places] = _composed_values(
                    number.composite, digits, grammar
                )
    return values, readable


def _composed_values(parts: Composite, digits: Int, grammar: NumberGrammar) -> tuple[Float, Bool]:
    """Return the values (n,) of numbers that consist of several numbers, and True for possible
    ones.

    Args:
        parts: the numbers of which they consist
        digits: digits of each text as one integer, (n,)
        grammar: grammar of the column
    """
    counts = [decimals_in(core, grammar) for core in parts.cores]
    values, usable = parts.values(digits, tuple(count or 0 for count in counts))
    return values * ratio(parts.unit, grammar.unit), usable & (None not in counts)


def _plain_texts(texts: Any, shape: str, number: Numeral, decimal: str) -> Any:
    """Return numbers in plain notation as an Arrow array of strings (n,).

    Args:
        texts: texts of one shape, an Arrow array (n,)
        shape: their shape
        number: the number in the shape
        decimal: decimal mark
    """
    import pyarrow as pa

    content = "".join(texts.to_pylist()).encode()
    matrix = np.frombuffer(content, np.uint8).reshape(len(texts), -1)
    point = np.full((len(texts), 1), ord("."), np.uint8)
    pieces = [np.full_like(point, ord("-" if number.negative else "0"))]
    for place in range(number.start, number.start + len(number.core) + len(number.exponent)):
        byte = len(shape[:place].encode())
        if shape[place] == decimal:
            pieces.append(point)
        elif shape[place] in "9eE+-":
            pieces.append(matrix[:, byte : byte + 1])
    if number.scale:
        suffix = np.frombuffer(f"e{number.scale}".encode(), np.uint8)
        pieces.append(np.tile(suffix, (len(texts), 1)))
    plain = np.concatenate(pieces, axis=1)
    ends = np.arange(len(plain) + 1, dtype=np.int32) * np.int32(plain.shape[1])
    return pa.StringArray.from_buffers(len(plain), pa.py_buffer(ends), pa.py_buffer(plain))


def constant(shape: str) -> float:
    """Return the value of a text without digits, such as nan or true; NaN for other texts."""
    plain = shape.strip().lower()
    sign = -1.0 if plain.startswith("-") else 1.0
    return sign * CONSTANTS.get(plain.lstrip("+-"), np.nan)


def is_constant(shape: str) -> bool:
    """Return True for a text without digits that is a number or blank."""
    return shape.strip().lower().lstrip("+-") in CONSTANTS


def plain_text(text: str, grammar: NumberGrammar) -> str:
    """Return a number in plain notation, without its unit.

    >>> plain_text("1,234", NumberGrammar(",")), plain_text("1,234", NumberGrammar(".", ","))
    ('1.234', '1234')
    """
    import pyarrow as pa

    value = float(read_numbers(shaped(pa.array([text])), grammar)[0][0])
    return f"{value:.15g}"


def is_plain(shape: str) -> bool:
    """Return True for the shape of a number in plain notation."""
    return PLAIN_SHAPE.fullmatch(shape) is not None


def is_number(shape: str) -> bool:
    """Return True for the shape of a number in some grammar."""
    number = numeral(shape)
    return number is not None and any(decimals(number.core, *pair) is not None for pair in PAIRS)
