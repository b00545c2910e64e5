"""Problems that ingest finds in a table's columns, the options that resolve them, and a table of
all findings."""

import csv
import io
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
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
"""Strings that mark a missing value, in addition to the usual markers in CSV files."""

FEW_LEVELS = 20
"""Maximum number of distinct values that may be codes."""

FEW_TEXTS = 5
"""Maximum number of distinct strings that may mark missing values."""

MOST_TEXTS = 1000
"""Maximum number of distinct strings that are stored for a column."""

WIDTH = 80
"""Width of the table of findings, in characters."""

TIME = r"\d\d:\d\d(:\d\d(\.\d+)?)?"
ISO = rf"{TIME}|\d{{4}}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d([.,]\d+)?)?(Z|[+-]\d\d:?\d\d)?)?"
"""Times of day and ISO dates."""


@dataclass(frozen=True)
class Finding:
    """A finding about a column, and the ``ingest`` options that resolve it, or advice in words.

    Attributes:
        column: name of the column
        found: description of the problem
        remedy: options of ``ingest`` that resolve the finding, by name; may be empty
        advice: what to do if there is no remedy
        fatal: True for an error, False for a proposal
        alternative: other options that resolve the finding differently; may be empty
        readings: what the remedy and the alternative read, or empty
        asks: True if only the user can decide: ``auto`` does not accept the remedy
    """

    column: str
    found: str
    remedy: Mapping[str, Any] = field(default_factory=dict)
    advice: str = "correct these rows"
    fatal: bool = True
    alternative: Mapping[str, Any] = field(default_factory=dict)
    readings: tuple[str, ...] = ()
    asks: bool = False

    @property
    def options(self) -> str:
        """The remedy as shell flags, and the alternative."""
        return self.written(shell_options)

    def written(self, spelling: "Spelling") -> str:
        """Return the remedy and the alternative in this spelling."""
        return " or ".join(map(spelling, self.remedies))

    def explained(self, spelling: "Spelling") -> str:
        """Return the remedy and the alternative in this spelling, each with what it reads."""
        if not self.readings:
            return self.written(spelling)
        pairs = zip(self.remedies, self.readings, strict=True)
        return " or ".join(f"{spelling(remedy)} ({reading})" for remedy, reading in pairs)

    @property
    def remedies(self) -> list[Mapping[str, Any]]:
        """The remedy and the alternative, as far as they exist."""
        return [remedy for remedy in (self.remedy, self.alternative) if remedy]


class OddCells:
    """The odd cells of a column: their number, the row of the first one (from 0), and up to
    ``MOST_TEXTS`` distinct strings."""

    def __init__(self) -> None:
        self.count = 0
        self.first = -1
        self.texts = list[str]()

    def add(self, rows: Bool, start: int, texts: Iterable[str] = ()) -> None:
        """Add the cells of a batch that begins at row ``start``."""
        if not self.count:
            self.first = start + int(np.argmax(rows))
        self.count += int(rows.sum())
        self.texts = list(dict.fromkeys(chain(self.texts, texts)))[:MOST_TEXTS]

    def __str__(self) -> str:
        return self.described(3)

    def described(self, most: int) -> str:
        """Return at most ``most`` of the strings, the number of rows and the first row."""
        texts = f"{listed(self.texts, most, quoted)} in " if self.texts else ""
        return f"{texts}{counted(self.count, 'row')}, the first is row {self.first + 1:,}"


class Values:
    """The distinct values of a numeric column, as long as there are few, and whether they are row
    numbers."""

    def __init__(self) -> None:
        self.found = set[float]()
        self.n = 0
        self._counts = True
        self._first = np.empty(0)

    def add(self, values: Float) -> None:
        """Add the values of further rows."""
        if not self.n:
            self._first = values[:1].copy()
        numbers = self._first + np.arange(self.n, self.n + len(values))
        self._counts = self._counts and bool((values == numbers).all())
        if len(self.found) <= FEW_LEVELS:
            self.found.update(np.unique(values)[: FEW_LEVELS + 2].tolist())
        self.n += len(values)

    @property
    def known(self) -> set[float]:
        """The distinct values, without NaN."""
        return {value for value in self.found if value == value}

    @property
    def are_few_integers(self) -> bool:
        """True if there are few distinct values, all integers."""
        return 0 < len(self.known) <= FEW_LEVELS and all(map(float.is_integer, self.known))

    @property
    def are_binary(self) -> bool:
        """True if all values are 0 or 1, and both occur."""
        return self.known == {0.0, 1.0}

    def finding(self, column: str) -> Finding | None:
        """Return a proposal for a column that is constant, numbers the rows or may contain
        codes."""
        known = self.known
        exclude = {"exclude": (column,)}
        if len(self.found) == 1:
            constant = f"all rows have the value {known.pop():.6g}"
            return Finding(column, constant, exclude, fatal=False)
        if self._counts and self.n >= FEW_LEVELS:
            first = float(self._first[0])
            start = f"{first:.15g}, {first + 1:.15g}, …"
            return Finding(column, f"only numbers the rows ({start})", exclude, fatal=False)
        few_values = 2 < len(known) <= min(self.n / 10, FEW_LEVELS)
        if few_values and all(value.is_integer() for value in known):
            codes = (
                f"{len(known)} different whole numbers, read as numbers; if they are codes, list "
                "it with auto (the text columns)"
            )
            remedy = {"categorical": ("auto", column)}
            return Finding(column, codes, remedy, fatal=False, asks=True)
        return None


