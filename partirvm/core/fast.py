"""Fast marginal likelihood maximisation: one column at a time (Tipping & Faul 2003), on sufficient statistics.

The fit holds some of K candidate columns. As a function of one α_i alone the log evidence is a constant and

    ℓ(α_i) = ½ [log α_i − log(α_i + s_i) + q_i²/(α_i + s_i)],

maximal at α_i = s_i²/(q_i² − s_i) if q_i² > s_i and otherwise at ∞, which deletes the column (their eqs. 18–20). So
each candidate has an *action*, to **add** or **delete** it or to **estimate** its α again, with a gain in nats. The
action of largest gain is applied, or in a random order any one, until no gain exceeds ``tol``·N. No action lowers the
evidence.

**Noise and refresh.** A change of σ² changes all s and q; computing them again is a refresh: one Cholesky factorisation
and KM² flops. It takes as long as about M/16 actions. With ``FEWEST`` + M/``PART`` actions between two refreshes, these
take at most a third of the time, and σ² converges quickly while the model is small. Each refresh estimates σ² from the
current residual and γ (Tipping 2001, eq. 18), as the fixed-point steps do, and counts as an *iteration*. It also bounds
rounding errors: ``ActiveColumns.drift`` measures them, and beyond ``DRIFT`` a refresh follows at once.

**Copies.** A candidate whose s is below ``DEPENDENT`` × βφᵀφ is not added: its s is a rounding error. There is no bound
on the angle between columns: the small difference of two similar columns may be what the target needs. (Other programs
bound the cosine by 0.999, which has excluded columns worth 3 nats.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from partirvm.core.gains import DEPENDENT
from partirvm.core.posterior import Posterior, posterior
from partirvm.core.rank_one import ActiveColumns
from partirvm.core.sampling import Purpose, stream
from partirvm.core.termination import StopRule, Termination
from partirvm.core.updates import ALPHA_FLOOR, HyperState, StepInfo, noise_precision

Float = NDArray[np.float64]
Int = NDArray[np.int64]

FEWEST, PART = 16, 8
"""Actions between two refreshes: ``FEWEST`` + M // ``PART``."""

TIE = 1e-6
"""Fraction of an addition's gain that is given up if an active column can have the rest: a copy gains as much as its
original."""

EQUAL = 1e-9
"""Gains that differ by less than this fraction count as equal: ties are common for rows on a grid."""

DRIFT, LOOKS = 1e-6, 4
"""Error of an active column's Q, in units of √S, that triggers a refresh; checked every so many actions."""

ACTION_COST, LEAST_COST = 20, 2_500_000
"""Cost of an action in multiplications of a factorisation: per number it reads, and the minimum."""


@dataclass(frozen=True)
class Action:
    """A change of the candidate at position ``column``: its new α, ∞ if it is deleted.

    ``gain`` is its gain in nats, ``log_evidence`` the evidence afterwards.
    """

    kind: str
    column: int
    alpha: float
    gain: float
    log_evidence: float


def log_contribution(alpha: Float, s: Float, q: Float) -> Float:
    """ℓ(α), the contribution of columns with these s and q to the log evidence; 0 at α = ∞. Any shape, nats."""
    found: Float = 0.5 * (q**2 / (alpha + s) - np.log1p(s / alpha))
    return found


def best_alpha(s: Float, q: Float, floor: Float) -> Float:
    """The α of maximal ℓ, at least ``floor``; ∞ where q² ≤ s."""
    excess = q**2 - s
    found: Float = np.divide(s**2, excess, out=np.full(s.shape, np.inf), where=excess > 0)
    return np.maximum(found, floor, out=found)


def first(gain: Float) -> int:
    """Position of the first element within rounding of the largest gain."""
    best = float(gain.max())
    return int(np.argmax(gain >= best - EQUAL * abs(best)))


