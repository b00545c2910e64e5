"""``basic`` and ``incremental``: rounds in which rows become candidates along with the kept
vectors.

In ``incremental``, partitions join in order; ``basic`` has one partition; ``working_set`` selects
candidates.

After an append, scaling and kernel do not change. The current columns are fitted first, in a round
without candidates whose model is saved, unless a regression used only a subset of the rows. The
usual rounds follow; ``incremental``, which also continues ``basic`` and ``split-merge``, proceeds
with the remaining partitions and then with the partitions of the new rows.
"""

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from partirvm.core.termination import Termination
from partirvm.kernels.design import NONE, Design
from partirvm.likelihoods.gaussian import with_rows
from partirvm.planning.cost import Schedule
from partirvm.spec.panel_pass import Pass, Rows
from partirvm.spec.problem import Options, Problem
from partirvm.strategies import stages
from partirvm.strategies.fit_rows import (
    GROWING,
    ROWS_PER_COLUMN,
    enlarged,
    fresh,
    intermediate_rows,
    partition,
)
from partirvm.strategies.instructions import Steps
from partirvm.strategies.stages import INTERMEDIATE, RoundsState

MAX_COLUMNS = 200
"""Maximum number of kernel columns of an early fit, summed over all outputs."""

MIN_CANDIDATES = 5
"""Minimum number of candidates of an early fit."""

EARLY_ROWS = 2000
"""Maximum number of rows of an early fit."""

STEPS = 50
"""Maximum number of iterations of an early fit; in classification, iterations are passes."""


