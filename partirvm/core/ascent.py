"""Maximisation of a function of log parameters by L-BFGS-B (Byrd, Lu, Nocedal & Zhu 1995), and features that are off.

A search of a noisy optimum need not end exactly: it ends when its best value rises too little for the evaluations.
"""

from collections.abc import Callable, Sequence

import numpy as np

from partirvm.core.termination import Termination
from partirvm.types import Float, Int

LOWEST, HIGHEST = np.log(1e-5), np.log(1e3)
"""Bounds of a log parameter relative to its start. Below, a feature is off; above, kernel values are zero."""

WINDOW, RISE = 3, 1e-3
"""Steps within which the best value must rise, and the minimum rise, nats per row."""

MOST_EVALUATIONS = 150
"""Maximum number of evaluations of a search, but for those of the last step: twice the largest number measured."""

OFF = 1e-3
"""A feature is off when its gamma is below this fraction of the largest."""


def ascend(
    function: Callable[[Float], tuple[float, Float]],
    begin: Float,
    low: Float,
    high: Float,
    scale: Float | float = 1.0,
    *,
    most_evaluations: int = MOST_EVALUATIONS,
    most_steps: int | None = None,
) -> tuple[Termination, int]:
    """Maximise ``function`` within bounds from ``begin`` (p,); return why it ended, and the number of evaluations.

    The function returns a value in nats per row and its slopes (p,). A parameter is fixed if its ``low`` is −∞.
    ``scale`` are typical changes of the parameters. The search ends when the best value has risen less than ``RISE`` in
    ``WINDOW`` steps.
    """
    from scipy.optimize import minimize  # its import takes megabytes

    free, scale = np.isfinite(low), np.broadcast_to(scale, begin.shape)
    if not free.any():
        function(begin)
        return Termination.CONVERGED, 1
    values, peaks = list[float](), list[float]()

    def negative(x: Float) -> tuple[float, Float]:
        now = begin.copy()
        now[free] = x * scale[free]
        value, slopes = function(now)
        values.append(value)
        return -value, -(slopes * scale)[free]

    def stop(x: Float) -> None:
        peaks.append(max(values))
        if len(peaks) > WINDOW and peaks[-1] - peaks[-1 - WINDOW] < RISE:
            raise StopIteration

    first, bounds = (np.clip(begin, low, high) / scale)[free], np.column_stack([low / scale, high / scale])[free]
    # with 10 gradients in memory it took half as many steps again in 50 parameters
    options = {"maxcor": 20, "maxfun": most_evaluations, "maxiter": most_steps or most_evaluations}
    end = minimize(negative, first, jac=True, method="L-BFGS-B", bounds=bounds, callback=stop, options=options)
    return Termination.ITERATIONS if end.status == 1 else Termination.CONVERGED, len(values)


def groups(names: Sequence[str]) -> list[Int]:
    """Return the positions of the per-feature gammas, one array for each kernel with per-feature gammas."""
    kernels = np.array([name.rpartition("[")[0] if "gamma[" in name else "" for name in names])
    return [np.flatnonzero(kernels == kernel) for kernel in dict.fromkeys(kernels.tolist()) if kernel]


def off(logs: Float, features: Sequence[Int]) -> Int:
    """Return the positions of the gammas that are off; gammas that were 0 at the start are excluded."""
    found = [group[(logs[group] < logs[group].max() + np.log(OFF)) & np.isfinite(logs[group])] for group in features]
    return np.concatenate([np.zeros(0, np.int64), *found])


def raised(logs: Float, start: Float, positions: Int, share: float) -> Float:
    """Return ``logs`` (p,) with each gamma at these positions at least this share of its ``start``."""
    found = logs.copy()
    found[positions] = np.maximum(logs[positions], start[positions] + np.log(share))
    return found


def awakened(logs: Float, features: Sequence[Int]) -> Float:
    """Return ``logs`` (p,) with each gamma that is off raised to a hundredth of the largest gamma."""
    found = logs.copy()
    for group in features:
        found[off(logs, [group])] = logs[group].max() + np.log(1e-2)
    return found
