"""Classification by actions on one column at a time (Tipping & Faul 2003), on the quadratic that a pass has left.

A quadratic about weights W is that of a Gaussian: in each output the working response z = Φw + B⁻¹(t − y) has noise of
precision B, so that with ΦᵀBz = g + Gw their S and Q (eqs. 24 and 25) and all that follows from these holds with β = 1
and a noise that is known (``core.rank_one``). Candidates that are not active stay in the fit, at α = ∞ and weight zero:
the pass measures their gradient and curvature, too, and each has an action that gains so many nats (``core.fast``).

Outputs of ``multinomial`` share α. There an action is on the column in all of them, and gains the sum of what each
output gains (``core.shared_alpha``); those of ``ovr`` are fits of their own.

A pass moves the quadratic, and what gained on one may lose on the next: a column that has joined can be worth less at
the new B than it was at the old. In terms of prior variances 1/α, 0 where a column is absent, every action is a
continuous change, of which a *share* can be made, less after each reversal: then column and quadratic come to terms.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from partirvm.core.damping import next_share
from partirvm.core.fast import TIE, Action, best_alpha, first
from partirvm.core.laplace import LaplaceState, moved_to
from partirvm.core.rank_one import ActiveColumns
from partirvm.core.shared_alpha import optimum, worth
from partirvm.core.statistics import GramStatistics
from partirvm.core.updates import ABSENT, ALPHA_FLOOR, DEPENDENT

Float = NDArray[np.float64]
Int = NDArray[np.int64]

FEWEST, EACH = 100, 2
"""Actions on one quadratic at most: ``FEWEST`` + ``EACH`` × M. More would go into digits that the next one has not."""

FAR, FAR_ROWS = 1.0, 500
"""Nats, ½δᵀGδ, by which actions may move the mode before the quadratic is measured anew: ``FAR``, or one per so many
rows, whose predictors then change by a tenth or two."""

NEARER = 0.25
"""Factor of the share that is made of a change that was taken back."""


class Together:
    """T outputs that share the α of each of K columns, on their quadratics; mutable.

    ``alpha`` (K,) is theirs; ``weights`` and ``gradient`` (K, T) and ``curvature`` (T, K, K) are a pass's.
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
        """α of all columns (K,), ∞ of those that are not active."""
        one = self.outputs[0]
        found = np.full(len(one.place), np.inf)
        found[one.columns] = one.alpha
        return found

    def sparsity_and_quality(self) -> tuple[Float, Float]:
        """s and q of all columns (K, T), each computed as if the column were not active."""
        pairs = [output.sparsity_and_quality() for output in self.outputs]
        return np.column_stack([s for s, _ in pairs]), np.column_stack([q for _, q in pairs])

    def best(self) -> Action:
        """The action that gains most, of equal ones the first; ``log_evidence`` is what it gains."""
        s, q = self.sparsity_and_quality()
        q[self.precision < ABSENT] = 0.0
        before, floor = self.alpha, ALPHA_FLOOR * self.precision.max(axis=1)
        absent = np.isinf(before)
        alone = s.shape[1] == 1
        after = best_alpha(s[:, 0], q[:, 0], floor) if alone else np.maximum(optimum(s, q)[0], floor)
        after[absent & (s.sum(axis=1) < DEPENDENT * self.precision.sum(axis=1))] = np.inf
        gain = worth(s, q, after) - worth(s, q, before)
        j = first(gain)
        if absent[j] and len(there := self.outputs[0].columns):
            present = int(there[first(gain[there])])
            j = present if gain[present] >= (1.0 - TIE) * gain[j] else j
        kind = "add" if absent[j] else "estimate" if np.isfinite(after[j]) else "delete"
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
        """½δᵀGδ, nats: distance of the quadratic's mode from the weights at which it was measured."""
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
    look: Callable[[], None] = lambda: None,
    on_action: Callable[[Action], None] = lambda action: None,
) -> Float:
    """α (K, C) after actions that gain more than ``least`` nats each; that of the state if none does.

    The first is done in any case, others while the mode is within ``FAR`` nats. ``look`` is called before each.
    """
    alpha, block, far = state.alpha.copy(), state.block, max(FAR, state.n / FAR_ROWS)
    for k in _groups(state) if len(alpha) else ():
        group = Together(state.labels, alpha[:, k.start], state.weights[:, k], block.gradient[:, k], block.curvature[k])
        for _ in range(FEWEST + EACH * len(group.begun)):
            look()
            action = group.best()
            if action.gain <= least:
                break
            group.do(action)
            on_action(action)
            if group.displacement() > far:
                break
        alpha[:, k] = group.alpha[:, None]
    return alpha


def _groups(state: LaplaceState) -> list[slice]:
    """Outputs that share α."""
    outputs = state.alpha.shape[1]
    return [slice(0, outputs)] if state.coupled else [slice(k, k + 1) for k in range(outputs)]


@dataclass(frozen=True)
class Aim:
    """Target of actions: α = ``goal`` (K, C), approached by a ``share`` (K, C) of the change of 1/α.

    ``drift`` (K, C) is the last nonzero change of 1/α that actions proposed.
    """

    goal: Float
    drift: Float
    share: Float

    @classmethod
    def at(cls, state: LaplaceState) -> Aim:
        """The α of the state, with no change proposed yet."""
        return cls(state.alpha, np.zeros(state.alpha.shape), np.ones(state.alpha.shape))

    def nearer(self) -> Aim:
        """The same goal with a smaller share of the change."""
        return replace(self, share=NEARER * self.share)


def aimed(state: LaplaceState, last: Aim, least: float, damp: bool, look: Callable[[], None] = lambda: None) -> Aim:
    """The aim of actions on a new quadratic, after the aim on the last one; the share is 1 unless ``damp``."""
    goal = act(state, least, look)
    drift = 1.0 / goal - 1.0 / state.alpha
    share = next_share(drift, last.drift, last.share) if damp else np.ones(drift.shape)
    return Aim(goal, np.where(drift == 0, last.drift, drift), share)


def toward(state: LaplaceState, aim: Aim) -> LaplaceState:
    """The state at α moved towards the goal by the share of the aim."""
    with np.errstate(divide="ignore"):
        variance = 1.0 / state.alpha + aim.share * (1.0 / aim.goal - 1.0 / state.alpha)
        alpha = np.where(aim.share < 1.0, 1.0 / np.maximum(variance, 0.0), aim.goal)
    return moved_to(state, alpha)
