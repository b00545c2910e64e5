"""Beyond the reach of the training rows, predictions have the prior variance."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from partirvm import Gaussian, RVMRegressor
from partirvm.kernels import Linear
from partirvm.model import load_model, save_model

FIXED = {"kernel": Gaussian(1.5), "warp": "none", "noise": "constant", "random_state": 0}
FAR = np.array([[30.0]])


def curve(rng, *, scale=1.0):
    """Return 20 rows of a sine with little noise between −1 and 1."""
    X = np.linspace(-1, 1, 20)[:, None]
    return X, scale * (np.sin(3 * X[:, 0]) + 0.05 * rng.standard_normal(20))


def deviations(model, X):
    return model.predict(X, return_std=True)[1]


def without(model):
    """Return the same model, with variances that do not depend on nearness."""
    return replace(model, reach=0.0)


@pytest.mark.parametrize("scale", [1.0, 1e-6, 1e6])
def test_the_standard_deviation_far_away_equals_that_of_the_target(rng, scale):
    X, y = curve(rng, scale=scale)
    model = RVMRegressor(**FIXED).fit(X, y)
    with pytest.warns(UserWarning, match="standard deviation to that of the target"):
        std = deviations(model, FAR)
    assert_allclose(std, y.std(), rtol=0.05)
    assert_allclose(deviations(model, X), deviations(without(model.model_), X), rtol=1e-9)


def test_variances_within_the_reach_follow_the_formula(rng):
    X, y = curve(rng)
    model = RVMRegressor(**FIXED).fit(X, y).model_
    points = np.linspace(-3, 3, 50)[:, None]
    near = model.moments(points)[2]
    for stated in (model, model.predictive, replace(model, noise_variance=0.0)):
        plain = without(stated).moments(points)[1]
        prior = y.var() - model.noise_variance + stated.noise_variance
        share = np.maximum(1.0 - near**2 / model.reach**2, 0.0)
        expected = np.where(prior > plain, plain + share * (prior - plain), plain)
        assert_allclose(stated.moments(points)[1], expected, rtol=1e-9)


def test_the_reach_comes_from_training_rows_without_their_own_columns(rng):
    X, y = curve(rng)
    model = RVMRegressor(**FIXED).fit(X, y).model_
    z = (X - model.design.scaling.x_shift) / model.design.scaling.x_scale
    distances = np.abs(z - model.design.scaling.inputs(model.design.centres).T)
    nearest = np.where(distances == 0, np.inf, distances).min(axis=1)
    assert_allclose(model.reach, np.exp(-1.5 * nearest.max() ** 2), rtol=1e-9)


def test_an_outlier_among_the_training_rows_does_not_change_the_reach(rng):
    X = np.append(rng.uniform(-1, 1, 199), 15.0)[:, None]
    y = np.sin(3 * X[:, 0]) + 0.05 * rng.standard_normal(200)
    model = RVMRegressor(**FIXED).fit(X, y).model_
    assert 1e-5 < model.reach <= 1e-4
    assert_allclose(model.moments(FAR)[1], y.var(), rtol=0.05)


def test_intervals_quantiles_and_samples_have_the_prior_variance(rng):
    X, y = curve(rng)
    model = RVMRegressor(**FIXED).fit(X, y).model_
    prior = np.sqrt(y.var() - model.noise_variance)
    (ends,) = model.interval(0.9)(FAR)[0]
    (quantiles,) = model.quantiles((0.05, 0.95))(FAR)[0]
    assert_allclose(ends, quantiles, rtol=1e-9)
    assert_allclose(np.ptp(ends) / (2 * 1.645), y.std(), rtol=0.05)
    samples = model.samples(3000, rng)(FAR)[0]
    assert_allclose(samples.std(), prior, rtol=0.05)
    assert np.ptp(model.interval(0.9, hyperparameters=False)(FAR)[0]) < 0.5 * y.std()


def test_gradients_exports_files_and_pruned_models_agree(rng, tmp_path):
    X = rng.uniform(-1, 1, (60, 2))
    t = np.column_stack([np.sin(3 * X[:, 0]) + X[:, 1], X[:, 0] - np.cos(2 * X[:, 1])])
    t += 0.1 * rng.standard_normal(t.shape)
    points = rng.uniform(-6, 6, (30, 2))
    for target in (t[:, 0], t):
        full = RVMRegressor(**FIXED, residual="none").fit(X, target).model_
        for model in (full, full.prune(full.n_vectors - 2)):
            expected = deviations(model, points)
            assert (deviations(without(model), points) < expected).any()
            place = tmp_path / f"{len(list(tmp_path.iterdir()))}"
            save_model(model, place)
            _, std, _, slopes = load_model(place).predict(
                points, return_std=True, return_gradient=True
            )
            assert_array_equal(std, expected)
            for j, step in enumerate(1e-5 * np.eye(2)):
                rise = deviations(model, points + step) - deviations(model, points - step)
                assert_allclose(slopes[..., j], rise / 2e-5, rtol=1e-4, atol=1e-6)


def test_a_kernel_that_is_not_local_has_no_reach(rng):
    X, y = curve(rng)
    model = RVMRegressor(**{**FIXED, "kernel": Linear()}).fit(X, y).model_
    assert model.reach == 0.0
    assert_array_equal(model.moments(FAR)[1], without(model).moments(FAR)[1])
