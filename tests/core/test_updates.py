"""Updates of α and β equal dense formulas: priors, pruning, gains, the end of a fit."""

from dataclasses import replace

import naive
import numpy as np
import pytest
from fits import assert_evidence, statistics_of
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.random import default_rng
from numpy.testing import assert_allclose, assert_array_equal

from partirvm.core import (
    FLAT,
    NOISE_FLOOR,
    GammaDensity,
    GramBlock,
    HyperState,
    LogisticBlock,
    Prior,
    StopRule,
    Termination,
    entry_precision,
    laplace,
    maximise,
    own_factors,
)
from partirvm.core.posterior import WEAK_CORRELATION
from partirvm.core.priors import JOINING, optimum
from partirvm.core.updates import FADED, noise_precision, step, thin, verdict
from partirvm.types import BIAS

seeds = st.integers(0, 2**32 - 1)


def prior_of(numbers, **others):
    a, b, c, d = numbers
    return Prior(GammaDensity(a, b), GammaDensity(c, d), **others)


def state_of(
    Phi, t, alpha, beta, w=None, *, fixed_noise=False, offset=None, labels=None, prior=FLAT
):
    """Return a fit of all columns at α and β."""
    return HyperState(
        statistics_of(Phi, t, w, labels, offset),
        alpha,
        beta,
        target_variance=float(t.var()),
        fixed_noise=fixed_noise,
        prior=prior,
    )


@st.composite
def problems(draw, least=1):
    """Draw noise columns, some of which explain the target, any α and β, and optional weights."""
    rng = default_rng(draw(seeds))
    M = draw(st.integers(least, 7))
    N = draw(st.integers(4 * M + 4, 60))
    Phi = rng.normal(size=(N, M))
    truth = np.where(rng.random(M) < 0.5, rng.normal(size=M), 0.0)
    t = Phi @ truth + 0.3 * rng.normal(size=N)
    alpha = 10.0 ** rng.uniform(-2, 3, size=M)
    beta = 10.0 ** rng.uniform(-1, 2)
    w = draw(st.sampled_from([None, rng.choice([0.0, 1.0, 2.0], N, p=[0.1, 0.5, 0.4])]))
    return Phi, t, alpha, beta, w


def total(Phi, t, alpha, beta, numbers, w=None):
    """Return log p(t | α, β) plus the log priors of α and β."""
    a, b, c, d = numbers
    return (
        naive.log_evidence(Phi, t, alpha, beta, w)
        + naive.log_prior(alpha, a, b).sum()
        + naive.log_prior(beta, c, d)
    )


PRIORS = [(0.0, 0.0, 0.0, 0.0), (2.0, 0.5, 3.0, 1.0), (0.0, 0.01, 0.0, 5.0), (0.5, 0.0, 4.0, 0.0)]
"""Shape and rate of the prior densities of α and β."""


@pytest.mark.parametrize("numbers", PRIORS)
@given(problems(), st.booleans(), st.booleans())
def test_a_step_is_mackays_update(numbers, problem, fixed_noise, with_offset):
    """α_i = γ_i/μ_i² and β = (N − Σγ)/‖t − Φμ‖² (eqs. 16 to 18); priors follow app. A."""
    Phi, t, alpha, beta, w = problem
    offset = np.linspace(-1, 1, len(alpha)) if with_offset else None
    start = state_of(
        Phi, t, alpha, beta, w, fixed_noise=fixed_noise, offset=offset, prior=prior_of(numbers)
    )
    counted = (*numbers[:2], 0.0, 0.0) if fixed_noise else numbers
    before = total(Phi, t, alpha, beta, counted, w)
    assert_allclose(start.log_evidence, before, rtol=1e-9, atol=1e-8)
    state, info = step(start)
    assume(info.pruned == 0)
    new_alpha, new_beta = naive.updates(Phi, t, alpha, beta, numbers, w)
    if fixed_noise:
        new_beta = beta
    assert_allclose(state.alpha, new_alpha, rtol=1e-7)
    assert_allclose(state.beta, new_beta, rtol=1e-8)
    assert_allclose(info.noise_variance, 1 / new_beta, rtol=1e-8)
    expected = total(Phi, t, new_alpha, new_beta, counted, w)
    assert_allclose(info.log_evidence, expected, rtol=1e-8, atol=1e-7)
    assert_allclose(info.change, expected - before, rtol=1e-6, atol=1e-6)
    assert_allclose(
        state.posterior.mean,
        naive.posterior(Phi, t, new_alpha, new_beta, w)[0],
        rtol=1e-7,
        atol=1e-9,
    )
    assert (state.iteration, info.iteration, info.n_vectors) == (1, 1, len(alpha))
    assert not state.floored


