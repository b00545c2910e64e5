"""The Laplace approximation's posterior, evidence, updates and factors equal dense formulas."""

import naive
import numpy as np
import pytest
from class_problems import problems, seeds
from hypothesis import assume, given
from numpy.random import default_rng
from numpy.testing import assert_allclose, assert_array_equal

from partirvm.core import LINKS, LogisticBlock, own_factors
from partirvm.core.laplace import init, update
from partirvm.core.newton import entry_factors
from partirvm.core.updates import FADED
from partirvm.types import BIAS


def state_of(likelihood, Phi, codes, alpha, mean, w=None, labels=None):
    """Return a fit of all columns at α (M, C), its statistic measured at weights ``mean``."""
    labels = np.arange(Phi.shape[1]) if labels is None else labels
    return init(labels, alpha[:, 0], mean, LogisticBlock.of(likelihood, Phi, codes, mean, w))


def working(likelihood, Phi, codes, mean, w, k):
    """Return informative rows, b (N,) and the response z = Φw + B⁻¹(t − y) (N,) of output k."""
    w = naive.ones(Phi, w)
    f = Phi @ mean
    y = (
        np.exp(f) / np.exp(f).sum(axis=1, keepdims=True)
        if likelihood.startswith("multinomial")
        else 1 / (1 + np.exp(-f))
    )
    t = codes == (1 if likelihood == "bernoulli" else k)
    b = (y * (1 - y))[:, k]
    return np.flatnonzero(w * b > 1e-8), w * b, f[:, k] + (t - y[:, k]) / b


@given(problems(), seeds)
def test_the_mean_follows_from_the_working_response(problem, seed):
    """μ_k = H_k⁻¹ΦᵀB_k z, the decrement is the remaining rise, and an update sets α = Σγ/Σμ²."""
    likelihood, Phi, codes, alpha, w = problem
    mean = 0.5 * default_rng(seed).normal(size=alpha.shape)
    state = state_of(likelihood, Phi, codes, alpha, mean, w)
    _, gradient, curvature = naive.logistic(likelihood, Phi, codes, mean, w)
    rise = 0.0
    for k in range(alpha.shape[1]):
        rows, b, z = working(likelihood, Phi, codes, mean, w, k)
        H = (Phi[rows].T * b[rows]) @ Phi[rows] + np.diag(alpha[:, k])
        assert_allclose(
            state.mean[:, k],
            np.linalg.solve(H, Phi[rows].T @ (b[rows] * z[rows])),
            rtol=1e-6,
            atol=1e-6,
        )
        slope = gradient[:, k] - alpha[:, k] * mean[:, k]
        rise += 0.5 * slope @ np.linalg.solve(curvature[:, k, :, k] + np.diag(alpha[:, k]), slope)
    assert_allclose(state.decrement, rise, rtol=1e-8)
    after = update(state)
    assume(np.isfinite(after.alpha).all() and len(after.labels) == len(alpha))
    Sigma, _ = naive.laplace(likelihood, Phi, codes, alpha, mean, w)
    expected = naive.laplace_mackay(likelihood, alpha, state.mean, Sigma)
    assert_allclose(after.alpha, expected[:, 0], rtol=1e-6)
    assert after.block is state.block
    assert_array_equal(after.weights, mean)


@given(problems(least=2))
def test_s_and_q_exclude_the_column(problem):
    """They follow from C of each output's working response (Tipping & Faul 2003, eqs. 19, 22); the
    pruned columns are compared too."""
    likelihood, Phi, codes, alpha, w = problem
    M, C = alpha.shape
    state = state_of(
        likelihood,
        Phi,
        codes,
        alpha,
        naive.mode(likelihood, Phi, codes, alpha, w),
        w,
        np.arange(M) + BIAS,
    )
    s = np.empty((M, C))
    q = np.empty((M, C))
    for i, k in np.ndindex(M, C):
        rows, b, z = working(likelihood, Phi, codes, state.weights, w, k)
        rest = np.delete(np.arange(M), i)
        s[i, k], q[i, k] = naive.sparsity_quality(
            Phi[rows, i], Phi[rows][:, rest], z[rows], alpha[rest, k], 1.0, b[rows]
        )
    found_s, found_q = own_factors(state, state.alpha)
    assert_allclose(found_s, s, rtol=1e-4, atol=1e-4)
    assert_allclose(found_q, q, rtol=1e-4, atol=1e-4)
    gamma, square, found_s = (x.mean(axis=1) for x in (state.determinedness, found_q**2, found_s))
    gone = (square <= found_s) & (gamma < FADED)
    after = update(state)
    assert_array_equal(after.labels, np.flatnonzero(~gone) + BIAS)
    assert after.n_vectors == (after.labels != BIAS).sum()


@given(problems(least=2), seeds)
def test_entry_factors_equal_those_of_absent_columns(problem, seed):
    """They follow from their definition with C, for any weights of the fit."""
    likelihood, Phi, codes, alpha, w = problem
    M = len(alpha) - 1
    mean = 0.3 * default_rng(seed).normal(size=alpha.shape)
    mean[M:] = 0
    state = state_of(likelihood, Phi[:, :M], codes, alpha[:M], mean[:M], w)
    s, q, precision = entry_factors(state, LogisticBlock.of(likelihood, Phi, codes, mean, w))
    for k in range(alpha.shape[1]):
        rows, b, z = working(likelihood, Phi, codes, mean, w, k)
        expected = naive.sparsity_quality(
            Phi[rows, M], Phi[rows, :M], z[rows], alpha[:M, k], 1.0, b[rows]
        )
        assert_allclose([s[0, k], q[0, k]], expected, rtol=1e-4, atol=1e-4)
        assert_allclose(precision[0, k], b[rows] @ Phi[rows, M] ** 2, rtol=1e-4, atol=1e-6)


def test_pruning_moves_the_quadratic_to_zero_weight(rng):
    """Value and slope follow from the quadratic about W with the pruned weight set to zero."""
    Phi = rng.normal(size=(80, 3))
    codes = (Phi[:, 0] + 0.5 * rng.normal(size=80) > 0).astype(float)
    mean = np.array([[1.0], [0.3], [-0.2]])
    state = state_of("bernoulli", Phi, codes, np.array([[1.0], [1e9], [1e9]]), mean)
    after = update(state)
    assert_array_equal(after.labels, [0])
    G = state.block.curvature[0]
    g = state.block.gradient[:, 0]
    step = np.array([0, -0.3, 0.2])
    value = state.block.log_likelihood + g @ step - 0.5 * step @ G @ step
    assert_allclose(after.block.log_likelihood, value, rtol=1e-12)
    assert_allclose(after.block.gradient[:, 0], (g - G @ step)[:1], rtol=1e-10)
    assert_array_equal(after.weights, mean[:1])


@pytest.mark.parametrize("likelihood", LINKS)
def test_all_columns_may_be_pruned(likelihood):
    """With columns of zeros, the evidence equals that of equal probabilities."""
    codes = np.array([0.0, 1.0, 0.0, 1.0])
    C = 1 if likelihood == "bernoulli" else 2
    state = update(state_of(likelihood, np.zeros((4, 2)), codes, np.ones((2, C)), np.zeros((2, C))))
    assert (len(state.labels), state.n_vectors, state.mean.shape) == (0, 0, (0, C))
    assert_allclose(state.log_evidence, -4 * np.log(2))
    assert update(state).log_evidence == state.log_evidence
