"""``working-set``: kept vectors + the P unused rows chosen by ``selection``, round after round.

A round is: choose rows → one gram pass for the new columns only → a dense fit that ends when the vectors fall to
``stop_fraction`` of its candidates, or when the evidence is flat → save. The model is usable after every round; only
the last fit converges, and its noise comes from a residual pass.

The run ends when two rounds in turn left the evidence flat, the second of them with random candidates; when every row
has been a candidate; when the held-out error stopped falling (the best round's model is restored); or at a limit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from partirvm.core.residuals import Scores
from partirvm.core.termination import Termination
from partirvm.core.updates import HyperState
from partirvm.kernels.design import Design
from partirvm.strategies.fitting import (
    final_rule,
    intermediate_rule,
    join,
    nothing,
    rebase,
    save,
    score,
    settle,
    survivors,
    unguarded,
)
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
    Solve,
    Solved,
    Stop,
)
from partirvm.strategies.selection import POOL, SPREAD, distinct, gain_ranking, random_rows

Int = NDArray[np.int64]
Answer = tuple["WorkingSetState", tuple[Instruction, ...]]

FLAT = 1000.0
"""A round is flat when the evidence rises by less than this × tol nats per row."""

FLAT_ROUNDS = 2
"""Flat rounds in turn that end the run."""

PATIENCE = 2
"""Rounds without a better held-out error that end the run."""

BETTER = 1e-3
"""Relative fall of the held-out error that counts as better."""


class Phase(Enum):
    """What the machine waits for."""

    ROWS = "inputs of the chosen rows"
    POOL = "inputs of the pool"
    GAINS = "cross products of the pool"
    ERRORS = "rows of largest error"
    GRAM = "the gram pass"
    FIT = "the dense fit"
    REBASE = "the residual target"
    SETTLE = "the last residual"
    SCORE = "the held-out error"
    SAVED = "the model on disk"
    OVER = "nothing"


@dataclass(frozen=True)
class Best:
    """The round with the lowest held-out error so far."""

    round: int
    rmse: float
    design: Design
    fit: HyperState


@dataclass(frozen=True)
class WorkingSetState:
    """The checkpoint: where the machine stands, the columns and fit so far, the rows that have been candidates.

    ``chosen`` and ``pool`` are the rows on their way in and their columns; ``patient`` lets the next fit converge, as
    only then its evidence tells whether rounds are flat; ``concluding`` is the reason to end once the last fit is over.
    """

    problem: Problem
    options: Options
    design: Design
    fit: HyperState
    used: Int
    phase: Phase = Phase.ROWS
    round: int = 0
    selection: str = "random"
    chosen: Int | None = None
    pool: Design | None = None
    candidates: int = 0
    duplicates: int = 0
    rebases: int = 0
    reason: Termination = Termination.CONVERGED
    evidence: float = -np.inf
    flat: int = 0
    patient: bool = False
    scores: Scores | None = None
    best: Best | None = None
    concluding: Termination | None = None
    settled: bool = False


class WorkingSet:
    """The working-set strategy of Ben-Shimon & Shmilovici (2006, §3.4) with the likelihood of all rows."""

    name = "working-set"

    def start(self, problem: Problem, options: Options) -> Answer:
        """First round, with random candidates; a constant target needs none."""
        state = WorkingSetState(problem, options, problem.empty, nothing(problem), np.zeros(0, np.int64))
        if not problem.power:
            return _save(replace(state, concluding=Termination.CONSTANT, settled=True))
        return _next_round(state)

    def next(self, state: WorkingSetState, event: Event) -> Answer:
        """One event onwards."""
        if isinstance(event, Stop):
            return replace(state, phase=Phase.OVER), (Finish(event.reason),)
        return _HANDLERS[state.phase](state, event)


def _next_round(state: WorkingSetState) -> Answer:
    """Begin a round, or conclude when there is no room for one."""
    problem, options = state.problem, state.options
    room, limit = _room(state)
    if limit is not None:
        return _conclude(state, limit)
    first_or_check = state.round == 0 or state.flat == FLAT_ROUNDS - 1
    selection = "random" if first_or_check else options.selection
    state = replace(state, round=state.round + 1, selection=selection, rebases=0)
    if selection == "error":
        mean = state.fit.posterior.mean[:, None]
        sample = SPREAD * room if problem.shuffled else 0
        look = ResidualPass(state.design, mean, room, state.used, sample=sample, draw=state.round)
        return replace(state, phase=Phase.ERRORS), (look,)
    count = room * POOL if selection == "gain" else room
    rows = random_rows(
        problem.n_rows, state.used, count, seed=options.seed, draw=state.round - 1, shuffled=problem.shuffled
    )
    phase = Phase.POOL if selection == "gain" else Phase.ROWS
    return replace(state, phase=phase, chosen=rows, candidates=room), (Gather(rows),)


def _room(state: WorkingSetState) -> tuple[int, Termination | None]:
    """How many candidates may join the next round; if none, the reason to conclude."""
    options = state.options
    unused = state.problem.n_rows - len(state.used)
    vectors = np.inf if options.max_vectors is None else options.max_vectors - state.fit.n_vectors
    columns = np.inf if options.max_columns is None else options.max_columns - state.fit.statistics.n_columns - 1
    room = int(min(options.partition_size, unused, vectors, columns))
    if options.max_rounds is not None and state.round >= options.max_rounds:
        return 0, Termination.ROUNDS
    if unused == 0:
        return 0, Termination.EXHAUSTED
    if vectors <= 0:
        return 0, Termination.VECTORS
    if columns < min(options.partition_size, unused, vectors):
        return 0, Termination.MEMORY
    return room, None


def _on_errors(state: WorkingSetState, event: Event) -> Answer:
    assert isinstance(event, Passed)
    largest = event.statistic.largest.ranked()
    return _admit(state, largest.rows, largest.points)


def _on_rows(state: WorkingSetState, event: Event) -> Answer:
    assert isinstance(event, Gathered)
    assert state.chosen is not None
    return _admit(state, state.chosen, event.points)


def _on_pool(state: WorkingSetState, event: Event) -> Answer:
    assert isinstance(event, Gathered)
    assert state.chosen is not None
    pool = state.design.with_centres(event.points, state.chosen)
    pass_ = GramPass(state.design, pool, state.fit.statistics.offset, diagonal=True)
    return replace(state, phase=Phase.GAINS, pool=pool), (pass_,)


def _on_gains(state: WorkingSetState, event: Event) -> Answer:
    assert isinstance(event, Passed)
    assert state.pool is not None
    best = gain_ranking(state.fit, event.statistic)[: state.candidates]
    pool = state.pool
    return _admit(replace(state, pool=None), pool.labels[best], pool.centres[best])


def _admit(state: WorkingSetState, rows: Int, points: NDArray[np.float64]) -> Answer:
    """Make the chosen rows candidates: one gram pass for their columns."""
    problem = state.problem
    used = np.union1d(state.used, rows)
    fresh = distinct(points, state.design.centres)
    bias = problem.bias and not state.design.bias
    state = replace(
        state,
        used=used,
        chosen=None,
        candidates=state.fit.n_vectors + len(fresh),
        duplicates=state.duplicates + len(rows) - len(fresh),
    )
    if not len(fresh) and not bias:
        return _judge(replace(state, reason=Termination.CONVERGED))
    new = state.design.with_centres(points[fresh], rows[fresh], bias=bias)
    return replace(state, phase=Phase.GRAM, pool=new), (GramPass(state.design, new, state.fit.statistics.offset),)


def _on_gram(state: WorkingSetState, event: Event) -> Answer:
    assert isinstance(event, Passed)
    assert state.pool is not None
    design, fit = join(state.fit, state.design, state.pool, event.statistic)
    state = replace(state, design=design, fit=fit, pool=None)
    last = _room(state)[1] in {Termination.ROUNDS, Termination.EXHAUSTED}
    if last:
        state = replace(state, concluding=_room(state)[1])
    return _solve(state)


def _solve(state: WorkingSetState) -> Answer:
    options = state.options
    patient = state.concluding or state.patient
    rule = final_rule(options) if patient else intermediate_rule(options, state.candidates)
    solve = Solve(state.fit, unguarded(rule, state.rebases), state.candidates)
    return replace(state, phase=Phase.FIT), (solve,)


def _on_fit(state: WorkingSetState, event: Event) -> Answer:
    assert isinstance(event, Solved)
    fit = event.fit
    state = replace(state, design=survivors(state.design, fit), fit=fit, reason=event.reason)
    residual = ResidualPass(state.design, fit.posterior.mean[:, None])
    if event.reason is Termination.CANCELLED:
        return replace(state, phase=Phase.REBASE, rebases=state.rebases + 1), (residual,)
    if state.concluding:
        return replace(state, phase=Phase.SETTLE), (residual,)
    return _score(state)


def _on_rebase(state: WorkingSetState, event: Event) -> Answer:
    assert isinstance(event, Passed)
    return _solve(replace(state, fit=rebase(state.fit, event.statistic)))


def _on_settle(state: WorkingSetState, event: Event) -> Answer:
    assert isinstance(event, Passed)
    return _score(replace(state, fit=settle(state.fit, event.statistic), settled=True))


def _score(state: WorkingSetState) -> Answer:
    if not state.problem.held_out:
        return _save(state)
    return replace(state, phase=Phase.SCORE), (score(state.design, state.fit),)


def _on_score(state: WorkingSetState, event: Event) -> Answer:
    """Remember the best round; a last fit that is worse than it gives way to it."""
    assert isinstance(event, Passed)
    scores, best = event.statistic, state.best
    if state.settled and best is not None and scores.rmse > best.rmse * (1 + BETTER) and best.round != state.round:
        return _restore(state, best)
    if best is None or scores.rmse < best.rmse * (1 - BETTER):
        best = Best(state.round, scores.rmse, state.design, state.fit)
    return _save(replace(state, scores=scores, best=best))


def _restore(state: WorkingSetState, best: Best) -> Answer:
    """End with the best round's model as it was; a fit that went on from there could be worse again."""
    state = replace(state, design=best.design, fit=best.fit, round=best.round, settled=False, phase=Phase.SETTLE)
    return state, (ResidualPass(state.design, state.fit.posterior.mean[:, None]),)


