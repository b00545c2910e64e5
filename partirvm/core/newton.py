"""The steps of a classification fit between its passes: from the statistic of a pass to the next trial point. Pure.

``begin``, or ``settle`` where α is to stay, and ``receive`` give a ``Search``: the fit where it stands, and the
``trial`` whose statistic the next pass is to measure. ``receive(search, block, rule)`` goes on with that statistic,
until there is a reason to end. New α are those of MacKay's updates, or in a ``fast`` search of actions on one column at
a time (``core.fast_laplace``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from partirvm.core.damping import next_share
from partirvm.core.fast_laplace import Aim, aimed, toward
from partirvm.core.laplace import LaplaceState, settled, thin, update
from partirvm.core.logistic import LogisticBlock
from partirvm.core.secant import Pairs, among, newton_step, remember
from partirvm.core.termination import Termination
from partirvm.core.updates import HOPE, StopRule

Float = NDArray[np.float64]

Look = Callable[[], None]
"""Called between dense iterations; raises to stop the fit."""

TIMID = 8
"""Passes with a single update of α each, before there are more between two passes."""

MOST_UPDATES = 10
"""Updates of α between two passes in the end, wherever they lead."""

TRUSTED_UPDATES = 50
"""Updates of α between two passes while the quadratic can be trusted with them."""

TRUST = 0.1
"""Nats, ½δᵀGδ, by which updates may move the mode before the quadratic is measured anew."""

FINE = 0.1
"""Updates end when one of them changes the evidence by less than this × tol nats per row."""

SLACK = 2.0
"""Nats per determined weight (Σγ) by which a step with new α may lower the penalised likelihood.

