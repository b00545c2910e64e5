"""The tied RVM against dense formulas: its updates' fixed point, and the slopes of its evidence by differences."""

from __future__ import annotations

from itertools import product

import naive
import numpy as np
import pytest

from partirvm.core import tied_laplace
from partirvm.core.link import LINKS
from partirvm.core.logistic import LogisticBlock
from partirvm.core.statistics import BIAS, GramBlock, GramStatistics
from partirvm.core.tied import ALPHA_CEILING, Noise, Tied, slopes, updates
from partirvm.core.updates import ALPHA_FLOOR, NOISE_FLOOR

LABELS = np.array([BIAS, 3, 1, 4, 0])
STEP = 1e-5


def numbers(rng, weighted):
    """Columns Φ (40, 5), the first of ones, a target with noise, and weights of which some are zero."""
    Phi = np.hstack([np.ones((40, 1)), rng.normal(size=(40, 4))])
    t = Phi @ rng.normal(size=5) + 0.5 * rng.normal(size=40)
    return Phi, t, rng.choice([0.0, 0.5, 2.0], size=40) if weighted else None


def statistics_of(Phi, t, w=None, labels=LABELS):
    block = GramBlock.of(np.zeros((len(Phi), 0)), Phi, t[:, None], w)
    return GramStatistics.empty("some").extend(labels, block, "some")


def differences(function, Phi, step=STEP):
    """∂ function / ∂Φ_nm by central differences, of every element."""
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
def test_slopes_are_those_of_the_dense_evidence(rng, weighted):
    """D_nm = ∂L/∂Φ_nm of eq. 15, at any α and β; a row of no weight has none."""
    Phi, t, w = numbers(rng, weighted)
    alpha, beta = np.exp(rng.normal(size=5)), 2.3
    mean, Sigma = naive.posterior(Phi, t, alpha, beta, w)
    found = slopes(Phi, t, mean, Sigma, beta, w)
    expected = differences(lambda moved: naive.log_evidence(moved, t, alpha, beta, w), Phi)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    if weighted:
        assert not found[w == 0].any()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("bias", [True, False])
def test_updates_come_to_rest_where_the_evidence_is_level(rng, weighted, bias):
    """At the fixed point the dense evidence has no slope in log α, in that of the bias, nor in log β."""
    Phi, t, w = numbers(rng, weighted)
    labels = LABELS if bias else np.arange(5)
    statistics = statistics_of(Phi, t, w, labels)
    tied, found = updates(statistics, Tied(1.0, 1.0, 1.0), 500, Noise(float(t @ t / 40)))

    def evidence(logs):
        alpha = np.where(labels == BIAS, np.exp(logs[1]), np.exp(logs[0]))
        return naive.log_evidence(Phi, t, alpha, np.exp(logs[2]), w)

    logs = np.log([tied.alpha, tied.leading, tied.beta])
    np.testing.assert_allclose(found.log_evidence, evidence(logs), rtol=1e-10)
    for move in STEP * np.eye(3):
        assert abs(evidence(logs + move) - evidence(logs - move)) / (2 * STEP) < 1e-4


def test_the_noise_is_fixed_or_held_to_its_floor(rng):
    """A σ² that was given stays; a target that the columns explain entirely stops at the floor."""
    Phi = numbers(rng, False)[0]
    t = Phi @ rng.normal(size=5)
    target_variance = float(t @ t / 40)
    assert updates(statistics_of(Phi, t), Tied(1.0, 1.0, 4.0), 20, Noise(target_variance, 4.0))[0].beta == 4.0
    free = updates(statistics_of(Phi, t), Tied(1.0, 1.0, 4.0), 200, Noise(target_variance))[0].beta
    np.testing.assert_allclose(free, 1 / (NOISE_FLOOR * target_variance))


def test_alpha_keeps_within_bounds(rng):
    """Columns that explain nothing end at the ceiling, a target that is far too large at the floor."""
    Phi, t, _ = numbers(rng, False)
    noise = t - Phi @ np.linalg.lstsq(Phi, t, rcond=None)[0]
    for target, bound in ((noise, ALPHA_CEILING), (1e9 * t, ALPHA_FLOOR)):
        statistics = statistics_of(Phi, target)
        tied, _ = updates(statistics, Tied(1.0, 1.0, 1.0), 200, Noise(1.0, 1.0))
        np.testing.assert_allclose(tied.alpha, bound * np.diagonal(statistics.gram)[1:].max())


