"""Intervals and samples of the estimators, against dense formulas; fits that would state far too
little noise."""

import dask.array as da
import naive
import numpy as np
import pytest
import zarr
from regressions import design_of, plane, sinc
from scipy.special import expit
from scipy.stats import norm
from scipy.stats import t as student

from partirvm import RVMClassifier, RVMRegressor
from partirvm.core.left_out import LeftOut
from partirvm.core.predictive import REACH
from partirvm.errors import OverconfidenceWarning, UsageError
from partirvm.model import load_model, save_model

pytestmark = pytest.mark.filterwarnings("ignore:.*far from every:partirvm.errors.DataWarning")


@pytest.fixture(scope="module")
def fitted():
    """Sinc in odd units."""
    X, y = sinc(60, 0.1)
    return RVMRegressor(gamma=2.0, random_state=0).fit(X, 100 + 30 * y), X, 100 + 30 * y


@pytest.mark.parametrize("kind", ["prediction", "credible"])
@pytest.mark.parametrize("level", [0.5, 0.95])
def test_ends_are_the_mean_and_a_quantile_times_the_deviation(fitted, kind, level):
    """Without hyperparameters: μᵀφ ± z (σ² + φᵀΣφ)^½, or without σ², by the dense posterior."""
    model, X, y = fitted
    test = np.linspace(-12, 12, 30)[:, None]
    shift = model.model_.design.scaling.t_shift[0]
    scale = model.model_.design.scaling.t_scale[0]
    alpha = model.model_.alpha
    beta = scale**2 / model.model_.evidence_noise
    mean, variance = naive.predict(
        design_of(model, test), design_of(model, X), (y - shift) / scale, alpha, beta
    )
    half = norm.ppf(0.5 + level / 2) * scale * np.sqrt(variance - (kind == "credible") / beta)
    lower, upper = model.predict_interval(test, level, kind, hyperparameters=False)
    np.testing.assert_allclose(lower, shift + scale * mean - half, atol=1e-6 * scale)
    np.testing.assert_allclose(upper, shift + scale * mean + half, atol=1e-6 * scale)


def test_hyperparameters_widen_as_their_formulas_say(fitted):
    """Σ + JCJᵀ, ν = 2/C_ββ and quantiles of left-out rows, all from the N × N definitions."""
    model, X, y = fitted
    m = model.model_
    test = np.linspace(-12, 12, 30)[:, None]
    shift = m.design.scaling.t_shift[0]
    scale = m.design.scaling.t_scale[0]
    Phi = design_of(model, X)
    alpha = m.alpha
    beta = scale**2 / m.evidence_noise
    t = (y - shift) / scale
    mean, Sigma = naive.posterior(Phi, t, alpha, beta)
    inverse = np.linalg.inv(naive.covariance(Phi, alpha, beta))
    moved = [inverse @ np.outer(f, f) / a for f, a in zip(Phi.T, alpha, strict=True)] + [
        inverse / beta
    ]
    C = np.linalg.inv(
        0.5 * np.array([[np.trace(a @ b) for b in moved] for a in moved])
        + np.eye(len(moved)) / REACH**2
    )
    J = np.column_stack([-(Sigma * (alpha * mean)), Sigma @ (alpha * mean)])

    left = LeftOut.of(Phi.copy(), t, mean, np.linalg.cholesky(Sigma), beta, None, own_columns(m, X))
    found = left.calibration(beta, 1.0)
    rows = design_of(model, test)
    assert m.calibration.noise_variance == pytest.approx(found.noise_variance, rel=1e-3)
    spread = np.einsum("nm,mk,nk->n", rows, Sigma + J @ C @ J.T, rows)
    for kind, own, times in (
        ("prediction", found.noise_variance, found.multiple(0.95)),
        ("credible", 0.0, student.ppf(0.975, 2 / C[-1, -1])),
    ):
        half = times * scale * np.sqrt(spread + own)
        lower, upper = model.predict_interval(test, kind=kind)
        np.testing.assert_allclose((upper - lower) / 2, half, rtol=1e-3)
        np.testing.assert_allclose((upper + lower) / 2, model.predict(test), rtol=1e-10)


