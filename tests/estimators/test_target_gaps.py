"""Several targets, of which some are missing in some rows, or constant."""

import pickle
import warnings
from itertools import product

import numpy as np
import pandas as pd
import pytest
from by_default import some
from numpy.random import default_rng
from numpy.testing import assert_allclose, assert_array_equal

from partirvm import RVMRegressor, save_model
from partirvm.errors import DataError, UsageError

N = 90
OPTIONS = {
    "gamma": 1.0,
    "effort": "quick",
    "reference": "none",
    "residual": "none",
    "random_state": 0,
}


def rows(n=N):
    rng = default_rng(0)
    X = rng.uniform(-2, 2, (n, 3))
    first = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1]
    t = np.column_stack([first, first + X[:, 2], 3.0 - first**2])
    return X, t + 0.1 * rng.standard_normal(t.shape)


def fitted(X, t, w=None, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a constant target is named in a warning
        return RVMRegressor(**{**OPTIONS, **options}).fit(X, t, w)


NEW = default_rng(1).uniform(-2, 2, (40, 3))


@pytest.mark.parametrize("weighted", some([False, True], {True}))
def test_each_group_of_targets_is_fitted_to_the_rows_that_have_it(weighted):
    """The first and last target have the same gaps and share a fit; the other one has its own."""
    X, t = rows()
    w = default_rng(2).choice([0.0, 1.0, 2.0], len(X)) if weighted else None
    t[::3, 1] = np.nan
    t[5:20, [0, 2]] = np.nan
    model = fitted(X, t, w)
    mean, std = model.predict(NEW, return_std=True)
    assert mean.shape == std.shape == (40, 3)
    for places in ([0, 2], [1]):
        has = ~np.isnan(t[:, places[0]])
        target = t[has][:, places]
        part = fitted(X[has], target, None if w is None else w[has])
        expected = part.predict(NEW, return_std=True)
        assert_array_equal(mean[:, places], expected[0].reshape(40, -1))
        assert_array_equal(std[:, places], expected[1].reshape(40, -1))
        assert_allclose(model.noise_variance_[places], part.noise_variance_)


@pytest.mark.slow
def test_disjoint_targets_have_no_row_in_common():
    X, t = rows(240)
    t[::2, :2] = np.nan
    t[1::2, 2] = np.nan
    complete = rows(240)[1]
    errors = fitted(X, complete).predict(NEW) - fitted(X, t).predict(NEW)
    assert (np.sqrt((errors**2).mean(axis=0)) < 0.4 * complete.std(axis=0)).all()


@pytest.mark.parametrize(("constant", "place"), some(product([2.0, 0.0, -1e9], [0, 1]), {(2.0, 1)}))
def test_a_constant_target_is_its_constant(constant, place):
    """The other targets are those of a fit without it."""
    X, t = rows()
    t = t[:, :2].copy()
    t[:, place] = constant
    mean, std = fitted(X, t).predict(NEW, return_std=True)
    assert_allclose(mean[:, place], constant, rtol=1e-9, atol=1e-12)
    assert np.isfinite(std).all()
    expected = fitted(X, t[:, 1 - place]).predict(NEW, return_std=True)
    assert_array_equal(mean[:, 1 - place], expected[0])
    assert_array_equal(std[:, 1 - place], expected[1])


def test_a_constant_target_with_gaps_among_targets_with_gaps():
    X, t = rows()
    t[::2, 0] = np.nan
    t[:, 1] = 7.0
    t[3:50, 1] = np.nan
    mean = fitted(X, t).predict(NEW)
    assert_allclose(mean[:, 1], 7.0)


@pytest.mark.usefixtures("default_fits")
def test_frames_gradients_intervals_and_pickles():
    X, t = rows(240)
    frame = pd.DataFrame(X, columns=list("abc"))
    t[::4, 0] = np.nan
    model = fitted(frame, t)
    new = pd.DataFrame(NEW, columns=list("abc"))
    again = pickle.loads(pickle.dumps(model))
    assert_array_equal(again.predict(new), model.predict(new))
    _, slopes = fitted(X, t, residual="none").predict(NEW, return_gradient=True)
    assert slopes.shape == (40, 3, 3)
    step = 1e-6 * np.eye(3)[1]
    flat = fitted(X, t, residual="none")
    difference = (flat.predict(NEW + step) - flat.predict(NEW - step)) / 2e-6
    assert_allclose(slopes[:, :, 1], difference, atol=1e-5)
    local = fitted(X, t, residual="local")
    lower, upper = local.predict_interval(NEW, 0.9)
    centre = local.predict(NEW)
    assert ((lower < centre) & (centre < upper)).all()


def test_held_out_rows_may_have_gaps_too():
    X, t = rows()
    t[::4, 0] = np.nan
    model = RVMRegressor(**OPTIONS | {"gamma": 0.2}).fit(X[:60], t[:60], X_val=X[60:], y_val=t[60:])
    errors = [np.max(line["held_out_rmse"]) for line in model.history_ if line["kind"] == "final"]
    assert len(errors) == 2
    assert np.isfinite(errors).all()


def test_what_several_fits_cannot_do_says_what_to_do(tmp_path):
    X, t = rows()
    t[::4, 0] = np.nan
    model = fitted(X, t)
    with pytest.raises(UsageError, match="save each of estimators_"):
        save_model(model, tmp_path / "model")
    save_model(model.estimators_[0], tmp_path / "first")
    for call in (lambda: model.prune(5), lambda: model.sample_y(NEW)):
        with pytest.raises(AttributeError, match="estimators_"):
            call()
    model.fit(X, rows()[1])
    assert not hasattr(model, "estimators_")
    assert model.weights_.shape[1] == 3


@pytest.mark.parametrize(
    ("t", "message"),
    [
        (np.where(np.arange(N) % 3 == 0, np.nan, 1.0), "Input y contains NaN"),
        (np.column_stack([np.arange(N), np.full(N, np.nan)]), "column 1 has no value"),
        (np.column_stack([np.arange(N), np.full(N, np.inf)]), "infinity"),
    ],
)
def test_other_gaps_are_refused(t, message):
    X, _ = rows()
    with pytest.raises(DataError, match=message):
        RVMRegressor(**OPTIONS).fit(X, t)


def test_an_update_takes_no_gaps():
    X, t = rows()
    t[::4, 0] = np.nan
    with pytest.raises(DataError, match="NaN"):
        RVMRegressor(**OPTIONS).partial_fit(X, t)
