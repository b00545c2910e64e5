"""One basic RVM after another: what all strategies share.

A *round* is: rows become candidates → gram pass → dense fit → save. Intermediate fits end when the vectors fall to
``stop_fraction``; the last one converges, sees all rows (``final_likelihood``), and takes its noise from a residual
pass. The model is usable after every round. A strategy says which rows come next, and when to end.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from partirvm.core.residuals import Scores
from partirvm.core.scores import ClassScores
from partirvm.core.termination import Termination
from partirvm.core.updates import HyperState
from partirvm.kernels.design import NONE, Design
from partirvm.strategies.classifying import newton_rule
from partirvm.strategies.columns import fresh, lacking, left_out, survivors
from partirvm.strategies.fitting import AnyWarm, nothing, record, score
from partirvm.strategies.instructions import (
    AnyFit,
    Event,
    Finish,
    Gathered,
    Instruction,
    KernelLearned,
    Newton,
    Save,
    Solve,
    Start,
    Stop,
)
from partirvm.strategies.likelihood import gram_passes, noise_rows, posterior_rows
from partirvm.strategies.passes import GramPass, ResidualPass
from partirvm.strategies.problem import Options, Problem
from partirvm.strategies.regressing import (
    Warm,
    final_rule,
    intermediate_rule,
    join,
    rebase,
    restart,
    settle,
    settling,
    unguarded,
)

Float = NDArray[np.float64]
Int = NDArray[np.int64]
AnyScores: TypeAlias = Scores | ClassScores
Answer: TypeAlias = tuple[Any, tuple[Instruction, ...]]
"""A state and what to do next; the state is of the strategy's own class."""


class Phase(Enum):
    """What the machine waits for. An event in phase X goes to the method ``_on_x``."""

    ROWS = "inputs of the chosen rows"
    POOL = "inputs of the pool"
    GAINS = "cross products of the pool"
    ERRORS = "rows of largest error"
    GRAM = "the gram pass"
    DESIGN = "the design of all candidates"
    FIT = "the dense fit"
    REBASE = "the residual target"
    SETTLE = "the last residual"
    SCORE = "the held-out error"
    LEARN = "a better kernel"
    GROWN = "rows that came later"
    MERGE = "their statistics"
    SAVED = "the model on disk"
    OVER = "nothing"


@dataclass(frozen=True)
class Standing:
    """The fit that stands, and all that belongs to it, while all rows are asked about a kernel that was ``learned``."""

    problem: Problem
    design: Design
    fit: AnyFit
    learned: KernelLearned


@dataclass(frozen=True)
class RoundsState:
    """The checkpoint: where the machine stands, the columns and fit so far.

    ``chosen`` are the rows on their way in and ``incoming`` their columns; ``seen`` is the likelihood whose rows the
    fit's statistics are of, empty before the first; ``concluding`` is the reason to end once the last fit is over. A
    fit over other rows begins at ``warm`` if that is there, else where the last one stood. ``learned`` are the vectors
    at which the kernel was last learned again, ``standing`` is the fit that stands while another kernel is tried.
    """

    problem: Problem
    options: Options
    design: Design
    fit: AnyFit
    phase: Phase = Phase.ROWS
    round: int = 0
    selection: str = "order"
    chosen: Int | None = None
    incoming: Design | None = None
    seen: str = ""
    candidates: int = 0
    duplicates: int = 0
    dropped: int = 0
    rebases: int = 0
    reason: Termination = Termination.CONVERGED
    scores: AnyScores | None = None
    concluding: Termination | None = None
    settled: bool = False
    warm: AnyWarm | None = None
    learned: int = 0
    standing: Standing | None = None


