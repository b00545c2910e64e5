"""``basic``: one RVM in which every row is a candidate. For small N, and as the reference for the others."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from partirvm.core.residuals import Scores
from partirvm.core.termination import Termination
from partirvm.core.updates import HyperState
from partirvm.kernels.design import Design
from partirvm.strategies.fitting import final_rule, join, nothing, rebase, save, score, settle, survivors, unguarded
from partirvm.strategies.instructions import (
    Event,
    Finish,
    Gather,
    Gathered,
    GramPass,
    Instruction,
    Options,
    Passed,
    Problem,
    ResidualPass,
    Save,
    Saved,
    Solve,
    Solved,
    Stop,
)
from partirvm.strategies.selection import distinct


@dataclass(frozen=True)
class BasicState:
    """Columns and fit so far; ``reason`` is set once the dense fit is over, ``settled`` once its noise is measured."""

    problem: Problem
    options: Options
    design: Design
    fit: HyperState
    candidates: int = 0
    duplicates: int = 0
    rebases: int = 0
    reason: Termination | None = None
    settled: bool = False


class Basic:
    """Gather all rows, one gram pass, one dense fit to convergence."""

    name = "basic"

    def start(self, problem: Problem, options: Options) -> tuple[BasicState, tuple[Instruction, ...]]:
        """Ask for all rows; a constant target needs none."""
        state = BasicState(problem, options, problem.empty, nothing(problem))
        if not problem.power:
            state = replace(state, reason=Termination.CONSTANT, settled=True)
            return state, (_save(state, None),)
        return state, (Gather(np.arange(problem.n_rows)),)

    def next(self, state: BasicState, event: Event) -> tuple[BasicState, tuple[Instruction, ...]]:
        """Gathered → gram pass → solve (→ residual pass → solve) → settle → save → finish."""
        problem, options = state.problem, state.options
        match event:
            case Stop(reason):
                return state, (Finish(reason),)
            case Gathered(points):
                rows = distinct(points, problem.empty.centres)
                new = problem.empty.with_centres(points[rows], rows, bias=problem.bias)
                state = replace(state, design=new, candidates=len(rows), duplicates=len(points) - len(rows))
                return state, (GramPass(problem.empty, new, state.fit.statistics.offset),)
            case Passed(statistic) if state.reason is None and not state.rebases:
                design, fit = join(state.fit, problem.empty, state.design, statistic)
                return replace(state, design=design, fit=fit), (Solve(fit, final_rule(options), state.candidates),)
            case Solved(fit, reason):
                state = replace(state, design=survivors(state.design, fit), fit=fit)
                if reason is Termination.CANCELLED:
                    state = replace(state, rebases=state.rebases + 1)
                else:
                    state = replace(state, reason=reason)
                return state, (ResidualPass(state.design, fit.posterior.mean[:, None]),)
            case Passed(statistic) if state.reason is None:
                fit = rebase(state.fit, statistic)
                rule = unguarded(final_rule(options), state.rebases)
                return replace(state, fit=fit), (Solve(fit, rule, state.candidates),)
            case Passed(statistic) if not state.settled:
                state = replace(state, fit=settle(state.fit, statistic), settled=True)
                return state, (score(state.design, state.fit) if problem.held_out else _save(state, None),)
            case Passed(statistic):
                return state, (_save(state, statistic),)
            case Saved():
                assert state.reason is not None
                return state, (Finish(state.reason),)
        raise RuntimeError(f"the basic strategy cannot take {event!r} now")


def _save(state: BasicState, scores: Scores | None) -> Save:
    assert state.reason is not None
    return save(
        state.problem,
        state.design,
        state.fit,
        kind="final",
        number=1,
        candidates=state.candidates,
        reason=state.reason,
        selection="all",
        duplicates=state.duplicates,
        scores=scores,
    )
