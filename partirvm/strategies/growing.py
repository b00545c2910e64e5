"""Rows that came later: a run that has ended, or was ended, goes on with them.

Scaling and kernel stay. What a fit of numbers knows of the rows before are the Gram statistics of its columns: one pass
over the new rows alone brings theirs, and the sum is that of all rows. A fit of classes has none that hold for other
weights: it moves to the mode over all rows, a few passes. Either way the columns that are there come first, as a round
without candidates whose model is saved; only a fit over a part of the rows has to begin with the next one. Then
rounds follow as if they had never ended: those of the working set choose among all rows that were none yet, those in
order go on with the partitions that were left, then with those of the new rows. A fit of all rows at once, or the last
merge of split-and-merge, is what ``incremental`` goes on from.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from partirvm.core.statistics import GramStatistics
from partirvm.core.termination import Termination
from partirvm.core.updates import StopRule, init
from partirvm.strategies.columns import labels_of
from partirvm.strategies.instructions import Event, Newton
from partirvm.strategies.likelihood import lots_of
from partirvm.strategies.passes import GramPass
from partirvm.strategies.problem import Lot, Options, Problem
from partirvm.strategies.regressing import Warm
from partirvm.strategies.rounds import Answer, Phase, Rounds, RoundsState
from partirvm.strategies.selection import partition_count

MODE = 1e-2
"""Tolerance, nats per row, of the mode over all rows from which rounds of classes go on (``core.newton.SETTLED``)."""


class Growing(Rounds):
    """Rounds that can go on with rows that came later."""

    def _on_grown(self, state: Any, event: Event) -> Answer:
        """The columns that are there, over all rows."""
        problem = state.problem
        state = replace(state, candidates=state.fit.n_vectors)
        if problem.classifies:
            return self._find_mode(replace(state, seen=state.options.likelihood))
        if state.seen != "full":
            return self._next_round(replace(state, seen=""))
        new = np.arange(problem.lots[-2].stop, problem.n_rows, dtype=np.int64)
        offset = np.zeros((0, problem.n_targets))
        return replace(state, phase=Phase.MERGE), (GramPass(problem.empty, state.design, offset, rows=new),)

    def _find_mode(self, state: Any) -> Answer:
        """Move the weights to the mode over all rows, by plain steps at the α that the columns have.

        Where these weights are no mode the quadratic says nothing of α.
        """
        state, (task,) = self._classify(state)
        assert isinstance(task, Newton)
        return state, (replace(task, rule=StopRule(MODE, state.options.max_passes), hold=True),)

    def _on_merge(self, state: Any, event: Any) -> Answer:
        """Statistics of the rows before and of the new ones are those of all; the fit goes on at its α and β."""
        fit, design, warm = state.fit, state.design, Warm.of(state.fit)
        empty = GramStatistics.empty(design.basis, state.problem.n_targets)
        statistics = fit.statistics.merge(empty.extend(labels_of(design), event.statistic, design.basis))
        begun = init(
            statistics, warm.alpha, warm.beta, power=warm.power, fixed_noise=warm.fixed_noise, prior=warm.prior
        )
        return self._solve(replace(state, fit=begun))


def joined(before: Problem, options: Options, now: Problem, partition_size: int) -> Problem:
    """The problem before with the rows of ``now``, more than it has had, as a lot of their own.

    ``options`` are those of the fit before, ``partition_size`` is that of the new rows.
    """
    lots: tuple[Lot, ...] = (Lot(before.n_rows, 0, before.shuffled), Lot(now.n_rows, 0, shuffled=False))
    if before.n_kernels:
        count = partition_count(now.n_rows - before.n_rows, before.rows_of(partition_size))
        lots = (*lots_of(before, options), Lot(now.n_rows, count, shuffled=False))
    return replace(before, n_rows=now.n_rows, codes=now.codes, shuffled=now.shuffled, lots=lots)


def grown(state: RoundsState, problem: Problem, options: Options) -> RoundsState:
    """A checkpoint's state for a problem with more rows than it has seen (``joined``), under these options.

    The kernel is that of the state, and is learned no more.
    """
    return replace(
        state,
        problem=replace(problem, empty=state.problem.empty),
        options=replace(options, centres=0),
        phase=Phase.GROWN,
        scores=None,
        concluding=None,
        settled=False,
        warm=None,
        dropped=0,
        rebases=0,
        reason=Termination.CONVERGED,
    )
