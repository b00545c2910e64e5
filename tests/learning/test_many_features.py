"""If none of many features predicts the target, predictions are its mean and standard deviation."""

import warnings

import numpy as np
import pytest
from by_default import some
from naive import rmse
from numpy.random import default_rng

from partirvm import RVMClassifier, RVMRegressor
from partirvm.errors import DataWarning

NOISE = [
    (60, 200, "gaussian", 0),
    (100, 30, "one-hot", 0),
    (60, 80, "heavy-tailed", 0),
    (60, 60, "correlated", 0),
]
OTHER_SIZES = [
    (40, 100),
    (80, 400),
    (150, 150),
    (300, 60),
    (60, 1000),
    (50, 50),
    (120, 30),
    (40, 300),
    (100, 100),
    (200, 25),
]
MORE_NOISE = [(*size, "gaussian", seed) for seed, size in enumerate(OTHER_SIZES)]
"""Numbers of rows and columns, their kind, and a seed."""


def columns(rng, n, d, kind):
    if kind == "one-hot":
        return np.eye(d)[rng.integers(0, d, n)]
    if kind == "heavy-tailed":
        return rng.standard_t(2, size=(n, d))
    if kind == "correlated":
        return rng.normal(size=(n, 5)) @ rng.normal(size=(5, d)) + 0.1 * rng.normal(size=(n, d))
    return rng.normal(size=(n, d))


def noise_alone(n, d, kind, seed=0, new=500):
    rng = default_rng(seed)
    return columns(rng, n + new, d, kind), rng.normal(size=n + new)


def fitted(estimator, X, y):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        return estimator.fit(X, y)


@pytest.mark.usefixtures("default_fits")
@pytest.mark.parametrize(("n", "d", "kind", "seed"), some([*NOISE, *MORE_NOISE], NOISE[:2]))
def test_noise_in_many_columns_is_predicted_by_its_mean_and_standard_deviation(n, d, kind, seed):
    X, y = noise_alone(n, d, kind, seed)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        model = RVMRegressor(random_state=0).fit(X[:n], y[:n])
    warned = (n, d, kind, seed) in NOISE
    if warned:
        assert any("these features hardly predict" in str(each.message) for each in found)
    mean, std = model.predict(X[n:], return_std=True)
    most = 1.03 if warned else np.std(y[n:]) * np.sqrt(1.0 + 4.0 / n) + 0.02
    assert rmse(mean, y[n:]) < most
    assert 0.88 < np.mean(np.abs(mean - y[n:]) < 1.96 * std) < 0.995


def test_unpredictable_classes_get_their_frequencies():
    X, y = noise_alone(60, 100, "gaussian")
    labels = y > 0.5
    model = fitted(RVMClassifier(random_state=0), X[:60], labels[:60])
    truth = labels[60:]
    frequency = labels[:60].mean()
    predicted = model.predict_proba(X[60:])[:, 1]
    losses = [
        -np.mean(np.log(np.where(truth, share, 1 - share))) for share in (predicted, frequency)
    ]
    assert losses[0] < 1.03 * losses[1]


@pytest.mark.usefixtures("default_fits")
def test_a_signal_in_many_columns_is_kept_and_its_uncertainty_is_calibrated():
    rng = default_rng(0)
    X = rng.normal(size=(1080, 400))
    y = 4.0 * X[:, 0] + rng.normal(size=1080)
    model = RVMRegressor(random_state=0).fit(X[:80], y[:80])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        mean, std = model.predict(X[80:], return_std=True)
    assert model.n_relevance_vectors_
    assert rmse(mean, y[80:]) < 0.8 * y.std()
    assert np.mean(np.abs(mean - y[80:]) < 1.96 * std) > 0.88


@pytest.mark.slow
@pytest.mark.parametrize(("n", "d", "seed"), [(60, 12, 0), (100, 30, 1)])
def test_noise_with_categories_and_weights_is_predicted_by_its_mean(n, d, seed):
    """The error is not larger than that of the weighted mean."""
    import pandas as pd

    X, y = noise_alone(n, d, "gaussian", seed)
    rng = default_rng(seed)
    frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(d)])
    for count in (3, 12, 30):
        frame[f"c{count}"] = pd.Categorical(rng.integers(0, count, len(X)), categories=range(count))
    weights = rng.choice([0.5, 1.0, 2.0], n)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = RVMRegressor(random_state=0).fit(frame[:n], y[:n], sample_weight=weights)
    mean, std = model.predict(frame[n:], return_std=True)
    of_mean = rmse(np.average(y[:n], weights=weights), y[n:])
    assert rmse(mean, y[n:]) < 1.03 * of_mean
    assert 0.86 < np.mean(np.abs(mean - y[n:]) < 1.96 * std) < 0.995


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n", "d", "shares"),
    [
        (40, 100, (0.5, 0.5)),
        (80, 400, (0.5, 0.5)),
        (150, 150, (0.3, 0.3, 0.4)),
        (300, 60, (0.5, 0.5)),
        (100, 50, (0.25, 0.25, 0.25, 0.25)),
        (100, 200, (0.9, 0.1)),
        (60, 300, (0.7, 0.2, 0.1)),
    ],
)
def test_classes_with_other_sizes_get_their_frequencies(n, d, shares):
    """The log loss is at most .02 above that of the class frequencies."""
    rng = default_rng(d)
    X = rng.normal(size=(n + 1000, d))
    codes = rng.choice(len(shares), n + 1000, p=shares)
    predicted = fitted(RVMClassifier(random_state=0), X[:n], codes[:n]).predict_proba(X[n:])
    frequencies = np.bincount(codes[:n], minlength=len(shares)) / n
    truth = codes[n:]
    loss = -np.mean(np.log(predicted[np.arange(1000), truth]))
    assert loss < -np.mean(np.log(frequencies[truth])) + 0.02
