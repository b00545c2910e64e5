"""Several targets in one estimator: shapes, scores, noise of each target, and shared vectors."""

import naive
import numpy as np
import pytest
from by_default import some
from numpy.random import default_rng
from numpy.testing import assert_allclose, assert_array_equal
from regressions import Dense
from sklearn.metrics import r2_score
from sklearn.multioutput import MultiOutputRegressor

from partirvm import RVMRegressor, ingest
from partirvm.errors import DataError, UsageError

OPTIONS = {
    "gamma": 0.5,
    "partition_size": 40,
    "reference": "none",
    "residual": "none",
    "random_state": 0,
}
SD = np.array([0.05, 2.0, 30.0])


def several(n=200, seed=0):
    """Return three functions of the same two inputs, with different units and noise."""
    rng = default_rng(seed)
    X = rng.uniform(-2, 2, size=(n, 2))
    f = np.column_stack(
        [np.sin(2 * X[:, 0]), 20 * X[:, 0] * X[:, 1], 500 + 100 * np.cos(2 * X[:, 1])]
    )
    return X, f, f + SD * rng.normal(size=f.shape)


@pytest.mark.parametrize(
    "strategy", some(["basic", "working-set", "split-merge", "incremental"], {"working-set"})
)
def test_several_targets_share_vectors_according_to_the_dense_formulas(strategy):
    """Design and α are shared; each target has its own weights, noise, predictions and
    deviations."""
    X, f, y = several()
    w = default_rng(1).uniform(0.5, 2.0, len(X))
    model = RVMRegressor(strategy=strategy, **OPTIONS).fit(X, y, sample_weight=w)
    w = w / w.mean()
    m = model.n_relevance_vectors_
    assert model.weights_.shape == (m, 3)
    assert model.alpha_.shape == (m,)
    assert model.intercept_.shape == model.noise_variance_.shape == (3,)
    scaling = model.model_.design.scaling
    for values, shift, scale in (
        (X, scaling.x_shift, scaling.x_scale),
        (y, scaling.t_shift, scaling.t_scale),
    ):
        mean = np.average(values, axis=0, weights=w)
        assert_allclose(shift, mean)
        assert_allclose(scale, np.sqrt(np.average((values - mean) ** 2, axis=0, weights=w)))
    mean, std = model.predict(X[:7], return_std=True)
    assert mean.shape == std.shape == (7, 3)
    evidence = 0.0
    for k in range(3):
        dense = Dense(model, X, y[:, k], target=k)
        expected, variance = naive.predict(dense.Phi[:7], *dense.problem, w)
        assert_allclose(mean[:, k], dense.shift + dense.scale * expected, rtol=1e-6)
        assert_allclose(std[:, k], dense.scale * np.sqrt(variance), rtol=1e-6)
        evidence += naive.log_evidence(*dense.problem, w) - len(X) * np.log(dense.scale)
    assert model.log_evidence_ == pytest.approx(evidence, rel=1e-8)
    residual = np.sqrt(w @ (y - model.predict(X)) ** 2 / len(X))
    assert_allclose(np.sqrt(model.noise_variance_), residual, rtol=0.1)
    assert (((model.predict(X) - f) / f.std(axis=0)) ** 2).mean(axis=0).max() < 0.2**2


def test_score_is_the_mean_r2_over_targets():
    """Held-out rows must have the same number of targets."""
    X, _, y = several()
    other, _, truth = several(seed=5)
    model = RVMRegressor(**OPTIONS).fit(X, y, X_val=other, y_val=truth)
    assert model.score(other, truth) == pytest.approx(r2_score(truth, model.predict(other)))
    assert model.score(other, truth) > 0.9
    assert_allclose(np.sqrt(model.noise_variance_), SD, rtol=0.15)
    with pytest.raises(DataError, match="targets of the data are 1, those of the training data 3"):
        RVMRegressor(**OPTIONS).fit(X, y, X_val=other, y_val=truth[:, 0])


def test_multi_output_regressor_fits_each_target_separately(tmp_path):
    """It predicts a constant target, which DATA refuse."""
    X, _, y = several(100)
    y[:, 1] = 3.0
    with pytest.warns(match="constant"):
        separate = MultiOutputRegressor(RVMRegressor(**OPTIONS)).fit(X, y)
    assert_array_equal(
        separate.predict(X)[:, 2], RVMRegressor(**OPTIONS).fit(X, y[:, 2]).predict(X)
    )
    assert_allclose(separate.predict(X)[:, 1], 3.0)
    data = ingest((X, y), tmp_path / "data.zarr")
    with pytest.raises(DataError, match=r"is constant.*MultiOutputRegressor"):
        RVMRegressor(**OPTIONS).fit(data)


def test_a_single_column_gives_the_same_bits_as_a_vector():
    X, _, y = several(120)
    column = RVMRegressor(**OPTIONS).fit(X, y[:, :1])
    flat = RVMRegressor(**OPTIONS).fit(X, y[:, 0])
    assert column.model_.digest() == flat.model_.digest()


@pytest.mark.usefixtures("quick_learning")
def test_widths_are_learned_jointly_for_all_targets():
    """The targets need two of four inputs, one each; the other two are switched off."""
    rng = default_rng(2)
    X = rng.uniform(-2, 2, size=(200, 4))
    y = np.column_stack([np.sin(2 * X[:, 0]), np.sin(3 * X[:, 2])]) + 0.1 * rng.normal(
        size=(200, 2)
    )
    model = RVMRegressor(
        gamma="learn-per-feature", partition_size=60, max_rounds=2, random_state=0
    ).fit(X, y)
    assert set(model.get_support(indices=True)) == {0, 2}


def test_options_that_need_one_target_are_refused_for_several():
    """Samples, intervals and augmented predictions need one target."""
    X, _, Y = several(60)
    shared = RVMRegressor(gamma=0.3, random_state=0).fit(X, Y)
    for call in (
        shared.sample_y,
        shared.predict_interval,
        lambda X: shared.predict(X, augment=(X, Y)),
    ):
        with pytest.raises(UsageError, match="MultiOutputRegressor"):
            call(X)
