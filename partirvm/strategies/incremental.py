"""``incremental`` and ``basic``: partitions of neighbouring rows join one after the other, or all at once.

A kernel that was learned is learned again between the partitions of ``incremental`` (``strategies.relearning``) where
its fits see all rows; the one fit of ``basic`` keeps it. Where actions solve that, it needs the Gram matrix of columns
that join, and not of all: the design itself is no larger, and is asked for instead (``core.on_demand``). Where the
fixed point comes before them the Gram matrix is made of the design at once, and the design let go.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from partirvm.core.on_demand import Pool
from partirvm.core.priors import FLAT
from partirvm.kernels.design import Design
from partirvm.strategies.columns import labels_of
from partirvm.strategies.fitting import nothing, warm
from partirvm.strategies.instructions import Gather, Passed, Solve
from partirvm.strategies.likelihood import partition, partition_length, posterior_rows
from partirvm.strategies.passes import DesignPass
from partirvm.strategies.problem import Options, Problem
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

    def _measure(self, state: Any, new: Design) -> Answer:
        options, problem = state.options, state.problem
        acts = options.solver in ("fast", "auto") and problem.prior == FLAT and problem.n_targets == 1
        begins = state.warm is None and not state.fit.n_columns
        if problem.classifies or not (acts and begins) or options.final_likelihood == "partition":
            return super()._measure(state, new)
        rows = posterior_rows(problem, options, options.final_likelihood, new)
        return replace(state, phase=Phase.DESIGN, incoming=new), (DesignPass(new, rows),)

    def _on_design(self, state: Any, event: Any) -> Answer:
        """Actions take what they need of the Gram matrix; the fixed point needs all of it."""
        design = state.incoming
        if state.options.solver == "auto":
            return self._on_gram(state, Passed(event.statistic.gram()))
        pool = Pool(design.basis, labels_of(design), event.statistic.joined())
        state = replace(state, phase=Phase.FIT, design=design, incoming=None, seen=state.options.final_likelihood)
        return state, (Solve(state.fit, self._rule(state), state.candidates, state.options.solver, pool),)
