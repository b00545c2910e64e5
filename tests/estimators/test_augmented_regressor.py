"""``predict(X, augment=…)``: RVM* equals a dense one, near the data and far from them."""

import re
from dataclasses import replace

import naive
import numpy as np
import pytest
from by_default import some
from numpy.random import default_rng
from numpy.testing import assert_allclose, assert_array_equal
from regressions import plane, sinc

from partirvm import RVMRegressor, ingest
from partirvm.errors import DataError, UsageError
from partirvm.kernels import Gaussian, Several

FAR = pytest.mark.filterwarnings("ignore:.*far from every:partirvm.errors.DataWarning")


def dense(model, X, y, tested, w=None, blocks=None):
    """Return the mean and standard deviation at each test row from a dense RVM with one extra
    column, in y's units."""
    fitted = model.model_
    s = fitted.design.scaling
    gamma = np.asarray(fitted.design.kernels[0].gamma)
    x, z, c = ((rows - s.x_shift) / s.x_scale for rows in (X, tested, fitted.design.centres))
    t = (y - s.t_shift[0]) / s.t_scale[0]
    beta = s.t_scale[0] ** 2 / fitted.evidence_noise
    Phi, rows = blocks or (
        np.hstack([np.ones((len(part), int(fitted.design.bias))), naive.gaussian(part, c, gamma)])
        for part in (x, z)
    )
    w = np.ones(len(t)) if w is None else w
    precision = 1 / np.average((t - np.average(t, weights=w)) ** 2, weights=w)
    ones = np.ones(len(z))
    extra = naive.gaussian(x, z, gamma)
    mean, variance = naive.predict_augmented(
        rows, ones, extra, Phi, t, fitted.alpha, beta, precision * ones, w
    )
    variance += (
        plain_variance(fitted, tested) - naive.predict(rows, Phi, t, fitted.alpha, beta, w)[1]
    )
    return s.t_shift[0] + s.t_scale[0] * mean, s.t_scale[0] * np.sqrt(variance)


def plain_variance(fitted, tested):
    """Return the predicted variance without the additional column, in the model's unit."""
    return (
        replace(fitted, reach=0.0).predict(tested, return_std=True)[1] ** 2
        / fitted.design.scaling.t_scale[0] ** 2
    )


@pytest.mark.parametrize(
    ("standardize", "unit", "weighted"),
    some(
        [
            (standardize, unit, weighted)
            for standardize, unit in ((True, 1.0), (True, 1e6), (False, 1.0), (False, 1e4))
            for weighted in (False, True)
        ],
        {(True, 1e6, True), (False, 1.0, False)},
    ),
)
def test_predictions_equal_those_of_a_dense_rvm_with_one_extra_column(standardize, unit, weighted):
    """Targets and inputs have any unit, rows have weights, some zero, and come in more than one
    piece."""
    X, y = plane(100, d=2)
    X = 3 * X
    y = unit * y
    w = default_rng(1).choice([0.0, 0.5, 2.0], size=len(y)) if weighted else None
    model = RVMRegressor(
        gamma=0.3 if standardize else 0.05,
        standardize=standardize,
        reference="none",
        residual="none",
        random_state=0,
    )
    model.fit(X, y, sample_weight=w)
    tested = np.vstack([X[:5], default_rng(2).uniform(-12, 12, size=(300, 2))])
    rows = (X, y) if w is None else (X, y, w)
    mean, std = model.predict(tested, return_std=True, augment=rows)
    scaled = None if w is None else w / w[w > 0].mean()
    expected, deviation = dense(model, X, y, tested, scaled)
    assert_allclose(mean, expected, rtol=1e-8, atol=1e-8 * unit)
    assert_allclose(std, deviation, rtol=1e-8)
    assert_array_equal(model.predict(tested, augment=rows), mean)


