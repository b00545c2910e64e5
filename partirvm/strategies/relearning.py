"""Learning the kernel again as the vectors grow: part of every strategy that goes in rounds.

A kernel that was learned from a few centres before the fit has had too little to go by where the model comes to need
many. Whenever the vectors have doubled since it was learned last, a better one is sought at these vectors on a sample
of rows (``strategies.trial``). Then one pass brings the statistics of the same columns under the new kernel over all
rows. If the evidence of these, at the α and β that the fit has, is higher, the new kernel is taken and the model saved;
if not, kernel, fit and statistics stay to the bit what they were. So the evidence over all rows never falls, and the
next round, which goes on from there, pays for the fit. Vectors that the new kernel makes alike share what they explain:
the fits of later rounds prune them as they do others.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from partirvm.kernels import Kernel, Several
from partirvm.likelihoods.gaussian_passes import GramPass
from partirvm.strategies.instructions import Event, Log, Passed, Record, Save
from partirvm.strategies.problem import Problem
from partirvm.strategies.rounds import Answer, Phase, Rounds, RoundsState, S, record
from partirvm.strategies.trial import Trial, due


class Relearning(Rounds[S]):
    """Rounds between which the kernel is learned again, where it was learned and the likelihood is that of all rows."""

    def _on_saved(self, state: S, event: Event) -> Answer[S]:
        if state.settled or state.seen != "full" or not due(state.problem, state.options, state.fit, state.learned):
            return super()._on_saved(state, event)
        trial = Trial.of(state)
        assert trial.wanted is not None
        return replace(state, trial=trial, learned=state.fit.n_vectors, phase=Phase.LEARN), (trial.wanted,)

    def _on_learn(self, state: S, event: Passed) -> Answer[S]:
        """Go on with the search; then one pass for the statistics of the fit's columns under the kernel it found."""
        assert state.trial is not None
        trial = state.trial.heard(event.statistic)
        state = replace(state, trial=trial)
        if trial.wanted is not None:
            return state, (trial.wanted,)
        if not trial.better:
            return self._reject(state, 0.0)
        problem = with_kernel(state.problem, trial.kernel)
        design = replace(trial.design, kernel=trial.kernel)
        look = GramPass(problem.empty, design, np.zeros((0, len(problem.empty.scaling.t_shift))))
        return replace(state, problem=problem, design=design, phase=Phase.GRAM), (look,)

    def _on_gram(self, state: S, *events: Passed) -> Answer[S]:
        """The evidence decides, at the same α and β: what the fit makes of them comes with the next round."""
        if state.trial is None:
            return super()._on_gram(state, *events)
        old = state.trial.fit
        likelihood = state.problem.likelihood
        warm, statistic = likelihood.warm(old), events[0].statistic
        fit = likelihood.restart(state.problem, state.options, old, warm, state.design, statistic)
        gain = fit.log_evidence - old.log_evidence
        if gain > state.options.tol * fit.n:
            return self._score(replace(state, fit=fit))
        return self._reject(state, gain)

    def _save(self, state: S) -> Answer[S]:
        """The model of a kernel that was taken."""
        if state.trial is None:
            return super()._save(state)
        line = _record(state, state.fit.log_evidence - state.trial.fit.log_evidence, taken=True)
        save = Save(state.design, state.fit, line, state.options.moderate)
        return replace(state, trial=None, phase=Phase.SAVED), (save,)

    def _reject(self, state: S, gain: float) -> Answer[S]:
        """The fit and all that belongs to it as they were."""
        trial = state.trial
        assert trial is not None
        state = replace(state, problem=trial.problem, design=trial.design, fit=trial.fit, phase=Phase.SAVED)
        return replace(state, trial=None), (Log(_record(state, gain, taken=False)),)


def with_kernel(problem: Problem, kernel: Kernel | Several) -> Problem:
    """The problem with another kernel."""
    return replace(problem, empty=replace(problem.empty, kernel=kernel))


def _record(state: RoundsState, gain: float, *, taken: bool) -> Record:
    """The line of history: the fit that stands, the rows that were learned from, and what was tried on them."""
    trial = state.trial
    assert trial is not None
    line = record(
        state.problem,
        state.fit,
        state.scores,
        kind="kernel",
        number=state.round,
        candidates=trial.fit.n_vectors,
        termination=state.reason,
        selection=state.selection,
        likelihood=state.seen,
        duplicates=state.duplicates,
        dropped=state.dropped,
        kernel=trial.kernel.spec(),
        gain=gain,
        taken=taken,
    )
    return replace(line, rows=trial.seen, iterations=trial.evaluations)
