"""Wider predictions and RVM*: information, movement of the mean, degrees of freedom, one column more, densely."""

from __future__ import annotations

import naive
import numpy as np
import pytest
from scipy.stats import norm
from scipy.stats import t as student

from partirvm.core.predictive import REACH, augmentation, information, quantile, widened
from partirvm.core.statistics import GramBlock
from partirvm.errors import UsageError


def problem(rng, N=15, M=4):
    """A design of noise with weights drawn from their prior: Φ, t, α, β."""
    Phi, alpha, beta = rng.normal(size=(N, M)), 10.0 ** rng.uniform(-1, 2, size=M), 4.0
    t = Phi @ (rng.normal(size=M) / np.sqrt(alpha)) + rng.normal(size=N) / np.sqrt(beta)
    return Phi, t, alpha, beta


def directions(Phi, alpha, beta):
    """∂K/∂log α_i = −φ_iφ_iᵀ/α_i and ∂K/∂log β = −I/β of K = I/β + ΦA⁻¹Φᵀ."""
    return [-np.outer(f, f) / a for f, a in zip(Phi.T, alpha, strict=True)] + [-np.eye(len(Phi)) / beta]


def dense_information(Phi, alpha, beta):
    """½ tr(K⁻¹ ∂_iK K⁻¹ ∂_jK)."""
    inverse = np.linalg.inv(naive.covariance(Phi, alpha, beta))
    moved = [inverse @ direction for direction in directions(Phi, alpha, beta)]
    return 0.5 * np.array([[np.trace(one @ other) for other in moved] for one in moved])


def mean_of(Phi, t, theta):
    """μ at θ = (log α, log β)."""
    return naive.posterior(Phi, t, np.exp(theta[:-1]), np.exp(theta[-1]))[0]


def test_information_is_that_of_the_targets_distribution(rng):
    """From Σ, α and N alone, as from the N × N covariance."""
    for M in (1, 4):
        Phi, t, alpha, beta = problem(rng, M=M)
        root = np.linalg.cholesky(naive.posterior(Phi, t, alpha, beta)[1])
        np.testing.assert_allclose(information(alpha, root, len(t)), dense_information(Phi, alpha, beta), atol=1e-10)


@pytest.mark.parametrize(("known_noise", "known"), [(False, ()), (True, ()), (False, (1, 2))])
def test_widened_covariance_and_freedom(rng, known_noise, known):
    """Σ + J C Jᵀ over θ that are not given, J by differences of μ and C = (information + 1/REACH²)⁻¹; ν = 2/C_ββ,
    infinite of known noise; with every α and the noise given Σ itself."""
    Phi, t, alpha, beta = problem(rng)
    mean, Sigma = naive.posterior(Phi, t, alpha, beta)
    theta, free = np.log([*alpha, beta]), np.setdiff1d(np.arange(5 - known_noise), known)
    J = np.array([mean_of(Phi, t, theta + e) - mean_of(Phi, t, theta - e) for e in 1e-5 * np.eye(5)[free]]).T / 2e-5
    C = np.linalg.inv(dense_information(Phi, alpha, beta)[np.ix_(free, free)] + np.eye(len(free)) / REACH**2)
    root, freedom = widened(alpha, mean, np.linalg.cholesky(Sigma), len(t), known_noise=known_noise, known=known)
    np.testing.assert_allclose(root @ root.T, Sigma + J @ C @ J.T, rtol=1e-6, atol=1e-10)
    assert freedom == (np.inf if known_noise else pytest.approx(2 / C[-1, -1]))
    root, _ = widened(alpha, mean, np.linalg.cholesky(Sigma), len(t), known_noise=True, known=range(4))
    np.testing.assert_allclose(root @ root.T, Sigma, rtol=1e-12)


