"""A sequence of basic RVMs: what all strategies share.

A *round* is: rows become candidates → gram pass → dense fit → save. Intermediate fits end when the vectors fall to
``stop_fraction``; the last one converges, sees all rows (``last_rows``), and takes its noise from a residual
pass. The model is usable after every round. A strategy says which rows come next, and when to end.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from partirvm.core.residuals import Scores
from partirvm.core.scores import ClassScores
from partirvm.core.termination import Termination
from partirvm.core.updates import StopRule
from partirvm.kernels.design import NONE, Design
from partirvm.likelihoods.base import Begin, Fit
from partirvm.likelihoods.columns import survivors
from partirvm.strategies.fit_rows import FIT_ROWS, measuring, noise_rows, posterior_rows, sees_all
from partirvm.strategies.instructions import (
    Event,
    Finish,
    Gathered,
    Instruction,
    KernelLearned,
    Passed,
    Record,
    Save,
    Solved,
    Stop,
)
from partirvm.strategies.new_columns import fresh, lacking, left_out
from partirvm.strategies.problem import Options, Problem
from partirvm.strategies.rules import REBASES, final_rule, intermediate_rule

Float = NDArray[np.float64]
Int = NDArray[np.int64]
AnyScores: TypeAlias = Scores | ClassScores


MODE = 1e-2
"""Tolerance, nats per row, of the mode over all rows from which rounds go on (``core.newton.SETTLED``)."""


class Phase(Enum):
    """The event that the machine waits for. An event in phase X is handled by the method ``_on_x``."""

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
    """The current fit and its state, while the evidence of all rows is computed for a ``learned`` kernel."""

    problem: Problem
    design: Design
    fit: Fit
    learned: KernelLearned


@dataclass(frozen=True)
class RoundsState:
    """The checkpoint: the phase of the machine, its columns and its fit.

    ``chosen`` are the rows on their way in and ``incoming`` their columns; ``seen`` says which rows (``fit_rows``) the
    fit's statistics are of, empty before the first; ``concluding`` is the reason to end once the last fit is over. A
    fit over other rows begins at ``warm`` if that is there, else where the last one stood. ``learned`` are the vectors
    at which the kernel was last learned again, ``standing`` is the fit that stands while another kernel is tried.
    """

    problem: Problem
    options: Options
    design: Design
    fit: Fit
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
    warm: object = None
    learned: int = 0
    standing: Standing | None = None


S = TypeVar("S", bound=RoundsState)
Answer: TypeAlias = tuple[S, tuple[Instruction, ...]]
"""A state and what to do next."""


class Rounds(Generic[S]):
    """Rounds until there is a reason to conclude; subclasses propose rows and decide after each round."""

    name = ""
    exhausted = Termination.CONVERGED
    """Reason to end when every row has been a candidate."""
    divisible = False
    """True if some of the proposed rows may join when a limit leaves no room for all."""

    def first(self, problem: Problem, options: Options) -> S:
        """The state before the first round."""
        raise NotImplementedError

    def start(self, problem: Problem, options: Options) -> Answer[S]:
        """First round; a constant target needs none."""
        state = self.first(problem, options)
        if not problem.target_variance:
            return self._save(replace(state, concluding=Termination.CONSTANT, settled=True))
        return self._next_round(state)

    def next(self, state: S, *events: Event) -> Answer[S]:
        """What to do after the answers to the last instructions."""
        if isinstance(events[0], Stop):
            return replace(state, phase=Phase.OVER), (Finish(events[0].reason),)
        answer: Answer[S] = getattr(self, f"_on_{state.phase.name.lower()}")(state, *events)
        return answer

    def _unused(self, state: S) -> int:
        """Maximum number of rows that the next round may propose."""
        raise NotImplementedError

    def _propose(self, state: S, room: int) -> Answer[S]:
        """Find at most ``room`` rows for the next round."""
        raise NotImplementedError

    def _judge(self, state: S) -> Answer[S]:
        """After a round."""
        return self._next_round(state)

    def _next_round(self, state: S) -> Answer[S]:
        """Begin a round, or conclude when there is no room for one."""
        room, limit = self._room(state)
        if limit is not None:
            return self._conclude(state, limit)
        return self._propose(replace(state, round=state.round + 1, rebases=0), room)

    def _room(self, state: S) -> tuple[int, Termination | None]:
        """The number of rows that may join the next round as candidates; if none, the reason to conclude."""
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

    def _on_rows(self, state: S, event: Gathered) -> Answer[S]:
        assert state.chosen is not None
        there = slice(None) if event.present is None else event.present
        return self._admit(state, state.design.with_centres(event.points[there], state.chosen[there]))

    def _admit(self, state: S, chosen: Design) -> Answer[S]:
        """Make these columns candidates; if no round can follow, this fit is the last."""
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

    def _measure(self, state: S, new: Design) -> Answer[S]:
        """Request the statistics of the new columns; if the rows do not change, only the extension."""
        problem, options = state.problem, state.options
        fit_rows = options.last_rows if state.concluding else options.fit_rows
        if fit_rows == state.seen and FIT_ROWS[fit_rows].shared:
            rows = posterior_rows(problem, options, fit_rows, new)
            passes = problem.likelihood.measure(state.fit, state.design, new, rows)
        else:
            passes = measuring(problem, options, fit_rows, state.design.join(new))
            state = replace(state, seen="")
        state = replace(state, phase=Phase.GRAM, incoming=new)
        return (state, passes) if passes else self._on_gram(state)

    def _on_gram(self, state: S, *events: Passed) -> Answer[S]:
        problem, options, fit = state.problem, state.options, state.fit
        assert state.incoming is not None
        blocks, design = [event.statistic for event in events], state.design.join(state.incoming)
        if state.seen:
            fit = problem.likelihood.join(fit, state.design, state.incoming, *blocks)
        else:
            warm = state.warm or problem.likelihood.warm(fit)
            fit = problem.likelihood.restart(problem, options, fit, warm, design, *blocks)
        seen = options.last_rows if state.concluding else options.fit_rows
        return self._fit(replace(state, design=design, fit=fit, incoming=None, seen=seen))

    def _rule(self, state: S) -> StopRule:
        """When the next fit ends."""
        if state.concluding:
            return final_rule(state.options)
        return intermediate_rule(state.options, state.candidates)

    def _fit(self, state: S, *, rule: StopRule | None = None, hold: bool = False, pool: object = None) -> Answer[S]:
        """Fit the columns of the design, warm-started from the current fit, over the fit rows."""
        problem, options = state.problem, state.options
        rule = rule or self._rule(state)
        if state.rebases >= REBASES:
            rule = replace(rule, guard=False)
        rows = posterior_rows(problem, options, state.seen, state.design)
        begin = Begin(rule, state.candidates, rows, state.warm, hold, pool)
        task = problem.likelihood.fit(problem, options, state.design, state.fit, begin)
        return replace(state, phase=Phase.FIT), (task,)

    def _on_fit(self, state: S, event: Solved) -> Answer[S]:
        state = replace(state, design=survivors(state.design, event.fit), fit=event.fit, reason=event.reason)
        if event.reason is Termination.CANCELLED:
            state = replace(state, phase=Phase.REBASE, rebases=state.rebases + 1)
            return state, self._settling(state, last=False)
        return self._settle(state) if state.concluding else self._score(state)

    def _settle(self, state: S) -> Answer[S]:
        """Measure the residual of the fit, if its likelihood needs that."""
        state = replace(state, phase=Phase.SETTLE)
        passes = self._settling(state, last=True)
        return (state, passes) if passes else self._on_settle(state)

    def _settling(self, state: S, *, last: bool) -> tuple[Instruction, ...]:
        problem, rows = state.problem, noise_rows(state.problem, state.options, state.seen)
        whole = sees_all(state.seen)
        return problem.likelihood.settling(problem, state.design, state.fit, rows, whole=whole, last=last)

    def _on_rebase(self, state: S, *events: Passed) -> Answer[S]:
        statistics = (event.statistic for event in events)
        return self._fit(replace(state, fit=state.problem.likelihood.settle(state.fit, *statistics, last=False)))

    def _on_settle(self, state: S, *events: Passed) -> Answer[S]:
        statistics = (event.statistic for event in events)
        fit = state.problem.likelihood.settle(state.fit, *statistics, last=True)
        return self._score(replace(state, fit=fit, settled=True))

    def _score(self, state: S) -> Answer[S]:
        if not state.problem.held_out:
            return self._save(state)
        look = state.problem.likelihood.score(state.design, state.fit, state.options.moderate)
        return replace(state, phase=Phase.SCORE), (look,)

    def _on_score(self, state: S, event: Passed) -> Answer[S]:
        return self._save(replace(state, scores=event.statistic))

    def _save(self, state: S) -> Answer[S]:
        line = record(
            state.problem,
            state.fit,
            state.scores,
            kind="final" if state.settled else "round",
            number=state.round,
            candidates=state.candidates,
            termination=state.reason,
            selection=state.selection,
            fit_rows=state.seen or state.options.last_rows,
            duplicates=state.duplicates,
            dropped=state.dropped,
        )
        return replace(state, phase=Phase.SAVED), (Save(state.design, state.fit, line, state.options.moderate),)

    def _on_saved(self, state: S, event: Event) -> Answer[S]:
        if not state.settled:
            return self._judge(state)
        reason = state.concluding
        if reason is None or reason is Termination.CONVERGED:
            reason = state.reason
        return replace(state, phase=Phase.OVER), (Finish(reason),)

    def last_fit(self, state: S, design: Design, warm: object) -> Answer[S]:
        """A run's only round: converge on these columns, over the rows of ``last_rows``."""
        state = replace(state, round=1, concluding=self.exhausted, candidates=len(design.labels), warm=warm)
        return self._measure(state, design)

    def _conclude(self, state: S, reason: Termination) -> Answer[S]:
        """The last fit: converge on the present statistics, or on those of all rows; then measure the residual."""
        fit = state.problem.likelihood.again(state.fit)
        state = replace(state, concluding=reason, rebases=0, candidates=fit.n_vectors, fit=fit)
        if state.seen == state.options.last_rows:
            return self._fit(state)
        nobody = state.design.take(NONE, leading=lacking(state.problem, state.design))
        return self._measure(state, nobody)

    def _on_grown(self, state: S, event: Event) -> Answer[S]:
        """After an append (``strategies.growing``): fit the present columns over all rows."""
        problem = state.problem
        state = replace(state, candidates=state.fit.n_vectors)
        new = np.arange(problem.batches[-2].stop, problem.n_rows, dtype=np.int64)
        passes = problem.likelihood.grow(problem, state.design, state.fit, new)
        if not passes:
            # the mode over all rows, at the α that the columns have: elsewhere a quadratic says nothing of α
            rule = StopRule(MODE, state.options.max_passes)
            return self._fit(replace(state, seen=state.options.fit_rows), rule=rule, hold=True)
        if not sees_all(state.seen):
            return self._next_round(replace(state, seen=""))
        return replace(state, phase=Phase.MERGE), passes

    def _on_merge(self, state: S, *events: Passed) -> Answer[S]:
        statistics = (event.statistic for event in events)
        fit = state.problem.likelihood.grown(state.problem, state.design, state.fit, *statistics)
        return self._fit(replace(state, fit=fit))


def record(problem: Problem, fit: Fit, scores: AnyScores | None = None, **facts: Any) -> Record:
    """A fit's line of history; ``facts`` are the fields of ``Record`` that the strategy knows."""
    return Record(**problem.likelihood.record(problem, fit, scores), **facts)
