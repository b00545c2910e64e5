"""Maximisation of a function of log parameters by L-BFGS (Nocedal & Wright 2006, algorithm 7.4).

There is no line search: each evaluation, even at a rejected point, adds curvature information. The
next step starts from the best point and is at most twice as long as an accepted step, or half as
long as a rejected one. Bounds cut steps short. A search for a noisy optimum need not be exact: it
ends when the best value has risen too little, or the curvature predicts too small a rise, to
justify more evaluations.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from partirvm.core.termination import Termination
from partirvm.types import Float, Int

LOWEST = np.log(1e-5)
"""Lower bound of a log parameter relative to its start: below it, a feature is off."""

HIGHEST = np.log(1e3)
"""Upper bound of a log parameter relative to its start: above it, kernel values are zero."""

WINDOW = 4
"""Number of evaluations within which the best value must rise by ``RISE``; once there are as many
pairs, the predicted rise of the next step must be at least ``PROMISE``."""

RISE = 1e-3
"""Minimum rise of the best value within ``WINDOW`` evaluations, in nats per row."""

PROMISE = 1e-4
"""Minimum rise that the pairs' curvature predicts for the next step, in nats per row."""

MOST = 150
"""Maximum number of evaluations per search, excluding the last step: twice the largest number
observed."""

MOST_PAIRS = 40
"""Maximum number of pairs: with 10, searches took 50 % more evaluations."""

LEAST_ANGLE = 1e-8
"""Minimum cosine between a pair's vectors."""

Function: TypeAlias = Callable[[Float], tuple[float, Float]]
"""Returns a value in nats per row, −∞ if it is undefined, and its slopes (p,)."""

Pairs: TypeAlias = list[tuple[Float, Float]]
"""Changes of the parameters ÷ scale and negated changes of the slopes, the latest last."""

OFF = 1e-3
"""A feature is off when its gamma is below this fraction of the largest."""


@dataclass(frozen=True)
class Evaluation:
    """Value and slopes of the function at the free parameters.

    Attributes:
        x: free parameters (k,)
        value: nats per row, −∞ if it is undefined
        slopes: derivatives with respect to the parameters ÷ scale (k,)
    """

    x: Float
    value: float
    slopes: Float


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
    """Maximise a function within bounds; return why the search ended and the number of evaluations.

    The search ends when the best value has risen by less than ``RISE`` in ``WINDOW`` evaluations,
    or when the next step promises too little.

    Args:
        function: returns the value and slopes at the parameters (p,)
        begin: initial parameters (p,)
        low: lower bounds (p,); a parameter whose bound is −∞ is fixed
        high: upper bounds (p,)
        scale: typical changes of the parameters, (p,) or a number
        most: maximum number of evaluations
        pairs: curvature from an earlier search, to which this search adds its pairs
    """
    free = np.isfinite(low)
    scale = np.broadcast_to(scale, begin.shape)[free]
    low = low[free]
    high = high[free]
    pairs = [] if pairs is None else pairs

    def evaluate(x: Float) -> Evaluation:
        point = begin.copy()
        point[free] = x
        value, slopes = function(point)
        return Evaluation(x, value, slopes[free] * scale)

    best = evaluate(np.clip(begin[free], low, high))
    history = [best.value]
    radius = 1.0
    while size(best.slopes) and len(history) < most and not _stalls(history):
        step = _step_within(best, low, high, pairs)
        if _promises_little(best, step, pairs, history):
            break
        step = scale * step * min(radius / (size(step) + 1e-99), 1.0)
        trial = evaluate(np.clip(best.x + step, low, high))
        move = (trial.x - best.x) / scale
        _add_pair(pairs, move, best, trial)
        radius = 0.5 * size(move)
        if trial.value > best.value:
            radius = 2.0 * size(move)
            best = trial
        history.append(best.value)
    reason = Termination.ITERATIONS if len(history) == most else Termination.CONVERGED
    return reason, len(history)


