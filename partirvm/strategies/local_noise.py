"""The end of a run whose noise may depend on the inputs (``likelihoods.noise_fit``). Pure.

The last fit has constant noise at first. A log variance is fitted to its errors of rows left out. If local noise is
better, the columns of the fit are fitted again to weighted rows. No candidate joins: the noise changes the weights of
rows, and hardly which columns are needed. A run that is stopped meanwhile keeps the model with constant noise. A run to
which rows are appended keeps its noise factors, as it keeps its kernel.

If rounds use a growing sample, the log variance is fitted to rows of the last sample, before the last fit. The products
of all rows are then computed once, with their weights.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from partirvm.core.left_out import LeftOut, left_out_of
from partirvm.core.termination import Termination
from partirvm.core.updates import HyperState
from partirvm.kernels.design import NONE
from partirvm.likelihoods.noise_fit import CONSTANT, LOCAL, FittedNoise, NoiseFit, noise_sample
from partirvm.strategies.fit_rows import grows
from partirvm.strategies.growing import GrowingRounds
from partirvm.strategies.instructions import Event, Finish, Gather, Gathered, Passed, Save, Solved, Stop
from partirvm.strategies.rounds import Answer, Phase, Rounds, S


class LocalNoiseRounds(GrowingRounds[S]):
    """Rounds whose last fit is followed by a fit with local noise, if that is asked for or better."""

    def next(self, state: S, *events: Event) -> Answer[S]:
        """Return the state and the instructions that follow these events."""
        if not isinstance(events[0], Stop) or state.constant is None:
            return super().next(state, *events)
        design, fit = state.constant
        state = replace(state, design=design, fit=fit, concluding=events[0].reason, constant=None, scores=None)
        state, (save,) = Rounds._save(self, state)
        assert isinstance(save, Save)
        return replace(state, phase=Phase.STOPPED), (replace(save, record=replace(save.record, kind="early")),)

    def _on_stopped(self, state: S, event: Event) -> Answer[S]:
        assert state.concluding is not None
        return replace(state, phase=Phase.OVER), (Finish(state.concluding),)

    def _conclude(self, state: S, reason: Termination) -> Answer[S]:
        """Leave out rows of a growing sample before the last fit, if its noise may depend on the inputs."""
        if grows(state.seen) and state.options.noise != CONSTANT and state.noise is None:
            passes = self._settling(state, last=True)
            if passes:
                return replace(state, concluding=reason, phase=Phase.SETTLE), passes
        return super()._conclude(state, reason)

    def _on_settle(self, state: S, *events: Passed) -> Answer[S]:
        statistics = [event.statistic for event in events]
        left_out = left_out_of(statistics)
        if grows(state.seen):
            return self._on_sample_settled(state, left_out, statistics)
        if left_out is None or state.options.noise == CONSTANT:
            return super()._on_settle(state, *events)
        if state.design.noise is not None:
            if state.noise is not None:
                statistics[0] = left_out.scaled(state.noise.rows, state.noise.factors)
            return super()._on_settle(state, *map(Passed, statistics))
        sample = None if state.noise else noise_sample(left_out, len(state.design.scaling.x_shift))
        if sample is None:
            return super()._on_settle(state, *events)
        fit = state.problem.likelihood.settle(state.fit, *statistics, last=True)
        assert isinstance(fit, HyperState)
        if fit.floored or fit.overconfident:  # the errors are rounding errors, or those of a kernel that is too narrow
            return super()._on_settle(state, *events)
        state = replace(state, fit=fit, constant=(state.design, fit), sample=sample, phase=Phase.NOISE_ROWS)
        return state, (Gather(sample.rows),)

    def _on_sample_settled(self, state: S, left_out: LeftOut | None, statistics: list[Any]) -> Answer[S]:
        """Fit the noise to rows of the sample that were left out, or keep constant noise."""
        assert state.concluding is not None
        sample = None if left_out is None else noise_sample(left_out, len(state.design.scaling.x_shift))
        fit = state.problem.likelihood.settle(state.fit, *statistics, last=True)
        assert isinstance(fit, HyperState)
        if sample is None or fit.floored or fit.overconfident:
            return super()._conclude(state, state.concluding)
        return replace(state, sample=sample, phase=Phase.NOISE_ROWS), (Gather(sample.rows),)

    def _on_noise_rows(self, state: S, event: Gathered) -> Answer[S]:
        assert state.sample is not None
        always = state.options.noise == LOCAL
        return replace(state, phase=Phase.NOISE), (NoiseFit(state.design, event.points, state.sample, always),)

    def _on_noise(self, state: S, event: Solved) -> Answer[S]:
        found = event.fit
        assert isinstance(found, FittedNoise)
        state = replace(state, sample=None, noise=found)
        if found.noise is None and grows(state.seen):
            assert state.concluding is not None
            return super()._conclude(state, state.concluding)
        if found.noise is None:
            return self._score(replace(state, settled=True))
        design, fit = replace(state.design, noise=found.noise), state.fit.again()
        state = replace(state, design=design, fit=fit, seen="", warm=None, rebases=0, candidates=fit.n_vectors)
        return super()._measure(state, design.take(NONE, leading=NONE))