class Rounds:
    """Strategy that runs rounds until there is a reason to end; in this class, the candidates are
    the partitions in order."""

    schedule: ClassVar[Schedule]
    used_up: ClassVar[Termination] = Termination.CONVERGED
    rows_per_column: ClassVar[int] = ROWS_PER_COLUMN
    due = staticmethod(stages.due)

    def start(self, problem: Problem, options: Options) -> RoundsState:
        """Return the state before the first round."""
        return stages.first_state(problem, options)

    def step(self, state: RoundsState) -> Steps[RoundsState]:
        """Continue to the next history line; for a constant target, save a model without a
        round."""
        problem = state.problem
        options = state.options
        if not problem.target_variance:
            return (yield from stages.saved(state, "final", Termination.CONSTANT))
        if state.appended:
            return (yield from self.after_append(replace(state, appended=False)))
        has_rows = state.seen not in ("", "sample")
        if has_rows and self.due(problem, options, state.fit, state.learned):
            return (yield from stages.learned_again(state))
        return (yield from self.next_round(state))

    def next_round(self, state: RoundsState) -> Steps[RoundsState]:
        """Run a round, or the last fit if a limit allows no further round; enlarge a sample that is
        too small."""
        room, limit = self.room(state)
        if limit is not None:
            return (yield from self.conclude(state, limit))
        columns = len(state.fit.labels) + room * state.problem.n_kernels
        sample_rows = state.options.sample_rows
        rows = enlarged(sample_rows, columns, state.problem.n_rows, self.rows_per_column)
        if state.seen == GROWING and rows > sample_rows:
            state = yield from self.enlarge(state, rows)
        state, chosen = yield from self.choose(replace(state, round=state.round + 1), room)
        return (yield from self.join(state, chosen))

    def choose(self, state: RoundsState, room: int) -> Steps[tuple[RoundsState, Design]]:
        """Return the state, which may record the choice, and the round's candidates, at most
        ``room`` rows."""
        part = partition(state.problem, state.options, state.round - 1)
        return state, (yield from stages.columns_of(state.design, part))

    def joining(self, state: RoundsState) -> tuple[int, int]:
        """Return the minimum and maximum number of rows that may join in the next round, ignoring
        limits."""
        rows = (
            len(partition(state.problem, state.options, state.round))
            if state.problem.n_kernels
            else 0
        )
        return rows, rows

    def room(self, state: RoundsState) -> tuple[int, Termination | None]:
        """Return how many rows may join next within all limits, and the reason to end if none may
        join."""
        options = state.options
        problem = state.problem
        n_kernels = problem.n_kernels
        if problem.mean_only:
            return 0, Termination.CONVERGED
        if options.max_rounds is not None and state.round >= options.max_rounds:
            return 0, Termination.ROUNDS
        least, most = self.joining(state)
        proposed = n_kernels * min(problem.rows_of(options.partition_size), most)
        if not proposed:
            return 0, self.used_up
        vectors = (
            np.inf if options.max_vectors is None else options.max_vectors - state.fit.n_vectors
        )
        if vectors < min(n_kernels * least, proposed):
            return 0, Termination.VECTORS
        beside = max(len(problem.missing_leading(state.design)), 1)
        columns = (
            np.inf
            if options.max_columns is None
            else options.max_columns - len(state.fit.labels) - beside
        )
        if columns < min(proposed, vectors):
            return 0, Termination.MEMORY
        return int(min(proposed, vectors)) // n_kernels, None

    def join(self, state: RoundsState, chosen: Design) -> Steps[RoundsState]:
        """Fit these candidates along with the vectors; if no further round is possible, this is the
        last fit."""
        new = chosen.take(
            fresh(chosen, state.design), leading=state.problem.missing_leading(state.design)
        )
        state = replace(state, candidates=state.fit.n_vectors + len(new.labels))
        if not len(new.labels):
            return replace(state, reason=Termination.CONVERGED)
        limit = self.room(state)[1]
        rows = intermediate_rows(state.problem, state.options)
        if limit not in (None, Termination.VECTORS, Termination.MEMORY) and rows != GROWING:
            state = yield from stages.extended(state, new, state.options.last_rows)
            return (yield from self.last_fit(state, limit))
        state = yield from stages.extended(state, new, rows)
        return (yield from _round(state, new))

    def enlarge(self, state: RoundsState, count: int) -> Steps[RoundsState]:
        """Enlarge the sample to ``count`` rows; the next evidence is compared with this fit's
        evidence over the enlarged sample."""
        problem = state.problem
        options = replace(state.options, sample_rows=count)
        fit = state.fit
        neighbours = problem.codes is None and problem.shuffled  # new rows follow the sample's rows
        passes = (
            passes_over(state, range(state.options.sample_rows, min(count, problem.n_rows)))
            if neighbours
            else ()
        )
        more = count - state.options.sample_rows
        seen = ""
        evidence = -np.inf
        if passes:
            fit = with_rows(fit, *(yield passes))
            more = fit.n - state.fit.n
            seen = intermediate_rows(problem, options)
            evidence = fit.log_evidence
        elif problem.likelihood.has_ramp:
            # the log density of left-out rows is proportional to their number
            evidence = state.evidence * count / max(fit.n, 1)
        work = state.work + more * len(fit.labels) ** 2
        return replace(state, options=options, seen=seen, fit=fit, evidence=evidence, work=work)

    def conclude(self, state: RoundsState, reason: Termination) -> Steps[RoundsState]:
        """Run the last fit; if its rows differ from the current fit's rows, compute their
        statistics first."""
        grew = state.seen == GROWING
        state = replace(state, candidates=state.fit.n_vectors)
        if grew:
            state = yield from self.enlarge(state, state.problem.n_rows)
        if state.seen != state.options.last_rows:
            leading = NONE if grew else state.problem.missing_leading(state.design)
            state = yield from stages.extended(
                state, state.design.take(NONE, leading=leading), state.options.last_rows
            )
        return (yield from self.last_fit(state, reason))

    def last_fit(
        self, state: RoundsState, reason: Termination, warm: Any = None
    ) -> Steps[RoundsState]:
        """Fit until convergence, from ``warm`` if given; settle, score and save. The limit on
        vectors holds."""
        state = yield from stages.solved(state, stages.final_rule(state.options), warm=warm)
        most = state.options.max_vectors
        if most is not None and state.fit.n_vectors > most:
            state = yield from stages.limited(state)
            reason = Termination.VECTORS
        state = yield from stages.settled((yield from stages.pruned(state)))
        return (yield from self.ended(state, reason))

    def ended(self, state: RoundsState, reason: Termination) -> Steps[RoundsState]:
        state = yield from stages.scored(state)
        return (yield from stages.saved(state, "final", reason))

    def after_append(self, state: RoundsState) -> Steps[RoundsState]:
        """Fit the current columns to all rows after an append."""
        state, problem = replace(state, candidates=state.fit.n_vectors), state.problem
        passes = passes_over(state, range(problem.batches[-2].stop, problem.n_rows))
        if passes and state.seen != "full":
            return (yield from self.next_round(replace(state, seen="")))
        if passes:
            state = replace(state, fit=with_rows(state.fit, *(yield passes)))
        return (
            yield from _round(replace(state, seen=state.seen if passes else state.options.fit_rows))
        )


