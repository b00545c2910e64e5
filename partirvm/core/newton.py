"""The Newton steps of a classification fit: pure functions that map the statistic of a pass to the
next trial point.

``begin`` returns the first ``NewtonSearch``: the current state, and a ``trial`` state at whose
weights the next pass computes its statistic. ``receive(search, block, rule)`` processes this
statistic.

**Step control.** If a step lowers the penalised likelihood, it is undone, along with its pruning. A
Newton step at the old α is then shortened until the penalised likelihood rises; more such steps
follow until the weights are near the mode.

**Coupled outputs.** If the gradient at W + s is smaller by y than at W, then to first order the
full curvature G, including the blocks between outputs, satisfies Gs = y. The pairs (s, y + As) are
valid for any α. The BFGS recursion (Nocedal & Wright 2006, algorithm 7.4) starts from (G_k + A_k)⁻¹
and uses the last few pairs.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
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

TIMID = 8
"""Number of initial passes that are each followed by a single update of α."""

MOST_UPDATES = 10
"""Largest number of updates of α that are made unconditionally between two later passes."""

TRUSTED_UPDATES = 50
"""Maximum number of updates of α between two passes."""

TRUST = 0.1
"""Updates end when they have moved the mode by this distance ½δᵀGδ, in nats."""

FINE = 0.1
"""Updates end when an update changes the evidence by less than this multiple of tol nats per
row."""

SLACK = 2.0
"""Nats per determined weight (Σγ) by which a step with new α may lower the penalised likelihood:
the prior costs half a nat for each weight. Separable data need this bound: the quadratic can
underestimate the loss from pruning by thousands of nats."""

NEAR = 10.0
"""Distance from the mode, in nats, below which α is updated again after a step has been undone."""

SHORTER = 0.1
"""Smallest factor on the step length after a step is undone."""

LONGER = 4.0
"""Factor on the step length after a successful step."""

SHORTEST = 2.0**-20
"""Smallest fraction of a Newton step that is tried."""

SETTLED = 1e-3
"""The mode is found when the gain of a Newton step is below `SETTLED` × tol nats per row."""

LEAST_SHARE = 2.0**-5
"""Minimum fraction of a change in log α that is applied."""

REGAIN = 1.25
"""Factor by which the applied fraction grows without a reversal."""

RELAXED = 2.0 / 3.0
"""Fraction of the block-diagonal Newton step that is taken if there are no pairs."""

MEMORY = 8
"""Maximum number of pairs."""

STRAIGHT = 1e-12
"""Minimum cosine between s and y + As for a pair to be used: smaller cosines are rounding
errors."""


@dataclass(frozen=True)
class NewtonSearch:
    """A fit in progress: its ``current`` state, and the ``trial`` state that the next pass
    evaluates.

    Attributes:
        current: the last state that a pass confirmed
        trial: the state with new α, columns and weights, but the quadratic of ``current``
        baseline: penalised likelihood below which the trial is undone, in nats
        step: fraction of a Newton step at the old α, or 0 at a new α
        since: number of the pass at which the update schedule began
        settling: True if α is final
        origin: weights of the quadratic (M, C)
        pairs: curvature between outputs, from the last steps
        drift: last proposed change in log α (M,)
        share: the applied fraction of this change (M,)
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


class NewtonOutcome(Enum):
    """The possible continuations of a fit after a pass."""

    UNDO = "the penalised likelihood fell: undo the step"
    SETTLE = "α is final: a Newton step towards the mode"
    APPROACH = "still far from the mode: a longer Newton step at the same α"
    THIN = "the evidence is level: delete columns that do not raise it"
    UPDATE = "update α"


def receive(
    search: NewtonSearch, block: LogisticBlock, rule: StopRule, poll: Poll = lambda: None
) -> Received:
    """Process the statistic of the trial state.

    Args:
        search: the search whose trial was evaluated
        block: the statistic of the pass
        rule: decides when the fit ends
        poll: called between updates of α
    """
    trial = search.trial
    now = replace(trial, iteration=search.current.iteration + 1)
    now = settled(now, trial.alpha, trial.weights, block)
    fall = search.baseline - now.penalised()
    outcome = _outcome(search, now, fall, rule)
    if outcome is NewtonOutcome.UNDO:
        return _back(search, rule, fall)
    if isinstance(outcome, Termination):
        return replace(search, current=now), outcome
    pairs = _extended_pairs(search, now)
    match outcome:
        case NewtonOutcome.SETTLE:
            return _at_fixed_alpha(now, 1.0, search.since, pairs, settling=True), None
        case NewtonOutcome.APPROACH:
            step = min(LONGER * search.step, 1.0)
            return _at_fixed_alpha(now, step, now.iteration, pairs), None
        case NewtonOutcome.THIN:
            thinner = thin(now) if now.prior.keeps_worthless else now
            if thinner is now:
                return replace(search, current=now), Termination.CONVERGED
            return _at_new_alpha(now, thinner, now.iteration, pairs), None
    age = 0 if search.step else now.iteration - search.since
    return begin(now, rule, poll, age, replace(search, pairs=pairs)), None