def test_freedom_of_determined_weights_is_that_of_linear_regression(rng):
    """With hardly a prior ν = N − M, up to the prior on log β: 1/(1/(N − M) + … ) within 2/REACH²; at least one."""
    Phi, t, _, beta = problem(rng, N=30, M=4)
    flat = np.full(4, 1e-8)
    mean, Sigma = naive.posterior(Phi, t, flat, beta)
    _, freedom = widened(flat, mean, np.linalg.cholesky(Sigma), 30, known_noise=False)
    assert freedom == pytest.approx(26 + 2 / REACH**2, rel=1e-6)
    _, freedom = widened(flat, mean, np.linalg.cholesky(Sigma), 4, known_noise=False)
    assert freedom == 1.0


def test_quantiles():
    """Of a normal, and of Student's t; a level outside (0, 1) is refused."""
    for level in (0.5, 0.95, 0.999):
        assert quantile(level) == pytest.approx(norm.ppf(0.5 + level / 2))
        assert quantile(level, 3.5) == pytest.approx(student.ppf(0.5 + level / 2, 3.5))
    for level in (0, 1, -0.5, 95):
        with pytest.raises(UsageError, match="between 0 and 1"):
            quantile(level)


class Problem:
    """N rows of a narrow Gaussian kernel, M centres among them, G test rows among and beyond them."""

    def __init__(self, rng, *, weighted=False, height=1.0):
        X = rng.uniform(-3, 3, size=(60, 2))
        self.t = 2 * np.sin(X[:, 0]) + 0.2 * rng.normal(size=60)
        tested = np.vstack([rng.uniform(-3, 3, size=(20, 2)), X[:3], [[9.0, 9.0], [3.5, 0.0]]])
        self.Phi, self.rows = naive.gaussian(X, X[:12], 0.8), naive.gaussian(tested, X[:12], 0.8)
        self.extra, self.heights = height * naive.gaussian(X, tested, 0.8), np.full(len(tested), height)
        self.alpha, self.beta = rng.uniform(0.1, 3, size=12), 20.0
        self.w = rng.choice([0.0, 0.5, 2.0], size=60) if weighted else None
        self.variance = float(np.var(self.t))
        self.mean, self.Sigma = naive.posterior(self.Phi, self.t, self.alpha, self.beta, self.w)

    def statistics(self, some=slice(None)):
        """Of some of the rows, with a column more than there are test rows."""
        extra, w = np.column_stack([self.extra, self.extra[:, -1]]), None if self.w is None else self.w[some]
        residual = self.t - self.Phi @ self.mean
        return GramBlock.of(self.Phi[some], extra[some], residual[some, None], w, diagonal=True)

    def added(self, extra):
        root = np.linalg.cholesky(self.Sigma)
        return augmentation(extra, self.rows, self.heights, root, self.beta, self.variance)


@pytest.mark.parametrize("weighted", [False, True])
def test_an_augmented_prediction_is_that_of_a_dense_rvm_with_one_column_more(rng, weighted):
    """Mean and variance, of each test row by its own RVM with α† = 1/var(t); statistics of some rows add up."""
    p = Problem(rng, weighted=weighted)
    precision = np.full(len(p.heights), 1 / p.variance)
    mean, variance = naive.predict_augmented(p.rows, p.heights, p.extra, p.Phi, p.t, p.alpha, p.beta, precision, p.w)
    plain, spread = naive.predict(p.rows, p.Phi, p.t, p.alpha, p.beta, p.w)
    both = p.statistics(slice(0, 25)) + p.statistics(slice(25, None))
    shift, beyond = p.added(both)
    np.testing.assert_allclose(plain + shift, mean, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(spread + beyond, variance, rtol=1e-10)
    assert (beyond >= 0).all()


def test_nothing_is_added_where_nothing_can_be(rng):
    """A target without variance; a column of zeros, as a linear kernel has at the origin."""
    p = Problem(rng)
    p.variance = 0.0
    assert not np.any(p.added(p.statistics()))
    p.variance, p.heights[0], p.extra[:, 0] = 1.0, 0.0, 0.0
    shift, beyond = p.added(p.statistics())
    assert shift[0] == beyond[0] == 0
    assert (beyond[1:] > 0).all()
