"""Progress of a fit, an ingest or a prediction: a live display on a terminal, plain lines
elsewhere, and callbacks.

A ``Progress`` is a driver's ``Watcher`` that keeps the latest state. As a context manager, it
restores the terminal after any exception.
"""

import math
import sys
import time
from collections.abc import Callable
from typing import Any, TextIO

from partirvm.core.updates import StepInfo
from partirvm.fit.driver import Watcher
from partirvm.planning.plan import brief_plan
from partirvm.process import peak_memory
from partirvm.quoting import counted, format_bytes, format_duration, printable, wrapped
from partirvm.report.history import MEASURED, Lines, leaves_model

TITLES = {
    "gram": "kernel products",
    "residual": "training error",
    "held-out": "held-out error",
    "solve": "fits of candidate rows",
    "newton": "fitting probabilities",
    "kernel": "learning the kernel again",
    "learning": "learning the kernel",
    "error": "looking for rows with large errors",
    "groups": "leaving out groups of rows",
    "neighbours": "correcting predictions by the errors of nearby rows",
    "trees": "learning boosted trees",
    "comparing": "comparing with boosted trees",
    "gain": "looking for rows that improve the fit",
    "read": "reading",
    "write": "writing",
}
"""Names of the phases as they appear in the output."""


class FitCallback:
    """Base class of callbacks. Every method does nothing and may be overridden.

    A callback runs in the process of ``fit``, between two steps; a slow callback slows down the
    fit. An exception raised by a callback ends the fit and reaches the caller, which makes it
    possible to prune an Optuna trial.

    Examples
    --------
    >>> import numpy as np
    >>> from partirvm import RVMRegressor
    >>> class Vectors(FitCallback):
    ...     def on_round(self, entry):
    ...         print(entry["kind"], entry["vectors"] > 0)
    >>> X = np.linspace(-5, 5, 100)[:, None]
    >>> _ = RVMRegressor(gamma=1.0).set_callbacks(Vectors()).fit(X, np.sinc(X[:, 0]))
    final True
    """

    def on_plan(self, plan: Any) -> None:
        """Called once, after the kernel is learned and before the first round; ``plan`` is a
        ``Plan``."""

    def on_pass(self, name: str, done: int, total: int) -> None:
        """Called when a pass (such as "gram") or the dense fits ("solve") have finished ``done`` of
        ``total`` tiles.

        For the stages "neighbours", "trees" and "comparing", which have no tiles, ``total`` is 0.
        """

    def on_round(self, entry: dict[str, Any]) -> bool | None:
        """Called after each fit that produced a model, with its line in ``history_``. Return True
        to end the fit.

        The estimator then has the model of this round, and ``termination_`` is
        ``Termination.ABORTED``. The line has ``vectors``, ``log_evidence``, ``seconds`` and, with
        ``validation``, ``held_out_rmse`` or ``held_out_log_loss``.
        """

    def on_end(self, termination: Any) -> None:
        """Called when the fit has ended, with ``termination_``. It is not called after an
        exception."""


