"""``working-set``: rounds in which P selected rows become candidates along with the kept vectors.

A growing sample (``fit_rows="growing"``) also doubles when a round gains little: with more rows,
the evidence supports more vectors.

The run ends when the evidence has been flat in two consecutive rounds, the second with random
candidates, when every row has been a candidate, or at a limit. If the held-out error no longer
falls, the run ends with the best round's model.

A round is *slow* if, at its rate, twice the work would raise the evidence by less than
``RoundTraits.least_gain`` nats per row: g nats lower the error by about a fraction g. In a
classification, gains are measured as fractions of the current −log evidence per row. Work is
counted in multiplications rather than time, so that results are reproducible. If the nearest rows
correct the predictions (``residual``), the run also ends when twice the work would lower the
corrected error by less than this fraction.
"""

from collections.abc import Callable
from dataclasses import replace
from math import log2
from typing import ClassVar

import numpy as np

from partirvm.core.sampling import Purpose, draw_key
from partirvm.core.termination import Termination
from partirvm.kernels.design import NONE, Design
from partirvm.planning.cost import Schedule
from partirvm.spec.problem import LEAST_GAIN, Options, Problem
from partirvm.strategies import stages
from partirvm.strategies.fit_rows import (
    GROWING,
    POOL,
    SPREAD,
    drawn_rows,
    enlarged,
    intermediate_rows,
    posterior_rows,
)
from partirvm.strategies.instructions import Steps
from partirvm.strategies.rounds import Rounds, enlarge
from partirvm.strategies.stages import (
    BETTER,
    LEAST_WORK,
    RoundsState,
)
from partirvm.types import LEARNING_ROWS, Int

FLAT = 1000.0
"""A round is flat if its evidence exceeds the highest evidence so far by less than this value ×
``tol`` nats per row."""

FLAT_ROUNDS = 2
"""Number of consecutive flat rounds that end the run."""

SLOW_ROUNDS = 2
"""Number of consecutive slow rounds that end the run."""

PATIENCE = 2
"""Number of rounds without a lower held-out error that end the run."""

HOPEFUL = 3
"""Maximum number of candidates in a regression round, as a multiple of the number that remained
after the last round: late rounds exchange few columns, and with this limit kin40k with 10,000 rows
gains as much in half the time."""

LEAST_SHARE = 3
"""Partition size ÷ the minimum number of candidates of a regression round."""

CHEAP = 200
"""Number of vectors below which rounds are cheap and the number of candidates is not reduced."""

LEAST_TESTED = 50
"""Minimum number of vectors at which the errors after local residuals are measured."""

GROWTH = 1.4
"""Growth of the number of vectors until the next measurement."""

POWER = 2.5
"""Exponent of the number of vectors to which a round's work is roughly proportional."""

EVALUATIONS = 30
"""Typical number of evidence evaluations in kernel learning."""

ITERATIONS = 16
"""Number of iterations over all columns counted for a round's dense fit. The fit takes about 4; if
only these are counted, kin40k runs seven more rounds for 1 % less error."""


