"""``basic``: one fit in which every row is a candidate, for small N and as the reference for other strategies.

It also makes the model of a run whose time limit ends it before the first round is over (``early_state``), in about a
second. This *early* fit writes a line of history but no checkpoint: a later resume ignores it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from partirvm.core.termination import Termination
from partirvm.kernels.design import Design
from partirvm.planning.cost import Schedule
from partirvm.strategies.fit_rows import count_duplicates, fresh, posterior_rows
from partirvm.strategies.problem import Options, Problem, Steps
from partirvm.strategies.rounds import IncrementalRounds
from partirvm.strategies.stages import (
    INTERMEDIATE,
    RoundsState,
    columns_of,
    final_rule,
    first_state,
    measured,
    saved,
    scored,
    settled,
    solved,
)

MAX_COLUMNS, MIN_CANDIDATES = 200, 5
"""Maximum number of kernel columns of an early fit, those of all outputs together, but at least so many rows."""

STEPS = 50
"""Maximum number of iterations of an early fit; in classification, iterations are passes."""


class BasicRound:
    """One RVM of all rows."""

    name: ClassVar[str] = "basic"
    schedule: ClassVar[Schedule] = Schedule(name, one_fit=True)

    def start(self, problem: Problem, options: Options) -> RoundsState:
        """Return the state before the fit, in which all rows form one partition."""
        size = problem.n_rows * problem.n_kernels
        options = replace(options, partition_size=size, max_vectors=None, max_rounds=None, max_columns=None)
        return first_state(problem, options, selection="all")

    def step(self, state: RoundsState) -> Steps[RoundsState]:
        """Run the fit; without a kernel it has only the leading columns. Appended rows join as in ``incremental``."""
        problem, options = state.problem, state.options
        if state.round:
            return (yield from IncrementalRounds().step(state))
        early = options.last_rows == "sample"
        kind = "early" if early else "final"
        if not problem.target_variance:
            return (yield from saved(state, kind, Termination.CONSTANT))
        if not problem.n_kernels:
            return (yield from one_fit(state, problem.empty.led_by(problem.leading), kind=kind))
        rows = np.arange(problem.n_rows, dtype=np.int64)
        if early:
            sample, room = posterior_rows(problem, options, "sample"), problem.rows_of(options.partition_size)
            rows = rows if sample is None else sample
            rows = rows[np.arange(room) * len(rows) // room]
        chosen = yield from columns_of(state.design, rows)
        new = chosen.take(fresh(chosen, state.design), leading=problem.missing_leading(state.design))
        state = replace(state, duplicates=count_duplicates(chosen, new))
        return (yield from one_fit(state, new, kind=kind))


def early_state(problem: Problem, options: Options) -> RoundsState:
    """Return the state before an early fit: few candidates, at equal distances in a sample of rows, and few steps.

    Only ``seed``, ``tol`` and ``moderate`` of ``options`` are used, and the fit is not scored on held-out rows.
    """
    rows, outputs = min(problem.likelihood.early_rows, problem.n_rows), max(problem.n_outputs, problem.n_targets)
    candidates = max(MAX_COLUMNS // (outputs * max(problem.n_kernels, 1)), MIN_CANDIDATES)
    few = Options(
        partition_size=min(candidates, rows) * problem.n_kernels,
        selection="random",
        fit_rows="sample",
        last_rows="sample",
        sample_rows=rows,
        tol=INTERMEDIATE * options.tol,
        max_iterations=STEPS,
        max_passes=STEPS,
        moderate=options.moderate,
        seed=options.seed,
    )
    return first_state(replace(problem, held_out=False), few, selection="random")


def one_fit(state: RoundsState, new: Design, warm: Any = None, kind: str = "final") -> Steps[RoundsState]:
    """Run the only fit of a run, which converges: a fit of the columns ``new``, started at ``warm`` if it is given."""
    state = replace(state, round=1, candidates=len(new.labels))
    state = yield from measured(state, new, state.options.last_rows, warm)
    state = yield from solved(state, final_rule(state.options), warm=warm)
    state = yield from settled(state)
    state = yield from scored(state)
    return (yield from saved(state, kind, Termination.CONVERGED))
