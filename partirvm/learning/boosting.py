"""Boosted trees whose predictions become basis functions (``kernels.trees``).

The trees are those of scikit-learn's ``HistGradientBoosting``: one forest learns from all rows, and
one without each of ``TREE_FOLDS`` folds. The column of a training row is predicted without its fold,
so that the weight of the column, the errors of left-out rows and the intervals are those of rows
that the trees have not seen. Rows of a group share a fold.

Missing numbers and labels are missing values of the trees. Features with at most ``MOST_LEVELS``
levels are categories to them, and they ignore features with more levels.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from partirvm.core.held_back import TREE_FOLDS, tree_folds
from partirvm.kernels.trees import MOST_LEAVES, MOST_LEVELS, BoostedTrees
from partirvm.learning.sample import SampledRows
from partirvm.spec.problem import Problem
from partirvm.types import Bool, Columns, Float, Int

TREE_ROWS = 200_000
"""Maximum number of rows from which trees learn."""

LEAST_ROWS = 50
"""Minimum number of rows: with fewer, a tree of scikit-learn hardly splits."""

RATE = 10.0
"""Learning rate times the number of rounds; the rate is at most ``MOST_RATE``."""

MOST_RATE = 0.3

ABSENT = -12.0
"""Logit of a class that is absent from the rows from which a forest learns."""

Trees: TypeAlias = Sequence[Any]
"""The trees of one output, as scikit-learn holds them."""


@dataclass(frozen=True)
class TaughtRows:
    """Rows from which trees learn.

    Attributes:
        X: raw inputs (n, d)
        targets: scaled targets (n, T), or class codes (n, 1)
        weights: row weights (n,), or None
        folds: the fold of each row (n,)
        counts: number of levels of each feature (d,) that is a category, 0 for a number
    """

    X: Float
    targets: Float
    weights: Float | None
    folds: Int
    counts: Int

    @classmethod
    def of(cls, sample: SampledRows, problem: Problem, columns: Columns) -> "TaughtRows":
        """Take the rows with positive weight of a sample.

        Args:
            sample: the sample
            problem: the problem, with the scaling of the targets
            columns: names and categories of the features
        """
        tile = sample.rows.gather(sample.rows.rows)
        present = tile.present
        numbers = sample.rows.rows[present]
        groups = None if tile.groups is None else tile.groups[present]
        targets = tile.t[present]
        if not problem.n_classes:
            targets = problem.empty.scaling.targets(targets)
        counts = levels_of_trees(columns)
        levels = [len(columns.categories.get(name, ())) for name in columns.features]
        X = tile.X[present]
        for j in np.flatnonzero(counts).tolist():
            X[:, j] = np.where((X[:, j] >= 0) & (X[:, j] < counts[j]), X[:, j], np.nan)
        X[:, (np.array(levels) > 0) & (counts == 0)] = 0.0
        weights = None if tile.weights is None else tile.weights[present]
        return cls(X, targets, weights, tree_folds(numbers, groups), counts)


def levels_of_trees(columns: Columns) -> Int:
    """Return the number of levels (d,) of each feature that is a category to the trees, 0 for other
    features."""
    levels = [len(columns.categories.get(name, ())) for name in columns.features]
    return np.array([count if count <= MOST_LEVELS else 0 for count in levels], dtype=np.int64)


class LearnedForest(NamedTuple):
    """A forest as scikit-learn holds it.

    Attributes:
        outputs: the trees of each output
        constants: the constant part of each output
    """

    outputs: list[Trees]
    constants: list[float]


Teach: TypeAlias = Callable[[TaughtRows, Bool, dict[str, Any]], LearnedForest]
"""Learns a forest from the rows of a mask (n,), with these options of scikit-learn."""


def regressors(rows: TaughtRows, known: Bool, options: dict[str, Any]) -> LearnedForest:
    """Learn the trees of each of T targets from the ``known`` rows (n,)."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    outputs = list[Trees]()
    constants = list[float]()
    weights = None if rows.weights is None else rows.weights[known]
    for target in rows.targets.T:
        trees = HistGradientBoostingRegressor(**options).fit(rows.X[known], target[known], weights)
        outputs.append([round_of_trees[0] for round_of_trees in trees._predictors])
        constants.append(float(trees._baseline_prediction.ravel()[0]))
    return LearnedForest(outputs, constants)


