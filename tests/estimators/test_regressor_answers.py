"""RVMRegressor: known results, units, weights and attributes."""

import warnings
from itertools import product

import naive
import numpy as np
import pytest
from by_default import some
from numpy.random import default_rng
from numpy.testing import assert_allclose
from regressions import Dense, design_of, plain_deviation, plane, sinc

from partirvm import RVMRegressor
from partirvm.core import Termination
from partirvm.errors import DataWarning


@pytest.mark.parametrize(
    ("strategy", "noise"),
    some(
        product(["basic", "working-set"], [0.05, 0.1, 0.2]),
        {("basic", 0.2), ("working-set", 0.05)},
    ),
)
def test_sinc_has_few_vectors_and_the_right_noise(strategy, noise):
    """The noise is within 20 % of the truth, the error well below it (Tipping 2001, §4.1)."""
    X, y = sinc(200, noise)
    options = {"partition_size": 50, "reference": "none", "random_state": 0}
    model = RVMRegressor(gamma=4.0, strategy=strategy, **options).fit(X, y)
    test = np.linspace(-9.5, 9.5, 300)[:, None]
    truth = np.sinc(test[:, 0] / np.pi)
    mean, std = model.predict(test, return_std=True)
    assert model.noise_variance_**0.5 == pytest.approx(noise, rel=0.2)
    assert 3 <= model.n_relevance_vectors_ <= 20
    assert np.sqrt(np.mean((mean - truth) ** 2)) < 0.5 * noise
    fresh = truth + noise * default_rng(9).normal(size=300)
    assert np.mean(np.abs(fresh - mean) <= 1.96 * std) == pytest.approx(0.95, abs=0.04)
    assert (std**2 >= model.model_.predictive.noise_variance).all()


@pytest.mark.parametrize(
    ("strategy", "weighted", "standardize"),
    some(
        product(["basic", "working-set"], [False, True], [False, True]),
        {("basic", True, False), ("working-set", False, True), ("working-set", True, True)},
    ),
)
def test_posterior_and_evidence_follow_the_paper(strategy, weighted, standardize):
    """They are γ, mean, deviation and evidence (eqs. 15, 17, 21, 22) at the final α and σ²."""
    X, y = plane(100)
    X = X * [1.0, 30.0, 0.1] + [0, 100, 5]
    w = default_rng(1).uniform(0.2, 3.0, size=100) if weighted else None
    gamma = 0.3 if standardize else [0.3, 0.0003, 30.0]
    model = RVMRegressor(
        gamma=gamma,
        standardize=standardize,
        noise="constant",
        strategy=strategy,
        partition_size=40,
        reference="none",
        random_state=0,
    )
    model.fit(X, y, sample_weight=w)
    dense = Dense(model, X, y)
    shift = dense.shift
    scale = dense.scale
    if weighted:
        w = w / w.mean()  # the unit of the weights; they are rounded to 32 bits
    assert_allclose(shift, np.average(y, weights=w), rtol=1e-9)
    expected_sd = np.sqrt(np.average((y - shift) ** 2, weights=w)) if standardize else 1.0
    assert_allclose(scale, expected_sd, rtol=1e-9)
    test = plane(40, seed=5)[0] * [1.0, 30.0, 0.1] + [0, 100, 5]
    mean, variance = naive.predict_by_rows(design_of(model, test), *dense.problem, w)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        predicted = model.predict(test)
        std = plain_deviation(model, test)
    assert_allclose(predicted, shift + scale * mean, atol=1e-6 * y.std())
    assert_allclose(std, scale * np.sqrt(variance), rtol=1e-6)
    evidence = naive.log_evidence(*dense.problem, w) - len(y) * np.log(scale)
    assert_allclose(model.log_evidence_, evidence, rtol=1e-6)
    gamma = naive.determinedness(*dense.problem, w)[model.model_.design.n_leading :]
    assert_allclose(model.determinedness_, gamma, atol=1e-6)


def test_without_intercept_and_standardisation_the_raw_target_is_used():
    """The mean is Kw for the raw target, with the dense posterior at the final α and σ²."""
    X, y = plane(120)
    y = y + 40.0
    options = {"gamma": 0.2, "kernel": "gaussian", "noise": "constant", "strategy": "basic"}
    model = RVMRegressor(standardize=False, fit_intercept=False, **options).fit(X, y)
    K = naive.gaussian(X, model.relevance_vectors_, 0.2)
    assert model.intercept_ == 0.0
    assert_allclose(model.predict(X), K @ model.weights_, rtol=1e-9)
    beta = 1 / model.model_.evidence_noise
    mean = np.linalg.solve(beta * K.T @ K + np.diag(model.alpha_), beta * K.T @ y)
    assert_allclose(model.predict(X), K @ mean, rtol=1e-6)
    assert model.log_evidence_ == pytest.approx(
        naive.log_evidence(K, y, model.alpha_, beta), rel=1e-6
    )


def test_predictions_follow_from_the_attributes():
    """mean = intercept_ + sd(y)·Σ_m weights_m k(x, z_m), where z_m are rows of X."""
    X, y = plane(100)
    model = RVMRegressor(gamma=0.3, partition_size=30, random_state=0).fit(X, y)
    kernels = naive.gaussian(X / X.std(axis=0), model.relevance_vectors_ / X.std(axis=0), 0.3)
    assert_allclose(
        model.predict(X), model.intercept_ + y.std() * kernels @ model.weights_, atol=1e-9
    )
    assert {tuple(row) for row in model.relevance_vectors_} <= {tuple(row) for row in X}
    assert model.n_features_in_ == 3
    assert isinstance(model.termination_, Termination)
    last = model.history_[-1]
    assert (last["kind"], last["vectors"]) == ("final", model.n_relevance_vectors_)
    assert last["train_rmse"] == pytest.approx(
        np.sqrt(np.mean((y - model.predict(X)) ** 2)), rel=1e-6
    )
    assert last["log_evidence"] == pytest.approx(model.log_evidence_)
