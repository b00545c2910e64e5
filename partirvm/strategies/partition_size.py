"""How many candidates join in one basic RVM: the √(N·d) sparseness heuristic (Ben-Shimon & Shmilovici 2006, §4).

ρ is the fraction of rows that a basic RVM on √(N·d) random rows keeps as vectors. Sparse problems can do with small
partitions, dense ones need large ones. (The paper prints the middle line with a reversed sign.)
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil, sqrt

import numpy as np

from partirvm.strategies.fit_rows import posterior_rows
from partirvm.strategies.incremental import Basic
from partirvm.strategies.instructions import Gather, Log, Save
from partirvm.strategies.problem import Options, Problem
from partirvm.strategies.rounds import Answer, Phase, RoundsState
from partirvm.strategies.rules import INTERMEDIATE

DENSE = 0.9
"""From this ρ on the kernel is probably wrong: nearly every row would be a vector."""


def partition_size(n_rows: int, n_features: int, rho: float) -> int:
    """P = ⌈f·√(N·d)⌉ with f = 0.2 for ρ ≤ 0.25, 0.6 for 0.25 < ρ ≤ 0.75, and 1 beyond.

    >>> [partition_size(6144, 8, rho) for rho in (0.1, 0.5, 0.9)]
    [45, 134, 222]
    >>> [partition_size(6144, 32, rho) for rho in (0.25, 0.75, 1.0)]
    [89, 267, 444]
    """
    return ceil(fraction(rho) * sqrt(n_rows * n_features))


def fraction(rho: float) -> float:
    """The part of √(N·d) that a sparseness ρ asks for."""
    return 0.2 if rho <= 0.25 else 0.6 if rho <= 0.75 else 1.0


def probe_rows(n_rows: int, n_features: int, cap: int) -> int:
    """⌈√(N·d)⌉ rows measure ρ, at most ``cap`` and at most all."""
    return min(ceil(sqrt(n_rows * n_features)), cap, n_rows)


class PartitionSize(Basic):
    """A basic RVM on a few random rows alone; its one line of history says how many stay. Leaves no model."""

    name = "partition-size"

    def first(self, problem: Problem, options: Options) -> RoundsState:
        """``Options.partition_size`` is the number of rows; they are the only ones that the fit sees."""
        size = min(options.partition_size, problem.n_rows)
        options = Options(
            partition_size=size * problem.n_kernels,
            selection="random",
            likelihood="sample",
            final_likelihood="sample",
            likelihood_rows=size,
            tol=INTERMEDIATE * options.tol,
            max_iterations=options.max_iterations,
            max_passes=options.max_passes,
            seed=options.seed,
        )
        problem = replace(problem, held_out=False)
        return replace(super().first(problem, options), options=options, selection="random")

    def _unused(self, state: RoundsState) -> int:
        return 0 if state.round else int(state.options.likelihood_rows)

    def _propose(self, state: RoundsState, room: int) -> Answer[RoundsState]:
        rows = posterior_rows(state.problem, state.options, "sample", state.design)
        rows = np.arange(room) if rows is None else rows
        return replace(state, phase=Phase.ROWS, chosen=rows), (Gather(rows),)

    def _save(self, state: RoundsState) -> Answer[RoundsState]:
        state, (save,) = super()._save(state)
        assert isinstance(save, Save)
        return state, (Log(replace(save.record, kind="heuristic")),)
