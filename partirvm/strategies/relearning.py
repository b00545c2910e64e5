"""Learning the kernel again when the number of vectors grows: part of every strategy with rounds.

Before the fit, a kernel is learned from few centres. A model that needs many vectors benefits from a kernel that is
learned from more centres. Whenever the number of vectors has doubled since the last learning, ``LearnKernel`` therefore
searches for a better kernel at these vectors, on a sample of rows. Next, one pass gives the statistics of the same
columns under the new kernel, over all rows. If the evidence at the current α and β is higher, the new kernel is taken
and the model is saved. Otherwise kernel, fit and statistics are restored bit by bit.

The evidence over all rows therefore never falls. There is no extra fit: the next round continues with the new kernel.
Vectors whose columns become similar under the new kernel are pruned by the fits of later rounds.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from partirvm.core.updates import HyperState
from partirvm.kernels import Kernel, Several
from partirvm.likelihoods.passes import GramPass
from partirvm.strategies.fit_rows import posterior_rows
from partirvm.strategies.instructions import Event, KernelLearned, LearnKernel, Log, Passed, Record, Save
from partirvm.strategies.local_noise import LocalNoiseRounds
from partirvm.strategies.problem import Options, Problem
from partirvm.strategies.rounds import Answer, Phase, RoundsState, S, Standing, record
from partirvm.types import LEARNING_FEATURES, LEARNING_ROWS

SHARE = 0.4
"""Maximum number of centres, as a fraction of the rows of kernel learning; with more centres the evidence overfits."""

GROWTH = 2
"""A kernel is learned again when the number of vectors is this multiple of the centres of the last learning.

Learning from fewer centres than before raises the evidence but also the error (airfoil, 139 vectors after 300 centres:
from 0.255 to 0.266 standard deviations of the target).
"""


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


class Relearning(LocalNoiseRounds[S]):
    """Rounds with kernel learning between them, if the kernel was learned before and fits share their rows.

    The rows of fits are all rows or a growing sample: other fits say too little of the columns that all rows need.
    """

    def _on_saved(self, state: S, event: Event) -> Answer[S]:
        if (
            state.settled
            or state.seen in ("", "sample")
            or not due(state.problem, state.options, state.fit, state.learned)
        ):
            return super()._on_saved(state, event)
        options = replace(state.options, sample_rows=learning_rows(state.design.centres.shape[1]))
        rows = posterior_rows(state.problem, options, "sample")
        assert isinstance(state.fit, HyperState)
        search = LearnKernel(state.design, state.fit, rows, options.gamma_prior)
        return replace(state, learned=state.fit.n_vectors, phase=Phase.LEARN), (search,)

    def _on_learn(self, state: S, event: KernelLearned) -> Answer[S]:
        """Request the statistics of the fit's columns under the new kernel, in one pass."""
        state = replace(state, standing=Standing(state.problem, state.design, state.fit, event))
        if not event.better:
            return self._reject(state, 0.0)
        problem = with_kernel(state.problem, event.kernel)
        design = replace(state.design, kernel=event.kernel)
        rows = posterior_rows(problem, state.options, state.seen)
        request = GramPass(problem.empty, design, np.zeros((0, len(problem.empty.scaling.t_shift))), rows=rows)
        return replace(state, problem=problem, design=design, phase=Phase.GRAM), (request,)

    def _on_gram(self, state: S, *events: Passed) -> Answer[S]:
        """Keep the new kernel if the evidence at the same α and β is larger; the next round updates α and β."""
        if state.standing is None:
            return super()._on_gram(state, *events)
        old = state.standing.fit
        problem = state.problem
        fit = problem.likelihood.join(problem, old, problem.empty, state.design, events[0].statistic)
        gain = fit.log_evidence - old.log_evidence
        if gain > state.options.tol * fit.n:
            return self._score(replace(state, fit=fit))
        return self._reject(state, gain)

    def _save(self, state: S) -> Answer[S]:
        """Save the model with the new kernel."""
        if state.standing is None:
            return super()._save(state)
        line = _record(state, state.fit.log_evidence - state.standing.fit.log_evidence, taken=True)
        save = Save(state.design, state.fit, line, state.options.moderate)
        return replace(state, standing=None, phase=Phase.SAVED), (save,)

    def _reject(self, state: S, gain: float) -> Answer[S]:
        """Restore the state before the search for a kernel."""
        old = state.standing
        assert old is not None
        state = replace(state, problem=old.problem, design=old.design, fit=old.fit, phase=Phase.SAVED)
        return replace(state, standing=None), (Log(_record(state, gain, taken=False)),)


def with_kernel(problem: Problem, kernel: Kernel | Several) -> Problem:
    """Return the problem with another kernel."""
    return replace(problem, empty=replace(problem.empty, kernel=kernel))


def _record(state: RoundsState, gain: float, *, taken: bool) -> Record:
    """Return the line of history: the current fit, the tried kernel, and the rows of kernel learning."""
    old = state.standing
    assert old is not None
    line = record(
        state.problem,
        state.fit,
        state.scores,
        kind="kernel",
        number=state.round,
        candidates=old.fit.n_vectors,
        termination=state.reason,
        selection=state.selection,
        fit_rows=state.seen,
        duplicates=state.duplicates,
        dropped=state.dropped,
        kernel=old.learned.kernel.spec(),
        gain=gain,
        taken=taken,
    )
    return replace(line, rows=old.learned.rows, iterations=old.learned.evaluations)
