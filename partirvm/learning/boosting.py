"""Boosted trees whose predictions become basis functions (``kernels.trees``).

The trees are those of scikit-learn's ``HistGradientBoosting``: one forest learns from all rows, and
one without each of ``TREE_FOLDS`` folds. The columns of a training row are predicted without its
fold, so that the weights of the columns, the errors of left-out rows and the intervals are those of
rows that the trees have not seen. Rows of a group share a fold.

Boosting ends when the loss of a left-out fold no longer falls (``trial``). Of 600 to 1,000 rows,
200 rounds raise the log loss of classes by 5 to 35 % over that at the best number of rounds.

Missing numbers and labels are missing values of the trees. Features with at most ``MOST_LEVELS``
levels are categories to them, and they ignore features with more levels.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from threadpoolctl import threadpool_limits

from partirvm.core.held_back import TREE_FOLDS, tree_folds
from partirvm.kernels.trees import MOST_LEAVES, MOST_LEVELS, BoostedTrees
from partirvm.learning.sample import SampledRows
from partirvm.spec.problem import Likelihood, Problem
from partirvm.types import Bool, Columns, Float, Int

TREE_ROWS = 200_000
"""Maximum number of rows from which trees learn."""

LEAST_ROWS = 50
"""Minimum number of rows: with fewer, a tree of scikit-learn hardly splits."""

RATE = 10.0
"""Learning rate times the number of rounds; the rate is at most ``MOST_RATE``."""

MOST_RATE = 0.3

TRIED_FEATURES = 0.5
"""Share of the features, drawn at random, among which each split is chosen. On five sets of 600 to
1,500 rows, this and ``LEAF_ROWS`` lower the error of the trees by 1 to 25 %."""

LEAF_ROWS = 10
"""Minimum number of rows of a leaf."""

CHUNK = 10
"""Number of rounds between two comparisons with left-out rows."""

PATIENCE = 20
"""Number of rounds without a lower loss after which boosting ends."""

LEAST_PROBABILITY = 1e-6
"""Lower bound of the probability of a class that the trees never saw."""

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


def tree_options(rows: TaughtRows, rounds: int, seed: int) -> dict[str, Any]:
    """Return the options of scikit-learn for at most this number of rounds."""
    categorical = np.flatnonzero(rows.counts)
    return {
        "max_iter": rounds,
        "learning_rate": min(RATE / rounds, MOST_RATE),
        "max_leaf_nodes": MOST_LEAVES,
        "max_features": TRIED_FEATURES,
        "min_samples_leaf": LEAF_ROWS,
        "early_stopping": False,
        "random_state": seed,
        "categorical_features": categorical if len(categorical) else None,
    }


@dataclass(frozen=True)
class TrialForest:
    """The predictions of a forest for rows from which it did not learn, at the best number of
    rounds.

    Attributes:
        rounds: the number of rounds with the lowest loss of these rows
        predictions: scaled targets (m, T), or probabilities of the classes (m, K)
        targets: the scaled targets (m, T), or codes of classes (m, 1) as integers
    """

    rounds: int
    predictions: Float
    targets: Float | Int


class NumberTrial:
    """Boosting of scaled targets, compared with left-out rows by squared errors."""

    def model(self, options: dict[str, Any]) -> Any:
        """Return an estimator of scikit-learn."""
        from sklearn.ensemble import HistGradientBoostingRegressor

        return HistGradientBoostingRegressor(**options)

    def targets(self, rows: TaughtRows) -> Float | Int:
        """Return the targets (n, T) of rows."""
        return rows.targets

    def is_taught(self, targets: Float | Int) -> bool:
        """Return True if an estimator can learn from these targets (n, T)."""
        return len(targets) > 0

    def stages(self, model: Any, X: Float) -> Float:
        """Return the predictions (r, m, 1) after each of r rounds at inputs X (m, d)."""
        return np.array(list(model.staged_predict(X)))[:, :, None]

    def losses(self, stages: Float, targets: Float | Int) -> Float:
        """Return the losses (r, m) of predictions (r, m, C) after each round for targets (m, T)."""
        return np.asarray(((stages - targets) ** 2).sum(axis=2))


@dataclass(frozen=True)
class ClassTrial(NumberTrial):
    """Boosting of ``n_classes`` classes, compared with left-out rows by log losses."""

    n_classes: int

    def model(self, options: dict[str, Any]) -> Any:
        from sklearn.ensemble import HistGradientBoostingClassifier

        return HistGradientBoostingClassifier(**options)

    def targets(self, rows: TaughtRows) -> Float | Int:
        return rows.targets.astype(np.int64)

    def is_taught(self, targets: Float | Int) -> bool:
        return len(np.unique(targets)) > 1

    def stages(self, model: Any, X: Float) -> Float:
        """Return the probabilities (r, m, K) after each of r rounds at inputs X (m, d)."""
        of_known_classes = np.array(list(model.staged_predict_proba(X)))
        stages = np.full((*of_known_classes.shape[:2], self.n_classes), LEAST_PROBABILITY)
        stages[:, :, model.classes_] = np.maximum(of_known_classes, LEAST_PROBABILITY)
        return stages

    def losses(self, stages: Float, targets: Float | Int) -> Float:
        return np.asarray(-np.log(stages[:, np.arange(len(targets)), targets[:, 0].astype(int)]))


def trial_of(n_classes: int) -> NumberTrial:
    """Return how boosting of this number of classes, or of numbers if it is 0, is tried."""
    return ClassTrial(n_classes) if n_classes else NumberTrial()


def trial(
    rows: TaughtRows,
    known: Bool,
    kind: NumberTrial,
    options: dict[str, Any],
    check: Callable[[], None] = lambda: None,
) -> TrialForest | None:
    """Learn trees from the ``known`` rows until the loss of the other rows no longer falls; return
    None without other rows, or with a single class among the known ones.

    Args:
        rows: the rows
        known: mask of the rows to learn from (n,)
        kind: the kind of target
        options: options of scikit-learn
        check: called between rounds; it may raise to end the work
    """
    targets = kind.targets(rows)
    if known.all() or not kind.is_taught(targets[known]):
        return None
    weights = np.ones(len(known)) if rows.weights is None else rows.weights
    taught = () if rows.weights is None else (weights[known],)
    models = [kind.model(options | {"warm_start": True}) for _ in targets.T]
    most = int(options["max_iter"])
    for count in range(CHUNK, most + CHUNK, CHUNK):
        check()
        for model, target in zip(models, targets.T, strict=True):
            model.set_params(max_iter=min(count, most))
            # on a busy machine its threads spin: ten times the CPU seconds
            with threadpool_limits(1, "openmp"):
                model.fit(rows.X[known], target[known], *taught)
        stages = np.concatenate([kind.stages(model, rows.X[~known]) for model in models], 2)
        losses = kind.losses(stages, targets[~known]) @ weights[~known]
        rounds = int(losses.argmin()) + 1
        if len(losses) - rounds >= PATIENCE:
            break
    return TrialForest(rounds, stages[rounds - 1], targets[~known])


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


Teach: TypeAlias = Callable[[TaughtRows, Bool, dict[str, Any]], LearnedForest]
"""Learns a forest from the rows of a mask (n,), with these options of scikit-learn."""


def regressors(rows: TaughtRows, known: Bool, options: dict[str, Any]) -> LearnedForest:
    """Learn the trees of each of T targets from the ``known`` rows (n,)."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    forest = LearnedForest([], [])
    weights = None if rows.weights is None else rows.weights[known]
    for target in rows.targets.T:
        learned = HistGradientBoostingRegressor(**options)
        learned.fit(rows.X[known], target[known], weights)
        (trees,) = zip(*learned._predictors, strict=True)
        forest.outputs.append(converted(trees, rows, known))
        forest.constants.append(float(learned._baseline_prediction.ravel()[0]))
    return forest


