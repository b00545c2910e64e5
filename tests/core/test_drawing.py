"""Draws follow their chances, and know nothing of tiles."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, chisquare, kstest

from partirvm.core.sampling import drawn, uniform

DRAWS = 4_000


def samples(chances, size):
    """Counts (n,) of the rows in DRAWS samples of ``size``, and in which place first: rows by falling key."""
    rows = np.arange(len(chances))
    keys = np.array([drawn(np.asarray(chances, float), rows, (7, draw)) for draw in range(DRAWS)])
    return np.argsort(-keys, axis=1, kind="stable")[:, :size]


@pytest.mark.parametrize("chances", [[1, 1, 1], [0.3, 1.3, 0.7, 0.05], [5, 1e-3, 2]])
def test_one_row_is_drawn_in_proportion_to_its_chance(chances):
    """P(i) = chance_i / Σ chances: no row's count is beyond what happens once in a million."""
    counts = np.bincount(samples(chances, 1)[:, 0], minlength=len(chances))
    expected = np.array(chances) / np.sum(chances)
    low, high = binom.ppf(5e-7, DRAWS, expected), binom.ppf(1 - 5e-7, DRAWS, expected)
    assert ((counts >= low) & (counts <= high)).all()


def test_two_rows_are_drawn_without_replacement():
    """P(i then j) = w_i/Σw · w_j/(Σw − w_i) (Efraimidis & Spirakis 2006)."""
    w = np.array([1.0, 2.0, 3.0, 0.5])
    pairs = samples(w, 2)
    counts = np.array([[np.sum((pairs == (i, j)).all(axis=1)) for j in range(4)] for i in range(4)])
    expected = w[:, None] / w.sum() * w / (w.sum() - w[:, None])
    other = ~np.eye(4, dtype=bool)
    assert not counts[~other].any()
    assert chisquare(counts[other], DRAWS * expected[other]).pvalue > 1e-4


@given(st.integers(0, 2**63 - 1), st.integers(0, 1000), st.integers(1, 200), st.integers(0, 10**12), st.data())
def test_a_rows_luck_does_not_depend_on_its_tile(seed, number, n, first, data):
    """Keys of a split are the split of the keys, so that the largest are found by any tree of tiles."""
    rows = first + np.arange(n)
    chances = np.random.default_rng(n).random(n)
    whole, cut = drawn(chances, rows, (seed, number)), data.draw(st.integers(0, n))
    parts = [drawn(chances[part], rows[part], (seed, number)) for part in (slice(cut), slice(cut, None))]
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    assert (whole < 0).all()


@pytest.mark.parametrize("draw", [(0, 0), (0, 1), (1, 0), (2**40, 3)])
def test_uniform(draw):
    """Kolmogorov and Smirnov find nothing in neighbouring rows, neither in their numbers nor in their differences."""
    u = uniform(np.arange(50_000), draw)
    assert ((u > 0) & (u < 1)).all()
    assert kstest(u, "uniform").pvalue > 1e-4
    assert kstest(np.diff(u)[::2] % 1, "uniform").pvalue > 1e-4
    assert abs(np.corrcoef(u[1:], u[:-1])[0, 1]) < 5 / np.sqrt(50_000)


def test_draws_and_seeds_are_independent():
    """The same rows, another draw or seed: no correlation beyond five standard errors."""
    rows = np.arange(50_000)
    each = [uniform(rows, draw) for draw in ((0, 0), (0, 1), (1, 0), (1, 1))]
    assert np.abs(np.corrcoef(each) - np.eye(4)).max() < 5 / np.sqrt(50_000)


def test_rows_without_a_chance_come_last():
    """Behind all that have one, however small; and no number is lost on the way."""
    chances = np.array([0.0, 1e-300, 1.0, 0.0, 1e-3])
    for draw in range(50):
        keys = drawn(chances, np.arange(5), (0, draw))
        assert not np.isnan(keys).any()
        assert set(np.argsort(-keys)[:3].tolist()) == {1, 2, 4}