class BasicRound(Rounds):
    """A single round in which every row is a candidate, used for small N and as the reference for
    other strategies."""

    schedule: ClassVar[Schedule] = Schedule("basic", one_fit=True)

    def start(self, problem: Problem, options: Options) -> RoundsState:
        """Return the state before the fit, in which all rows form one partition."""
        options = replace(
            options, partition_size=problem.n_rows * problem.n_kernels, fit_rows="full"
        )
        options = replace(options, max_rounds=None, max_columns=None)
        return stages.first_state(problem, options, selection="all")

    def room(self, state: RoundsState) -> tuple[int, Termination | None]:
        """Return how many rows may join next: ``max_vectors`` applies only to the remaining
        vectors."""
        return super().room(replace(state, options=replace(state.options, max_vectors=None)))


class IncrementalRounds(Rounds):
    """The incremental strategy of Ben-Shimon & Shmilovici (2006, §2.2): the partitions join in
    order, one per round."""

    schedule: ClassVar[Schedule] = Schedule("incremental")


def early_state(problem: Problem, options: Options) -> RoundsState:
    """Return the ``IncrementalRounds`` state before a small fit, for a run that the time limit ends
    before its first model.

    The fit uses only ``seed``, ``tol`` and ``moderate``, takes about a second, and writes no
    checkpoint.
    """
    rows = min(EARLY_ROWS, problem.n_rows)
    outputs = max(problem.n_outputs, problem.n_targets)
    candidates = max(MAX_COLUMNS // (outputs * max(problem.n_kernels, 1)), MIN_CANDIDATES)
    if options.max_vectors is not None:
        candidates = min(candidates, options.max_vectors // max(problem.n_kernels, 1))
    size = min(candidates, rows) * problem.n_kernels
    few = Options(
        size,
        "random",
        "sample",
        "sample",
        rows,
        max_rounds=1,
        max_iterations=STEPS,
        max_passes=STEPS,
        tol=INTERMEDIATE * options.tol,
        moderate=options.moderate,
        seed=options.seed,
    )
    return stages.first_state(replace(problem, held_out=False, batches=()), few, selection="random")


def _round(state: RoundsState, new: Design | None = None) -> Steps[RoundsState]:
    """Fit, score and save; after a flat round, the fit runs until convergence."""
    patient = replace(stages.final_rule(state.options), thin=False)
    options = state.options
    rule = patient if state.patient else stages.intermediate_rule(options, state.candidates)
    state = yield from stages.solved(state, rule)
    stayed = None if new is None else int(np.isin(new.labels, state.design.labels).sum())
    state = yield from stages.scored(replace(state, stayed=stayed))
    return (yield from stages.saved(state, "round"))


def passes_over(state: RoundsState, rows: Rows) -> tuple[Pass, ...]:
    """Return the passes for the statistics of the fit's columns over additional rows; none if
    statistics cannot be added."""
    problem = state.problem
    likelihood = state.problem.likelihood
    return likelihood.measure(likelihood.start(problem), problem.empty, state.design, rows)


def with_appended_rows(state: RoundsState, problem: Problem, options: Options) -> RoundsState:
    """Return a checkpoint's state for a problem with additional rows (``fit_rows.joined``) and an
    unchanged kernel."""
    fields = (
        "design",
        "fit",
        "round",
        "selection",
        "seen",
        "candidates",
        "learned",
        "used",
        "kept",
    )
    # new groups may have further columns
    functions = problem.empty.functions
    problem = replace(problem, empty=replace(state.problem.empty, functions=functions))
    options = replace(options, centres=0)
    fresh_state = stages.first_state(problem, options, appended=True)
    fresh_state = replace(fresh_state, **{name: getattr(state, name) for name in fields})
    return replace(fresh_state, design=replace(state.design, functions=functions))
