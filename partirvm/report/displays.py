"""Displays of progress: a live view on a terminal, HTML in a notebook, plain lines elsewhere, nothing if quiet."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from html import escape
from importlib import import_module
from typing import Any, TextIO

from partirvm.planning.units import format_duration
from partirvm.report.lines import Line
from partirvm.report.progress import Progress, View

HEARTBEAT = 60.0
"""Interval in seconds at which plain progress prints the state of a long phase."""

REDRAW_SECONDS = 0.25
"""Shortest time between two drawings in a notebook."""


def progress_for(stream: TextIO | None = None, *, quiet: bool = False, spell: Callable[[str], str] = str) -> Progress:
    """Return the progress display for a stream, default stderr: live on a terminal, otherwise plain, none if ``quiet``.

    In a notebook the display is HTML below the cell. ``spell`` is as for ``Progress``.
    """
    if quiet:
        return Progress()
    if stream is None and in_notebook():
        return Progress(NotebookView(), spell=spell)
    stream = sys.stderr if stream is None else stream
    if not stream.isatty():
        return Progress(PlainView(stream), spell=spell)
    from partirvm.report.live import LiveView

    return Progress(LiveView(stream), spell=spell)


class PlainView(View):
    """Lines, and the state of a long phase once a minute."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._said = stream, time.monotonic()

    def line(self, line: Line) -> None:
        print(line.text, file=self._stream, flush=True)
        self._said = time.monotonic()

    def changed(self, progress: Progress) -> None:
        if progress.count and time.monotonic() - self._said > HEARTBEAT:
            self.line(Line(f"{progress.title}: {progress.count}"))


class NotebookView(View):
    """HTML below the cell that is drawn again in one place: the phase with a bar, then all lines."""

    def __init__(self, shown: Callable[[str], Any] | None = None) -> None:
        self._update = shown or _display()
        self._drawn = -math.inf
        self._text: list[str] = []

    def line(self, line: Line) -> None:
        self._text.append(line.text)

    def changed(self, progress: Progress) -> None:
        if time.monotonic() - self._drawn > REDRAW_SECONDS:
            self.open(progress)

    def open(self, progress: Progress) -> None:
        self._drawn = time.monotonic()
        bar = ""
        if progress.total:
            label = escape(progress.title)
            bar = f'<progress value="{progress.done}" max="{progress.total}" aria-label="{label}"></progress> '
        count = f"{progress.count}; " if progress.count else ""
        self._draw(f"<b>{escape(progress.title)}</b> {bar}{count}{progress.times}")

    def close(self, progress: Progress) -> None:
        self._draw(f"done in {format_duration(time.monotonic() - progress.began)}")

    def _draw(self, head: str) -> None:
        text = escape("\n".join(self._text))
        self._update(f'<div><p>{head}</p><pre style="overflow-x:auto">{text}</pre></div>')


def in_notebook() -> bool:
    """Return True in a process that runs the cells of a notebook. It loads nothing: a kernel has loaded IPython."""
    shell = sys.modules.get("IPython")
    return shell is not None and getattr(shell.get_ipython(), "kernel", None) is not None


def _display() -> Callable[[str], Any]:
    """Return a function that draws HTML below the cell, again in the same place each time."""
    display: Any = import_module("IPython.display")
    handle = display.display(display.HTML(""), display_id=True)
    return lambda html: handle.update(display.HTML(html))
