"""The two solvers of a dense fit; "auto" does not end lower than either."""

from dataclasses import replace

import naive
import numpy as np
import pytest
from by_default import some
from fits import assert_evidence, statistics_of
from numpy.random import default_rng
from numpy.testing import assert_allclose, assert_array_equal

from partirvm.core import SOLVERS, HyperState, StopRule, Termination, entry_precision, maximise
from partirvm.core.priors import Prior
from partirvm.core.solvers import JOINT, beside, improve, rejoined, screened, turns

RULE = StopRule(1e-7, 500, thin=True)


def bumps(seed, N=80, d=2):
    """Draw Gaussian columns about all rows, wide ones for odd seeds, and a noisy target."""
    rng = default_rng(seed)
    X = rng.normal(size=(N, d))
    t = np.sin(2 * X[:, 0]) + X[:, -1] ** 2 + 10 ** rng.uniform(-1.5, 0) * rng.normal(size=N)
    return naive.gaussian(X, X, 0.1 if seed % 2 else 1.0), t - t.mean()


def start_of(Phi, t):
    """Return a state of columns that have just entered, each at the α it would start with alone."""
    beta = 10 / t.var()
    statistics = statistics_of(Phi, t)
    s = beta * np.diagonal(statistics.gram)
    q = beta * statistics.projection[:, 0]
    begun = HyperState(statistics, entry_precision(s, q, s), beta, target_variance=float(t.var()))
    return replace(begun, entered=np.ones(len(s), bool))


@pytest.mark.parametrize("seed", some(range(4), {0}))
def test_auto_is_no_worse_than_either_solver(seed):
    """Its evidence is at least the fixed point's, and within 1e-3·N nats of that from single
    actions."""
    Phi, t = bumps(seed)
    start = start_of(Phi, t)
    ends = {solver: SOLVERS[solver](start, RULE) for solver in ("fixed-point", "fast", "auto")}
    assert {reason for _, reason in ends.values()} == {Termination.CONVERGED}
    fixed, fast, auto = (ends[solver][0] for solver in ("fixed-point", "fast", "auto"))
    assert auto.log_evidence >= fixed.log_evidence - RULE.tol * len(t)
    assert auto.log_evidence >= fast.log_evidence - 1e-3 * len(t)
    for fit in (fast, auto):
        assert_evidence(fit, Phi, t, atol=1e-4)
        assert (np.diff(fit.labels) > 0).all()
        assert fit.entered is None


def test_columns_that_gain_only_as_a_pair_are_added():
    """Columns a and b are nearly parallel, the target is along a − b: neither gains alone, both
    gain ½βtᵀt nats."""
    u, v, w = np.eye(6)[:3]
    gap = 0.05
    beta = 5e3
    Phi = np.column_stack([w, u + gap * v, u - gap * v])
    t = 3 * w + 2 * gap * v
    assert (beta * (Phi[:, 1:].T @ t) ** 2 < (Phi[:, 1:] ** 2).sum(axis=0)).all()
    whole = replace(start_of(Phi, t), beta=beta, fixed_noise=True)
    alone = replace(start_of(Phi[:, :1], t), beta=beta, fixed_noise=True)
    fit, _ = maximise(alone, RULE)
    same, _ = improve(fit, whole, RULE, lambda info: None)
    assert same.labels.tolist() == [0]
    found = turns(fit, whole, RULE, rejoined, lambda info: None)
    assert found.labels.tolist() == [0, 1, 2]
    assert found.log_evidence > fit.log_evidence + 0.25 * beta * (2 * gap) ** 2
    assert_evidence(found, Phi, t, rtol=1e-9)


def test_fixed_noise_is_unchanged_and_each_step_is_reported():
    start = replace(start_of(*bumps(1)), fixed_noise=True)
    heard = []
    fit, _ = SOLVERS["auto"](start, RULE, heard.append)
    alone = []
    SOLVERS["fixed-point"](start, RULE, alone.append)
    assert fit.beta == start.beta
    assert len(heard) > len(alone)
    assert {1 / info.noise_variance for info in heard} == {start.beta}


@pytest.mark.slow
def test_auto_reaches_the_best_of_several_starts():
    """For sinc with a wide kernel, the start α = 1/M² ends tens of nats above the usual one."""
    rng = default_rng(1)
    X = rng.uniform(-3, 3, (100, 1))
    t = np.sinc(X[:, 0]) + 0.038 * rng.normal(size=100)
    X = X / X.std()
    t = (t - t.mean()) / t.std()
    Phi = np.column_stack([np.ones(100), naive.gaussian(X, X, 0.209)])
    start = start_of(Phi, t)
    usual, _ = SOLVERS["fixed-point"](start, RULE)
    small, _ = SOLVERS["fixed-point"](replace(start, alpha=np.full(101, 1 / 101**2)), RULE)
    found, _ = SOLVERS["auto"](start, RULE)
    assert small.log_evidence > usual.log_evidence + 30
    assert found.log_evidence >= small.log_evidence - 1e-3 * len(t)
    assert_evidence(found, Phi, t, atol=1e-3)


def half_entered(seed, *, M=30):
    """Return columns at fixed α of which those after the first M have just entered."""
    Phi, t = bumps(seed)
    start = start_of(Phi, t)
    return Phi, t, replace(start, entered=start.labels >= M)


