"""The estimators of the TMB paper, and the delta method."""

from functools import cache
from itertools import product

import numpy as np
import pytest
from by_default import some
from scipy.stats import norm

from partirvm.errors import UsageError
from partirvm.literature.joint_parameters import SYSTEMS
from partirvm.literature.tmb import TMBClassifier, TMBRegressor


def waves(n=40, d=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, (n, d))
    return X, 5 + 3 * np.sin(X[:, 0]) + 0.5 * rng.normal(size=n)


def fitted(system, *, classes=False, **options):
    X, y = waves()
    if classes:
        flipped = np.random.default_rng(1).random(len(y)) < 0.1
        return TMBClassifier(system, **options).fit(X, (y > 5) ^ flipped)
    return TMBRegressor(system, **options).fit(X, y)


@cache
def fitted_joint(system, classes):
    """Return the predictor of a fit, of which several tests judge the formulas."""
    return fitted(system, classes=classes).joint_


CASES = some(product(SYSTEMS, [False, True]), {("rvm", False), ("krvm", True), ("pfcvm", False)})


@pytest.mark.parametrize(("system", "classes"), CASES)
def test_slopes_of_the_predictor_are_differences(system, classes):
    """g = ∂(φ(x; θ)ᵀŵ(θ))/∂θ, by each coordinate."""
    joint = fitted_joint(system, classes)
    points = np.random.default_rng(2).normal(size=(7, 2))
    vector = joint.point.vector

    def predictor(moved):
        point = joint.point.moved(moved)
        block = joint.likelihood.design(point).block(points)
        return block @ joint.likelihood.at(point).weights

    steps = 1e-5 * np.eye(len(vector))[joint.free]
    expected = [(predictor(vector + step) - predictor(vector - step)) / 2e-5 for step in steps]
    slopes = joint.predictor_slopes(points)
    scale = 1e-6 * max(1.0, np.abs(slopes).max())
    np.testing.assert_allclose(slopes, np.column_stack(expected), rtol=1e-5, atol=scale)
    # ∂ŵ/∂log α_i = −Σ_·i α_i ŵ_i
    at = joint.approximation
    alphas = joint.free[joint.free < len(at.alpha)]
    H = at.design.T @ (at.terms.curvature[:, None] * at.design) + np.diag(at.alpha)
    by_log_alpha = -np.linalg.inv(H) * (at.alpha * at.weights)
    expected = joint.block(points) @ by_log_alpha[:, alphas]
    np.testing.assert_allclose(slopes[:, : len(alphas)], expected, rtol=1e-5, atol=scale)


@pytest.mark.parametrize(("system", "classes"), CASES)
def test_the_variance_is_the_delta_methods(system, classes):
    """φᵀΣφ + gᵀCg, with C⁻¹ = −∂²L/∂θ∂θᵀ by differences of L itself."""
    joint = fitted_joint(system, classes)
    likelihood = joint.likelihood

    vector = joint.point.vector

    def value(moved):
        point = joint.point.moved(moved)
        at = likelihood.at(point, joint.approximation.weights)
        return at.log_evidence + likelihood.log_prior(point)

    steps = 1e-3 * np.eye(len(vector))[joint.free]
    curvature = np.empty((len(steps), len(steps)))
    for i, left in enumerate(steps):
        for j, right in enumerate(steps):
            corners = [
                value(vector + a * left + b * right) * a * b for a in (-1, 1) for b in (-1, 1)
            ]
            curvature[i, j] = sum(corners) / 4e-6
    np.testing.assert_allclose(joint.information, -curvature, atol=3e-3 * np.abs(curvature).max())
    points = np.random.default_rng(2).normal(size=(7, 2))
    Phi = joint.block(points)
    alone = np.einsum("nm,mk,nk->n", Phi, joint.approximation.covariance, Phi)
    np.testing.assert_allclose(joint.variance(points, hyperparameters=False), alone, rtol=1e-8)
    g = joint.predictor_slopes(points)
    C = joint.covariance
    np.testing.assert_allclose(joint.variance(points), alone + np.diag(g @ C @ g.T), rtol=1e-8)
    assert np.all(joint.variance(points) >= alone)
    if np.linalg.eigvalsh(joint.information).min() > 1 / 9:
        np.testing.assert_allclose(C @ joint.information, np.eye(len(C)), atol=1e-8)


