"""``working-set``: each round fits the kept vectors and P unused rows that ``selection`` chooses (P: partition size).

The run ends when the evidence was flat in two consecutive rounds, the second of them with random candidates. It also
ends when every row has been a candidate, or at a limit. If the held-out error stops falling, the run ends with the
model of the best round. A kernel that was learned is learned again as the number of vectors grows
(``strategies.relearning``).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from partirvm.core.sampling import Purpose, draw_key
from partirvm.core.termination import StopRule, Termination
from partirvm.kernels.design import Design
from partirvm.likelihoods.base import Fit
from partirvm.planning.schedule import Schedule
from partirvm.strategies.effort import LEAST_WORK, SLOW_ROUNDS, is_slow, work_before_rounds, work_of_round
from partirvm.strategies.fit_rows import enlarged, grows, intermediate_rows, posterior_rows
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
"""A round is flat if its evidence exceeds the highest so far by less than this × ``tol`` nats per row."""

FLAT_ROUNDS = 2
"""Number of consecutive flat rounds that ends the run."""

PATIENCE = 2
"""Number of consecutive rounds without a better held-out error that ends the run."""

EVEN = 0.5
"""Fraction of random candidates divided equally among classes; the rest is in proportion to the class sizes."""

FLOOR = 0.3
"""Classification pools are drawn at random: the chance of a row is proportional to 1 − p of its class + this constant.

At 0, mislabelled rows fill the pool; at large values, the pool is a uniform sample. In experiments, values between gave
the highest evidence, and a log loss close to the lowest.
"""

BETTER = 1e-3
"""Minimum relative decrease of the held-out error of a better round."""


@dataclass(frozen=True)
class Best:
    """The round with the lowest held-out error so far.

    ``seen`` is the value of ``fit_rows`` for the fit, ``candidates`` the number of its candidates. In classification
    the error is the log loss, which can rise while the fraction of wrongly classified rows is constant.
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
    """The checkpoint of a working-set run.

    ``used`` are the rows that have been candidates (increasing). ``evidence`` is the highest evidence so far: rounds
    end in optima that differ by a few nats, so that an increase over a low optimum is no progress. ``flat`` counts
    consecutive flat rounds. ``patient`` makes the next fit converge, since flatness is judged by converged evidence.
    ``kept`` is the number of vectors before the last candidates joined, ``work`` the number of multiplications of
    kernel learning and all rounds, and ``slow`` counts consecutive rounds of little gain for their work
    (``strategies.effort``).
    """

    used: Int = field(default_factory=lambda: NONE)
    evidence: float = -np.inf
    flat: int = 0
    patient: bool = False
    best: Best | None = None
    kept: int = 0
    work: float = LEAST_WORK
    slow: int = 0


