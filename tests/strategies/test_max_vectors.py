"""``max_vectors`` limits the vectors of every strategy, at any number of rows, and for every kind
of target."""

import numpy as np
import pytest

from partirvm import RVMClassifier, RVMRegressor
from partirvm.core.termination import Termination
from partirvm.strategies import STRATEGIES

pytestmark = pytest.mark.filterwarnings("ignore::partirvm.errors.PartirvmWarning")

ASKED = {"gamma": 2.0, "random_state": 0}


def waves(n, seed=0):
    """Two features, a wave that needs many vectors, and noise of .1."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, np.sin(3 * X[:, 0]) * np.cos(2 * X[:, 1]) + 0.1 * rng.normal(size=n)


@pytest.mark.parametrize("strategy", ["auto", *STRATEGIES])
@pytest.mark.parametrize("n_rows", [25, 150])
def test_every_strategy_respects_the_limit(strategy, n_rows):
    """Few rows are all candidates of one fit, whatever the limit; ``auto`` is such a fit."""
    X, y = waves(n_rows)
    model = RVMRegressor(**ASKED, strategy=strategy, max_vectors=12).fit(X, y)
    assert 0 < model.n_relevance_vectors_ <= 12
    assert model.predict(X).std() > 0.1


@pytest.mark.parametrize(
    "kind", ["several targets", "several kernels", "two classes", "three classes", "softmax"]
)
def test_one_fit_of_all_rows_respects_the_limit(kind):
    X, y = waves(150)
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


def test_the_statistics_are_those_of_the_remaining_vectors():
    """Noise and intervals agree with errors of new rows; the error is that of pruning a full
    model."""
    X, y = waves(300)
    new, target = waves(2000, seed=1)
    asked = {**ASKED, "strategy": "basic", "residual": "none", "noise": "constant"}
    small = RVMRegressor(**asked, max_vectors=20).fit(X, y)
    pruned = RVMRegressor(**asked).fit(X, y).prune(20)
    assert small.n_relevance_vectors_ == 20
    assert small.termination_ is Termination.VECTORS
    errors, others = (model.predict(new) - target for model in (small, pruned))
    assert np.sqrt(np.mean(errors**2)) < 1.1 * np.sqrt(np.mean(others**2))
    mean, std = small.predict(new, return_std=True)
    assert 0.9 < np.mean(np.abs(target - mean) < 1.96 * std) < 0.99
    assert small.noise_variance_**0.5 == pytest.approx(np.sqrt(np.mean(errors**2)), rel=0.4)


def test_a_limit_above_the_number_of_vectors_changes_nothing():
    X, y = waves(60)
    free = RVMRegressor(**ASKED, strategy="basic").fit(X, y)
    bound = RVMRegressor(**ASKED, strategy="basic", max_vectors=free.n_relevance_vectors_).fit(X, y)
    np.testing.assert_array_equal(bound.predict(X), free.predict(X))


def test_a_limit_below_one_kernel_column_per_row_and_kernel():
    """Rounds of two kernels need two columns a row."""
    X, y = waves(100)
    model = RVMRegressor(
        kernel=["gaussian", "matern52"], strategy="working-set", max_vectors=9, random_state=0
    )
    assert model.fit(X, y).n_relevance_vectors_ <= 9