def test_intervals_are_normal_quantiles_in_the_targets_units():
    model = fitted("rvm")
    X = waves(seed=3)[0][:9]
    mean, std = model.predict(X, return_std=True)
    interval = model.predict_interval(X, 0.9)
    np.testing.assert_allclose(interval[:, 0], norm.ppf(0.05, mean, std))
    np.testing.assert_allclose(interval[:, 1], norm.ppf(0.95, mean, std))
    inner = model.predict_interval(X, 0.9, noise=False)
    half = np.diff(interval)[:, 0] / 2 / norm.ppf(0.95)
    inner_half = np.diff(inner)[:, 0] / 2 / norm.ppf(0.95)
    np.testing.assert_allclose(half**2 - inner_half**2, model.noise_variance_)
    weights_alone = model.predict_interval(X, 0.9, noise=False, hyperparameters=False)
    assert np.all(np.diff(weights_alone) < np.diff(inner))


@pytest.mark.parametrize("system", some(SYSTEMS, {"krvm"}))
def test_the_targets_unit_does_not_matter(system):
    """Predictions move with the target; σ² and the evidence have its units."""
    X, y = waves()
    model = TMBRegressor(system).fit(X, y)
    scaled = TMBRegressor(system).fit(X, 1000 * y - 7)
    np.testing.assert_allclose(scaled.predict(X), 1000 * model.predict(X) - 7, rtol=1e-4)
    assert scaled.noise_variance_ == pytest.approx(1e6 * model.noise_variance_, rel=1e-4)
    shift = len(y) * np.log(1000)
    assert scaled.log_evidence_ == pytest.approx(model.log_evidence_ - shift, abs=1e-3)


@pytest.mark.parametrize("system", some(SYSTEMS, {"pfcvm"}))
def test_a_regression_finds_function_and_noise(system):
    """sd 0.5 of the noise; with widths per feature, the second feature has no part."""
    X, y = waves(n=100)
    model = TMBRegressor(system).fit(X, y)
    new = waves(seed=5)[0]
    error = model.predict(new) - 5 - 3 * np.sin(new[:, 0])
    assert np.sqrt(np.mean(error**2)) < 0.5
    assert 0.35 < np.sqrt(model.noise_variance_) < 0.65
    assert 0 < model.n_relevance_vectors_ < 40
    np.testing.assert_array_equal(model.relevance_vectors_, X[model.relevance_])
    assert np.all(model.alpha_ < np.exp(5.0))
    if system != "rvm":
        assert model.gamma_[1] < 0.1 * model.gamma_[0]
    assert len(model.beta_) == (2 if system == "pfcvm" else 0)


@pytest.mark.parametrize("system", some(SYSTEMS, {"rvm"}))
def test_a_classification_finds_the_classes(system):
    model = fitted(system, classes=True)
    new, truth = waves(n=300, seed=5)
    new = new[np.abs(truth - 5) > 1]
    labels = 3 * np.sin(new[:, 0]) > 0
    assert np.mean(model.predict(new) == labels) > 0.9
    probabilities = model.predict_proba(new)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    np.testing.assert_array_equal(probabilities[:, 1] > 0.5, model.decision_function(new) > 0)
    lower, upper = model.decision_interval(new).T
    np.testing.assert_allclose((lower + upper) / 2, model.decision_function(new))


def test_starred_versions_keep_all_weights():
    model = fitted("rvm", active_set=False)
    assert len(model.joint_.point.labels) == 41
    assert model.n_relevance_vectors_ < 40
    assert len(model.rounds_) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"system": "svm"}, "system"),
        ({"active": "first"}, "active"),
        ({"threshold_unit": "sd"}, "threshold_unit"),
    ],
)
def test_unknown_words_are_refused(options, message):
    X, y = waves()
    with pytest.raises(UsageError, match=f"{message} is .*known"):
        TMBRegressor(**options).fit(X, y)


def test_levels_outside_zero_and_one_are_refused():
    with pytest.raises(UsageError, match="level is 95"):
        fitted("rvm").predict_interval(waves()[0], 95)


def test_one_class_and_three_classes_are_refused():
    X, _ = waves()
    with pytest.raises(UsageError, match="one class"):
        TMBClassifier().fit(X, np.zeros(40))
    with pytest.raises(UsageError, match="Only binary classification"):
        TMBClassifier().fit(X, np.arange(40) % 3)