def classifiers(
    n_classes: int, rows: TaughtRows, known: Bool, options: dict[str, Any]
) -> LearnedForest:
    """Learn the trees of the logits of ``n_classes`` classes, or of the logit of the second of two
    classes.

    Args:
        n_classes: number of classes K
        rows: the rows
        known: mask of the rows to learn from (n,)
        options: options of scikit-learn
    """
    from sklearn.ensemble import HistGradientBoostingClassifier

    codes = rows.targets[known, 0].astype(np.int64)
    classes = np.unique(codes).tolist()
    outputs = [[NO_SPLIT] * int(options["max_iter"])] * n_classes
    constants = [ABSENT] * n_classes
    constants[classes[0]] = 0.0
    if len(classes) > 1:
        learned = HistGradientBoostingClassifier(**options)
        learned.fit(rows.X[known], codes, None if rows.weights is None else rows.weights[known])
        trees_of_outputs = zip(*learned._predictors, strict=True)
        # of two classes, scikit-learn has the logit of the second one
        for place, trees, constant in zip(
            classes if len(classes) > 2 else classes[1:],
            trees_of_outputs,
            learned._baseline_prediction.ravel().tolist(),
            strict=True,
        ):
            outputs[place] = converted(trees, rows, known)
            constants[place] = constant
    if len(outputs) == 2:
        return LearnedForest(outputs[1:], [constants[1] - constants[0]])
    return LearnedForest(outputs, constants)


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


