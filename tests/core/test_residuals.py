"""Largest errors with ties, and scores against scipy's normal distribution."""

from __future__ import annotations

import itertools
from functools import reduce
from operator import add

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from partirvm.core.sampling import LargestErrors
from partirvm.core.scores import LEVELS, NORMAL, Scores
from partirvm.core.statistics import ResidualStatistics


@given(
    st.lists(st.integers(0, 2), max_size=40), st.integers(0, 12), st.lists(st.integers(0, 40), max_size=4), st.randoms()
)
@settings(max_examples=300)
def test_the_largest_errors_with_ties_by_row(errors, limit, cuts, random):
    """The first ``limit`` by (−error, row), for any split of the rows, any order of the parts, many equal errors."""
    n = len(errors)
    values, rows = np.array(errors, dtype=float), np.arange(n) + 100
    points = np.column_stack([rows, values])
    edges = [0, *sorted(min(cut, n) for cut in cuts), n]
    parts = [LargestErrors.of(values[a:b], rows[a:b], points[a:b], limit) for a, b in itertools.pairwise(edges)]
    random.shuffle(parts)
    found = reduce(add, parts)
    expected = sorted(range(n), key=lambda row: (-errors[row], row))[:limit]
    assert found.rows.tolist() == [row + 100 for row in expected]
    assert found.errors.tolist() == [errors[row] for row in expected]
    np.testing.assert_array_equal(found.values, points[expected])


def test_residual_statistics_add_up(rng):
    """Every field of the sum is the sum of the fields."""

    def part(seed):
        r = np.random.default_rng(seed).normal(size=(4, 2))
        largest = LargestErrors.of(np.abs(r[:, 0]), np.arange(4) + 4 * seed, r, 3)
        return ResidualStatistics(4, (r**2).sum(axis=0), r[:3], largest)

    a, b = part(1), part(2)
    total = a + b
    assert total.n == 8
    np.testing.assert_allclose(total.sum_squares, a.sum_squares + b.sum_squares)
    np.testing.assert_allclose(total.projection, a.projection + b.projection)
    errors = np.concatenate([a.largest.errors, b.largest.errors])
    np.testing.assert_allclose(total.largest.errors, np.sort(errors)[::-1][:3])


@given(st.integers(0, 2**32 - 1), st.integers(1, 50), st.integers(0, 50))
def test_scores_are_those_of_a_normal_prediction(seed, n, cut):
    """rmse, mean −log N(t | mean, variance), CRPS by its integral, interval score and coverage, by scipy.stats.norm."""
    rng = np.random.default_rng(seed)
    t, mean, variance = 5 + rng.normal(size=n), 5 + rng.normal(size=n), rng.uniform(0.1, 3.0, size=n)
    cut = min(cut, n)
    scores = Scores.of(t[:cut], mean[:cut], variance[:cut]) + Scores.of(t[cut:], mean[cut:], variance[cut:])
    predictive = norm(mean, np.sqrt(variance))
    low, high = predictive.interval(0.95)
    assert scores.n == n
    np.testing.assert_allclose(scores.rmse, np.sqrt(np.mean((t - mean) ** 2)), rtol=1e-12)
    np.testing.assert_allclose(scores.absolute, np.abs(t - mean).sum(), rtol=1e-12)
    np.testing.assert_allclose(scores.nlpd, -predictive.logpdf(t).mean(), rtol=1e-12)
    found = scores.figures()
    for level in LEVELS:
        ends = predictive.interval(level)
        assert found[f"coverage_{100 * level:.0f}"] == pytest.approx(np.mean((ends[0] <= t) & (t <= ends[1])))
    outside = np.maximum(low - t, 0) + np.maximum(t - high, 0)
    np.testing.assert_allclose(found["interval_score_95"], np.mean(high - low + 2 / 0.05 * outside), rtol=1e-9)
    grid = np.linspace(-20, 30, 20001)
    step = (norm.cdf(grid, mean[:, None], np.sqrt(variance)[:, None]) - (grid >= t[:, None])) ** 2
    np.testing.assert_allclose(found["crps"], np.mean(step.sum(axis=1)) * (grid[1] - grid[0]), atol=2e-3)


def test_intervals_may_have_other_multiples(rng):
    """Wider intervals cover more, and cost their width; the density stays the Gaussian's."""
    t, zero, one = rng.normal(size=200), np.zeros(200), np.ones(200)
    normal, wide = Scores.of(t, zero, one), Scores.of(t, zero, one, 1.0, [2 * each for each in NORMAL])
    assert wide.coverage == tuple(np.mean(np.abs(t) <= 2 * each) for each in NORMAL)
    assert wide.nlpd == normal.nlpd
    outside = np.maximum(np.abs(t) - 2 * NORMAL[3], 0)
    np.testing.assert_allclose(wide.interval_score / 200, np.mean(4 * NORMAL[3] + 2 / 0.05 * outside))