def test_noise_of_few_rows_counts_the_errors_of_kernel_learning(rng):
    """Rows left out of a fit alone have smaller errors than rows left out of kernel learning, too:
    these are stated."""
    X = rng.normal(size=(80, 8))
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + rng.normal(size=80)
    model = RVMRegressor(random_state=0).fit(X, y)
    m = model.model_
    least = model.history_[0]["choice"]["left_out_rmse"]
    scaling = m.design.scaling
    scale = scaling.t_scale[0]
    Phi = m.design.block(X)
    beta = scale**2 / m.evidence_noise
    t = (y - scaling.t_shift[0]) / scale
    mean, Sigma = naive.posterior(Phi, t, m.alpha, beta)
    left = LeftOut.of(Phi.copy(), t, mean, np.linalg.cholesky(Sigma), beta, None, own_columns(m, X))
    _, variances = left.expected()
    alone = left.calibration(beta, 1.0).noise_variance
    expected = (least / scale) ** 2 - variances.mean()
    assert expected > 1.05 * alone
    assert m.calibration.noise_variance == pytest.approx(expected, rel=1e-3)


def own_columns(m, X):
    """The rows of X that are centres of a model, each with its column."""
    rows = [int(np.flatnonzero((centre == X).all(axis=1))[0]) for centre in m.design.centres]
    return [(row, np.array([m.design.n_leading + place])) for place, row in enumerate(rows)]


def test_the_deviation_is_that_of_the_interval(fitted):
    """Mean ± 1.645 sd is the 90 % interval; noise and function add up to it, in samples too."""
    model, _, _ = fitted
    test = np.linspace(-12, 12, 30)[:, None]
    mean, sd = model.predict(test, return_std=True)
    lower, upper = model.predict_interval(test, 0.9)
    np.testing.assert_allclose(upper - mean, norm.ppf(0.95) * sd, rtol=1e-9)
    np.testing.assert_allclose(mean - lower, norm.ppf(0.95) * sd, rtol=1e-9)
    samples = model.sample_y(test, 4000, 0, noise=True)
    np.testing.assert_allclose(samples.std(axis=1), sd, rtol=4 / np.sqrt(2 * 4000))
    assert sd.min() ** 2 > model.model_.calibration.scale**2 * model.noise_variance_


def test_a_noise_that_is_known_keeps_the_gaussian():
    """Mean ± z sd at every level, with the noise that was given."""
    X, y = sinc(60, 0.1)
    model = RVMRegressor(gamma=2.0, noise=0.01, random_state=0).fit(X, y)
    mean, sd = model.predict(X, return_std=True)
    for level in (0.5, 0.95):
        half = norm.ppf(0.5 + level / 2) * sd
        np.testing.assert_allclose(
            model.predict_interval(X, level), [mean - half, mean + half], rtol=1e-9, atol=1e-12
        )


@pytest.mark.parametrize("form", ["list", "dask", "zarr"])
def test_tiles_give_the_same_bits(fitted, form):
    """X of every kind that predict takes, for intervals and for samples."""
    model, X, _ = fitted
    given = {
        "list": X.tolist(),
        "dask": da.from_array(X, chunks=17),
        "zarr": zarr.array(X, chunks=(17, 1)),
    }[form]
    np.testing.assert_array_equal(model.predict_interval(given), model.predict_interval(X))
    np.testing.assert_array_equal(model.sample_y(given, 3, 5), model.sample_y(X, 3, 5))


def test_samples_are_functions_of_the_posterior(fitted):
    """Mean, and covariance φᵀΣφ′ over rows with the Σ that is stated, to 4 s.e.; equal rows, equal
    values."""
    model = fitted[0]
    test = np.array([[-9.0], [0.0], [0.4], [7.0], [0.0]])
    S = 4000
    m = model.model_
    samples = model.sample_y(test, S, 0)
    assert samples.shape == (5, S)
    np.testing.assert_allclose(samples[1], samples[4], rtol=1e-12)
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
    np.testing.assert_allclose(
        (noisy - samples).var(), m.predictive.noise_variance, rtol=4 * np.sqrt(2 / noisy.size)
    )
    assert model.sample_y(test).shape == (5, 1)
    np.testing.assert_array_equal(model.sample_y(test), model.sample_y(test, 1, random_state=0))


def test_what_is_no_interval_is_refused(fitted):
    model, X, _ = fitted
    with pytest.raises(UsageError, match="between 0 and 1"):
        model.predict_interval(X, 95)
    with pytest.raises(UsageError, match="'prediction' or 'credible'"):
        model.predict_interval(X, kind="confidence")


