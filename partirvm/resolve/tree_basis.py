"""Boosted trees whose predictions become basis functions, and the kernel beside them.

A kernel that is learned beside the trees explains what they leave; one that is learned without them
explains the target, and the trees correct it. Both are tried: the kernel with the higher log
density of left-out rows is used.

With ``basis="auto"``, the trees must pay: a few trees of some rows are mixed with the predictions
of the kernel for the other rows, and trees are used if the best mixture lowers their loss clearly.
A process with the kernel and the trees together is no judge: it predicts worse than the mixture
where finished fits gain (phoneme, a power plant: 1 to 3 % worse, fits 6 to 14 % better).
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

import numpy as np

from partirvm.core.groups import standard_error
from partirvm.core.held_back import tree_folds
from partirvm.data import Source
from partirvm.data.folds import folded
from partirvm.kernels.functions import Basis
from partirvm.kernels.trees import BoostedTrees
from partirvm.learning.boosting import (
    LEAST_ROWS,
    TREE_ROWS,
    TaughtRows,
    TrialForest,
    grown,
    tree_options,
    trial,
    trial_of,
)
from partirvm.learning.left_out_scores import LeftOutScores, left_out_scores
from partirvm.learning.process_search import searchable
from partirvm.planning.cost import tries_residuals
from partirvm.planning.memory import FLOAT
from partirvm.resolve.kernel import AUTO, learns
from partirvm.resolve.samples import OutOfTime, Samples
from partirvm.resolve.small_fits import LearnedKernel
from partirvm.spec.problem import Problem
from partirvm.types import Float, Int

COPIES = 4
"""Number of copies of the rows in memory while trees learn."""

JUDGED_ROWS = 1500
"""Maximum number of rows that judge kernels and trees, known and left-out ones."""

LEAST_JUDGED_ROWS = 400
"""Minimum number of rows of a fit whose kernels and trees are judged: with 310 rows of cars and 106
of motorcycles, left-out rows hardly tell, and trees raise the error by 5 and 28 %."""

NEW_FOLDS = 2
"""Number of folds of the trees, of five, that are left out."""

JUDGED_ROUNDS = 60
"""Maximum number of rounds of the trees that learn from the known rows."""

JUDGED_ROUNDS_OF_CLASSES = 30
"""The same for three or more classes, each of which has a tree in a round."""

LEAST_GAIN = 0.02
"""Minimum decrease of the loss by the best mixture, relative to the kernel alone, for
``basis="auto"``."""

SURE = 1.5
"""The same in standard errors. Of the public sets with 400 to 2,000 rows, those that trees improve
by more than 5 % had 1.8 to 2.5 standard errors, and those that they make worse 0 to 1.0."""

MIXTURES = np.linspace(0.0, 1.0, 11)
"""Shares of the trees that are tried in a mixture."""

REFUSED = "no boosted trees: they would not clearly lower the error of left-out rows"
"""Note on a fit with ``basis="auto"`` and without trees."""

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
        trees = with_trees(samples, problem)
        samples = replace(samples, source=trees.source)
        return KernelWithTrees(learn(samples, trees.problem), trees.notes)
    alone = learn(samples, without_trees(problem, basis))
    split = known_and_new(samples, problem)
    if request.basis == AUTO and not (split and would_gain(split, alone)):
        return KernelWithTrees(alone, (REFUSED,))
    trees = with_trees(samples, problem)
    if trees.basis is None:
        return KernelWithTrees(alone, trees.notes)
    kernel = beside_trees(samples, alone, trees.basis)
    if learns(request):
        beside = learn(replace(samples, source=trees.source), trees.problem)
        kernel = better_of(split and split.with_trees(), kernel, beside)
    return KernelWithTrees(kernel, trees.notes)


def basis_with_trees(problem: Problem) -> Basis | None:
    """Return the basis functions of a problem if trees are among them; None otherwise."""
    basis = problem.empty.functions
    return basis if basis is not None and basis.trees is not None else None


@dataclass(frozen=True)
class JudgedSplit:
    """Rows on which kernels are judged, which neither they nor the trees beside them have seen.

    The left-out rows are whole folds of the trees. Trees of the known rows alone predict them as
    trees of all rows predict new rows: with trees of other folds of all rows, the columns of the
    known rows would depend on the targets of the left-out ones.

    Attributes:
        samples: supplies the rows
        problem: the problem, whose basis has trees that are not learned yet
        known: numbers of the known rows (n,)
        new: numbers of the left-out rows (m,)
        trees: the basis with trees of the known rows, or None for kernels without trees
    """

    samples: Samples
    problem: Problem
    known: Int
    new: Int
    trees: Basis | None = None

    def scores(self, kernel: LearnedKernel) -> LeftOutScores | None:
        """Return the scores of a learned kernel beside the trees; None if it cannot be judged, or
        without time."""
        samples = self.samples
        problem = kernel.problem
        if not searchable(problem):
            return None
        corrects = tries_residuals(samples.request.residual, problem.n_rows, problem.n_targets)
        if self.trees is not None:
            kernel = beside_trees(samples, kernel, self.trees)
        with (
            suppress(OutOfTime, np.linalg.LinAlgError),
            replace(samples, source=kernel.source).take(problem, self.n_rows) as sample,
        ):
            return left_out_scores(sample, kernel.problem, self.known, self.new, residuals=corrects)
        return None

    @property
    def n_rows(self) -> int:
        """Number of rows of the sample."""
        return min(JUDGED_ROWS, self.samples.source.n_rows)

    def forest(self) -> TrialForest | None:
        """Learn a few trees from the known rows, and predict the left-out rows."""
        samples = self.samples
        kind = trial_of(self.problem.n_classes)
        with suppress(OutOfTime), samples.take(self.problem, self.n_rows) as sample:
            rows = TaughtRows.of(sample, self.problem, samples.source.columns)
            options = tree_options(rows, self.rounds, samples.request.seed)
            is_known = rows.folds >= NEW_FOLDS
            return trial(rows, is_known, kind, options, sample.check_interrupted)
        return None

    def with_trees(self) -> "JudgedSplit | None":
        """Return the split with trees of the known rows; None without time."""
        samples = self.samples
        basis = self.problem.empty.functions
        assert basis is not None
        with suppress(OutOfTime), samples.take(self.problem, self.n_rows) as sample:
            trees = grown(
                sample.only(self.known),
                self.problem,
                samples.source.columns,
                rounds=self.rounds,
                seed=samples.request.seed,
                on_forest=partial(report_forest, samples),
            )
            return replace(self, trees=basis.with_trees(trees))
        return None

    @property
    def rounds(self) -> int:
        """Maximum number of rounds of the trees."""
        most = JUDGED_ROUNDS if self.problem.n_classes < 3 else JUDGED_ROUNDS_OF_CLASSES
        return min(most, self.samples.request.tree_rounds)


def known_and_new(samples: Samples, problem: Problem) -> JudgedSplit | None:
    """Return the rows on which kernels are judged; None with too few rows, or without time.

    Args:
        samples: supplies random rows
        problem: the problem, whose basis has trees that are not learned yet
    """
    n_rows = samples.source.n_rows
    if n_rows < LEAST_JUDGED_ROWS or not problem.target_variance:
        return None
    with suppress(OutOfTime), samples.take(problem, min(JUDGED_ROWS, n_rows)) as sample:
        numbers = sample.rows.rows
        numbers = numbers[sample.rows.gather(numbers).present]
        is_new = tree_folds(numbers, sample.groups_of(numbers)) < NEW_FOLDS
        if is_new.any() and not is_new.all():
            return JudgedSplit(samples, problem, numbers[~is_new], numbers[is_new])
    return None


def would_gain(split: JudgedSplit, alone: LearnedKernel) -> bool:
    """Return True if a mixture of a few trees and the kernel predicts left-out rows clearly better
    than the kernel alone.

    Args:
        split: the rows
        alone: the kernel that was learned without trees
    """
    scores = split.scores(alone)
    forest = None if scores is None else split.forest()
    if scores is None or forest is None:
        return False
    losses = mixed_losses(forest.targets, scores.predictions, forest.predictions)
    gain = losses[0] - losses[losses.mean(axis=1).argmin()]
    least = LEAST_GAIN * float(losses[0].mean())
    return bool(gain.mean() > max(least, SURE * standard_error(gain, scores.groups)))


def mixed_losses(targets: Float | Int, by_kernel: Float, by_trees: Float) -> Float:
    """Return the losses (k, m) of each of the ``MIXTURES`` of two predictions: squared errors, or
    log losses of classes.

    Args:
        targets: scaled targets (m, T), or codes of classes (m, 1) as integers
        by_kernel: predicted targets (m, T), or probabilities (m, K)
        by_trees: the same by trees
    """
    shares = MIXTURES[:, None, None]
    mixed = (1 - shares) * by_kernel + shares * by_trees
    if targets.dtype == np.int64:
        return np.asarray(-np.log(mixed[:, np.arange(len(targets)), targets[:, 0]]))
    return np.asarray(((targets - mixed) ** 2).mean(axis=2))


def better_of(
    split: JudgedSplit | None, first: LearnedKernel, second: LearnedKernel
) -> LearnedKernel:
    """Return the kernel with the higher log density of left-out rows, with the history of both;
    without enough rows or time, the first.

    Args:
        split: the rows and the trees beside the kernels, or None
        first: the kernel that was learned without trees
        second: the kernel that was learned beside them
    """
    scores = [None if split is None else split.scores(kernel) for kernel in (first, second)]
    is_second = (
        scores[0] is not None
        and scores[1] is not None
        and scores[1].losses.mean() < scores[0].losses.mean()
    )
    chosen, other = (second, first) if is_second else (first, second)
    return replace(chosen, entries=other.entries + chosen.entries)


def beside_trees(samples: Samples, kernel: LearnedKernel, basis: Basis) -> LearnedKernel:
    """Return a kernel that was learned without trees for a problem with these basis functions, and
    with the jumps beside which it was learned.

    Args:
        samples: supplies the source
        kernel: the learned kernel
        basis: the functions, with trees
    """
    before = kernel.problem.empty.functions
    if before is not None and before.jumps is not None:
        basis = Basis(((before.jumps, before.jumps.size), *basis.parts))
    problem = replace(kernel.problem, mean_only=False).with_functions(basis)
    source = folded(samples.source, problem.empty.scaling, basis)
    return replace(kernel, problem=problem, source=source)


def with_trees(samples: Samples, problem: Problem) -> GrownTrees:
    """Learn the boosted trees that the basis asks for; without enough rows or time, it loses them.

    Args:
        samples: supplies random rows
        problem: the problem, whose basis has trees that are not learned yet
    """
    basis = problem.empty.functions
    assert basis is not None
    shape = samples.shape
    affordable = samples.machine.budget // (COPIES * FLOAT * (shape.n_features + shape.n_targets))
    most = min(samples.source.n_rows, TREE_ROWS, int(affordable))
    if most < LEAST_ROWS or not problem.target_variance:
        reason = f"no boosted trees: they need {LEAST_ROWS} rows, and a target that varies"
        return GrownTrees(without_trees(problem, basis), samples.source, (reason,))
    with suppress(OutOfTime), samples.take(problem, most) as sample:
        rounds = samples.request.tree_rounds
        seed = samples.request.seed
        trees = grown(
            sample,
            problem,
            samples.source.columns,
            rounds=rounds,
            seed=seed,
            on_forest=partial(report_forest, samples),
        )
        problem = problem.with_functions(basis.with_trees(trees))
        source = folded(samples.source, problem.empty.scaling, problem.empty.functions)
        note = (
            f"boosted trees were learned from {len(sample.rows.rows):,} rows in "
            f"{trees.roots.shape[2]:,} rounds; each training row is predicted by trees that "
            "learned from other rows"
        )
        return GrownTrees(problem, source, (note,))
    reason = "no boosted trees: the time limit has passed"
    return GrownTrees(without_trees(problem, basis), samples.source, (reason,))


def report_forest(samples: Samples, number: int, total: int) -> None:
    """Report that the forest after ``number`` forests is learned."""
    samples.on_step(min(number + 1, total), total, "boosted trees")


def without_trees(problem: Problem, basis: Basis) -> Problem:
    """Return the problem without the trees of its basis; the other functions keep their order."""
    parts = [part for part in basis.parts if not isinstance(part[0], BoostedTrees)]
    return problem.with_functions(Basis(tuple(parts)) if parts else None)
