"""How many candidates join in one basic RVM: the √(N·d) sparseness heuristic (Ben-Shimon & Shmilovici 2006, §4).

ρ is the fraction of rows that a basic RVM on √(N·d) random rows keeps as vectors. Sparse problems can do with small
partitions, dense ones need large ones. (The paper prints the middle line with a reversed sign.)
"""

from __future__ import annotations

from math import ceil, sqrt

from partirvm.setup.basic_fits import fit_to_the_end
from partirvm.setup.sample import Sample
from partirvm.strategies.instructions import Record
from partirvm.strategies.new_columns import left_out
from partirvm.strategies.problem import Options, Problem
from partirvm.strategies.rounds import record
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


def sparseness(sample: Sample, problem: Problem, tol: float) -> Record:
    """The line of history of a basic RVM of a sample: how many of its candidates stay as vectors."""
    offered, design = sample.candidates(problem, sample.rows.rows)
    count, duplicates = len(design.labels), left_out(offered, design)
    options = Options(sample.rows.n_rows * problem.n_kernels, "random", tol=INTERMEDIATE * tol)
    design, fit, reason = fit_to_the_end(sample, problem, options, design)
    return record(
        problem,
        fit,
        None,
        kind="heuristic",
        number=1,
        candidates=count,
        termination=reason,
        selection="random",
        fit_rows="sample",
        duplicates=duplicates,
        dropped=0,
    )
