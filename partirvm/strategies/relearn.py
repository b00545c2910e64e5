"""Learn the kernel again between rounds, whenever the number of vectors has doubled since the last learning.

``LearnKernel`` searches for a better kernel at these vectors, on a sample of rows. One pass gives the statistics of the
same columns under the new kernel, over all rows. It is taken if the evidence at the current α and β is higher; the next
round updates α and β. The evidence over all rows therefore never falls.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from partirvm.core.updates import HyperState
from partirvm.likelihoods.passes import GramPass
from partirvm.strategies.fit_rows import posterior_rows
from partirvm.strategies.problem import LearnKernel, Log, Options, Problem, Save, Steps
from partirvm.strategies.stages import RoundsState, line_of, scored
from partirvm.types import LEARNING_FEATURES, LEARNING_ROWS

SHARE = 0.4
"""Maximum number of centres, as a fraction of the rows of kernel learning; with more centres the evidence overfits."""


def due(problem: Problem, options: Options, fit: Any, centres: int) -> bool:
    """Return whether a kernel that was learned from ``centres`` centres should be learned again at this fit's vectors.

    Never in classification: a comparison would take a whole fit over all rows.
    """
    if not options.centres or not problem.likelihood.relearns:
        return False
    rows = min(problem.n_rows, learning_rows(problem.empty.centres.shape[1]))
    maximum = min(int(SHARE * rows), options.learning_columns - 1)
    return bool(2 * max(centres, options.centres) <= fit.n_vectors <= maximum)


def learning_rows(n_features: int) -> int:
    """Return the maximum number of rows from which a kernel is learned again."""
    return max(min(LEARNING_ROWS, LEARNING_ROWS * LEARNING_FEATURES // n_features), 1)


def learned_again(state: RoundsState) -> Steps[RoundsState]:
    """Learn the kernel at the vectors of the fit, and keep it if the evidence over all rows is larger."""
    problem, options, old = state.problem, state.options, state.fit
    assert isinstance(old, HyperState)
    sample = replace(options, sample_rows=learning_rows(state.design.centres.shape[1]))
    rows = posterior_rows(problem, sample, "sample")
    (found,) = yield (LearnKernel(state.design, old, rows),)
    facts = {"candidates": old.n_vectors, "fit_rows": state.seen, "kernel": found.kernel.spec()}
    state, gain, taken = replace(state, learned=old.n_vectors), 0.0, False
    if found.better:
        problem, design = problem.with_kernel(found.kernel), replace(state.design, kernel=found.kernel)
        nothing = np.zeros((0, len(problem.empty.scaling.t_shift)))
        (block,) = yield (GramPass(problem.empty, design, nothing, rows=posterior_rows(problem, options, state.seen)),)
        fit = problem.likelihood.join(problem, old, problem.empty, design, block)
        gain = fit.log_evidence - old.log_evidence
        taken = gain > options.tol * fit.n
        if taken:
            state = yield from scored(replace(state, problem=problem, design=design, fit=fit))
    line = line_of(state, kind="kernel", gain=gain, taken=taken, **facts)
    line = replace(line, rows=found.rows, iterations=found.evaluations)
    yield (Save(state.design, state.fit, line, options.moderate) if taken else Log(line),)
    return state
