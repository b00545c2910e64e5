"""Boosted trees as arrays: predictions of scikit-learn, categories, gaps, absent classes, and the
number of rounds."""

import tracemalloc

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.utils import Bunch

from partirvm.core.held_back import tree_folds
from partirvm.data.arrays import ArraySource
from partirvm.learning.boosting import (
    ABSENT,
    CHUNK,
    PATIENCE,
    Forests,
    TaughtRows,
    boosting_of,
    levels_of_trees,
)
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


def forest(rows, n_classes=0):
    """Return the trees of all rows."""
    everything = np.ones(len(rows.X), dtype=bool)
    return Forests(rows, boosting_of(n_classes), OPTIONS).forest(everything)


@pytest.mark.parametrize("case", ["plain", "weighted", "gaps", "few levels known", "two targets"])
def test_regression_trees_predict_as_scikit_learn(rng, case):
    """New rows have gaps and levels that the trees have not seen."""
    X = inputs(rng, gaps=0.2 if case == "gaps" else 0.0)
    if case == "few levels known":
        X[:, 2] = rng.choice([1.0, 4.0, 6.0], N)
    signal = np.nan_to_num(X[:, 0]) + 2.0 * np.isin(X[:, 2], [1, 4]) + np.nan_to_num(X[:, 3]) ** 2
    targets = np.column_stack([signal, np.sin(signal)][: 2 if case == "two targets" else 1])
    weights = rng.uniform(0.1, 3.0, N) if case == "weighted" else None
    trees = forest(taught(X, targets, weights))
    new = inputs(rng, 300, gaps=0.2)
    for output, target in enumerate(targets.T):
        reference = HistGradientBoostingRegressor(**OPTIONS).fit(X, target, weights)
        assert_allclose(trees(new)[:, output], reference.predict(new), atol=1e-12)
        assert_allclose(trees(X)[:, output], reference.predict(X), atol=1e-12)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_trees_of_classes_have_the_logits_of_scikit_learn(rng, n_classes):
    X = inputs(rng)
    codes = (np.nan_to_num(X[:, 0]) + np.isin(X[:, 2], [1, 4]) > 0.5) * 1 + (n_classes > 2) * (
        np.nan_to_num(X[:, 1]) > 1
    )
    rows = taught(X, codes[:, None].astype(float))
    trees = forest(rows, n_classes)
    new = inputs(rng, 300)
    reference = HistGradientBoostingClassifier(**OPTIONS).fit(X, codes).decision_function(new)
    assert_allclose(trees(new), reference.reshape(300, -1), atol=1e-12)


def test_a_class_that_is_absent_has_a_small_probability(rng):
    X = inputs(rng)
    codes = rng.integers(0, 3, N)
    known = codes != 1
    rows = taught(X, codes[:, None].astype(float))
    forests = Forests(rows, boosting_of(3), OPTIONS, rounds=OPTIONS["max_iter"])
    logits = forests.forest(known)(X)
    reference = HistGradientBoostingClassifier(**OPTIONS).fit(X[known], codes[known])
    assert_array_equal(logits[:, 1], np.full(N, ABSENT))
    assert_allclose(logits[:, 2] - logits[:, 0], reference.decision_function(X), atol=1e-12)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_single_class_teaches_nothing(rng, n_classes):
    rows = taught(inputs(rng), np.zeros((N, 1)))
    assert forest(rows, n_classes) is None


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


@pytest.mark.parametrize("n_classes", [0, 2, 3])
def test_boosting_ends_at_the_lowest_loss_of_left_out_rows(rng, n_classes):
    """The losses are those of scikit-learn's stages; of noise, the first ones have the lowest. The
    next forests have as many rounds."""
    X = inputs(rng)
    target = X[:, 1:2] > 0 if n_classes else np.nan_to_num(X[:, 1:2])
    target = target + rng.integers(0, 2, (N, 1)) * (n_classes == 3) + 0.0
    target += 0.5 * rng.normal(size=(N, 1)) * (n_classes == 0)
    known = np.arange(N) % 3 > 0
    options = OPTIONS | {"max_iter": 30, "random_state": 0}
    forests = Forests(taught(X, target), boosting_of(n_classes), options)
    trees = forests.forest(known)
    kind = HistGradientBoostingClassifier if n_classes else HistGradientBoostingRegressor
    model = kind(**options).fit(X[known], target[known, 0])
    if n_classes:
        stages = np.array(list(model.staged_predict_proba(X[~known])))
        codes = target[~known, 0].astype(int)
        losses = -np.log(stages[:, np.arange(len(codes)), codes]).mean(axis=1)
    else:
        stages = np.array(list(model.staged_predict(X[~known])))
        losses = ((stages - target[~known, 0]) ** 2).mean(axis=1)
    rounds = int(losses.argmin()) + 1
    assert forests.rounds == rounds
    first = kind(**{**options, "max_iter": rounds}).fit(X[known], target[known, 0])
    outputs = first.decision_function(X) if n_classes else first.predict(X)
    assert_allclose(trees(X), outputs.reshape(N, -1), atol=1e-12)
    assert forests.forest(~known).roots.shape[1] == rounds


def test_boosting_ends_after_rounds_without_a_lower_loss(rng):
    """Targets are noise: later rounds only learn it."""
    target = rng.normal(size=(N, 1))
    options = OPTIONS | {"max_iter": 400, "random_state": 0}
    calls = []
    forests = Forests(taught(inputs(rng), target), boosting_of(0), options, lambda: calls.append(1))
    forests.forest(np.arange(N) % 3 > 0)
    assert forests.rounds < 50
    assert len(calls) <= (forests.rounds + PATIENCE) // CHUNK + 2


@pytest.mark.parametrize("n_classes", [0, 3])
def test_losses_of_many_rounds_take_the_memory_of_one(rng, n_classes):
    """With 60 rounds, the predictions of all rounds would take twice the bound."""
    X = inputs(rng, 5000)
    y = np.nan_to_num(X[:, :1])
    target = np.digitize(y, [-0.5, 0.5])[:, 0] if n_classes else y[:, 0]
    kind = boosting_of(n_classes)
    (model,) = kind.models(taught(X, y), OPTIONS | {"max_iter": 60})
    model.fit(X[:200], target[:200])
    weights = rng.uniform(1, 2, 5000)
    kind.losses(model, X[:20], target[:20], weights[:20])
    tracemalloc.start()
    losses = kind.losses(model, X, target, weights)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    if n_classes:
        of_rows = -np.log(model.predict_proba(X)[np.arange(5000), target])
    else:
        of_rows = (model.predict(X) - target) ** 2
    assert len(losses) == 60
    assert_allclose(losses[-1], weights @ of_rows)
    assert peak < 30 * 8 * 5000
