"""Rounds: the common part of all strategies that fit a sequence of basic RVMs.

In a *round*, rows become candidates, a Gram pass gives the statistics of their columns, a dense fit follows, and the
model is saved. The model is usable after every round. An intermediate fit ends when the number of vectors falls to
``stop_fraction``. The last fit converges, uses all rows, and estimates the noise variance from a residual pass.
Subclasses choose the next rows and decide when to end.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from partirvm.core.left_out import LeftOut
from partirvm.core.scores import ClassScores, Scores
from partirvm.core.termination import StopRule, Termination
from partirvm.kernels.design import NONE, Design
from partirvm.likelihoods.base import Begin, Fit, survivors
from partirvm.likelihoods.gaussian import left_out_diagnostics, with_rows
from partirvm.likelihoods.noise_fit import FittedNoise
from partirvm.strategies.fit_rows import (
    grows,
    intermediate_rows,
    posterior_rows,
)
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


DIAGNOSED = ("round", "final")
"""Kinds of history lines with diagnostics: those whose model may be the result of the run."""

MODE = 1e-2
"""Tolerance, in nats per row, of the mode that is found after an append (``core.newton.SETTLED``)."""


class Phase(Enum):
    """The next expected event. The method ``_on_x`` handles an event in phase X."""

    ROWS = "inputs of the chosen rows"
    POOL = "inputs of the pool"
    GAINS = "cross products of the pool"
    ERRORS = "rows of largest error"
    GRAM = "the gram pass"
    FIT = "the dense fit"
    REBASE = "the residual target"
    SETTLE = "the last residual"
    SCORE = "the held-out error"
    LEARN = "a better kernel"
    GROW = "fresh rows of a growing sample"
    GROWN = "appended rows"
    MERGE = "statistics of appended rows"
    NOISE_ROWS = "inputs of rows left out"
    NOISE = "a noise that depends on the inputs"
    STOPPED = "the model of a stopped run on disk"
    SAVED = "the model on disk"
    OVER = "nothing"


@dataclass(frozen=True)
class Standing:
    """The current fit, kept while the evidence over all rows is computed for a newly ``learned`` kernel."""

    problem: Problem
    design: Design
    fit: Fit
    learned: KernelLearned


@dataclass(frozen=True)
class RoundsState:
    """The checkpoint: the phase of the state machine, the columns and the fit.

    ``chosen`` are the rows that join in this round, and ``incoming`` are their columns. ``seen`` is the value of
    ``fit_rows`` for the statistics of the fit; it is empty before the first fit. ``concluding`` is the reason for the
    end of the run, set before the last fit. ``warm`` is the start of a fit over other rows; None means the current
    fit. ``learned`` is the number of vectors when the kernel was last learned again. ``standing`` is the
    fit to restore if the kernel under trial is rejected. ``constant`` is the last fit with constant noise, ``sample``
    the rows left out to which the noise is fitted, and ``noise`` the result (``strategies.local_noise``).
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
    warm: Any = None
    learned: int = 0
    standing: Standing | None = None
    constant: tuple[Design, Fit] | None = None
    sample: LeftOut | None = None
    noise: FittedNoise | None = None


S = TypeVar("S", bound=RoundsState)
Answer: TypeAlias = tuple[S, tuple[Instruction, ...]]
"""A state and the next instructions."""


