"""Random draws of rows in any tiles, a random order in parts, and rows with the largest errors."""

from functools import reduce
from operator import add

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.random import default_rng
from numpy.testing import assert_array_equal
from scipy.stats import chisquare, kstest
from tables import pieces

from partirvm.core import LargestErrors, random_order
from partirvm.core.sampling import drawn, uniform

DRAWS = 4_000


def test_two_rows_are_drawn_without_replacement():
    """P(i then j) = w_i/Σw · w_j/(Σw − w_i) (Efraimidis & Spirakis 2006)."""
    w = np.array([1.0, 2.0, 3.0, 0.5])
    keys = np.array([drawn(w, np.arange(4), (7, draw)) for draw in range(DRAWS)])
    pairs = np.argsort(-keys, axis=1, kind="stable")[:, :2]
    counts = np.array([[np.sum((pairs == (i, j)).all(axis=1)) for j in range(4)] for i in range(4)])
    expected = w[:, None] / w.sum() * w / (w.sum() - w[:, None])
    other = ~np.eye(4, dtype=bool)
    assert not counts[~other].any()
    assert chisquare(counts[other], DRAWS * expected[other]).pvalue > 1e-4


@given(
    st.integers(0, 2**63 - 1),
    st.integers(0, 1000),
    st.integers(1, 200),
    st.integers(0, 10**12),
    st.data(),
)
def test_keys_do_not_depend_on_the_tile(seed, number, n, first, data):
    """Hence any tree over the tiles finds the largest keys."""
    rows = first + np.arange(n)
    chances = default_rng(n).random(n)
    whole = drawn(chances, rows, (seed, number))
    cut = data.draw(st.integers(0, n))
    parts = [
        drawn(chances[part], rows[part], (seed, number)) for part in (slice(cut), slice(cut, None))
    ]
    assert_array_equal(np.concatenate(parts), whole)
    assert (whole < 0).all()


@pytest.mark.parametrize("draw", [(0, 0), (0, 1), (1, 0), (2**40, 3)])
def test_keys_are_uniform_and_uncorrelated(draw):
    """Neighbouring rows and their differences pass the Kolmogorov–Smirnov test."""
    u = uniform(np.arange(50_000), draw)
    assert ((u > 0) & (u < 1)).all()
    assert kstest(u, "uniform").pvalue > 1e-4
    assert kstest(np.diff(u)[::2] % 1, "uniform").pvalue > 1e-4
    assert abs(np.corrcoef(u[1:], u[:-1])[0, 1]) < 5 / np.sqrt(50_000)


def test_rows_with_zero_probability_come_last():
    """They follow all rows with a positive probability, and no key is NaN."""
    chances = np.array([0.0, 1e-300, 1.0, 0.0, 1e-3])
    for draw in range(50):
        keys = drawn(chances, np.arange(5), (0, draw))
        assert not np.isnan(keys).any()
        assert set(np.argsort(-keys)[:3].tolist()) == {1, 2, 4}


@given(st.integers(1, 2000), st.integers(0, 2**32 - 1))
def test_a_random_order_contains_every_row_once(n, seed):
    """A part of it equals the same part of the complete order."""
    whole = random_order(n, default_rng(seed), np.arange(n))
    assert sorted(whole.tolist()) == list(range(n))
    assert_array_equal(
        random_order(n, default_rng(seed), np.arange(n // 3, n // 2)),
        whole[n // 3 : n // 2],
    )


@pytest.mark.parametrize("n", [1000, 1024, 1025, 10**9])
def test_the_first_part_of_a_random_order_is_spread_evenly(n):
    """Neighbours in the order are uncorrelated, as in independent draws."""
    k = min(n // 2, 20_000)
    rows = random_order(n, default_rng(5), np.arange(k))
    counts = np.histogram(rows, bins=10, range=(0, n))[0]
    assert chisquare(counts).pvalue > 1e-3
    assert abs(np.corrcoef(rows[:-1], rows[1:])[0, 1]) < 4 / np.sqrt(k)
    assert len(np.unique(rows)) == k


@given(
    st.lists(st.integers(0, 2), max_size=40),
    st.integers(0, 12),
    st.lists(st.integers(0, 40), max_size=4),
    st.randoms(),
)
def test_the_largest_errors_do_not_depend_on_the_tiles(errors, limit, cuts, random):
    """They are the first ``limit`` rows by (−error, row), for any split and order of the parts."""
    n = len(errors)
    values = np.array(errors, dtype=float)
    rows = np.arange(n) + 100
    points = np.column_stack([rows, values])
    parts = [
        LargestErrors.of(values[piece], rows[piece], points[piece], limit)
        for piece in pieces(n, cuts)
    ]
    random.shuffle(parts)
    found = reduce(add, parts)
    expected = sorted(range(n), key=lambda row: (-errors[row], row))[:limit]
    assert found.rows.tolist() == [row + 100 for row in expected]
    assert found.errors.tolist() == [errors[row] for row in expected]
    assert_array_equal(found.values, points[expected])