class WorkingSetRounds(Rounds):
    """The working-set strategy of Ben-Shimon & Shmilovici (2006, §2.3); by default, fits use all
    rows."""

    schedule: ClassVar[Schedule] = Schedule("working-set", selects=True)
    used_up: ClassVar[Termination] = Termination.EXHAUSTED

    def start(self, problem: Problem, options: Options) -> RoundsState:
        """Return the state before the first round; kernel learning counts as work."""
        learning = float(EVALUATIONS * 3 * min(problem.n_rows, LEARNING_ROWS) * options.centres**2)
        return replace(super().start(problem, options), work=max(learning, LEAST_WORK))

    def next_round(self, state: RoundsState) -> Steps[RoundsState]:
        """Assess the last round, and run the next one, on a larger sample if the last one gained
        little."""
        problem = state.problem
        options = state.options
        # evidence is compared unless all rows so far have weight 0 or the last fit used different
        # rows
        if state.seen == intermediate_rows(problem, options):
            state, reason = judged(state)
            if reason is Termination.VALIDATION:
                return (yield from self.restore(state, reason))
            if reason is not None:
                return (yield from self.conclude(state, reason))
            state, enough = yield from corrected_enough(state)
            if enough:
                return (yield from self.conclude(state, Termination.EFFORT))
            if state.seen == GROWING and (state.slow or state.flat) and self.room(state)[1] is None:
                state = yield from enlarge(
                    state, enlarged(2 * options.sample_rows, 0, problem.n_rows)
                )
        return (yield from super().next_round(state))

    def joining(self, state: RoundsState) -> tuple[int, int]:
        return 1, state.problem.n_rows - len(state.used)

    def choose(self, state: RoundsState, room: int) -> Steps[tuple[RoundsState, Design]]:
        """Choose ``room`` candidates by errors, by gains in a pool, or at random; mark these rows
        and zero-weight rows as used."""
        checks = (state.round == 1 and not state.seen) or state.flat == FLAT_ROUNDS - 1
        if not checks:
            room = _fewer(state, room)
        selection = "random" if checks else state.options.selection
        if selection == "gain" and not state.problem.likelihood.rounds.ranks_gains:
            selection = "error"
        state = replace(state, selection=selection, kept=state.fit.n_vectors)
        state, chosen = yield from SELECTIONS[selection](state, room)
        return _marked(state, chosen.rows), chosen

    def ended(self, state: RoundsState, reason: Termination) -> Steps[RoundsState]:
        """Score a settled fit and save its model, or restore the best round if the fit is worse."""
        state = yield from stages.scored(state)
        earlier = (
            None
            if state.best_round is None or state.best_round.round == state.round
            else state.best_round.scores
        )
        if earlier and state.scores and state.scores.loss > earlier.loss * (1 + BETTER):
            return (yield from self.restore(state, reason))
        return (yield from stages.saved(state, "final", reason))

    def restore(self, state: RoundsState, reason: Termination) -> Steps[RoundsState]:
        """End with the best round's model, which is refitted only if it used a sample: a further
        fit could be worse."""
        best = state.best_round
        assert best is not None
        names = ("problem", "design", "fit", "seen", "round", "candidates", "reason")
        state = replace(state, **{name: getattr(best, name) for name in names})
        if best.seen == state.options.last_rows:
            state = yield from stages.settled(state)
            return (yield from self.ended(state, reason))
        # the sample may have grown since the best round, whose statistics then belong to a
        # different sample
        return (
            yield from self.conclude(
                replace(state, seen="" if best.seen == GROWING else best.seen), reason
            )
        )


def _random(state: RoundsState, used: Int, count: int) -> Int:
    """Return random rows outside ``used``, different in each round."""
    return drawn_rows(state.problem, used, count, state.options.seed, state.round - 1)


def _marked(state: RoundsState, rows: Int) -> RoundsState:
    """Return the state with these rows marked as used, so that they are not chosen again."""
    return replace(state, used=np.union1d(state.used, rows))