def _save(state: WorkingSetState) -> Answer:
    instruction: Save = save(
        state.problem,
        state.design,
        state.fit,
        kind="final" if state.settled else "round",
        number=state.round,
        candidates=state.candidates,
        reason=state.reason,
        selection=state.selection,
        duplicates=state.duplicates,
        scores=state.scores,
    )
    return replace(state, phase=Phase.SAVED), (instruction,)


def _on_saved(state: WorkingSetState, event: Event) -> Answer:
    if state.settled:
        assert state.concluding is not None
        return replace(state, phase=Phase.OVER), (Finish(state.concluding),)
    return _judge(state)


def _judge(state: WorkingSetState) -> Answer:
    """After a round: conclude if nothing rises any more, else go on."""
    evidence = state.fit.posterior.log_evidence
    level = evidence - state.evidence < FLAT * state.options.tol * state.problem.n_rows
    flat = level and state.reason is Termination.CONVERGED
    state = replace(state, evidence=evidence, flat=state.flat + 1 if flat else 0, patient=level)
    if state.flat >= FLAT_ROUNDS:
        return _conclude(state, Termination.CONVERGED)
    if state.best is not None and state.round - state.best.round >= PATIENCE:
        best = state.best
        return _restore(replace(state, concluding=Termination.VALIDATION), best)
    return _next_round(state)


def _conclude(state: WorkingSetState, reason: Termination) -> Answer:
    """The last fit: converge on the statistics at hand, then measure the residual."""
    state = replace(state, concluding=reason, rebases=0, candidates=state.fit.n_vectors)
    return _solve(replace(state, fit=replace(state.fit, iteration=0)))


_HANDLERS: dict[Phase, Callable[[WorkingSetState, Event], Answer]] = {
    Phase.ROWS: _on_rows,
    Phase.POOL: _on_pool,
    Phase.GAINS: _on_gains,
    Phase.ERRORS: _on_errors,
    Phase.GRAM: _on_gram,
    Phase.FIT: _on_fit,
    Phase.REBASE: _on_rebase,
    Phase.SETTLE: _on_settle,
    Phase.SCORE: _on_score,
    Phase.SAVED: _on_saved,
}