class Greedy:
    """A fit in progress. It starts with those columns of ``state`` that have not just ``entered``, at their α.

    ``order`` is the seed of a random order of actions.
    """

    def __init__(self, state: HyperState, order: int | None = None) -> None:
        entered = np.zeros(state.n_columns, bool) if state.entered is None else state.entered
        begun = np.flatnonzero(~entered)
        self._state = state
        self.floored, self.iteration = state.floored, state.iteration
        self.active = ActiveColumns(state.statistics, begun, state.alpha[begun], float(state.beta))
        self.leading = state.labels < 0
        self.since = 0
        self.log_evidence = self.active.posterior.log_evidence
        self.cost = 0.0
        self._draws = None if order is None else stream(order, Purpose.ACTIONS)

    @property
    def n(self) -> int:
        """Rows of weight above zero."""
        return self._state.n

    @property
    def n_vectors(self) -> int:
        """Active kernel columns."""
        return self.active.M - int(self.leading[self.active.columns].sum())

    def best(self) -> Action | None:
        """The action of largest gain; None if there is no column."""
        there, absent = self._present(), self._addition()
        if there is None or absent is None:
            return there or absent
        return there if there.gain >= (1.0 - TIE) * absent.gain else absent

    def action(self, least: float, *, thin: bool) -> Action | None:
        """The best action if it gains more than ``least`` nats; otherwise with ``thin`` the best deletion; or None."""
        found = self.best() if self._draws is None else self._drawn(least, self._draws)
        if found and found.gain <= least and thin:
            found, least = self._present(deletion=True), 0.0
        return found if found and found.gain > least else None

    def _present(self, *, deletion: bool = False) -> Action | None:
        """The best action on an active column; with ``deletion`` the best deletion."""
        alpha, gain = self._changes()
        if not len(gain):
            return None
        if deletion:
            gain[np.isfinite(alpha)] = 0.0
        i = first(gain)
        return self._action(int(self.active.columns[i]), float(alpha[i]), float(gain[i]))

    def _addition(self) -> Action | None:
        """The best addition."""
        wanted, alpha, gain = self._additions()
        if not len(wanted):
            return None
        j = first(gain)
        return self._action(int(wanted[j]), float(alpha[j]), float(gain[j]))

    def _drawn(self, least: float, draws: np.random.Generator) -> Action | None:
        """A random one of the actions that gain more than ``least`` nats."""
        wanted, alpha, gain = self._additions()
        own, own_gain = self._changes()
        columns = np.concatenate([self.active.columns, wanted])
        alpha, gain = np.concatenate([own, alpha]), np.concatenate([own_gain, gain])
        worth = np.flatnonzero(gain > least)
        if not len(worth):
            return None
        i = int(draws.choice(worth))
        return self._action(int(columns[i]), float(alpha[i]), float(gain[i]))

    def _changes(self) -> tuple[Float, Float]:
        """The best α and its gain for each active column, shapes (M,)."""
        active = self.active
        s, q = active.own_factors()
        alpha = best_alpha(s, q, ALPHA_FLOOR * active.beta * active.diagonal[active.columns])
        return alpha, log_contribution(alpha, s, q) - log_contribution(active.alpha, s, q)

    def _additions(self) -> tuple[Int, Float, Float]:
        """Positions of the columns whose addition gains, their best α, and its gain."""
        active = self.active
        wanted = np.flatnonzero((active.Q**2 > active.S) & (active.place < 0))
        s, q, precision = active.S[wanted], active.Q[wanted], active.beta * active.diagonal[wanted]
        alpha = best_alpha(s, q, ALPHA_FLOOR * precision)
        alpha[s < DEPENDENT * precision] = np.inf
        return wanted, alpha, log_contribution(alpha, s, q)

    def _action(self, column: int, alpha: float, gain: float) -> Action:
        kind = "add" if self.active.place[column] < 0 else "estimate" if np.isfinite(alpha) else "delete"
        return Action(kind, column, alpha, gain, self.log_evidence + gain)

    def do(self, action: Action) -> None:
        """Apply an action."""
        active = self.active
        self.cost += LEAST_COST + ACTION_COST * active.M * (len(active.place) + 2 * active.M)
        if action.kind == "add":
            active.add(action.column, action.alpha)
        elif action.kind == "delete":
            active.delete(action.column)
        else:
            active.change(action.column, action.alpha)
        self.log_evidence = action.log_evidence
        self.since += 1

    def due(self) -> bool:
        """True if a refresh is due."""
        if self.since >= FEWEST + self.active.M // PART:
            return True
        return self.since % LOOKS == LOOKS - 1 and self.active.drift() > DRIFT

    def is_settled(self, info: StepInfo, done: int, least: float) -> bool:
        """True if the refresh after ``done`` actions changed the evidence by at most ``least``."""
        rounding = 0.5 * self.active.beta * self.active.posterior.rounding
        return not done and abs(info.change) <= max(least, rounding)

    def refresh(self) -> StepInfo:
        """Estimate σ² again unless it is fixed, then all quantities; ``change`` is the change of evidence by that."""
        before, active, beta = self.log_evidence, self.active, self.active.beta
        if not self._state.fixed_noise:
            beta, self.floored = self._precision()
        self.log_evidence = active.refresh(beta).log_evidence
        M = active.M
        self.cost += 2 * M**3 + M**2 * len(active.place)
        self.iteration, self.since = self.iteration + 1, 0
        return StepInfo(self.iteration, self.n_vectors, 0, self.log_evidence, self.log_evidence - before, 1 / beta)

    def fit(self) -> HyperState:
        """The fit of the active columns, in the order of the candidates, with a newly computed posterior.

        Must be the last call: no action can follow.
        """
        self.active.clear()
        order = np.argsort(self.active.columns)
        columns, alpha = self.active.columns[order], self.active.alpha[order]
        statistics = self.active.statistics.take(columns)
        fit = self._taken(posterior(statistics, alpha, self.active.beta))
        return replace(fit, statistics=statistics, alpha=alpha)

    def _precision(self) -> tuple[float, bool]:
        """The current estimate of β, and whether it is limited by the noise floor."""
        beta, floored = noise_precision(self._taken(self.active.now()))
        return float(beta), floored

    def _taken(self, found: Posterior) -> HyperState:
        """The state with this posterior, except for its statistics and α."""
        return replace(
            self._state,
            beta=self.active.beta,
            found=found,
            iteration=self.iteration,
            floored=self.floored,
            entered=None,
        )


