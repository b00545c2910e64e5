"""Problems that ingest finds in a table's columns, the options that settle them, and a table of all
findings."""

import csv
import io
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np

from partirvm.errors import DataError
from partirvm.quoting import counted, listed, named, quoted
from partirvm.types import Bool, Float

MARKERS = frozenset(
    ["?", "-", "--", ".", "*", "NA", "N/A", "n/a", "n.a.", "na", "null", "NULL", "#N/A"]
)
"""Strings that mark a missing value, in addition to those that do so in any CSV file."""

FEW_LEVELS, FEW_TEXTS, KEPT, WIDTH = 20, 5, 1000, 80
"""Maximum counts of values that may be codes, of strings that may mark gaps, and of stored strings;
table width."""

TIME = r"\d\d:\d\d(:\d\d(\.\d+)?)?"
ISO = rf"{TIME}|\d{{4}}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d([.,]\d+)?)?(Z|[+-]\d\d:?\d\d)?)?"
NUMBER = r"[+-]?((\d+[.]?\d*|[.]\d+)([eE][+-]?\d+)?|(?i:inf(inity)?|nan))"
DAY = r"\d{1,4}[./-]\d{1,2}[./-]\d{2,4}( \d{1,2}:\d\d(:\d\d)?)?"
PATTERNS = {"numbers": NUMBER, "booleans": "(?i:true|false)", "dates": f"{ISO}|{DAY}"}
"""The kinds of values that strings may hold, other than labels."""

DAYS = ("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y/%m/%d", "%Y.%m.%d")
"""Date formats other than ISO."""


@dataclass(frozen=True)
class Finding:
    """What was found in a column, and the ``ingest`` options that settle it, or advice in words.

    A ``fatal`` finding is an error unless it is settled; others are proposals.
    """

    column: str
    found: str
    remedy: Mapping[str, Any] = field(default_factory=dict)
    advice: str = "correct these rows"
    fatal: bool = True

    @property
    def options(self) -> str:
        """The remedy as shell flags."""
        return " ".join(flags(self.remedy))


class OddCells:
    """The odd cells of a column: how many, the row of the first (from 0), and up to ``KEPT``
    distinct strings."""

    def __init__(self) -> None:
        self.count = 0
        self.first = -1
        self.texts = list[str]()

    def add(self, rows: Bool, start: int, texts: Iterable[str] = ()) -> None:
        """Add the cells of a batch that begins at row ``start``."""
        if not self.count:
            self.first = start + int(np.argmax(rows))
        self.count += int(rows.sum())
        self.texts = list(dict.fromkeys(chain(self.texts, texts)))[:KEPT]

    def __str__(self) -> str:
        texts = f"{listed(self.texts, 3, quoted)} in " if self.texts else ""
        return f"{texts}{counted(self.count, 'row')}, the first is row {self.first + 1:,}"


class Values:
    """The distinct values of a numeric column, as long as they are few, and whether they number the
    rows."""

    def __init__(self) -> None:
        self.found = set[float]()
        self.n = 0
        self._counts = True
        self._first = np.empty(0)

    def add(self, values: Float) -> None:
        """Add the values of further rows."""
        self._first = self._first if self.n else values[:1].copy()
        self._counts = self._counts and bool(
            (values == self._first + np.arange(self.n, self.n + len(values))).all()
        )
        if len(self.found) <= FEW_LEVELS:
            self.found.update(np.unique(values)[: FEW_LEVELS + 2].tolist())
        self.n += len(values)

    def finding(self, column: str) -> Finding | None:
        """Return a proposal for a column that is constant, counts the rows or may hold codes."""
        known = {value for value in self.found if value == value}
        if len(self.found) == 1 or (self._counts and self.n >= FEW_LEVELS):
            what = (
                f"all rows have the value {known.pop():.6g}"
                if len(self.found) == 1
                else "counts the rows"
            )
            return Finding(column, what, {"exclude": (column,)}, fatal=False)
        if 2 < len(known) <= min(self.n / 10, FEW_LEVELS) and all(
            value.is_integer() for value in known
        ):
            codes = f"{len(known)} different whole numbers, perhaps codes"
            return Finding(column, codes, {"categorical": ("auto", column)}, fatal=False)
        return None


