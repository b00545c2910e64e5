"""``incremental`` and ``basic``: partitions of neighbouring rows join one after the other, or all rows join at once.

``incremental`` learns the kernel again between partitions if the kernel was learned before and fits use all rows
(``strategies.relearning``). ``basic`` has only one fit and keeps its kernel.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np

from partirvm.planning.schedule import Schedule
from partirvm.strategies.fit_rows import partition, partition_length
from partirvm.strategies.instructions import Gather
from partirvm.strategies.local_noise import LocalNoiseRounds
from partirvm.strategies.problem import Options, Problem
from partirvm.strategies.relearning import Relearning
from partirvm.strategies.rounds import Answer, Phase, RoundsState


class IncrementalRounds(Relearning[RoundsState]):
    """The incremental strategy of Ben-Shimon & Shmilovici (2006, §2.2): the partitions join in order, one a round."""

    name = "incremental"
    schedule: ClassVar[Schedule] = Schedule(name, whole_partitions=True)

    def first(self, problem: Problem, options: Options) -> RoundsState:
        """Return the state before the first partition joins."""
        return RoundsState(problem, options, problem.empty, problem.likelihood.start(problem))

    def _unused(self, state: RoundsState) -> int:
        """Return the number of rows of the next partition."""
        return partition_length(state.problem, state.options, state.round)

    def _propose(self, state: RoundsState, room: int) -> Answer[RoundsState]:
        rows = partition(state.problem, state.options, state.round - 1)
        return replace(state, phase=Phase.ROWS, chosen=rows), (Gather(rows),)


class BasicRound(LocalNoiseRounds[RoundsState]):
    """One RVM in which every row is a candidate: for small N, and as the reference for other strategies."""

    name = "basic"
    schedule: ClassVar[Schedule] = Schedule(name, one_fit=True)

    def start(self, problem: Problem, options: Options) -> Answer[RoundsState]:
        """Begin the fit; without a kernel it has only the leading columns."""
        if problem.n_kernels or not problem.target_variance:
            return super().start(problem, options)
        state = self.first(problem, options)
        return self.last_fit(state, problem.empty.led_by(problem.leading))

    def first(self, problem: Problem, options: Options) -> RoundsState:
        """Return the state before the fit, in which all rows form one partition."""
        options = replace(options, partition_size=problem.n_rows * problem.n_kernels)
        options = replace(options, max_vectors=None, max_rounds=None, max_columns=None)
        return RoundsState(problem, options, problem.empty, problem.likelihood.start(problem), selection="all")

    def _unused(self, state: RoundsState) -> int:
        return 0 if state.round else state.problem.n_rows

    def _propose(self, state: RoundsState, room: int) -> Answer[RoundsState]:
        rows = np.arange(state.problem.n_rows, dtype=np.int64)
        return replace(state, phase=Phase.ROWS, chosen=rows), (Gather(rows),)
