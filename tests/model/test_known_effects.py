"""Rows of known groups: means and variances of the joint posterior of weights and effects."""

import numpy as np
import pytest
from numpy.random import default_rng
from numpy.testing import assert_allclose, assert_array_equal

from partirvm import RVMRegressor, load_model, save_model
from partirvm.data.row_groups import label_codes
from partirvm.model import known_rows

GROUPS = np.repeat(np.arange(20), 6)


def drawn():
    """Rows of 20 groups with an intercept and a slope of the first feature, and noise of sd .1."""
    rng = default_rng(0)
    X = rng.normal(size=(120, 2))
    coefficients = rng.normal(size=(20, 2))[GROUPS]
    y = np.sin(2 * X[:, 1]) + coefficients[:, 0] + coefficients[:, 1] * X[:, 0]
    return X, 3.0 + 2.0 * (y + 0.1 * rng.normal(size=120))


X, Y = drawn()
CODES = label_codes(GROUPS, len(GROUPS))


@pytest.fixture(scope="module")
def fitted():
    options = {"gamma": "scale", "residual": "none", "reference": "none", "random_state": 0}
    return RVMRegressor(**options).fit(X, Y, groups=GROUPS)


class Joint:
    """The posterior N(μ, Σ) of the weights of a model's columns and of the effects of 20 groups,
    from all rows, at the α, the β and the prior precisions of the effects of a fit."""

    def __init__(self, model, precisions):
        self.model = model
        self.scaling = model.design.scaling
        design = self.columns(X, GROUPS)
        t = self.scaling.targets(Y[:, None])[:, 0]
        beta = self.scaling.t_scale[0] ** 2 / model.evidence_noise
        alpha = np.concatenate([model.alpha, np.tile(precisions, 20)])
        self.covariance = np.linalg.inv(beta * design.T @ design + np.diag(alpha))
        self.mean = beta * self.covariance @ design.T @ t

    def columns(self, rows, groups):
        """Φ beside 1 and the features in the columns of each row's group."""
        terms = np.column_stack([np.ones(len(rows)), self.model.design.features(rows)])
        places = self.model.known.places_of(label_codes(groups, len(groups)))
        members = places[:, None] == np.arange(20)
        effects = (members[:, :, None] * terms[:, None, :]).reshape(len(rows), -1)
        return np.hstack([self.model.design.block(rows), effects])

    def moments(self, rows, groups):
        """The means and the variances, with noise, of targets."""
        design = self.columns(rows, groups)
        mean = self.scaling.t_shift[0] + self.scaling.t_scale[0] * (design @ self.mean)
        spread = np.einsum("nm,mk,nk->n", design, self.covariance, design)
        noise = self.model.known.noise_variance
        return mean, self.scaling.t_scale[0] ** 2 * spread + noise


def prior_precisions(model):
    """The prior precisions of the effects: their precision given the weights is βBᵀB of the group's
    columns B plus these."""
    design = model.design
    beta = design.scaling.t_scale[0] ** 2 / model.evidence_noise
    terms = np.column_stack([np.ones(len(X)), design.features(X)])
    places = model.known.places_of(CODES)
    return [
        np.linalg.inv(model.known.effects.covariances[g])
        - beta * terms[places == g].T @ terms[places == g]
        for g in range(20)
    ]


def test_effects_of_all_groups_have_one_prior(fitted):
    """It is diagonal, with one variance of intercepts and another one of slopes."""
    precisions = np.array(prior_precisions(fitted.model_))
    assert precisions.shape == (20, 3, 3)
    first = precisions[0]
    assert_allclose(precisions, np.broadcast_to(first, precisions.shape), atol=1e-7)
    assert_allclose(first, np.diag(np.diagonal(first)), atol=1e-7)
    assert first[1, 1] == pytest.approx(first[2, 2])


@pytest.mark.parametrize("most", [None, 3], ids=["all", "pruned"])
def test_predictions_are_those_of_the_joint_posterior(fitted, most):
    """Also of a pruned model, at the same α and β."""
    model = fitted.model_
    precisions = np.diagonal(prior_precisions(model)[0])
    if most is not None:
        assert model.n_vectors > most
        noise = model.known.noise_variance
        model = model.prune(most)
        assert model.known.noise_variance == noise
    joint = Joint(model, precisions)
    M = len(model.mean)
    assert_allclose(model.mean, joint.mean[:M], rtol=1e-6, atol=1e-8)
    covariance = joint.covariance[:M, :M]
    assert_allclose(model.root @ model.root.T, covariance, rtol=1e-6, atol=1e-9)
    rows = default_rng(1).normal(size=(30, 2))
    groups = default_rng(2).integers(0, 20, 30)
    mean, variance, _ = known_rows(model, label_codes(groups, len(groups))).moments(rows)
    expected_mean, expected_variance = joint.moments(rows, groups)
    assert_allclose(mean, expected_mean, rtol=1e-7)
    assert_allclose(variance, expected_variance, rtol=1e-6)


def test_effects_are_found(fitted):
    """The noise has the standard deviation .2 in units of y, and new rows of a group are predicted
    nearly as well; the effects have the standard deviation 2√2."""
    rng = default_rng(3)
    coefficients = default_rng(0)
    coefficients.normal(size=(120, 2))
    coefficients = coefficients.normal(size=(20, 2))
    rows = rng.normal(size=(200, 2))
    groups = rng.integers(0, 20, 200)
    effect = coefficients[groups, 0] + coefficients[groups, 1] * rows[:, 0]
    truth = 3.0 + 2.0 * (np.sin(2 * rows[:, 1]) + effect)
    near = np.abs(rows).max(axis=1) < 1.5
    known = fitted.predict(rows, groups=groups) - truth
    assert np.sqrt(np.mean(known[near] ** 2)) < 0.3
    assert np.sqrt(np.mean((fitted.predict(rows) - truth)[near] ** 2)) > 1.5


@pytest.mark.parametrize("values", ["mean", "std"])
def test_gradients_of_known_groups_are_differences(fitted, values):
    rows = default_rng(4).normal(size=(5, 2))
    groups = np.arange(5)
    parts = fitted.predict(rows, return_std=True, return_gradient=True, groups=groups)
    place = int(values == "std")
    for feature in range(2):
        step = np.zeros(2)
        step[feature] = 1e-5
        high, low = (
            fitted.predict(rows + sign * step, return_std=True, groups=groups)[place]
            for sign in (1, -1)
        )
        expected = (high - low) / 2e-5
        assert_allclose(parts[2 + place][:, feature], expected, rtol=1e-4, atol=1e-6)


def test_a_stored_model_knows_the_groups(fitted, tmp_path):
    save_model(fitted.model_, tmp_path / "model")
    stored = known_rows(load_model(tmp_path / "model"), CODES)
    original = known_rows(fitted.model_, CODES)
    for mine, theirs in zip(stored.moments(X), original.moments(X), strict=True):
        assert_array_equal(mine, theirs)