@given(problems(least=2))
def test_a_column_is_pruned_if_it_gains_nothing_and_is_undetermined(problem):
    """The conditions are q_i² ≤ s_i without it (Tipping & Faul 2003, eq. 20), and γ_i < FADED."""
    Phi, t, alpha, beta, w = problem
    M = len(alpha)
    gamma = naive.determinedness(Phi, t, alpha, beta, w)
    s = np.empty(M)
    q = np.empty(M)
    for i in range(M):
        rest = np.delete(np.arange(M), i)
        s[i], q[i] = naive.sparsity_quality(Phi[:, i], Phi[:, rest], t, alpha[rest], beta, w)
    assume((np.abs(q**2 / s - 1) > 1e-6).all())
    assume((np.abs(gamma / FADED - 1) > 1e-6).all())
    stays = np.flatnonzero(~((q**2 <= s) & (gamma < FADED)))
    state, info = step(state_of(Phi, t, alpha, beta, w, labels=np.arange(M) + BIAS))
    assert_array_equal(state.statistics.labels, stays + BIAS)
    assert info.pruned == M - len(stays)
    assert state.n_vectors == (stays > 0).sum(), "the bias is no vector"
    assert_allclose(state.alpha, naive.updates(Phi, t, alpha, beta, w=w)[0][stays], rtol=1e-6)


@pytest.mark.parametrize("copies", [2, 20, 100])
def test_similar_columns_are_not_all_pruned_at_once(rng, copies):
    """Each fails q² > s because of the others; a single one would keep the evidence."""
    column = rng.normal(size=80)
    Phi = column[:, None] + 1e-6 * rng.normal(size=(80, copies))
    t = 2 * column + 0.1 * rng.normal(size=80)
    state = state_of(Phi, t, np.full(copies, 0.1), 100.0, fixed_noise=True)
    s, q = own_factors(state.posterior, state.alpha)
    assert (q**2 <= s).all()
    for _ in range(100):
        state, _ = step(state)
    assert len(state.alpha) >= 1
    single = max(naive.log_evidence(Phi[:, [i]], t, np.array([0.25]), 100.0) for i in range(copies))
    assert state.posterior.log_evidence > single - 1


@pytest.mark.parametrize("known", [0.0, 0.3])
def test_noise_has_a_floor(rng, known):
    """σ² = NOISE_FLOOR × the target's mean square, or a known minimum noise, which is not
    reported."""
    Phi = rng.normal(size=(50, 3))
    t = Phi @ np.array([1.0, 2.0, -1.0])
    state = replace(state_of(Phi, t, np.ones(3), 10.0), least_noise=known)
    for _ in range(60):
        state, _ = step(state)
    assert state.floored == (not known)
    assert_allclose(1 / state.beta, known or NOISE_FLOOR * t.var(), rtol=1e-12)


def test_beta_is_positive_with_as_many_columns_as_rows():
    """N − Σγ counts as at least 1."""
    t = np.array([1.0, -1.0, 0.5, 0.2])
    state = state_of(np.eye(4), t, np.full(4, 1e-9), 1e3)
    beta, floored = noise_precision(state)
    assert floored
    assert beta == 1 / (NOISE_FLOOR * t.var())


