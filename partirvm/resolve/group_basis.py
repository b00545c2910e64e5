"""Columns of groups beside the kernel of a regression (``kernels.group_columns``)."""

from contextlib import suppress
from dataclasses import replace

import numpy as np

from partirvm.data.folds import folded, unfolded_source
from partirvm.kernels.functions import Basis, label_of
from partirvm.kernels.group_columns import MOST_COLUMNS, GroupColumns
from partirvm.learning.process_steps import searchable
from partirvm.learning.random_effects import (
    FOLDS,
    ROWS,
    VARIANCE_ROWS,
    GroupVariances,
    effects_mislead,
    group_variances,
)
from partirvm.resolve.kernel import chooses
from partirvm.resolve.samples import OutOfTime, Samples
from partirvm.resolve.small_fits import LearnedKernel
from partirvm.spec.problem import Problem
from partirvm.types import Int

WITHOUT_FIXED_ALPHA = "fast"
"""The solver that cannot hold α fixed, as columns of groups need."""


def with_group_effects(samples: Samples, problem: Problem) -> Problem:
    """Return a problem whose kernel is learned beside effects of groups, if the rows have groups
    and left-out groups do not speak against effects.

    Args:
        samples: supplies random rows
        problem: the problem with the initial kernel
    """
    if not takes_effects(problem) or samples.request.solver == WITHOUT_FIXED_ALPHA:
        return problem
    problem = replace(problem, group_effects=True)
    if not chooses(samples.request):
        return problem
    kernel = problem.empty.kernel.per_feature(problem.empty.scaling.n_inputs)
    most = min(samples.source.n_rows, FOLDS * ROWS)
    with suppress(OutOfTime), samples.take(problem, most) as sample:
        misled = effects_mislead(sample, problem.with_kernel(kernel), samples.request.seed)
        return replace(problem, group_effects=not misled)
    return problem


def with_group_columns(samples: Samples, kernel: LearnedKernel) -> LearnedKernel:
    """Return a learned kernel with columns of the groups beside it, if the rows have groups with
    effects.

    Args:
        samples: supplies random rows
        kernel: the problem with its kernel
    """
    problem = kernel.problem
    groups = problem.groups
    if groups is None or not problem.group_effects or not takes_effects(problem):
        return kernel
    n_groups = len(groups.known)
    if n_groups > MOST_COLUMNS:
        note = (
            f"effects of groups are no part of the fit: its {n_groups:,} groups are more than "
            f"{MOST_COLUMNS:,}"
        )
        return replace(kernel, notes=(*kernel.notes, note))
    variances = GroupVariances()
    most = min(samples.source.n_rows, VARIANCE_ROWS)
    samples = replace(samples, source=kernel.source)
    with suppress(OutOfTime), samples.take(problem, most) as sample:
        variances = group_variances(sample, problem, samples.request.seed)
    if not variances.intercept:
        return kernel
    columns = columns_of(groups.known, variances, samples.source.n_features)
    problem = with_columns(problem, columns)
    source = folded(unfolded_source(kernel.source), problem.empty.scaling, problem.empty.functions)
    deviation = problem.target_scale * float(np.sqrt(variances.intercept))
    slopes = " and slopes" if columns.n_slopes else ""
    note = (
        f"the {n_groups:,} groups have effects{slopes} with a standard deviation of "
        f"{deviation:.3g}; predictions of new groups include this uncertainty"
    )
    return replace(kernel, problem=problem, source=source, notes=(*kernel.notes, note))


def takes_effects(problem: Problem) -> bool:
    """Return True if groups of rows may have effects, beside a kernel that can be learned."""
    return problem.allows_effects and not problem.mean_only and searchable(problem)


def columns_of(codes: Int, variances: GroupVariances, n_features: int) -> GroupColumns:
    """Return the columns of groups, with slopes if they have a variance and are few.

    Args:
        codes: codes of the groups, increasing (G,)
        variances: the variances of their effects
        n_features: number of features
    """
    is_few = len(codes) * (1 + n_features) <= MOST_COLUMNS
    n_slopes = n_features if variances.slopes and is_few else 0
    return GroupColumns(codes, n_slopes, variances.intercept, variances.slopes / n_features)


def with_columns(problem: Problem, columns: GroupColumns) -> Problem:
    """Return the problem with columns of groups after its other basis functions, whose weights have
    their prior variances."""
    functions = problem.empty.functions or Basis(())
    others = functions.without_groups() or Basis(())
    labels = label_of(others.size + np.arange(columns.size))
    functions = Basis((*others.parts, (columns, columns.size)))
    precisions = np.tile(1.0 / columns.variances, len(columns.codes))
    fixed = tuple(
        (label, alpha) for label, alpha in problem.prior.fixed if label not in set(labels.tolist())
    )
    fixed += tuple(zip(labels.tolist(), precisions.tolist(), strict=True))
    return replace(
        problem,
        empty=replace(problem.empty, functions=functions),
        prior=replace(problem.prior, fixed=fixed),
    )


def with_new_groups(problem: Problem) -> Problem:
    """Return a problem with columns of all groups of its rows, if groups have columns and there are
    not too many."""
    columns = problem.empty.group_columns
    if columns is None or problem.groups is None:
        return problem
    columns = columns.with_groups(problem.groups.known)
    return with_columns(problem, columns) if columns.size <= MOST_COLUMNS else problem
