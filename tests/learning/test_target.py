"""Warped targets: maps and moments by their formulas, scores of log-normal predictions, fits."""

import numpy as np
import pytest
from naive import rmse
from numpy.random import default_rng
from numpy.testing import assert_allclose, assert_array_equal
from sampling import problem_of, sample_of
from scipy import stats

from partirvm import RVMClassifier, RVMRegressor, Warp, load_model, save_model
from partirvm.core import Scores
from partirvm.errors import DataError, UsageError
from partirvm.learning.target import evidence, warped
from partirvm.scaling import TargetMap

PLAIN = {"residual": "none", "noise": "constant", "reference": "none"}
MAPS = [TargetMap("log"), TargetMap("asinh", 1.0, 0.5)]


@pytest.mark.parametrize("target", MAPS)
def test_a_map_agrees_with_its_inverse_slope_and_moments(target):
    """The moments are computed by Gauss–Hermite quadrature."""
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


def test_scores_follow_from_the_log_normal_distribution():
    """The CRPS is E|X − t| − ½ E|X − X'|, computed over quantiles."""
    t = np.array([0.5, 3.0, 40.0])
    mean = np.array([0.0, 1.0, 2.0])
    variance = np.array([0.25, 1.0, 0.5])
    sd = np.sqrt(variance)
    found = Scores.of(t, mean, variance, target=TargetMap("log")).figures()
    lognormal = stats.lognorm(sd, scale=np.exp(mean))
    assert found["nlpd"] == pytest.approx(-lognormal.logpdf(t).mean())
    assert found["rmse"] == pytest.approx(rmse(t, lognormal.mean()))
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
    """Return log-normal targets of one input with errors of 30 %."""
    rng = default_rng(5)
    X = rng.uniform(-3, 3, size=(n, 1))
    return X, np.exp(2 + 1.5 * np.sin(X[:, 0]) + 0.3 * rng.normal(size=n))


def test_a_logarithmic_fit_equals_the_fit_to_log_y(tmp_path):
    """Its quantiles are exponentials; mean and deviation follow from the log-normal
    distribution."""
    (X, y) = prices()
    how = {**PLAIN, "gamma": 0.5, "random_state": 0}
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


def test_held_out_scores_are_in_the_targets_units():
    X, y = prices(200)
    fit = RVMRegressor(**PLAIN, gamma=0.5, warp=Warp(target="asinh"), random_state=0).fit(
        X[:150], y[:150], X_val=X[150:], y_val=y[150:]
    )
    expected = rmse(fit.predict(X[150:]), y[150:])
    assert fit.history_[-1]["held_out_rmse"] == pytest.approx(expected)


@pytest.mark.parametrize("kind", ["none", "log", "asinh"])
def test_evidences_of_maps_are_densities_in_the_units_of_the_target(kind):
    """With c times as large a unit, each of n densities is c times as large: n log c in nats."""
    X, y = prices(60)
    c = 1000.0

    def evidence_of(targets, unit):
        target = TargetMap(kind, 2.0 * unit, 3.0 * unit) if kind == "asinh" else TargetMap(kind)
        with sample_of(X, targets) as sample:
            problem = warped(problem_of(X, targets), target, targets[:, None], None)
            return evidence(sample, problem, np.arange(60))

    assert evidence_of(y / c, 1 / c) - evidence_of(y, 1.0) == pytest.approx(60 * np.log(c))


@pytest.mark.parametrize(("target", "found"), [(np.exp, "log"), (np.asarray, "none")])
def test_the_evidence_decides_whether_to_use_a_logarithm(target, found):
    """Errors in proportion to the target require one, constant errors do not."""
    X, y = prices()
    fit = RVMRegressor(gamma=0.5, warp=Warp(target="auto"), random_state=0).fit(
        X, target(np.log(y))
    )
    assert fit.model_.design.scaling.target.kind == found


def test_targets_that_cannot_be_warped_are_refused():
    """They are zero, classes, more than one, or have a given noise."""
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
