"""The tied RVM is compared with dense formulas: sums, an update, and the slopes of its evidence."""

from dataclasses import replace
from itertools import product

import naive
import numpy as np
import pytest
from fits import statistics_of
from numpy.random import default_rng
from numpy.testing import assert_allclose

from partirvm.core import ALPHA_FLOOR, NOISE_FLOOR, Tied
from partirvm.core.tied import ALPHA_CEILING, slopes, updates
from partirvm.errors import NumericalError
from partirvm.types import BIAS

LABELS = np.array([BIAS, 3, 1, 4, 0])


def numbers(rng, weighted):
    """Draw columns Φ (40, 5), the first of ones, a noisy target, and weights that may be zero."""
    Phi = np.hstack([np.ones((40, 1)), rng.normal(size=(40, 4))])
    t = Phi @ rng.normal(size=5) + 0.5 * rng.normal(size=40)
    return Phi, t, rng.choice([0.0, 0.5, 2.0], size=40) if weighted else None


def differences(function, Phi, step=1e-5):
    """Return ∂ function / ∂Φ_nm for every element, by central differences."""
    found = np.empty_like(Phi)
    for at in product(*map(range, Phi.shape)):
        sides = []
        for sign in (1, -1):
            moved = Phi.copy()
            moved[at] += sign * step
            sides.append(function(moved))
        found[at] = (sides[0] - sides[1]) / (2 * step)
    return found


@pytest.mark.parametrize("weighted", [False, True])
def test_slopes_equal_those_of_the_dense_evidence(rng, weighted):
    """D_nm = ∂L/∂Φ_nm of eq. 15 at any α and β; slopes are zero in a row without weight."""
    Phi, t, w = numbers(rng, weighted)
    alpha = np.exp(rng.normal(size=5))
    beta = 2.3
    mean, Sigma = naive.posterior(Phi, t, alpha, beta, w)
    found = slopes(Phi, t[:, None], mean[:, None], Sigma, beta, w)
    expected = differences(lambda moved: naive.log_evidence(moved, t, alpha, beta, w), Phi)
    assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    if weighted:
        assert not found[w == 0].any()


def test_noise_and_alpha_are_within_their_bounds(rng):
    """A given σ² is unchanged; without errors it is at its floor. α ends at its ceiling if columns
    explain nothing, at its floor if the target is huge."""
    Phi = numbers(rng, False)[0]
    t = Phi @ rng.normal(size=5)
    target_variance = float(t @ t / 40)
    statistics = statistics_of(Phi, t, labels=LABELS)
    start = Tied(1.0, 1.0, 4.0)
    assert updates(statistics, start, 20, target_variance, 4.0)[0].beta == 4.0
    free = updates(statistics, start, 200, target_variance, None)[0].beta
    assert_allclose(free, 1 / (NOISE_FLOOR * target_variance))
    drawn = t + rng.normal(size=40)
    noise = drawn - Phi @ np.linalg.lstsq(Phi, drawn, rcond=None)[0]
    for target, bound in ((noise, ALPHA_CEILING), (1e9 * t, ALPHA_FLOOR)):
        statistics = statistics_of(Phi, target, labels=LABELS)
        tied, _ = updates(statistics, Tied(1.0, 1.0, 1.0), 200, 1.0, 1.0)
        assert_allclose(tied.alpha, bound * np.diagonal(statistics.gram)[1:].max())


def random_statistics(K, J, T, rank=None):
    """Return a random design of K kernel columns and J leading ones in mixed order, a target, and
    statistics."""
    random = default_rng(0)
    Phi = random.normal(size=(60, K + J))
    t = random.normal(size=(60, T))
    if rank is not None:
        Phi = Phi[:, :rank] @ random.normal(size=(rank, K + J))
    labels = np.r_[-1 - np.arange(J), np.arange(K)]
    return Phi, t, statistics_of(Phi, t, labels=labels[random.permutation(K + J)])


def test_non_finite_statistics_are_refused():
    statistics = random_statistics(40, 1, 1, rank=10)[2]
    assert updates(statistics, Tied(1e-3, 1.0, 10.0), 1, 1.0)[1].determinedness.sum() < 12
    broken = replace(statistics, gram=np.full_like(statistics.gram, np.inf))
    with pytest.raises(NumericalError, match="not finite"):
        updates(broken, Tied(1.0, 1.0), 1, 1.0)


def test_slopes_are_as_precise_as_the_covariance(rng):
    Phi, t, w = numbers(rng, True)
    mean, Sigma = naive.posterior(Phi, t, np.ones(5), 2.3, w)
    double, single = (
        slopes(Phi, t[:, None], mean[:, None], S, 2.3, w) for S in (Sigma, Sigma.astype(np.float32))
    )
    assert single.dtype == np.float32
    assert_allclose(single, double, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("several", [False, True])
def test_an_update_follows_the_formulas(several):
    """α ← TΣγ/Σμ² and β ← (N − Σγ)T/residual, which T class indicators share."""
    T = 3 if several else 1
    Phi, t, statistics = random_statistics(3, 1, T)
    found, fit = updates(statistics, Tied(0.5, 2.0, 3.0), 1, None if several else 1.0)
    leading = statistics.labels < 0
    before = np.where(leading, 2.0, 0.5)
    mean, Sigma = naive.posterior(Phi, t, before, 3.0)
    gamma = 1 - before * np.diagonal(Sigma)
    for value, columns in ((found.leading, leading), (found.alpha, ~leading)):
        expected = T * gamma[columns].sum() / np.sum(mean[columns] ** 2)
        assert_allclose(value, expected, rtol=1e-9)
    residual = np.sum((t - Phi @ mean) ** 2)
    assert_allclose(found.beta, (60 - gamma.sum()) * T / residual, rtol=1e-9)
    alpha = np.where(leading, found.leading, found.alpha)
    evidence = sum(naive.log_evidence(Phi, target, alpha, found.beta) for target in t.T)
    assert fit.log_evidence == pytest.approx(evidence, rel=1e-9)
