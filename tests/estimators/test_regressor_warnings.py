"""Unusual data and limits give a warning and a correct fit."""

import dask.array as da
import naive
import numpy as np
import pytest
from by_default import some
from numpy.random import default_rng
from numpy.testing import assert_allclose
from regressions import plane, sinc
from sklearn.model_selection import cross_val_score

from partirvm import RVMRegressor
from partirvm.core import Termination
from partirvm.errors import DataWarning, NoiseFloorWarning

STRATEGIES = some(["basic", "split-merge", "incremental", "working-set"], {"basic", "working-set"})


def rounded(value, n):
    """Return values that differ in the last digit, which count as constant."""
    return np.where(np.arange(n) % 2, value, np.nextafter(value, np.inf))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_constant_feature_warns_and_changes_nothing(strategy):
    """The warning names the feature; predictions equal those without it."""
    X, y = plane(100, d=2)
    constant = np.column_stack([X, rounded(0.1, 100)])
    options = {"gamma": 0.3, "strategy": strategy, "partition_size": 30, "random_state": 0}
    with pytest.warns(DataWarning, match="constant features.*x2"):
        model = RVMRegressor(**options).fit(constant, y)
    assert_allclose(
        model.predict(constant), RVMRegressor(**options).fit(X, y).predict(X), atol=1e-6
    )


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("value", [0.0, 7.3, -1e9])
def test_a_constant_target_warns_and_is_predicted(strategy, value):
    """The model has no vectors and a finite deviation."""
    X, _ = plane(50)
    with pytest.warns(DataWarning, match="target 'y' is constant"):
        model = RVMRegressor(strategy=strategy, partition_size=20, random_state=0).fit(
            X, rounded(value, 50)
        )
    mean, std = model.predict(X, return_std=True)
    assert_allclose(mean, value, rtol=1e-12)
    assert np.isfinite(std).all()
    assert model.n_relevance_vectors_ == 0
    assert model.termination_ is Termination.CONSTANT


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_duplicate_rows_give_a_correct_fit(strategy):
    """Each row occurs five times; none is a vector twice, and the noise is right."""
    X, _ = sinc(60, 0.1)
    X = np.vstack([X] * 5)
    y = np.sinc(X[:, 0] / np.pi) + 0.1 * default_rng(1).normal(size=300)
    model = RVMRegressor(gamma=4.0, strategy=strategy, partition_size=40, random_state=0).fit(X, y)
    assert len(np.unique(model.relevance_vectors_, axis=0)) == model.n_relevance_vectors_
    assert model.noise_variance_**0.5 == pytest.approx(0.1, rel=0.2)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_noise_free_data_give_a_warning_about_the_noise_floor(strategy):
    """The evidence gives noise of 1e-8·var(y), and the mean is right."""
    X = np.linspace(-3, 3, 150)[:, None]
    y = 5 + naive.gaussian(X, X[[40, 110]], 2.0 / X.var()) @ [3.0, -2.0]
    with pytest.warns(NoiseFloorWarning, match="set the noise variance"):
        model = RVMRegressor(gamma=2.0, strategy=strategy, partition_size=50, random_state=0).fit(
            X, y
        )
    assert_allclose(model.model_.evidence_noise, 1e-8 * y.var(), rtol=1e-6)
    assert np.sqrt(model.noise_variance_) < 1e-3 * y.std()
    assert_allclose(model.predict(X), y, atol=1e-3)


def test_far_rows_give_a_warning_at_prediction():
    """The warning counts the far rows, and their prediction is the mean; a search warns once."""
    X, y = plane(100)
    with pytest.warns(DataWarning, match="constant features") as caught:
        cross_val_score(RVMRegressor(gamma=0.3), np.column_stack([X, 0 * y]), y, cv=3)
    assert [warning.filename for warning in caught] == [__file__]
    model = RVMRegressor(gamma=0.3, random_state=0).fit(X, y)
    far = np.vstack([X[:5], np.full((2, 3), 1e3)])
    with pytest.warns(DataWarning, match="2 of 7 rows are far"):
        mean = model.predict(far)
    assert_allclose(mean[5:], model.intercept_)
    with pytest.warns(DataWarning, match="2 of 7 rows are far"):
        model.predict(da.from_array(far, chunks=4))
    model.predict(model.relevance_vectors_)


def test_nothing_is_missing_if_trees_predict_without_vectors():
    X = default_rng(0).uniform(-1.0, 1.0, (300, 2))
    y = np.sign(X[:, 0] * X[:, 1])
    fitted = RVMRegressor(kernel="gaussian", gamma=1e-12, basis="trees").fit(X, y)
    assert fitted.model_.n_vectors == 0
    assert fitted.score(X, y) > 0.9
