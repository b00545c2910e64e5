"""The classical algorithm: α beyond a limit is pruned, and small changes of α and β end the fit (Denœux, p. 32)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from partirvm import FixedPoint, RVMRegressor
from partirvm.core.priors import FLAT, Prior
from partirvm.core.solvers import solve
from partirvm.core.statistics import GramBlock, GramStatistics
from partirvm.core.stopping import StopRule, Thresholds
from partirvm.core.termination import Termination
from partirvm.core.updates import init, maximise
from partirvm.strategies.problem import Options
from partirvm.strategies.rules import final_rule, intermediate_rule

ALPHA_TOL, BETA_TOL = 1e-2, 1e-3


def bumps(N=60, K=30):
    """Gaussian bumps on a line, and a noisy wave."""
    rng = np.random.default_rng(5)
    x, z = np.sort(rng.uniform(-5, 5, N)), np.linspace(-5, 5, K)
    return np.exp(-((x[:, None] - z) ** 2)), np.sin(x) + 0.2 * rng.normal(size=N)


def literal(Phi, t, alpha, beta, limit, *, em=False):
    """The loop of Denœux, p. 32, with dense inverses: labels, α, β and iterations."""
    labels, N = np.arange(Phi.shape[1]), len(t)
    for iteration in range(1, 5_000):
        Sigma = np.linalg.inv(beta * Phi.T @ Phi + np.diag(alpha))
        mean = beta * Sigma @ Phi.T @ t
        gamma = 1.0 - alpha * np.diag(Sigma)
        square = np.sum((t - Phi @ mean) ** 2)
        new = 1.0 / (mean**2 + np.diag(Sigma)) if em else gamma / mean**2
        after = N / (square + gamma.sum() / beta) if em else (N - gamma.sum()) / square
        still = np.max(np.abs(new - alpha)) < ALPHA_TOL and abs(after - beta) < BETA_TOL
        kept = new <= limit
        labels, alpha, beta, Phi = labels[kept], new[kept], after, Phi[:, kept]
        if still and kept.all():
            return labels, alpha, beta, iteration
    raise AssertionError("no end")


@pytest.mark.parametrize(("updates", "limit"), [("mackay", 1e5), ("em", 50.0)])
def test_a_fit_with_thresholds_is_the_literal_loop(updates, limit):
    """The same columns, α, β and number of iterations as the loop with dense inverses."""
    Phi, t = bumps()
    K, beta = Phi.shape[1], 10.0
    block = GramBlock.of(np.zeros((len(t), 0)), Phi, t[:, None])
    statistics = GramStatistics.empty("b").extend(np.arange(K), block, "b")
    prior = FLAT if updates == "mackay" else Prior(updates="em")
    state = init(statistics, np.ones(K), beta, target_variance=1.0, prior=prior)
    rule = StopRule(1e-7, 5_000, thin=True, thresholds=Thresholds(limit, ALPHA_TOL, BETA_TOL))
    found, reason = maximise(state, rule)
    labels, alpha, expected, iterations = literal(Phi, t, np.ones(K), beta, limit, em=updates == "em")
    assert reason is Termination.CONVERGED
    assert found.labels.tolist() == labels.tolist()
    np.testing.assert_allclose(found.alpha, alpha, rtol=1e-5)
    assert found.beta == pytest.approx(expected, rel=1e-8)
    assert found.iteration == iterations


def test_one_threshold_of_two_is_enough():
    """Without ``alpha_tol`` the change of β alone ends a fit, and the other way round."""
    X = np.linspace(-3, 3, 80)[:, None]
    y = np.sin(2 * X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=80)
    asked = {"strategy": "basic", "kernel": "gaussian", "gamma": 2.0, "noise": "constant"}
    noise = [
        RVMRegressor(solver=FixedPoint(**limits), **asked).fit(X, y).model_.evidence_noise
        for limits in ({"beta_tol": 1e9}, {"beta_tol": 1e-6}, {"alpha_tol": 1e9}, {})
    ]
    assert noise[0] == pytest.approx(noise[2], rel=1e-9), "both end after one iteration without a deletion"
    assert noise[1] == pytest.approx(noise[3], rel=1e-3)
    assert noise[0] != pytest.approx(noise[3], rel=1e-3)


def test_options_of_another_solver_have_no_effect():
    """Thresholds belong to "fixed-point" and a random order to "fast": other solvers ignore them."""
    asked = {"alpha_limit": 5.0, "alpha_tol": 1e9, "beta_tol": 1e9, "actions": "random", "seed": 3}
    for solver, thresholds, order in (("auto", Thresholds(), None), ("fast", Thresholds(), 3)):
        rule = final_rule(Options(10, "error", solver=solver, **asked))
        assert (rule.thresholds, rule.order) == (thresholds, order)
    rule = intermediate_rule(Options(10, "error", solver="fixed-point", **asked), 10)
    assert (rule.thresholds, rule.order, rule.vectors) == (Thresholds(5.0, 1e9, 1e9), None, 5)


def test_auto_keeps_columns_beyond_a_limit_out():
    """A fit by "auto" under a rule with a limit of α ends with every α below it."""
    Phi, t = bumps()
    block = GramBlock.of(np.zeros((len(t), 0)), Phi, t[:, None])
    statistics = GramStatistics.empty("b").extend(np.arange(Phi.shape[1]), block, "b")
    state = init(statistics, np.ones(Phi.shape[1]), 10.0, target_variance=1.0)
    state = replace(state, entered=np.ones(Phi.shape[1], bool))
    free, _ = solve(state, StopRule(1e-7, 500, thin=True), "auto")
    limit = 0.9 * float(free.alpha.max())
    found, _ = solve(state, StopRule(1e-7, 500, thin=True, thresholds=Thresholds(limit)), "auto")
    assert 0 < found.alpha.max() <= limit


def test_a_low_limit_leaves_fewer_vectors():
    """``alpha_limit`` prunes by α alone: a lower limit leaves no more vectors, each α at most the limit."""
    X = np.linspace(-3, 3, 80)[:, None]
    y = np.sin(2 * X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=80)
    asked = {"strategy": "basic", "kernel": "gaussian", "gamma": 2.0, "noise": "constant"}
    kept = []
    for limit in (1e2, 1e4, 1e6):
        model = RVMRegressor(solver=FixedPoint(alpha_limit=limit), **asked).fit(X, y)
        assert model.alpha_.max() <= limit
        kept.append(model.n_relevance_vectors_)
    assert kept == sorted(kept)
    assert kept[0] < kept[-1]