class Progress(Watcher):
    """State of a running fit, ingest or prediction, printed to a stream (default stderr), or not if
    ``quiet``.

    On a terminal the state is drawn below the lines, eight times a second; elsewhere a long phase
    prints one line a minute. ``spell`` converts the names of Python parameters in messages, for
    example to command-line flags. ``callbacks`` are called during a fit; ``ended`` is true if a
    callback has ended the fit.
    """

    callbacks: tuple[FitCallback, ...] = ()
    ended = False

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        quiet: bool = False,
        spell: Callable[[str], str] = str,
        details: bool = False,
    ) -> None:
        self.stream = None if quiet else stream or sys.stderr
        self._spell = spell
        self._details = details
        self._lines = None if quiet else Lines(details=details)
        self._live: Any = None
        self.began = self._printed = time.monotonic()
        self.phase = "starting"
        self.done = 0
        self.total = 0
        self.unit = "tile"
        self.detail = ""
        self.vectors: int | None = None
        self.memory_limit: int | None = None

    @property
    def count(self) -> str:
        """Return how much of the current phase is done, or an empty string if this is unknown."""
        if self.total:
            return f"{self.done:,} of {counted(self.total, self.unit)}"
        return counted(self.done, "row") if self.unit == "row" else ""

    def state(self) -> Any:
        """Return, for a terminal, the phase with a bar, and a line with elapsed time, vectors and
        peak memory."""
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table as Grid
        from rich.text import Text

        row = Grid.grid(padding=(0, 2))
        done = self.done - (self.unit == "stage")  # the current stage is unfinished
        bar = ProgressBar(total=self.total, completed=done, width=20) if self.total else Text("")
        row.add_row(Text(TITLES.get(self.phase, self.phase), style="bold"), bar, Text(self.count))
        facts = [format_duration(time.monotonic() - self.began), *[self.detail] * bool(self.detail)]
        if self.vectors is not None:
            facts.append(counted(self.vectors, "vector"))
        limit = "" if self.memory_limit is None else f" of {format_bytes(self.memory_limit)}"
        facts.append(f"peak memory {format_bytes(peak_memory())}{limit}")
        return Group(
            row, Text(" · ".join(facts), style="dim"), ""
        )  # the terminal echoes ^C on this empty line

    def note(self, message: str) -> None:
        """Show a message."""
        self._show(self._spell(message))

    def on_learning(self, number: int, total: int, stage: str) -> None:
        """Receive the current stage of kernel learning and its rate."""
        self._set_phase("learning", number, total, "stage", stage)

    def on_plan(self, plan: Any) -> None:
        """Receive the plan before the fit starts."""
        self.memory_limit = plan.machine.limit
        self._set_phase("starting", 0, 0, "")
        self.note(str(plan) if self._details else brief_plan(str(plan)))
        for callback in self.callbacks:
            callback.on_plan(plan)

    def on_tiles(self, name: str, done: int, total: int) -> None:
        """Receive the number of finished tiles in a pass, a prediction or an evaluation, or the
        number of finished dense fits.

        A stage without tiles has a ``total`` of 0; callbacks do not receive it.
        """
        self._set_phase(name, done, total, "fit" if name == "solve" else "tile")
        for callback in self.callbacks if total else ():
            callback.on_pass(name, done, total)

    def on_step(self, info: StepInfo) -> None:
        """Receive an iteration of a dense fit. In classification, each iteration requires a pass,
        which is the phase."""
        self.vectors = info.n_vectors
        if not math.isnan(info.noise_variance):
            self._set_phase(f"choosing relevance vectors, step {info.iteration}", 0, 0, "")

    def on_record(self, entry: dict[str, Any]) -> None:
        if entry["kind"] not in MEASURED:
            self.vectors = entry["vectors"]
        if self._lines is not None:
            self._show(*self._lines.of(entry, self._width))
        for callback in self.callbacks:
            self.ended |= leaves_model(entry) and callback.on_round(entry) is True

    def on_rows(self, phase: str, done: int, total: int | None) -> None:
        """Receive the number of rows that an ingest has read or written. ``total`` is None if
        unknown."""
        self._set_phase(phase, done, total or 0, "row")

    def _set_phase(self, phase: str, done: int, total: int, unit: str, detail: str = "") -> None:
        """Set the content of the display; without a display, print it if a minute has passed since
        the last line.

        Args:
            phase: name of the phase
            done: number of finished units
            total: number of units, 0 if unknown
            unit: noun for one unit
            detail: further text
        """
        self.phase = phase
        self.done = done
        self.total = total
        self.unit = unit
        self.detail = detail
        if self._live is None and self.count and time.monotonic() - self._printed > 60.0:
            self._show(f"{TITLES.get(self.phase, self.phase)}: {self.count}")

    @property
    def _width(self) -> int:
        return 0 if self._live is None else self._live.console.width

    def _show(self, *lines: str) -> None:
        for line in lines if self.stream is not None else ():
            text = wrapped(printable(line, keep="\n\t"), self._width)
            if self._live is None:
                print(text, file=self.stream, flush=True)
            else:
                self._live.console.print(text, markup=False, soft_wrap=True)
            self._printed = time.monotonic()

    def __enter__(self) -> "Progress":
        if self.stream is not None and self.stream.isatty():
            from rich.console import Console
            from rich.live import Live

            console = Console(
                file=self.stream, highlight=False, force_terminal=True, force_jupyter=False
            )
            options: dict[str, Any] = {
                "refresh_per_second": 8,
                "transient": True,
                "redirect_stdout": False,
            }
            self._live = Live(get_renderable=self.state, console=console, **options)
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
            self._live.stop()
