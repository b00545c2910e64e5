"""Ways to maximise the evidence of a regression's columns: ``solve(state, rule, solver)``.

``"fixed-point"``
    MacKay's updates of all columns together (``core.updates``): few, dear steps; begins with all candidates.
``"fast"``
    Tipping & Faul's actions (``core.fast``): many, cheap ones; begins without the columns that have just entered.
``"auto"``
    The fixed point for a fit that ends early, of more than ``COLUMNS`` candidates, of several targets or with a prior
    other than the flat one, which actions do not know; for another one that converges both, and the better.

**Auto.** The two end in different optima: actions are far behind where the kernel is wide, for they take columns that
the next ones make superfluous, and end where no single change gains; the fixed point prunes in one go what it should
have kept, and never takes anything back. Each leaves the other's optimum by itself. So from where the fixed point ends,
actions over all candidates and the fixed point of what is active take turns (``improve``), until a turn gains less than
``TURN`` × tol·N nats. Then a fit grows from nothing by actions alone, whose optimum is at times the better one and
has few columns then. Where it has many it is dear, and never was the better one: beyond ``SHARE`` of the cost of the
fixed point (counted multiplications, so that the clock decides nothing) it goes on only if it is within ``NEAR``·N nats
of the best so far, and up to ``MOST`` times that cost. The better of the ends is taken, so that the evidence is never
below the fixed point's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from partirvm.core.fast import grow
from partirvm.core.priors import FLAT
from partirvm.core.termination import Termination
from partirvm.core.updates import HyperState, StepInfo, StopRule, maximise

SOLVERS = ("auto", "fixed-point", "fast")

LOOSE = 10.0
"""Multiple of ``tol`` to which turns converge, and that an action has to gain; the last turn converges to ``tol``."""

TURN = 100.0
"""Multiple of ``tol``·N nats that a turn has to gain for another to follow."""

REFRESHES = 4
"""Refreshes of a turn: some 32 + M/2 actions, after which all α together do better."""

SHARE, MOST = 0.5, 4.0
"""Multiples of the fixed point's cost that growth from nothing may take: first, and where it looks well."""

FREE = 5e9
"""Multiplications, a fraction of a second, that growth may take in any case: small fits are worth both."""

NEAR = 0.02
"""Nats per row below the best within which growth looks well."""

COLUMNS = 1000
"""Most candidates of a fit that goes both ways: the demo's last one, of 1,610, took 80 s more for it, of 27 in all."""

Watch = Callable[[StepInfo], None]


def solve(
    state: HyperState, rule: StopRule, solver: str = "fixed-point", on_step: Watch = lambda info: None
) -> tuple[HyperState, Termination]:
    """A dense fit: from ``state`` until the rule ends it. ``on_step`` hears of each step, and may raise to leave."""
    if solver == "fast":
        return grow(state, rule, on_step)
    alone = isinstance(state.beta, np.ndarray) or state.prior != FLAT
    if solver == "fixed-point" or rule.vectors is not None or alone or state.n_columns > COLUMNS:
        return maximise(state, rule, on_step)
    return _better(state, rule, on_step)


def _better(state: HyperState, rule: StopRule, on_step: Watch) -> tuple[HyperState, Termination]:
    """The best of the fixed point, of that improved, and of what grows from nothing, improved."""
    cost = state.n_columns**3

    def counted(info: StepInfo) -> None:
        nonlocal cost
        cost += (info.n_vectors + 1) ** 3
        on_step(info)

    found = maximise(state, rule, counted)
    if found[1] is not Termination.CONVERGED:
        return found
    ends = [found, improve(found[0], state, rule, on_step)]
    nothing = replace(state, iteration=0, entered=np.ones(state.n_columns, bool))
    free = replace(rule, guard=False)
    grown = grow(nothing, free, on_step, most_cost=max(SHARE * cost, FREE))
    near = grown[0].log_evidence > max(end[0].log_evidence for end in ends) - NEAR * state.n
    if near and grown[1] is not Termination.CONVERGED:
        grown = grow(_among(state, grown[0]), free, on_step, most_cost=MOST * cost)
    best, reason = max([*ends, grown], key=lambda end: end[0].log_evidence)
    return best, Termination.CANCELLED if rule.guard and best.posterior.cancelled else reason


def improve(
    fit: HyperState, whole: HyperState, rule: StopRule, on_step: Watch = lambda info: None
) -> tuple[HyperState, Termination]:
    """Turns of actions and of the fixed point from ``fit``, whose columns are some of those of ``whole``; converged.

    The evidence never ends below that of ``fit``. ``rule`` allows its iterations anew to all turns, and to the last.
    """
    most = fit.iteration + rule.max_iterations
    loose = StopRule(LOOSE * rule.tol, most, guard=False, thin=True)
    gain = np.inf
    while gain > TURN * rule.tol * whole.n and fit.iteration < most:
        grown, _ = grow(_among(whole, fit), replace(loose, max_iterations=fit.iteration + REFRESHES), on_step)
        turned, _ = maximise(grown, loose, on_step)
        gain = turned.log_evidence - fit.log_evidence
        fit = turned if gain > 0 else replace(fit, iteration=turned.iteration)
    final = replace(rule, max_iterations=fit.iteration + rule.max_iterations, guard=False)
    last, reason = maximise(fit, final, on_step)
    return (last, reason) if last.log_evidence >= fit.log_evidence else (fit, reason)


def _among(whole: HyperState, fit: HyperState) -> HyperState:
    """All candidates of ``whole``, those of ``fit`` as it has them, the others as if they had just entered."""
    order = np.argsort(whole.labels)
    there = order[np.searchsorted(whole.labels, fit.labels, sorter=order)]
    alpha, entered = whole.alpha.copy(), np.ones(whole.n_columns, bool)
    alpha[there], entered[there] = fit.alpha, False
    return replace(whole, alpha=alpha, beta=fit.beta, floored=fit.floored, iteration=fit.iteration, entered=entered)
