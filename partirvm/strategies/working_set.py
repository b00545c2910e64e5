"""``working-set``: kept vectors + the P unused rows chosen by ``selection``, round after round.

The run ends when two rounds in turn left the evidence flat, the second of them with random candidates; when every row
has been a candidate; when the held-out error stopped falling (the best round's model is restored); or at a limit. A
kernel that was learned is learned again as the vectors grow (``strategies.relearning``).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from partirvm.core.termination import Termination
from partirvm.core.updates import StopRule
from partirvm.kernels.design import Design
from partirvm.likelihoods.base import Fit
from partirvm.planning.schedule import Chosen, Schedule
from partirvm.strategies.fit_rows import FIT_ROWS, noise_rows
from partirvm.strategies.instructions import Event, Gather, Gathered, Passed
from partirvm.strategies.problem import Options, Problem
from partirvm.strategies.relearning import Relearning, with_kernel
from partirvm.strategies.rounds import Answer, Phase, RoundsState
from partirvm.strategies.rules import final_rule
from partirvm.strategies.selection import POOL, RANDOM, SELECTIONS, SPREAD, random_rows, stratified_rows

Float = NDArray[np.float64]
Int = NDArray[np.int64]
NONE = np.zeros(0, np.int64)

FLAT = 1000.0
"""A round is flat when its evidence is less than this × tol nats per row above the highest so far."""

FLAT_ROUNDS = 2
"""Flat rounds in turn that end the run."""

PATIENCE = 2
"""Rounds without a better held-out error that end the run."""

EVEN = 0.5
"""Part of random candidates that is dealt to classes evenly; the rest in proportion to their rows."""

FLOOR = 0.3
"""A pool is drawn with chances in proportion to 1 − p of a row's class + this.

