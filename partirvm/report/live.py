"""The live view on a terminal: a panel that rich draws a few times a second, below the lines of finished rounds."""

from __future__ import annotations

from itertools import zip_longest
from typing import Any, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from partirvm.execution.process import peak_memory
from partirvm.planning.units import format_bytes
from partirvm.report.lines import Line
from partirvm.report.progress import Progress, View
from partirvm.report.quantities import MISSING, format_evidence, held_out, kind_of
from partirvm.report.text import format_rate
from partirvm.strategies import schedule_of

REFRESH = 8
"""Number of redraws per second."""

WIDEST = 120
"""Maximum width of the panel. It has two columns of facts at this width, otherwise one, so that nothing is cut."""

Facts = list[tuple[str, str]]


class LiveView(View):
    """Live view of the latest state."""

    def __init__(self, stream: TextIO) -> None:
        self._console = Console(file=stream, highlight=False)
        self._live: Live | None = None

    def open(self, progress: Progress) -> None:
        self._live = Live(
            get_renderable=lambda: self.panel(progress),
            console=self._console,
            refresh_per_second=REFRESH,
            transient=True,
            redirect_stdout=False,
        )
        self._live.start()

    def close(self, progress: Progress) -> None:
        if self._live is not None:
            self._live.stop()

    def line(self, line: Line) -> None:
        """Print a line above the panel. Lines of a table are cut at the terminal's width: the panel has all facts."""
        style = "bold" if line.heading else ""
        cut: dict[str, Any] = {"soft_wrap": True} if line.wraps else {"no_wrap": True, "overflow": "crop"}
        self._console.print(line.text, style=style, markup=False, **cut)

    def panel(self, progress: Progress) -> Panel:
        """Return the panel of a state."""
        width = min(self._console.width, WIDEST)
        row = Table.grid(padding=(0, 2), expand=True)
        row.add_column(width=26)
        row.add_column(ratio=1)
        row.add_column(justify="right")
        bar = ProgressBar(total=progress.total, completed=progress.done) if progress.total else Text("")
        row.add_row(Text(progress.title, style="bold"), bar, progress.count)
        grid = Table.grid(padding=(0, 2), expand=True)
        abreast = width >= WIDEST
        for style in ("dim", None) * (2 if abreast else 1):
            grid.add_column(style=style, ratio=1 if style is None else None, no_wrap=True)
        left, right = _facts(progress)
        pairs = zip_longest(left, right, fillvalue=("", ""))
        for cells in [(*a, *b) for a, b in pairs] if abreast else left + right:
            grid.add_row(*cells)
        return Panel(Group(row, grid), title="partirvm", title_align="left", border_style="dim", width=width)


def _facts(progress: Progress) -> tuple[Facts, Facts]:
    """Return names and values of the two columns of a panel."""
    time, rate = ("time", progress.times), ("rows/s", format_rate(progress.rate))
    plan, entry = progress.plan, progress.entry or {}
    if plan is None:
        return [time, rate], [("peak memory", format_bytes(peak_memory()))]
    fitted = MISSING if progress.fit is None else f"{progress.fit[0]:,} → {progress.fit[1]:,}"
    memory = f"{format_bytes(peak_memory())} of {format_bytes(plan['memory_limit'])}"
    kind = kind_of(entry, plan)
    errors = kind.validated if held_out(entry) or not entry else kind.alone
    left = [_place(progress), ("candidates → vectors", fitted), *((one.label, one.text(entry)) for one in errors)]
    evidence = ("log evidence", format_evidence(entry.get("log_evidence")))
    return left, [time, rate, ("peak memory", memory), evidence]


def _place(progress: Progress) -> tuple[str, str]:
    """Return the name and the number of the current round or level."""
    assert progress.plan is not None
    schedule = schedule_of(progress.plan["strategy"])
    if schedule.merges:
        return schedule.unit, f"{progress.remaining.stage} of {progress.plan['rounds'] - 1}"
    most = schedule.most_rounds(progress.plan)
    return schedule.unit, f"{progress.rounds + 1}" + (f" of {most:,}" if most else "")
