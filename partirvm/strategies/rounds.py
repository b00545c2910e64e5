"""``incremental`` and ``working-set``: rounds, in which rows become candidates beside the vectors that are kept.

In ``incremental`` the partitions join in order; in ``working-set`` P unused rows join, which ``working_set`` chooses.

**A growing sample** (``fit_rows="growing"``). Which of M columns matter, and their α, are known from
``fit_rows.ROWS_PER_COLUMN`` rows per column nearly as well as from all rows. The sample doubles until it has so many
rows. It also doubles when a round gains little: with more rows, the evidence supports more vectors. A larger sample
contains the smaller one, and the Gram statistics of the fresh rows are added to those of the sample. A noise that
depends on the inputs is fitted to rows of the last sample, before the last fit: the products of all rows are then
computed once, with their weights.

**Learning the kernel again.** Before the fit, a kernel is learned from few centres. A model that needs many vectors
benefits from a kernel that is learned from more centres. Whenever the number of vectors has doubled since the last
learning, ``LearnKernel`` therefore searches for a better kernel at these vectors, on a sample of rows. One pass gives
the statistics of the same columns under the new kernel, over all rows. The kernel is taken if the evidence at the
current α and β is higher; the next round updates α and β. The evidence over all rows therefore never falls.

**Appended rows.** Scaling and kernel stay. A regression adds the statistics of the new rows to those of its columns;
the fit of a classification moves to the mode over all rows. The present columns are fitted first, in a round without
candidates whose model is saved. A regression that used a part of the rows skips this round. The usual rounds follow:
the working set chooses among all rows that were never candidates, ``incremental`` goes on with its remaining
partitions, then with those of the new rows. It also continues runs of ``basic`` and ``split-merge``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from partirvm.core.termination import StopRule, Termination
from partirvm.core.updates import HyperState
from partirvm.kernels import Kernel
from partirvm.kernels.design import NONE, Design
from partirvm.likelihoods.base import Pass, Rows
from partirvm.likelihoods.gaussian import with_rows
from partirvm.likelihoods.noise_fit import CONSTANT, FittedNoise
from partirvm.likelihoods.passes import GramPass
from partirvm.planning.cost import Schedule
from partirvm.strategies.fit_rows import (
    count_duplicates,
    enlarged,
    fresh,
    fresh_rows,
    grows,
    intermediate_rows,
    partition,
    posterior_rows,
)
from partirvm.strategies.problem import LearnKernel, Log, Options, Problem, Save, Steps
from partirvm.strategies.stages import (
    Best,
    RoundsState,
    columns_of,
    final_rule,
    first_state,
    intermediate_rule,
    line_of,
    measured,
    noise_of_sample,
    saved,
    scored,
    settled,
    solved,
    with_noise,
)
from partirvm.strategies.working_set import choose, judged, with_best, work_before_rounds, worse
from partirvm.types import LEARNING_FEATURES, LEARNING_ROWS

SHARE = 0.4
"""Maximum number of centres, as a fraction of the rows of kernel learning; with more centres the evidence overfits."""

GROWTH = 2
"""A kernel is learned again when the number of vectors is this multiple of the centres of the last learning.