def _outcome(
    search: NewtonSearch, now: LaplaceState, fall: float, rule: StopRule
) -> NewtonOutcome | Termination:
    """Return how the fit continues after a pass, or the reason why it ends.

    Args:
        search: the search whose trial was evaluated
        now: the trial state with its quadratic from the pass
        fall: decrease of the penalised likelihood below the baseline, in nats
        rule: decides when the fit ends
    """
    if fall > 1e-10 * (abs(now.penalised()) + now.n):  # more than rounding
        return NewtonOutcome.UNDO
    if rule.vectors is not None and now.n_vectors <= rule.vectors:
        return Termination.HALVED
    small = rule.tol * now.n
    at_mode = now.decrement < SETTLED * small
    if search.settling and at_mode:
        return Termination.CONVERGED
    if now.iteration >= rule.max_iterations:
        return Termination.ITERATIONS
    before = search.current
    level = (
        not search.step
        and abs(now.log_evidence - before.log_evidence) < small
        and len(now.labels) == len(before.labels)
        and now.decrement < small
    )
    if search.settling or (level and not at_mode):
        return NewtonOutcome.SETTLE
    if search.step and now.decrement > NEAR:
        return NewtonOutcome.APPROACH
    return NewtonOutcome.THIN if level else NewtonOutcome.UPDATE


def _extended_pairs(search: NewtonSearch, now: LaplaceState) -> Pairs:
    """Return the search's pairs and, for several outputs, the pair for the step to ``now``."""
    step = search.trial.weights - search.origin
    if now.iteration - search.since <= TIMID or step.shape[1] == 1 or not step.any():
        return search.pairs
    decrease = search.trial.block.gradient - now.block.gradient
    return (*search.pairs, (step, decrease))[-MEMORY:]


def begin(
    state: LaplaceState,
    rule: StopRule,
    poll: Poll = lambda: None,
    age: int = 0,
    last: NewtonSearch | None = None,
) -> NewtonSearch:
    """Update α on the current quadratic, and return the search with the corresponding Newton step.

    Only the fraction ``share`` of each change in log α is applied: half the previous fraction if
    the change has reversed its sign, otherwise a larger one.

    Args:
        state: the current state
        rule: decides when the fit ends
        poll: called between updates
        age: number of passes since the update schedule began
        last: the previous search
    """
    moved = _updated(state, rule, poll, age)
    present = np.isin(state.labels, moved.labels)
    old = state.alpha[present]
    drift = np.log(moved.alpha) - np.log(old)
    share = np.ones(len(old))
    if age > TIMID and last is not None and last.drift is not None and last.share is not None:
        factor = np.where(drift * last.drift[present] < 0, 0.5, REGAIN)
        share = np.clip(factor * last.share[present], LEAST_SHARE, 1.0)
    if (share < 1.0).any():
        moved = settled(moved, old * np.exp(share * drift), moved.weights, moved.block)
    pairs = () if last is None else last.pairs
    search = _at_new_alpha(state, moved, state.iteration - age, pairs)
    return replace(search, drift=drift, share=share)


