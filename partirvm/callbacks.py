"""Callbacks of a fit: functions of yours that hear how it goes, and may end it.

``estimator.set_callbacks(mine)`` is the name that scikit-learn 1.9 uses for its own, still experimental callbacks.
"""

from __future__ import annotations

from typing import Any


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
