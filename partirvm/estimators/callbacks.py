"""Callbacks of a fit: functions of the user that hear how it goes, and may end it; and what passes progress to them.

``estimator.set_callbacks(mine)`` is the name that scikit-learn 1.9 uses for its own, still experimental callbacks.
"""

from __future__ import annotations

from typing import Any

from partirvm.core.termination import Termination
from partirvm.jobs.driver import Watcher
from partirvm.report.progress import Progress
from partirvm.report.quantities import leaves_model


class FitCallback:
    """Base class of callbacks. Every method does nothing and may be overridden.

    A callback runs in the process of ``fit``, between two steps of it; a slow one makes the fit slow. An exception that
    it raises ends the fit and reaches the caller, as the pruning of an Optuna trial needs.

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
        """Called once, when the kernel is learned and before the first round; ``plan`` is a ``Plan``."""

    def on_pass(self, name: str, done: int, total: int) -> None:
        """Called when a pass over the rows, such as "gram", has finished ``done`` of ``total`` tiles."""

    def on_round(self, entry: dict[str, Any]) -> bool | None:
        """Called after each fit that left a model, with its line of ``history_``. Return True to end the fit.

        The estimator then has the model of this round, and ``termination_`` is ``Termination.ABORTED``. The line has
        ``vectors``, ``log_evidence``, ``seconds`` and, with ``validation``, ``held_out_rmse`` or
        ``held_out_log_loss``.
        """
        return None

    def on_end(self, termination: Any) -> None:
        """Called when the fit has ended, with ``termination_``. It is not called after an exception."""


class Watching(Watcher):
    """Passes the progress of a fit to callbacks and to a display; ``ended`` is true if a callback ends the fit."""

    def __init__(self, callbacks: tuple[FitCallback, ...], display: Progress) -> None:
        self._callbacks, self._display, self.ended = callbacks, display, False
        self.on_step, self.on_solves = display.on_step, display.on_solves  # type: ignore[method-assign]

    def on_plan(self, plan: Any) -> None:
        """Called before the first round."""
        self._display.on_plan(plan)
        for callback in self._callbacks:
            callback.on_plan(plan)

    def on_tiles(self, name: str, done: int, total: int, rows: int) -> None:
        self._display.on_tiles(name, done, total, rows)
        for callback in self._callbacks:
            callback.on_pass(name, done, total)

    def on_record(self, entry: dict[str, Any]) -> None:
        self._display.on_record(entry)
        for callback in self._callbacks if leaves_model(entry) else ():
            self.ended |= callback.on_round(entry) is True

    def on_end(self, termination: Termination) -> None:
        """Called when the fit has ended."""
        for callback in self._callbacks:
            callback.on_end(termination)