def grown(
    sample: SampledRows,
    problem: Problem,
    columns: Columns,
    *,
    rounds: int,
    seed: int,
) -> BoostedTrees:
    """Learn the forests from a sample of rows.

    Args:
        sample: the rows
        problem: the problem, with the scaling of the targets
        columns: names and categories of the features
        rounds: number of trees of an output
        seed: seed of scikit-learn
    """
    rows = TaughtRows.of(sample, problem, columns)
    categorical = rows.counts > 0
    options: dict[str, Any] = {
        "max_iter": rounds,
        "learning_rate": min(RATE / rounds, MOST_RATE),
        "max_leaf_nodes": MOST_LEAVES,
        "early_stopping": False,
        "random_state": seed,
        "categorical_features": np.flatnonzero(categorical) if categorical.any() else None,
    }
    learned = NodeArrays(rows.counts)
    everything = np.ones(len(rows.X), dtype=np.bool_)
    for known in (everything, *(rows.folds != fold for fold in range(TREE_FOLDS))):
        sample.check_interrupted()
        taught = known if known.any() else everything
        # on a busy machine its threads spin: ten times the CPU seconds
        with threadpool_limits(1, "openmp"):
            forest = regressors(rows, taught, options)
        levels = {j: np.unique(rows.X[taught, j]) for j in np.flatnonzero(categorical).tolist()}
        learned.add(forest, levels)
    return learned.trees()


class NodeArrays:
    """Collects the nodes of forests of scikit-learn."""

    def __init__(self, counts: Int) -> None:
        self.counts = counts
        # scikit-learn puts categories before numbers
        self._order = np.argsort(counts == 0, kind="stable")
        self._nodes = list[NDArray[Any]]()
        self._levels = list[Bool]()
        self._sets = list[Int]()
        self._rights = list[Int]()
        self._roots = list[list[list[int]]]()
        self._constants = list[list[float]]()
        self._count = 0

    def add(self, forest: LearnedForest, levels: dict[int, Float]) -> None:
        """Add a forest; ``levels`` are, by feature, the increasing codes from which it learned."""
        roots = list[list[int]]()
        for trees in forest.outputs:
            roots.append([self._add_tree(tree, levels) for tree in trees])
        self._roots.append(roots)
        self._constants.append(forest.constants)

    def _add_tree(self, tree: Any, levels: dict[int, Float]) -> int:
        """Add a tree; return the position of its root."""
        nodes = tree.nodes
        root = self._count
        is_leaf = nodes["is_leaf"].astype(np.bool_)
        self._rights.append(np.where(is_leaf, 0, root + nodes["right"].astype(np.int64)))
        sets = np.full(len(nodes), -1)
        for node in np.flatnonzero(nodes["is_categorical"].astype(np.bool_) & ~is_leaf).tolist():
            sets[node] = len(self._levels)
            self._levels.append(self._left_levels(tree, nodes[node], levels))
        self._sets.append(sets)
        self._nodes.append(nodes)
        self._count += len(nodes)
        return root

    def _left_levels(self, tree: Any, node: Any, levels: dict[int, Float]) -> Bool:
        """Return the levels (L,) that go left at a split on a category."""
        feature = int(self._order[node["feature_idx"]])
        bits = np.unpackbits(
            tree.raw_left_cat_bitsets[node["bitset_idx"]].view(np.uint8), bitorder="little"
        )
        left = np.full(int(self.counts.max()), bool(node["missing_go_to_left"]))
        known = levels[feature]
        known = known[~np.isnan(known)].astype(np.int64)
        left[known] = bits[: len(known)].astype(np.bool_)
        return left

    def trees(self) -> BoostedTrees:
        """Return the forests."""
        nodes = np.concatenate(self._nodes)
        is_leaf = nodes["is_leaf"].astype(np.bool_)
        features = np.where(is_leaf, -1, self._order[np.where(is_leaf, 0, nodes["feature_idx"])])
        width = int(self.counts.max())
        return BoostedTrees(
            features=features.astype(np.int64),
            thresholds=np.where(is_leaf, nodes["value"], nodes["num_threshold"]),
            rights=np.concatenate(self._rights),
            missing_left=nodes["missing_go_to_left"].astype(np.bool_),
            sets=np.concatenate(self._sets).astype(np.int64),
            levels=np.array(self._levels, dtype=np.bool_).reshape(len(self._levels), width),
            roots=np.array(self._roots, dtype=np.int64),
            constants=np.array(self._constants),
            counts=self.counts,
        )