def _fewer(state: RoundsState, room: int) -> int:
    """Return the number of candidates, which is reduced if rounds are expensive and few candidates
    remained after the last one."""
    problem = state.problem
    cheap = state.fit.n_vectors < CHEAP or not problem.likelihood.rounds.fewer_candidates
    if state.stayed is None or cheap:
        return room
    least = problem.rows_of(state.options.partition_size) // LEAST_SHARE
    return min(room, max(HOPEFUL * state.stayed // problem.n_kernels, least, 1))


def by_error(state: RoundsState, room: int) -> Steps[tuple[RoundsState, Design]]:
    """Choose rows with large errors; with many rows, only a random sample is searched."""
    problem = state.problem
    largest = state.selection == "largest-error"
    compared = None
    if problem.shuffled and not largest:
        compared = _random(state, NONE, SPREAD * room)
    draw = None
    if problem.likelihood.rounds.draws_errors and not largest:
        draw = draw_key(state.options.seed, Purpose.POOL, state.round)
    request = problem.likelihood.errors(
        state.design, state.fit, room, state.used, compared, draw=draw
    )
    (largest_errors,) = yield (request,)
    chosen = state.design.with_centres(largest_errors.values, largest_errors.rows)
    if not len(largest_errors.rows):
        state = _marked(state, np.arange(problem.n_rows) if compared is None else compared)
    return state, chosen


def at_random(state: RoundsState, room: int) -> Steps[tuple[RoundsState, Design]]:
    """Choose unused rows at random."""
    rows = _random(state, state.used, room)
    chosen = yield from stages.columns_of(state.design, rows)
    return _marked(state, np.setdiff1d(rows, chosen.rows)), chosen


def by_gain(state: RoundsState, room: int) -> Steps[tuple[RoundsState, Design]]:
    """Choose the columns of a random pool that raise the evidence most."""
    state, pool = yield from at_random(state, room * POOL)
    if not len(pool.labels):
        return state, pool
    problem = state.problem
    rows = posterior_rows(problem, state.options, state.seen)
    (statistic,) = yield problem.likelihood.gain_pass(state.design, state.fit, pool, rows)
    order = np.argsort(-state.fit.gains(statistic), kind="stable")
    return state, pool.take(order[: room * problem.n_kernels])


SELECTIONS: dict[str, Callable[[RoundsState, int], Steps[tuple[RoundsState, Design]]]] = {
    "error": by_error,
    "largest-error": by_error,
    "gain": by_gain,
    "random": at_random,
}
"""Functions that choose candidates, by the value of the option ``selection``."""


def corrected_enough(state: RoundsState) -> Steps[tuple[RoundsState, bool]]:
    """Return whether doubling the work would hardly lower the left-out error after local
    residuals."""
    vectors = state.fit.n_vectors
    before = state.corrected
    tested = state.tested
    least = LEAST_GAIN[state.options.effort]
    if not least or vectors < max(LEAST_TESTED, GROWTH * tested):
        return state, False
    error = yield from stages.corrected(state)
    state = replace(state, tested=vectors, corrected=error)
    if not before:
        return state, False
    return state, bool(error > (1.0 - least * POWER * log2(vectors / tested)) * before)


def judged(state: RoundsState) -> tuple[RoundsState, Termination | None]:
    """Count flat and slow rounds; return the reason to end the run, if any (``VALIDATION``: restore
    the best round)."""
    objective = state.problem.likelihood.objective(state.fit)
    gain = objective - state.evidence
    level = gain < FLAT * state.options.tol * state.fit.n
    flat = state.flat + 1 if level and state.reason is Termination.CONVERGED else 0
    work = state.work + work_of_round(state)
    slow = state.slow
    if np.isfinite(state.evidence):  # there is previous evidence to compare with
        least = least_gain(state, work)
        slow = slow + 1 if least is not None and gain / state.fit.n <= least else 0
    evidence = max(objective, state.evidence)
    state = replace(state, evidence=evidence, flat=flat, patient=level, work=work, slow=slow)
    if flat >= FLAT_ROUNDS:
        return state, Termination.CONVERGED
    if slow >= SLOW_ROUNDS:
        return state, Termination.EFFORT
    if state.best_round is not None and state.round - state.best_round.round >= PATIENCE:
        return state, Termination.VALIDATION
    return state, None


def work_of_round(state: RoundsState) -> float:
    """Return the work of the last round in multiplications."""
    columns = state.candidates
    new = columns - state.kept
    return float(state.fit.n * new * (2 * columns - new) + ITERATIONS * columns**3)


def least_gain(state: RoundsState, work: float) -> float | None:
    """Return the gain per row below which the last round is slow; None if no round counts as slow.

    Args:
        state: the state before the last round is assessed
        work: the work of all rounds
    """
    likelihood = state.problem.likelihood
    loss = max(-state.evidence / state.fit.n, 0.0)
    least = likelihood.rounds.least_gain(loss, state.options.effort)
    growth = work / state.work
    if likelihood.has_ramp:
        growth = max(state.fit.n_vectors / max(state.kept, 1), 1.0)
    return least * log2(growth) if least > 0 else None