@given(problems(least=2), st.data())
def test_the_gain_of_candidates_is_the_rise_in_evidence(problem, data):
    """It is ½[q²/s − 1 − log(q²/s)] at α = s²/(q² − s) (Tipping & Faul 2003); columns enter at
    JOINING times this α."""
    Phi, t, alpha, beta, w = problem
    M = data.draw(st.integers(0, len(alpha) - 1))
    offset = data.draw(st.sampled_from([None, np.linspace(-1, 1, M)]))
    state = state_of(Phi[:, :M], t, alpha[:M], beta, w, offset=offset)
    r = t if offset is None else t - Phi[:, :M] @ offset
    block = GramBlock.of(Phi[:, :M], Phi[:, M:], r[:, None], w)
    s, q = state.factors(block.cross, np.diagonal(block.gram), block.projection)
    best = entry_precision(s, q, beta * np.diagonal(block.gram)) / JOINING
    gains = optimum(s, q)[1]
    before = naive.log_evidence(Phi[:, :M], t, alpha[:M], beta, w)
    for i in range(len(s)):
        expected = naive.sparsity_quality(Phi[:, M + i], Phi[:, :M], t, alpha[:M], beta, w)
        assert_allclose([s[i], q[i]], expected, rtol=1e-7, atol=1e-7 * np.sqrt(expected[0]))
        if gains[i] == 0:
            assert q[i] ** 2 <= s[i]
            assert_allclose(best[i], s[i], rtol=1e-6)
            continue
        after = [
            naive.log_evidence(
                Phi[:, [*range(M), M + i]], t, np.append(alpha[:M], best[i] * factor), beta, w
            )
            for factor in (1.0, 0.9, 1.1)
        ]
        assert_allclose(gains[i], after[0] - before, rtol=1e-6, atol=1e-6)
        assert after[0] >= max(after[1:]) - 1e-9


@pytest.mark.parametrize(
    ("rule", "changes", "expected"),
    [
        (StopRule(1e-7, 500), {"change": 1.0, "pruned": 0}, None),
        (StopRule(1e-7, 500), {"change": 3.9e-6, "pruned": 0}, Termination.CONVERGED),
        (StopRule(1e-7, 500), {"change": -3.9e-6, "pruned": 0}, Termination.CONVERGED),
        (StopRule(1e-7, 500), {"change": 4.1e-6, "pruned": 0}, None),
        (StopRule(1e-7, 500), {"change": 0.0, "pruned": 1}, None),
        (StopRule(1e-7, 500, vectors=3), {"change": 1.0, "pruned": 0}, Termination.HALVED),
        (StopRule(1e-7, 500, vectors=2), {"change": 1.0, "pruned": 0}, None),
        (StopRule(1e-7, 1), {"change": 1.0, "pruned": 0}, Termination.ITERATIONS),
        (StopRule(1e-7, 500), {"change": 0.0, "pruned": 0, "noise": 1e-10}, Termination.CANCELLED),
        (
            StopRule(1e-7, 500, guard=False),
            {"change": 0.0, "pruned": 0, "noise": 1e-10},
            Termination.CONVERGED,
        ),
    ],
)
def test_a_fit_ends_for_each_reason(rng, rule, changes, expected):
    """N = 40, 3 vectors, 1 iteration: tol·N = 4e-6 nats. A cancelled residual ends only guarded
    fits."""
    noise = changes.get("noise", 0.1)
    Phi = rng.normal(size=(40, 3))
    t = Phi @ np.ones(3) + noise * rng.normal(size=40)
    state, info = step(state_of(Phi, t, np.ones(3), 1 / noise**2))
    info = replace(info, change=changes["change"], pruned=changes.get("pruned", 0))
    assert verdict(state, info, rule) is expected


def test_thinning_deletes_columns_that_do_not_fade(rng):
    """26 of 30 columns are noise; every remaining column gains at some α."""
    Phi = rng.normal(size=(200, 30))
    numbers = (0.0, 1e-3, 0.0, 0.0)
    t = Phi[:, [3, 8, 15, 22]] @ np.array([1.0, -2.0, 0.5, 1.5]) + 0.2 * rng.normal(size=200)
    state = state_of(Phi, t, np.ones(30), 10 / t.var(), prior=prior_of(numbers))
    state, reason = maximise(state, StopRule(1e-9, 3000))
    assert reason is Termination.CONVERGED
    assert {3, 8, 15, 22} <= set(state.labels.tolist())
    assert len(state.labels) <= 20
    s, q = own_factors(state.posterior, state.alpha)
    assert (q**2 > s).all()


