"""How the texts of a column are read: as numbers, dates or labels. A first decision from the first
rows is checked against all rows; if it was wrong, the table is read again.

>>> import pyarrow as pa
>>> money = recognise(pa.array(["$1,250.50", "$80.00", "?"]))
>>> str(money.grammar)
"decimal mark '.', thousands separator ',', unit $"
>>> recognise(pa.array(["red", "green 7"])).kind
'labels'
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from partirvm.data import problems
from partirvm.data.composite import FRACTION, RANGE, singular
from partirvm.data.date_grammar import MONTHS, DateEvidence, layout, read_dates
from partirvm.data.dates import Dates
from partirvm.data.grammar import PLAIN, is_number, is_plain, numeral, read_numbers
from partirvm.data.number_evidence import NumberDecision, NumberEvidence
from partirvm.data.shapes import ShapedTexts, arrow_numbers, shaped
from partirvm.data.tables import numbers
from partirvm.types import Bool, Float, NumberGrammar

LEAST_SHARE = 0.95
"""Least fraction of a column's distinct texts in one grammar for a column of numbers or dates."""

PROBE = 64
"""Number of rows of a batch that are converted first, to see whether they are plain."""

MOST_UNITS = 5
"""Maximum number of units in a column of numbers of several units; with more, the units are words
of labels."""


@dataclass(frozen=True)
class Reading:
    """How the texts of a column are read.

    Attributes:
        kind: "numbers", "booleans", "dates" or "labels"
        grammar: how numbers are written
        order: order of day, month and year
    """

    kind: str = "numbers"
    grammar: NumberGrammar = PLAIN
    order: str = ""


@dataclass(frozen=True)
class Marks:
    """Options that settle how numbers are written.

    Attributes:
        decimal: decimal mark, or ""
        thousands: thousands separator, or ""
        points: True if no other column of the file has decimal commas
        ranges: True if ranges such as 30-39 are numbers
    """

    decimal: str = ""
    thousands: str = ""
    points: bool = True
    ranges: bool = True

    def decision(self, evidence: NumberEvidence) -> NumberDecision:
        """Decide how a column writes its numbers."""
        return evidence.decision(
            self.decimal, self.thousands, points=self.points, ranges=self.ranges
        )


def recognise(texts: Any, marks: Marks = Marks(), order: str = "") -> Reading:
    """Return how the distinct texts of a column, an Arrow array, are read.

    Args:
        texts: distinct texts without missing values
        marks: options for numbers
        order: order of day, month and year, or ""
    """
    shapes = shaped(texts)
    if len(texts) and set(map(_plain_word, shapes.shapes)) <= {"true", "false"}:
        return Reading("booleans")
    date_evidence = DateEvidence()
    date_evidence.add(shapes, 0)
    dates = date_evidence.decision(order)
    number_evidence = NumberEvidence()
    number_evidence.add(shapes, 0)
    decision = marks.decision(number_evidence)
    is_duration = len(decision.units) > 1
    is_compact = all(shape.strip() == "99999999" for shape in shapes.shapes)
    is_pair = decision.grammar.unit in (RANGE, FRACTION)
    are_dates = decision.n_read == dates.n_read > 0 and (is_duration or is_compact or is_pair)
    if decision.n_read >= dates.n_read and not are_dates:
        reading = Reading("numbers", grammar=decision.grammar)
        usable = read_numbers(shapes, decision.grammar)[1]
        is_kind = _is_kind(decision.n_read, texts, usable) or _is_mixed(decision)
    else:
        reading = Reading("dates", order=dates.order)
        usable = read_dates(shapes, dates.order)[1]
        is_kind = _is_kind(dates.n_read, texts, usable)
    return reading if is_kind else Reading("labels")


def is_written(text: str) -> bool:
    """Return True for a text that is a number or a date in some grammar, but neither a range nor a
    fraction, which may be labels.

    >>> is_written("1.234,50 €"), is_written("31/12/2020"), is_written("unknown")
    (True, True, False)
    """
    shape = re.sub(r"[0-9]", "9", text)
    number = numeral(shape)
    may_be_label = number is not None and number.unit in (RANGE, FRACTION)
    return (is_number(shape) and not may_be_label) or layout(shape) is not None


