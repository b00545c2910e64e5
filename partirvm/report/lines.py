"""Which lines a growing history is worth: one for each level of split-and-merge, and not every of many rounds."""

from __future__ import annotations

from typing import Any, NamedTuple

from partirvm.planning.units import counted, format_duration
from partirvm.report.quantities import Entry
from partirvm.report.text import heuristic_line, table_header, table_line

FIRST = 10
"""Rounds that get a line each in any case."""

PAUSE = 1.0
"""Seconds of the fit that pass between later lines, at least."""


class Line(NamedTuple):
    """A line to show; ``heading`` is that of the table."""

    text: str
    heading: bool = False


class Lines:
    """Turns lines of history into lines of text. Nothing that ends a fit or a level goes without one."""

    def __init__(self) -> None:
        self._planned: tuple[int, ...] = ()
        self._level: list[Entry] = []
        self._level_began = self._said = 0.0
        self._rounds = 0
        self._held: Entry | None = None

    def on_plan(self, plan: Any) -> None:
        """The fit that is about to begin: how many fits its levels have."""
        self._planned = tuple(cost.fits for cost in plan.rounds)

    def of(self, entry: Entry) -> list[Line]:
        """What to show of this line of history."""
        if entry["kind"] == "heuristic":
            return [Line(heuristic_line(entry))]
        if entry["kind"] == "kernel":
            again = " again" if entry.get("taken") is not None else ""
            return [Line(f"learned{again}: {entry['text']}")]
        if entry["kind"] == "part":
            return self._part(entry)
        return [*self._end_level(), *self._round(entry)]

    def rest(self) -> list[Line]:
        """What was held back and is the last word now."""
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
