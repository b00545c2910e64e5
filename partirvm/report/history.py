"""The history of a fit: its stages, the table of rounds, and the lines that are printed while it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import NamedTuple

from partirvm.quoting import counted, format_bytes, format_duration
from partirvm.report.quantities import (
    MEASURED,
    MISSING,
    Entry,
    Kind,
    Quantity,
    format_error,
    format_evidence,
    kind_of,
)


def _count(name: str) -> Callable[[Entry], str]:
    return lambda entry: f"{entry[name]:,}"


class Column(NamedTuple):
    """A column of the table of fits: its title, the function of a cell, and the width on a terminal.

    A terminal shows only columns that have a width.
    """

    title: str
    cell: Callable[[Entry], str]
    width: int = 0


def columns(kind: Kind, quantities: Sequence[Quantity]) -> list[Column]:
    """Return the columns of the table of fits of this kind, with these errors."""
    noise = [Column("noise sd", _noise)] if kind.noise else []
    return [
        Column("round", _name, 5),
        Column("rows used", _count("rows")),
        Column("candidates", _count("candidates"), 10),
        Column("vectors", _count("vectors"), 7),
        Column(kind.steps, _count("iterations")),
        *(Column(one.label, one.text, len(one.label)) for one in quantities),
        Column("log evidence", lambda entry: format_evidence(entry["log_evidence"]), 13),
        *noise,
        Column("rows/s", rate, 9),
        Column("elapsed", lambda entry: format_duration(entry["seconds"]), 12),
        Column("memory", lambda entry: format_bytes(entry.get("peak_memory") or 0), 9),
        Column("ended", lambda entry: str(entry["termination"])),
    ]


def _name(entry: Entry) -> str:
    if entry["kind"] == "part":
        return f"level {entry['level']}, {entry['number']}"
    names = {"final": "last", "early": "early", "heuristic": "sparseness", "kernel": "kernel"}
    return names.get(entry["kind"], str(entry["number"]))


def _noise(entry: Entry) -> str:
    remark = ", raised" if entry.get("overconfident") else ", floor" if entry.get("floored") else ""
    return format_error(entry.get("noise_sd")) + remark


def rate(entry: Entry) -> str:
    """Return the rows per second that the passes of a round read."""
    seconds = entry.get("pass_seconds")
    return f"{entry['pass_rows'] / seconds:,.0f}" if seconds else MISSING


def heuristic_line(entry: Entry) -> str:
    """Return the measured sparseness and the resulting partition size as text."""
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
        self._parts: list[Entry] = []
        self._level_began = 0.0
        self._columns: list[Column] = []

    def of(self, entry: Entry) -> list[str]:
        """Return the lines to print for a history entry."""
        if entry["kind"] == "heuristic":
            return [heuristic_line(entry)]
        if entry["kind"] == "kernel":
            again = " again" if entry.get("taken") is not None else ""
            return [f"learned{again}: {entry['text']}"]
        if entry["kind"] == "part":
            ended = self.rest() if self._parts and self._parts[0]["level"] != entry["level"] else []
            self._parts.append(entry)
            return ended
        lines = self.rest()
        if not self._columns:
            kind = kind_of(entry)
            self._columns = [column for column in columns(kind, kind.shown([entry])[:3]) if column.width]
            lines.append("  ".join(f"{column.title:>{column.width}}" for column in self._columns))
        return [*lines, "  ".join(f"{column.cell(entry):>{column.width}}" for column in self._columns)]

    def rest(self) -> list[str]:
        """Return the line of a level that was not printed yet, at the end of a fit."""
        if not self._parts:
            return []
        level, self._parts = Stage(self._parts[0]["level"], self._parts), []
        began, self._level_began = self._level_began, level.entries[-1]["seconds"]
        fits, took = counted(len(level.entries), "fit"), format_duration(self._level_began - began)
        candidates, vectors = level.total("candidates"), level.total("vectors")
        return [f"level {level.x}: {fits}, {candidates:,} candidates → {vectors:,} vectors, {took}"]