@pytest.mark.parametrize("offset", [0.0, 0.3])
def test_other_columns_act_as_noise_for_the_new_ones(offset):
    """With C = I/β + ΦA⁻¹Φᵀ of the other columns, the statistics are ΦᵀC⁻¹Φ, ΦᵀC⁻¹t and tᵀC⁻¹t."""
    Phi, t, state = half_entered(0)
    shift = np.where(state.entered, 0.0, offset)[:, None]
    begun = beside(replace(state, statistics=state.statistics.shift(shift)))
    C = naive.covariance(Phi[:, :30], state.alpha[:30], state.beta)
    new = Phi[:, 30:]
    assert_allclose(begun.statistics.gram, new.T @ np.linalg.solve(C, new), atol=1e-6)
    assert_allclose(begun.statistics.projection[:, 0], new.T @ np.linalg.solve(C, t), atol=1e-6)
    assert_allclose(begun.statistics.sum_squares, t @ np.linalg.solve(C, t), rtol=1e-8)
    other = replace(begun, alpha=7 * begun.alpha)
    whole = [
        naive.log_evidence(Phi, t, np.r_[state.alpha[:30], each.alpha], state.beta)
        for each in (begun, other)
    ]
    assert_allclose(other.log_evidence - begun.log_evidence, whole[1] - whole[0], atol=1e-6)


def test_a_column_that_fails_given_the_others_does_not_join():
    """Of three orthogonal columns, a is in, b gains ½βt² and begins at its entry α, and c with φᵀt
    = 0 fails."""
    Phi = np.eye(6)[:, :3]
    t = np.array([3.0, 3, 0, 0, 0, 0])
    state = replace(
        start_of(Phi, t), beta=4.0, fixed_noise=True, entered=np.array([False, True, True])
    )
    found = screened(state, RULE)
    assert found.labels.tolist() == [0, 1]
    assert found.alpha.tolist() == state.alpha[:2].tolist()
    assert found.beta == 4.0


def test_an_intermediate_fit_takes_few_iterations():
    """Only the last fit must converge."""
    Phi, t, state = half_entered(2)
    first, reason = SOLVERS["auto"](state, replace(RULE, vectors=1, thin=False))
    assert (first.iteration, reason) == (JOINT, Termination.HALVED)
    last, reason = SOLVERS["auto"](state, RULE)
    assert reason is Termination.CONVERGED
    assert_evidence(last, Phi, t, atol=1e-4)


def with_effects(N=48, n_groups=8):
    """Return the state of columns Φ and of columns Z of groups, whose weights have the prior
    variance 0.8, with noise of variance 0.05; then Φ, t and a root L of σ²I + τ²ZZᵀ."""
    Phi, t = bumps(0, N=N)
    Z = np.kron(np.eye(n_groups), np.ones((N // n_groups, 1)))
    t = t + Z @ default_rng(1).normal(size=n_groups)
    labels = np.concatenate([-2 - np.arange(n_groups), np.arange(N)])
    statistics = replace(statistics_of(np.hstack([Z, Phi]), t), labels=labels)
    prior = Prior(fixed=tuple((label, 1 / 0.8) for label in labels[:n_groups].tolist()))
    alpha = prior.fix(labels, np.ones(len(labels)))
    state = HyperState(
        statistics, alpha, 1 / 0.05, target_variance=1.0, fixed_noise=True, prior=prior
    )
    state = replace(state, entered=np.ones(len(labels), bool))
    return state, Phi, t, np.linalg.cholesky(0.05 * np.eye(N) + 0.8 * Z @ Z.T)


def test_columns_with_fixed_precisions_are_correlated_noise():
    """With effects Zu, u ~ N(0, τ²I), of groups, t = Φw + Zu + ε has the noise covariance LLᵀ. So
    the weights are those of L⁻¹t = L⁻¹Φw + white noise of variance 1."""
    state, Phi, t, L = with_effects()
    fit, _ = SOLVERS["fixed-point"](state, RULE)
    white = statistics_of(np.linalg.solve(L, Phi), np.linalg.solve(L, t))
    start = HyperState(white, np.ones(48), 1.0, target_variance=1.0, fixed_noise=True)
    expected, _ = SOLVERS["fixed-point"](start, RULE)
    assert_array_equal(fit.labels[8:], expected.labels)
    assert_allclose(fit.alpha[8:], expected.alpha, rtol=1e-3)
    assert_allclose(fit.posterior.mean[8:], expected.posterior.mean, rtol=1e-3, atol=1e-5)
    evidence = fit.log_evidence + np.log(np.diagonal(L)).sum()
    assert evidence == pytest.approx(expected.log_evidence, abs=1e-4)


def test_auto_keeps_fixed_precisions():
    """It ends no lower than the fixed point, at the evidence of its columns."""
    state, Phi, t, L = with_effects()
    fit, _ = SOLVERS["auto"](state, RULE)
    fixed, _ = SOLVERS["fixed-point"](state, RULE)
    assert_array_equal(fit.labels[:8], state.labels[:8])
    assert_array_equal(fit.alpha[:8], 1 / 0.8)
    assert fit.log_evidence >= fixed.log_evidence - RULE.tol * len(t)
    columns = np.linalg.solve(L, Phi[:, fit.labels[8:]])
    expected = naive.log_evidence(columns, np.linalg.solve(L, t), fit.alpha[8:], 1.0)
    assert fit.log_evidence + np.log(np.diagonal(L)).sum() == pytest.approx(expected, abs=1e-4)
