"""Progress of a fit, an ingest or a prediction.

A ``Progress`` is a driver's ``Watcher``; it keeps the latest state and gives lines to its view (``report.displays``).
It is a context manager, which restores the terminal after any exception.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

from partirvm.core.updates import StepInfo
from partirvm.jobs.driver import Watcher
from partirvm.planning.units import counted, format_duration
from partirvm.quoting import printable
from partirvm.report.lines import Line, Lines
from partirvm.report.quantities import MEASURED
from partirvm.report.remaining import Remaining
from partirvm.report.text import format_rate, plan_line

TITLES = {
    "gram": "kernel products",
    "residual": "training error",
    "held-out": "held-out error",
    "solve": "dense fits",
    "newton": "Newton passes",
    "misclassification": "misclassification probabilities",
    "gain": "evidence gains",
    "read": "reading",
    "write": "writing",
    "predict": "predicting",
    "evaluate": "evaluating",
}
"""Names of the phases in the output."""


class View:
    """A display of progress; this one shows nothing."""

    def line(self, line: Line) -> None:
        """Show a line of text that stays."""

    def changed(self, progress: Progress) -> None:
        """Notice that the state has changed. It must return at once."""

    def open(self, progress: Progress) -> None:
        """Begin the display."""

    def close(self, progress: Progress) -> None:
        """End the display."""


class Progress(Watcher):
    """State of a running fit, ingest or prediction, and its display ``view``, by default none.

    ``rounds`` counts the models saved so far, ``steps`` the Newton steps of the current classification fit.
    ``spell`` converts the names of Python parameters in messages, for example to command-line flags.
    """

    def __init__(self, view: View | None = None, *, spell: Callable[[str], str] = str) -> None:
        self.view, self._spell = view or View(), spell
        self.began = self.phase_began = self._heard = time.monotonic()
        self.phase, self.done, self.total, self.rows, self.unit = "starting", 0, 0, 0, "tile"
        self.rounds = self.steps = 0
        self.plan: dict[str, Any] | None = None
        self.entry: dict[str, Any] | None = None
        self.fit: tuple[int, int] | None = None
        self.remaining = Remaining(())
        self.closed = False
        self._lines = Lines()

    @property
    def title(self) -> str:
        """Title of the current phase."""
        if self.phase == "newton" and self.steps:
            return f"Newton pass {self.steps + 1}"
        return TITLES.get(self.phase, self.phase)

    @property
    def count(self) -> str:
        """How much of the current phase is done; empty if that is unknown."""
        if self.total:
            return f"{self.done:,} of {counted(self.total, self.unit)}"
        return counted(self.done, "row") if self.unit == "row" else ""

    @property
    def times(self) -> str:
        """Elapsed time, and the remaining time if it is known."""
        left = self.remaining.seconds()
        elapsed = format_duration(time.monotonic() - self.began)
        return elapsed if left is None else f"{elapsed}, about {format_duration(left)} left"

    @property
    def rate(self) -> float | None:
        """Rows per second of the current phase, or None if unknown."""
        seconds = time.monotonic() - self.phase_began
        if not self.rows or seconds <= 0:
            return None
        share = self.done / self.total if self.unit == "tile" and self.total else 1.0
        return share * self.rows / seconds

    def note(self, message: str) -> None:
        """Show a message."""
        self._show([Line(self._spell(message), wraps=True)])

    def on_plan(self, plan: Any) -> None:
        """Receive the plan of the fit before its start."""
        self.plan = plan.to_json()
        self.remaining = Remaining.of(plan)
        self._lines.on_plan(plan)
        self.note(plan_line(self.plan))

    def on_tiles(self, name: str, done: int, total: int, rows: int) -> None:
        """Receive that ``done`` of ``total`` tiles of a pass over ``rows`` rows are finished."""
        self.remaining.on_tiles(done, total)
        self._set_phase(name, done, total, rows, "tile")

    def on_step(self, info: StepInfo, candidates: int) -> None:
        """Receive an iteration of a dense fit. In classification each iteration needs a pass."""
        self.steps = info.iteration if math.isnan(info.noise_variance) else 0
        self.fit = candidates, info.n_vectors
        if self.steps:
            self._set_phase("newton", 0, self.total, self.rows, "tile")
        else:
            self._set_phase(f"dense fit, iteration {info.iteration}", 0, 0, 0, "")

    def on_solves(self, done: int, total: int) -> None:
        """Receive that ``done`` of ``total`` parallel dense fits are finished."""
        self.remaining.on_solves(done, total)
        self._set_phase("solve", done, total, 0, "fit")

    def on_record(self, entry: dict[str, Any]) -> None:
        """Receive the history entry of a finished fit, and count the saved models."""
        self.rounds += entry["kind"] in ("round", "early", "final")
        self.steps = 0
        if entry["kind"] not in MEASURED:
            self.entry = entry
        if entry["kind"] == "part":
            self.fit = entry["candidates"], entry["vectors"]
        self._show(self._lines.of(entry))
        self.remaining.on_record(entry)

    def on_rows(self, phase: str, done: int, total: int | None) -> None:
        """Receive the number of rows that ingest has read or written. ``total`` is None if unknown."""
        self._set_phase(phase, done, total or 0, done, "row")
        if done == total:
            self._end_rows()

    def on_tile(self, phase: str, done: int, total: int) -> None:
        """Receive the number of tiles that prediction or evaluation has finished."""
        self._set_phase(phase, done, total, 0, "tile")
        if done == total:
            self._show([Line(f"{self.title:<11}{_aligned(total, 'tile')} {self._phase_time():>10}")])

    def _set_phase(self, phase: str, done: int, total: int, rows: int, unit: str) -> None:
        if phase != self.phase or done < self.done:
            self._end_rows()
            self.phase_began = self._heard  # this phase has worked since the last one was heard of
        self._heard = time.monotonic()
        self.phase, self.done, self.total, self.rows, self.unit = phase, done, total, rows, unit
        self.view.changed(self)

    def _end_rows(self) -> None:
        """Show a line for the rows of a phase that has ended."""
        if self.unit == "row" and self.done:
            line = f"{self.title:<11}{_aligned(self.done, 'row')} {self._phase_time():>10}"
            self._show([Line(f"{line}  {format_rate(self.rate):>7} rows/s")])
            self.done = self.rows = 0

    def _phase_time(self) -> str:
        return format_duration(time.monotonic() - self.phase_began)

    def _show(self, lines: list[Line]) -> None:
        for line in lines:
            self.view.line(line._replace(text=printable(line.text, keep="\n\t")))

    def __enter__(self) -> Progress:
        self.view.open(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the display. A second call has no effect."""
        if not self.closed:
            self.closed = True
            self._end_rows()
            self._show(self._lines.rest())
            self.view.close(self)


def _aligned(number: int, noun: str) -> str:
    """Format a number with a noun, aligned as a column."""
    figure, word = counted(number, noun).split()
    return f"{figure:>12} {word:<5}"
