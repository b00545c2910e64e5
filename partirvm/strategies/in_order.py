"""``incremental`` and ``basic``: partitions of neighbouring rows join one after the other, or all rows join at once.

A run whose time limit ends it before the first round is over gets a model by a small fit (``Early``). ``FLOPS`` bounds
its numbers of rows, candidates and steps, so that the cost is small for any data. It writes a line of history but no
checkpoint: a later resume ignores it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from partirvm.core.termination import Termination
from partirvm.kernels.design import Design
from partirvm.planning.cost import Schedule
from partirvm.strategies.fit_rows import partition, posterior_rows
from partirvm.strategies.instructions import Steps
from partirvm.strategies.problem import Options, Problem
from partirvm.strategies.rounds import Rounds
from partirvm.strategies.selection import count_duplicates, fresh
from partirvm.strategies.stages import (
    INTERMEDIATE,
    RoundsState,
    columns_of,
    final_rule,
    measured,
    saved,
    scored,
    settled,
    solved,
)

Int = NDArray[np.int64]

MAX_CANDIDATES, MIN_CANDIDATES = 300, 10
"""Maximum and minimum number of candidate rows of an early fit."""

STEPS = 50
"""Number of iterations that ``FLOPS`` must cover; in classification, iterations are Newton passes."""

FLOPS = 1e10
"""Maximum number of multiplications and additions of all steps; they take a fraction of a second."""


class IncrementalRounds(Rounds[RoundsState]):
    """The incremental strategy of Ben-Shimon & Shmilovici (2006, §2.2): the partitions join in order, one a round."""

    name = "incremental"
    schedule: ClassVar[Schedule] = Schedule(name, whole_partitions=True)

    def start(self, problem: Problem, options: Options) -> RoundsState:
        """Return the state before the first partition joins."""
        return RoundsState(problem, options, problem.empty, problem.likelihood.start(problem))

    def unused(self, state: RoundsState) -> int:
        """Return the number of rows of the next partition."""
        return len(partition(state.problem, state.options, state.round))

    def propose(self, state: RoundsState, room: int) -> Steps[tuple[RoundsState, Design]]:
        """Return the columns of the next partition."""
        rows = partition(state.problem, state.options, state.round - 1)
        return state, (yield from columns_of(state.design, rows))


class BasicRound:
    """One RVM in which every row is a candidate: for small N, and as the reference for other strategies."""

    name = "basic"
    schedule: ClassVar[Schedule] = Schedule(name, one_fit=True)
    kind = "final"
    """Kind of the line of history (``instructions.Record``)."""

    def start(self, problem: Problem, options: Options) -> RoundsState:
        """Return the state before the fit, in which all rows form one partition."""
        options = replace(options, partition_size=problem.n_rows * problem.n_kernels)
        options = replace(options, max_vectors=None, max_rounds=None, max_columns=None)
        return RoundsState(problem, options, problem.empty, problem.likelihood.start(problem), selection="all")

    def step(self, state: RoundsState) -> Steps[RoundsState]:
        """Run the fit; without a kernel it has only the leading columns. Appended rows join as in ``incremental``."""
        problem = state.problem
        if state.round:
            return (yield from IncrementalRounds().step(state))
        if not problem.target_variance:
            return (yield from saved(state, self.kind, Termination.CONSTANT))
        if not problem.n_kernels:
            return (yield from one_fit(state, problem.empty.led_by(problem.leading), kind=self.kind))
        chosen = yield from columns_of(state.design, self.rows(state))
        new = chosen.take(fresh(chosen, state.design), leading=problem.missing_leading(state.design))
        state = replace(state, duplicates=count_duplicates(chosen, new))
        return (yield from one_fit(state, new, kind=self.kind))

    def rows(self, state: RoundsState) -> Int:
        """Return the rows that are candidates."""
        return np.arange(state.problem.n_rows, dtype=np.int64)


class Early(BasicRound):
    """One fit of less than a second, of random candidates to a sample of rows, without a score on held-out rows."""

    name = kind = "early"

    def start(self, problem: Problem, options: Options) -> RoundsState:
        """Return the state before the fit; only ``seed``, ``tol`` and ``moderate`` of ``options`` are used."""
        rows = min(problem.likelihood.early_rows, problem.n_rows)
        candidates, steps = effort(problem, rows)
        options = Options(
            partition_size=candidates * problem.n_kernels,
            selection="random",
            fit_rows="sample",
            last_rows="sample",
            sample_rows=rows,
            tol=INTERMEDIATE * options.tol,
            max_iterations=steps,
            max_passes=steps,
            moderate=options.moderate,
            seed=options.seed,
        )
        problem = replace(problem, held_out=False)
        return RoundsState(problem, options, problem.empty, problem.likelihood.start(problem), selection="random")

    def rows(self, state: RoundsState) -> Int:
        """Return rows of the sample at equal distances."""
        problem, options = state.problem, state.options
        sample, room = posterior_rows(problem, options, "sample"), problem.rows_of(options.partition_size)
        among = np.arange(problem.n_rows, dtype=np.int64) if sample is None else sample
        return among[np.arange(room) * len(among) // room]


def one_fit(state: RoundsState, new: Design, warm: Any = None, kind: str = "final") -> Steps[RoundsState]:
    """Run the only fit of a run, which converges: a fit of the columns ``new``, started at ``warm`` if it is given."""
    state = replace(state, round=1, candidates=len(new.labels))
    state = yield from measured(state, new, state.options.last_rows, warm)
    state = yield from solved(state, final_rule(state.options), warm=warm)
    state = yield from settled(state)
    state = yield from scored(state)
    return (yield from saved(state, kind, Termination.CONVERGED))


def effort(problem: Problem, rows: int) -> tuple[int, int]:
    """Return the number of candidate rows and the maximum number of steps for an early fit to ``rows`` rows."""

    def flops(candidates: int) -> float:
        columns = candidates * problem.n_kernels + max(len(problem.leading), 1)
        return step_flops(problem, rows, columns)

    candidates = min(MAX_CANDIDATES, rows)
    while candidates > MIN_CANDIDATES and STEPS * flops(candidates) > FLOPS:
        candidates = max(candidates // 2, MIN_CANDIDATES)
    return candidates, int(np.clip(FLOPS / flops(candidates), 1, STEPS))


def step_flops(problem: Problem, rows: int, columns: int) -> float:
    """Return the flops of a step: a factorisation per target, or a pass and a factorisation for all outputs."""
    if not problem.classifies:
        return float(problem.n_targets * columns**3)
    outputs = problem.n_outputs
    return float(rows * columns**2 * outputs * (outputs + 1) + (columns * outputs) ** 3)
