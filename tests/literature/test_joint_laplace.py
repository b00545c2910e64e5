"""Laplace's marginal likelihood against dense formulas, and its slopes against differences."""

import naive
import numpy as np
import pytest
from by_default import some
from scipy.optimize import minimize
from scipy.special import expit
from scipy.stats import multivariate_normal

from partirvm.literature.joint_laplace import LogisticErrors, NormalErrors, marginal

PROBLEMS = some(range(10), range(3))


def problem(seed):
    """A design (30, 6), α, a log precision, and targets of numbers and of two classes."""
    rng = np.random.default_rng(seed)
    Phi = rng.normal(size=(30, 6))
    f = Phi @ rng.normal(size=6)
    alpha = np.exp(rng.normal(size=6))
    codes = (rng.random(30) < expit(f)).astype(float)
    return Phi, alpha, 0.5 * rng.normal(), f + rng.normal(size=30), codes


def log_joint(w, Phi, alpha, codes):
    """ψ(w) of two classes, from the probabilities of the Bernoulli and normal distributions."""
    p = expit(Phi @ w)
    prior = -0.5 * np.sum(alpha * w**2) + 0.5 * np.sum(np.log(alpha / (2 * np.pi)))
    return np.sum(codes * np.log(p) + (1 - codes) * np.log(1 - p)) + prior


def naive_mode(Phi, alpha, codes):
    """SciPy's maximum of ψ, by trust regions with the exact Hessian."""

    def slope(w):
        return alpha * w - Phi.T @ (codes - expit(Phi @ w))

    def curvature(w):
        p = expit(Phi @ w)
        return Phi.T @ np.diag(p * (1 - p)) @ Phi + np.diag(alpha)

    best = minimize(
        lambda w: -log_joint(w, Phi, alpha, codes),
        np.zeros(len(alpha)),
        jac=slope,
        hess=curvature,
        method="trust-exact",
        options={"gtol": 1e-11},
    )
    return best.x, curvature(best.x)


@pytest.mark.parametrize("seed", PROBLEMS)
def test_normal_errors_have_the_exact_marginal_likelihood(seed):
    """That of N(0, σ²I + ΦA⁻¹Φᵀ) (Tipping 2001, eq. 15), and the mode is (A + τΦᵀΦ)⁻¹τΦᵀt."""
    Phi, alpha, log_tau, t, _ = problem(seed)
    result = marginal(Phi, alpha, NormalErrors(t), log_tau)
    C = np.exp(-log_tau) * np.eye(30) + Phi @ np.diag(1 / alpha) @ Phi.T
    expected = multivariate_normal(np.zeros(30), C).logpdf(t)
    assert result.log_evidence == pytest.approx(expected, rel=1e-8)
    assert result.log_evidence == pytest.approx(
        naive.log_evidence(Phi, t, alpha, np.exp(log_tau)), rel=1e-8
    )
    H = np.diag(alpha) + np.exp(log_tau) * Phi.T @ Phi
    mode = np.linalg.solve(H, np.exp(log_tau) * Phi.T @ t)
    np.testing.assert_allclose(result.weights, mode, rtol=1e-8)
    np.testing.assert_allclose(result.covariance, np.linalg.inv(H), rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("seed", PROBLEMS)
def test_classes_have_laplaces_approximation_at_scipys_mode(seed):
    """ψ(ŵ) + (M/2) log 2π − ½ log|H| (TMB paper, eq. 14)."""
    Phi, alpha, _, _, codes = problem(seed)
    result = marginal(Phi, alpha, LogisticErrors(codes))
    mode, H = naive_mode(Phi, alpha, codes)
    np.testing.assert_allclose(result.weights, mode, atol=1e-8)
    determinant = np.linalg.slogdet(H)[1]
    expected = log_joint(mode, Phi, alpha, codes) + 3 * np.log(2 * np.pi) - 0.5 * determinant
    assert result.log_evidence == pytest.approx(expected, rel=1e-8)
    np.testing.assert_allclose(result.covariance, np.linalg.inv(H), rtol=1e-7, atol=1e-9)


def difference(function, values, place):
    """Central difference of a function of an array, by one element."""
    step = np.zeros(values.shape)
    step[place] = 1e-5
    return (function(values + step) - function(values - step)) / 2e-5


@pytest.mark.parametrize("seed", PROBLEMS)
@pytest.mark.parametrize("classes", [False, True])
def test_slopes_are_differences_of_the_marginal_likelihood(seed, classes):
    """By log α, the elements of Φ, and log τ."""
    Phi, alpha, log_tau, t, codes = problem(seed)
    errors = LogisticErrors(codes) if classes else NormalErrors(t)
    result = marginal(Phi, alpha, errors, log_tau)

    def by_alpha(logs):
        return marginal(Phi, np.exp(logs), errors, log_tau).log_evidence

    def by_design(design):
        return marginal(design, alpha, errors, log_tau).log_evidence

    expected = [difference(by_alpha, np.log(alpha), i) for i in range(6)]
    np.testing.assert_allclose(result.by_log_alpha(), expected, rtol=1e-6, atol=1e-7)
    places = [(0, 0), (7, 3), (29, 5)]
    expected = [difference(by_design, Phi, place) for place in places]
    slopes = result.by_design()
    np.testing.assert_allclose([slopes[place] for place in places], expected, rtol=1e-6, atol=1e-7)
    if not classes:
        slope = difference(
            lambda log: marginal(Phi, alpha, errors, float(log)).log_evidence, np.array(log_tau), ()
        )
        assert result.by_log_precision() == pytest.approx(slope, rel=1e-6, abs=1e-7)
