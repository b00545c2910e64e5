"""Priors of α and β, EM, α that are fixed: updates, evidence and pruning against dense formulas."""

from __future__ import annotations

import naive
import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from partirvm.core import laplace
from partirvm.core.gains import evidence_gain
from partirvm.core.link import LogisticBlock
from partirvm.core.priors import GammaDensity, Prior
from partirvm.core.statistics import GramBlock, GramStatistics
from partirvm.core.termination import StopRule, Termination
from partirvm.core.updates import init, maximise, step
from partirvm.types import BIAS

seeds = st.integers(0, 2**32 - 1)
PRIORS = [(0.0, 0.0, 0.0, 0.0), (2.0, 0.5, 3.0, 1.0), (0.0, 0.01, 0.0, 5.0), (0.5, 0.0, 4.0, 0.0)]


def prior_of(numbers, **others):
    a, b, c, d = numbers
    return Prior(GammaDensity(a, b), GammaDensity(c, d), **others)


def started(Phi, t, alpha, beta, prior, w=None, *, labels=None, fixed_noise=False):
    labels = np.arange(Phi.shape[1]) if labels is None else labels
    block = GramBlock.of(np.zeros((len(t), 0)), Phi, t[:, None], w)
    statistics = GramStatistics.empty("b").extend(labels, block, "b")
    return init(statistics, alpha, beta, target_variance=float(t.var()), fixed_noise=fixed_noise, prior=prior)


def problem(seed, M=5, N=50):
    rng = np.random.default_rng(seed)
    Phi = rng.normal(size=(N, M))
    t = Phi @ rng.normal(size=M) + 0.3 * rng.normal(size=N)
    return Phi, t, 10.0 ** rng.uniform(-2, 1, size=M), 10.0 ** rng.uniform(-1, 1), rng.uniform(0.5, 2, N)


def total(Phi, t, alpha, beta, numbers, w=None):
    """log p(t | α, β) with the log priors of α and β."""
    a, b, c, d = numbers
    return naive.log_evidence(Phi, t, alpha, beta, w) + naive.log_prior(alpha, a, b).sum() + naive.log_prior(beta, c, d)


@given(seeds, st.sampled_from(PRIORS))
def test_a_step_is_the_papers_update(seed, numbers):
    """α, β and the evidence with priors, of one state, by MacKay and by EM (Tipping 2001, app. A)."""
    Phi, t, alpha, beta, w = problem(seed)
    state = started(Phi, t, alpha, beta, prior_of(numbers), w)
    np.testing.assert_allclose(state.log_evidence, total(Phi, t, alpha, beta, numbers, w), rtol=1e-9, atol=1e-8)
    state, info = step(state)
    assume(info.pruned == 0)
    expected = naive.updates(Phi, t, alpha, beta, numbers, "mackay", w)
    np.testing.assert_allclose(state.alpha, expected[0], rtol=1e-7)
    np.testing.assert_allclose(state.beta, expected[1], rtol=1e-8)
    np.testing.assert_allclose(info.log_evidence, total(Phi, t, *expected, numbers, w), rtol=1e-8, atol=1e-7)


@pytest.mark.parametrize("numbers", PRIORS)
def test_the_updates_end_at_stationary_points_of_the_sum(numbers):
    """Where MacKay's updates end, differences of the dense sum in each log α and log β vanish."""
    Phi, t, alpha, beta, w = problem(7)
    state = started(Phi, t, alpha, beta, prior_of(numbers), w)
    for _ in range(200):
        state, _ = step(state)
    found, h = np.append(state.alpha, state.beta), 1e-4
    left = Phi[:, state.labels]
    for i in range(len(found)):
        up, down = found.copy(), found.copy()
        up[i], down[i] = up[i] * np.exp(h), down[i] * np.exp(-h)
        rise = total(left, t, up[:-1], up[-1], numbers, w) - total(left, t, down[:-1], down[-1], numbers, w)
        assert abs(rise / (2 * h)) < 1e-4


