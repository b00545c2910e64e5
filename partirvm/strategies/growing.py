"""Rounds whose fits use a sample of rows that grows with the number of columns (``fit_rows="growing"``). Pure.

A fit of M columns needs a multiple of M rows, not all of them: which columns matter, and their α, are known from
``fit_rows.ROWS_PER_COLUMN`` rows per column nearly as well as from all rows. The sample doubles until it has so many
rows. It also doubles when a round gains little: with more rows, the evidence supports more vectors. The last fit uses
all rows.

A larger sample contains the smaller one. In regression the Gram statistics of the fresh rows are added to those of the
sample, so that the products of a vector that stays are computed once for each row. The samples depend only on the
seed, the number of columns and the evidence: a fit can be repeated bit by bit.
"""

from __future__ import annotations

from dataclasses import replace

from partirvm.core.termination import Termination
from partirvm.kernels.design import NONE
from partirvm.likelihoods.base import Pass
from partirvm.likelihoods.gaussian import with_rows
from partirvm.strategies.fit_rows import enlarged, fresh_rows, grows, intermediate_rows
from partirvm.strategies.instructions import Passed
from partirvm.strategies.rounds import Answer, Phase, Rounds, S


class GrowingRounds(Rounds[S]):
    """Rounds that enlarge a growing sample before candidates are chosen, and before the last fit."""

    def _next_round(self, state: S) -> Answer[S]:
        """Enlarge the sample if the columns of the next round need more rows; otherwise begin the round."""
        room, limit = self._room(state)
        if grows(state.seen) and limit is None:
            columns = state.fit.n_columns + room * state.problem.n_kernels
            rows = enlarged(state.options.sample_rows, columns, state.problem.n_rows)
            if rows > state.options.sample_rows:
                return self._grow(state, rows)
        return super()._next_round(state)

    def _conclude(self, state: S, reason: Termination) -> Answer[S]:
        """Begin the last fit; if it uses all rows, add those outside the sample first."""
        if not grows(state.seen):
            return super()._conclude(state, reason)
        fit = state.fit.again()
        state = replace(state, concluding=reason, rebases=0, candidates=fit.n_vectors, fit=fit)
        return self._grow(state, state.problem.n_rows)

    def _grow(self, state: S, count: int) -> Answer[S]:
        """Enlarge the sample to ``count`` rows; the columns, α and β stay.

        Without statistics that can be added, the next fit computes those of all its columns.
        """
        problem, before = state.problem, state.options
        options = replace(before, sample_rows=count)
        rows = fresh_rows(problem, before, options)
        passes: tuple[Pass, ...] = ()
        if rows is not None:
            likelihood = problem.likelihood
            passes = likelihood.measure(likelihood.start(problem), problem.empty, state.design, rows)
        seen = intermediate_rows(problem, options)
        state = replace(state, options=options, seen=seen if passes else "")
        if passes:
            return replace(state, phase=Phase.GROW), passes
        state = self._on_larger_sample(state, count - before.sample_rows)
        if state.concluding is not None:
            return self._measure(state, state.design.take(NONE, leading=NONE))
        return self._next_round(state)

    def _on_grow(self, state: S, *events: Passed) -> Answer[S]:
        (event,) = events
        fit = with_rows(state.fit, event.statistic)
        fresh = fit.n - state.fit.n
        state = self._on_larger_sample(replace(state, fit=fit), fresh)
        return self._next_round(state) if state.concluding is None else self._fit(state)

    def _on_larger_sample(self, state: S, fresh: int) -> S:
        """Return the state after ``fresh`` rows joined the sample; its fit refers to them if ``seen`` is not empty."""
        return state
