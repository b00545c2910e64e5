"""Boosted trees as arrays: predictions of scikit-learn, categories, gaps, folds and groups, absent
classes."""

from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.utils import Bunch

from partirvm.core.held_back import TREE_FOLDS, tree_folds
from partirvm.data.arrays import ArraySource
from partirvm.data.folds import folded
from partirvm.kernels import Basis
from partirvm.learning.boosting import (
    ABSENT,
    TaughtRows,
    classifiers,
    joined,
    levels_of_trees,
    regressors,
    trial,
    trial_of,
    unlearned_trees,
)
from partirvm.likelihoods import GAUSSIAN
from partirvm.scaling import Scaling
from partirvm.types import Columns

N = 250
COUNTS = np.array([0, 0, 7, 3])
OPTIONS = {"max_iter": 3, "early_stopping": False, "categorical_features": [2, 3]}


def inputs(rng, n=N, gaps=0.1):
    """Return two numbers and two categories, with gaps."""
    X = rng.normal(size=(n, 4))
    X[:, 2] = rng.integers(0, 7, n)
    X[:, 3] = rng.integers(0, 3, n)
    X[rng.random(X.shape) < gaps] = np.nan
    return X


def taught(X, targets, weights=None):
    return TaughtRows(X, targets, weights, tree_folds(np.arange(len(X))), COUNTS)


def forests(rows, teach, link="identity", known=None):
    """Return trees with the forest of these rows alone."""
    known = np.ones(len(rows.X), dtype=bool) if known is None else known
    return joined([teach(rows, known, OPTIONS)], rows.counts, link)


@pytest.mark.parametrize("case", ["plain", "weighted", "gaps", "few levels known", "two targets"])
def test_regression_trees_predict_as_scikit_learn(rng, case):
    """New rows have gaps and levels that the trees have not seen."""
    X = inputs(rng, gaps=0.2 if case == "gaps" else 0.0)
    if case == "few levels known":
        X[:, 2] = rng.choice([1.0, 4.0, 6.0], N)
    signal = np.nan_to_num(X[:, 0]) + 2.0 * np.isin(X[:, 2], [1, 4]) + np.nan_to_num(X[:, 3]) ** 2
    targets = np.column_stack([signal, np.sin(signal)][: 2 if case == "two targets" else 1])
    weights = rng.uniform(0.1, 3.0, N) if case == "weighted" else None
    trees = forests(taught(X, targets, weights), regressors)
    new = inputs(rng, 300, gaps=0.2)
    for output, target in enumerate(targets.T):
        reference = HistGradientBoostingRegressor(**OPTIONS).fit(X, target, weights)
        assert_allclose(trees(new)[:, output], reference.predict(new), atol=1e-12)
        assert_allclose(trees(X)[:, output], reference.predict(X), atol=1e-12)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_trees_of_classes_have_the_probabilities_of_scikit_learn(rng, n_classes):
    X = inputs(rng)
    codes = (np.nan_to_num(X[:, 0]) + np.isin(X[:, 2], [1, 4]) > 0.5) * 1 + (n_classes > 2) * (
        np.nan_to_num(X[:, 1]) > 1
    )
    rows = taught(X, codes[:, None].astype(float))
    link = "logistic" if n_classes == 2 else "softmax"
    trees = forests(rows, partial(classifiers, n_classes), link)
    new = inputs(rng, 300)
    reference = HistGradientBoostingClassifier(**OPTIONS).fit(X, codes).predict_proba(new)
    shown = [1] if n_classes == 2 else [0, 1, 2]
    assert_allclose(trees(new)[:, -len(shown) :], reference[:, shown], atol=1e-12)


@pytest.mark.parametrize(
    ("known_classes", "expected"),
    [
        ([0, 2], "HistGradientBoosting of the two"),
        ([1], [ABSENT, 0.0, ABSENT]),
    ],
)
def test_a_class_that_is_absent_has_a_small_probability(rng, known_classes, expected):
    X = inputs(rng)
    codes = rng.integers(0, 3, N)
    known = np.isin(codes, known_classes)
    rows = taught(X, codes[:, None].astype(float))
    trees = forests(rows, partial(classifiers, 3), known=known)
    logits = trees(X)
    if len(known_classes) == 1:
        assert_array_equal(logits, np.tile(expected, (N, 1)))
        return
    reference = HistGradientBoostingClassifier(**OPTIONS).fit(X[known], codes[known])
    assert_array_equal(logits[:, 1], np.full(N, ABSENT))
    assert_allclose(logits[:, 2] - logits[:, 0], reference.decision_function(X), atol=1e-12)


@pytest.mark.parametrize(("known_class", "logit"), [(0, ABSENT), (1, -ABSENT)])
def test_one_of_two_classes_alone_is_certain(rng, known_class, logit):
    rows = taught(inputs(rng), np.full((N, 1), float(known_class)))
    assert_array_equal(forests(rows, partial(classifiers, 2))(rows.X), np.full((N, 1), logit))


