"""Targets that no feature predicts, in more columns than a tenth of the rows: the mean, with its standard deviation."""

import warnings

import numpy as np
import pytest

from partirvm import RVMClassifier, RVMRegressor
from partirvm.errors import DataWarning

NOISE = [(60, 200, "gaussian"), (100, 30, "one-hot"), (60, 80, "heavy-tailed"), (60, 60, "correlated")]


def columns(rng, n, d, kind):
    if kind == "one-hot":
        return np.eye(d)[rng.integers(0, d, n)]
    if kind == "heavy-tailed":
        return rng.standard_t(2, size=(n, d))
    if kind == "correlated":
        return rng.normal(size=(n, 5)) @ rng.normal(size=(5, d)) + 0.1 * rng.normal(size=(n, d))
    return rng.normal(size=(n, d))


def noise_alone(n, d, kind, seed=0, new=500):
    rng = np.random.default_rng(seed)
    return columns(rng, n + new, d, kind), rng.normal(size=n + new)


def fitted(estimator, X, y):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        return estimator.fit(X, y)


@pytest.mark.parametrize(("n", "d", "kind"), NOISE)
def test_noise_in_many_columns_is_predicted_by_its_mean_and_standard_deviation(n, d, kind):
    X, y = noise_alone(n, d, kind)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        model = RVMRegressor(random_state=0).fit(X[:n], y[:n])
    assert any("these features hardly predict the target" in str(each.message) for each in found)
    mean, std = model.predict(X[n:], return_std=True)
    assert np.sqrt(np.mean((mean - y[n:]) ** 2)) < 1.03  # the noise has standard deviation 1
    assert 0.88 < np.mean(np.abs(mean - y[n:]) < 1.96 * std) < 0.995  # sd of n normal numbers: ± 1/√(2n)


def test_classes_that_nothing_predicts_get_their_frequencies():
    X, y = noise_alone(60, 100, "gaussian")
    labels = y > 0.5
    model = fitted(RVMClassifier(random_state=0), X[:60], labels[:60])
    truth, frequency = labels[60:], labels[:60].mean()
    predicted = model.predict_proba(X[60:])[:, 1]
    losses = [-np.mean(np.log(np.where(truth, share, 1 - share))) for share in (predicted, frequency)]
    assert losses[0] < 1.03 * losses[1]


def test_a_signal_in_many_columns_is_kept_and_its_uncertainty_is_calibrated():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1080, 400))
    y = 4.0 * X[:, 0] + rng.normal(size=1080)
    model = RVMRegressor(random_state=0).fit(X[:80], y[:80])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        mean, std = model.predict(X[80:], return_std=True)
    assert model.n_relevance_vectors_
    assert np.sqrt(np.mean((mean - y[80:]) ** 2)) < 0.8 * y.std()
    assert np.mean(np.abs(mean - y[80:]) < 1.96 * std) > 0.88
