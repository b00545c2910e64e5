"""Updates of Tipping (2001) and the thresholds of Denœux's slides, against dense formulas and
SciPy's optimum."""

import dense_formulas
import numpy as np
import pytest
from by_default import some
from scipy.optimize import minimize
from sklearn.base import clone

from partirvm.core import GammaDensity, GramBlock, GramStatistics, Prior
from partirvm.errors import UsageError
from partirvm.kernels import Gaussian, Linear, LinearSpline
from partirvm.literature.dense import log_settled, maximise, started, statistics_of, update
from partirvm.literature.tipping import DenoeuxRegressor, TippingRegressor

PRIORS = [((0.0, 0.0), (0.0, 0.0)), ((1.5, 0.5), (2.0, 0.3))]
"""Flat priors, and Gamma priors with all of a, b, c, d positive."""


def state_of(seed, priors=PRIORS[0]):
    """Return the design, the target and the first state of a problem."""
    design, target = dense_formulas.problem(seed)
    state = started(statistics_of(np.arange(design.shape[1]), design, target))
    prior = Prior(GammaDensity(*priors[0]), GammaDensity(*priors[1]))
    return design, target, state.restarted(state.statistics, state.alpha, 1.3, prior=prior)


@pytest.mark.parametrize("seed", some(range(10), range(3)))
@pytest.mark.parametrize("priors", PRIORS)
def test_objective_is_the_dense_formula(seed, priors):
    design, target, state = state_of(seed, priors)
    theta = np.log(np.append(state.alpha, state.beta))
    expected = dense_formulas.objective(theta, design, target, *priors)
    assert state.log_evidence == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize("seed", some(range(10), range(3)))
@pytest.mark.parametrize("priors", PRIORS)
def test_updates_are_zeros_of_the_slopes(seed, priors):
    """½(γ − αμ²) + a − bα is the slope in log α; with γ and μ fixed, the next α is its zero. EM has
    the same zeros."""
    design, target, state = state_of(seed, priors)
    theta = np.log(np.append(state.alpha, state.beta))
    slopes = dense_formulas.differences(
        lambda point: dense_formulas.objective(point, design, target, *priors), theta
    )
    b = priors[0][1]
    d = priors[1][1]
    fit = state.posterior
    alpha, beta = update(state)
    factor = 0.5 * fit.mean**2 + b
    np.testing.assert_allclose(slopes[:-1], factor * (alpha - state.alpha), atol=1e-6)
    noise_factor = 0.5 * fit.residual + d
    assert slopes[-1] == pytest.approx(noise_factor * (beta - state.beta), abs=1e-6)
    alpha, beta = update(state, em=True)
    second = fit.mean**2 + fit.variance
    np.testing.assert_allclose(slopes[:-1], (0.5 * second + b) * (alpha - state.alpha), atol=1e-6)
    expected = fit.residual + fit.determinedness.sum() / state.beta
    assert slopes[-1] == pytest.approx((0.5 * expected + d) * (beta - state.beta), abs=1e-6)


@pytest.mark.parametrize("seed", some(range(10), range(2)))
@pytest.mark.parametrize("priors", PRIORS)
def test_both_updates_end_at_the_optimum_of_scipy(seed, priors):
    design, target, state = state_of(seed, priors)

    def negative(theta):
        return -dense_formulas.objective(theta, design, target, *priors)

    theta = np.log(np.append(state.alpha, state.beta))
    best = minimize(negative, theta, method="BFGS", options={"gtol": 1e-7})
    for em in (False, True):
        end, converged, _ = maximise(
            state,
            lambda fit, em=em: update(fit, em=em),
            log_settled(1e-9),
            alpha_max=1e9,
            max_iter=100_000,
        )
        assert converged
        assert end.log_evidence == pytest.approx(-best.fun, rel=1e-8)
        reached = np.log(np.append(end.alpha, end.beta))
        np.testing.assert_allclose(reached, best.x, atol=1e-4)


@pytest.mark.parametrize("seed", range(3))
def test_em_never_lowers_the_evidence(seed):
    """Also with columns without use, whose α EM raises for ever."""
    rng = np.random.default_rng(seed)
    design = rng.normal(size=(40, 8))
    target = 2 * design[:, 0] + rng.normal(size=40)
    state = started(statistics_of(np.arange(8), design, target))
    evidence = []
    for _ in range(200):
        evidence.append(state.log_evidence)
        alpha, beta = update(state, em=True)
        state = state.restarted(state.statistics, alpha, beta)
    assert np.diff(evidence).min() > -1e-9
    assert len(state.alpha) == 8


