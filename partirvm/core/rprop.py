"""Maximisation of a function by the signs of its gradient (iRprop⁻, Igel & Hüsken 2003), with one evaluation per round.

Each log parameter moves in the direction of its derivative, by a step of its own that grows while the sign stays the
same. When the sign changes, the step is halved, and the parameter rests for one round. The size of the derivative does
not count, so that two features that matter only together can both survive. The result is the best point.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from partirvm.core.termination import Termination
from partirvm.types import Float, Int

FIRST_STEP, LATER_STEP = 0.3, 0.1
"""First change of a log parameter from an uninformed start, and where a search continues near an optimum."""

LOWEST, HIGHEST = np.log(1e-5), np.log(1e3)
"""Bounds of a log parameter relative to its start. Below, a feature is off; above, kernel values are zero."""

WINDOW, RISE = 10, 1e-3
"""Rounds within which the best value must rise, and the minimum rise, nats per row."""

MOST_ROUNDS = 150
"""Maximum number of rounds: three times the largest number measured on any data set."""

OFF = 1e-3
"""A feature is off when its gamma is below this fraction of the largest."""


@dataclass(frozen=True)
class RpropSearch:
    """State of a search: the next point ``logs`` (p,), the last steps and slopes, and the values of all rounds.

    ``start`` (p,) is the reference of the bounds, −∞ for a fixed parameter; ``best`` is the point with value ``peak``.
    """

    start: Float
    logs: Float
    step: Float
    slope: Float
    best: Float
    peak: float = -np.inf
    values: tuple[float, ...] = ()


def begin(start: Float, logs: Float | None = None, step: float | Float = FIRST_STEP) -> RpropSearch:
    """Start a search at ``logs``, by default the centre of the bounds."""
    point = start if logs is None else logs
    return RpropSearch(start, point, np.full(len(start), step), np.zeros(len(start)), point)


def again(search: RpropSearch, logs: Float, step: float) -> RpropSearch:
    """Restart the search at another point. The best point so far is kept."""
    return replace(begin(search.start, logs, step), best=search.best, peak=search.peak)


def advance(
    search: RpropSearch, value: float, slope: Float, rows: int, window: int = WINDOW, most: int = MOST_ROUNDS
) -> tuple[RpropSearch, Termination | None]:
    """Process the value and the derivatives (p,), in nats, at ``search.logs``, and return the next search.

    It ends, with a reason, if the best value has risen too little in ``window`` rounds, or after ``most`` rounds.
    """
    values = (*search.values, value)
    best, peak = (search.logs, value) if value > search.peak else (search.best, search.peak)
    sign = np.sign(slope) * np.sign(search.slope)
    step = np.clip(search.step * np.where(sign > 0, 1.2, np.where(sign < 0, 0.5, 1.0)), 1e-3, 1.0)
    slope = np.where((sign < 0) | ~np.isfinite(search.start), 0.0, slope)
    logs = np.clip(search.logs + np.sign(slope) * step, search.start + LOWEST, search.start + HIGHEST)
    reason = Termination.ITERATIONS if len(values) >= most else None
    if len(values) > window and max(values) - max(values[:-window]) < RISE * rows:
        reason = Termination.CONVERGED
    return replace(search, logs=logs, step=step, slope=slope, best=best, peak=peak, values=values), reason


def groups(names: Sequence[str]) -> list[Int]:
    """Return the positions of the per-feature gammas, one array for each kernel with per-feature gammas."""
    kernels = [name.rpartition("[")[0] if "gamma[" in name else "" for name in names]
    return [
        np.array([k for k, other in enumerate(kernels) if other == kernel], dtype=np.int64)
        for kernel in dict.fromkeys(kernels)
        if kernel
    ]


def off(logs: Float, features: Sequence[Int]) -> Int:
    """Return the positions of the gammas that are off; gammas that were 0 at the start are excluded."""
    found = [group[(logs[group] < logs[group].max() + np.log(OFF)) & np.isfinite(logs[group])] for group in features]
    return np.concatenate([np.zeros(0, np.int64), *found])


def raised(search: RpropSearch, positions: Int, share: float) -> Float:
    """Return the best point with each gamma at these positions at least this share of its start."""
    logs = search.best.copy()
    logs[positions] = np.maximum(logs[positions], search.start[positions] + np.log(share))
    return logs


def awakened(logs: Float, features: Sequence[Int]) -> Float:
    """Return ``logs`` (p,) with each gamma that is off raised to a hundredth of the largest gamma."""
    found = logs.copy()
    for group in features:
        found[off(logs, [group])] = logs[group].max() + np.log(1e-2)
    return found