At 0 it is full of mislabelled rows where there are any, far above it is a random one; between the two the evidence was
the highest, and no log loss far from the lowest.
"""

BETTER = 1e-3
"""Relative fall of the held-out error that counts as better."""


@dataclass(frozen=True)
class Best:
    """The round with the lowest held-out error so far, the rows that its fit saw (``fit_rows``), and its candidates.

    The error of a fit of classes is its log loss: the fraction of wrong classes can be level while that rises.
    """

    round: int
    error: float
    design: Design
    fit: Fit
    seen: str
    candidates: int
    reason: Termination


@dataclass(frozen=True)
class WorkingSetState(RoundsState):
    """The checkpoint, with the rows that have been candidates (increasing).

    ``evidence`` is the highest so far: rounds end in optima a few nats apart, and a rise from a low one is none.
    ``patient`` lets the next fit converge, as only then its evidence tells whether rounds are flat.
    """

    used: Int = field(default_factory=lambda: NONE)
    evidence: float = -np.inf
    flat: int = 0
    patient: bool = False
    best: Best | None = None


class WorkingSet(Relearning[WorkingSetState]):
    """The working-set strategy of Ben-Shimon & Shmilovici (2006, §3.4), with the likelihood of all rows by default."""

    name = "working-set"
    schedule: ClassVar[Schedule] = Chosen(name)
    exhausted = Termination.EXHAUSTED
    divisible = True

    def first(self, problem: Problem, options: Options) -> WorkingSetState:
        """No row has been a candidate."""
        return WorkingSetState(problem, options, problem.empty, problem.likelihood.start(problem))

    def _unused(self, state: WorkingSetState) -> int:
        return int(state.problem.n_rows - len(state.used))

    def _propose(self, state: WorkingSetState, room: int) -> Answer[WorkingSetState]:
        problem, options = state.problem, state.options
        first_or_check = (state.round == 1 and not state.seen) or state.flat == FLAT_ROUNDS - 1
        selection = RANDOM if first_or_check else SELECTIONS[options.selection]
        state = replace(state, selection=selection.name)
        likelihood, pool = problem.likelihood, selection.by_gain
        if selection.by_error or (pool and likelihood.draws_pools):
            rows = _random(state, NONE, SPREAD * room) if problem.shuffled else None
            count, draw = (room * POOL, (options.seed, state.round)) if pool else (room, None)
            look = likelihood.errors(state.design, state.fit, count, state.used, rows, draw=draw, floor=FLOOR)
            return replace(state, phase=Phase.ERRORS, chosen=rows, candidates=room), (look,)
        chosen = _random(state, state.used, room * POOL if pool else room)
        phase = Phase.POOL if pool else Phase.ROWS
        return replace(state, phase=phase, chosen=chosen, candidates=room), (Gather(chosen),)

    def _on_errors(self, state: WorkingSetState, event: Passed) -> Answer[WorkingSetState]:
        """Where no row is left among those looked at they are used up: candidates once, or without weight."""
        largest = state.problem.likelihood.largest(event.statistic).ranked()
        if not len(largest.rows):
            looked = np.arange(state.problem.n_rows) if state.chosen is None else state.chosen
            state = replace(state, used=np.union1d(state.used, looked))
        chosen = state.design.with_centres(largest.points, largest.rows)
        if len(largest.rows) and SELECTIONS[state.selection].by_gain:
            return self._try(state, chosen)
        return self._admit(state, chosen)

    def _on_grown(self, state: WorkingSetState, event: Event) -> Answer[WorkingSetState]:
        """Evidence and held-out error begin anew."""
        state = replace(state, evidence=-np.inf, flat=0, patient=False, best=None)
        return super()._on_grown(state, event)

    def _on_rows(self, state: WorkingSetState, event: Gathered) -> Answer[WorkingSetState]:
        return super()._on_rows(_without_absent(state, event), event)

    def _on_pool(self, state: WorkingSetState, event: Gathered) -> Answer[WorkingSetState]:
        state = _without_absent(state, event)
        assert state.chosen is not None
        there = slice(None) if event.present is None else event.present
        return self._try(state, state.design.with_centres(event.points[there], state.chosen[there]))

    def _try(self, state: WorkingSetState, pool: Design) -> Answer[WorkingSetState]:
        """Ask what the columns of a pool would bring."""
        problem = state.problem
        rows = noise_rows(problem, state.options, state.seen)
        look = problem.likelihood.gain_pass(state.design, state.fit, pool, rows)
        return replace(state, phase=Phase.GAINS, incoming=pool), (look,)

    def _on_gains(self, state: WorkingSetState, event: Passed) -> Answer[WorkingSetState]:
        assert state.incoming is not None
        gains = state.problem.likelihood.gains(state.fit, event.statistic)
        count = state.candidates * state.problem.n_kernels
        return self._admit(state, state.incoming.take(np.argsort(-gains, kind="stable")[:count]))

    def _admit(self, state: WorkingSetState, chosen: Design) -> Answer[WorkingSetState]:
        return super()._admit(replace(state, used=np.union1d(state.used, chosen.rows)), chosen)

    def _rule(self, state: WorkingSetState) -> StopRule:
        if state.patient and not state.concluding:
            return replace(final_rule(state.options), thin=False)
        return super()._rule(state)

    def _on_score(self, state: WorkingSetState, event: Passed) -> Answer[WorkingSetState]:
        """Remember the best round; a last fit that is worse than it gives way to it."""
        scores, best = event.statistic, state.best
        error = scores.loss
        if state.settled and best is not None and error > best.error * (1 + BETTER) and best.round != state.round:
            return self._restore(state, best)
        if best is None or error < best.error * (1 - BETTER):
            best = Best(state.round, error, state.design, state.fit, state.seen, state.candidates, state.reason)
        return self._save(replace(state, scores=scores, best=best))

    def _restore(self, state: WorkingSetState, best: Best) -> Answer[WorkingSetState]:
        """End with the best round's model as it was; a fit that went on from there could be worse again.

        Only a fit that has not seen the rows of the last likelihood does go on.
        """
        state = replace(
            state,
            problem=with_kernel(state.problem, best.design.kernel),
            design=best.design,
            fit=best.fit,
            seen=best.seen,
            round=best.round,
            candidates=best.candidates,
            reason=best.reason,
            settled=False,
        )
        if best.seen == state.options.last_rows:
            return self._settle(state)
        assert state.concluding is not None
        return self._conclude(state, state.concluding)

    def _judge(self, state: WorkingSetState) -> Answer[WorkingSetState]:
        """After a round: conclude if nothing rises any more, else go on. Other rows' evidence cannot be compared."""
        fit, tol = state.fit, state.options.tol
        if state.seen != state.options.fit_rows:
            # there is no fit yet, as all rows chosen so far have no weight, or one over other rows than those to come
            return self._next_round(state)
        evidence = fit.log_evidence if FIT_ROWS[state.seen].shared else np.inf
        level = evidence - state.evidence < FLAT * tol * fit.n
        flat = level and state.reason is Termination.CONVERGED
        highest = max(evidence, state.evidence)
        state = replace(state, evidence=highest, flat=state.flat + 1 if flat else 0, patient=level)
        if state.flat >= FLAT_ROUNDS:
            return self._conclude(state, Termination.CONVERGED)
        if state.best is not None and state.round - state.best.round >= PATIENCE:
            return self._restore(replace(state, concluding=Termination.VALIDATION), state.best)
        return self._next_round(state)


def _random(state: WorkingSetState, used: Int, count: int) -> Int:
    """Random rows outside ``used``, others in each round; rare classes have their part of them."""
    problem = state.problem
    if problem.codes is not None:
        return stratified_rows(
            problem.codes,
            problem.n_classes,
            used,
            count,
            seed=state.options.seed,
            draw=state.round - 1,
            shuffled=problem.shuffled,
            even=EVEN,
        )
    return random_rows(
        problem.n_rows, used, count, seed=state.options.seed, draw=state.round - 1, shuffled=problem.shuffled
    )


def _without_absent(state: WorkingSetState, event: Gathered) -> WorkingSetState:
    """Rows of no weight are used up: they are not to be drawn again."""
    if event.present is None or event.present.all():
        return state
    assert state.chosen is not None
    return replace(state, used=np.union1d(state.used, state.chosen[~event.present]))