class Rounds:
    """Rounds until there is a reason to conclude; subclasses propose rows and judge what came of them."""

    name = ""
    exhausted = Termination.CONVERGED
    """Reason to end when every row has been a candidate."""
    divisible = False
    """Whether a part of the rows proposed may join where a limit leaves no room for all."""

    def first(self, problem: Problem, options: Options) -> RoundsState:
        """The state before the first round."""
        return RoundsState(problem, options, problem.empty, nothing(problem))

    def start(self, problem: Problem, options: Options) -> Answer:
        """First round; a constant target needs none."""
        state = self.first(problem, options)
        if not problem.power:
            return self._save(replace(state, concluding=Termination.CONSTANT, settled=True))
        return self._next_round(state)

    def next(self, state: Any, *events: Event) -> Answer:
        """What to do after the answers to the last instructions."""
        if isinstance(events[0], Stop):
            return replace(state, phase=Phase.OVER), (Finish(events[0].reason),)
        answer: Answer = getattr(self, f"_on_{state.phase.name.lower()}")(state, *events)
        return answer

    def _unused(self, state: Any) -> int:
        """How many rows the next round may propose at most."""
        raise NotImplementedError

    def _propose(self, state: Any, room: int) -> Answer:
        """Find at most ``room`` rows for the next round."""
        raise NotImplementedError

    def _judge(self, state: Any) -> Answer:
        """After a round."""
        return self._next_round(state)

    def _next_round(self, state: Any) -> Answer:
        """Begin a round, or conclude when there is no room for one."""
        room, limit = self._room(state)
        if limit is not None:
            return self._conclude(state, limit)
        return self._propose(replace(state, round=state.round + 1, rebases=0), room)

    def _room(self, state: Any) -> tuple[int, Termination | None]:
        """How many rows may join the next round as candidates; if none, the reason to conclude."""
        options, problem = state.options, state.problem
        if options.max_rounds is not None and state.round >= options.max_rounds:
            return 0, Termination.ROUNDS
        each = problem.n_kernels
        wanted = each and each * min(problem.rows_of(options.partition_size), self._unused(state))
        if not wanted:
            return 0, self.exhausted
        vectors = np.inf if options.max_vectors is None else options.max_vectors - state.fit.n_vectors
        if vectors < (each if self.divisible else wanted):
            return 0, Termination.VECTORS
        beside = max(len(lacking(problem, state.design)), 1)
        columns = np.inf if options.max_columns is None else options.max_columns - state.fit.n_columns - beside
        if columns < min(wanted, vectors):
            return 0, Termination.MEMORY
        return int(min(wanted, vectors)) // each, None

    def _on_rows(self, state: Any, event: Gathered) -> Answer:
        there = slice(None) if event.present is None else event.present
        return self._admit(state, state.design.with_centres(event.points[there], state.chosen[there]))

    def _admit(self, state: Any, chosen: Design) -> Answer:
        """Make these columns candidates; where nothing could follow this round, its fit is the last."""
        new = chosen.take(fresh(chosen, state.design), leading=lacking(state.problem, state.design))
        state = replace(
            state,
            chosen=None,
            candidates=state.fit.n_vectors + len(new.labels),
            duplicates=state.duplicates + left_out(chosen, new),
        )
        if not len(new.labels):
            return self._judge(replace(state, reason=Termination.CONVERGED))
        limit = self._room(state)[1]
        if limit in {Termination.ROUNDS, self.exhausted}:
            state = replace(state, concluding=limit)
        return self._measure(state, new)

    def _measure(self, state: Any, new: Design) -> Answer:
        """Ask for the statistics of new columns beside the present ones: an extension where the rows stay the same."""
        problem, options = state.problem, state.options
        likelihood = options.final_likelihood if state.concluding else options.likelihood
        if problem.classifies:
            return self._classify(replace(state, design=state.design.join(new), seen=likelihood))
        if likelihood == state.seen != "partition":
            rows = posterior_rows(problem, options, likelihood, new)
            passes: tuple[Instruction, ...] = (GramPass(state.design, new, state.fit.statistics.offset, rows=rows),)
        else:
            passes = gram_passes(problem, options, likelihood, state.design.join(new))
            state = replace(state, seen="")
        return replace(state, phase=Phase.GRAM, incoming=new), passes

    def _on_gram(self, state: Any, *events: Any) -> Answer:
        blocks = [event.statistic for event in events]
        options, design = state.options, state.design.join(state.incoming)
        if state.seen:
            fit = join(state.fit, state.design, state.incoming, *blocks)
        else:
            fit = restart(state.problem, options, state.warm or Warm.of(state.fit), design, *blocks)
        seen = options.final_likelihood if state.concluding else options.likelihood
        return self._solve(replace(state, design=design, fit=fit, incoming=None, seen=seen))

    def _rule(self, state: Any) -> Any:
        """When the next dense fit ends."""
        if state.concluding:
            return final_rule(state.options)
        return intermediate_rule(state.options, state.candidates)

    def _classify(self, state: Any) -> Answer:
        """Fit the columns of the design to classes, from where the fit stands, over the rows that it is to see."""
        rows = posterior_rows(state.problem, state.options, state.seen, state.design)
        rule = newton_rule(self._rule(state), state.options)
        start = state.warm or Start.of(state.fit)
        problem, solver = state.problem, state.options.solver
        task = Newton(state.design, problem.likelihood, start, rule, state.candidates, rows, problem.prior, solver)
        return replace(state, phase=Phase.FIT), (task,)

    def _solve(self, state: Any) -> Answer:
        if state.problem.classifies:
            return self._classify(state)
        rule = unguarded(self._rule(state), state.fit, state.rebases)
        return replace(state, phase=Phase.FIT), (Solve(state.fit, rule, state.candidates, state.options.solver),)

    def _on_fit(self, state: Any, event: Any) -> Answer:
        state = replace(state, design=survivors(state.design, event.fit), fit=event.fit, reason=event.reason)
        if event.reason is Termination.CANCELLED:
            return replace(state, phase=Phase.REBASE, rebases=state.rebases + 1), (_residual(state),)
        return self._settle(state) if state.concluding else self._score(state)

    def _settle(self, state: Any) -> Answer:
        """A last residual; a fit of classes has been at its rows to the end."""
        if state.problem.classifies:
            return self._score(replace(state, settled=True))
        rows = noise_rows(state.problem, state.options, state.seen)
        return replace(state, phase=Phase.SETTLE), settling(state.problem, state.design, state.fit, state.seen, rows)

    def _on_rebase(self, state: Any, event: Any) -> Answer:
        return self._solve(replace(state, fit=rebase(state.fit, event.statistic)))

    def _on_settle(self, state: Any, *events: Any) -> Answer:
        *left_out, residuals = (event.statistic for event in events)
        return self._score(replace(state, fit=settle(state.fit, residuals, *left_out), settled=True))

    def _score(self, state: Any) -> Answer:
        if not state.problem.held_out:
            return self._save(state)
        return replace(state, phase=Phase.SCORE), (score(state.options, state.design, state.fit),)

    def _on_score(self, state: Any, event: Any) -> Answer:
        return self._save(replace(state, scores=event.statistic))

    def _save(self, state: Any) -> Answer:
        line = record(
            state.problem,
            state.fit,
            state.scores,
            kind="final" if state.settled else "round",
            number=state.round,
            candidates=state.candidates,
            termination=state.reason,
            selection=state.selection,
            likelihood=state.seen or state.options.final_likelihood,
            duplicates=state.duplicates,
            dropped=state.dropped,
        )
        return replace(state, phase=Phase.SAVED), (Save(state.design, state.fit, line, state.options.moderate),)

    def _on_saved(self, state: Any, event: Event) -> Answer:
        if not state.settled:
            return self._judge(state)
        reason = state.concluding
        if reason is Termination.CONVERGED:
            reason = state.reason
        return replace(state, phase=Phase.OVER), (Finish(reason),)

    def last_fit(self, state: Any, design: Design, warm: AnyWarm) -> Answer:
        """A run's only round: converge on these columns, over the rows of ``final_likelihood``."""
        state = replace(state, round=1, concluding=self.exhausted, candidates=len(design.labels), warm=warm)
        return self._measure(state, design)

    def _conclude(self, state: Any, reason: Termination) -> Answer:
        """The last fit: converge on the statistics at hand, or on those of all rows; then measure the residual."""
        fit = state.fit if state.problem.classifies else replace(state.fit, iteration=0)
        state = replace(state, concluding=reason, rebases=0, candidates=fit.n_vectors, fit=fit)
        if state.seen == state.options.final_likelihood:
            return self._solve(state)
        nobody = state.design.take(NONE, leading=lacking(state.problem, state.design))
        return self._measure(state, nobody)


def _residual(state: RoundsState) -> ResidualPass:
    rows = noise_rows(state.problem, state.options, state.seen)
    assert isinstance(state.fit, HyperState)
    return ResidualPass(state.design, state.fit.posterior.means, rows=rows)
