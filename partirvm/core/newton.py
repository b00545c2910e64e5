"""The Newton steps of a classification fit: pure functions that map the statistic of a pass to the
next trial point.

``begin`` returns the first ``NewtonSearch``: the current state, and a ``trial`` state at whose
weights the next pass computes its statistic. ``receive(search, block, rule)`` processes this
statistic.

**Step control.** If a step lowers the penalised likelihood, it is undone, along with its pruning. A
Newton step at the old α is then shortened until the penalised likelihood rises; more follow until
the weights are near the mode.

**Coupled outputs.** If a pass at W + s finds a gradient that is smaller by y than at W, then to
first order the full curvature G, including the blocks between outputs, satisfies Gs = y. The pairs
(s, y + As) are valid for any α. The BFGS recursion (Nocedal & Wright 2006, algorithm 7.4) starts
from (G_k + A_k)⁻¹ and uses the last few pairs.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import repeat
from typing import TypeAlias

import numpy as np
from scipy.linalg import lapack

from partirvm.core.laplace import LaplaceState, init, settled, thin, update
from partirvm.core.link import LogisticBlock
from partirvm.core.posterior import sparsity_quality
from partirvm.core.priors import FLAT, JOINING, Prior, entry_precision
from partirvm.core.termination import StopRule, Termination
from partirvm.types import Float, Int

Poll = Callable[[], None]
"""A function called between dense iterations; it may raise an exception to stop the fit."""

Pairs = tuple[tuple[Float, Float], ...]
"""Pairs of a step s and a decrease y of the gradient, (M, C) each, oldest first."""

TIMID, MOST_UPDATES, TRUSTED_UPDATES = 8, 10, 50
"""Number of initial passes that are each followed by a single update of α. After these, the largest
number of updates that are made unconditionally between two passes, and the maximum number of
updates."""

TRUST, FINE = 0.1, 0.1
"""Updates end when they have moved the mode by the distance ½δᵀGδ = `TRUST` nats, or when one
changes the evidence by less than `FINE` × tol nats per row."""

SLACK = 2.0
"""Nats per determined weight (Σγ) by which a step with new α may lower the penalised likelihood:
the prior costs half a nat each. Separable data need this bound: the quadratic can underestimate the
loss from pruning by thousands of nats."""

NEAR = 10.0
"""Distance from the mode, in nats, below which α is updated again after a step has been undone."""

SHORTER, LONGER, SHORTEST = 0.1, 4.0, 2.0**-20
"""Factors on the step length: the smallest after a step is undone, and the one after a successful
step; and the smallest fraction of a Newton step that is tried."""

SETTLED = 1e-3
"""The mode is found when the gain of a Newton step is below `SETTLED` × tol nats per row."""

LEAST_SHARE, REGAIN = 2.0**-5, 1.25
"""Minimum share of a change in log α that is applied, and the factor by which the share grows
without a reversal."""

RELAXED, MEMORY, STRAIGHT = 2.0 / 3.0, 8, 1e-12
"""Fraction of the block-diagonal Newton step that is taken if there are no pairs; number of pairs
kept; minimum cosine between s and y + As for a pair to be used, since smaller cosines are rounding
errors."""


@dataclass(frozen=True)
class NewtonSearch:
    """A fit in progress: its ``current`` state, and the ``trial`` state that the next pass
    measures.

    ``trial`` has new α, columns and weights, but the quadratic of ``current``. ``step`` is the
    fraction of a Newton step at the old α, or 0 at a new α. ``since`` is the pass at which the
    update schedule began. If ``settling``, α is final. ``origin`` (M, C) holds the weights of the
    quadratic. ``drift`` (M,) is the last proposed change in log α, ``share`` (M,) the fraction of
    it that was applied.
    """

    current: LaplaceState
    trial: LaplaceState
    baseline: float
    step: float
    since: int
    settling: bool
    origin: Float
    pairs: Pairs
    drift: Float | None = None
    share: Float | None = None


Received: TypeAlias = tuple[NewtonSearch, Termination | None]
"""The next search, and the reason if its ``current`` is the final state."""


def receive(
    search: NewtonSearch, block: LogisticBlock, rule: StopRule, poll: Poll = lambda: None
) -> Received:
    """Process the statistic of the trial state."""
    before = search.current
    trial = search.trial
    since = search.since
    now = settled(replace(trial, iteration=before.iteration + 1), trial.alpha, trial.weights, block)
    fall = search.baseline - now.penalised()
    if fall > 1e-10 * (abs(now.penalised()) + now.n):  # more than rounding
        return _back(search, rule, fall)
    pairs = search.pairs
    step = trial.weights - search.origin
    if now.iteration - since > TIMID and step.shape[1] > 1 and step.any():
        pairs = (*pairs, (step, trial.block.gradient - block.gradient))[-MEMORY:]
    if rule.vectors is not None and now.n_vectors <= rule.vectors:
        return replace(search, current=now), Termination.HALVED
    small = rule.tol * now.n
    reached = now.decrement < SETTLED * small
    if search.settling and reached:
        return replace(search, current=now), Termination.CONVERGED
    if now.iteration >= rule.max_iterations:
        return replace(search, current=now), Termination.ITERATIONS
    level = abs(now.log_evidence - before.log_evidence) < small and len(now.labels) == len(
        before.labels
    )
    level = level and not search.step and now.decrement < small
    if search.settling or (level and not reached):
        return _at_fixed_alpha(now, 1.0, since, pairs, settling=True), None
    if search.step and now.decrement > NEAR:
        return _at_fixed_alpha(now, min(LONGER * search.step, 1.0), now.iteration, pairs), None
    if level:
        thinner = thin(now) if now.prior.keeps_worthless else now
        if thinner is now:
            return replace(search, current=now), Termination.CONVERGED
        return _at_new_alpha(now, thinner, now.iteration, pairs), None
    return begin(
        now, rule, poll, 0 if search.step else now.iteration - since, replace(search, pairs=pairs)
    ), None


def begin(
    state: LaplaceState,
    rule: StopRule,
    poll: Poll = lambda: None,
    age: int = 0,
    last: NewtonSearch | None = None,
) -> NewtonSearch:
    """Update α on the current quadratic, and return the search with the corresponding Newton step.

    ``age`` is the number of passes since the update schedule began, ``last`` the previous search.
    Updates need no pass while the mode hardly moves. Only a ``share`` of each change in log α is
    applied: half the previous share if the change has reversed its sign, otherwise a larger one.
    """
    fewest, most = (1, 1) if age < TIMID else (min(1 + age // 4, MOST_UPDATES), TRUSTED_UPDATES)
    moved = state
    for count in range(1, most + 1):
        poll()
        before = moved
        moved = update(moved)
        if rule.vectors is not None and moved.n_vectors <= rule.vectors:
            break
        if count < fewest:
            continue
        level = abs(moved.log_evidence - before.log_evidence) < FINE * rule.tol * state.n
        pull = moved.block.gradient - moved.alpha[:, None] * moved.mean  # Gδ at the mode, δ = μ − w
        distance = 0.5 * np.sum((moved.mean - moved.weights) * pull)
        if (level and len(moved.labels) == len(before.labels)) or distance > TRUST:
            break
    kept = np.isin(state.labels, moved.labels)
    old = state.alpha[kept]
    drift = np.log(moved.alpha) - np.log(old)
    share = np.ones(len(old))
    if age > TIMID and last is not None and last.drift is not None and last.share is not None:
        factor = np.where(drift * last.drift[kept] < 0, 0.5, REGAIN)
        share = np.clip(factor * last.share[kept], LEAST_SHARE, 1.0)
    if (share < 1.0).any():
        moved = settled(moved, old * np.exp(share * drift), moved.weights, moved.block)
    pairs = () if last is None else last.pairs
    return replace(
        _at_new_alpha(state, moved, state.iteration - age, pairs), drift=drift, share=share
    )


def _at_new_alpha(
    state: LaplaceState, moved: LaplaceState, since: int, pairs: Pairs
) -> NewtonSearch:
    """Return the search with the Newton step at the α and columns of ``moved``."""
    if len(moved.labels) < len(state.labels):
        kept = np.isin(state.labels, moved.labels)
        pairs = tuple((step[kept], fall[kept]) for step, fall in pairs)
    # the effect of pruning is known only from the quadratic, which is inaccurate far from its
    # centre
    baseline = max(moved.penalised(), state.penalised() - SLACK * float(state.determinedness.sum()))
    return NewtonSearch(
        state, _moved(moved, 1.0, pairs), baseline, 0.0, since, False, moved.weights, pairs
    )


def _at_fixed_alpha(
    state: LaplaceState, step: float, since: int, pairs: Pairs, settling: bool = False
) -> NewtonSearch:
    """Return the search with a fraction of the Newton step at the α of ``state``."""
    trial = _moved(state, step, pairs)
    return NewtonSearch(
        state, trial, state.penalised(), step, since, settling, state.weights, pairs
    )


def _back(search: NewtonSearch, rule: StopRule, fall: float) -> Received:
    """Return a search with a shorter step, to the parabola's maximum within bounds (Dennis &
    Schnabel 1983, §6.3.2).

    However, columns at weight zero, which were about to enter, get the α that would be optimal if
    each entered alone.
    """
    state = replace(search.current, iteration=search.current.iteration + 1)
    step = 1.0
    if search.step:
        rise = search.step * state.decrement
        step = search.step * min(max(rise / (2 * rise + fall), SHORTER), 0.5)
    elif (entering := (state.weights == 0).all(axis=1)).any():
        alpha = np.where(entering, state.alpha / JOINING, state.alpha)
        state = settled(state, alpha, state.weights, state.block)
    # at the mode a step at fixed α is zero, and the same update would be tried and undone endlessly
    idle = not search.step and state.decrement < SETTLED * rule.tol * state.n
    if step < SHORTEST or (idle and state.iteration - search.since <= TIMID):
        return replace(search, current=state), Termination.CONVERGED
    if state.iteration >= rule.max_iterations:
        return replace(search, current=state), Termination.ITERATIONS
    return _at_fixed_alpha(state, step, state.iteration, (), settling=search.settling), None


def _moved(state: LaplaceState, part: float, pairs: Pairs) -> LaplaceState:
    """Return the state with the weights after ``part`` of a Newton step; those of several outputs
    sum to zero."""
    if state.weights.shape[1] == 1:
        return replace(state, weights=state.weights + part * (state.mean - state.weights))
    weights = state.weights + part * _newton_step(state, pairs)
    return replace(
        state, weights=weights - weights.mean(axis=1, keepdims=True)
    )  # this leaves the softmax unchanged


def _newton_step(state: LaplaceState, pairs: Pairs) -> Float:
    """Return a step (M, C) towards the mode, for several outputs."""
    alpha = state.alpha[:, None]
    q = state.block.gradient - alpha * state.weights
    used = []
    for step, fall in pairs:
        change = fall + alpha * step
        product = float(np.sum(step * change))
        if product > STRAIGHT * np.sqrt(np.sum(step**2) * np.sum(change**2)):
            used.append((step, change, product))
    if not used:
        return RELAXED * _by_blocks(state, q)
    parts = []
    for step, change, product in reversed(used):
        part = float(np.sum(step * q)) / product
        parts.append(part)
        q = q - part * change
    found = _by_blocks(state, q)
    for (step, change, product), part in zip(used, reversed(parts), strict=True):
        found += (part - float(np.sum(change * found)) / product) * step
    return found


def _by_blocks(state: LaplaceState, right: Float) -> Float:
    """Return (G_k + A_k)⁻¹ times column k of ``right``, for each output k, (M, C)."""
    found = np.zeros(right.shape)
    for k, each in enumerate(state.posteriors if len(right) else ()):
        found[:, k] = each.scale * lapack.dpotrs(each.factor, each.scale * right[:, k], lower=1)[0]
    return found


def entry_factors(state: LaplaceState, block: LogisticBlock) -> tuple[Float, Float, Float]:
    """Return s, q and ΦᵀBΦ, (P, C) each, of the P columns of ``block`` that follow those of
    ``state``, at weight zero.

    s and q follow from Tipping & Faul (2003), eqs. 19 and 22, for each output's quadratic at the
    weights of ``state``.
    """
    M = len(state.labels)
    diagonal = np.einsum("kmm->mk", block.curvature)[M:]
    sums = block.curvature[:, :M, M:], diagonal.T, block.gradient[M:].T
    s, q = zip(
        *map(sparsity_quality, state.posteriors, repeat(1.0), state.weights.T, *sums), strict=True
    )
    return np.stack(s, axis=1), np.stack(q, axis=1), diagonal


def enter(
    labels: Int, alpha: Float, weights: Float, block: LogisticBlock, prior: Prior = FLAT
) -> LaplaceState:
    """Return the first state of a fit of the columns ``labels``, at the weights (M, C) at which
    ``block`` was measured.

    α (M,) is NaN for new columns: these start from Tipping & Faul's (2003) optimum for the means
    over outputs.
    """
    new = np.isnan(alpha)
    together = block.take(np.concatenate([np.flatnonzero(~new), np.flatnonzero(new)]))
    begun = together.take(np.arange(len(labels) - new.sum()))
    old = init(labels[~new], alpha[~new], weights[~new], begun, prior)
    s, q, precision = entry_factors(old, together)
    s, square, precision = (value.mean(axis=1) for value in (s, q**2, precision))
    entered = alpha.copy()
    entered[new] = entry_precision(s, np.sqrt(square), precision)
    return init(labels, entered, weights, block, prior)