def _updated(state: LaplaceState, rule: StopRule, poll: Poll, age: int) -> LaplaceState:
    """Return the state after updates of α on its quadratic, which need no pass while the mode
    hardly moves.

    Args:
        state: the current state
        rule: decides when the fit ends
        poll: called between updates
        age: number of passes since the update schedule began
    """
    fewest = 1 if age < TIMID else min(1 + age // 4, MOST_UPDATES)
    moved = state
    for count in range(1, 2 if age < TIMID else TRUSTED_UPDATES + 1):
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
    return moved


def _at_new_alpha(
    state: LaplaceState, moved: LaplaceState, since: int, pairs: Pairs
) -> NewtonSearch:
    """Return the search with the Newton step at a new α.

    Args:
        state: the current state
        moved: a state with the α and columns of the step
        since: number of the pass at which the update schedule began
        pairs: the pairs of ``state``
    """
    if len(moved.labels) < len(state.labels):
        present = np.isin(state.labels, moved.labels)
        pairs = tuple((step[present], decrease[present]) for step, decrease in pairs)
    # the effect of pruning is known only from the quadratic, which is inaccurate far from its
    # centre
    baseline = max(moved.penalised(), state.penalised() - SLACK * float(state.determinedness.sum()))
    trial = _moved(moved, 1.0, pairs)
    return NewtonSearch(state, trial, baseline, 0.0, since, False, moved.weights, pairs)


def _at_fixed_alpha(
    state: LaplaceState, step: float, since: int, pairs: Pairs, settling: bool = False
) -> NewtonSearch:
    """Return the search with a Newton step at the α of ``state``.

    Args:
        state: the current state
        step: fraction of the Newton step
        since: number of the pass at which the update schedule began
        pairs: the pairs of ``state``
        settling: True if α is final
    """
    trial = _moved(state, step, pairs)
    baseline = state.penalised()
    return NewtonSearch(state, trial, baseline, step, since, settling, state.weights, pairs)


def _back(search: NewtonSearch, rule: StopRule, fall: float) -> Received:
    """Return a search with a shorter step, to the parabola's maximum within bounds (Dennis &
    Schnabel 1983, §6.3.2).

    However, columns at weight zero, which were about to enter, get the α that would be optimal if
    each entered alone.
    """
    state = replace(search.current, iteration=search.current.iteration + 1)
    entering = (state.weights == 0).all(axis=1)
    step = 1.0
    if search.step:
        rise = search.step * state.decrement
        step = search.step * min(max(rise / (2 * rise + fall), SHORTER), 0.5)
    elif entering.any():
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
    """Return the state with the weights after the fraction ``part`` of a Newton step; the weights
    of several outputs sum to zero."""
    if state.weights.shape[1] == 1:
        return replace(state, weights=state.weights + part * (state.mean - state.weights))
    weights = state.weights + part * _newton_step(state, pairs)
    weights = weights - weights.mean(axis=1, keepdims=True)  # this leaves the softmax unchanged
    return replace(state, weights=weights)


def _newton_step(state: LaplaceState, pairs: Pairs) -> Float:
    """Return a step (M, C) towards the mode, for several outputs."""
    alpha = state.alpha[:, None]
    q = state.block.gradient - alpha * state.weights
    used = []
    for step, decrease in pairs:
        change = decrease + alpha * step
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
    move = _by_blocks(state, q)
    for (step, change, product), part in zip(used, reversed(parts), strict=True):
        move += (part - float(np.sum(change * move)) / product) * step
    return move


def _by_blocks(state: LaplaceState, right: Float) -> Float:
    """Return (G_k + A_k)⁻¹ times column k of ``right``, for each output k, (M, C)."""
    solution = np.zeros(right.shape)
    if len(right):
        for k, output in enumerate(state.posteriors):
            scaled = output.scale * right[:, k]
            solution[:, k] = output.scale * lapack.dpotrs(output.factor, scaled, lower=1)[0]
    return solution


def entry_factors(state: LaplaceState, block: LogisticBlock) -> tuple[Float, Float, Float]:
    """Return s, q and ΦᵀBΦ, (P, C) each, of the P columns of ``block`` that follow the columns of
    ``state``, at weight zero.

    s and q follow from Tipping & Faul (2003), eqs. 19 and 22, for each output's quadratic at the
    weights of ``state``.
    """
    M = len(state.labels)
    diagonal = np.einsum("kmm->mk", block.curvature)[M:]
    s = np.empty(diagonal.shape)
    q = np.empty(diagonal.shape)
    for k, output in enumerate(state.posteriors):
        s[:, k], q[:, k] = sparsity_quality(
            output,
            beta=1.0,
            offset=state.weights[:, k],
            cross=block.curvature[k, :M, M:],
            diagonal=diagonal[:, k],
            projection=block.gradient[M:, k],
        )
    return s, q, diagonal


def enter(
    labels: Int, alpha: Float, weights: Float, block: LogisticBlock, prior: Prior = FLAT
) -> LaplaceState:
    """Return the first state of a fit; new columns start at Tipping & Faul's (2003) optimum for the
    means over outputs.

    Args:
        labels: column labels (M,)
        alpha: α, NaN for new columns (M,)
        weights: the weights at which ``block`` was measured (M, C)
        block: the statistic of the first pass
        prior: prior of α
    """
    new = np.isnan(alpha)
    ordered = block.take(np.concatenate([np.flatnonzero(~new), np.flatnonzero(new)]))
    present = ordered.take(np.arange(len(labels) - new.sum()))
    old = init(labels[~new], alpha[~new], weights[~new], present, prior)
    s, q, precision = entry_factors(old, ordered)
    entered = alpha.copy()
    entered[new] = entry_precision(
        s.mean(axis=1), np.sqrt((q**2).mean(axis=1)), precision.mean(axis=1)
    )
    return init(labels, entered, weights, block, prior)
