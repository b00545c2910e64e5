"""A search for parameters that maximise a function, from its values and slopes at one point a round: iRprop⁻.

Each log parameter has a step of its own. It goes that far up its slope, farther each time as long as the slope keeps
its sign, half as far once that changes, when it stays where it is for a round (Igel & Hüsken 2003, "Empirical
evaluation of the improved Rprop learning algorithm"). The size of a slope does not count, so that a feature that seems
to matter little is lost no faster than others: two that matter only together get a chance to meet. The value may fall
from round to round; the best point is remembered, and is the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from partirvm.core.termination import Termination

Float = NDArray[np.float64]
Int = NDArray[np.int64]

FIRST_STEP = 0.3
"""First change of a log parameter: a width changes by a third, what a start without any knowledge is worth."""

LATER_STEP = 0.1
"""The same where a search goes on near an optimum."""

LONGER, SHORTER = 1.2, 0.5
"""Factors of a step after slopes of one sign and after a change of sign, those of iRprop⁻."""

LEAST_STEP, MOST_STEP = 1e-3, 1.0
"""Bounds of a step: a thousandth is finer than the evidence can tell, and beyond 1 a slope says nothing."""

LOWEST, HIGHEST = np.log(1e-5), np.log(1e3)
"""Bounds of a log parameter, from its start: a feature that fell so far is off, and a width so narrow sees no row."""

WINDOW = 10
"""Rounds over which the best value has to rise; a search has one more than so many at least."""

RISE = 1e-3
"""Nats per row by which it has to rise within them."""

MOST_ROUNDS = 150
"""Rounds at most: three times what any set has taken."""

OFF = 1e-3
"""A feature is off when its gamma is below this fraction of the largest."""

REVIVED = 1 / 3
"""Fraction of its start to which revival raises a gamma at least: lower ones fall back to the optimum they left."""

AWAKE = 1e-2
"""Fraction of the largest to which a gamma that is off is raised where a kernel is learned again."""

RAISED = 1 / 10
"""Fraction of its start to which a gamma that was off is raised where there are more centres to tell what it is for."""


@dataclass(frozen=True)
class Search:
    """Where a search stands, ``logs`` (p,) being the point to be looked at next.

    ``start`` (p,) is what bounds refer to, −∞ for a parameter that stays as it is; ``step`` (p,) the last steps and
    ``slope`` (p,) the last slopes, 0 after a change of sign; ``values`` those of all rounds, and ``best`` (p,) the
    point of the largest, ``peak``.
    """

    start: Float
    logs: Float
    step: Float
    slope: Float
    best: Float
    peak: float = -np.inf
    values: tuple[float, ...] = ()

    @property
    def improved(self) -> bool:
        """Whether the last round was the best so far."""
        return bool(self.values) and self.values[-1] == self.peak


def begin(start: Float, logs: Float | None = None, step: float = FIRST_STEP) -> Search:
    """Begin at ``logs``, or where the bounds have their middle."""
    point = start if logs is None else logs
    return Search(start, point, np.full(len(start), step), np.zeros(len(start)), point)


def again(search: Search, logs: Float, step: float) -> Search:
    """Begin anew at another point; what was the best so far stays the one to beat."""
    fresh = begin(search.start, logs, step)
    return replace(fresh, best=search.best, peak=search.peak)


def advance(
    search: Search, value: float, slope: Float, rows: int, window: int = WINDOW
) -> tuple[Search, Termination | None]:
    """Hear of value and slopes (p,) at ``search.logs``, in nats of so many rows; the next point, or why it is over.

    It is over when the best value has risen too little in ``window`` rounds.
    """
    values = (*search.values, value)
    better = value > search.peak
    best, peak = (search.logs, value) if better else (search.best, search.peak)
    sign = np.sign(slope * search.slope)
    step = search.step * np.where(sign > 0, LONGER, np.where(sign < 0, SHORTER, 1.0))
    step = np.clip(step, LEAST_STEP, MOST_STEP)
    slope = np.where((sign < 0) | ~np.isfinite(search.start), 0.0, slope)
    logs = np.clip(search.logs + np.sign(slope) * step, search.start + LOWEST, search.start + HIGHEST)
    reason = None
    if len(values) > window and max(values) - max(values[:-window]) < RISE * rows:
        reason = Termination.CONVERGED
    elif len(values) >= MOST_ROUNDS:
        reason = Termination.ITERATIONS
    return replace(search, logs=logs, step=step, slope=slope, best=best, peak=peak, values=values), reason


def groups(names: Sequence[str]) -> list[Int]:
    """Positions of the parameters that are a gamma per feature, for each kernel that has such.

    >>> [group.tolist() for group in groups(["weights[0]", "parts[0].gamma", "parts[1].gamma[0]", "parts[1].gamma[1]"])]
    [[2, 3]]
    """
    kernels = [name.rpartition("[")[0] if "gamma[" in name else "" for name in names]
    return [
        np.array([k for k, other in enumerate(kernels) if other == kernel], dtype=np.int64)
        for kernel in dict.fromkeys(kernels)
        if kernel
    ]


def off(logs: Float, features: Sequence[Int]) -> Int:
    """Positions of those gammas that are off, among ``groups``; one that was 0 from the start is none of them."""
    found = [group[(logs[group] < logs[group].max() + np.log(OFF)) & np.isfinite(logs[group])] for group in features]
    return np.concatenate([np.zeros(0, np.int64), *found])


def revived(search: Search, features: Sequence[Int]) -> Float:
    """The best point with every gamma per feature raised to ``REVIVED`` × its start, so that what was lost may meet."""
    logs = search.best.copy()
    for group in features:
        logs[group] = np.maximum(logs[group], search.start[group] + np.log(REVIVED))
    return logs


def awakened(logs: Float, features: Sequence[Int]) -> Float:
    """``logs`` (p,) with those gammas that are off raised to ``AWAKE`` × the largest."""
    found = logs.copy()
    for group in features:
        found[off(logs, [group])] = logs[group].max() + np.log(AWAKE)
    return found


def raised(search: Search, features: Sequence[Int]) -> Float:
    """The best point with those gammas that are off raised to ``RAISED`` × their start."""
    logs, positions = search.best.copy(), off(search.best, features)
    logs[positions] = np.maximum(logs[positions], search.start[positions] + np.log(RAISED))
    return logs
