"""Progress in a notebook: one output below the cell that is drawn again as the fit goes on."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from html import escape
from importlib import import_module
from typing import Any

from partirvm.core.updates import StepInfo
from partirvm.planning.units import counted, format_duration
from partirvm.quoting import printable
from partirvm.report.lines import Lines
from partirvm.report.progress import Progress
from partirvm.report.remaining import Remaining
from partirvm.report.text import plan_line

REDRAW_SECONDS = 0.25
"""Shortest time between two drawings."""


def in_notebook() -> bool:
    """Return True in a process that runs the cells of a notebook. It loads nothing: a kernel has loaded IPython."""
    shell = sys.modules.get("IPython")
    return shell is not None and getattr(shell.get_ipython(), "kernel", None) is not None


class NotebookProgress(Progress):
    """Progress as HTML: the phase with a bar, then the plan and the table of rounds."""

    def __init__(self, *, spell: Callable[[str], str] = str, shown: Callable[[str], Any] | None = None) -> None:
        self._spell, self._update = spell, shown or _display()
        self._phase, self._done, self._total, self._unit = "starting", 0, 0, "tile"
        self._notes: list[str] = []
        self._table: list[str] = []
        self._lines = Lines()
        self._remaining: Remaining | None = None
        self._began, self._drawn = time.monotonic(), 0.0
        self._closed = False

    def note(self, message: str) -> None:
        self._notes.append(printable(self._spell(message), keep="\n\t"))
        self._draw()

    def on_plan(self, plan: Any) -> None:
        self._remaining = Remaining.of(plan)
        self._lines.on_plan(plan)
        self.note(plan_line(plan.to_json()))

    def on_tiles(self, name: str, done: int, total: int, rows: int) -> None:
        if self._remaining is not None:
            self._remaining.on_tiles(done, total)
        self._set_phase(self.title(name), done, total, "tile")

    def on_step(self, info: StepInfo, candidates: int) -> None:
        super().on_step(info, candidates)
        if not self.steps:
            self._set_phase(f"dense fit, iteration {info.iteration}", 0, 0, "")

    def on_solves(self, done: int, total: int) -> None:
        if self._remaining is not None:
            self._remaining.on_solves(done, total)
        self._set_phase(self.title("solve"), done, total, "fit")

    def on_record(self, entry: dict[str, Any]) -> None:
        super().on_record(entry)
        self._table += [printable(line.text) for line in self._lines.of(entry)]
        if self._remaining is not None:
            self._remaining.on_record(entry)
        self._draw()

    def on_rows(self, phase: str, done: int, total: int | None) -> None:
        self._set_phase(self.title(phase), done, total or 0, "row")

    def on_tile(self, phase: str, done: int, total: int) -> None:
        self._set_phase(self.title(phase), done, total, "tile")

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._table += [printable(line.text) for line in self._lines.rest()]
            self._draw()

    def _set_phase(self, title: str, done: int, total: int, unit: str) -> None:
        self._phase, self._done, self._total, self._unit = title, done, total, unit
        if time.monotonic() - self._drawn > REDRAW_SECONDS:
            self._draw()

    def _draw(self) -> None:
        self._drawn = time.monotonic()
        self._update(self._html())

    def _html(self) -> str:
        elapsed = format_duration(time.monotonic() - self._began)
        if self._closed:
            head = f"<p>done in {elapsed}</p>"
        else:
            left = None if self._remaining is None else self._remaining.seconds()
            times = elapsed if left is None else f"{elapsed}, about {format_duration(left)} left"
            bar, count = "", ""
            if self._total:
                label = escape(self._phase)
                bar = f'<progress value="{self._done}" max="{self._total}" aria-label="{label}"></progress> '
                count = f"{self._done:,} of {counted(self._total, self._unit)}; "
            head = f"<p><b>{escape(self._phase)}</b> {bar}{count}{times}</p>"
        text = "\n".join([*self._notes, *self._table])
        return f'<div>{head}<pre style="overflow-x:auto">{escape(text)}</pre></div>'


def _display() -> Callable[[str], Any]:
    """Return a function that draws HTML below the cell, again in the same place each time."""
    display: Any = import_module("IPython.display")
    handle = display.display(display.HTML(""), display_id=True)
    return lambda html: handle.update(display.HTML(html))