@given(st.floats(-6, 6), st.floats(-4, 5), st.floats(-4, 1.5), st.floats(-10, 4))
@example(2.0, 3.0, 0.3, -10.0)
@example(4.0, 1.3, 1.0, -9.0)
def test_the_gain_of_a_column_is_the_largest_of_all_precisions(log_s, log_r, log_a, log_b):
    """ℓ(α) with the prior, by a fine grid of α; the peak has that value, and there is none where no α has any."""
    s, r = 10.0**log_s, 10.0**log_r
    a, b = (0.0 if log_a < -3.5 else 10.0**log_a), 10.0**log_b / s
    density, q = GammaDensity(a, b), np.sqrt(s * r)
    expected = naive.best_gain(s, q, a, b)
    gain = evidence_gain(np.array([s]), np.array([q]), density)[0]
    alpha = density.peak(np.array([s]), np.array([q**2]))[0]
    np.testing.assert_allclose(gain, expected, rtol=1e-4, atol=1e-6)
    assert density.worthless(np.array([s]), np.array([q**2]))[0] == (gain <= 0) == np.isinf(alpha)
    if gain > 0:
        there = 0.5 * (np.log(alpha / (alpha + s)) + q**2 / (alpha + s)) + naive.log_prior(alpha, a, b)
        np.testing.assert_allclose(there, gain, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("numbers", [(0.0, 1e-3, 0.0, 0.0)])
def test_columns_that_do_not_fade_are_thinned_out(rng, numbers):
    """26 of 30 columns are noise: those that matter stay, and no column is left whose loss would raise the sum."""
    Phi = rng.normal(size=(200, 30))
    t = Phi[:, [3, 8, 15, 22]] @ np.array([1.0, -2.0, 0.5, 1.5]) + 0.2 * rng.normal(size=200)
    state = started(Phi, t, np.ones(30), 10 / t.var(), prior_of(numbers))
    state, reason = maximise(state, StopRule(1e-9, 3000))
    assert reason is Termination.CONVERGED
    assert {3, 8, 15, 22} <= set(state.labels.tolist())
    assert len(state.labels) <= 20
    evidence = total(Phi[:, state.labels], t, state.alpha, state.beta, numbers)
    for i in range(len(state.labels)):
        rest = np.delete(np.arange(len(state.labels)), i)
        without = total(Phi[:, state.labels[rest]], t, state.alpha[rest], state.beta, numbers)
        assert without < evidence


def test_a_fixed_precision_stays_and_so_does_its_column(rng):
    """A bias that explains nothing keeps its α to the bit, through steps and thinning; the prior does not count it."""
    Phi = np.hstack([np.ones((80, 1)), rng.normal(size=(80, 3))])
    t = Phi[:, 1] + 0.1 * rng.normal(size=80)
    t -= t.mean()
    prior = prior_of((0.0, 1e-3, 0.0, 0.0), fixed=((BIAS, 1e7),))
    state = started(Phi, t, np.ones(4), 10.0, prior, labels=np.arange(4) + BIAS, fixed_noise=True)
    state, _ = maximise(state, StopRule(1e-9, 200, thin=True))
    assert state.labels[0] == BIAS
    assert state.alpha[0] == 1e7
    left = Phi[:, state.labels - BIAS]
    expected = naive.log_evidence(left, t, state.alpha, 10.0) + naive.log_prior(state.alpha[1:], 0.0, 1e-3).sum()
    np.testing.assert_allclose(state.log_evidence, expected, rtol=1e-9)


@pytest.mark.parametrize("likelihood", ["ovr", "multinomial"])
def test_an_update_of_classes(rng, likelihood):
    """α from each output's quadratic, or from the sums over outputs; the prior once per α; a fixed α stays."""
    C, M, (a, b) = 3, 4, (2.0, 0.5)
    roots = rng.normal(size=(C, 20, M))
    curvature = np.einsum("knm,knl->kml", roots, roots)
    weights, alpha = rng.normal(size=(M, C)), np.repeat(rng.uniform(0.5, 2, (M, 1)), C, axis=1)
    block = LogisticBlock(np.full(C if likelihood == "ovr" else 1, -9.0), rng.normal(size=(M, C)), curvature, 20, 0)
    prior = prior_of((a, b, 0.0, 0.0), fixed=((BIAS, 3.0),))
    state = laplace.init(likelihood, np.arange(M) + BIAS, alpha, weights, block, prior)
    alpha[0] = 3.0
    Sigma = [np.linalg.inv(curvature[k] + np.diag(alpha[:, k])) for k in range(C)]
    slope = block.gradient - alpha * weights
    mu = np.stack([weights[:, k] + Sigma[k] @ slope[:, k] for k in range(C)], 1)
    spread = np.stack([np.diagonal(each) for each in Sigma], 1)
    top, bottom = 1 - alpha * spread, mu**2
    if likelihood == "multinomial":
        top, bottom = (np.repeat(value.sum(axis=1, keepdims=True), C, axis=1) for value in (top, bottom))
    expected = (top + 2 * a) / (bottom + 2 * b)
    expected[0] = 3.0
    np.testing.assert_allclose(laplace.update(state).alpha, expected, rtol=1e-9)
    flat = laplace.init(likelihood, state.labels, alpha, weights, block)
    counted = alpha[1:] if likelihood == "ovr" else alpha[1:, 0]
    np.testing.assert_allclose(state.log_evidence - flat.log_evidence, naive.log_prior(counted, a, b).sum(), rtol=1e-9)
