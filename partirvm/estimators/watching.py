"""What hears of the fit of an estimator: its callbacks, and the display of ``verbose``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from partirvm.callbacks import FitCallback
from partirvm.core.termination import Termination
from partirvm.core.updates import StepInfo
from partirvm.errors import UsageError
from partirvm.jobs.driver import Watcher
from partirvm.report.progress import Progress
from partirvm.report.quantities import leaves_model


class Watching(Watcher):
    """Passes the progress of a fit to callbacks and to a display, and ends it where a callback says so."""

    def __init__(self, callbacks: tuple[FitCallback, ...], display: Progress) -> None:
        self._callbacks, self._display = callbacks, display
        self._ended = False

    def ending(self, timer: Callable[[], Termination | None]) -> Callable[[], Termination | None]:
        """Return a function that says why the fit has to end: a callback, or the timer; None if it goes on."""
        return lambda: Termination.ABORTED if self._ended else timer()

    def on_plan(self, plan: Any) -> None:
        """Called before the first round."""
        self._display.on_plan(plan)
        for callback in self._callbacks:
            callback.on_plan(plan)

    def on_tiles(self, name: str, done: int, total: int, rows: int) -> None:
        self._display.on_tiles(name, done, total, rows)
        for callback in self._callbacks:
            callback.on_pass(name, done, total)

    def on_step(self, info: StepInfo, candidates: int) -> None:
        self._display.on_step(info, candidates)

    def on_solves(self, done: int, total: int) -> None:
        self._display.on_solves(done, total)

    def on_record(self, entry: dict[str, Any]) -> None:
        self._display.on_record(entry)
        if leaves_model(entry):
            for callback in self._callbacks:
                self._ended |= callback.on_round(entry) is True

    def on_end(self, termination: Termination) -> None:
        """Called when the fit has ended."""
        for callback in self._callbacks:
            callback.on_end(termination)


def require_callbacks(callbacks: tuple[Any, ...]) -> tuple[FitCallback, ...]:
    """Return the callbacks. Raises ``UsageError`` for one that is not a ``FitCallback``."""
    for one in callbacks:
        if not isinstance(one, FitCallback):
            raise UsageError(
                f"set_callbacks was given a {type(one).__name__}: derive its class from partirvm.FitCallback"
            )
    return callbacks
