"""Intervals and samples from the estimators equal dense formulas; guards against far too little
noise."""

from itertools import product

import dask.array as da
import naive
import numpy as np
import pytest
import zarr
from by_default import some
from numpy.testing import assert_allclose, assert_array_equal
from regressions import Dense, design_of, plane, sinc
from scipy.special import expit
from scipy.stats import norm
from scipy.stats import t as student

from partirvm import RVMClassifier, RVMRegressor
from partirvm.core import LeftOut
from partirvm.core.predictive import REACH
from partirvm.errors import OverconfidenceWarning, UsageError
from partirvm.model import load_model, save_model

pytestmark = pytest.mark.filterwarnings("ignore:.*far from every:partirvm.errors.DataWarning")


@pytest.fixture(scope="module")
def fitted():
    """Return a fit to sinc in unusual units."""
    X, y = sinc(60, 0.1)
    return RVMRegressor(gamma=2.0, random_state=0).fit(X, 100 + 30 * y), X, 100 + 30 * y


@pytest.mark.parametrize("kind", ["prediction", "credible"])
@pytest.mark.parametrize("level", [0.5, 0.95])
def test_ends_are_the_mean_and_a_quantile_times_the_deviation(fitted, kind, level):
    """Without hyperparameters they are μᵀφ ± z (σ² + φᵀΣφ)^½, or without σ², by the dense
    posterior."""
    model, X, y = fitted
    test = np.linspace(-12, 12, 30)[:, None]
    dense = Dense(model, X, y)
    mean, variance = naive.predict(design_of(model, test), *dense.problem)
    z = norm.ppf(0.5 + level / 2)
    half = z * dense.scale * np.sqrt(variance - (kind == "credible") / dense.beta)
    lower, upper = model.predict_interval(test, level, kind, hyperparameters=False)
    tolerance = 1e-6 * dense.scale
    assert_allclose(lower, dense.shift + dense.scale * mean - half, atol=tolerance)
    assert_allclose(upper, dense.shift + dense.scale * mean + half, atol=tolerance)


def test_hyperparameters_widen_intervals_by_the_formulas(fitted):
    """Σ + JCJᵀ, ν = 2/C_ββ and quantiles of left-out rows follow from N × N definitions."""
    model, X, y = fitted
    test = np.linspace(-12, 12, 30)[:, None]
    dense = Dense(model, X, y)
    alpha = dense.alpha
    mean, Sigma = naive.posterior(*dense.problem)
    inverse = np.linalg.inv(naive.covariance(dense.Phi, alpha, dense.beta))
    moved = [inverse @ np.outer(f, f) / a for f, a in zip(dense.Phi.T, alpha, strict=True)]
    moved.append(inverse / dense.beta)
    C = np.linalg.inv(
        0.5 * np.array([[np.trace(a @ b) for b in moved] for a in moved])
        + np.eye(len(moved)) / REACH**2
    )
    J = np.column_stack([-(Sigma * (alpha * mean)), Sigma @ (alpha * mean)])
    expected = left_out_of(model, X, dense).calibration(dense.beta, 1.0)
    rows = design_of(model, test)
    noise = model.model_.calibration.noise_variance
    assert noise == pytest.approx(expected.noise_variance, rel=1e-3)
    spread = np.einsum("nm,mk,nk->n", rows, Sigma + J @ C @ J.T, rows)
    for kind, noise, quantile in (
        ("prediction", expected.noise_variance, expected.multiple(0.95)),
        ("credible", 0.0, student.ppf(0.975, 2 / C[-1, -1])),
    ):
        half = quantile * dense.scale * np.sqrt(spread + noise)
        lower, upper = model.predict_interval(test, kind=kind)
        assert_allclose((upper - lower) / 2, half, rtol=1e-3)
        assert_allclose((upper + lower) / 2, model.predict(test), rtol=1e-10)


def test_noise_from_few_rows_includes_the_errors_of_kernel_learning(rng):
    """Rows left out of kernel learning have larger errors than rows left out of only the fit."""
    X = rng.normal(size=(80, 8))
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + rng.normal(size=80)
    model = RVMRegressor(random_state=0).fit(X, y)
    left_out_rmse = model.history_[0]["choice"]["left_out_rmse"]
    dense = Dense(model, X, y, model.model_.design.block(X))
    left_out = left_out_of(model, X, dense)
    _, variances = left_out.expected()
    expected = (left_out_rmse / dense.scale) ** 2 - variances.mean()
    assert expected > 1.05 * left_out.calibration(dense.beta, 1.0).noise_variance
    assert model.model_.calibration.noise_variance == pytest.approx(expected, rel=1e-3)


