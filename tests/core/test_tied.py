"""The tied RVM against dense formulas: its updates' fixed point, and the slopes of its evidence by differences."""

from __future__ import annotations

from itertools import product

import naive
import numpy as np
import pytest

from partirvm.core.statistics import GramBlock, GramStatistics
from partirvm.core.tied import ALPHA_CEILING, NoiseBounds, Tied, slopes, updates
from partirvm.core.updates import ALPHA_FLOOR, NOISE_FLOOR
from partirvm.types import BIAS

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
    tied, found = updates(statistics, Tied(1.0, 1.0, 1.0), 500, NoiseBounds(float(t @ t / 40)))

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
    assert updates(statistics_of(Phi, t), Tied(1.0, 1.0, 4.0), 20, NoiseBounds(target_variance, 4.0))[0].beta == 4.0
    free = updates(statistics_of(Phi, t), Tied(1.0, 1.0, 4.0), 200, NoiseBounds(target_variance))[0].beta
    np.testing.assert_allclose(free, 1 / (NOISE_FLOOR * target_variance))


def test_alpha_keeps_within_bounds(rng):
    """Columns that explain nothing end at the ceiling, a target that is far too large at the floor."""
    Phi, t, _ = numbers(rng, False)
    noise = t - Phi @ np.linalg.lstsq(Phi, t, rcond=None)[0]
    for target, bound in ((noise, ALPHA_CEILING), (1e9 * t, ALPHA_FLOOR)):
        statistics = statistics_of(Phi, target)
        tied, _ = updates(statistics, Tied(1.0, 1.0, 1.0), 200, NoiseBounds(1.0, 1.0))
        np.testing.assert_allclose(tied.alpha, bound * np.diagonal(statistics.gram)[1:].max())
