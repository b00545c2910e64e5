"""Classification by actions on one column at a time (Tipping & Faul 2003).

An action adds a column, changes the α of a column or deletes a column. Actions maximise the evidence of a quadratic
approximation of the log likelihood. One pass over the rows measures this quadratic at the weights W. The quadratic
equals a Gaussian log likelihood, in which the working response z = Φw + B⁻¹(t − y) of each output has noise of known
precision B. So with
ΦᵀBz = g + Gw, the factors S and Q of Tipping & Faul (eqs. 24 and 25) are computed as in regression with β = 1
(``core.rank_one``). Candidates that are not active stay in the fit, with α = ∞ and weight zero. The pass measures the
gradient and curvature of these candidates too, so that the gain in nats of adding a candidate is known
(``core.fast``).

Outputs of ``multinomial`` share α. An action then applies to the column in all outputs, and its gain is the sum of the
gains of the outputs (``core.gains``). Actions of ``ovr`` apply to one output.

Each pass measures a new quadratic. A column that raised the evidence of one quadratic may lower the evidence of the
next. So after a reversal only a *share* of an action is applied, and the share decreases with each reversal. The share
refers to the change of the prior variance 1/α, which is 0 for an absent column. Then the columns and the quadratic
converge together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from partirvm.core.fast import TIE, Action, best_alpha, first
from partirvm.core.gains import ABSENT, DEPENDENT, optimum, worth
from partirvm.core.laplace import LaplaceState, moved_to
from partirvm.core.rank_one import ActiveColumns
from partirvm.core.statistics import GramStatistics
from partirvm.core.updates import ALPHA_FLOOR

Float = NDArray[np.float64]
Int = NDArray[np.int64]

FEWEST, EACH = 100, 2
"""Terms of the maximum number of actions on one quadratic, ``FEWEST`` + ``EACH`` × M."""

FAR, FAR_ROWS = 1.0, 500
"""Maximum distance ½δᵀGδ, nats, by which actions may move the mode before a pass measures the next quadratic.

