"""Learning the kernel again when the number of vectors grows: part of every strategy with rounds.

A kernel that was learned from a few centres before the fit has had too little to go by where the model comes to need
many. Whenever the vectors have doubled since it was learned last, a better one is sought at these vectors on a sample
of rows (``LearnKernel``). Then one pass brings the statistics of the same columns under the new kernel over all rows.
If the evidence of these, at the α and β that the fit has, is higher, the new kernel is taken and the model saved; if
not, kernel, fit and statistics stay to the bit what they were. So the evidence over all rows never falls, and the next
round, which goes on from there, pays for the fit. Vectors that the new kernel makes alike share what they explain: the
fits of later rounds prune them as they do others.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from partirvm.core.updates import HyperState
from partirvm.kernels import Kernel, Several
from partirvm.likelihoods.gaussian_passes import GramPass
from partirvm.strategies.fit_rows import posterior_rows, sees_all
from partirvm.strategies.instructions import Event, KernelLearned, LearnKernel, Log, Passed, Record, Save
from partirvm.strategies.problem import Options, Problem
from partirvm.strategies.rounds import Answer, Phase, Rounds, RoundsState, S, Standing, record
from partirvm.types import LEARNING_ROWS

SHARE = 0.4
"""Maximum number of centres, as a fraction of the rows of kernel learning: with more the evidence overfits."""

GROWTH = 2
"""A kernel is learned again where the vectors are so many times the centres that it was learned from.

With no more centres than before there is nothing new to learn from: the evidence rises, and the error with it (airfoil,
139 vectors against 300 centres: 0.255 to 0.266 of sd(y)).
"""


def due(problem: Problem, options: Options, fit: Any, centres: int) -> bool:
    """True if a kernel that was learned from ``centres`` centres should be learned again with the vectors of this fit.

    They may be ``SHARE`` of the rows at most. No kernel is that was not learned before, nor where memory has no room
    for all columns in one pass. Nor is one of classes: what it would bring has not been measured, and a comparison over
    all rows takes them a whole fit instead of one pass.
    """
    if not options.centres or not problem.likelihood.relearns:
        return False
    most = min(int(SHARE * min(problem.n_rows, LEARNING_ROWS)), options.learning_columns - 1)
    return bool(GROWTH * max(centres, options.centres) <= fit.n_vectors <= most)


class Relearning(Rounds[S]):
    """Rounds with kernel learning in between, if the kernel was learned and fits use all rows."""

    def _on_saved(self, state: S, event: Event) -> Answer[S]:
        if state.settled or not sees_all(state.seen) or not due(state.problem, state.options, state.fit, state.learned):
            return super()._on_saved(state, event)
        options = replace(state.options, sample_rows=LEARNING_ROWS)
        rows = posterior_rows(state.problem, options, "sample", state.design)
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
        look = GramPass(problem.empty, design, np.zeros((0, len(problem.empty.scaling.t_shift))))
        return replace(state, problem=problem, design=design, phase=Phase.GRAM), (look,)

    def _on_gram(self, state: S, *events: Passed) -> Answer[S]:
        """Keep the new kernel if the evidence at the same α and β is larger; α and β adapt in the next round."""
        if state.standing is None:
            return super()._on_gram(state, *events)
        old = state.standing.fit
        likelihood = state.problem.likelihood
        warm, statistic = likelihood.warm(old), events[0].statistic
        fit = likelihood.restart(state.problem, state.options, old, warm, state.design, statistic)
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
        """Restore the fit and its state."""
        old = state.standing
        assert old is not None
        state = replace(state, problem=old.problem, design=old.design, fit=old.fit, phase=Phase.SAVED)
        return replace(state, standing=None), (Log(_record(state, gain, taken=False)),)


def with_kernel(problem: Problem, kernel: Kernel | Several) -> Problem:
    """The problem with another kernel."""
    return replace(problem, empty=replace(problem.empty, kernel=kernel))


def _record(state: RoundsState, gain: float, *, taken: bool) -> Record:
    """The line of history: the current fit, the rows of kernel learning, and the kernel that was tried."""
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
