"""Priors, EM, fixed precisions and known noise in the estimators."""

import naive
import numpy as np
import pytest
from by_default import some
from numpy.random import default_rng
from numpy.testing import assert_allclose
from regressions import Dense, plane, sinc

from partirvm import (
    AlphaPrior,
    Noise,
    RVMClassifier,
    RVMRegressor,
    WorkingSet,
    load_model,
    save_model,
)

FITS = [(RVMRegressor, name) for name in ("basic", "split-merge", "incremental")]
FITS += [(RVMClassifier, name) for name in ("basic", "working-set")]


@pytest.mark.parametrize(
    "options",
    [{"strategy": "basic"}, {"strategy": WorkingSet(selection="gain"), "partition_size": 40}],
)
def test_the_evidence_uses_priors_in_the_targets_units(options):
    """It equals the dense evidence at the final α and σ²; c and d are in units of y."""
    X, y = plane(150)
    y = 40 * y
    model = RVMRegressor(
        gamma=0.3, alpha_prior=(1.0, 0.1), noise=Noise(prior=(20.0, 2e4)), random_state=0, **options
    ).fit(X, y)
    dense = Dense(model, X, y)
    expected = naive.log_evidence(*dense.problem) - len(y) * np.log(dense.scale)
    expected += naive.log_prior(dense.alpha, 1.0, 0.1).sum()
    expected += naive.log_prior(1 / model.model_.evidence_noise, 20, 2e4)
    assert model.log_evidence_ == pytest.approx(expected, abs=1e-5)


def test_a_strong_prior_determines_the_noise():
    """10⁶ prior rows with a mean square of 0.09 outweigh the data's 0.04."""
    X, y = sinc(100, 0.2)
    model = RVMRegressor(gamma=4.0, noise=Noise(prior=(5e5, 4.5e4))).fit(X, y)
    assert model.noise_variance_ == pytest.approx(0.09, rel=1e-3)


@pytest.mark.parametrize(
    ("estimator", "strategy"),
    some(FITS, {(RVMRegressor, "incremental"), (RVMClassifier, "working-set")}),
)
def test_a_prior_with_a_rate_prunes_and_keeps_a_fixed_bias(estimator, strategy):
    """α is bounded, but functions that the evidence rejects are removed; the bias is kept."""
    X, y = sinc(60, 0.1)
    y = y if estimator is RVMRegressor else y > 0.3
    size = {} if strategy == "basic" else {"partition_size": 25}
    unfitted = estimator(
        gamma=4.0, strategy=strategy, alpha_prior=(0.0, 1e-4), random_state=0, **size
    )
    model = unfitted.fit(X, y)
    assert 2 <= model.n_relevance_vectors_ <= 25
    assert model.alpha_.max() < 0.5 / 1e-4, "α ≤ (γ + 2a)/(2b)"
    model = unfitted.set_params(alpha_prior=AlphaPrior(fixed={"bias": 1e5})).fit(X, y)
    assert model.model_.design.bias
    assert (model.model_.alpha[0] == 1e5).all()


def test_a_row_of_zero_weight_is_ignored():
    X, y = sinc(100, 0.1)
    rng = default_rng(3)
    w = rng.choice([0.0, 1.0, 2.0], 100) / rng.uniform(0.5, 3, 100) ** 2
    there = w > 0
    y = np.where(there, y, 1e6)
    one, other = (
        RVMRegressor(gamma=4.0, reference="none").fit(X[of], y[of], sample_weight=w[of])
        for of in (slice(None), there)
    )
    assert other.n_relevance_vectors_ == one.n_relevance_vectors_
    assert other.log_evidence_ == pytest.approx(one.log_evidence_, rel=1e-8)
    assert_allclose(other.predict(X), one.predict(X), atol=1e-8)


def test_intervals_take_given_precisions_as_known(tmp_path):
    """With all α and the noise given, intervals are normal, also in a stored model."""
    rng = default_rng(0)
    X = rng.normal(size=(30, 1))
    y = X[:, 0] + 0.5 * rng.normal(size=30)
    options = {"kernel": None, "basis": "linear", "fit_intercept": False, "noise": 0.25}
    fit = RVMRegressor(**options, alpha_prior=AlphaPrior(fixed={"x0": 0.5})).fit(X, y)
    save_model(fit.model_, tmp_path / "model.zarr")
    mean, std = fit.predict(X, return_std=True)
    for model in (fit.model_, load_model(tmp_path / "model.zarr")):
        assert model.known_alpha == (0,)
        ends, _ = model.interval(0.95)(X)
        assert_allclose(
            ends, np.column_stack([mean - 1.959964 * std, mean + 1.959964 * std]), rtol=1e-6
        )
    free = RVMRegressor(**options).fit(X, y)
    assert free.model_.known_alpha == ()
    plain = np.diff(free.predict_interval(X, hyperparameters=False), axis=0)
    assert (np.diff(free.predict_interval(X), axis=0) > plain).all()
