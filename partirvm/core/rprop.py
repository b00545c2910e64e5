"""iRprop⁻: maximise a function by its gradient, evaluated at one point per round.

Each log parameter has its own step size. It moves in the direction of its derivative, by steps that grow while the sign
stays the same, and that are halved when it changes; the parameter then stays unchanged for one round (Igel & Hüsken
2003, "Empirical evaluation of the improved Rprop learning algorithm"). The size of the derivative is not used, so a
feature that seems unimportant is not lost faster than others: two features that matter only together can both survive.
The value may decrease from round to round; the result is the best point.
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
"""First change of a log parameter: a width changes by a third, suitable for an uninformed start."""

LATER_STEP = 0.1
"""First change when a search continues near an optimum."""

LONGER, SHORTER = 1.2, 0.5
"""iRprop⁻ factors of a step after an equal sign and after a change of sign."""

LEAST_STEP, MOST_STEP = 1e-3, 1.0
"""Bounds of a step: below a thousandth the evidence hardly changes, and beyond 1 a derivative is not informative."""

LOWEST, HIGHEST = np.log(1e-5), np.log(1e3)
"""Bounds of a log parameter from its start: below, a feature is off; above, the kernel of any two rows vanishes."""

WINDOW = 10
"""Rounds over which the best value must rise; a search has at least one more."""

RISE = 1e-3
"""Nats per row by which it must rise within these rounds."""

MOST_ROUNDS = 150
"""Maximum number of rounds: three times the largest number measured on any data set."""

OFF = 1e-3
"""A feature is off when its gamma is below this fraction of the largest."""

REVIVED = 1 / 3
"""Revival raises a gamma to at least this fraction of its start: lower ones return to the previous optimum."""

AWAKE = 1e-2
"""Fraction of the largest gamma to which a gamma that is off is raised when a kernel is learned again."""

RAISED = 1 / 10
"""Fraction of its start to which a gamma that was off is raised when there are more centres."""


@dataclass(frozen=True)
class Search:
    """State of a search; ``logs`` (p,) is the next point to evaluate.

    ``start`` (p,) is the reference of the bounds, −∞ for a fixed parameter; ``step`` (p,) are the last step sizes and
    ``slope`` (p,) the last derivatives, 0 after a change of sign; ``values`` are those of all rounds, and ``best`` (p,)
    is the point of the largest, ``peak``.
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
        """True if the last round was the best so far."""
        return bool(self.values) and self.values[-1] == self.peak


def begin(start: Float, logs: Float | None = None, step: float = FIRST_STEP) -> Search:
    """Start at ``logs``, default the centre of the bounds."""
    point = start if logs is None else logs
    return Search(start, point, np.full(len(start), step), np.zeros(len(start)), point)


def again(search: Search, logs: Float, step: float) -> Search:
    """Restart at another point; the best point so far is kept."""
    fresh = begin(search.start, logs, step)
    return replace(fresh, best=search.best, peak=search.peak)


def advance(
    search: Search, value: float, slope: Float, rows: int, window: int = WINDOW
) -> tuple[Search, Termination | None]:
    """Process value and derivatives (p,) at ``search.logs``, in nats; the next point, or the reason for the end.

    The search ends when the best value has risen too little in ``window`` rounds.
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
    """Positions of the per-feature gammas, for each kernel that has them.

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
    """Positions among ``groups`` of the gammas that are off, except those that were 0 at the start."""
    found = [group[(logs[group] < logs[group].max() + np.log(OFF)) & np.isfinite(logs[group])] for group in features]
    return np.concatenate([np.zeros(0, np.int64), *found])


def revived(search: Search, features: Sequence[Int]) -> Float:
    """The best point with every per-feature gamma raised to at least ``REVIVED`` × its start, to recover features."""
    logs = search.best.copy()
    for group in features:
        logs[group] = np.maximum(logs[group], search.start[group] + np.log(REVIVED))
    return logs


def awakened(logs: Float, features: Sequence[Int]) -> Float:
    """``logs`` (p,) with the gammas that are off raised to ``AWAKE`` × the largest."""
    found = logs.copy()
    for group in features:
        found[off(logs, [group])] = logs[group].max() + np.log(AWAKE)
    return found


def raised(search: Search, features: Sequence[Int]) -> Float:
    """The best point with the gammas that are off raised to ``RAISED`` × their start."""
    logs, positions = search.best.copy(), off(search.best, features)
    logs[positions] = np.maximum(logs[positions], search.start[positions] + np.log(RAISED))
    return logs
