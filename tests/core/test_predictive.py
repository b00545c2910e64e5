"""Wider predictions: information, movement of the mean, degrees of freedom, and RVM*."""

import naive
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import norm
from scipy.stats import t as student

from partirvm.core import GramBlock, quantile
from partirvm.core.predictive import REACH, augmentation, information, widened
from partirvm.errors import UsageError


def problem(rng, N=15, M=4):
    """Draw a design of noise with weights drawn from their prior: Φ, t, α, β."""
    Phi = rng.normal(size=(N, M))
    alpha = 10.0 ** rng.uniform(-1, 2, size=M)
    beta = 4.0
    t = Phi @ (rng.normal(size=M) / np.sqrt(alpha)) + rng.normal(size=N) / np.sqrt(beta)
    return Phi, t, alpha, beta


def directions(Phi, alpha, beta):
    """Return ∂K/∂log α_i = −φ_iφ_iᵀ/α_i and ∂K/∂log β = −I/β of K = I/β + ΦA⁻¹Φᵀ."""
    return [-np.outer(f, f) / a for f, a in zip(Phi.T, alpha, strict=True)] + [
        -np.eye(len(Phi)) / beta
    ]


def dense_information(Phi, alpha, beta):
    """Return ½ tr(K⁻¹ ∂_iK K⁻¹ ∂_jK)."""
    inverse = np.linalg.inv(naive.covariance(Phi, alpha, beta))
    moved = [inverse @ direction for direction in directions(Phi, alpha, beta)]
    return 0.5 * np.array([[np.trace(one @ other) for other in moved] for one in moved])


def mean_of(Phi, t, theta):
    """Return μ at θ = (log α, log β)."""
    return naive.posterior(Phi, t, np.exp(theta[:-1]), np.exp(theta[-1]))[0]


def test_information_equals_that_of_the_target_distribution(rng):
    """It is computed from Σ, α and N, and compared with the N × N covariance."""
    for M in (1, 4):
        Phi, t, alpha, beta = problem(rng, M=M)
        root = np.linalg.cholesky(naive.posterior(Phi, t, alpha, beta)[1])
        found = information(alpha, root, len(t))
        assert_allclose(found, dense_information(Phi, alpha, beta), atol=1e-10)


@pytest.mark.parametrize(("known_noise", "known"), [(False, ()), (True, ()), (False, (1, 2))])
def test_widened_covariance_and_degrees_of_freedom_follow_the_formulas(rng, known_noise, known):
    """It is Σ + J C Jᵀ over the unknown θ, with C = (information + 1/REACH²)⁻¹ and ν = 2/C_ββ."""
    Phi, t, alpha, beta = problem(rng)
    mean, Sigma = naive.posterior(Phi, t, alpha, beta)
    theta = np.log([*alpha, beta])
    free = np.setdiff1d(np.arange(5 - known_noise), known)
    J = (
        np.array(
            [
                mean_of(Phi, t, theta + e) - mean_of(Phi, t, theta - e)
                for e in 1e-5 * np.eye(5)[free]
            ]
        ).T
        / 2e-5
    )
    C = np.linalg.inv(
        dense_information(Phi, alpha, beta)[np.ix_(free, free)] + np.eye(len(free)) / REACH**2
    )
    root, freedom = widened(
        alpha, mean, np.linalg.cholesky(Sigma), len(t), known_noise=known_noise, known=known
    )
    assert_allclose(root @ root.T, Sigma + J @ C @ J.T, rtol=1e-6, atol=1e-10)
    assert freedom == (np.inf if known_noise else pytest.approx(2 / C[-1, -1]))
    root, _ = widened(
        alpha, mean, np.linalg.cholesky(Sigma), len(t), known_noise=True, known=range(4)
    )
    assert_allclose(root @ root.T, Sigma, rtol=1e-12)


def test_degrees_of_freedom_of_determined_weights_equal_linear_regression(rng):
    """ν = N − M to within 2/REACH², and ν is at least one."""
    Phi, t, _, beta = problem(rng, N=30, M=4)
    flat = np.full(4, 1e-8)
    mean, Sigma = naive.posterior(Phi, t, flat, beta)
    _, freedom = widened(flat, mean, np.linalg.cholesky(Sigma), 30, known_noise=False)
    assert freedom == pytest.approx(26 + 2 / REACH**2, rel=1e-6)
    _, freedom = widened(flat, mean, np.linalg.cholesky(Sigma), 4, known_noise=False)
    assert freedom == 1.0


def test_quantiles_are_normal_or_students_t():
    """A level outside (0, 1) is refused."""
    for level in (0.5, 0.95, 0.999):
        assert quantile(level) == pytest.approx(norm.ppf(0.5 + level / 2))
        assert quantile(level, 3.5) == pytest.approx(student.ppf(0.5 + level / 2, 3.5))
    for level in (0, 1, -0.5, 95):
        with pytest.raises(UsageError, match="between 0 and 1"):
            quantile(level)


def test_a_column_of_zeros_or_a_constant_target_adds_nothing():
    """A linear kernel at the origin has such a column."""
    extra = GramBlock(
        np.zeros((2, 3)), np.array([0.0, 1.0, 1.0]), np.ones((3, 1)), np.ones(1), 9, 0.0
    )
    for variance, expected in ((1.0, [False, True]), (0.0, [False, False])):
        found = augmentation(extra, np.eye(2), np.array([0.0, 1.0]), np.eye(2), 4.0, variance)
        assert [each.astype(bool).tolist() for each in found] == [expected, expected]