def left_out_of(model, X, dense):
    """Return the rows X left out of the dense fit one by one, each with the column centred
    there."""
    mean, Sigma = naive.posterior(*dense.problem)
    design = model.model_.design
    columns = []
    for place, centre in enumerate(design.centres):
        row = int(np.flatnonzero((centre == X).all(axis=1))[0])
        columns.append((row, np.array([design.n_leading + place])))
    root = np.linalg.cholesky(Sigma)
    return LeftOut.of(dense.Phi.copy(), dense.t, mean, root, dense.beta, None, columns)


def test_the_deviation_matches_the_interval(fitted):
    """Mean ± 1.645 sd is the 90 % interval; samples with noise have this deviation."""
    model, _, _ = fitted
    test = np.linspace(-12, 12, 30)[:, None]
    mean, sd = model.predict(test, return_std=True)
    lower, upper = model.predict_interval(test, 0.9)
    assert_allclose(upper - mean, norm.ppf(0.95) * sd, rtol=1e-9)
    assert_allclose(mean - lower, norm.ppf(0.95) * sd, rtol=1e-9)
    samples = model.sample_y(test, 4000, 0, noise=True)
    assert_allclose(samples.std(axis=1), sd, rtol=4 / np.sqrt(2 * 4000))
    assert sd.min() ** 2 > model.model_.calibration.scale**2 * model.noise_variance_


def test_intervals_with_known_noise_are_normal():
    """They are the mean ± z sd at every level, with the given noise."""
    X, y = sinc(60, 0.1)
    model = RVMRegressor(gamma=2.0, noise=0.01, random_state=0).fit(X, y)
    mean, sd = model.predict(X, return_std=True)
    for level in (0.5, 0.95):
        half = norm.ppf(0.5 + level / 2) * sd
        assert_allclose(
            model.predict_interval(X, level), [mean - half, mean + half], rtol=1e-9, atol=1e-12
        )


@pytest.mark.parametrize("form", ["list", "dask", "zarr"])
def test_intervals_and_samples_have_the_same_bits_for_every_kind_of_rows(fitted, form):
    model, X, _ = fitted
    rows = {
        "list": X.tolist(),
        "dask": da.from_array(X, chunks=17),
        "zarr": zarr.array(X, chunks=(17, 1)),
    }[form]
    assert_array_equal(model.predict_interval(rows), model.predict_interval(X))
    assert_array_equal(model.sample_y(rows, 3, 5), model.sample_y(X, 3, 5))


def test_samples_are_functions_from_the_posterior(fitted):
    """The mean and the covariance φᵀΣφ′ agree to 4 standard errors; equal rows have equal
    values."""
    model = fitted[0]
    test = np.array([[-9.0], [0.0], [0.4], [7.0], [0.0]])
    S = 4000
    m = model.model_
    samples = model.sample_y(test, S, 0)
    assert samples.shape == (5, S)
    assert_allclose(samples[1], samples[4], rtol=1e-12)
    rows = design_of(model, test)
    scale = m.design.scaling.t_scale[0]
    root = m.predictive.root
    covariance = scale**2 * rows @ root @ root.T @ rows.T
    deviation = np.sqrt(np.diagonal(covariance))
    assert (np.abs(samples.mean(axis=1) - model.predict(test)) < 4 * deviation / np.sqrt(S)).all()
    assert (
        np.abs(np.cov(samples) - covariance) < 4 * np.sqrt(2 / S) * np.outer(deviation, deviation)
    ).all()
    noisy = model.sample_y(test, S, 0, noise=True)
    assert_allclose(
        (noisy - samples).var(), m.predictive.noise_variance, rtol=4 * np.sqrt(2 / noisy.size)
    )
    assert model.sample_y(test).shape == (5, 1)
    assert_array_equal(model.sample_y(test), model.sample_y(test, 1, random_state=0))


def test_an_impossible_level_or_kind_of_interval_is_refused(fitted):
    model, X, _ = fitted
    with pytest.raises(UsageError, match="between 0 and 1"):
        model.predict_interval(X, 95)
    with pytest.raises(UsageError, match="'prediction' or 'credible'"):
        model.predict_interval(X, kind="confidence")


