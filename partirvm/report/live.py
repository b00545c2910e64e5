"""The live view on a terminal: a panel that is redrawn a few times a second, below the lines of finished rounds."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import zip_longest
from typing import Any, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from partirvm.backends.process import peak_memory
from partirvm.core.updates import StepInfo
from partirvm.planning.units import counted, format_bytes, format_duration
from partirvm.quoting import printable
from partirvm.report.lines import Line, Lines
from partirvm.report.progress import Progress
from partirvm.report.quantities import MEASURED, MISSING, format_evidence, held_out, kind_of
from partirvm.report.remaining import Remaining
from partirvm.report.text import format_rate, plan_line
from partirvm.strategies import schedule_of

REFRESH = 8
"""Number of redraws per second."""

WIDEST = 120
"""Maximum width of the panel."""

ABREAST = 120
"""Width from which facts stand in two columns; a narrower panel has one, so that nothing is cut."""


class LiveProgress(Progress):
    """Live view of the latest state. Callbacks only store values, so a fit never waits for the terminal."""

    def __init__(self, stream: TextIO, *, spell: Callable[[str], str] = str) -> None:
        self._spell = spell
        self._began = self._phase_began = time.monotonic()
        self._phase, self._done, self._total, self._rows = "starting", 0, 0, 0
        self._unit = "tile"
        self._plan: dict[str, Any] | None = None
        self._entry: dict[str, Any] | None = None
        self._fit: tuple[int, int] | None = None
        self._remaining: Remaining | None = None
        self._lines = Lines()
        self._console = Console(file=stream, highlight=False)
        # The view is drawn once on creation, so all values must be set before.
        self._live = Live(
            get_renderable=self._draw,
            console=self._console,
            refresh_per_second=REFRESH,
            transient=True,
            redirect_stdout=False,
        )

    def __enter__(self) -> LiveProgress:
        self._live.start()
        return self

    def close(self) -> None:
        self._show(self._lines.rest())
        self._live.stop()

    def note(self, message: str) -> None:
        self._console.print(printable(self._spell(message), keep="\n\t"), soft_wrap=True, markup=False)

    def on_plan(self, plan: Any) -> None:
        self._plan = plan.to_json()
        self._remaining = Remaining.of(plan)
        self._lines.on_plan(plan)
        self.note(plan_line(self._plan))

    def on_tiles(self, name: str, done: int, total: int, rows: int) -> None:
        self._set_phase(name, done, total, rows, "tile")
        if self._remaining is not None:
            self._remaining.on_tiles(done, total)

    def on_step(self, info: StepInfo, candidates: int) -> None:
        super().on_step(info, candidates)
        self._fit = candidates, info.n_vectors
        if self.steps:  # a Newton step: the next pass over the rows begins
            self._set_phase("newton", 0, self._total, self._rows, "tile")
        else:
            self._set_phase(f"dense fit, iteration {info.iteration}", 0, 0, 0, "")

    def on_solves(self, done: int, total: int) -> None:
        self._set_phase("solve", done, total, 0, "fit")
        if self._remaining is not None:
            self._remaining.on_solves(done, total)

    def on_record(self, entry: dict[str, Any]) -> None:
        super().on_record(entry)
        if entry["kind"] not in MEASURED:
            self._entry = entry
        if entry["kind"] == "part":
            self._fit = entry["candidates"], entry["vectors"]
        self._show(self._lines.of(entry))
        if self._remaining is not None:
            self._remaining.on_record(entry)

    def _show(self, lines: list[Line]) -> None:
        """Print lines above the panel, truncated to the terminal width. The panel shows the cut columns."""
        for line in lines:
            style = "bold" if line.heading else ""
            self._console.print(
                printable(line.text, keep="\n\t"), style=style, no_wrap=True, overflow="crop", markup=False
            )

    def on_rows(self, phase: str, done: int, total: int | None) -> None:
        self._set_phase(phase, done, total or 0, done, "row")

    def on_tile(self, phase: str, done: int, total: int) -> None:
        self._set_phase(phase, done, total, 0, "tile")

    def _set_phase(self, phase: str, done: int, total: int, rows: int, unit: str) -> None:
        if phase != self._phase or done < self._done:
            self._phase_began = time.monotonic()
        self._phase, self._done, self._total, self._rows, self._unit = phase, done, total, rows, unit

    def _draw(self) -> Panel:
        body = [self._bar()]
        body.append(self._fit_facts() if self._plan is not None else self._facts())
        return Panel(Group(*body), title="partirvm", title_align="left", border_style="dim", width=self._width())

    def _width(self) -> int:
        return min(self._console.width, WIDEST)

    def _bar(self) -> Table:
        row = Table.grid(padding=(0, 2), expand=True)
        row.add_column(width=26)
        row.add_column(ratio=1)
        row.add_column(justify="right")
        title = self.title(self._phase)
        done = f"{self._done:,} of {counted(self._total, self._unit)}" if self._total else ""
        if not self._total and self._unit == "row":
            done = counted(self._done, "row")
        bar = ProgressBar(total=self._total, completed=self._done) if self._total else Text("")
        row.add_row(Text(title, style="bold"), bar, done)
        return row

    def _fit_facts(self) -> Table:
        assert self._plan is not None
        entry, plan = self._entry or {}, self._plan
        fitted = MISSING if self._fit is None else f"{self._fit[0]:,} → {self._fit[1]:,}"
        memory = f"{format_bytes(peak_memory())} of {format_bytes(plan['memory_limit'])}"
        kind = kind_of(entry, plan)
        errors = kind.validated if held_out(entry) or not entry else kind.alone
        left = [self._place(plan), ("candidates → vectors", fitted), *((one.label, one.text(entry)) for one in errors)]
        right = [
            ("time", self._time()),
            ("rows/s", format_rate(self._rate())),
            ("peak memory", memory),
            ("log evidence", format_evidence(entry.get("log_evidence"))),
        ]
        return self._grid(left, right)

    def _place(self, plan: dict[str, Any]) -> tuple[str, str]:
        """Return the name and the number of the current round or level."""
        schedule = schedule_of(plan["strategy"])
        if schedule.merges:
            level = 0 if self._remaining is None else self._remaining.stage
            return schedule.unit, f"{level} of {plan['rounds'] - 1}"
        most = schedule.most_rounds(plan)
        return schedule.unit, f"{self.rounds + 1}" + (f" of {most:,}" if most else "")

    def _facts(self) -> Table:
        left = [("time", self._time()), ("rows/s", format_rate(self._rate()))]
        return self._grid(left, [("peak memory", format_bytes(peak_memory()))])

    def _grid(self, left: list[tuple[str, str]], right: list[tuple[str, str]]) -> Table:
        """Return names and values side by side if the panel is wide enough, otherwise one below the other."""
        abreast = self._width() >= ABREAST
        rows = [(*a, *b) for a, b in zip_longest(left, right, fillvalue=("", ""))] if abreast else left + right
        grid = Table.grid(padding=(0, 2), expand=True)
        for style in ("dim", None) * (2 if abreast else 1):
            grid.add_column(style=style, ratio=1 if style is None else None, no_wrap=True)
        for row in rows:
            grid.add_row(*row)
        return grid

    def _time(self) -> str:
        elapsed = format_duration(time.monotonic() - self._began)
        left = None if self._remaining is None else self._remaining.seconds()
        return elapsed if left is None else f"{elapsed}, about {format_duration(left)} left"

    def _rate(self) -> float | None:
        seconds = time.monotonic() - self._phase_began
        if not self._rows or seconds <= 0:
            return None
        share = self._done / self._total if self._unit == "tile" and self._total else 1.0
        return share * self._rows / seconds