def test_a_fixed_precision_and_its_column_are_unchanged(rng):
    """The bias explains nothing; steps, thinning and the prior ignore its precision."""
    Phi = np.hstack([np.ones((80, 1)), rng.normal(size=(80, 3))])
    t = Phi[:, 1] + 0.1 * rng.normal(size=80)
    t -= t.mean()
    prior = prior_of((0.0, 1e-3, 0.0, 0.0), fixed=((BIAS, 1e7),))
    state = state_of(
        Phi, t, np.ones(4), 10.0, fixed_noise=True, labels=np.arange(4) + BIAS, prior=prior
    )
    state, _ = maximise(state, StopRule(1e-9, 200, thin=True))
    assert state.labels[0] == BIAS
    assert state.alpha[0] == 1e7
    left = Phi[:, state.labels - BIAS]
    expected = (
        naive.log_evidence(left, t, state.alpha, 10.0)
        + naive.log_prior(state.alpha[1:], 0.0, 1e-3).sum()
    )
    assert_allclose(state.log_evidence, expected, rtol=1e-9)


def test_a_class_update_uses_priors_and_a_fixed_precision(rng):
    """α follows from the sums over outputs; the prior counts once per α."""
    C = 3
    M = 4
    a = 2.0
    b = 0.5
    roots = rng.normal(size=(C, 20, M))
    curvature = np.einsum("knm,knl->kml", roots, roots)
    weights = rng.normal(size=(M, C))
    alpha = rng.uniform(0.5, 2, M)
    block = LogisticBlock(-9.0, rng.normal(size=(M, C)), curvature, 20, 0)
    prior = prior_of((a, b, 0.0, 0.0), fixed=((BIAS, 3.0),))
    state = laplace.init(np.arange(M) + BIAS, alpha, weights, block, prior)
    alpha[0] = 3.0
    Sigma = [np.linalg.inv(curvature[k] + np.diag(alpha)) for k in range(C)]
    slope = block.gradient - alpha[:, None] * weights
    mu = np.stack([weights[:, k] + Sigma[k] @ slope[:, k] for k in range(C)], 1)
    spread = np.stack([np.diagonal(each) for each in Sigma], 1)
    expected = ((1 - alpha[:, None] * spread).sum(axis=1) + 2 * a) / ((mu**2).sum(axis=1) + 2 * b)
    expected[0] = 3.0
    assert_allclose(laplace.update(state).alpha, expected, rtol=1e-9)
    flat = laplace.init(state.labels, alpha, weights, block)
    expected = naive.log_prior(alpha[1:], a, b).sum()
    assert_allclose(state.log_evidence - flat.log_evidence, expected, rtol=1e-9)


def test_thinning_deletes_uncorrelated_columns_that_fail(rng):
    """Such columns fail q² > s and are nearly uncorrelated, and the evidence does not fall: one is
    deleted from each group of similar columns."""
    base = rng.normal(size=(80, 3))
    Phi = np.hstack(
        [base[:, [k]] + 1e-4 * rng.normal(size=(80, 6)) for k in range(3)]
        + [rng.normal(size=(80, 2))]
    )
    t = base @ [1.0, -2.0, 0.5] + 0.1 * rng.normal(size=80)
    state, _ = maximise(state_of(Phi, t, np.ones(20), 100.0), StopRule(1e-7, 300))
    labels = state.statistics.labels
    thinner = thin(state)
    gone = np.setdiff1d(labels, thinner.statistics.labels)
    assert 1 <= len(gone) < len(labels)
    Sigma = np.linalg.inv(state.beta * Phi[:, labels].T @ Phi[:, labels] + np.diag(state.alpha))
    s = 1 / np.diagonal(Sigma) - state.alpha
    q = state.posterior.mean / np.diagonal(Sigma)
    positions = np.flatnonzero(np.isin(labels, gone))
    assert (q[positions] ** 2 <= s[positions] * (1 + 1e-9)).all()
    sd = np.sqrt(np.diagonal(Sigma))
    correlation = np.abs(Sigma / np.outer(sd, sd))[np.ix_(positions, positions)]
    assert (correlation - np.eye(len(positions))).max() < WEAK_CORRELATION
    groups = gone[gone < 18] // 6
    assert len(set(groups)) == len(groups), "two near-copies went at once"
    assert thinner.log_evidence >= state.log_evidence - 1e-6
    for fit in (state, thinner):
        assert_evidence(fit, Phi, t, rtol=1e-9)
