"""Maximisation of a function of log parameters by L-BFGS (Nocedal & Wright 2006, algorithm 7.4), and features off.

There is no line search: each evaluation, also of a point that is not taken, adds its curvature, and the next step, from
the best point, is at most twice as long as one that was taken, half as long after one that was not. Bounds cut steps. A
search of a noisy optimum need not end exactly: it ends when its best value rises too little for the evaluations.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.linalg import norm

from partirvm.core.termination import Termination
from partirvm.types import Float, Int

LOWEST, HIGHEST = np.log(1e-5), np.log(1e3)
"""Bounds of a log parameter relative to its start. Below, a feature is off; above, kernel values are zero."""

WINDOW, RISE = 4, 1e-3
"""Evaluations within which the best value must rise, and the minimum rise, nats per row."""

MOST_EVALUATIONS = 150
"""Maximum number of evaluations of a search, but for those of the last step: twice the largest number measured."""

MOST_PAIRS, LEAST_ANGLE, TINY = 40, 1e-8, 1e-300
"""Maximum number of pairs (with 10 it took half as many evaluations again in 50 parameters), and the least cosine of
the angle between the vectors of one."""

Pairs: TypeAlias = list[tuple[Float, Float]]
"""Changes of the parameters ÷ scale, and minus the changes of the slopes, the latest last."""

OFF = 1e-3
"""A feature is off when its gamma is below this fraction of the largest."""


def ascend(
    function: Callable[[Float], tuple[float, Float]],
    begin: Float,
    low: Float,
    high: Float,
    scale: Float | float = 1.0,
    *,
    most: int = MOST_EVALUATIONS,
    pairs: Pairs | None = None,
) -> tuple[Termination, int]:
    """Maximise ``function`` within bounds from ``begin`` (p,); return why it ended, and the number of evaluations.

    The function returns a value in nats per row and its slopes (p,), −∞ if it has none. A parameter is fixed if its
    ``low`` is −∞. ``scale`` are typical changes of the parameters. The search ends when the best value has risen less
    than ``RISE`` in ``WINDOW`` evaluations. ``pairs``, which grows, has the curvature of an earlier search.
    """
    free = np.isfinite(low)
    scale, low, high = np.broadcast_to(scale, begin.shape)[free], low[free], high[free]

    def evaluated(x: Float) -> tuple[float, Float]:
        now = begin.copy()
        now[free] = x
        value, slopes = function(now)
        return value, slopes[free] * scale

    x, radius, pairs = np.clip(begin[free], low, high), 1.0, [] if pairs is None else pairs
    value, slopes = evaluated(x)
    peaks = [value]
    while free.any() and len(peaks) < most:
        step = _step(slopes, pairs)
        new = np.clip(x + scale * step * min(radius / max(norm(step), TINY), 1.0), low, high)
        move = (new - x) / scale
        found, others = evaluated(new)
        if np.isfinite(found) and move @ (slopes - others) > LEAST_ANGLE * norm(move) * norm(slopes - others):
            pairs[:] = [*pairs, (move, slopes - others)][-MOST_PAIRS:]
        radius = (2.0 if found > value else 0.5) * norm(move)
        if found > value:
            x, value, slopes = new, found, others
        peaks.append(value)
        if len(peaks) > WINDOW and peaks[-1] - peaks[-1 - WINDOW] < RISE:
            break
    return Termination.ITERATIONS if free.any() and len(peaks) == most else Termination.CONVERGED, len(peaks)


def _step(slopes: Float, pairs: Pairs) -> Float:
    """Return the step (p,) to the maximum by the curvature of pairs; without any, one of length 1 upwards."""
    step, shares = slopes.copy(), list[float]()
    for move, change in reversed(pairs):
        shares.append(float(move @ step / (move @ change)))
        step -= shares[-1] * change
    step *= pairs[-1][0] @ pairs[-1][1] / (pairs[-1][1] @ pairs[-1][1]) if pairs else 1 / max(norm(slopes), TINY)
    for (move, change), share in zip(pairs, reversed(shares), strict=True):
        step += (share - change @ step / (move @ change)) * move
    return step


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