@FAR
@pytest.mark.parametrize("standardize", [True, False])
def test_the_deviation_grows_away_from_the_data(standardize):
    """Far away it is √(σ² + var(t)), not √var(t); near the data both agree."""
    X, y = sinc(noise=0.1)
    y = 1000 * (y - y.mean())
    gamma = 3.0 if standardize else 0.1
    model = RVMRegressor(
        gamma=gamma, standardize=standardize, fit_intercept=False, random_state=0
    ).fit(X, y)
    among = np.linspace(-9, 9, 50)[:, None]
    beyond = np.array([[-60.0], [70.0]])
    noise = model.model_.predictive.noise_variance
    assert_allclose(model.predict(beyond, return_std=True)[1], y.std(), rtol=0.02)
    mean, std = model.predict(beyond, return_std=True, augment=(X, y))
    assert_allclose(std, np.sqrt(noise + y.var()), rtol=1e-9)
    assert_allclose(mean, model.predict(beyond), rtol=1e-9, atol=1e-6)
    plain, grown = (
        model.predict(among, return_std=True, augment=rows)[1] for rows in (None, (X, y))
    )
    assert (grown >= plain).all()
    assert (grown < 1.2 * plain).all()
    away = model.predict(10 + np.arange(12.0)[:, None], return_std=True, augment=(X, y))[1]
    assert (np.diff(away) > -1e-9 * away[1:]).all()


def test_augmenting_rows_may_have_any_form_and_order(tmp_path):
    """Reversed rows, DATA and Dask arrays give the same predictions up to rounding."""
    import dask.array as da

    X, y = plane(150, d=2)
    model = RVMRegressor(
        gamma=0.3, partition_size=20, max_rounds=1, random_state=0, strategy="working-set"
    ).fit(X, y)
    tested = plane(120, d=2, seed=4)[0]
    mean, std = model.predict(tested, return_std=True, augment=(X, y))
    ingest((X, y), tmp_path / "train.zarr", tile_rows=64)
    ingest(plane(120, d=2, seed=4), tmp_path / "test.zarr", tile_rows=50)
    arrays = da.from_array(X, chunks=(60, 2)), da.from_array(y, chunks=60)
    for again in ((X[::-1], y[::-1]), str(tmp_path / "train.zarr"), arrays):
        for rows in (tested, str(tmp_path / "test.zarr")):
            prediction = model.predict(rows, return_std=True, augment=again)
            assert_allclose(prediction, (mean, std), rtol=1e-10)


def test_the_first_of_several_kernels_is_augmented():
    """A model with wide and narrow functions gets a wide additional column."""
    X, y = plane(80, d=2)
    model = RVMRegressor(kernel=Several((Gaussian(0.3), Gaussian(4.0))), random_state=0).fit(X, y)
    tested = X[:20] + 1.5
    prediction = model.predict(tested, return_std=True, augment=(X, y))
    blocks = [model.model_.design.block(rows) for rows in (X, tested)]
    expected = dense(model, X, y, tested, blocks=blocks)
    assert_allclose(prediction, expected, rtol=1e-8)


def test_augmenting_a_constant_target_adds_no_variance():
    X = np.linspace(0, 1, 30)[:, None]
    with pytest.warns(match="constant"):
        model = RVMRegressor(gamma=1.0).fit(X, np.full(30, 7.0))
    mean, std = model.predict([[50.0]], return_std=True, augment=(X, np.full(30, 7.0)))
    assert mean == pytest.approx(7)
    assert std == pytest.approx(np.sqrt(model.noise_variance_))


@pytest.mark.filterwarnings("ignore::partirvm.errors.PartirvmWarning")
def test_augmenting_rows_that_differ_from_the_training_rows_are_refused():
    X, y = plane(60, d=2)
    model = RVMRegressor(gamma=0.3, random_state=0).fit(X, y)
    for again, error, message in [
        ((X[:-1], y[:-1]), DataError, "had 60 rows, but augment has 59 rows"),
        ((X[:, :1], y), ValueError, "1 feature"),
        ((X,), UsageError, r"augment has 1 parts: it must be \(X, y\)"),
        (X, DataError, "the data have no target"),
    ]:
        with pytest.raises(error, match=message):
            model.predict(X[:3], augment=again)
    with pytest.raises(
        ValueError, match=re.escape("X has 1 features, but RVMRegressor is expecting 2")
    ):
        model.predict(X[:3, :1], augment=(X, y))
