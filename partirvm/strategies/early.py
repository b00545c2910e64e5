"""A small fit that gives a run a model if its time limit ends the run before the first round is over. Pure.

The fit uses random candidates and a sample of rows. ``FLOPS`` bounds the numbers of rows, candidates and steps, so that
the cost is small for any data. The fit writes a line of history but no checkpoint. A later resume ignores this fit: the
run continues from its last checkpoint, or from the beginning.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from partirvm.strategies.fit_rows import posterior_rows
from partirvm.strategies.incremental import BasicRound
from partirvm.strategies.instructions import Gather, Save
from partirvm.strategies.problem import Options, Problem
from partirvm.strategies.rounds import Answer, Phase, RoundsState
from partirvm.strategies.rules import INTERMEDIATE

MAX_CANDIDATES, MIN_CANDIDATES = 300, 10
"""Maximum and minimum number of candidate rows."""

STEPS = 50
"""Number of iterations that ``FLOPS`` must cover; in classification, iterations are Newton passes."""

FLOPS = 1e10
"""Maximum number of multiplications and additions of all steps; they take a fraction of a second."""


def effort(problem: Problem, rows: int) -> tuple[int, int]:
    """Return the number of candidate rows and the maximum number of steps for a fit to ``rows`` rows."""

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


class Early(BasicRound):
    """One fit of less than a second, whose model is saved without a score on held-out rows."""

    name = "early"

    def first(self, problem: Problem, options: Options) -> RoundsState:
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
        return replace(super().first(problem, options), options=options, selection="random")

    def _unused(self, state: RoundsState) -> int:
        return 0 if state.round else int(state.problem.rows_of(state.options.partition_size))

    def _propose(self, state: RoundsState, room: int) -> Answer[RoundsState]:
        problem = state.problem
        rows = posterior_rows(problem, state.options, "sample")
        among = np.arange(problem.n_rows, dtype=np.int64) if rows is None else rows
        chosen = among[np.arange(room) * len(among) // room]
        return replace(state, phase=Phase.ROWS, chosen=chosen), (Gather(chosen),)

    def _save(self, state: RoundsState) -> Answer[RoundsState]:
        state, (save,) = super()._save(state)
        assert isinstance(save, Save)
        return state, (replace(save, record=replace(save.record, kind="early")),)
