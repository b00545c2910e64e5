"""When the rounds of the working set end.

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

from dataclasses import replace
from math import log2

import numpy as np

from partirvm.core.termination import Termination
from partirvm.spec.problem import LEAST_GAIN
from partirvm.strategies import stages
from partirvm.strategies.instructions import Steps
from partirvm.strategies.stages import RoundsState

FLAT = 1000.0
"""A round is flat if its evidence exceeds the highest evidence so far by less than this value ×
``tol`` nats per row."""

FLAT_ROUNDS = 2
"""Number of consecutive flat rounds that end the run."""

SLOW_ROUNDS = 2
"""Number of consecutive slow rounds that end the run."""

PATIENCE = 2
"""Number of rounds without a lower held-out error that end the run."""

LEAST_TESTED = 50
"""Minimum number of vectors at which the errors after local residuals are measured."""

GROWTH = 1.4
"""Growth of the number of vectors until the next measurement."""

POWER = 2.5
"""Exponent of the number of vectors to which a round's work is roughly proportional."""

ITERATIONS = 16
"""Number of iterations over all columns counted for a round's dense fit. The fit takes about 4; if
only these are counted, kin40k runs seven more rounds for 1 % less error."""


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


def with_new_patience(state: RoundsState) -> RoundsState:
    """Return the state of a run that goes on although the held-out error stopped falling: rounds
    without a lower error are counted from this one, and the best round stays the best."""
    if state.best_round is None:
        return state
    return replace(state, best_round=replace(state.best_round, round=state.round))


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
