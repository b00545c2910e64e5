"""The history of a fit: its stages, the table of rounds, and the lines that are printed while it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import NamedTuple

from partirvm.quoting import counted, format_bytes, format_duration
from partirvm.report.quantities import MEASURED, MISSING, Entry, Kind, Quantity, format_error, format_evidence, kind_of


def format_rate(rows: float | None) -> str:
    """Format a number of rows per second.

    >>> format_rate(1234567), format_rate(98765), format_rate(12), format_rate(None)
    ('1.23 M', '98.8 k', '12', '–')
    """
    if rows is None:
        return MISSING
    for unit, size in ((" M", 1e6), (" k", 1e3)):
        if rows >= size:
            return f"{rows / size:.3g}{unit}"
    return f"{rows:.3g}"


def rows_per_second(entry: Entry) -> float | None:
    """Return the rows per second that the passes of a round read, or None for a round without passes."""
    seconds = entry.get("pass_seconds")
    return entry["pass_rows"] / seconds if seconds else None


class Column(NamedTuple):
    """A column of the table of fits: its title, the function of a cell, and the width on a terminal."""

    title: str
    cell: Callable[[Entry], str]
    width: int


def columns(kind: Kind, quantities: Sequence[Quantity]) -> list[Column]:
    """Return all columns of the table of fits of this kind, with these errors."""
    noise = [Column("noise sd", _noise, 12)] if kind.noise else []
    return [
        Column("round", _name, 5),
        Column("rows used", lambda entry: f"{entry['rows']:,}", 9),
        Column("candidates", lambda entry: f"{entry['candidates']:,}", 10),
        Column("vectors", lambda entry: f"{entry['vectors']:,}", 7),
        Column(kind.steps, lambda entry: f"{entry['iterations']:,}", 13),
        *(Column(one.label, one.text, len(one.label)) for one in quantities),
        Column("log evidence", lambda entry: format_evidence(entry["log_evidence"]), 13),
        *noise,
        Column("rows/s", lambda entry: format_rate(rows_per_second(entry)), 7),
        Column("elapsed", lambda entry: format_duration(entry["seconds"]), 12),
        Column("memory", lambda entry: format_bytes(entry.get("peak_memory") or 0), 9),
        Column("ended", lambda entry: str(entry["termination"]), 9),
    ]


def _name(entry: Entry) -> str:
    names = {"final": "last", "early": "early", "heuristic": "sparseness", "kernel": "kernel"}
    if entry["kind"] == "part":
        return f"level {entry['level']}, {entry['number']}"
    return names.get(entry["kind"], str(entry["number"]))


def _noise(entry: Entry) -> str:
    remark = ", raised" if entry.get("overconfident") else ", floor" if entry.get("floored") else ""
    return format_error(entry.get("noise_sd")) + remark


def short_columns(entries: Sequence[Entry]) -> list[Column]:
    """Return the columns of the table of rounds, with held-out errors if these entries have some."""
    kind = kind_of(entries[0])
    left_out = {"rows used", kind.steps, "noise sd", "ended"}
    return [column for column in columns(kind, kind.shown(entries)[:3]) if column.title not in left_out]


def heuristic_line(entry: Entry) -> str:
    """Return the measured sparseness and the resulting partition size as text.

    >>> entry = {"vectors": 27, "rows": 222, "partition_size": 32, "heuristic_size": 45}
    >>> heuristic_line(entry)
    'sparseness: 27 of 222 random rows became vectors (ρ = 0.122) → P = 45, limited to 32'
    """
    chosen, found = entry["partition_size"], entry["heuristic_size"]
    size = f"P = {found:,}"
    if chosen != found:
        size += f", {'limited' if chosen < found else 'raised'} to {chosen:,}"
    rows, rho = counted(entry["rows"], "random row"), entry["vectors"] / entry["rows"]
    return f"sparseness: {entry['vectors']:,} of {rows} became vectors (ρ = {rho:.3f}) → {size}"


class Stage(NamedTuple):
    """A round, or all fits of a level of split-and-merge. ``x`` is its number among the rounds or levels."""

    x: int
    entries: list[Entry]

    @property
    def level(self) -> bool:
        """True for a level of split-and-merge."""
        return bool(self.entries[0]["kind"] == "part")

    def total(self, name: str) -> int:
        """Return the sum of candidates or vectors over the fits."""
        return sum(entry[name] for entry in self.entries)

    def median(self, name: str) -> float | None:
        """Return the median of a value over the fits; None if no fit has it."""
        values = [float(entry[name]) for entry in self.entries if entry.get(name) is not None]
        return median(values) if values else None

    def line(self, began: float) -> str:
        """Return a level as text; ``began`` is the time at its start, in seconds of the fit."""
        fits, candidates, vectors = counted(len(self.entries), "fit"), self.total("candidates"), self.total("vectors")
        took = format_duration(self.entries[-1]["seconds"] - began)
        return f"level {self.x}: {fits}, {candidates:,} candidates → {vectors:,} vectors, {took}"


def stages(history: Iterable[Entry]) -> list[Stage]:
    """Return the rounds and levels of a history in order. Fits of planning belong to none."""
    found: list[Stage] = []
    for entry in history:
        if entry["kind"] in MEASURED:
            continue
        part, last = entry["kind"] == "part", found[-1] if found else None
        if last is not None and part and last.level and last.x == entry["level"]:
            last.entries.append(entry)
            continue
        x = entry["level"] if part else entry["number"]
        if entry["kind"] == "final" and last is not None:  # the last fit comes after all rounds or levels
            x = last.x + 1 if last.level else max(x, last.x + 1)
        found.append(Stage(int(x), [entry]))
    return found


class Lines:
    """Converter of history entries to lines: one for each round, and one for a level when the next one begins."""

    def __init__(self) -> None:
        self._level: Stage | None = None
        self._level_began = 0.0
        self._columns: list[Column] = []

    def of(self, entry: Entry) -> list[str]:
        """Return the lines to print for a history entry."""
        if entry["kind"] == "heuristic":
            return [heuristic_line(entry)]
        if entry["kind"] == "kernel":
            again = " again" if entry.get("taken") is not None else ""
            return [f"learned{again}: {entry['text']}"]
        if entry["kind"] != "part":
            return [*self.rest(), *self._round(entry)]
        if self._level is not None and self._level.x == entry["level"]:
            self._level.entries.append(entry)
            return []
        ended, self._level = self.rest(), Stage(entry["level"], [entry])
        return ended

    def rest(self) -> list[str]:
        """Return the line of a level that was not printed yet, at the end of a fit."""
        level, self._level = self._level, None
        if level is None:
            return []
        line, self._level_began = level.line(self._level_began), level.entries[-1]["seconds"]
        return [line]

    def _round(self, entry: Entry) -> list[str]:
        header = [] if self._columns else ["  ".join(f"{each.title:>{each.width}}" for each in short_columns([entry]))]
        self._columns = self._columns or short_columns([entry])
        return [*header, "  ".join(f"{column.cell(entry):>{column.width}}" for column in self._columns)]
