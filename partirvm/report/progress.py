"""Progress on stderr: a live view on a terminal, plain lines if stderr is redirected, nothing if quiet.

A ``Progress`` is a driver's ``Watcher``, which ingest, prediction and evaluation use too. Callbacks only store values
and never block, since a separate thread draws the live view. A ``Progress`` is a context manager, which restores the
terminal after any exception.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, TextIO

from partirvm.core.updates import StepInfo
from partirvm.jobs.driver import Watcher
from partirvm.planning.units import counted, format_duration
from partirvm.quoting import printable
from partirvm.report.lines import Lines
from partirvm.report.text import format_rate, plan_line

HEARTBEAT = 60.0
"""Interval in seconds at which plain progress prints the state of a long phase."""

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


class Progress(Watcher):
    """Silent progress, and base of the other progress displays.

    ``rounds`` counts the models saved so far, ``steps`` the Newton steps of the current classification fit.
    """

    rounds = steps = 0

    def on_step(self, info: StepInfo, candidates: int) -> None:
        """Count one iteration of a dense fit. In classification each iteration needs a pass."""
        self.steps = info.iteration if math.isnan(info.noise_variance) else 0

    def on_record(self, entry: dict[str, Any]) -> None:
        """Process the history entry of a finished fit, and count the saved models."""
        self.rounds += entry["kind"] in ("round", "early", "final")
        self.steps = 0

    def title(self, phase: str) -> str:
        """Return the current title of a phase."""
        if phase == "newton" and self.steps:
            return f"Newton pass {self.steps + 1}"
        return TITLES.get(phase, phase)

    def on_plan(self, plan: Any) -> None:
        """Receive the plan of the fit before its start."""

    def on_rows(self, phase: str, done: int, total: int | None) -> None:
        """Receive the number of rows that ingest has read or written. ``total`` is None if unknown."""

    def on_tile(self, phase: str, done: int, total: int) -> None:
        """Receive the number of tiles that prediction or evaluation has finished."""

    def note(self, message: str) -> None:
        """Print a message."""

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the display. A second call has no effect."""


class PlainProgress(Progress):
    """Progress as plain lines: one per round, level or other phase, and periodic lines in long phases."""

    def __init__(self, stream: TextIO, *, spell: Callable[[str], str] = str) -> None:
        self._stream, self._spell = stream, spell
        self._lines = Lines()
        self._phase: str | None = None
        self._done = 0
        self._began = self._said = time.monotonic()

    def note(self, message: str) -> None:
        print(printable(self._spell(message), keep="\n\t"), file=self._stream, flush=True)

    def on_plan(self, plan: Any) -> None:
        self._lines.on_plan(plan)
        self.note(plan_line(plan.to_json()))

    def on_tiles(self, name: str, done: int, total: int, rows: int) -> None:
        self._heartbeat(f"{self.title(name)}: {done:,} of {counted(total, 'tile')}")

    def on_solves(self, done: int, total: int) -> None:
        self._heartbeat(f"{TITLES['solve']}: {done:,} of {total:,}")

    def on_record(self, entry: dict[str, Any]) -> None:
        super().on_record(entry)
        for line in self._lines.of(entry):
            self.note(line.text)
            self._said = time.monotonic()

    def on_rows(self, phase: str, done: int, total: int | None) -> None:
        self._advance(phase, done)
        rows = counted(done, "row") if total is None else f"{done:,} of {counted(total, 'row')}"
        self._heartbeat(f"{self.title(phase)}: {rows}")
        if done == total:
            self._finish_phase()

    def on_tile(self, phase: str, done: int, total: int) -> None:
        self._heartbeat(f"{self.title(phase)}: {done:,} of {counted(total, 'tile')}")
        if done == total:
            self.note(f"{self.title(phase):<11}{_aligned(total, 'tile')} {self._seconds():>10}")

    def _seconds(self) -> str:
        return format_duration(time.monotonic() - self._began)

    def close(self) -> None:
        self._finish_phase()
        for line in self._lines.rest():
            self.note(line.text)

    def _advance(self, phase: str, done: int) -> None:
        if phase != self._phase:
            self._finish_phase()
            self._phase = phase
        self._done = done

    def _finish_phase(self) -> None:
        if self._phase is None or not self._done:
            return
        seconds = time.monotonic() - self._began
        rate = format_rate(self._done / seconds if seconds > 0 else None)
        title = self.title(self._phase)
        self.note(f"{title:<11}{_aligned(self._done, 'row')} {format_duration(seconds):>10}  {rate:>7} rows/s")
        self._done = 0
        self._began = self._said = time.monotonic()

    def _heartbeat(self, message: str) -> None:
        now = time.monotonic()
        if now - self._said > HEARTBEAT:
            self.note(message)
            self._said = now


def _aligned(number: int, noun: str) -> str:
    """Format a number with a noun, aligned as a column."""
    figure, word = counted(number, noun).split()
    return f"{figure:>12} {word:<5}"
