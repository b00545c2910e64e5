"""Fits of several targets with shared vectors and α agree with dense formulas."""

import naive
import numpy as np
import pytest
from fits import statistics_of
from hypothesis import given
from hypothesis import strategies as st
from numpy.random import default_rng
from numpy.testing import assert_allclose

from partirvm.core import HyperState, priors
from partirvm.core.priors import optimum
from partirvm.core.updates import step

T = 3


@st.composite
def problems(draw):
    """Draw noise columns, some of which explain targets with different noise, any α, β and
    weights."""
    rng = default_rng(draw(st.integers(0, 2**32 - 1)))
    N = 50
    M = 6
    Phi = rng.normal(size=(N, M))
    truth = np.where(rng.random((M, T)) < 0.5, rng.normal(size=(M, T)), 0.0)
    t = Phi @ truth + np.array([0.1, 0.3, 1.0]) * rng.normal(size=(N, T))
    alpha = 10.0 ** rng.uniform(-2, 3, size=M)
    beta = 10.0 ** rng.uniform(-1, 2, size=T)
    w = draw(st.sampled_from([None, rng.choice([0.0, 1.0, 2.0], N, p=[0.1, 0.5, 0.4])]))
    return Phi, t, alpha, beta, w


def state_of(Phi, t, alpha, beta, w=None):
    return HyperState(statistics_of(Phi, t, w), alpha, beta, target_variance=t.var(axis=0))


def evidence(Phi, t, alpha, beta, w=None):
    """Return Σ_τ log N(t_τ | 0, C_τ) from dense matrices."""
    return sum(naive.log_evidence(Phi, t[:, k], alpha, beta[k], w) for k in range(T))


@given(problems())
def test_a_step_follows_the_formulas_for_shared_alpha(problem):
    """α_i = Σγ_i/Σμ_i² and β_τ = (N − Σγ_τ)/‖t_τ − Φμ_τ‖²; posteriors and the sum of evidences are
    checked too."""
    Phi, t, alpha, beta, w = problem
    start = state_of(Phi, t, alpha, beta, w)
    assert_allclose(start.posterior.log_evidence, evidence(Phi, t, alpha, beta, w), rtol=1e-9)
    state, _ = step(start)
    kept = state.labels
    weights = naive.ones(Phi, w)
    posteriors = [naive.posterior(Phi, t[:, k], alpha, beta[k], w) for k in range(T)]
    gamma = np.array([1 - alpha * np.diagonal(Sigma) for _, Sigma in posteriors])
    mu = np.array([mean for mean, _ in posteriors])
    assert_allclose(state.alpha, (gamma.sum(0) / (mu**2).sum(0))[kept], rtol=1e-7)
    freedom = (weights > 0).sum() - gamma.sum(axis=1)
    assert_allclose(state.beta, freedom / (weights @ (t - Phi @ mu.T) ** 2), rtol=1e-7)
    for k in range(T):
        mean, Sigma = naive.posterior(Phi[:, kept], t[:, k], state.alpha, state.beta[k], w)
        assert_allclose(state.posterior.mean[:, k], mean, rtol=1e-6, atol=1e-9)
        root = state.posterior.root()[k]
        assert_allclose(root @ root.T, Sigma, rtol=1e-6, atol=1e-9)


@given(problems())
def test_the_gain_of_a_candidate_is_the_rise_in_evidence(problem):
    """s and q of each target are computed densely, and the best α is found on a grid."""
    Phi, t, alpha, beta, w = problem
    fit = state_of(Phi[:, :5], t, alpha[:5], beta, w)
    whole = state_of(Phi, t, alpha, beta, w).statistics
    s, q = fit.factors(whole.gram[:5, 5:], np.diagonal(whole.gram)[5:], whole.projection[5:])
    expected = np.array(
        [
            naive.sparsity_quality(Phi[:, 5], Phi[:, :5], t[:, k], alpha[:5], beta[k], w)
            for k in range(T)
        ]
    )
    assert_allclose(s[0], expected[:, 0], rtol=1e-6)
    assert_allclose(q[0], expected[:, 1], rtol=1e-5, atol=1e-8)
    rise = evidence(Phi, t, alpha, beta, w) - evidence(Phi[:, :5], t, alpha[:5], beta, w)
    assert_allclose(priors.joint_contribution(s, q, alpha[5:])[0], rise, rtol=1e-5, atol=1e-7)
    grid = s.max() * np.geomspace(1e-9, 1e9, 20_001)
    best = max(0.0, priors.joint_contribution(s, q, grid).max())
    assert_allclose(optimum(s, q, joint=True)[1][0], best, rtol=1e-4, atol=1e-6)


def test_a_candidate_may_gain_although_the_sum_of_q2_is_below_the_sum_of_s():
    """Target 0 alone gains ½(100 − 1 − log 100) at α = 1/99; target 1 loses ½ log((α + 10³)/α)."""
    s = np.array([[1.0, 1000.0]])
    q = np.array([[10.0, 0.0]])
    alpha, gain = priors.joint_optimum(s, q)
    grid = np.geomspace(1e-6, 1e6, 200_001)
    values = 0.5 * (np.log(grid / (grid + 1)) + 100 / (grid + 1) + np.log(grid / (grid + 1000)))
    assert gain[0] == pytest.approx(values.max(), rel=1e-8)
    assert alpha[0] == pytest.approx(grid[values.argmax()], rel=1e-3)
    assert not priors.fails(s, q, alpha).any()
    assert priors.fails(s, q, np.array([1e6])).all()