class Rounds(Generic[S]):
    """Rounds until there is a reason to end; subclasses propose rows and decide after each round."""

    name = ""
    exhausted = Termination.CONVERGED
    """Reason for the end of a run in which every row has been a candidate."""
    divisible = False
    """True if a part of the proposed rows may join when a limit excludes the others."""

    def first(self, problem: Problem, options: Options) -> S:
        """Return the state before the first round."""
        raise NotImplementedError

    def start(self, problem: Problem, options: Options) -> Answer[S]:
        """Begin the first round; for a constant target, save a model without a round."""
        state = self.first(problem, options)
        if not problem.target_variance:
            return self._save(replace(state, concluding=Termination.CONSTANT, settled=True))
        return self._next_round(state)

    def next(self, state: S, *events: Event) -> Answer[S]:
        """Return the state and the instructions that follow these events."""
        if isinstance(events[0], Stop):
            return replace(state, phase=Phase.OVER), (Finish(events[0].reason),)
        answer: Answer[S] = getattr(self, f"_on_{state.phase.name.lower()}")(state, *events)
        return answer

    def _unused(self, state: S) -> int:
        """Return the maximum number of rows that the next round may propose."""
        raise NotImplementedError

    def _propose(self, state: S, room: int) -> Answer[S]:
        """Find at most ``room`` rows for the next round."""
        raise NotImplementedError

    def _judge(self, state: S) -> Answer[S]:
        """Continue after a round, by default with the next one."""
        return self._next_round(state)

    def _next_round(self, state: S) -> Answer[S]:
        """Begin a round, or begin the last fit if a limit allows no further round."""
        room, limit = self._room(state)
        if limit is not None:
            return self._conclude(state, limit)
        return self._propose(replace(state, round=state.round + 1, rebases=0), room)

    def _room(self, state: S) -> tuple[int, Termination | None]:
        """Return the number of rows that may join in the next round and, if it is 0, the reason for the end."""
        options, problem = state.options, state.problem
        if options.max_rounds is not None and state.round >= options.max_rounds:
            return 0, Termination.ROUNDS
        each = problem.n_kernels
        proposed = each and each * min(problem.rows_of(options.partition_size), self._unused(state))
        if not proposed:
            return 0, self.exhausted
        vectors = np.inf if options.max_vectors is None else options.max_vectors - state.fit.n_vectors
        if vectors < (each if self.divisible else proposed):
            return 0, Termination.VECTORS
        beside = max(len(lacking(problem, state.design)), 1)
        columns = np.inf if options.max_columns is None else options.max_columns - state.fit.n_columns - beside
        if columns < min(proposed, vectors):
            return 0, Termination.MEMORY
        return int(min(proposed, vectors)) // each, None

    def _on_rows(self, state: S, event: Gathered) -> Answer[S]:
        assert state.chosen is not None
        present = slice(None) if event.present is None else event.present
        return self._admit(state, state.design.with_centres(event.points[present], state.chosen[present]))

    def _admit(self, state: S, chosen: Design) -> Answer[S]:
        """Make these columns candidates; if no further round is possible, their fit is the last."""
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
        if limit in {Termination.ROUNDS, self.exhausted} and not grows(intermediate_rows(state.problem, state.options)):
            state = replace(state, concluding=limit)
        return self._measure(state, new)

    def _measure(self, state: S, new: Design) -> Answer[S]:
        """Request the statistics of the new columns, or of all columns if the rows of the fit change."""
        problem, options = state.problem, state.options
        fit_rows = options.last_rows if state.concluding else intermediate_rows(problem, options)
        rows, likelihood = posterior_rows(problem, options, fit_rows), problem.likelihood
        if fit_rows == state.seen:
            passes = likelihood.measure(state.fit, state.design, new, rows)
        else:
            passes = likelihood.measure(likelihood.start(problem), problem.empty, state.design.join(new), rows)
            state = replace(state, seen="")
        state = replace(state, phase=Phase.GRAM, incoming=new)
        return (state, passes) if passes else self._on_gram(state)

    def _on_gram(self, state: S, *events: Passed) -> Answer[S]:
        problem, options, fit = state.problem, state.options, state.fit
        assert state.incoming is not None
        blocks, design = [event.statistic for event in events], state.design.join(state.incoming)
        if state.seen:
            fit = problem.likelihood.join(problem, fit, state.design, state.incoming, *blocks)
        else:
            fit = problem.likelihood.join(problem, fit, problem.empty, design, *blocks, warm=state.warm)
        seen = options.last_rows if state.concluding else intermediate_rows(problem, options)
        return self._fit(replace(state, design=design, fit=fit, incoming=None, seen=seen))

    def _rule(self, state: S) -> StopRule:
        """Return the rule that ends the next fit."""
        if state.concluding:
            return final_rule(state.options)
        return intermediate_rule(state.options, state.candidates)

    def _fit(self, state: S, *, rule: StopRule | None = None, hold: bool = False) -> Answer[S]:
        """Request a fit of the design's columns over the fit rows, started from the current fit."""
        problem, options = state.problem, state.options
        rule = rule or self._rule(state)
        if state.rebases >= REBASES:
            rule = replace(rule, guard=False)
        rows = posterior_rows(problem, options, state.seen)
        begin = Begin(rule, state.candidates, rows, state.warm, hold)
        task = problem.likelihood.fit(problem, options, state.design, state.fit, begin)
        return replace(state, phase=Phase.FIT), (task,)

    def _on_fit(self, state: S, event: Solved) -> Answer[S]:
        state = replace(state, design=survivors(state.design, event.fit), fit=event.fit, reason=event.reason)
        if event.reason is Termination.CANCELLED:
            state = replace(state, phase=Phase.REBASE, rebases=state.rebases + 1)
            return state, self._settling(state, last=False)
        return self._settle(state) if state.concluding else self._score(state)

    def _settle(self, state: S) -> Answer[S]:
        """Request a residual pass for the last fit, if the likelihood needs one."""
        state = replace(state, phase=Phase.SETTLE)
        passes = self._settling(state, last=True)
        return (state, passes) if passes else self._on_settle(state)

    def _settling(self, state: S, *, last: bool) -> tuple[Instruction, ...]:
        problem, rows = state.problem, posterior_rows(state.problem, state.options, state.seen)
        whole = state.seen != "sample"
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
        request = state.problem.likelihood.score(state.design, state.fit, state.options.moderate)
        return replace(state, phase=Phase.SCORE), (request,)

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
            noise_vectors=None if state.design.noise is None else len(state.design.noise.weights),
        )
        return replace(state, phase=Phase.SAVED), (Save(state.design, state.fit, line, state.options.moderate),)

    def _on_saved(self, state: S, event: Event) -> Answer[S]:
        if not state.settled:
            return self._judge(state)
        reason = state.concluding
        if reason is None or reason is Termination.CONVERGED:
            reason = state.reason
        return replace(state, phase=Phase.OVER), (Finish(reason),)

    def last_fit(self, state: S, design: Design, warm: Any = None) -> Answer[S]:
        """Begin a run's only round: a converging fit of these columns."""
        state = replace(state, round=1, concluding=self.exhausted, candidates=len(design.labels), warm=warm)
        return self._measure(state, design)

    def _conclude(self, state: S, reason: Termination) -> Answer[S]:
        """Begin the last fit; if it uses other rows than the current fit, request their statistics first."""
        fit = state.fit.again()
        state = replace(state, concluding=reason, rebases=0, candidates=fit.n_vectors, fit=fit)
        if state.seen == state.options.last_rows:
            return self._fit(state)
        leading_only = state.design.take(NONE, leading=lacking(state.problem, state.design))
        return self._measure(state, leading_only)

    def _on_grown(self, state: S, event: Event) -> Answer[S]:
        """Fit the present columns over all rows after an append (``strategies.appended``)."""
        problem = state.problem
        state = replace(state, candidates=state.fit.n_vectors)
        new = range(problem.batches[-2].stop, problem.n_rows)
        likelihood = problem.likelihood
        passes = likelihood.measure(likelihood.start(problem), problem.empty, state.design, new)
        if not passes:
            # first find the mode over all rows at fixed α: a quadratic approximation is valid for α only at the mode
            rule = StopRule(MODE, state.options.max_passes)
            return self._fit(replace(state, seen=state.options.fit_rows), rule=rule, hold=True)
        if state.seen != "full":
            return self._next_round(replace(state, seen=""))
        return replace(state, phase=Phase.MERGE), passes

    def _on_merge(self, state: S, *events: Passed) -> Answer[S]:
        (event,) = events
        return self._fit(replace(state, fit=with_rows(state.fit, event.statistic)))


def record(problem: Problem, fit: Fit, scores: AnyScores | None = None, **facts: Any) -> Record:
    """Return a fit's line of history; ``facts`` are fields of ``Record`` that do not depend on the likelihood."""
    found = left_out_diagnostics(problem, fit) if scores is None else scores.diagnostics
    diagnostics = [each.to_json() for each in found] if facts["kind"] in DIAGNOSED else []
    return Record(**problem.likelihood.record(problem, fit, scores), **facts, diagnostics=diagnostics)