@pytest.mark.parametrize(
    ("likelihood", "K"),
    some(product(["auto", "multinomial"], [2, 3]), {("auto", 2), ("auto", 3)}),
)
def test_class_probability_bands_follow_the_formulas(K, likelihood, rng):
    """Each predictor has the band f ± z (φᵀΣφ)^½; a probability's band follows as its predictor
    runs through it."""
    X = rng.normal(size=(60, 2))
    y = np.digitize(X[:, 0] + 0.4 * rng.normal(size=60), [0.0, 0.8][: K - 1])
    model = RVMClassifier(gamma=0.5, likelihood=likelihood, random_state=0).fit(X, y)
    m = model.model_
    test = rng.normal(size=(20, 2))
    rows = design_of(model, test)
    f = rows @ m.mean
    half = norm.ppf(0.9) * np.sqrt(
        np.stack([((rows @ R) ** 2).sum(axis=1) for R in m.root], axis=1)
    )
    shape = (20,) if K == 2 else (20, K)
    if m.ramp is not None and m.ramp.correction is not None:
        f, ends = m.ramp.logits(f), m.ramp.band(f, half)
    else:
        f, *ends = (
            predictor if m.ramp is None else m.ramp.logits(predictor)
            for predictor in (f, f - half, f + half)
        )
    for end, expected in zip(model.predict_interval(test, 0.8), ends, strict=True):
        assert_allclose(end, expected.reshape(shape))
    lower, upper = model.predict_interval(test, 0.8, kind="probability")
    assert lower.shape == upper.shape == (20, K)
    if K == 2:
        assert_allclose(lower[:, 1], expit(f - half)[:, 0])
        assert_allclose(lower[:, 0], 1 - upper[:, 1])
        assert_allclose(upper[:, 1], expit(f + half)[:, 0])
    else:
        for k in range(K):
            others = np.exp(np.delete(f, k, axis=1)).sum(axis=1)
            for bounds, end in zip((lower, upper), ends, strict=True):
                odds = np.exp(end[:, k])
                assert_allclose(bounds[:, k], odds / (odds + others))
    assert_array_equal(
        model.predict_interval(da.from_array(test, chunks=7), 0.8, "probability")[0], lower
    )
    with pytest.raises(UsageError, match="'decision' or 'probability'"):
        model.predict_interval(test, kind="credible")


@pytest.mark.filterwarnings("ignore::partirvm.errors.NoiseFloorWarning")
@pytest.mark.filterwarnings("ignore:.*became vectors:partirvm.errors.DataWarning")
@pytest.mark.parametrize(
    ("strategy", "n"),
    some(product(["basic", "working-set"], [8, 20, 120]), {("basic", 20), ("working-set", 120)}),
)
def test_a_useless_kernel_warns_and_predicts_its_errors(n, strategy, rng, tmp_path):
    """A kernel that sees single rows interpolates them, but new rows have a reasonable density.

    It is at most 0.5 nats worse than N(ȳ, s²) (1 nat with 8 rows); without the guard 10⁴.
    """
    rows = rng.normal(size=(n + 500, 5)), rng.normal(size=n + 500)
    X, new_X = np.split(rows[0], [n])
    y, new_y = np.split(rows[1], [n])
    with pytest.warns(OverconfidenceWarning, match="lower gamma"):
        model = RVMRegressor(gamma=1e4, strategy=strategy, partition_size=60, random_state=0).fit(
            X, y
        )
    mean, std = model.predict(new_X, return_std=True)
    trivial = -norm(y.mean(), y.std()).logpdf(new_y).mean()
    assert -norm(mean, std).logpdf(new_y).mean() < trivial + (1.0 if n == 8 else 0.5)
    lower, upper = model.predict_interval(new_X)
    assert ((lower <= new_y) & (new_y <= upper)).mean() > (0.75 if n == 8 else 0.8)
    assert model.history_[-1]["overconfident"]
    assert model.history_[-1]["noise_variance"] == model.noise_variance_
    save_model(model.model_, str(tmp_path / "m"))
    again = load_model(str(tmp_path / "m"))
    assert (again.calibration, again.known_noise) == (model.model_.calibration, False)
    assert again.calibration.overconfident


def test_the_noise_of_a_good_fit_is_near_the_maximum_of_the_evidence():
    """σ² = ‖t − Φμ‖²/(N − Σγ) (Tipping 2001, eq. 18); left-out rows raise σ by at most a third."""
    X, y = plane(200, noise=0.2)
    model = RVMRegressor(gamma=0.2, random_state=0).fit(X, y)
    m = model.model_
    last = model.history_[-1]
    assert not last["overconfident"]
    assert 0.7 < last["overconfidence"] < 2
    determined = 1 - m.alpha * (m.root**2).sum(axis=1)
    residual = float(((y - model.predict(X)) ** 2).sum())
    assert_allclose(m.evidence_noise, residual / (200 - determined.sum()), rtol=1e-4)
    assert 0.9 < np.sqrt(model.noise_variance_) / 0.2 < 1.33
    variance = m.design.scaling.t_scale[0] ** 2 * m.calibration.noise_variance
    assert_allclose(model.noise_variance_, variance)
