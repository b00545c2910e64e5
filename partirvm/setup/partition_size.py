"""Choose the partition size by the √(N·d) sparseness heuristic of Ben-Shimon & Shmilovici (2006, §3.1).

ρ is the fraction of rows that a basic RVM on √(N·d) random rows keeps as vectors. Small partitions suffice for sparse
problems; dense problems need large partitions. (The paper prints the middle line with a reversed sign.)
"""

from __future__ import annotations

from math import ceil, sqrt

from partirvm.setup.basic_fits import fit_to_the_end
from partirvm.setup.sample import SampledRows
from partirvm.strategies.instructions import Record
from partirvm.strategies.new_columns import left_out
from partirvm.strategies.problem import Options, Problem
from partirvm.strategies.rounds import record
from partirvm.strategies.rules import INTERMEDIATE

DENSE = 0.9
"""ρ above which the kernel is probably too narrow, because nearly every row becomes a vector."""


def partition_size(n_rows: int, n_features: int, rho: float) -> int:
    """Compute the partition size ⌈f·√(N·d)⌉ with f = 0.2 for ρ ≤ 0.25, 0.6 for 0.25 < ρ ≤ 0.75, and 1 for larger ρ.

    >>> [partition_size(6144, 8, rho) for rho in (0.1, 0.5, 0.9)]
    [45, 134, 222]
    >>> [partition_size(6144, 32, rho) for rho in (0.25, 0.75, 1.0)]
    [89, 267, 444]
    """
    return ceil(fraction(rho) * sqrt(n_rows * n_features))


def fraction(rho: float) -> float:
    """Return the factor f of ``partition_size`` for a sparseness ρ."""
    return 0.2 if rho <= 0.25 else 0.6 if rho <= 0.75 else 1.0


def probe_rows(n_rows: int, n_features: int, cap: int) -> int:
    """Return the number of rows on which ρ is measured: ⌈√(N·d)⌉, at most ``cap`` and at most all rows."""
    return min(ceil(sqrt(n_rows * n_features)), cap, n_rows)


def sparseness(sample: SampledRows, problem: Problem, tol: float) -> Record:
    """Fit a basic RVM to the sample; return its history record, which has the numbers of candidates and vectors."""
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
