"""Boosted trees whose predictions become basis functions, learned before the kernel."""

from contextlib import suppress
from dataclasses import dataclass, replace

from partirvm.data import Source
from partirvm.data.folds import folded
from partirvm.kernels.functions import Basis
from partirvm.kernels.trees import BoostedTrees
from partirvm.learning.boosting import LEAST_ROWS, TREE_ROWS, grown
from partirvm.planning.memory import FLOAT
from partirvm.resolve.samples import OutOfTime, Samples
from partirvm.spec.problem import Problem

COPIES = 4
"""Number of copies of the rows in memory while trees learn."""


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


def with_trees(samples: Samples, problem: Problem) -> GrownTrees:
    """Learn the boosted trees that the basis asks for; without enough rows or time, it loses them.

    Args:
        samples: supplies random rows
        problem: the problem, whose basis has trees that are not learned yet
    """
    basis = problem.empty.functions
    if basis is None or basis.trees is None:
        return GrownTrees(problem, samples.source)
    shape = samples.shape
    affordable = samples.machine.budget // (COPIES * FLOAT * (shape.n_features + shape.n_targets))
    most = min(samples.source.n_rows, TREE_ROWS, int(affordable))
    if most < LEAST_ROWS or not problem.target_variance:
        reason = f"boosted trees need {LEAST_ROWS} rows, and a target that varies: there are none"
        return GrownTrees(without_trees(problem, basis), samples.source, (reason,))
    with suppress(OutOfTime), samples.take(problem, most) as sample:
        trees = grown(
            sample,
            problem,
            samples.source.columns,
            rounds=samples.request.tree_rounds,
            seed=samples.request.seed,
        )
        note = (
            f"boosted trees were learned from {len(sample.rows.rows):,} rows; for a training row, "
            "their prediction is that without its fold"
        )
        problem = with_functions(problem, basis.with_trees(trees))
        source = folded(samples.source, problem.empty.scaling, problem.empty.functions)
        return GrownTrees(problem, source, (note,))
    reason = "no boosted trees were learned because of time_limit"
    return GrownTrees(without_trees(problem, basis), samples.source, (reason,))


def with_functions(problem: Problem, functions: Basis | None) -> Problem:
    """Return the problem with other basis functions."""
    return replace(problem, empty=replace(problem.empty, functions=functions))


def without_trees(problem: Problem, basis: Basis) -> Problem:
    """Return the problem without the trees of its basis; the other functions keep their order."""
    parts = [part for part in basis.parts if not isinstance(part[0], BoostedTrees)]
    return with_functions(problem, Basis(tuple(parts)) if parts else None)