def _stalls(history: list[float]) -> bool:
    """Return True if the best value, given after each evaluation, has recently risen too little."""
    return len(history) > WINDOW and history[-1] - history[-1 - WINDOW] < RISE


def _promises_little(best: Evaluation, step: Float, pairs: Pairs, history: list[float]) -> bool:
    """Return True if, according to the curvature of enough pairs, a step other than the first would
    gain little.

    Args:
        best: the best point
        step: the step to the maximum (k,)
        pairs: curvature from the last steps
        history: the best value after each evaluation
    """
    known = len(pairs) >= WINDOW and len(history) > 1
    return known and float(0.5 * best.slopes @ step) < PROMISE


def _step_within(best: Evaluation, low: Float, high: Float, pairs: Pairs) -> Float:
    """Return the step (k,) to the maximum; parameters held by a bound do not move.

    Args:
        best: the best point
        low: lower bounds (k,)
        high: upper bounds (k,)
        pairs: curvature from the last steps
    """
    inverse = 1 / size(best.slopes)
    if pairs:
        move, change = pairs[-1]
        inverse = float(move @ change / (change @ change))
    movable = np.where(best.slopes > 0, best.x < high, best.x > low)
    return _step(best.slopes * movable, pairs, inverse) * movable


def _add_pair(pairs: Pairs, move: Float, best: Evaluation, trial: Evaluation) -> None:
    """Add the curvature between two points to ``pairs``, unless it is negative or undefined.

    Args:
        pairs: at most ``MOST_PAIRS``, changed in place
        move: the change of the parameters from ``best`` to ``trial``, ÷ scale (k,)
        best: start of the step
        trial: end of the step
    """
    change = best.slopes - trial.slopes
    if np.isfinite(trial.value) and move @ change > LEAST_ANGLE * size(move) * size(change):
        pairs.append((move, change))
        del pairs[:-MOST_PAIRS]


def _step(slopes: Float, pairs: Pairs, inverse: float) -> Float:
    """Return the step (p,) to the maximum, using the curvature of the pairs, and the inverse
    curvature ``inverse`` elsewhere."""
    if not pairs:
        return inverse * slopes
    move, change = pairs[-1]
    share = move @ slopes / (move @ change)
    step = _step(slopes - share * change, pairs[:-1], inverse)
    return step + (share - change @ step / (move @ change)) * move


def size(vector: Float) -> float:
    """Return the Euclidean norm of a vector."""
    return float(np.linalg.norm(vector))


def groups(names: Sequence[str]) -> list[Int]:
    """Return the positions of the per-feature gammas, one array for each kernel that has any."""
    kernels: dict[str, list[int]] = {}
    for position, name in enumerate(names):
        if "gamma[" in name:
            kernels.setdefault(name.rpartition("[")[0], []).append(position)
    return [np.array(positions, dtype=np.int64) for positions in kernels.values()]


def off(logs: Float, features: Sequence[Int]) -> Int:
    """Return the positions of the gammas that are off, except gammas that were 0 at the start."""
    positions = [np.zeros(0, np.int64)]
    for group in features:
        gammas = logs[group]
        positions.append(group[(gammas < gammas.max() + np.log(OFF)) & np.isfinite(gammas)])
    return np.concatenate(positions)


def raised(logs: Float, start: Float, positions: Int, share: float) -> Float:
    """Return ``logs`` with some gammas raised to a fraction of their initial values.

    Args:
        logs: log parameters (p,)
        start: initial log parameters (p,)
        positions: positions of the gammas
        share: minimum gamma, as a fraction of its initial value
    """
    higher = logs.copy()
    higher[positions] = np.maximum(logs[positions], start[positions] + np.log(share))
    return higher


def awakened(logs: Float, features: Sequence[Int]) -> Float:
    """Return ``logs`` (p,) with each gamma that is off raised to a hundredth of the largest
    gamma."""
    higher = logs.copy()
    for group in features:
        higher[off(logs, [group])] = logs[group].max() + np.log(1e-2)
    return higher
