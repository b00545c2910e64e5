"""A classification fit between its passes: what to measure next, and what to make of it. Pure.

``begin`` and ``receive`` give a ``Search``: the fit where it stands, and the ``trial`` whose statistic the next pass is
to measure. ``receive(search, block, rule)`` goes on with that statistic, until there is a reason to end.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from partirvm.core.laplace import LaplaceState, settled, update
from partirvm.core.logistic import LogisticBlock
from partirvm.core.termination import Termination
from partirvm.core.updates import StopRule

Float = NDArray[np.float64]

TIMID = 8
"""Passes with a single update of α each, before there are more between two passes."""

MOST_UPDATES = 10
"""Updates of α between two passes in the end."""

RELAXED = 2.0 / 3.0
"""Part of the blocks' Newton step that is taken where outputs are coupled."""

SHORTEST = 2.0**-20
"""The shortest part of a Newton step that is tried."""

SETTLED = 1e-3
"""The mode is found when a Newton step promises less than this × tol nats per row."""


@dataclass(frozen=True)
class Search:
    """A fit in progress. ``trial`` has α, columns and weights to be measured, and still the quadratic of ``current``.

    ``step`` is the part of a plain Newton step at the α of ``current``, 0 for a step with new α; ``since`` the pass at
    which the schedule of updates began; with ``settling`` α is final, and only the mode is sought.
    """

    current: LaplaceState
    trial: LaplaceState
    baseline: float
    step: float = 0.0
    since: int = 0
    settling: bool = False


def begin(state: LaplaceState, rule: StopRule) -> Search:
    """The first step from a state."""
    return _propose(state, rule, state.passes)


def receive(search: Search, block: LogisticBlock, rule: StopRule) -> tuple[Search, Termination | None]:
    """Go on with the statistic of the trial. With a reason, ``current`` is where the fit has ended."""
    before, trial = search.current, search.trial
    now = settled(replace(trial, passes=before.passes + 1), trial.alpha, trial.weights, block)
    if now.penalised() < search.baseline - _rounding(now):
        return _back(search, rule)
    if rule.vectors is not None and now.n_vectors <= rule.vectors:
        return replace(search, current=now), Termination.HALVED
    small = rule.tol * now.n
    reached = now.decrement < SETTLED * small
    if search.settling and reached:
        return replace(search, current=now), Termination.CONVERGED
    if now.passes >= rule.max_iterations:
        return replace(search, current=now), Termination.ITERATIONS
    if search.settling:
        return _plain(now, 1.0, search.since, settling=True), None
    level = abs(now.log_evidence - before.log_evidence) < small and now.n_columns == before.n_columns
    if level and not search.step and now.decrement < small:
        if reached:
            return replace(search, current=now), Termination.CONVERGED
        return _plain(now, 1.0, search.since, settling=True), None
    return _propose(now, rule, now.passes if search.step else search.since), None


def _propose(state: LaplaceState, rule: StopRule, since: int) -> Search:
    """New α on the quadratic at hand, and the Newton step that belongs to it."""
    age = state.passes - since
    updates = 1 if age < TIMID else min(1 + age // 4, MOST_UPDATES)
    moved = state
    for _ in range(updates):
        moved = update(moved)
        if rule.vectors is not None and moved.n_vectors <= rule.vectors:
            break
    return Search(state, _moved(moved, 1.0), moved.penalised(), since=since)


def _plain(state: LaplaceState, step: float, since: int, *, settling: bool) -> Search:
    return Search(state, _moved(state, step), state.penalised(), step, since, settling)


def _back(search: Search, rule: StopRule) -> tuple[Search, Termination | None]:
    """The penalised likelihood fell: try a shorter plain step from where the fit stands."""
    state = replace(search.current, passes=search.current.passes + 1)
    step = 0.5 * search.step if search.step else 1.0
    if step < SHORTEST:
        return replace(search, current=state), Termination.CONVERGED
    if state.passes >= rule.max_iterations:
        return replace(search, current=state), Termination.ITERATIONS
    return _plain(state, step, state.passes, settling=search.settling), None


def _moved(state: LaplaceState, step: float) -> LaplaceState:
    """With the weights of a Newton step as the point to be measured; coupled outputs keep a sum of zero."""
    coupled = state.likelihood == "multinomial"
    weights = state.weights + step * (RELAXED if coupled else 1.0) * (state.mean - state.weights)
    if coupled:
        weights -= weights.mean(axis=1, keepdims=True)
    return replace(state, weights=weights)


def _rounding(state: LaplaceState) -> float:
    return 1e-10 * (abs(state.penalised()) + state.n)
