"""Warped targets: maps and moments by their formulas, scores of log-normal predictions, and
fits."""

import numpy as np
import pytest
from numpy.random import default_rng
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from partirvm import RVMClassifier, RVMRegressor, Warp, load_model, save_model
from partirvm.core.scores import Scores
from partirvm.errors import DataError, UsageError
from partirvm.scaling.maps import TargetMap

MAPS = [TargetMap("log"), TargetMap("asinh", 1.0, 0.5)]


@pytest.mark.parametrize("target", MAPS)
def test_map_and_moments(target):
    """Back and forth; the slope is that of differences; the moments are those of Gauss–Hermite
    quadrature."""
    t = np.array([0.2, 1.0, 3.0, 50.0])
    assert_allclose(target.back(target(t)), t, rtol=1e-12)
    slope = (target(t * (1 + 1e-6)) - target(t * (1 - 1e-6))) / (2e-6 * t)
    assert_allclose(target.log_slope(t), np.log(slope), rtol=1e-6, atol=1e-8)
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    mean = np.array([-1.0, 0.5, 2.0])
    variance = np.array([0.01, 0.3, 1.0])
    values = target.back(mean[:, None] + np.sqrt(variance)[:, None] * nodes)
    first, second = (values**k @ weights / weights.sum() for k in (1, 2))
    assert_allclose(target.moments(mean, variance), [first, second - first**2], rtol=1e-8)


def test_scores_are_those_of_the_log_normal_distribution():
    """Its density, quantiles and mean from SciPy; the CRPS as E|X − t| − ½ E|X − X'| of its
    quantiles."""
    t = np.array([0.5, 3.0, 40.0])
    mean = np.array([0.0, 1.0, 2.0])
    variance = np.array([0.25, 1.0, 0.5])
    sd = np.sqrt(variance)
    found = Scores.of(t, mean, variance, target=TargetMap("log")).figures()
    lognormal = stats.lognorm(sd, scale=np.exp(mean))
    assert found["nlpd"] == pytest.approx(-lognormal.logpdf(t).mean())
    assert found["rmse"] == pytest.approx(np.sqrt(np.mean((t - lognormal.mean()) ** 2)))
    low = lognormal.ppf(0.025)
    high = lognormal.ppf(0.975)
    width = high - low + 40 * np.maximum(np.maximum(low - t, t - high), 0.0)
    assert found["interval_score_95"] == pytest.approx(width.mean())
    quantiles = stats.lognorm(sd[:, None], scale=np.exp(mean)[:, None]).ppf(
        (np.arange(4000) + 0.5) / 4000
    )
    gini = np.abs(quantiles[:, ::40, None] - quantiles[:, None, 20::40]).mean(axis=(1, 2))
    assert found["crps"] == pytest.approx(
        (np.abs(quantiles - t[:, None]).mean(axis=1) - gini / 2).mean(), rel=0.02
    )


def prices(n=150):
    """Log-normal targets of one input: errors of 30 % everywhere."""
    rng = default_rng(5)
    X = rng.uniform(-3, 3, size=(n, 1))
    return X, np.exp(2 + 1.5 * np.sin(X[:, 0]) + 0.3 * rng.normal(size=n))


def test_a_fit_of_the_logarithm(tmp_path):
    """It is the fit of log y: quantiles are exponentials of its quantiles, mean and sd those of the
    log-normal."""
    (X, y) = prices()
    how = {"gamma": 0.5, "random_state": 0}
    new = np.linspace(-2, 2, 7)[:, None]
    own = RVMRegressor(warp=Warp(target="log"), **how).fit(X, y)
    logs = RVMRegressor(**how).fit(X, np.log(y))
    assert_allclose(own.predict_interval(new), np.exp(logs.predict_interval(new)), rtol=1e-6)
    mean, sd = logs.predict(new, return_std=True)
    expected = stats.lognorm(sd, scale=np.exp(mean))
    assert_allclose(own.predict(new, return_std=True), [expected.mean(), expected.std()], rtol=1e-6)
    assert_allclose(own.predict(new), expected.mean(), rtol=1e-6)
    drawn = own.sample_y(new, 20_000, random_state=1, noise=True)
    assert_allclose(np.median(drawn, axis=1), np.exp(mean), rtol=0.03)
    assert any("log(y)" in note for note in own.plan_.notes)
    save_model(own, tmp_path / "model")
    assert_array_equal(load_model(tmp_path / "model").predict(new), own.predict(new))


def test_held_out_scores_are_in_the_units_of_the_target():
    """The history's held-out RMSE is that of predictions."""
    X, y = prices(200)
    fit = RVMRegressor(gamma=0.5, warp=Warp(target="asinh"), random_state=0).fit(
        X[:150], y[:150], X_val=X[150:], y_val=y[150:]
    )
    rmse = np.sqrt(np.mean((fit.predict(X[150:]) - y[150:]) ** 2))
    assert fit.history_[-1]["held_out_rmse"] == pytest.approx(rmse)


@pytest.mark.parametrize(("target", "found"), [(np.exp, "log"), (np.asarray, "none")])
def test_the_evidence_decides(target, found):
    """A target with errors in proportion is warped by its logarithm; one with equal errors is left
    as it is."""
    X, y = prices()
    fit = RVMRegressor(gamma=0.5, warp=Warp(target="auto"), random_state=0).fit(
        X, target(np.log(y))
    )
    assert fit.model_.design.scaling.target.kind == found


def test_what_cannot_be_warped():
    """Zero has no logarithm; classes, several targets and a given noise are fitted as they are."""
    X, y = prices(40)
    logs = Warp(target="log")
    with pytest.raises(DataError, match="no logarithm"):
        RVMRegressor(warp=logs).fit(X, y - y.min())
    for model, targets in (
        (RVMClassifier(warp=logs), y > 8),
        (RVMRegressor(warp=logs), np.column_stack([y, y])),
        (RVMRegressor(warp=logs, noise=0.1), y),
    ):
        with pytest.raises(UsageError, match="a warped target must be"):
            model.fit(X, targets)
    with pytest.raises(UsageError, match="warp_target='none'"):
        RVMRegressor(gamma=0.5, warp=logs).fit(X, y).predict(X, augment=(X, y))
