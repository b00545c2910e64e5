"""Maximisation of a function of log parameters by L-BFGS (Nocedal & Wright 2006, algorithm 7.4).

There is no line search: each evaluation, even of a rejected point, adds its curvature. The next
step, from the best point, is at most twice as long as an accepted one, or half as long as a
rejected one. Bounds cut steps short. A search for a noisy optimum need not be exact: it ends when
its best value rises, or by its curvature can rise, too little to be worth more evaluations.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from partirvm.core.termination import Termination
from partirvm.types import Float, Int

LOWEST, HIGHEST = np.log(1e-5), np.log(1e3)
"""Bounds of a log parameter relative to its start. Below them a feature is off; above them kernel
values are zero."""

WINDOW, RISE, PROMISE = 4, 1e-3, 1e-4
"""Number of evaluations within which the best value must rise, and the minimum rise, in nats per
row; with that many pairs, the smallest rise that their curvature must promise for the next step."""

MOST = 150
"""Maximum number of evaluations per search, excluding the last step: twice the largest number
observed."""

MOST_PAIRS, LEAST_ANGLE = 40, 1e-8
"""Maximum number of pairs (10 took half as many evaluations again), and the least cosine between a
pair's vectors."""

Function: TypeAlias = Callable[[Float], tuple[float, Float]]
"""Returns a value in nats per row, −∞ if there is none, and its slopes (p,)."""

Pairs: TypeAlias = list[tuple[Float, Float]]
"""Changes of the parameters ÷ scale, and minus the changes of the slopes, latest last."""

OFF = 1e-3
"""A feature is off when its gamma is below this fraction of the largest."""


def ascend(
    function: Function,
    begin: Float,
    low: Float,
    high: Float,
    scale: Any = 1.0,
    *,
    most: int = MOST,
    pairs: Any = None,
) -> tuple[Termination, int]:
    """Maximise ``function`` within bounds from ``begin`` (p,); return why it ended, and the number
    of evaluations.

    A parameter is fixed if its ``low`` is −∞. ``scale`` gives typical changes of the parameters.
    The search ends when the best value has risen by less than ``RISE`` in ``WINDOW`` evaluations.
    ``pairs``, which it extends, hold the curvature of an earlier search.
    """
    free = np.isfinite(low)
    scale = np.broadcast_to(scale, begin.shape)[free]
    low = low[free]
    high = high[free]

    def evaluated(x: Float) -> tuple[float, Float]:
        now = begin.copy()
        now[free] = x
        value, slopes = function(now)
        return value, slopes[free] * scale

    x = np.clip(begin[free], low, high)
    radius = 1.0
    pairs = [] if pairs is None else pairs
    value, slopes = evaluated(x)
    peaks = [value]
    while (
        size(slopes)
        and len(peaks) < most
        and not (len(peaks) > WINDOW and peaks[-1] - peaks[-1 - WINDOW] < RISE)
    ):
        inverse = [
            1 / size(slopes),
            *(move @ change / (change @ change) for move, change in pairs[-1:]),
        ][-1]
        inner = np.where(slopes > 0, x < high, x > low)  # the others are held at a bound
        step = _step(slopes * inner, pairs, inverse) * inner
        if len(pairs) >= WINDOW and len(peaks) > 1 and 0.5 * slopes @ step < PROMISE:
            break
        new = np.clip(x + scale * step * min(radius / (size(step) + 1e-99), 1.0), low, high)
        found, others = evaluated(new)
        move = (new - x) / scale
        change = slopes - others
        if np.isfinite(found) and move @ change > LEAST_ANGLE * size(move) * size(change):
            pairs[:] = [*pairs, (move, change)][-MOST_PAIRS:]
        radius = (2.0 if found > value else 0.5) * size(move)
        if found > value:
            x = new
            value = found
            slopes = others
        peaks.append(value)
    return Termination.ITERATIONS if len(peaks) == most else Termination.CONVERGED, len(peaks)


def _step(slopes: Float, pairs: Pairs, inverse: float) -> Float:
    """Return the step (p,) to the maximum, using the curvature of the pairs and ``inverse``
    curvature elsewhere."""
    if not pairs:
        return inverse * slopes
    move, change = pairs[-1]
    share = move @ slopes / (move @ change)
    step = _step(slopes - share * change, pairs[:-1], inverse)
    return np.asarray(step + (share - change @ step / (move @ change)) * move)


def size(vector: Float) -> float:
    """Return the Euclidean norm of a vector."""
    return float(np.linalg.norm(vector))


def groups(names: Sequence[str]) -> list[Int]:
    """Return the positions of the per-feature gammas, one array for each kernel with per-feature
    gammas."""
    kernels = np.array([name.rpartition("[")[0] if "gamma[" in name else "" for name in names])
    return [
        np.flatnonzero(kernels == kernel) for kernel in dict.fromkeys(kernels.tolist()) if kernel
    ]


def off(logs: Float, features: Sequence[Int]) -> Int:
    """Return the positions of the gammas that are off; gammas that were 0 at the start are
    excluded."""
    found = [
        group[(logs[group] < logs[group].max() + np.log(OFF)) & np.isfinite(logs[group])]
        for group in features
    ]
    return np.concatenate([np.zeros(0, np.int64), *found])


def raised(logs: Float, start: Float, positions: Int, share: float) -> Float:
    """Return ``logs`` (p,) with each gamma at these positions at least this share of its
    ``start``."""
    found = logs.copy()
    found[positions] = np.maximum(logs[positions], start[positions] + np.log(share))
    return found


def awakened(logs: Float, features: Sequence[Int]) -> Float:
    """Return ``logs`` (p,) with each gamma that is off raised to a hundredth of the largest
    gamma."""
    found = logs.copy()
    for group in features:
        found[off(logs, [group])] = logs[group].max() + np.log(1e-2)
    return found
