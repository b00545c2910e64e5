"""``working-set``: rounds in which P selected rows become candidates along with the kept vectors.

A growing sample (``fit_rows="growing"``) also doubles when a round gains little: with more rows,
the evidence supports more vectors.

Candidates are chosen by ``candidates.SELECTIONS``; ``stopping`` says when the run ends.
"""

from dataclasses import replace
from typing import ClassVar

from partirvm.core.termination import Termination
from partirvm.kernels.design import Design
from partirvm.planning.cost import Schedule
from partirvm.spec.problem import Options, Problem
from partirvm.strategies import stages
from partirvm.strategies.candidates import SELECTIONS, limited_room, marked
from partirvm.strategies.fit_rows import (
    GROWING,
    enlarged,
    intermediate_rows,
)
from partirvm.strategies.instructions import Steps
from partirvm.strategies.rounds import Rounds
from partirvm.strategies.stages import (
    BETTER,
    LEAST_WORK,
    RoundsState,
)
from partirvm.strategies.stopping import FLAT_ROUNDS, corrected_enough, judged
from partirvm.types import LEARNING_ROWS

EVALUATIONS = 30
"""Typical number of evidence evaluations in kernel learning."""


class WorkingSetRounds(Rounds):
    """The working-set strategy of Ben-Shimon & Shmilovici (2006, §2.3); by default, fits use all
    rows."""

    schedule: ClassVar[Schedule] = Schedule("working-set", selects=True)
    used_up: ClassVar[Termination] = Termination.EXHAUSTED
    least_work: ClassVar[float] = LEAST_WORK

    def start(self, problem: Problem, options: Options) -> RoundsState:
        """Return the state before the first round; kernel learning counts as work."""
        learning = float(EVALUATIONS * 3 * min(problem.n_rows, LEARNING_ROWS) * options.centres**2)
        return replace(super().start(problem, options), work=max(learning, self.least_work))

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
                state = yield from self.enlarge(
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
            room = limited_room(state, room)
        selection = "random" if checks else state.options.selection
        if selection == "gain" and not state.problem.likelihood.rounds.ranks_gains:
            selection = "error"
        state = replace(state, selection=selection, kept=state.fit.n_vectors)
        state, chosen = yield from SELECTIONS[selection](state, room)
        return marked(state, chosen.rows), chosen

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
