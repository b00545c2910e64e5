"""A random order that is computed in parts: a permutation, spread evenly, in memory of the part alone."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from partirvm.core.sampling import random_order


@given(st.integers(1, 2000), st.integers(0, 2**32 - 1))
def test_every_row_has_one_place(n, seed):
    """All places together hold every row once, and a part is the same part of the whole."""
    whole = random_order(n, np.random.default_rng(seed), np.arange(n))
    assert sorted(whole.tolist()) == list(range(n))
    np.testing.assert_array_equal(
        random_order(n, np.random.default_rng(seed), np.arange(n // 3, n // 2)), whole[n // 3 : n // 2]
    )


@pytest.mark.parametrize("n", [1000, 1024, 1025, 10**9])
def test_a_part_is_spread_evenly(n):
    """The first rows fall into equal intervals as independent draws would; neighbours in the order are unrelated."""
    k = min(n // 2, 20_000)
    rows = random_order(n, np.random.default_rng(5), np.arange(k))
    counts = np.histogram(rows, bins=10, range=(0, n))[0]
    assert chisquare(counts).pvalue > 1e-3
    assert abs(np.corrcoef(rows[:-1], rows[1:])[0, 1]) < 4 / np.sqrt(k)
    assert len(np.unique(rows)) == k


def test_seeds_give_other_orders():
    """The order is that of the random numbers."""
    orders = [random_order(100, np.random.default_rng(seed), np.arange(100)).tolist() for seed in (0, 1, (0, 1))]
    assert orders[0] != orders[1]
    assert orders[1] != orders[2]


def test_memory_is_that_of_the_part():
    """1,000 of 10¹² rows take less than a megabyte."""
    tracemalloc.start()
    random_order(10**12, np.random.default_rng(0), np.arange(1000))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20
