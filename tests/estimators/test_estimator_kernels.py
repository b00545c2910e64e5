"""Every kernel in the estimators: by name, by value, by function, and in stored models."""

import numpy as np
import pytest
from kernel_cases import CASES, D
from numpy.random import default_rng
from numpy.testing import assert_allclose, assert_array_equal

from partirvm import RVMRegressor, load_model
from partirvm.errors import UsageError
from partirvm.kernels import NAMES, WITH_GAMMA
from partirvm.model import save_model

QUIET = pytest.mark.filterwarnings("ignore::partirvm.errors.PartirvmWarning")

BASIC = {
    "strategy": "basic",
    "max_iterations": 5,
    "reference": "none",
    "residual": "none",
    "random_state": 0,
}
"""Few iterations suffice: the formula holds wherever a fit stops."""


def rows(n=80):
    """Return inputs whose last column is a category, and noisy targets."""
    rng = default_rng(5)
    X = np.column_stack([rng.normal(size=(n, 2)), rng.integers(0, 3, n)])
    f = np.tanh(X[:, 0]) + 0.5 * X[:, 1] + np.array([0.0, 1.5, -0.7])[X[:, 2].astype(int)]
    return X, f + 0.1 * rng.normal(size=n)


def mean_of(model, twin, X):
    """Return Σ_m w_m k(x, z_m) + bias by definition, in the target's units."""
    scaling = model.design.scaling
    bias = int(model.design.bias)
    K = twin(scaling.inputs(X), scaling.inputs(model.design.centres))
    predictor = K @ model.mean[bias:] + (model.mean[0] if bias else 0.0)
    return scaling.t_shift[0] + scaling.t_scale[0] * predictor


@QUIET
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_predictions_of_every_kernel_follow_its_formula(case, tmp_path):
    """A stored model predicts the same bits; a model whose kernel is a lambda cannot be stored."""
    X, y = rows(40)
    model = RVMRegressor(kernel=case.kernel, **BASIC).fit(X, y)
    mean, std = model.predict(X, return_std=True)
    assert_allclose(mean, mean_of(model.model_, case.twin, X), rtol=1e-7, atol=1e-9)
    assert (std > 0).all()
    place = tmp_path / "model"
    if case.name == "callable":
        with pytest.raises(UsageError, match="'module:function'"):
            save_model(model.model_, place)
        assert not place.exists()
    else:
        save_model(model.model_, place)
        loaded = load_model(place, allow_code=True)
        assert loaded.design.kernel == case.kernel
        assert_array_equal(loaded.predict(X), mean)


@QUIET
@pytest.mark.parametrize("name", NAMES)
def test_a_kernel_name_means_the_kernel_with_its_defaults(name):
    """ "scale" is 1/(d·var) of the scaled inputs, or 1/var if each feature has its own kernel; a
    kernel without gamma refuses it."""
    X, y = rows(20)
    gamma = {"gamma": "scale"} if name in WITH_GAMMA else {}
    model = RVMRegressor(kernel=name, **gamma, **BASIC).fit(X, y).model_
    compared = 1 if name == "anova" else D
    fields = {"gamma": (1 / compared,)} if name in WITH_GAMMA else {}
    assert model.design.kernel == NAMES[name](**fields)
    raw = (
        RVMRegressor(kernel=name, **gamma, standardize=False, **BASIC)
        .fit(X, y)
        .model_.design.kernel
    )
    assert name not in WITH_GAMMA or raw.gamma == pytest.approx([1 / (compared * X.var())])
    for gamma in (0.3, np.array([0.1, 0.2, 0.3])):
        estimator = RVMRegressor(kernel=name, gamma=gamma, **BASIC)
        if name in WITH_GAMMA:
            used = estimator.fit(X, y).model_.design.kernel.gamma
            assert used == ((0.3,) if isinstance(gamma, float) else (0.1, 0.2, 0.3))
        else:
            with pytest.raises(
                UsageError, match=r"gamma is .*, but the kernel has its own parameters, or none"
            ):
                estimator.fit(X, y)