Learning from fewer centres than before raises the evidence but also the error (airfoil, 139 vectors after 300 centres:
from 0.255 to 0.266 standard deviations of the target).
"""

MODE = 1e-2
"""Tolerance, in nats per row, of the mode that is found after an append (``core.newton.SETTLED``)."""


class Rounds:
    """Rounds until there is a reason to end; the schedule says whether candidates join in order or are selected."""

    schedule: ClassVar[Schedule]

    def start(self, problem: Problem, options: Options) -> RoundsState:
        """Return the state before the first round."""
        return first_state(problem, options, work=work_before_rounds(problem.n_rows, options.centres))

    def step(self, state: RoundsState) -> Steps[RoundsState]:
        """Go on to the next line of history; for a constant target, save a model without a round."""
        problem, options = state.problem, state.options
        if not problem.target_variance:
            return (yield from saved(state, "final", Termination.CONSTANT))
        if state.appended:
            return (yield from self.after_append(replace(state, appended=False)))
        if state.seen not in ("", "sample") and due(problem, options, state.fit, state.learned):
            return (yield from self.learn_again(state))
        # evidences are compared unless all rows so far have weight 0, or the last fit used other rows than the next
        if self.schedule.selects and state.seen == intermediate_rows(problem, options):
            state, reason = judged(state)
            if reason is Termination.VALIDATION and state.best is not None:
                return (yield from self.restore(state, state.best, reason))
            if reason is not None:
                return (yield from self.conclude(state, reason))
            if grows(state.seen) and (state.slow or state.flat) and self.room(state)[1] is None:
                state = yield from self.enlarge(state, enlarged(2 * options.sample_rows, 0, problem.n_rows))
        return (yield from self.next_round(state))

    def next_round(self, state: RoundsState) -> Steps[RoundsState]:
        """Run a round, or the last fit if a limit allows no further round; enlarge a sample that is too small."""
        while True:
            room, limit = self.room(state)
            if limit is not None:
                return (yield from self.conclude(state, limit))
            columns = state.fit.n_columns + room * state.problem.n_kernels
            rows = enlarged(state.options.sample_rows, columns, state.problem.n_rows)
            if not grows(state.seen) or rows <= state.options.sample_rows:
                break
            state = yield from self.enlarge(state, rows)
        state = replace(state, round=state.round + 1)
        if self.schedule.selects:
            state, chosen = yield from choose(state, room)
        else:
            rows_in_order = partition(state.problem, state.options, state.round - 1)
            chosen = yield from columns_of(state.design, rows_in_order)
        return (yield from self.join(state, chosen))

    @property
    def exhausted(self) -> Termination:
        """Reason for the end of a run in which every row has been a candidate."""
        return Termination.EXHAUSTED if self.schedule.selects else Termination.CONVERGED

    def room(self, state: RoundsState) -> tuple[int, Termination | None]:
        """Return the number of rows that may join in the next round and, if it is 0, the reason for the end.

        A part of the selected rows may join when a limit excludes the others; partitions join whole.
        """
        options, problem, each = state.options, state.problem, state.problem.n_kernels
        if options.max_rounds is not None and state.round >= options.max_rounds:
            return 0, Termination.ROUNDS
        unused = problem.n_rows - len(state.used)
        if not self.schedule.selects:
            unused = len(partition(problem, options, state.round))
        proposed = each and each * min(problem.rows_of(options.partition_size), unused)
        if not proposed:
            return 0, self.exhausted
        vectors = np.inf if options.max_vectors is None else options.max_vectors - state.fit.n_vectors
        if vectors < (each if self.schedule.selects else proposed):
            return 0, Termination.VECTORS
        beside = max(len(problem.missing_leading(state.design)), 1)
        columns = np.inf if options.max_columns is None else options.max_columns - state.fit.n_columns - beside
        if columns < min(proposed, vectors):
            return 0, Termination.MEMORY
        return int(min(proposed, vectors)) // each, None

    def join(self, state: RoundsState, chosen: Design) -> Steps[RoundsState]:
        """Fit these candidates beside the vectors; if no further round is possible, their fit is the last."""
        new = chosen.take(fresh(chosen, state.design), leading=state.problem.missing_leading(state.design))
        candidates, duplicates = state.fit.n_vectors + len(new.labels), state.duplicates + count_duplicates(chosen, new)
        state = replace(state, candidates=candidates, duplicates=duplicates)
        if not len(new.labels):
            return replace(state, reason=Termination.CONVERGED)
        limit, rows = self.room(state)[1], intermediate_rows(state.problem, state.options)
        if limit in {Termination.ROUNDS, self.exhausted} and not grows(rows):
            assert limit is not None
            state = yield from measured(state, new, state.options.last_rows)
            return (yield from self.last_fit(state, limit))
        state = yield from measured(state, new, rows)
        state = yield from solved(state, rule_of(state))
        state = yield from self.scored(state)
        return (yield from saved(state, "round"))

    def scored(self, state: RoundsState) -> Steps[RoundsState]:
        """Score the fit on held-out rows; the working set keeps the best round."""
        state = yield from scored(state)
        return with_best(state) if self.schedule.selects else state

    def enlarge(self, state: RoundsState, count: int) -> Steps[RoundsState]:
        """Enlarge the sample to ``count`` rows; the columns, α and β stay.

        The next evidence is compared with that of the same fit over the larger sample. Without statistics that can be
        added, the next fit computes those of all its columns, and its evidence is compared with none.
        """
        problem, options, fit = state.problem, replace(state.options, sample_rows=count), state.fit
        rows = fresh_rows(problem, state.options, options)
        passes = () if rows is None else passes_over(state, rows)
        more, seen, evidence = count - state.options.sample_rows, "", -np.inf
        if passes:
            fit = with_rows(fit, *(yield passes))
            more, seen, evidence = fit.n - state.fit.n, intermediate_rows(problem, options), fit.log_evidence
        work = state.work + more * fit.n_columns**2
        return replace(state, options=options, seen=seen, fit=fit, evidence=evidence, work=work)

    def conclude(self, state: RoundsState, reason: Termination) -> Steps[RoundsState]:
        """Run the last fit; if it uses other rows than the current fit, measure them first."""
        grew, noise = grows(state.seen), None
        if grew and state.options.noise != CONSTANT:
            noise = yield from noise_of_sample(state)
            if noise is not None and noise.noise is not None:
                state = yield from with_noise(state, noise)
                return (yield from self.last_fit(state, reason, noise))
        state = replace(state, candidates=state.fit.n_vectors, fit=state.fit.again())
        if grew:
            state = yield from self.enlarge(state, state.problem.n_rows)
        if state.seen != state.options.last_rows:
            leading = NONE if grew else state.problem.missing_leading(state.design)
            state = yield from measured(state, state.design.take(NONE, leading=leading), state.options.last_rows)
        return (yield from self.last_fit(state, reason, noise))

    def last_fit(self, state: RoundsState, reason: Termination, noise: FittedNoise | None = None) -> Steps[RoundsState]:
        """Fit until convergence, settle, score and save."""
        state = yield from solved(state, final_rule(state.options))
        state = yield from settled(state, noise)
        return (yield from self.ended(state, reason))

    def ended(self, state: RoundsState, reason: Termination) -> Steps[RoundsState]:
        """Score a settled fit and save its model, or restore the best round if the fit is worse."""
        state = yield from self.scored(state)
        if state.best is not None and worse(state, state.best):
            return (yield from self.restore(state, state.best, reason))
        return (yield from saved(state, "final", reason))

    def restore(self, state: RoundsState, best: Best, reason: Termination) -> Steps[RoundsState]:
        """End with the model of the best round, unchanged: a further fit could be worse again.

        If the best round used a sample, a last fit over all rows follows.
        """
        own = {name: getattr(best, name) for name in ("design", "fit", "seen", "round", "candidates", "reason")}
        state = replace(state, problem=state.problem.with_kernel(best.design.kernel), **own)
        if best.seen == state.options.last_rows:
            state = yield from settled(state)
            return (yield from self.ended(state, reason))
        # a sample may have grown since the best round: its statistics are those of another sample
        return (yield from self.conclude(replace(state, seen="" if grows(best.seen) else best.seen), reason))

    def learn_again(self, state: RoundsState) -> Steps[RoundsState]:
        """Learn the kernel at the vectors of the fit, and keep it if the evidence over all rows is larger."""
        problem, options, old = state.problem, state.options, state.fit
        assert isinstance(old, HyperState)
        sample = replace(options, sample_rows=learning_rows(state.design.centres.shape[1]))
        rows = posterior_rows(problem, sample, "sample")
        (found,) = yield (LearnKernel(state.design, old, rows, options.gamma_prior),)
        facts = {"candidates": old.n_vectors, "fit_rows": state.seen, "kernel": found.kernel.spec()}
        state, gain, taken = replace(state, learned=old.n_vectors), 0.0, False
        if found.better:
            tried = yield from with_kernel(state, found.kernel)
            gain = tried.fit.log_evidence - old.log_evidence
            taken = gain > options.tol * tried.fit.n
            if taken:
                state = yield from self.scored(tried)
        line = line_of(state, kind="kernel", gain=gain, taken=taken, **facts)
        line = replace(line, rows=found.rows, iterations=found.evaluations)
        yield (Save(state.design, state.fit, line, options.moderate) if taken else Log(line),)
        return state

    def after_append(self, state: RoundsState) -> Steps[RoundsState]:
        """Fit the present columns to all rows after an append."""
        state, problem = replace(state, candidates=state.fit.n_vectors), state.problem
        passes = passes_over(state, range(problem.batches[-2].stop, problem.n_rows))
        if passes and state.seen != "full":
            return (yield from self.next_round(replace(state, seen="")))
        if passes:
            fit = with_rows(state.fit, *(yield passes))
            state = yield from solved(replace(state, fit=fit), rule_of(state))
        else:
            # first find the mode over all rows at fixed α: a quadratic approximation is valid for α only at the mode
            rule = StopRule(MODE, state.options.max_passes)
            state = yield from solved(replace(state, seen=state.options.fit_rows), rule, hold=True)
        state = yield from self.scored(state)
        return (yield from saved(state, "round"))


class IncrementalRounds(Rounds):
    """The incremental strategy of Ben-Shimon & Shmilovici (2006, §2.2): the partitions join in order, one a round."""

    name: ClassVar[str] = "incremental"
    schedule: ClassVar[Schedule] = Schedule(name, whole_partitions=True)


class WorkingSetRounds(Rounds):
    """The working-set strategy of Ben-Shimon & Shmilovici (2006, §2.3); by default fits use all rows."""

    name: ClassVar[str] = "working-set"
    schedule: ClassVar[Schedule] = Schedule(name, selects=True)


def rule_of(state: RoundsState) -> StopRule:
    """Return the rule that ends the fit of a round; after a flat round the fit converges."""
    options = state.options
    return replace(final_rule(options), thin=False) if state.patient else intermediate_rule(options, state.candidates)


def passes_over(state: RoundsState, rows: Rows) -> tuple[Pass, ...]:
    """Return the passes for the statistics of the fit's columns over further rows; none if they cannot be added."""
    problem, likelihood = state.problem, state.problem.likelihood
    return likelihood.measure(likelihood.start(problem), problem.empty, state.design, rows)