The maximum is ``FAR``, or one nat per ``FAR_ROWS`` rows if this is more."""

NEARER = 0.25
"""Factor by which the share of a change is reduced after the change was undone."""


class SharedQuadratics:
    """The quadratics of T outputs that share the α of each of K columns; mutable.

    ``alpha`` (K,) is the shared α. ``weights`` and ``gradient`` (K, T) and ``curvature`` (T, K, K) are from a pass.
    """

    def __init__(self, labels: Int, alpha: Float, weights: Float, gradient: Float, curvature: Float) -> None:
        self.begun = np.flatnonzero(np.isfinite(alpha))
        self.weights, self.curvature = weights, curvature
        nothing = np.zeros(1)
        self.outputs = [
            ActiveColumns(
                GramStatistics("", labels, curvature[k], gradient[:, k : k + 1], nothing, weights[:, k : k + 1], 0),
                self.begun,
                alpha[self.begun],
                1.0,
            )
            for k in range(len(curvature))
        ]
        self.precision = np.column_stack([output.diagonal for output in self.outputs])

    @property
    def alpha(self) -> Float:
        """α of all columns (K,); ∞ for columns that are not active."""
        one = self.outputs[0]
        found = np.full(len(one.place), np.inf)
        found[one.columns] = one.alpha
        return found

    def sparsity_and_quality(self) -> tuple[Float, Float]:
        """Return s and q of all columns (K, T), each computed as if the column were not active."""
        pairs = [output.sparsity_and_quality() for output in self.outputs]
        return np.column_stack([s for s, _ in pairs]), np.column_stack([q for _, q in pairs])

    def best(self) -> Action:
        """Return the action with the largest gain, the first of equal ones. ``log_evidence`` is the gain in nats."""
        after, gain = self._changes()
        j, absent = first(gain), self.outputs[0].place < 0
        if absent[j] and len(there := self.outputs[0].columns):
            present = int(there[first(gain[there])])
            j = present if gain[present] >= (1.0 - TIE) * gain[j] else j
        return self._action(j, after, gain)

    def drawn(self, least: float, draws: np.random.Generator) -> Action:
        """Return a random one of the actions that gain more than ``least`` nats; if there is none, the best action."""
        after, gain = self._changes()
        worth_it = np.flatnonzero(gain > least)
        return self._action(int(draws.choice(worth_it)) if len(worth_it) else first(gain), after, gain)

    def _changes(self) -> tuple[Float, Float]:
        """Return the best α of each column and its gain, shapes (K,)."""
        s, q = self.sparsity_and_quality()
        q[self.precision < ABSENT] = 0.0
        before, floor = self.alpha, ALPHA_FLOOR * self.precision.max(axis=1)
        absent = np.isinf(before)
        alone = s.shape[1] == 1
        after = best_alpha(s[:, 0], q[:, 0], floor) if alone else np.maximum(optimum(s, q)[0], floor)
        after[absent & (s.sum(axis=1) < DEPENDENT * self.precision.sum(axis=1))] = np.inf
        return after, worth(s, q, after) - worth(s, q, before)

    def _action(self, j: int, after: Float, gain: Float) -> Action:
        kind = "add" if self.outputs[0].place[j] < 0 else "estimate" if np.isfinite(after[j]) else "delete"
        return Action(kind, j, float(after[j]), float(gain[j]), float(gain[j]))

    def do(self, action: Action) -> None:
        """Apply an action to all outputs."""
        for output in self.outputs:
            if action.kind == "add":
                output.add(action.column, action.alpha)
            elif action.kind == "delete":
                output.delete(action.column)
            else:
                output.change(action.column, action.alpha)

    def displacement(self) -> float:
        """Return ½δᵀGδ, nats: the distance of the mode from the weights at which the quadratic was measured."""
        found = 0.0
        for output, weights, curvature in zip(self.outputs, self.weights.T, self.curvature, strict=True):
            delta = -weights
            delta[output.columns] += output.mean
            there = np.flatnonzero(delta)
            found += 0.5 * float(delta[there] @ curvature[np.ix_(there, there)] @ delta[there])
        return found


def act(
    state: LaplaceState,
    least: float,
    poll: Callable[[], None] = lambda: None,
    on_action: Callable[[Action], None] = lambda action: None,
    order: int | None = None,
) -> Float:
    """Apply actions that gain more than ``least`` nats each, and return the resulting α (K, C).

    Further actions follow the first one while the mode has moved by at most the maximum. ``poll`` is called before
    each action. If no action gains enough, the α of the state is returned. ``order`` is the seed of a random order of
    actions; None means the action of largest gain.
    """
    draws = None if order is None else np.random.default_rng((order, state.passes))
    alpha, block, far = state.alpha.copy(), state.block, max(FAR, state.n / FAR_ROWS)
    for k in _groups(state) if len(alpha) else ():
        group = SharedQuadratics(
            state.labels, alpha[:, k.start], state.weights[:, k], block.gradient[:, k], block.curvature[k]
        )
        for _ in range(FEWEST + EACH * len(group.begun)):
            poll()
            action = group.best() if draws is None else group.drawn(least, draws)
            if action.gain <= least:
                break
            group.do(action)
            on_action(action)
            if group.displacement() > far:
                break
        alpha[:, k] = group.alpha[:, None]
    return alpha


def _groups(state: LaplaceState) -> list[slice]:
    """Return the groups of outputs that share α."""
    outputs = state.alpha.shape[1]
    return [slice(0, outputs)] if state.shared_alpha else [slice(k, k + 1) for k in range(outputs)]


@dataclass(frozen=True)
class Aim:
    """Target α of a set of actions: ``goal`` (K, C), and the ``share`` (K, C) of the change of 1/α to apply.

    ``drift`` (K, C) is the last nonzero change of 1/α that actions proposed.
    """

    goal: Float
    drift: Float
    share: Float

    @classmethod
    def at(cls, state: LaplaceState) -> Aim:
        """Return an aim at the α of the state, without a proposed change."""
        return cls(state.alpha, np.zeros(state.alpha.shape), np.ones(state.alpha.shape))

    def nearer(self) -> Aim:
        """Return the aim with the same goal and a smaller share of the change."""
        return replace(self, share=NEARER * self.share)


def aimed(
    state: LaplaceState,
    last: Aim,
    least: float,
    damp: bool,
    poll: Callable[[], None] = lambda: None,
    order: int | None = None,
) -> Aim:
    """Return the aim of actions on a new quadratic, given the ``last`` aim. The share is 1 unless ``damp`` is true."""
    goal = act(state, least, poll, order=order)
    drift = 1.0 / goal - 1.0 / state.alpha
    share = next_share(drift, last.drift, last.share) if damp else np.ones(drift.shape)
    return Aim(goal, np.where(drift == 0, last.drift, drift), share)


def toward(state: LaplaceState, aim: Aim) -> LaplaceState:
    """Return the state with α moved towards the goal by the share of the aim."""
    with np.errstate(divide="ignore"):
        variance = 1.0 / state.alpha + aim.share * (1.0 / aim.goal - 1.0 / state.alpha)
        alpha = np.where(aim.share < 1.0, 1.0 / np.maximum(variance, 0.0), aim.goal)
    return moved_to(state, alpha)


LEAST_SHARE = 2.0**-5
"""Minimum share of a change that is applied."""

REGAIN = 1.25
"""Factor by which the share grows while changes keep their direction."""


def next_share(drift: Float, last_drift: Float, last_share: Float) -> Float:
    """Return the share of the changes ``drift`` to apply.

    ``last_drift`` are the last proposed changes, and ``last_share`` is the share of these changes that was applied.

    All arrays have the same shape.

    >>> next_share(np.array([1.0, -1.0, 1.0]), np.array([1.0, 1.0, 2.0]), np.array([1.0, 1.0, 0.5])).tolist()
    [1.0, 0.5, 0.625]
    """
    return np.clip(np.where(drift * last_drift < 0, 0.5, REGAIN) * last_share, LEAST_SHARE, 1.0)