def few(texts: Iterable[str], count: int, others: int) -> bool:
    """Return True if ``count`` cells with these strings, among ``others``, probably mark missing
    values."""
    return MARKERS.issuperset(texts) or 10 * count <= others


def joined(names: Iterable[str]) -> str:
    """Join names with commas; a name with a comma or a quotation mark is quoted as in CSV."""
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(names)
    return text.getvalue()


def flags(options: Mapping[str, Any]) -> list[str]:
    """Return ``ingest`` options as shell flags."""
    shell = list[str]()
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        if name == "shuffle" and value is None:
            shell.append("--no-shuffle")
        elif name == "header" and value is not None:
            shell.append("--header" if value else "--no-header")
        elif value is True:
            shell.append(flag)
        elif value:
            if isinstance(value, Mapping):
                value = [f"{column}={form}" for column, form in value.items()]
            text = joined(map(str, value)) if isinstance(value, list | tuple) else str(value)
            space = "=" if text.startswith("-") else " "
            shell.append(f"{flag}{space}{_shell_quoted(text)}")
    return shell


def _shell_quoted(text: str) -> str:
    """Quote a value for a shell; a mark such as a comma, which looks like a typo, always.

    >>> _shell_quoted(","), _shell_quoted("dmy"), _shell_quoted("a b")
    ("','", 'dmy', "'a b'")
    """
    quoted_text = shlex.quote(text)
    is_bare_mark = quoted_text == text and not any(map(str.isalnum, text))
    return f"'{text}'" if is_bare_mark else quoted_text


Spelling = Callable[[Mapping[str, Any]], str]
"""A function that writes options by name as text."""


def shell_options(options: Mapping[str, Any]) -> str:
    """Return ``ingest`` options as they are written on the command line."""
    return " ".join(flags(options))


def python_options(options: Mapping[str, Any]) -> str:
    """Return options as arguments of a Python call.

    >>> python_options({"dates": {"day": "dmy"}, "decimal": ""})
    "dates={'day': 'dmy'}"
    """
    return ", ".join(f"{name}={value!r}" for name, value in options.items() if value)


def remedied(options: Mapping[str, Any], findings: Iterable[Finding]) -> dict[str, Any]:
    """Return the ``ingest`` options with the findings' remedies applied."""
    settled = dict(options)
    for finding in findings:
        for name, value in finding.remedy.items():
            before = settled.get(name) or type(value)()
            if isinstance(value, tuple):
                value = (*before, *(new for new in value if new not in before))
            settled[name] = {**before, **value} if isinstance(value, dict) else value
    return settled


class UnusableError(DataError):
    """A table cannot be used as it is.

    Attributes:
        remedy: options of ``ingest`` that resolve all findings, by name; empty if there are none
    """

    remedy: Mapping[str, Any] = {}


def _counts(findings: Sequence[Finding]) -> str:
    """Return how many findings are errors, and how many are proposals."""
    n_fatal = sum(finding.fatal for finding in findings)
    n_more = len(findings) - n_fatal
    verb = "is" if n_more == 1 else "are"
    more = f"; {n_more:,} more {verb} worth checking" if n_more else ""
    return f"{counted(n_fatal, 'problem')} to resolve before the rows can be used{more}"


def refuse(
    where: str,
    findings: Sequence[Finding],
    closing: Sequence[str] = (),
    spelling: Spelling = shell_options,
) -> None:
    """Raise ``DataError`` with a table of all findings, if any finding is fatal.

    Args:
        where: name of the table
        findings: findings of all columns
        closing: last lines of the message, such as a command with all remedies
        spelling: how remedies are written
    """
    fatal = [finding for finding in findings if finding.fatal]
    if not fatal:
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table("column", "found", "remedy", box=None, pad_edge=False)
    for finding in sorted(findings, key=lambda finding: not finding.fatal)[:50]:
        remedy = finding.explained(spelling) or finding.advice
        if not finding.fatal:
            remedy = f"optional: {remedy}" if finding.asks else f"perhaps {remedy}"
        name = "(the file)" if finding.column == where else named(finding.column)
        table.add_row(*map(Text, (name, finding.found, remedy)))
    console = Console(file=io.StringIO(), width=WIDTH, color_system=None, force_jupyter=False)
    console.print(table)
    lines = [line.rstrip() for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]
    error = UnusableError(
        f"{where}: {_counts(findings)} (row 1 is the first row of data):",
        "",
        *lines,
        *closing,
    )
    if all(finding.remedy for finding in fatal):
        error.remedy = remedied({}, fatal)
    raise error
