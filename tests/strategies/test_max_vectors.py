"""``max_vectors`` limits the vectors for every strategy, number of rows and kind of target."""

import numpy as np
import pytest
from by_default import some
from naive import rmse
from numpy.random import default_rng
from numpy.testing import assert_array_equal

from partirvm import RVMClassifier, RVMRegressor
from partirvm.core import Termination
from partirvm.strategies import STRATEGIES

pytestmark = pytest.mark.filterwarnings("ignore::partirvm.errors.PartirvmWarning")

ASKED = {"gamma": 2.0, "random_state": 0}
PLAIN = {**ASKED, "residual": "none", "noise": "constant", "reference": "none"}
"""Options of regressions."""


def waves(n, seed=0):
    """Return two features, a wave that needs many vectors, and noise of .1."""
    rng = default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, np.sin(3 * X[:, 0]) * np.cos(2 * X[:, 1]) + 0.1 * rng.normal(size=n)


@pytest.mark.parametrize("strategy", ["auto", *STRATEGIES])
@pytest.mark.parametrize("n_rows", [25, 100])
def test_every_strategy_respects_the_limit(strategy, n_rows):
    """If there are few rows, all are candidates of one fit, whatever the limit."""
    X, y = waves(n_rows)
    model = RVMRegressor(**PLAIN, strategy=strategy, max_vectors=12).fit(X, y)
    assert 0 < model.n_relevance_vectors_ <= 12
    assert model.predict(X).std() > 0.1


@pytest.mark.parametrize(
    "kind",
    some(
        ["several targets", "several kernels", "two classes", "three classes", "softmax"],
        {"several targets", "two classes", "softmax"},
    ),
)
def test_a_single_fit_to_all_rows_respects_the_limit(kind):
    X, y = waves(40 if kind == "softmax" else 100)
    asked = {**ASKED, "strategy": "basic", "max_vectors": 7}
    codes = np.searchsorted(np.quantile(y, [0.5] if kind == "two classes" else [0.3, 0.7]), y)
    model = RVMClassifier(**asked, likelihood="multinomial" if kind == "softmax" else "auto")
    if kind == "several targets":
        model = RVMRegressor(**asked)
        codes = np.column_stack([y, X[:, 0]])
    elif kind == "several kernels":
        asked.pop("gamma")
        model = RVMRegressor(kernel=["gaussian", "matern52"], **asked)
        codes = y
    model.fit(X, codes)
    assert 0 < model.n_relevance_vectors_ <= 7


def test_noise_and_intervals_match_the_remaining_vectors():
    """They agree with errors on new rows; the error equals that of a pruned full model."""
    X, y = waves(300)
    new, target = waves(2000, seed=1)
    asked = {**PLAIN, "strategy": "basic"}
    small = RVMRegressor(**asked, max_vectors=20).fit(X, y)
    pruned = RVMRegressor(**asked).fit(X, y).prune(20)
    assert small.n_relevance_vectors_ == 20
    assert small.termination_ is Termination.VECTORS
    error = rmse(small.predict(new), target)
    assert error < 1.1 * rmse(pruned.predict(new), target)
    mean, std = small.predict(new, return_std=True)
    assert 0.9 < np.mean(np.abs(target - mean) < 1.96 * std) < 0.99
    assert small.noise_variance_**0.5 == pytest.approx(error, rel=0.4)


def test_a_limit_above_the_number_of_vectors_changes_nothing():
    X, y = waves(60)
    free = RVMRegressor(**PLAIN, strategy="basic").fit(X, y)
    bound = RVMRegressor(**PLAIN, strategy="basic", max_vectors=free.n_relevance_vectors_).fit(X, y)
    assert_array_equal(bound.predict(X), free.predict(X))


def test_the_limit_holds_with_two_kernels():
    """Rounds need two columns per row."""
    X, y = waves(100)
    model = RVMRegressor(
        kernel=["gaussian", "matern52"], strategy="working-set", max_vectors=9, random_state=0
    )
    assert model.fit(X, y).n_relevance_vectors_ <= 9
