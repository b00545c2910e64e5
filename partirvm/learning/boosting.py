"""Boosted trees that have a share in the predictions of a fit (``kernels.trees``).

The trees are those of scikit-learn's ``HistGradientBoosting``. One forest learns without each of
``TREE_FOLDS`` folds, and predicts the rows of this fold; rows of a group share a fold. The forest
of all rows predicts new rows.

Boosting ends when the loss of the first left-out fold no longer falls, and all forests have this
number of rounds. Of 600 to 1,000 rows, 200 rounds raise the log loss of classes by 5 to 35 % over
that at the best number of rounds.

Missing numbers and labels are missing values of the trees. Features with at most ``MOST_LEVELS``
levels are categories to them, and they ignore features with more levels.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from partirvm.core.held_back import tree_folds
from partirvm.kernels.trees import MOST_LEAVES, MOST_LEVELS, BoostedTrees
from partirvm.learning.sample import SampledRows
from partirvm.spec.problem import Problem
from partirvm.types import Bool, Columns, Float, Int

LEAST_ROWS = 50
"""Minimum number of rows: with fewer, a tree of scikit-learn hardly splits."""

RATE = 10.0
"""Learning rate times the number of rounds, for few rounds; the rate is between ``LEAST_RATE`` and
``MOST_RATE``."""

LEAST_RATE = 0.05

MOST_RATE = 0.3

TRIED_FEATURES = 0.5
"""Share of the features, drawn at random, among which each split is chosen. On five sets of 600 to
1,500 rows, this and ``LEAF_ROWS`` lower the error of the trees by 1 to 25 %."""

LEAF_ROWS = 10
"""Minimum number of rows of a leaf."""

FEW_ROUNDS = 40
"""Number of rounds, at a higher rate, that tell whether trees may help: 40 rounds at .25 reach the
error of 100 at .1 within 2.5 %."""

CHUNK = 25
"""Number of rounds between two comparisons with left-out rows."""

LEAST_FALL = 1e-3
"""Relative decrease of the loss in ``PATIENCE`` rounds below which boosting ends."""

PATIENCE = 50
"""Number of rounds without a clearly lower loss after which boosting ends. With 20, it ends after a
third of the best number of rounds where few large errors decide (census)."""

ABSENT = -12.0
"""Logit of a class that is absent from the rows from which a forest learns."""


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
        targets = problem.empty.scaling.targets(tile.t[present])
        counts = levels_of_trees(columns)
        levels = [len(columns.categories.get(name, ())) for name in columns.features]
        X = np.array(tile.X[present])
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


def steps_of(rounds: int) -> dict[str, Any]:
    """Return the options for a number of rounds and the learning rate that suits it."""
    rate = min(max(RATE / rounds, LEAST_RATE), MOST_RATE)
    return {"max_iter": rounds, "learning_rate": rate}


def tree_options(rows: TaughtRows, rounds: int, seed: int) -> dict[str, Any]:
    """Return the options of scikit-learn for at most this number of rounds."""
    categorical = np.flatnonzero(rows.counts)
    return {
        **steps_of(rounds),
        "max_leaf_nodes": MOST_LEAVES,
        "max_features": TRIED_FEATURES,
        "min_samples_leaf": LEAF_ROWS,
        "early_stopping": False,
        "random_state": seed,
        "categorical_features": categorical if len(categorical) else None,
    }


class Nodes(NamedTuple):
    """The nodes of a tree, in the form of ``BoostedTrees``, with positions from 0."""

    features: Int
    thresholds: Float
    rights: Int
    missing_left: Bool
    levels: list[Bool]
    sets: Int


NO_SPLIT = Nodes(
    features=np.array([-1]),
    thresholds=np.zeros(1),
    rights=np.zeros(1, np.int64),
    missing_left=np.ones(1, np.bool_),
    levels=[],
    sets=np.array([-1]),
)
"""A tree of a single leaf with the value 0."""


@dataclass(frozen=True)
class LearnedForest:
    """A forest, by output.

    Attributes:
        outputs: the trees of each output
        constants: the constant part of each output
    """

    outputs: list[list[Nodes]]
    constants: list[float]


class NumberBoosting:
    """Boosting of scaled targets, which loses squared errors."""

    def models(self, rows: TaughtRows, options: dict[str, Any]) -> list[Any]:
        """Return an estimator of scikit-learn for each target."""
        from sklearn.ensemble import HistGradientBoostingRegressor

        return [HistGradientBoostingRegressor(**options) for _ in rows.targets.T]

    def targets(self, rows: TaughtRows) -> Float | Int:
        """Return the targets (n, T) of rows."""
        return rows.targets

    def is_taught(self, targets: Float | Int) -> bool:
        """Return True if an estimator can learn from these targets (n, T)."""
        return len(targets) > 0

    def losses(self, model: Any, X: Float, target: Float | Int, weights: Float) -> Float:
        """Return the sums of losses (r,) of rows after each of r rounds.

        Args:
            model: the estimator
            X: inputs (m, d)
            target: targets (m,)
            weights: row weights (m,)
        """
        stages = model.staged_predict(X)
        return np.array([weights @ (stage - target) ** 2 for stage in stages])

    def forest(
        self, models: Sequence[Any], rows: TaughtRows, known: Bool, rounds: int
    ) -> LearnedForest:
        """Return the first rounds of estimators.

        Args:
            models: an estimator for each target
            rows: the rows
            known: mask of the rows from which they learned (n,)
            rounds: number of rounds
        """
        outputs = []
        constants = []
        for model in models:
            (trees,) = zip(*model._predictors[:rounds], strict=True)
            outputs.append(converted(trees, rows, known))
            constants.append(float(model._baseline_prediction.ravel()[0]))
        return LearnedForest(outputs, constants)


@dataclass(frozen=True)
class ClassBoosting(NumberBoosting):
    """Boosting of the logits of ``n_classes`` classes, or of the logit of the second of two
    classes, which loses minus log probabilities."""

    n_classes: int

    def models(self, rows: TaughtRows, options: dict[str, Any]) -> list[Any]:
        from sklearn.ensemble import HistGradientBoostingClassifier

        return [HistGradientBoostingClassifier(**options)]

    def targets(self, rows: TaughtRows) -> Float | Int:
        return rows.targets.astype(np.int64)

    def is_taught(self, targets: Float | Int) -> bool:
        return len(np.unique(targets)) > 1

    def losses(self, model: Any, X: Float, target: Float | Int, weights: Float) -> Float:
        """Return the sums of minus log probabilities (r,) of rows after each of r rounds.

        Args:
            model: the estimator
            X: inputs (m, d)
            target: codes of classes (m,)
            weights: row weights (m,)
        """
        places = np.searchsorted(model.classes_, target)
        places = np.minimum(places, len(model.classes_) - 1)
        is_known = model.classes_[places] == target
        rows = np.arange(len(target))
        return np.array(
            [
                weights @ np.where(is_known, -np.log(stage[rows, places]), -ABSENT)
                for stage in model.staged_predict_proba(X)
            ]
        )

    def forest(
        self, models: Sequence[Any], rows: TaughtRows, known: Bool, rounds: int
    ) -> LearnedForest:
        """Return the first rounds of an estimator of classes.

        Args:
            models: the estimator
            rows: the rows
            known: mask of the rows from which it learned (n,)
            rounds: number of rounds
        """
        (model,) = models
        classes = model.classes_.tolist()
        outputs = [[NO_SPLIT] * rounds] * self.n_classes
        constants = [ABSENT] * self.n_classes
        constants[classes[0]] = 0.0
        # of two classes, scikit-learn has the logit of the second one
        for place, trees, constant in zip(
            classes if len(classes) > 2 else classes[1:],
            zip(*model._predictors[:rounds], strict=True),
            model._baseline_prediction.ravel().tolist(),
            strict=True,
        ):
            outputs[place] = converted(trees, rows, known)
            constants[place] = constant
        if self.n_classes == 2:
            return LearnedForest(outputs[1:], [constants[1] - constants[0]])
        return LearnedForest(outputs, constants)


def boosting_of(n_classes: int) -> NumberBoosting:
    """Return how this number of classes is boosted; 0 means numbers."""
    return ClassBoosting(n_classes) if n_classes else NumberBoosting()


@dataclass
class Forests:
    """Learns the forests from rows. The first one that learns without some rows determines the
    number of rounds of all.

    Attributes:
        rows: the rows
        kind: how their targets are boosted
        options: options of scikit-learn; ``max_iter`` is the maximum number of rounds
        check: called between rounds; it may raise to end the work
        rounds: the number of rounds, once it is known
    """

    rows: TaughtRows
    kind: NumberBoosting
    options: dict[str, Any]
    check: Callable[[], None] = lambda: None
    rounds: int | None = None

    def few(self, known: Bool) -> BoostedTrees | None:
        """Learn a few trees from the ``known`` rows (n,), which tell whether more may help."""
        options = self.options | steps_of(min(FEW_ROUNDS, int(self.options["max_iter"])))
        return replace(self, options=options, rounds=options["max_iter"]).forest(known)

    def forest(self, known: Bool) -> BoostedTrees | None:
        """Learn from the ``known`` rows (n,); return None if they have a single class.

        Raises what ``check`` raises.
        """
        self.check()
        rows = self.rows
        targets = self.kind.targets(rows)
        if not self.kind.is_taught(targets[known]):
            return None
        if self.rounds is None and not known.all():
            models = self._tried(known)
        else:
            self.rounds = self.rounds or int(self.options["max_iter"])
            models = self.kind.models(rows, self.options | {"max_iter": self.rounds})
            self._teach(models, known)
        return trees_of(self.kind.forest(models, rows, known, self.rounds or 1), rows.counts)

    def _tried(self, known: Bool) -> list[Any]:
        """Boost until the loss of the other rows no longer falls, and determine the number of
        rounds."""
        rows = self.rows
        targets = self.kind.targets(rows)[~known]
        weights = np.ones(len(known)) if rows.weights is None else rows.weights
        left_out = rows.X[~known]
        models = self.kind.models(rows, self.options | {"warm_start": True})
        most = int(self.options["max_iter"])
        for count in range(CHUNK, most + CHUNK, CHUNK):
            self.check()
            for model in models:
                model.set_params(max_iter=min(count, most))
            self._teach(models, known)
            losses = np.sum(
                [
                    self.kind.losses(model, left_out, target, weights[~known])
                    for model, target in zip(models, targets.T, strict=True)
                ],
                axis=0,
            )
            self.rounds = int(losses.argmin()) + 1
            before = losses[:-PATIENCE]
            if len(before) and losses.min() > (1.0 - LEAST_FALL) * before.min():
                break
        return models

    def _teach(self, models: Sequence[Any], known: Bool) -> None:
        """Fit the estimators to the targets of the ``known`` rows."""
        rows = self.rows
        weights = () if rows.weights is None else (rows.weights[known],)
        targets = self.kind.targets(rows)[known]
        # on a busy machine its threads spin: ten times the CPU seconds
        with threadpool_limits(1, "openmp"):
            for model, target in zip(models, targets.T, strict=True):
                model.fit(rows.X[known], target, *weights)


def converted(trees: Sequence[Any], rows: TaughtRows, known: Bool) -> list[Nodes]:
    """Return trees of scikit-learn in the form of ``BoostedTrees``.

    Args:
        trees: the trees of one output
        rows: the rows
        known: mask of the rows from which they learned (n,)
    """
    levels = {}
    for feature in np.flatnonzero(rows.counts).tolist():
        codes = np.unique(rows.X[known, feature])
        levels[feature] = codes[~np.isnan(codes)].astype(np.int64)
    return [nodes_of(tree, rows.counts, levels) for tree in trees]


def nodes_of(tree: Any, counts: Int, levels: dict[int, Int]) -> Nodes:
    """Return the nodes of a tree of scikit-learn.

    Args:
        tree: the tree
        counts: number of levels of each feature (d,), 0 for a number
        levels: by feature, the increasing codes in the rows from which the tree learned
    """
    nodes = tree.nodes
    is_leaf = nodes["is_leaf"].astype(np.bool_)
    # scikit-learn puts categories before numbers
    order = np.argsort(counts == 0, kind="stable")
    features = np.where(is_leaf, -1, order[np.where(is_leaf, 0, nodes["feature_idx"])])
    # scikit-learn separates missing values from all others by an infinite threshold
    thresholds = np.minimum(nodes["num_threshold"], np.finfo(np.float64).max)
    splits = np.flatnonzero((nodes["is_categorical"] != 0) & ~is_leaf)
    sets = np.full(len(nodes), -1)
    sets[splits] = np.arange(len(splits))
    return Nodes(
        features=features.astype(np.int64),
        thresholds=np.where(is_leaf, nodes["value"], thresholds),
        rights=np.where(is_leaf, 0, nodes["right"]).astype(np.int64),
        missing_left=nodes["missing_go_to_left"].astype(np.bool_),
        levels=[
            left_levels(tree, nodes[node], levels[int(features[node])], int(counts.max()))
            for node in splits.tolist()
        ],
        sets=sets,
    )


def left_levels(tree: Any, node: Any, codes: Int, width: int) -> Bool:
    """Return a mask (L,) of the levels that go left at a split on a category.

    Args:
        tree: the tree of scikit-learn
        node: its node
        codes: increasing codes of the levels that it knows, which it numbers from 0; other levels
            go where missing values go
        width: number L of levels
    """
    bits = tree.raw_left_cat_bitsets[node["bitset_idx"]]
    goes_left = np.unpackbits(bits.view(np.uint8), bitorder="little").astype(np.bool_)
    left = np.full(width, bool(node["missing_go_to_left"]))
    left[codes] = goes_left[: len(codes)]
    return left


def trees_of(forest: LearnedForest, counts: Int) -> BoostedTrees:
    """Return a forest as one value.

    Args:
        forest: the forest
        counts: (d,), number of levels of a categorical feature; 0 for a number
    """
    trees = [tree for output in forest.outputs for tree in output]
    starts = np.cumsum([0, *(len(tree.features) for tree in trees)])
    first_sets = np.cumsum([0, *(len(tree.levels) for tree in trees)])
    rights = [
        np.where(tree.features < 0, 0, tree.rights + start)
        for tree, start in zip(trees, starts, strict=False)
    ]
    sets = [
        np.where(tree.sets < 0, -1, tree.sets + first)
        for tree, first in zip(trees, first_sets, strict=False)
    ]
    levels = [left for tree in trees for left in tree.levels]
    return BoostedTrees(
        features=np.concatenate([tree.features for tree in trees]),
        thresholds=np.concatenate([tree.thresholds for tree in trees]),
        rights=np.concatenate(rights),
        missing_left=np.concatenate([tree.missing_left for tree in trees]),
        sets=np.concatenate(sets),
        levels=np.array(levels, dtype=np.bool_).reshape(len(levels), int(counts.max())),
        roots=starts[:-1].reshape(len(forest.outputs), -1),
        constants=np.array(forest.constants),
        counts=counts,
    )