def with_kernel(state: RoundsState, kernel: Kernel) -> Steps[RoundsState]:
    """Measure the columns of the fit under another kernel, at the same α and β."""
    problem, design = state.problem.with_kernel(kernel), replace(state.design, kernel=kernel)
    rows = posterior_rows(problem, state.options, state.seen)
    nothing = np.zeros((0, len(problem.empty.scaling.t_shift)))
    (block,) = yield (GramPass(problem.empty, design, nothing, rows=rows),)
    fit = problem.likelihood.join(problem, state.fit, problem.empty, design, block)
    return replace(state, problem=problem, design=design, fit=fit)


def due(problem: Problem, options: Options, fit: Any, centres: int) -> bool:
    """Return whether a kernel that was learned from ``centres`` centres should be learned again at this fit's vectors.

    The result is false if the kernel was not learned before the fit, or if there are too many vectors for the rows
    (``SHARE``). It is also false if there is not enough memory for all columns in one pass. In classification the
    result is always false: the benefit has not been measured, and a comparison would take a whole fit over all rows.
    """
    if not options.centres or not problem.likelihood.relearns:
        return False
    rows = learning_rows(problem.empty.centres.shape[1])
    maximum = min(int(SHARE * min(problem.n_rows, rows)), options.learning_columns - 1)
    return bool(GROWTH * max(centres, options.centres) <= fit.n_vectors <= maximum)


def learning_rows(n_features: int) -> int:
    """Return the maximum number of rows from which a kernel is learned again.

    >>> learning_rows(50), learning_rows(2_000)
    (8000, 200)
    """
    return max(min(LEARNING_ROWS, LEARNING_ROWS * LEARNING_FEATURES // n_features), 1)


def with_appended_rows(state: RoundsState, problem: Problem, options: Options) -> RoundsState:
    """Return the state of a checkpoint, with these options and a problem with additional rows (``fit_rows.joined``).

    The kernel of the checkpoint stays and is not learned again. Earlier evidences and errors are no longer compared.
    """
    return replace(
        state,
        problem=replace(problem, empty=state.problem.empty),
        options=replace(options, centres=0),
        reason=Termination.CONVERGED,
        dropped=0,
        scores=None,
        end=None,
        appended=True,
        evidence=-np.inf,
        flat=0,
        patient=False,
        best=None,
        work=work_before_rounds(problem.n_rows, 0),
        slow=0,
    )
