"""EM and the classical thresholds: steps and fits beside loops with dense inverses (Denœux's slides, p. 32)."""

from __future__ import annotations

import numpy as np
import pytest

from partirvm import RVMRegressor
from partirvm.core.solvers import SOLVERS
from partirvm.core.statistics import GramBlock, GramStatistics
from partirvm.core.termination import StopRule, Termination
from partirvm.core.updates import HyperState
from partirvm.errors import UsageError
from partirvm.literature.classical import classical

ALPHA_TOL, BETA_TOL = 1e-2, 1e-3


def bumps(N=60, K=30):
    """Gaussian bumps on a line, and a noisy wave."""
    rng = np.random.default_rng(5)
    x, z = np.sort(rng.uniform(-5, 5, N)), np.linspace(-5, 5, K)
    return np.exp(-((x[:, None] - z) ** 2)), np.sin(x) + 0.2 * rng.normal(size=N)


def em():
    return classical("em", em=True)


def started(Phi, t, beta=10.0):
    K = Phi.shape[1]
    block = GramBlock.of(np.zeros((len(t), 0)), Phi, t[:, None])
    return HyperState(GramStatistics.of(np.arange(K), block), np.ones(K), beta, target_variance=1.0)


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


@pytest.mark.parametrize(("em", "limit"), [(False, 1e5), (True, 50.0)])
def test_a_fit_with_thresholds_is_the_literal_loop(em, limit):
    """The same columns, α, β and number of iterations as the loop with dense inverses."""
    Phi, t = bumps()
    name = classical("test", em=em, alpha_limit=limit, alpha_tol=ALPHA_TOL, beta_tol=BETA_TOL)
    found, reason = SOLVERS[name](started(Phi, t), StopRule(1e-7, 5_000, thin=True), lambda info: None)
    labels, alpha, expected, iterations = literal(Phi, t, np.ones(Phi.shape[1]), 10.0, limit, em=em)
    assert reason is Termination.CONVERGED
    assert (found.labels.tolist(), found.iteration) == (labels.tolist(), iterations)
    np.testing.assert_allclose(found.alpha, alpha, rtol=1e-6)
    assert found.beta == pytest.approx(expected, rel=1e-8)


def test_em_never_lowers_the_evidence_and_ends_where_mackay_does():
    Phi, t = bumps()
    seen = []
    found, reason = SOLVERS[em()](started(Phi, t), StopRule(1e-9, 5_000), seen.append)
    assert reason is Termination.CONVERGED
    assert min(info.change for info in seen if not info.pruned) > -1e-9 * len(t)
    other, _ = SOLVERS["fixed-point"](started(Phi, t), StopRule(1e-9, 5_000))
    assert found.log_evidence == pytest.approx(other.log_evidence, abs=1.0)
    assert len(seen) > 3 * other.iteration


def test_a_limit_prunes_by_alpha_alone():
    """A lower limit leaves no more vectors, each α at most the limit."""
    Phi, t = bumps(100)
    counts = []
    for limit in (1e2, 1e4, 1e9):
        found, _ = SOLVERS[classical("limit", alpha_limit=limit)](
            started(Phi, t), StopRule(1e-7, 500, thin=True), lambda info: None
        )
        assert found.alpha.max() <= limit
        counts.append(len(found.labels))
    assert counts == sorted(counts)
    assert counts[0] < counts[-1]


def test_from_the_estimator():
    X = np.linspace(-5, 5, 100)[:, None]
    y = np.sinc(X[:, 0]) + 0.05 * np.random.default_rng(0).normal(size=100)
    for solver in (em(), classical("tipping", alpha_limit=1e9, alpha_tol=1e-3, beta_tol=1e-3)):
        assert RVMRegressor(gamma=2.0, solver=solver).fit(X, y).score(X, y) > 0.95
    with pytest.raises(UsageError, match="single target"):
        RVMRegressor(gamma=2.0, solver=em()).fit(X, np.column_stack([y, -y]))