def test_trees_ignore_features_with_too_many_levels(rng):
    """Codes of more levels than scikit-learn has bins are no numbers; gaps and codes of unknown
    levels are missing."""
    columns = Columns(
        ("a", "many", "few"),
        categories={"many": tuple(map(str, range(300))), "few": ("u", "v")},
    )
    assert_array_equal(levels_of_trees(columns), [0, 0, 2])
    X = np.column_stack([rng.normal(size=N), rng.integers(0, 300, N), rng.integers(0, 4, N)])
    X = X.astype(float)
    tile = ArraySource(X, X[:, :1], columns=columns).tile(0)
    sample = Bunch(rows=Bunch(rows=np.arange(N), gather=lambda rows: tile))
    scaling = Scaling(np.zeros(3), np.ones(3), np.zeros(1), np.ones(1))
    problem = Bunch(n_classes=0, empty=Bunch(scaling=scaling))
    rows = TaughtRows.of(sample, problem, columns)
    assert_array_equal(rows.X[:, 1], np.zeros(N))
    assert_array_equal(rows.X[:, 2], np.where(X[:, 2] < 2, X[:, 2], np.nan))
    assert unlearned_trees(columns, 1, GAUSSIAN).size == 1


@pytest.mark.parametrize("grouped", [False, True])
def test_training_rows_end_with_predictions_without_their_fold(rng, grouped):
    """The column of a row is that of trees that learned without its fold, or its group's fold, in
    tiles and in gathered rows; the source behind it is unchanged."""
    X = inputs(rng)
    y = np.nan_to_num(X[:, :1]) + rng.normal(size=(N, 1))
    groups = rng.integers(0, 40, N) if grouped else None
    folds = tree_folds(np.arange(N), groups)
    assert len(np.unique(folds)) == TREE_FOLDS
    if groups is not None:
        pairs = np.unique(np.column_stack([groups, folds]), axis=0)
        assert len(pairs) == len(np.unique(groups))
    rows = TaughtRows(X, y, None, folds, COUNTS)
    known = [folds != fold for fold in range(TREE_FOLDS)]
    learned = [regressors(rows, mask, OPTIONS) for mask in (folds >= 0, *known)]
    trees = joined(learned, COUNTS, "identity")
    columns = Columns(("a", "b", "c", "d"), categories={"c": tuple("abcdefg"), "d": tuple("uvw")})
    source = ArraySource(X, y, columns=columns, groups=groups)
    scaling = Scaling(np.zeros(4), np.ones(4), np.zeros(1), np.ones(1))
    training = folded(source, scaling, Basis(((trees, 1),)))
    expected = np.empty(N)
    for fold, mask in enumerate(known):
        reference = HistGradientBoostingRegressor(**OPTIONS).fit(X[mask], y[mask, 0])
        expected[~mask] = reference.predict(X[~mask])
        assert fold in folds
    for _ in range(2):  # from the trees, then from memory
        tile = training.tile(0)
        assert_array_equal(tile.X[:, :4], X)
        assert_allclose(tile.X[:, 4], expected, atol=1e-12)
    picked = np.array([17, 3, 150])
    assert_allclose(training.gather(picked).X[:, 4], expected[picked], atol=1e-12)
    assert training.n_features == 4


@pytest.mark.parametrize("n_classes", [0, 2, 3])
def test_boosting_ends_at_the_lowest_loss_of_left_out_rows(rng, n_classes):
    """The losses are those of scikit-learn's stages; a pattern of noise soon has the lowest."""
    X = inputs(rng)
    target = X[:, 1:2] > 0 if n_classes else np.nan_to_num(X[:, 1:2])
    target = target + rng.integers(0, 2, (N, 1)) * (n_classes == 3) + 0.0
    target += 0.5 * rng.normal(size=(N, 1)) * (n_classes == 0)
    known = np.arange(N) % 3 > 0
    options = OPTIONS | {"max_iter": 30, "random_state": 0}
    found = trial(taught(X, target), known, trial_of(n_classes), options)
    kind = HistGradientBoostingClassifier if n_classes else HistGradientBoostingRegressor
    model = kind(**options).fit(X[known], target[known, 0])
    if n_classes:
        stages = np.array(list(model.staged_predict_proba(X[~known])))
        codes = target[~known, 0].astype(int)
        losses = -np.log(stages[:, np.arange(len(codes)), codes]).mean(axis=1)
    else:
        stages = np.array(list(model.staged_predict(X[~known])))[:, :, None]
        losses = ((stages[:, :, 0] - target[~known, 0]) ** 2).mean(axis=1)
    best = int(losses.argmin())
    assert found.rounds == best + 1
    assert_allclose(found.predictions, stages[best], atol=1e-9)
    assert_array_equal(found.targets, target[~known])


@pytest.mark.parametrize("case", ["no left-out rows", "no known rows", "one known class"])
def test_a_trial_without_known_or_left_out_rows_has_no_result(rng, case):
    codes = (np.arange(N) % 2)[:, None] + 0.0
    known = {
        "no left-out rows": np.ones(N, dtype=bool),
        "no known rows": np.zeros(N, dtype=bool),
        "one known class": codes[:, 0] == 1,
    }[case]
    assert trial(taught(inputs(rng), codes), known, trial_of(2), OPTIONS) is None


def test_the_bound_of_bytes_holds_for_trees_and_their_tables(rng):
    X = inputs(rng)
    target = np.nan_to_num(X[:, :1]) + np.isin(X[:, 2:3], [1, 4])
    trees = forests(taught(X, target), regressors)
    trees(X)
    (forest,) = trees._forests.values()
    tables = sum(feature.masks.nbytes for feature in forest.features) + forest.values.nbytes
    assert tables <= trees.nbytes <= 4 * tables + 20_000
