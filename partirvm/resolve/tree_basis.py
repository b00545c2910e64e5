"""Boosted trees whose predictions become basis functions, and the kernel beside them.

A kernel that is learned beside the trees explains what they leave; one that is learned without them
explains the target, and the trees correct it. Both are tried: the kernel with smaller errors on
left-out rows is used. With ``basis="auto"``, the trees are used if they lower the errors on
left-out rows clearly.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from partirvm.core.groups import standard_error
from partirvm.data import Source
from partirvm.data.folds import folded
from partirvm.kernels.functions import Basis
from partirvm.kernels.trees import BoostedTrees
from partirvm.learning.boosting import LEAST_ROWS, TREE_ROWS, grown
from partirvm.learning.process_search import left_out_losses, searchable
from partirvm.planning.memory import FLOAT
from partirvm.resolve.kernel import AUTO, learns
from partirvm.resolve.samples import OutOfTime, Samples
from partirvm.resolve.small_fits import LearnedKernel
from partirvm.spec.problem import Problem
from partirvm.types import LEARNING_ROWS, Float

COPIES = 4
"""Number of copies of the rows in memory while trees learn."""

TRIAL_ROWS = 2500
"""Maximum number of rows from which trees learn to be tried, as many as the process beside them
has: trees that learned from more rows would seem better than they are."""

SURE = 2.0
"""Minimum gain of the trees in squared error, in standard errors, for ``basis="auto"``."""

Learn: TypeAlias = Callable[[Samples, Problem], LearnedKernel]
"""Learns the kernel of a problem from random rows."""


@dataclass(frozen=True)
class GrownTrees:
    """A problem whose basis functions include the predictions of boosted trees, if requested.

    Attributes:
        problem: the problem
        source: the rows, with the trees' predictions without the row's fold
        notes: what was learned, or why there are no trees
    """

    problem: Problem
    source: Source
    notes: tuple[str, ...] = ()

    @property
    def basis(self) -> Basis | None:
        """The basis functions if trees are among them; None otherwise."""
        return basis_with_trees(self.problem)


@dataclass(frozen=True)
class KernelWithTrees:
    """A learned kernel beside boosted trees, if requested, and the notes on the trees."""

    kernel: LearnedKernel
    notes: tuple[str, ...] = ()


def kernel_with_trees(samples: Samples, problem: Problem, learn: Learn) -> KernelWithTrees:
    """Learn the boosted trees and the kernel, as requested.

    Args:
        samples: supplies random rows
        problem: the problem with the initial kernel, whose basis may have trees to be learned
        learn: learns the kernel of a problem
    """
    basis = basis_with_trees(problem)
    if basis is None:
        return KernelWithTrees(learn(samples, problem))
    request = samples.request
    if not learns(request) and request.basis != AUTO:
        trees = with_trees(samples, problem, TREE_ROWS)
        samples = replace(samples, source=trees.source)
        return KernelWithTrees(learn(samples, trees.problem), trees.notes)
    alone = learn(samples, without_trees(problem, basis))
    is_trial = request.basis == AUTO
    trees = with_trees(samples, problem, TRIAL_ROWS if is_trial else TREE_ROWS)
    if is_trial and not are_clearly_better(samples, alone, trees):
        note = "no boosted trees: they would not clearly lower the error of left-out rows"
        return KernelWithTrees(alone, (note,))
    if is_trial and samples.source.n_rows > TRIAL_ROWS:
        trees = with_trees(samples, problem, TREE_ROWS)
    if trees.basis is None:
        return KernelWithTrees(alone, trees.notes)
    kernel = learn(replace(samples, source=trees.source), trees.problem)
    if learns(request):
        alone = beside_trees(samples, alone, trees.basis)
        kernel = better_of(samples, kernel, alone)
    return KernelWithTrees(kernel, trees.notes)


def basis_with_trees(problem: Problem) -> Basis | None:
    """Return the basis functions of a problem if trees are among them; None otherwise."""
    basis = problem.empty.functions
    return basis if basis is not None and basis.trees is not None else None


def are_clearly_better(samples: Samples, alone: LearnedKernel, trial: GrownTrees) -> bool:
    """Return True if trees lower the squared errors of left-out rows by more than ``SURE`` standard
    errors.

    Args:
        samples: supplies random rows
        alone: the kernel without trees
        trial: the problem with trees
    """
    if trial.basis is None:
        return False
    before = losses_of(samples, alone)
    after = losses_of(samples, beside_trees(samples, alone, trial.basis))
    if not len(before) or len(before) != len(after):
        return False
    gain = before - after
    return bool(gain.mean() > SURE * standard_error(gain))


def better_of(samples: Samples, first: LearnedKernel, second: LearnedKernel) -> LearnedKernel:
    """Return the kernel with smaller errors on left-out rows, with the history of both; without
    enough rows, the first."""
    losses = [losses_of(samples, kernel) for kernel in (first, second)]
    is_second = len(losses[1]) > 0 and losses[1].mean() < losses[0].mean()
    chosen, other = (second, first) if is_second else (first, second)
    return replace(chosen, entries=other.entries + chosen.entries)


def losses_of(samples: Samples, kernel: LearnedKernel) -> Float:
    """Return the losses (m,) of left-out rows with a learned kernel; empty without enough rows or
    time."""
    if not searchable(kernel.problem):
        return np.zeros(0)
    most = min(LEARNING_ROWS, samples.source.n_rows)
    samples = replace(samples, source=kernel.source)
    with suppress(OutOfTime), samples.take(kernel.problem, most) as sample:
        return left_out_losses(sample, kernel.problem, samples.request.seed)
    return np.zeros(0)


def beside_trees(samples: Samples, kernel: LearnedKernel, basis: Basis) -> LearnedKernel:
    """Return a kernel that was learned without trees for a problem with these basis functions.

    Args:
        samples: supplies the source
        kernel: the learned kernel
        basis: the functions, with trees
    """
    problem = replace(kernel.problem, mean_only=False).with_functions(basis)
    source = folded(samples.source, problem.empty.scaling, basis)
    return replace(kernel, problem=problem, source=source)


def with_trees(samples: Samples, problem: Problem, most: int) -> GrownTrees:
    """Learn the boosted trees that the basis asks for; without enough rows or time, it loses them.

    Args:
        samples: supplies random rows
        problem: the problem, whose basis has trees that are not learned yet
        most: maximum number of rows from which they learn
    """
    basis = problem.empty.functions
    assert basis is not None
    shape = samples.shape
    affordable = samples.machine.budget // (COPIES * FLOAT * (shape.n_features + shape.n_targets))
    most = min(samples.source.n_rows, most, int(affordable))
    if most < LEAST_ROWS or not problem.target_variance:
        reason = f"no boosted trees: they need {LEAST_ROWS} rows, and a target that varies"
        return GrownTrees(without_trees(problem, basis), samples.source, (reason,))
    with suppress(OutOfTime), samples.take(problem, most) as sample:
        rounds = samples.request.tree_rounds
        seed = samples.request.seed
        trees = grown(sample, problem, samples.source.columns, rounds=rounds, seed=seed)
        problem = problem.with_functions(basis.with_trees(trees))
        source = folded(samples.source, problem.empty.scaling, problem.empty.functions)
        note = (
            f"boosted trees were learned from {len(sample.rows.rows):,} rows; for a training row, "
            "their prediction is that without its fold"
        )
        return GrownTrees(problem, source, (note,))
    reason = "no boosted trees: the time limit has passed"
    return GrownTrees(without_trees(problem, basis), samples.source, (reason,))


def without_trees(problem: Problem, basis: Basis) -> Problem:
    """Return the problem without the trees of its basis; the other functions keep their order."""
    parts = [part for part in basis.parts if not isinstance(part[0], BoostedTrees)]
    return problem.with_functions(Basis(tuple(parts)) if parts else None)