def classes(rng, likelihood):
    """Columns Φ (20, 3), codes, α (3, C) shared by the kernel columns, and weights of rows."""
    K = 2 if likelihood == "bernoulli" else 3
    Phi = np.hstack([np.ones((20, 1)), rng.normal(size=(20, 2))])
    codes = (Phi @ rng.normal(size=(3, K)) + rng.gumbel(size=(20, K))).argmax(axis=1).astype(float)
    alpha = np.repeat([[0.3], [0.7], [0.7]], LINKS[likelihood].n_outputs(K), axis=1)
    return Phi, codes, alpha, rng.choice([0.0, 1.0, 2.0], size=20)


def laplace_slopes(likelihood, Phi, codes, alpha, w):
    """D at the mode by the program, and by differences of Laplace's evidence, whose mode is sought anew each time."""

    def evidence(moved):
        there = naive.mode(likelihood, moved, codes, alpha, w)
        return naive.laplace(likelihood, moved, codes, alpha, there, w)[1]

    mean = naive.mode(likelihood, Phi, codes, alpha, w)
    Sigma = naive.laplace(likelihood, Phi, codes, alpha, mean, w)[0]
    log_det_gradient = Phi.T @ tied_laplace.log_det_gradient(likelihood, Phi, mean, Sigma, w)
    shift = -0.5 * np.einsum("kij,jk->ik", Sigma, log_det_gradient)
    return tied_laplace.slopes(likelihood, Phi, codes, mean, Sigma, shift, w), differences(evidence, Phi, 1e-4)


@pytest.mark.parametrize("likelihood", ["bernoulli", "ovr"])
def test_slopes_of_classes_are_exact_where_outputs_are_apart(rng, likelihood):
    """With the mode's movement, of two classes and of each against the rest."""
    found, expected = laplace_slopes(likelihood, *classes(rng, likelihood))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_slopes_of_the_softmax_err_by_the_blocks_between_outputs(rng):
    """The mode moves as the blocks say: slopes point the right way, are a tenth too long at most here, and err less
    than if it stood still."""
    likelihood = "multinomial"
    Phi, codes, alpha, w = classes(rng, likelihood)
    found, expected = laplace_slopes(likelihood, Phi, codes, alpha, w)
    mean = naive.mode(likelihood, Phi, codes, alpha, w)
    Sigma = naive.laplace(likelihood, Phi, codes, alpha, mean, w)[0]
    still = tied_laplace.slopes(likelihood, Phi, codes, mean, Sigma, np.zeros_like(mean), w)
    size = np.linalg.norm(expected)
    assert (found * expected).sum() > 0.995 * np.linalg.norm(found) * size
    assert np.linalg.norm(found - expected) < 0.15 * size
    assert np.linalg.norm(found - expected) < np.linalg.norm(still - expected)


@pytest.mark.parametrize("likelihood", ["bernoulli", "ovr", "multinomial"])
def test_updates_of_classes_share_what_they_see(rng, likelihood):
    """α = Σγ/Σμ² over kernel columns and outputs, the bias apart, of the dense posterior at the mode."""
    Phi, codes, alpha, w = classes(rng, likelihood)
    labels = np.array([BIAS, 0, 1])
    mode = naive.mode(likelihood, Phi, codes, alpha, w)
    block = LogisticBlock.of(likelihood, Phi, codes, mode, w)
    before = Tied(0.7, 0.3)
    state = tied_laplace.begun(likelihood, labels, before, mode, block)
    tied, moved = tied_laplace.updates(state, before, 1)
    Sigma = naive.laplace(likelihood, Phi, codes, alpha, mode, w)[0]
    gamma = 1 - alpha * np.array([np.diagonal(each) for each in Sigma]).T
    np.testing.assert_allclose(tied.alpha, gamma[1:].sum() / (mode[1:] ** 2).sum(), rtol=1e-6)
    np.testing.assert_allclose(tied.leading, gamma[0].sum() / (mode[0] ** 2).sum(), rtol=1e-6)
    np.testing.assert_array_equal(moved.alpha[1:], np.full((2, mode.shape[1]), tied.alpha))
    H = block.curvature + np.array([np.diag(each) for each in moved.alpha.T])
    np.testing.assert_allclose(tied_laplace.covariances(moved), np.linalg.inv(H))
