"""Noise that depends on the inputs is predicted where it occurs, refused where it is missing, and
stored."""

import itertools
import pickle

import naive
import numpy as np
import pytest
from by_default import some
from numpy.random import default_rng
from numpy.testing import assert_allclose, assert_array_equal

from partirvm import RVMRegressor, load_model, save_model
from partirvm.errors import UsageError
from partirvm.kernels.design import TEMPER

OPTIONS = {"gamma": 0.3, "residual": "none", "reference": "none", "random_state": 0}


def noise_deviation(x):
    """Return the standard deviation of the noise: from .05 on the left to .6 on the right."""
    return 0.05 + 0.55 / (1 + np.exp(-3 * x))


def rows(n, seed=0):
    rng = default_rng(seed)
    X = rng.uniform(-3, 3, size=(n, 1))
    return X, np.sin(2 * X[:, 0]) + noise_deviation(X[:, 0]) * rng.normal(size=n)


@pytest.fixture(scope="module")
def fitted():
    return RVMRegressor(noise="local", **OPTIONS).fit(*rows(150))


@pytest.mark.usefixtures("default_fits")
def test_local_noise_is_predicted_where_it_occurs():
    """In each tenth of the range, intervals cover 95 ± 5 %, and the noise is right within a factor
    of 3."""
    fitted = RVMRegressor(gamma=0.3, random_state=0).fit(*rows(600))
    assert fitted.history_[-1]["noise_vectors"] == len(fitted.model_.design.noise.weights)
    X, y = rows(20_000, seed=1)
    noise = fitted.model_.predictive.noise_deviations(X)[0][:, 0]
    lower, upper = fitted.predict_interval(X, 0.95)
    for low, high in itertools.pairwise(np.linspace(-3, 3, 11)):
        here = (X[:, 0] >= low) & (X[:, 0] < high)
        assert 0.7 < np.median(noise[here] / noise_deviation(X[here, 0])) < 3
        assert np.mean((y[here] >= lower[here]) & (y[here] <= upper[here])) == pytest.approx(
            0.95, abs=0.05
        )


@pytest.mark.parametrize("seed", some(range(4), {0}))
def test_constant_noise_is_not_fitted_as_local_noise(seed):
    rng = default_rng(seed)
    X = rng.uniform(-3, 3, size=(150, 1))
    y = np.sin(2 * X[:, 0]) + 0.2 * rng.normal(size=150)
    model = RVMRegressor(**OPTIONS).fit(X, y)
    assert model.model_.design.noise is None


def test_the_mean_equals_that_of_weighted_rows():
    """μ and Σ equal a fit to rows weighted by the noise factor to the power −½ (naive formulas)."""
    X, y = rows(150)
    w = default_rng(3).choice([0.5, 2.0], 150)
    w /= w.mean()  # the unit of weights in a fit
    model = RVMRegressor(noise="local", standardize=False, **OPTIONS).fit(X, y, w).model_
    noise = model.design.noise
    design = model.design
    factor = np.exp(
        naive.gaussian(X, noise.centres, noise.kernel.gamma) @ noise.weights - noise.shift
    )
    Phi = np.column_stack([np.ones(150)] * design.bias + [naive.gaussian(X, design.centres, 0.3)])
    t = y - design.scaling.t_shift
    mu, Sigma = naive.posterior(Phi, t, model.alpha, 1 / model.evidence_noise, w * factor**-TEMPER)
    assert_allclose(model.mean, mu, rtol=1e-5, atol=1e-7)
    assert_allclose(model.root @ model.root.T, Sigma, rtol=1e-5, atol=1e-9)
    predictive = model.predictive
    spread = (
        np.einsum("nm,nm->n", Phi @ predictive.root, Phi @ predictive.root)
        + predictive.noise_variance * factor
    )
    assert_allclose(model.predict(X, return_std=True)[1], np.sqrt(spread), rtol=1e-6)


def test_the_noise_factor_has_mean_one_and_is_constant_far_away(fitted):
    noise = fitted.model_.design.noise
    X = rows(150)[0]
    points = fitted.model_.design.scaling.inputs(X)
    assert noise.factor(points).mean() == pytest.approx(1.0)
    assert noise.factor(np.array([[1e3]]))[0] == pytest.approx(np.exp(-noise.shift))
    assert_allclose(fitted.model_.design.row_weights(X), noise.factor(points) ** -0.5)


def test_files_and_pickles_keep_local_noise(fitted, tmp_path):
    X = rows(50, seed=5)[0]
    expected = fitted.predict(X, return_std=True)[1]
    save_model(fitted, tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert_array_equal(loaded.predict(X, return_std=True)[1], expected)
    assert_array_equal(pickle.loads(pickle.dumps(fitted)).predict(X, return_std=True)[1], expected)
    save_model(fitted.model_, tmp_path / "alone")
    assert load_model(tmp_path / "alone").digest() == fitted.model_.digest()
    plain = RVMRegressor(noise="constant", **OPTIONS).fit(*rows(150)).model_
    assert plain.digest() != fitted.model_.digest()


def test_partial_fit_keeps_the_noise_factors():
    X, y = rows(240)
    model = RVMRegressor(noise="local", strategy="working-set", partition_size=30, **OPTIONS)
    model.partial_fit(X[:160], y[:160])
    before = model.model_.design.noise
    model.partial_fit(X[160:], y[160:])
    after = model.model_.design.noise
    assert after is before or np.array_equal(after.weights, before.weights)
    _, std = model.predict(np.array([[-2.5], [2.5]]), return_std=True)
    assert std[1] > 2 * std[0]


def test_local_noise_needs_one_target_and_enough_rows(fitted):
    X, y = rows(80)
    with pytest.raises(
        UsageError, match="noise is 'other': it must be a number > 0 or 'auto' or 'constant'"
    ):
        RVMRegressor(noise="other").fit(X, y)
    with pytest.raises(UsageError, match=r"noise='local' .*one target"):
        RVMRegressor(noise="local", gamma=0.3).fit(X, np.column_stack([y, -y]))
    few = RVMRegressor(noise="local", gamma=0.3).fit(*rows(45))
    assert few.model_.design.noise is None
