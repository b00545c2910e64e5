"""Rows of the Gram matrix that are measured when their column joins; the fits are in ``test_fast``."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from test_fast import RULE, begun, bumps, pool_of, recorded

from partirvm.core.on_demand import DesignRows, OnDemand, Pool
from partirvm.core.termination import Termination

seeds = st.integers(0, 2**32 - 1)


@settings(max_examples=25)
@given(seeds, st.integers(1, 30))
def test_statistics_are_those_of_the_weighted_design(seed, count):
    """Whatever rows come along, and in whatever order columns are taken; rows of weight zero are not there."""
    rng = np.random.default_rng(seed)
    N, K = 50, 30
    Phi, t, w = rng.normal(size=(N, K)), rng.normal(size=N), rng.choice([0.0, 0.5, 3.0], N)
    pool = OnDemand(pool_of(Phi, t, w))
    columns = rng.permutation(K)[:count]
    G = Phi.T @ (w[:, None] * Phi)
    for column in columns:
        np.testing.assert_allclose(
            pool.row(column, (columns, rng.normal(size=count))), G[column], rtol=1e-12, atol=1e-12
        )
    np.testing.assert_allclose(pool.diagonal, np.diagonal(G), rtol=1e-12)
    taken = pool.take(columns)
    np.testing.assert_allclose(taken.gram, G[np.ix_(columns, columns)], rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(taken.gram, taken.gram.T)
    np.testing.assert_allclose(taken.projection[:, 0], (Phi.T @ (w * t))[columns], rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(taken.sum_squares, [w @ t**2], rtol=1e-12)
    np.testing.assert_array_equal(taken.labels, columns)
    assert taken.n == (w > 0).sum()
    np.testing.assert_allclose(taken.log_weight, np.log(w[w > 0]).sum(), rtol=1e-12, atol=1e-12)


def test_no_row_of_the_gram_matrix_is_measured_twice_and_likely_ones_come_along():
    """With R rows there R/8 more come beside the one that is asked for: those of largest promise, none without."""
    rng = np.random.default_rng(3)
    Phi, t = rng.normal(size=(200, 160)), rng.normal(size=200)
    pool = OnDemand(pool_of(Phi, t))
    for column in range(80):
        pool.row(column)
    assert pool.n_rows == 80
    likely = np.arange(60, 120), np.arange(60.0)
    pool.row(80, likely)
    assert pool.n_rows == 91
    for column in range(110, 120):
        pool.row(column, likely)
    assert pool.n_rows == 91


def test_a_fit_ends_early_as_another_one():
    """At the most refreshes, with the columns that it then has."""
    Phi, t = bumps(1)
    fit, reason, _ = recorded(**begun(Phi, t, "on demand"), rule=replace(RULE, max_iterations=1))
    assert reason is Termination.ITERATIONS
    assert 0 < fit.n_columns == len(fit.alpha) < Phi.shape[1]
    empty = Pool("b", np.zeros(0, np.int64), DesignRows.of(np.zeros((40, 0)), t[:, None]))
    assert recorded(begun(Phi, t, "on demand")["state"], pool=empty)[0].n_columns == 0