def recognised(texts: Sequence[str]) -> tuple[str, list[str]]:
    """Return what most strings are ("numbers", "booleans", "dates" or "text"), and the few
    exceptions.

    >>> recognised(["1.5", "2", "-3e5", "?"]), recognised(["Bern", "7", "8"])
    (('numbers', ['?']), ('text', []))
    """
    for kind, pattern in PATTERNS.items():
        others = [text for text in texts if not re.fullmatch(pattern, text)]
        many = len(texts) - len(others)
        if not others or (many > 1 and len(others) <= FEW_TEXTS and few(others, len(others), many)):
            return kind, others
    return "text", []


def few(texts: Iterable[str], count: int, others: int) -> bool:
    """Return True if ``count`` cells with these strings, among ``others``, probably mark missing
    values."""
    return MARKERS.issuperset(texts) or 10 * count <= others


def date_formats(texts: Sequence[str]) -> list[str]:
    """Return the formats that parse all the date strings; ISO dates need none.

    >>> date_formats(["03/04/2021", "17/04/2021"]), date_formats(["3/14/21 10:00"])
    (['%d/%m/%Y'], ['%m/%d/%y %H:%M'])
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    year = "%Y" if re.search(r"\d{4}", "".join(texts[:1])) else "%y"
    array = pa.array(texts, pa.string())
    forms = [
        f"{day}{time}".replace("%Y", year) for day in DAYS for time in ("", " %H:%M", " %H:%M:%S")
    ]
    return [
        form for form in forms if not pc.strptime(array, form, "s", error_is_null=True).null_count
    ]


def joined(names: Iterable[str]) -> str:
    """Join names with commas; a name with a comma or a quotation mark is quoted as in CSV."""
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(names)
    return text.getvalue()


def flags(options: Mapping[str, Any]) -> list[str]:
    """Return ``ingest`` options as shell flags."""
    found = list[str]()
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        if value is True or (name == "shuffle" and value is None):
            found.append("--no-shuffle" if value is None else flag)
        elif value:
            parts = (
                [f"{column}={form}" for column, form in value.items()]
                if isinstance(value, Mapping)
                else value
            )
            text = joined(map(str, parts)) if isinstance(parts, list | tuple) else str(parts)
            found.append(f"{flag}{'=' if text.startswith('-') else ' '}{shlex.quote(text)}")
    return found


def remedied(options: Mapping[str, Any], findings: Iterable[Finding]) -> dict[str, Any]:
    """Return the ``ingest`` options with the findings' remedies applied."""
    made = dict(options)
    for each in findings:
        for name, value in each.remedy.items():
            before = made.get(name) or type(value)()
            if isinstance(value, tuple):
                value = (*before, *(new for new in value if new not in before))
            made[name] = {**before, **value} if isinstance(value, dict) else value
    return made


def refuse(where: str, findings: Sequence[Finding], command: str = "") -> None:
    """Raise ``DataError`` with a table of all findings and a ``command`` for the remedies, if any
    finding is fatal."""
    if not any(each.fatal for each in findings):
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table("column", "found", "remedy", box=None, pad_edge=False)
    for each in sorted(findings, key=lambda each: not each.fatal)[:50]:
        remedy = "perhaps " * (not each.fatal) + (each.options or each.advice)
        table.add_row(*map(Text, (named(each.column), each.found, remedy)))
    console = Console(file=io.StringIO(), width=WIDTH, color_system=None, force_jupyter=False)
    console.print(table)
    lines = [line.rstrip() for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]
    together = (
        ["", "all at once (--auto also accepts what is marked perhaps):", f"  {command}"]
        if command
        else []
    )
    raise DataError(
        f"{where}: values that cannot be used (row 1 is the first row of data):",
        "",
        *lines,
        *together,
    )
