"""``incremental`` and ``basic``: partitions of neighbouring rows join one after the other, or all at once.

A kernel that was learned is learned again between the partitions of ``incremental`` (``strategies.relearning``) where
its fits see all rows; the one fit of ``basic`` keeps it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from partirvm.strategies.fitting import nothing, warm
from partirvm.strategies.instructions import Gather, Options, Problem
from partirvm.strategies.likelihood import partition, partition_length
from partirvm.strategies.relearning import Relearning
from partirvm.strategies.rounds import Answer, Phase, RoundsState


class Incremental(Relearning):
    """Kept vectors + the next partition, in order (Ben-Shimon & Shmilovici 2006, §3.3): every row joins once."""

    name = "incremental"

    def _unused(self, state: Any) -> int:
        """Rows of the next partition."""
        return partition_length(state.problem, state.options, state.round)

    def _propose(self, state: Any, room: int) -> Answer:
        rows = partition(state.problem, state.options, state.round - 1)
        return replace(state, phase=Phase.ROWS, chosen=rows), (Gather(rows),)


class Basic(Incremental):
    """One RVM in which every row is a candidate: a single partition. For small N, and as the reference."""

    name = "basic"

    def start(self, problem: Problem, options: Options) -> Answer:
        """Where rows offer nothing the one fit is that of the leading columns."""
        if problem.n_kernels or not problem.power:
            return super().start(problem, options)
        state = self.first(problem, options)
        return self.last_fit(state, problem.empty.led_by(problem.leading), warm(nothing(problem)))

    def first(self, problem: Problem, options: Options) -> RoundsState:
        """All rows are one partition, whatever P."""
        options = replace(options, partition_size=problem.n_rows * problem.n_kernels)
        options = replace(options, max_vectors=None, max_rounds=None, max_columns=None)
        return replace(super().first(problem, options), selection="all")