def grow(
    state: HyperState,
    rule: StopRule,
    on_step: Callable[[StepInfo], None] = lambda info: None,
    on_action: Callable[[Action], None] = lambda action: None,
    enough: Callable[[float, int], bool] = lambda cost, columns: False,
) -> tuple[HyperState, Termination]:
    """A dense fit by actions, until no gain exceeds ``tol``·N nats and σ² has converged, or the rule ends it.

    ``on_step`` is called at each refresh, ``on_action`` at each action; ``on_step`` may raise an exception to stop. An
    iteration of the rule is a refresh. The limit ``vectors`` of the rule ends a fit that starts with more columns, once
    deletions reach it. With ``thin`` columns of q² ≤ s are deleted, however small the gain. Under ``guard`` a fit whose
    residual has finally cancelled ends as ``CANCELLED``, and continues without the inactive candidates. If ``enough``
    is true for its cost so far (``Greedy.cost``) and number of columns, it ends as at the maximum of iterations.
    """
    greedy = Greedy(state, rule.order)
    least = rule.tol * greedy.n
    limit = -1 if rule.vectors is None or greedy.n_vectors <= rule.vectors else rule.vectors
    reason = None
    while reason is None:
        action = greedy.action(least, thin=rule.thin)
        halved = limit >= 0 and greedy.n_vectors <= limit
        if action and not (halved or greedy.due()):
            greedy.do(action)
            on_action(action)
            continue
        done = greedy.since
        info = greedy.refresh()
        on_step(info)
        if halved:
            reason = Termination.HALVED
        elif greedy.is_settled(info, done, least) and not greedy.action(least, thin=rule.thin):
            reason = Termination.CONVERGED
        elif greedy.iteration >= rule.max_iterations or enough(greedy.cost, greedy.active.M):
            reason = Termination.ITERATIONS
    fit = greedy.fit()
    return fit, Termination.CANCELLED if rule.guard and fit.posterior.cancelled else reason
