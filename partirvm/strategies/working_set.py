"""``working-set``: each round fits the kept vectors and P unused rows that ``selection`` chooses (P: partition size).

The run ends when the evidence was flat in two consecutive rounds, the second of them with random candidates. It also
ends when every row has been a candidate, or at a limit. If the held-out error stops falling, the run ends with the
model of the best round.

Later rounds have more columns, cost more and gain less, and the evidence rises by ever smaller steps for a long time.
The gain is therefore compared with the work: a round is *slow* if, at its rate, twice the work would raise the evidence
by less than ``LEAST_GAIN`` nats per row. A gain of g nats per row of a regression lowers the error by about a fraction
g. Gains of a classification are fractions of the loss so far, −log evidence per row. The work is the number of
multiplications of kernel learning and of all rounds, by the formulas of ``planning.cost``, and not the time, so that
results can be repeated.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import log2
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from partirvm.core.sampling import Purpose, draw_key
from partirvm.core.termination import StopRule, Termination
from partirvm.kernels.design import NONE, Design
from partirvm.likelihoods.base import Fit
from partirvm.planning.cost import Schedule
from partirvm.strategies.fit_rows import drawn_rows, enlarged, grows, intermediate_rows, posterior_rows
from partirvm.strategies.instructions import Steps
from partirvm.strategies.problem import Options, Problem
from partirvm.strategies.rounds import Rounds
from partirvm.strategies.selection import POOL, RANDOM, SELECTIONS, SPREAD
from partirvm.strategies.stages import RoundsState, columns_of, final_rule, settled
from partirvm.types import LEARNING_ROWS

Int = NDArray[np.int64]

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

LEAST_GAIN = {"quick": 0.2, "balanced": 0.03, "thorough": 0.0}
"""Values of ``effort``: the least gain for twice the work, in nats per row or as a fraction of the log loss."""

EVALUATIONS, ITERATIONS = 100, 16
"""Typical numbers of evaluations of the evidence in kernel learning, and of dense iterations of all columns in a round.

They are part of the rule, and therefore not those of the plan, which follow measured seconds.
"""

LEAST_WORK = 1e11
"""Multiplications of a second or two, which count as done before the first round: less is not worth saving.

Without them, the first rounds double the work again and again: a fit of 3,000 rows of etopo20 with P = 40 ended after
.1 s, with an error 7 % above that of a fit of .6 s.
"""

SLOW_ROUNDS = 2
"""Number of consecutive slow rounds that ends the run."""


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
    (``is_slow``).
    """

    used: Int = field(default_factory=lambda: NONE)
    evidence: float = -np.inf
    flat: int = 0
    patient: bool = False
    best: Best | None = None
    kept: int = 0
    work: float = LEAST_WORK
    slow: int = 0


