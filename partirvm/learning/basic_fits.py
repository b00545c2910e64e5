"""Basic RVM fits of a sample: its rows are the candidates, and no other rows are used.

They compare kernels of two classes (``learning.folds``), and measure how sparse a problem is. The partition size
follows from the sparseness (Ben-Shimon & Shmilovici 2006, §3.1): ρ is the fraction of rows that a basic RVM on √(N·d)
random rows keeps as vectors. Small partitions suffice for sparse problems; dense problems need large partitions. (The
paper prints the middle line of ``partition_size`` with a reversed sign.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partirvm.core.sampling import Purpose, stream
from partirvm.kernels import Kernel, Several
from partirvm.kernels.design import Design
from partirvm.learning.sample import SampledRows
from partirvm.likelihoods.base import survivors
from partirvm.likelihoods.classes import Newton, Start
from partirvm.likelihoods.gaussian import Solve, settle
from partirvm.likelihoods.passes import GramPass, ResidualPass
from partirvm.strategies.instructions import Record
from partirvm.strategies.problem import Options, Problem
from partirvm.strategies.selection import count_duplicates
from partirvm.strategies.stages import INTERMEDIATE, final_rule, record

Float = NDArray[np.float64]

DENSE = 0.9
"""ρ above which the kernel is probably too narrow, because nearly every row becomes a vector."""

CLASS_CANDIDATES = 100
"""Maximum number of candidates of a basic RVM of classes in a fold, since the cost of a pass grows with their square.

It was not compared with other values.
"""


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
    count, duplicates = len(design.labels), count_duplicates(offered, design)
    options = Options(sample.rows.n_rows * problem.n_kernels, "random", tol=INTERMEDIATE * tol)
    likelihood: Any = problem.likelihood
    rule = replace(final_rule(options), guard=False)
    if problem.classifies:
        (course,) = _newton(sample, problem, [design], options)
        fit: Any = course.fit
        reason = course.reason
    else:
        (block,) = sample.run(GramPass(problem.empty, design, np.zeros((0, len(design.scaling.t_shift)))))
        begun = likelihood.join(problem, likelihood.start(problem), problem.empty, design, block)
        solution = sample.solve(Solve(begun, rule, count))
        (residual,) = sample.run(ResidualPass(survivors(design, solution.fit), solution.fit.posterior.means))
        fit, reason = settle(solution.fit, residual), solution.reason
    assert reason is not None
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


def fits_at(
    sample: SampledRows, problem: Problem, options: Options, kernels: Sequence[Kernel | Several]
) -> list[tuple[Design, Float]]:
    """Fit one basic RVM of two classes per kernel; return for each the columns kept and the posterior mean (M, 1).

    The fits use the looser tolerance of intermediate fits. The errors of two widths differ clearly long before the
    fits have converged to the final tolerance.
    """
    rows = sample.rows.rows
    if len(rows) > CLASS_CANDIDATES:
        rows = np.sort(stream(options.seed, Purpose.BASIC_CANDIDATES).permutation(rows)[:CLASS_CANDIDATES])
    designs = [sample.candidates(problem.with_kernel(kernel), rows)[1] for kernel in kernels]
    loose = replace(options, tol=INTERMEDIATE * options.tol)
    found = [course.fit for course in _newton(sample, problem, designs, loose)]
    return [(survivors(design, fit), fit.mean) for design, fit in zip(designs, found, strict=True)]


def _newton(sample: SampledRows, problem: Problem, designs: list[Design], options: Options) -> list[Newton]:
    """Run several classification fits together, so that one reading of the rows serves the next pass of each fit."""
    likelihood: Any = problem.likelihood
    start = Start.of(likelihood.start(problem))
    rule = replace(final_rule(options), max_iterations=options.max_passes, guard=False)
    running = [
        Newton(design, likelihood.name, start, rule, len(design.labels), prior=problem.prior) for design in designs
    ]
    while going := [k for k, course in enumerate(running) if course.reason is None]:
        blocks: list[Any] = sample.run(*(running[k].next_pass for k in going))
        for k, block in zip(going, blocks, strict=True):
            running[k] = running[k].advance(block, sample.check_interrupted)
    return running