@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("likelihood", ["auto", "multinomial"])
def test_bands_of_classes(K, likelihood, rng):
    """f ± z (φᵀΣφ)^½ of each linear predictor; the probability of a class as its predictor runs
    through its band."""
    X = rng.normal(size=(150, 2))
    y = np.digitize(X[:, 0] + 0.4 * rng.normal(size=150), [0.0, 0.8][: K - 1])
    model = RVMClassifier(gamma=0.5, likelihood=likelihood, random_state=0).fit(X, y)
    m = model.model_
    test = rng.normal(size=(20, 2))
    rows = design_of(model, test)
    f = rows @ m.mean
    half = norm.ppf(0.9) * np.sqrt(
        np.stack([((rows @ R) ** 2).sum(axis=1) for R in m.root], axis=1)
    )
    shape = (20,) if K == 2 else (20, K)
    f, *ends = (each if m.ramp is None else m.ramp.logits(each) for each in (f, f - half, f + half))
    for end, expected in zip(model.predict_interval(test, 0.8), ends, strict=True):
        np.testing.assert_allclose(end, expected.reshape(shape))
    lower, upper = model.predict_interval(test, 0.8, kind="probability")
    assert lower.shape == upper.shape == (20, K)
    if K == 2:
        np.testing.assert_allclose(lower[:, 1], expit(f - half)[:, 0])
        np.testing.assert_allclose(lower[:, 0], 1 - upper[:, 1])
        np.testing.assert_allclose(upper[:, 1], expit(f + half)[:, 0])
    else:
        for k in range(K):
            others = np.exp(np.delete(f, k, axis=1)).sum(axis=1)
            for found, end in zip((lower, upper), ends, strict=True):
                mine = np.exp(end[:, k])
                np.testing.assert_allclose(found[:, k], mine / (mine + others))
    np.testing.assert_array_equal(
        model.predict_interval(da.from_array(test, chunks=7), 0.8, "probability")[0], lower
    )
    with pytest.raises(UsageError, match="'decision' or 'probability'"):
        model.predict_interval(test, kind="credible")


@pytest.mark.filterwarnings("ignore::partirvm.errors.NoiseFloorWarning")
@pytest.mark.filterwarnings("ignore:.*became vectors:partirvm.errors.DataWarning")
@pytest.mark.parametrize("strategy", ["basic", "working-set"])
@pytest.mark.parametrize("n", [8, 20, 120])
def test_a_useless_kernel_states_its_errors(n, strategy, rng, tmp_path):
    """A kernel that sees single rows interpolates them at the noise floor: it warns, and new rows
    lie where it says.

    The density of new rows is no worse than that of a model which predicts the mean, N(ȳ, s²), by
    more than 0.5 nats, of 8 rows by 1; without the guard it is 10⁴ to 10⁸. The 95 % interval covers
    at least 80 %, of 8 rows 75.
    """
    rows = rng.normal(size=(n + 500, 5)), rng.normal(size=n + 500)
    (X, y), (new_X, new_y) = [
        (each[0], each[1]) for each in zip(*(np.split(part, [n]) for part in rows), strict=True)
    ]
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


def test_a_sound_fit_states_nearly_the_noise_of_maximum_evidence():
    """σ² = ‖t − Φμ‖²/(N − Σγ) (Tipping 2001, eq. 18) by the evidence; left-out rows raise its root
    by up to a third."""
    X, y = plane(200, noise=0.2)
    model = RVMRegressor(gamma=0.2, random_state=0).fit(X, y)
    m = model.model_
    last = model.history_[-1]
    assert not last["overconfident"]
    assert 0.7 < last["overconfidence"] < 2
    determined = 1 - m.alpha * (m.root**2).sum(axis=1)
    residual = float(((y - model.predict(X)) ** 2).sum())
    np.testing.assert_allclose(m.evidence_noise, residual / (200 - determined.sum()), rtol=1e-4)
    assert 0.9 < np.sqrt(model.noise_variance_) / 0.2 < 1.33
    variance = m.design.scaling.t_scale[0] ** 2 * m.calibration.noise_variance
    np.testing.assert_allclose(model.noise_variance_, variance)
