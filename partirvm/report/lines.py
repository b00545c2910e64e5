"""Selection of the history lines to print: one per level of split-and-merge, and only some if there are many rounds."""

from __future__ import annotations

from typing import Any, NamedTuple

from partirvm.planning.units import counted, format_duration
from partirvm.report.quantities import Entry
from partirvm.report.text import heuristic_line, table_header, table_line

FIRST = 10
"""Number of rounds at the start that are always printed."""

PAUSE = 1.0
"""Minimum time between later lines, in seconds of the fit."""


class Line(NamedTuple):
    """A line to print: the ``heading`` of a table, a row of it, or a text that ``wraps`` on a narrow terminal."""

    text: str
    heading: bool = False
    wraps: bool = False


class Lines:
    """Converter of history entries to lines of text. The last entry of a fit or a level is always printed."""

    def __init__(self) -> None:
        self._planned: tuple[int, ...] = ()
        self._level: list[Entry] = []
        self._level_began = self._said = 0.0
        self._rounds = 0
        self._held: Entry | None = None

    def on_plan(self, plan: Any) -> None:
        """Store the plan, which has the number of fits per level."""
        self._planned = tuple(cost.fits for cost in plan.rounds)

    def of(self, entry: Entry) -> list[Line]:
        """Return the lines to print for a history entry."""
        if entry["kind"] == "heuristic":
            return [Line(heuristic_line(entry))]
        if entry["kind"] == "kernel":
            again = " again" if entry.get("taken") is not None else ""
            return [Line(f"learned{again}: {entry['text']}")]
        if entry["kind"] == "part":
            return self._part(entry)
        return [*self._end_level(), *self._round(entry)]

    def rest(self) -> list[Line]:
        """Return the lines that were not printed yet, at the end of a fit."""
        held, self._held = self._held, None
        return [*self._end_level(), *([Line(table_line(held))] if held else [])]

    def _part(self, entry: Entry) -> list[Line]:
        ended = self._end_level() if self._level and self._level[0]["level"] != entry["level"] else []
        self._level.append(entry)
        return ended + (self._end_level() if len(self._level) == self._fits(entry["level"]) else [])

    def _fits(self, level: int) -> int | None:
        return self._planned[level] if level < len(self._planned) else None

    def _end_level(self) -> list[Line]:
        if not self._level:
            return []
        level, planned = self._level[0]["level"], self._fits(self._level[0]["level"])
        candidates, vectors = (sum(entry[name] for entry in self._level) for name in ("candidates", "vectors"))
        end = self._level[-1]["seconds"]
        fits = counted(len(self._level), "fit")
        if planned is not None and len(self._level) < planned:
            fits = f"{len(self._level):,} of {counted(planned, 'fit')}"
        text = f"level {level}: {fits}, {candidates:,} candidates → {vectors:,} vectors"
        line = Line(f"{text}, {format_duration(end - self._level_began)}")
        self._level, self._level_began = [], end
        return [line]

    def _round(self, entry: Entry) -> list[Line]:
        self._rounds += 1
        late = entry["seconds"] - self._said >= PAUSE
        if not (late or self._rounds <= FIRST or entry["kind"] == "final"):
            self._held = entry
            return []
        self._said, self._held = entry["seconds"], None
        heading = [Line(table_header(entry), heading=True)] if self._rounds == 1 else []
        return [*heading, Line(table_line(entry))]