class WorkingSetRounds(Rounds[WorkingSetState]):
    """The working-set strategy of Ben-Shimon & Shmilovici (2006, §2.3); by default fits use all rows."""

    name = "working-set"
    schedule: ClassVar[Schedule] = Schedule(name, selects=True)
    exhausted = Termination.EXHAUSTED
    divisible = True

    def start(self, problem: Problem, options: Options) -> WorkingSetState:
        """Return the state before the first round."""
        work = work_before_rounds(problem.n_rows, options.centres)
        return WorkingSetState(problem, options, problem.empty, problem.likelihood.start(problem), work=work)

    def unused(self, state: WorkingSetState) -> int:
        """Return the number of rows that were never candidates."""
        return int(state.problem.n_rows - len(state.used))

    def propose(self, state: WorkingSetState, room: int) -> Steps[tuple[WorkingSetState, Design]]:
        """Choose candidates by errors, by gains in a pool, or at random; mark them and rows without weight as used."""
        problem, likelihood = state.problem, state.problem.likelihood
        first_or_check = (state.round == 1 and not state.seen) or state.flat == FLAT_ROUNDS - 1
        selection = RANDOM if first_or_check else SELECTIONS[state.options.selection]
        state = replace(state, selection=selection.name, kept=state.fit.n_vectors)
        count = room * POOL if selection.by_gain else room
        if selection.by_error or (selection.by_gain and likelihood.draws_pools):
            some = problem.shuffled and not selection.everywhere
            rows = _random(state, NONE, SPREAD * room) if some else None
            draw = draw_key(state.options.seed, Purpose.POOL, state.round) if selection.by_gain else None
            request = likelihood.errors(state.design, state.fit, count, state.used, rows, draw=draw, floor=FLOOR)
            (found,) = yield (request,)
            largest = found.largest
            chosen = state.design.with_centres(largest.values, largest.rows)
            if not len(largest.rows):
                state = _marked(state, np.arange(problem.n_rows) if rows is None else rows)
        else:
            rows = _random(state, state.used, count)
            chosen = yield from columns_of(state.design, rows)
            state = _marked(state, np.setdiff1d(rows, chosen.rows))
        if selection.by_gain and len(chosen.labels):
            posterior = posterior_rows(problem, state.options, state.seen)
            (statistic,) = yield (likelihood.gain_pass(state.design, state.fit, chosen, posterior),)
            gains = state.fit.gains(statistic)
            chosen = chosen.take(np.argsort(-gains, kind="stable")[: room * problem.n_kernels])
        return _marked(state, chosen.rows), chosen

    def rule(self, state: WorkingSetState) -> StopRule:
        """Return the rule of a fit that converges if the last round was flat."""
        return replace(final_rule(state.options), thin=False) if state.patient else super().rule(state)

    def after_append(self, state: WorkingSetState) -> Steps[WorkingSetState]:
        """Reset the highest evidence and the best round, then fit the present columns."""
        work = work_before_rounds(state.problem.n_rows, 0)
        state = replace(state, evidence=-np.inf, flat=0, patient=False, best=None, work=work, slow=0)
        return (yield from super().after_append(state))

    def scored(self, state: WorkingSetState) -> Steps[WorkingSetState]:
        """Score the fit, and keep the best round."""
        state, best = (yield from super().scored(state)), state.best
        if state.scores is None or not (best is None or state.scores.loss < best.error * (1 - BETTER)):
            return state
        facts = state.design, state.fit, state.seen, state.candidates, state.reason
        return replace(state, best=Best(state.round, state.scores.loss, *facts))

    def ended(self, state: WorkingSetState, reason: Termination) -> Steps[WorkingSetState]:
        """Save the model, or restore the best round if the last fit is worse."""
        best, scores = state.best, state.scores
        other = best is not None and scores is not None and best.round != state.round
        if best and scores and other and scores.loss > best.error * (1 + BETTER):
            return (yield from self.restore(state, best, reason))
        return (yield from super().ended(state, reason))

    def restore(self, state: WorkingSetState, best: Best, reason: Termination) -> Steps[WorkingSetState]:
        """End with the model of the best round, unchanged: a further fit could be worse again.

        If the best round used a sample, a last fit over all rows follows.
        """
        state = replace(
            state,
            problem=state.problem.with_kernel(best.design.kernel),
            **{name: getattr(best, name) for name in ("design", "fit", "seen", "round", "candidates", "reason")},
        )
        if best.seen == state.options.last_rows:
            state = yield from settled(state)
            state = yield from self.scored(state)
            return (yield from self.ended(state, reason))
        # a sample may have grown since the best round: its statistics are those of another sample
        return (yield from self.conclude(replace(state, seen="" if grows(best.seen) else best.seen), reason))

    def judge(self, state: WorkingSetState) -> Steps[WorkingSetState]:
        """End the run if evidence or held-out error no longer improve; otherwise run the next round."""
        fit, tol = state.fit, state.options.tol
        if state.seen != intermediate_rows(state.problem, state.options):
            # no evidence to compare: all rows so far have weight 0, or the last fit used other rows than the next one
            return (yield from self.next_round(state))
        evidence = fit.log_evidence
        level = evidence - state.evidence < FLAT * tol * fit.n
        flat = level and state.reason is Termination.CONVERGED
        state = _counted(state, evidence)
        highest = max(evidence, state.evidence)
        state = replace(state, evidence=highest, flat=state.flat + 1 if flat else 0, patient=level)
        if state.flat >= FLAT_ROUNDS:
            return (yield from self.conclude(state, Termination.CONVERGED))
        if state.slow >= SLOW_ROUNDS:
            return (yield from self.conclude(state, Termination.EFFORT))
        if state.best is not None and state.round - state.best.round >= PATIENCE:
            return (yield from self.restore(state, state.best, Termination.VALIDATION))
        if grows(state.seen) and (state.slow or state.flat) and self.room(state)[1] is None:
            state = yield from self.enlarge(state, enlarged(2 * state.options.sample_rows, 0, state.problem.n_rows))
        return (yield from self.next_round(state))

    def enlarged(self, state: WorkingSetState, fresh: int) -> WorkingSetState:
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
    """Return random rows outside ``used``, different in each round."""
    return drawn_rows(state.problem, used, count, seed=state.options.seed, draw=state.round - 1, even=EVEN)


def _marked(state: WorkingSetState, rows: Int) -> WorkingSetState:
    """Return the state with these rows marked as used, so that they are not chosen again."""
    return replace(state, used=np.union1d(state.used, rows))


def is_slow(effort: str, work: float, before: float, gain: float, loss: float | None) -> bool:
    """Return whether a round was slow that raised the work of all rounds from ``before`` to ``work``.

    ``gain`` is the gain of the round in nats per row. ``loss`` is −log evidence per row of a classification before the
    round, and None for a regression.

    >>> is_slow("balanced", 2e9, 1e9, 0.05, None), is_slow("balanced", 4e9, 1e9, 0.05, None)
    (False, True)
    >>> is_slow("quick", 2e9, 1e9, 0.06, None), is_slow("quick", 2e9, 1e9, 0.06, 0.2)
    (True, False)
    """
    least = LEAST_GAIN[effort] * (1.0 if loss is None else max(loss, 0.0))
    return least > 0 and gain < least * log2(work / before)


def work_before_rounds(rows: int, centres: int) -> float:
    """Return the expected multiplications of kernel learning with this number of centres, at least ``LEAST_WORK``.

    An evaluation takes three multiplications for each row and pair of centres.

    >>> work_before_rounds(20_000, 500), work_before_rounds(1000, 0)
    (600000000000.0, 100000000000.0)
    """
    return max(float(EVALUATIONS * 3 * min(rows, LEARNING_ROWS) * centres**2), LEAST_WORK)


def work_of_round(rows: int, columns: int, new: int) -> float:
    """Return the expected multiplications of a round with ``columns`` columns, of which ``new`` are new.

    >>> work_of_round(1000, 20, 10)
    428000.0
    """
    return float(rows * new * (2 * columns - new) + ITERATIONS * columns**3)