class WorkingSetRounds(Relearning[WorkingSetState]):
    """The working-set strategy of Ben-Shimon & Shmilovici (2006, §2.3); by default fits use all rows."""

    name = "working-set"
    schedule: ClassVar[Schedule] = Schedule(name, selects=True)
    exhausted = Termination.EXHAUSTED
    divisible = True

    def first(self, problem: Problem, options: Options) -> WorkingSetState:
        """Return the state before the first round."""
        work = work_before_rounds(problem.n_rows, options.centres)
        return WorkingSetState(problem, options, problem.empty, problem.likelihood.start(problem), work=work)

    def _unused(self, state: WorkingSetState) -> int:
        return int(state.problem.n_rows - len(state.used))

    def _propose(self, state: WorkingSetState, room: int) -> Answer[WorkingSetState]:
        problem, options = state.problem, state.options
        first_or_check = (state.round == 1 and not state.seen) or state.flat == FLAT_ROUNDS - 1
        selection = RANDOM if first_or_check else SELECTIONS[options.selection]
        state = replace(state, selection=selection.name)
        likelihood, pool = problem.likelihood, selection.by_gain
        if selection.by_error or (pool and likelihood.draws_pools):
            some = problem.shuffled and not selection.everywhere
            rows = _random(state, NONE, SPREAD * room) if some else None
            count, draw = (room * POOL, draw_key(options.seed, Purpose.POOL, state.round)) if pool else (room, None)
            request = likelihood.errors(state.design, state.fit, count, state.used, rows, draw=draw, floor=FLOOR)
            return replace(state, phase=Phase.ERRORS, chosen=rows, candidates=room), (request,)
        chosen = _random(state, state.used, room * POOL if pool else room)
        phase = Phase.POOL if pool else Phase.ROWS
        return replace(state, phase=phase, chosen=chosen, candidates=room), (Gather(chosen),)

    def _on_errors(self, state: WorkingSetState, event: Passed) -> Answer[WorkingSetState]:
        """Make the rows of largest error candidates, or a pool; if there are none, mark all examined rows as used."""
        largest = event.statistic.largest
        if not len(largest.rows):
            examined = np.arange(state.problem.n_rows) if state.chosen is None else state.chosen
            state = replace(state, used=np.union1d(state.used, examined))
        chosen = state.design.with_centres(largest.values, largest.rows)
        if len(largest.rows) and SELECTIONS[state.selection].by_gain:
            return self._try(state, chosen)
        return self._admit(state, chosen)

    def _on_grown(self, state: WorkingSetState, event: Event) -> Answer[WorkingSetState]:
        """Reset the highest evidence and the best round after an append."""
        work = work_before_rounds(state.problem.n_rows, 0)
        state = replace(state, evidence=-np.inf, flat=0, patient=False, best=None, work=work, slow=0)
        return super()._on_grown(state, event)

    def _on_rows(self, state: WorkingSetState, event: Gathered) -> Answer[WorkingSetState]:
        return super()._on_rows(_without_absent(state, event), event)

    def _on_pool(self, state: WorkingSetState, event: Gathered) -> Answer[WorkingSetState]:
        state = _without_absent(state, event)
        assert state.chosen is not None
        present = slice(None) if event.present is None else event.present
        return self._try(state, state.design.with_centres(event.points[present], state.chosen[present]))

    def _try(self, state: WorkingSetState, pool: Design) -> Answer[WorkingSetState]:
        """Request the statistics that give the evidence gain of each column of a pool."""
        problem = state.problem
        rows = posterior_rows(problem, state.options, state.seen)
        request = problem.likelihood.gain_pass(state.design, state.fit, pool, rows)
        return replace(state, phase=Phase.GAINS, incoming=pool), (request,)

    def _on_gains(self, state: WorkingSetState, event: Passed) -> Answer[WorkingSetState]:
        assert state.incoming is not None
        gains = state.fit.gains(event.statistic)
        count = state.candidates * state.problem.n_kernels
        return self._admit(state, state.incoming.take(np.argsort(-gains, kind="stable")[:count]))

    def _admit(self, state: WorkingSetState, chosen: Design) -> Answer[WorkingSetState]:
        used = np.union1d(state.used, chosen.rows)
        return super()._admit(replace(state, used=used, kept=state.fit.n_vectors), chosen)

    def _rule(self, state: WorkingSetState) -> StopRule:
        if state.patient and not state.concluding:
            return replace(final_rule(state.options), thin=False)
        return super()._rule(state)

    def _on_score(self, state: WorkingSetState, event: Passed) -> Answer[WorkingSetState]:
        """Store the best round, and restore it if the last fit is worse."""
        scores, best = event.statistic, state.best
        error = scores.loss
        if state.settled and best is not None and error > best.error * (1 + BETTER) and best.round != state.round:
            return self._restore(state, best)
        if best is None or error < best.error * (1 - BETTER):
            best = Best(state.round, error, state.design, state.fit, state.seen, state.candidates, state.reason)
        return self._save(replace(state, scores=scores, best=best))

    def _restore(self, state: WorkingSetState, best: Best) -> Answer[WorkingSetState]:
        """End with the model of the best round, unchanged: a further fit could be worse again.

        If the best round used a sample, a last fit over all rows follows.
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
        # a sample may have grown since the best round: its statistics are those of another sample
        return self._conclude(replace(state, seen="" if grows(best.seen) else best.seen), state.concluding)

    def _judge(self, state: WorkingSetState) -> Answer[WorkingSetState]:
        """End the run if evidence or held-out error no longer improve; otherwise begin the next round."""
        fit, tol = state.fit, state.options.tol
        if state.seen != intermediate_rows(state.problem, state.options):
            # no evidence to compare: all rows so far have weight 0, or the last fit used other rows than the next one
            return self._next_round(state)
        evidence = fit.log_evidence
        level = evidence - state.evidence < FLAT * tol * fit.n
        flat = level and state.reason is Termination.CONVERGED
        state = _counted(state, evidence)
        highest = max(evidence, state.evidence)
        state = replace(state, evidence=highest, flat=state.flat + 1 if flat else 0, patient=level)
        if state.flat >= FLAT_ROUNDS:
            return self._conclude(state, Termination.CONVERGED)
        if state.slow >= SLOW_ROUNDS:
            return self._conclude(state, Termination.EFFORT)
        if state.best is not None and state.round - state.best.round >= PATIENCE:
            return self._restore(replace(state, concluding=Termination.VALIDATION), state.best)
        if grows(state.seen) and (state.slow or state.flat) and self._room(state)[1] is None:
            return self._grow(state, enlarged(2 * state.options.sample_rows, 0, state.problem.n_rows))
        return self._next_round(state)

    def _on_larger_sample(self, state: WorkingSetState, fresh: int) -> WorkingSetState:
        """Compare the next evidence with that of the same fit over the larger sample, if it is known."""
        evidence = state.fit.log_evidence if state.seen else -np.inf
        return replace(state, evidence=evidence, work=state.work + fresh * state.fit.n_columns**2)


def _counted(state: WorkingSetState, evidence: float) -> WorkingSetState:
    """Count the work of a round that ended with this evidence, and whether it was slow."""
    rows, highest = state.fit.n, state.evidence
    gain = (evidence - highest) / rows
    loss = -highest / rows if state.problem.classifies else None
    work = state.work + work_of_round(rows, state.candidates, state.candidates - state.kept)
    if not np.isfinite(highest):  # there is no evidence to compare
        return replace(state, work=work)
    slow = is_slow(state.options.effort, work, state.work, gain, loss)
    return replace(state, work=work, slow=state.slow + 1 if slow else 0)


def _random(state: WorkingSetState, used: Int, count: int) -> Int:
    """Return random rows outside ``used``, different in each round; in classification, from all classes."""
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
    """Return the state with rows of weight 0 marked as used, so that they are not drawn again."""
    if event.present is None or event.present.all():
        return state
    assert state.chosen is not None
    return replace(state, used=np.union1d(state.used, state.chosen[~event.present]))
