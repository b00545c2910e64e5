"""Effects of fitted models with an ANOVA kernel, against means of their predictions over all
combinations of the features' values."""

import json
from functools import cache

import numpy as np
import pytest
from numpy.random import default_rng
from numpy.testing import assert_allclose

from partirvm import Anova, Gaussian, RVMClassifier, RVMRegressor, load_model, save_model
from partirvm.errors import UsageError
from partirvm.model.base import linear_values
from partirvm.model.feature_effects import Effects, effects_of, marginals_of

N = 40


def rows():
    """Return inputs, of which the third holds three numbers, and targets."""
    rng = default_rng(0)
    X = np.c_[rng.uniform(-1, 1, (N, 2)), rng.integers(0, 3, N)]
    y = np.sin(2 * X[:, 0]) + X[:, 0] * X[:, 1] + 0.5 * (X[:, 2] == 1)
    return X, y + 0.05 * rng.normal(size=N)


@cache
def fitted(kernel, **options):
    """Return an estimator, whose fit is shared by all tests."""
    X, y = rows()
    options = {"residual": "none", "noise": 0.01, "random_state": 0} | options
    return RVMRegressor(kernel, **options).fit(X, y)


def on_all_combinations(model, number=0):
    """Return the linear predictor (q, q, q) at all combinations of the stored values."""
    axes = np.meshgrid(*model.marginals.T, indexing="ij")
    X = np.stack([axis.ravel() for axis in axes], axis=1)
    values = linear_values(model.design, model.mean, X)[0].reshape(len(X), -1)
    return values[:, number].reshape(axes[0].shape)


def shares_on_all_combinations(values):
    """Return first-order and total indices (3,) each."""
    variance = values.var()
    alone = [values.mean(axis=tuple({0, 1, 2} - {j})).var() for j in range(3)]
    total = [values.var(axis=j).mean() for j in range(3)]
    return np.array(alone) / variance, np.array(total) / variance


PLAIN = Anova(1.0, shares=0.5)

KINDS = {
    "all orders": (PLAIN, {}),
    "order": (Anova(1.0, shares=0.5, order=2), {}),
    "steps": (Anova(1.0, shares=(0.5, 0.2, 1.0), base="laplacian"), {}),
    "levels": (Anova(1.0, shares=0.5, categorical=(2,)), {}),
    "linear columns": (PLAIN, {"basis": "linear"}),
    "several widths": (Anova(1.0, shares=0.5, multiples=(1.0, 8.0)), {}),
}


@pytest.mark.parametrize(
    "kind",
    [
        "all orders",
        "order",
        *(pytest.param(kind, marks=pytest.mark.slow) for kind in list(KINDS)[2:]),
    ],
)
def test_shares_are_those_of_all_predictions(kind):
    """``feature_relevance_`` is the total index, and the effects have both."""
    kernel, options = KINDS[kind]
    estimator = fitted(kernel, **options)
    values = on_all_combinations(estimator.model_)
    alone, total = shares_on_all_combinations(values)
    assert_allclose(estimator.feature_relevance_, total, rtol=1e-8)
    effects = effects_of(estimator.model_)
    for main in effects.main:
        j = int(main.at.feature[1:])
        assert (main.share, main.total) == pytest.approx((alone[j], total[j]), rel=1e-8)
    scale = float(estimator.model_.design.scaling.t_scale[0])
    assert effects.variance == pytest.approx(scale**2 * values.var(), rel=1e-8)


def test_curves_and_bands_are_those_of_all_predictions():
    """An effect is a mean of predictions, and its band comes from the means of their columns."""
    model = fitted(PLAIN).model_
    effects = effects_of(model)
    (main,) = [main for main in effects.main if main.at.feature == "x2"]
    assert main.at.values == [0.0, 1.0, 2.0]
    axes = np.meshgrid(*model.marginals.T[:2], main.at.values, indexing="ij")
    X = np.stack([axis.ravel() for axis in axes], axis=1)
    columns = model.design.block(X).reshape(*axes[0].shape, -1).mean(axis=(0, 1))
    weights = np.bincount(model.marginals[:, 2].astype(int)) / len(model.marginals)
    columns = columns - weights @ columns
    scale = float(model.design.scaling.t_scale[0])
    assert_allclose(main.mean, scale * columns @ model.mean, atol=1e-10)
    root = model.predictive.root
    assert_allclose(main.std, scale * np.linalg.norm(columns @ root, axis=1), rtol=1e-8)


def test_the_strongest_interaction_is_the_one_of_the_function():
    (pair, *others) = effects_of(fitted(PLAIN).model_).interactions
    assert (pair.first.feature, pair.second.feature) == ("x0", "x1")
    assert pair.share > max([0.0, *(other.share for other in others)])
    assert np.sign(pair.mean[0][0]) == np.sign(pair.mean[-1][-1]) == 1.0  # x0 x1 at the corners


def test_classes_have_effects_of_their_predictors():
    X, y = rows()
    estimator = RVMClassifier(PLAIN, random_state=0)
    estimator.fit(X, np.where(y > 0.3, "high", "low"))
    model = estimator.model_
    _, total = shares_on_all_combinations(on_all_combinations(model))
    assert_allclose(estimator.feature_relevance_, total, rtol=1e-6)
    assert effects_of(model, "low").unit == "predictor of low"
    with pytest.raises(UsageError, match="one of high, low"):
        effects_of(model, "middle")


def test_several_targets_have_effects_each():
    X, y = rows()
    Y = np.c_[y, X[:, 1]]
    model = RVMRegressor(PLAIN, residual="none", random_state=0).fit(X, Y).model_
    assert effects_of(model, 0).main[0].at.feature == "x0"
    assert effects_of(model, 1).main[0].at.feature == "x1"


def test_other_kernels_are_refused_with_advice():
    """Their relevance is computed from rows, as before."""
    estimator = fitted(Gaussian(1.0))
    assert estimator.model_.marginals is None
    assert estimator.feature_relevance_.min() > 0.0
    with pytest.raises(UsageError, match='fit with kernel="anova"'):
        effects_of(estimator.model_)


def test_effects_survive_files(tmp_path):
    """A saved model has the same effects, also as JSON."""
    model = fitted(PLAIN).model_
    save_model(model, tmp_path / "model")
    effects = effects_of(load_model(tmp_path / "model"))
    assert effects == effects_of(model)
    assert Effects.from_json(json.loads(json.dumps(effects.to_json()))) == effects


def test_marginals_are_quantiles_of_present_values():
    model = fitted(PLAIN).model_
    X = np.c_[np.arange(256.0), np.full(256, np.nan), np.r_[np.full(128, np.nan), np.ones(128)]]
    assert_allclose(
        marginals_of(model, X), np.c_[np.arange(1.0, 256.0, 2.0), np.zeros(128), np.ones(128)]
    )