def unlearned_trees(columns: Columns, n_targets: int, likelihood: Likelihood) -> BoostedTrees:
    """Return trees that are not learned yet, with the link and the outputs that they will have.

    Least squares on class indicators takes probabilities, other classes take logits, and two
    classes, whose likelihood may change later, take both.

    Args:
        columns: names and categories of the columns
        n_targets: number T of targets of a regression
        likelihood: the likelihood of the target
    """
    classes = columns.classes or ()
    counts = levels_of_trees(columns)
    if len(classes) == 2:
        return BoostedTrees.none("logistic", 1, counts)
    if classes:
        link = "softmax" if likelihood.has_ramp else "identity"
        return BoostedTrees.none(link, len(classes), counts)
    return BoostedTrees.none("identity", n_targets, counts)


def grown(
    sample: SampledRows,
    problem: Problem,
    columns: Columns,
    *,
    rounds: int,
    seed: int,
    on_forest: Callable[[int, int], None] = lambda number, total: None,
) -> BoostedTrees:
    """Learn the forests from a sample of rows.

    The first left-out fold determines the number of rounds of all forests.

    Args:
        sample: the rows
        problem: the problem, whose basis has trees that are not learned yet
        columns: names and categories of the features
        rounds: maximum number of trees of an output
        seed: seed of scikit-learn
        on_forest: called with the number of the forest that is learned, and the total
    """
    assert problem.empty.functions is not None
    unlearned = problem.empty.functions.trees
    assert unlearned is not None
    rows = TaughtRows.of(sample, problem, columns)
    options = tree_options(rows, rounds, seed)
    teach: Teach = partial(classifiers, problem.n_classes) if columns.classes else regressors
    forests = list[LearnedForest]()
    everything = np.ones(len(rows.X), dtype=np.bool_)
    masks = [everything, *(rows.folds != fold for fold in range(TREE_FOLDS))]
    on_forest(0, len(masks))
    is_known = rows.folds != rows.folds[0]
    kind = trial_of(problem.n_classes)
    first = trial(rows, is_known, kind, options, sample.check_interrupted)
    if first is not None:
        options["max_iter"] = first.rounds
    for known in masks:
        sample.check_interrupted()
        on_forest(len(forests), len(masks))
        if forests and (known.all() or not known.any()):
            forests.append(forests[0])
            continue
        with threadpool_limits(1, "openmp"):
            forests.append(teach(rows, known, options))
    return joined(forests, rows.counts, unlearned.link)


def joined(forests: Sequence[LearnedForest], counts: Int, link: str) -> BoostedTrees:
    """Return forests as one value.

    Args:
        forests: for new rows, then without each fold
        counts: (d,), number of levels of a categorical feature; 0 for a number
        link: how basis functions follow from the outputs
    """
    trees = [tree for forest in forests for output in forest.outputs for tree in output]
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
    shape = (len(forests), len(forests[0].outputs), -1)
    return BoostedTrees(
        link=link,
        features=np.concatenate([tree.features for tree in trees]),
        thresholds=np.concatenate([tree.thresholds for tree in trees]),
        rights=np.concatenate(rights),
        missing_left=np.concatenate([tree.missing_left for tree in trees]),
        sets=np.concatenate(sets),
        levels=np.array(levels, dtype=np.bool_).reshape(len(levels), int(counts.max())),
        roots=starts[:-1].reshape(shape),
        constants=np.array([forest.constants for forest in forests]),
        counts=counts,
    )
