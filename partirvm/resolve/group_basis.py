"""Columns of groups beside the kernel of a regression (``kernels.group_columns``)."""

from contextlib import suppress
from dataclasses import replace

import numpy as np

from partirvm.data.folds import folded, unfolded_source
from partirvm.kernels.functions import Basis, label_of
from partirvm.kernels.group_columns import MOST_GROUPS, GroupColumns
from partirvm.learning.group_variance import ROWS, group_variance
from partirvm.learning.process_search import searchable
from partirvm.resolve.samples import OutOfTime, Samples
from partirvm.resolve.small_fits import LearnedKernel
from partirvm.spec.problem import Problem
from partirvm.types import Int

SOLVER = "fast"
"""The solver that cannot hold α fixed."""


def with_group_columns(samples: Samples, kernel: LearnedKernel) -> LearnedKernel:
    """Return a learned kernel with columns of the groups beside it, if the rows have groups with
    effects.

    Args:
        samples: supplies random rows
        kernel: the problem with its kernel
    """
    problem = kernel.problem
    groups = problem.groups
    if groups is None or not takes_columns(problem) or samples.request.solver == SOLVER:
        return kernel
    if len(groups.known) > MOST_GROUPS:
        note = (
            f"the weights were fitted without effects of the {len(groups.known):,} groups, which "
            f"are more than {MOST_GROUPS}"
        )
        return replace(kernel, notes=(*kernel.notes, note))
    variance = 0.0
    most = min(samples.source.n_rows, 4 * ROWS)
    samples = replace(samples, source=kernel.source)
    with suppress(OutOfTime), samples.take(problem, most) as sample:
        variance = group_variance(sample, problem, samples.request.seed)
    if not variance:
        return kernel
    problem = with_columns(problem, groups.known, variance)
    source = folded(
        unfolded_source(kernel.source), problem.empty.scaling, problem.empty.functions
    )
    deviation = problem.target_scale * float(np.sqrt(variance))
    note = f"{len(groups.known):,} groups have effects with a standard deviation of {deviation:.3g}"
    return replace(kernel, problem=problem, source=source, notes=(*kernel.notes, note))


def takes_columns(problem: Problem) -> bool:
    """Return True for a regression of one target, with estimated noise and a kernel that can be
    learned."""
    return (
        problem.likelihood.has_noise
        and problem.n_targets == 1
        and problem.noise_variance is None
        and problem.target_variance > 0
        and not problem.mean_only
        and searchable(problem)
    )


def with_columns(problem: Problem, codes: Int, variance: float) -> Problem:
    """Return the problem with a column for each group, whose weights have a prior of this variance.

    Args:
        problem: the problem
        codes: codes of the groups, increasing (G,)
        variance: τ², in units of the scaled target
    """
    columns = GroupColumns(codes)
    functions = problem.empty.functions or Basis(())
    labels = label_of(functions.size + np.arange(columns.size))
    functions = Basis((*functions.parts, (columns, columns.size)))
    fixed = tuple((label, 1.0 / variance) for label in labels.tolist())
    return replace(
        problem,
        empty=replace(problem.empty, functions=functions),
        prior=replace(problem.prior, fixed=problem.prior.fixed + fixed),
    )
