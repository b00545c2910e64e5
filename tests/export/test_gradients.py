"""Gradients of predictions equal finite differences of the predictions, in raw units."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from test_exports import random_model, rows_of

from partirvm import RVMRegressor
from partirvm.errors import DataError, UsageError
from partirvm.kernels import Basis
from partirvm.model import Model
from partirvm.model.base import HEIGHT
from partirvm.scaling import FeatureMap
from partirvm.scaling.maps import pulled_back


def differences(function, X, step=1e-4):
    """Return fourth-order central differences of values (n, V) in each feature, (n, V, d)."""
    found = []
    for move in step * np.eye(X.shape[1]):
        near, far = (function(X + size * move) - function(X - size * move) for size in (1, 2))
        found.append((8 * near - far) / (12 * step))
    return np.stack(found, axis=-1)


def agree(found, expected):
    """Assert that gradients (n, d) differ by at most 1e-6 of the largest one."""
    assert_allclose(found, expected, rtol=0, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize(
    "seeds", [range(0, 220, 4), pytest.param(range(220), marks=pytest.mark.slow)]
)
def test_gradients_equal_differences_for_every_kernel_scaling_and_target(seeds):
    """Models have warps, local noise and basis functions; the codes of different levels are far
    apart."""
    models = [(seed, model) for seed in seeds if isinstance(model := random_model(seed), Model)]
    assert {model.design.scaling.target.kind for _, model in models} == {"none", "log", "asinh"}
    assert any(model.design.noise for _, model in models)
    assert any(len(model.design.active) for _, model in models)
    for seed, model in models:
        X = np.add(np.nan_to_num(rows_of(model, seed)[:12], nan=0.7), [0.01, 0.01, 0.3])
        mean, std, of_mean, of_std = model.predict(X, return_std=True, return_gradient=True)
        for found, expected in zip((mean, std), model.predict(X, return_std=True), strict=True):
            assert_array_equal(found, expected)
        both = differences(
            lambda X, model=model: np.column_stack(model.predict(X, return_std=True)), X
        )
        agree(of_mean, both[:, 0])
        agree(of_std, both[:, 1])
        same, alone = model.predict(X, return_gradient=True)
        assert_array_equal(same, mean)
        assert_allclose(alone, of_mean, rtol=1e-12)


def test_gradients_of_level_effects(rng):
    """The derivative by a code is 0, by a number that of its effects, which are flat beyond ±4."""
    tables = ((1, rng.normal(size=(1, 4, 3))),)
    numbers = np.array([0, 2])
    moments = np.array([[0.5, -0.2], [1.5, 0.7]])
    effects = ((1, rng.normal(size=(1, 4, 7))), (3, rng.normal(size=(1, 3, 3))))
    features = FeatureMap(
        np.zeros(4), np.array([0.4, 0, 0, 0]), np.array([0]), tables, effects, numbers, moments
    )
    X = np.column_stack(
        [rng.normal(size=9), np.arange(9) % 5 + 0.3, rng.normal(size=9), np.arange(9) % 3 + 0.3]
    )
    X[0, 0], weights = 9.0, rng.normal(size=(9, len(features.sources)))
    expected = differences(lambda X: (features(X) * weights).sum(axis=1, keepdims=True), X)[:, 0]
    agree(pulled_back(features, X, weights), expected)
    assert_array_equal(*(features(np.array([[0.0, code, 0.0, 0.0]])) for code in (-1.0, 9.0)))


def test_estimator_gradients_match_differences(rng):
    """One row has the same bits as among many rows, for one target and several."""
    X = rng.normal(size=(HEIGHT + 90, 2))
    y = np.column_stack([np.sin(X[:, 0]) * X[:, 1], X[:, 0] ** 2]) + 0.1 * rng.normal(size=X.shape)
    for target, shape in ((y[:90], (2, 2)), (y[:90, 0], (2,))):
        model = RVMRegressor(gamma=0.3, residual="none", random_state=0).fit(X[:90], target)
        mean, _, of_mean, of_std = model.predict(X, return_std=True, return_gradient=True)
        assert of_mean.shape == of_std.shape == (len(X), *shape)
        few = differences(lambda X, m=model: np.column_stack(m.predict(X, return_std=True)), X[:9])
        agree(np.concatenate([of_mean[:9], of_std[:9]], axis=1).reshape(few.shape), few)
        for found, whole in zip(
            model.predict(X[-1:], return_gradient=True), (mean, of_mean), strict=True
        ):
            assert_array_equal(found, whole[-1:])


def test_unsupported_gradients_are_refused(rng):
    """They are those of augmented rows, gaps, local residuals and levels."""
    X = rng.normal(size=(HEIGHT + 90, 2))
    y = np.column_stack([np.sin(X[:, 0]) * X[:, 1], X[:, 0] ** 2]) + 0.1 * rng.normal(size=X.shape)
    model = RVMRegressor(gamma=0.3, residual="none", random_state=0).fit(X[:90], y[:90, 0])
    with pytest.raises(UsageError, match="augment and return_gradient cannot be combined"):
        model.predict(X, augment=(X[:90], y[:90, 0]), return_gradient=True)
    with pytest.raises(DataError, match="rows with missing values have no gradient"):
        model.predict(np.full((1, 2), np.nan), return_gradient=True)
    local = RVMRegressor(residual="local", random_state=0).fit(X[:90], y[:90, 0])
    with pytest.raises(UsageError, match=r"residual='none', or take model_\.sparse\(\)"):
        local.predict(X, return_gradient=True)
    local.model_.sparse().predict(X[:2], return_gradient=True)
    own = replace(
        model.model_, design=replace(model.model_.design, functions=Basis(((np.sin, 2),)))
    )
    with pytest.raises(UsageError, match="Python function has no gradient"):
        own.predict(X[:2], return_gradient=True)