def test_em_reaches_mackays_optimum_of_sinc():
    """EM keeps more columns within its cap, but almost no evidence is left in them."""
    X = np.linspace(-10, 10, 30)[:, None]
    y = np.sinc(X[:, 0] / np.pi) + 0.1 * np.random.default_rng(0).standard_normal(30)
    mackay = TippingRegressor(Gaussian(0.1)).fit(X, y)
    em = TippingRegressor(Gaussian(0.1), updates="em", tol=1e-3).fit(X, y)
    assert mackay.converged_
    assert em.converged_
    assert em.n_iter_ > 3 * mackay.n_iter_
    assert em.n_relevance_vectors_ > mackay.n_relevance_vectors_
    assert em.log_evidence_ == pytest.approx(mackay.log_evidence_, abs=0.5)
    np.testing.assert_allclose(em.predict(X), mackay.predict(X), atol=0.05)


def test_positive_priors_keep_every_alpha_finite():
    """With a, b > 0, α has an upper mode: a column without use ends at a large, finite α."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 1))
    y = 3 * X[:, 0] + 0.1 * rng.normal(size=60)
    flat = TippingRegressor(Gaussian(1.0)).fit(X, y)
    proper = TippingRegressor(
        Gaussian(1.0), alpha_prior=(1e-4, 1e-4), noise_prior=(1e-4, 1e-4), max_iter=300
    ).fit(X, y)
    assert proper.n_relevance_vectors_ == 60
    assert flat.n_relevance_vectors_ < 60
    assert np.isfinite(proper.alpha_).all()


def test_prediction_is_eq_21_and_22():
    X = np.linspace(-3, 3, 20)[:, None]
    y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).standard_normal(20)
    model = TippingRegressor(Gaussian(0.5)).fit(X, y)
    new = np.array([[0.3], [5.0]])

    def design(rows):
        kernel = np.exp(-0.5 * (rows - model.relevance_vectors_.T) ** 2)
        bias = np.ones((len(rows), int(-1 in model.labels_)))
        return np.hstack([bias, kernel])

    precision = design(X).T @ design(X) / model.noise_variance_ + np.diag(model.alpha_)
    covariance = np.linalg.inv(precision)
    weights = covariance @ design(X).T @ y / model.noise_variance_
    mean, std = model.predict(new, return_std=True)
    np.testing.assert_allclose(mean, design(new) @ weights, rtol=1e-8)
    spread = np.einsum("nm,mk,nk->n", design(new), covariance, design(new))
    np.testing.assert_allclose(std, np.sqrt(model.noise_variance_ + spread), rtol=1e-8)


def test_sinc_of_tipping_in_order_of_magnitude():
    """§4.1 prints 9 vectors and a largest error of 0.0070 without noise, and 6 vectors and an RMS
    error of 0.0245 for one draw of the noise."""
    X = np.linspace(-10, 10, 100)[:, None]
    truth = np.sinc(X[:, 0] / np.pi)
    quiet = TippingRegressor(LinearSpline(), noise_variance=1e-4).fit(X, truth)
    assert 7 <= quiet.n_relevance_vectors_ <= 11
    grid = np.linspace(-10, 10, 1001)
    largest = np.abs(quiet.predict(grid[:, None]) - np.sinc(grid / np.pi)).max()
    assert 0.0035 < largest < 0.014
    noise = np.random.default_rng(2).uniform(-0.2, 0.2, 100)
    noisy = TippingRegressor(LinearSpline()).fit(X, truth + noise)
    assert 4 <= noisy.n_relevance_vectors_ <= 9
    assert 0.012 < np.sqrt(np.mean((noisy.predict(X) - truth) ** 2)) < 0.05
    assert noisy.noise_variance_**0.5 == pytest.approx(0.2 / 3**0.5, rel=0.2)


def test_thresholds_are_absolute():
    """One more update changes every α by less than ε_α and β by less than ε_β, in their own units;
    without thresholds, the first update that deletes no column ends a fit."""
    X = np.linspace(-3, 3, 40)[:, None]
    y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).standard_normal(40)
    model = DenoeuxRegressor(Gaussian(0.5), eps_alpha=1e-5, eps_beta=1e-4).fit(X, y)
    assert model.converged_
    design = np.exp(-0.5 * (X - model.relevance_vectors_.T) ** 2)
    beta = 1 / model.noise_variance_
    covariance = np.linalg.inv(beta * design.T @ design + np.diag(model.alpha_))
    mean = beta * covariance @ design.T @ y
    gamma = 1 - model.alpha_ * np.diag(covariance)
    assert np.abs(gamma / mean**2 - model.alpha_).max() < 1e-5
    residual = np.sum((y - design @ mean) ** 2)
    assert abs((len(y) - gamma.sum()) / residual - beta) < 1e-4
    loose = DenoeuxRegressor(Gaussian(0.5), eps_alpha=np.inf, eps_beta=np.inf, tau=np.inf)
    assert loose.fit(X, y).n_iter_ == 1
    assert not DenoeuxRegressor(Gaussian(0.5), max_iter=3).fit(X, y).converged_


MCYCLE_GRAM = [
    [
        14.8244167765129,
        8.55941236582759,
        5.01802274838896,
        5.75452896215626e-3,
        5.75452896215626e-3,
    ],
    [
        8.55941236582759,
        9.99542168675477,
        9.26500346643909,
        8.59667864443837e-2,
        8.59667864443837e-2,
    ],
    [5.01802274838896, 9.26500346643909, 11.2355304776595, 0.297011914601327, 0.297011914601327],
    [
        5.75452896215626e-3,
        8.59667864443837e-2,
        0.297011914601327,
        8.01831051963985,
        8.01831051963985,
    ],
    [
        5.75452896215626e-3,
        8.59667864443837e-2,
        0.297011914601327,
        8.01831051963985,
        8.01831051963985,
    ],
]
"""ΦᵀΦ of the columns exp(−0.1(x − z)²) over the 133 rows of MASS's mcycle, at the times z of rows 58,
64, 66, 94 and 95; the last two times are equal."""

MCYCLE_PROJECTION = [
    -1910.306147985914, -1591.518047700234, -1438.5114439943086, 338.73097118159694, 338.73097118159694,
]  # fmt: skip
"""Φᵀt: accelerations, neither centred nor scaled."""

MCYCLE_SQUARES = 395017.34
"""tᵀt."""


def test_kernlabs_fit_of_mcycle():
    """Slides 35 and 36 print variance 497.0264, training error 483.173922435 and weights −113.70005,
    38.65428, −109.91277, 22.32886, 22.32418. kernlab ends at a change of log α of 1e-3 and adds
    1e-6 to the diagonal of the kernel matrix, which parts the equal columns: five digits agree."""
    block = GramBlock(
        cross=np.zeros((0, 5)),
        gram=np.array(MCYCLE_GRAM),
        projection=np.array(MCYCLE_PROJECTION)[:, None],
        sum_squares=np.array([MCYCLE_SQUARES]),
        n=133,
        log_weight=0.0,
    )
    model = DenoeuxRegressor(eps_alpha=1e-9, eps_beta=1e-9)
    state, converged, _ = model._solve(GramStatistics.of(np.arange(5), block))
    assert converged
    assert 1 / state.beta == pytest.approx(497.0264, rel=1e-5)
    assert state.posterior.residual / 133 == pytest.approx(483.173922435, rel=1e-5)
    printed = [-113.70005, 38.65428, -109.91277, 22.32652, 22.32652]  # the last two: their mean
    np.testing.assert_allclose(state.posterior.mean, printed, rtol=5e-4)


def test_tau_prunes_and_nothing_else_does():
    """All α of the model are at most τ, and no column of a state below τ is lost."""
    X = np.linspace(-3, 3, 40)[:, None]
    y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).standard_normal(40)
    strict = DenoeuxRegressor(Gaussian(0.5), tau=1e3).fit(X, y)
    assert strict.alpha_.max() <= 1e3
    one_step = DenoeuxRegressor(Gaussian(0.5), tau=np.inf, max_iter=1).fit(X, y)
    assert one_step.n_relevance_vectors_ == 40


def test_unknown_updates():
    with pytest.raises(UsageError, match="newton"):
        TippingRegressor(updates="newton").fit(np.zeros((3, 1)), np.arange(3.0))


def test_clone_and_parameters():
    """Estimators are dataclasses: parameters are fields."""
    model = TippingRegressor(Linear(), updates="em", alpha_prior=(1e-4, 1e-4))
    copy = clone(model)
    assert copy.get_params(deep=False) == model.get_params(deep=False)
    assert copy is not model