def are_unknown_numbers(labels: Sequence[str]) -> bool:
    """Return True for distinct labels of which nearly all begin with a number, so that they may be
    numbers in an unknown notation. A few labels that are one number and different words, such as
    1st class and 2nd class, are labels.

    >>> are_unknown_numbers(["1.2.3", "1.10.0", "2.0.1"]), are_unknown_numbers(["2A", "3B"])
    (True, False)
    """
    numbered = [label for label in labels if re.match(r"[^\w]*[0-9]", label)]
    if len(labels) < 2 or len(numbered) < LEAST_SHARE * len(labels):
        return False
    words = {singular(re.sub(r"[\W\d_]+", "", label)) for label in numbered}
    are_simple = all(len(re.findall(r"[0-9]+", label)) == 1 for label in numbered)
    are_labels = are_simple and len(words) > 1 and not words <= MONTHS.keys()
    return not (are_labels and len(numbered) <= problems.FEW_LEVELS)


def _plain_word(text: str) -> str:
    """Return a text in lower case without spaces around it."""
    return text.strip().lower()


def _chosen(texts: Any, rows: Bool) -> list[str]:
    """Return the texts of these rows."""
    chosen: list[str] = texts.take(arrow_numbers(np.flatnonzero(rows))).to_pylist()
    return chosen


def _is_kind(n_read: int, texts: Any, usable: Bool) -> bool:
    """Return True if the texts of a grammar, of which there are ``n_read``, make up nearly all
    distinct texts, apart from marks of missing values."""
    others = _chosen(texts, ~usable)
    n_gaps = sum(text.strip() in problems.MARKERS for text in others)
    if not others:
        return True
    if n_read < 2:
        return False
    if n_read >= LEAST_SHARE * (len(texts) - n_gaps):
        return True
    return len(others) <= problems.FEW_TEXTS and problems.few(others, len(others), n_read)


def _is_mixed(decision: NumberDecision) -> bool:
    """Return True for numbers in several grammars: too many distinct texts for labels."""
    return (
        decision.n_numbers > problems.FEW_LEVELS
        and decision.n_numbers >= LEAST_SHARE * decision.n_texts
        and len(decision.units) <= MOST_UNITS
    )


class WrittenColumn:
    """The evidence of a text column of numbers or dates, merged over batches.

    Attributes:
        reading: how the texts are read
        numbers: evidence on numbers
        dates: evidence on dates
        may_be_plain: False once a text is not in plain notation; Arrow takes long to refuse a batch
    """

    def __init__(self, reading: Reading, *, complete: bool = False) -> None:
        """Prepare to read a column.

        Args:
            reading: how the texts are read
            complete: True to collect the evidence of all texts, even if they are in plain notation
        """
        self.reading = reading
        self.numbers = NumberEvidence()
        self.dates = DateEvidence()
        self.may_be_plain = reading.grammar.is_plain and not complete
        self._has_plain = False

    def plain_numbers(self, texts: Any, row: int) -> Float | None:
        """Return numbers in plain notation (n,), or None if the texts must be read by their shapes.

        Args:
            texts: Arrow array of texts (n,)
            row: first row
        """
        import pyarrow as pa

        if not self.may_be_plain:
            return None
        try:
            texts[:PROBE].cast(pa.float64())
            values = numbers(texts.cast(pa.float64()))
        except pa.ArrowInvalid:
            self.may_be_plain = False
            return None
        self._has_plain = True
        self.numbers.add_plain(texts, values, row)
        return values

    def plain_days(self, texts: Any, dates: Dates) -> Float | None:
        """Return ISO dates as days (n,), or None if the texts must be read by their shapes.

        Args:
            texts: Arrow array of texts (n,)
            dates: the column of dates
        """
        import pyarrow as pa

        if not self.may_be_plain:
            return None
        try:
            if texts.null_count < len(texts):
                dates.parsed(texts[:PROBE].drop_null())
            return dates.days(texts)
        except pa.ArrowInvalid:
            self.may_be_plain = False
            return None

    def written_numbers(self, texts: ShapedTexts, row: int) -> tuple[Float, Bool]:
        """Return the numbers in texts (n,), and True for texts that are numbers or missing."""
        self.numbers.add(texts, row)
        return read_numbers(texts, self.reading.grammar)

    @property
    def incomplete(self) -> bool:
        """True if the evidence of texts in plain notation is missing, and matters."""
        written = [
            shape for shape in self.numbers.shapes if is_number(shape) and not is_plain(shape)
        ]
        return self._has_plain and bool(written)

    def decided(self, marks: Marks, order: str) -> Reading:
        """Return how all texts so far are to be read."""
        if self.reading.kind == "dates":
            return replace(self.reading, order=self.dates.decision(order).order)
        grammar = marks.decision(self.numbers).grammar
        return replace(self.reading, grammar=replace(grammar, gaps=self.reading.grammar.gaps))