At its fixed point the prior costs half a nat for each. A bound is needed where data are separable: the quadratic counts
a weight that is pruned at its own curvature, thousands of nats where the likelihood has a straight flank.
"""

NEAR = 10.0
"""Nats from the mode, by the quadratic, within which α moves again after a step was taken back."""

NEAR_ROWS = 0.1
"""The same per row, where α moves by actions: predictors are within a unit or so of where they go."""

SHORTER, LONGER = 0.1, 4.0
"""Factors of a step: the least after one that was taken back, and of the next after one that was not."""

SHORTEST = 2.0**-20
"""The shortest part of a Newton step that is tried."""

SETTLED = 1e-3
"""The mode is found when a Newton step promises less than this × tol nats per row."""


@dataclass(frozen=True)
class Search:
    """A fit in progress. ``trial`` has α, columns and weights to be measured, and still the quadratic of ``current``.

    ``step`` is the part of a plain Newton step at the α of ``current``, 0 for a step with new α; ``since`` the pass at
    which the schedule of updates began; with ``settling`` α is final, and only the mode is sought. ``origin`` (M, C)
    are the weights that the trial's quadratic is about, ``pairs`` what passes told of coupled outputs' curvature.
    ``drift`` (M, C) is the change of log α that was last proposed, ``share`` (M, C) the part of it that was made. Of a
    fast search ``aim`` is what its actions last aimed at; its states have all candidates, those at α = ∞ on trial.
    """

    current: LaplaceState
    trial: LaplaceState
    baseline: float
    step: float = 0.0
    since: int = 0
    settling: bool = False
    origin: Float | None = None
    pairs: Pairs = ()
    drift: Float | None = None
    share: Float | None = None
    aim: Aim | None = None


def _nobody() -> None:
    """Nobody wants the end."""


def begin(state: LaplaceState, rule: StopRule, look: Look = _nobody, *, fast: bool = False) -> Search:
    """The first step from a state; ``look`` is called between dense iterations, and may raise."""
    if fast:
        return _act(state, Aim.at(state), rule, state.passes, look)
    return _propose(state, rule, state.passes, look)


def settle(state: LaplaceState) -> Search:
    """The first step to the mode at the α of a state, which stays as it is."""
    return _plain(state, 1.0, state.passes, settling=True)


def receive(
    search: Search, block: LogisticBlock, rule: StopRule, look: Look = _nobody
) -> tuple[Search, Termination | None]:
    """Go on with the statistic of the trial. With a reason, ``current`` is where the fit has ended.

    ``look`` is called between dense iterations, and may raise. A fast search ends with its active columns alone.
    """
    search, reason = _received(search, block, rule, look)
    if reason is not None and search.aim is not None:
        search = replace(search, current=search.current.take(search.current.active))
    return search, reason


def _received(search: Search, block: LogisticBlock, rule: StopRule, look: Look) -> tuple[Search, Termination | None]:
    before, trial = search.current, search.trial
    now = settled(replace(trial, passes=before.passes + 1), trial.alpha, trial.weights, block)
    if now.penalised() < search.baseline - _rounding(now):
        return _back(search, rule, search.baseline - now.penalised())
    pairs = search.pairs
    if now.passes - search.since > TIMID and search.origin is not None and now.coupled:
        pairs = remember(pairs, trial.weights - search.origin, trial.block.gradient - block.gradient)
    if rule.vectors is not None and now.n_vectors <= rule.vectors:
        return replace(search, current=now), Termination.HALVED
    small = rule.tol * now.n
    reached = now.decrement < SETTLED * small
    if search.settling and reached:
        return _converged(search, now, pairs)
    if now.passes >= rule.max_iterations:
        return replace(search, current=now), Termination.ITERATIONS
    if search.settling:
        return _plain(now, 1.0, search.since, pairs, settling=True), None
    if search.step and now.decrement > _near(search.aim, now):
        step = min(LONGER * search.step, 1.0)
        since = now.passes if search.aim is None else search.since
        return _plain(now, step, since, pairs, settling=False, aim=search.aim), None
    if search.aim is not None:
        found = _act(now, search.aim, rule, search.since, look, pairs)
        ended = found.step and reached
        return (replace(search, current=now), Termination.CONVERGED) if ended else (found, None)
    level = abs(now.log_evidence - before.log_evidence) < small and now.n_columns == before.n_columns
    if level and not search.step and now.decrement < small:
        if reached:
            return _converged(search, now, pairs)
        return _plain(now, 1.0, search.since, pairs, settling=True), None
    return _propose(now, rule, now.passes if search.step else search.since, look, pairs, search), None


def _converged(search: Search, now: LaplaceState, pairs: Pairs) -> tuple[Search, Termination | None]:
    """The end, unless columns linger that are worth nothing: then the step that does without them."""
    thinner = thin(now) if now.prior.lingers else now
    if thinner is now:
        return replace(search, current=now), Termination.CONVERGED
    return _tried(now, thinner, now.passes, pairs), None


def _propose(
    state: LaplaceState, rule: StopRule, since: int, look: Look, pairs: Pairs = (), last: Search | None = None
) -> Search:
    """New α on the quadratic at hand, and the Newton step that belongs to it.

    α converges slowly where it goes to infinity, at no cost of passes as long as the mode hardly moves. Where it
    overshoots, the mode and the α of its quadratic chase each other: that log α is given a ``share`` of its change.
    """
    age = state.passes - since
    fewest = 1 if age < TIMID else min(1 + age // 4, MOST_UPDATES)
    most = 1 if age < TIMID else TRUSTED_UPDATES
    moved = state
    for count in range(1, most + 1):
        look()
        before, moved = moved, update(moved)
        if rule.vectors is not None and moved.n_vectors <= rule.vectors:
            break
        level = abs(moved.log_evidence - before.log_evidence) < FINE * rule.tol * state.n
        level &= moved.n_columns == before.n_columns
        if count >= fewest and (level or moved.displacement > TRUST):
            break
    drift, share = _changes(state, moved, last if age > TIMID else None)
    if (share < 1.0).any():
        old = state.alpha[np.isin(state.labels, moved.labels)]
        alpha = np.where(np.isfinite(moved.alpha), old * np.exp(share * drift), np.inf)
        moved = settled(moved, alpha, moved.weights, moved.block)
    return replace(_tried(state, moved, since, pairs), drift=drift, share=share)


def _act(state: LaplaceState, last: Aim, rule: StopRule, since: int, look: Look, pairs: Pairs = ()) -> Search:
    """Actions on the quadratic at hand, and the Newton step that belongs to them.

    A plain step where none gains, or far from the mode, where the quadratic says nothing of α.
    """
    far = state.decrement > _near(last, state)
    aim = last if far else aimed(state, last, rule.tol * state.n, state.passes - since > TIMID, look)
    if far or np.array_equal(aim.goal, state.alpha):
        return _plain(state, 1.0, since, pairs, settling=False, aim=aim)
    return replace(_tried(state, toward(state, aim), since, pairs), aim=aim)


def _near(aim: Aim | None, state: LaplaceState) -> float:
    """Nats from the mode within which α moves."""
    return NEAR if aim is None else max(NEAR, NEAR_ROWS * state.n)


def _tried(state: LaplaceState, moved: LaplaceState, since: int, pairs: Pairs) -> Search:
    """The Newton step that belongs to the α and columns of ``moved``."""
    pairs = among(pairs, state.labels, moved.labels)
    trial = _moved(moved, 1.0, pairs)
    # what pruned columns take along is the quadratic's word alone, and far from its centre that is worth nothing
    baseline = max(moved.penalised(), state.penalised() - SLACK * float(state.determinedness.sum()))
    return Search(state, trial, baseline, since=since, origin=moved.weights, pairs=pairs)


def _changes(state: LaplaceState, moved: LaplaceState, last: Search | None) -> tuple[Float, Float]:
    """Change of log α of each column that is left, (M, C), and the part of it to be made: less after a reversal."""
    kept = np.isin(state.labels, moved.labels)
    there = np.isfinite(moved.alpha)
    drift = np.zeros(moved.alpha.shape)
    drift[there] = np.log(moved.alpha[there]) - np.log(state.alpha[kept][there])
    if last is None or last.drift is None or last.share is None:
        return drift, np.ones(drift.shape)
    return drift, next_share(drift, last.drift[kept], last.share[kept])


def _plain(
    state: LaplaceState, step: float, since: int, pairs: Pairs = (), *, settling: bool, aim: Aim | None = None
) -> Search:
    trial = _moved(state, step, pairs)
    return Search(state, trial, state.penalised(), step, since, settling, state.weights, pairs, aim=aim)


def _back(search: Search, rule: StopRule, fall: float) -> tuple[Search, Termination | None]:
    """The penalised likelihood fell by so many nats: try a shorter plain step from where the fit stands.

    The parabola through slope and fall says how short, within bounds (Dennis & Schnabel 1983, §6.3.2). Pairs are not
    trusted any more.
    """
    state = replace(search.current, passes=search.current.passes + 1)
    step, aim = 1.0, search.aim
    if search.step:
        rise = search.step * state.decrement
        step = search.step * min(max(rise / (2 * rise + fall), SHORTER), 0.5)
    elif aim is None:
        state = _sober(state)
    # at the mode a plain step leads nowhere, and the same update would be tried and taken back for ever
    idle = not search.step and state.decrement < SETTLED * rule.tol * state.n
    if aim is not None and not search.step:
        aim = aim.nearer()
    stuck = idle and (state.passes - search.since <= TIMID if aim is None else aim.share.max() < SHORTEST)
    if step < SHORTEST or stuck:
        return replace(search, current=state), Termination.CONVERGED
    if state.passes >= rule.max_iterations:
        return replace(search, current=state), Termination.ITERATIONS
    if idle and aim is not None:
        return replace(_tried(state, toward(state, aim), search.since, ()), aim=aim), None
    since = state.passes if aim is None else search.since  # the damping of actions goes on
    return _plain(state, step, since, settling=search.settling, aim=aim), None


def _sober(state: LaplaceState) -> LaplaceState:
    """With the α that columns at weight zero would have alone: hopes for all of them at once were too high."""
    entering = (state.weights == 0).all(axis=1)
    if not entering.any():
        return state
    return settled(state, np.where(entering[:, None], state.alpha / HOPE, state.alpha), state.weights, state.block)


def _moved(state: LaplaceState, part: float, pairs: Pairs) -> LaplaceState:
    """With the weights of a part of a Newton step as the point to be measured; coupled outputs keep a sum of zero."""
    if not state.coupled:
        return replace(state, weights=state.weights + part * (state.mean - state.weights))
    weights = state.weights + part * newton_step(state, pairs)
    return replace(state, weights=weights - weights.mean(axis=1, keepdims=True))


def _rounding(state: LaplaceState) -> float:
    return 1e-10 * (abs(state.penalised()) + state.n)
