"""Fits by actions that measure a row of the Gram matrix when its column joins: the same fits."""

from __future__ import annotations

from dataclasses import replace

import naive
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partirvm.core.fast import FEWEST, PART, grow
from partirvm.core.on_demand import DesignRows, OnDemand, Pool
from partirvm.core.statistics import GramStatistics
from partirvm.core.termination import Termination
from partirvm.core.updates import StopRule, init

pytestmark = pytest.mark.usefixtures("one_blas_thread")
seeds = st.integers(0, 2**32 - 1)
FIRST = 10.0
RULE = StopRule(1e-7, 500)
NOBODY = np.zeros(0, np.int64)


def nothing():
    """The fit of no columns, which has seen no row."""
    return init(GramStatistics.empty("b"), np.zeros(0), FIRST, power=1.0)


def problem(seed, N=40, K=24):
    """Gaussian bumps of places on a line, and a noisy wave."""
    rng = np.random.default_rng(seed)
    x = np.sort(rng.uniform(-5, 5, N))[:, None]
    Phi = naive.gaussian(x, rng.uniform(-5, 5, (K, 1)), 1.0)
    return Phi, np.sin(x[:, 0]) + rng.normal(size=N) * 10 ** rng.uniform(-1.5, 0)


def pool_of(Phi, t, w=None, cuts=(7, 20)):
    """Candidates on demand, of rows that came in several blocks."""
    blocks = [None] * (len(cuts) + 1) if w is None else np.split(w, cuts)
    parts = map(DesignRows.of, np.split(Phi, cuts), np.split(t[:, None], cuts), blocks)
    first, *others = parts
    return Pool("b", np.arange(Phi.shape[1]), sum(others, first))


@pytest.mark.parametrize("block", range(5))
def test_every_action_is_that_of_the_dense_algorithm(block):
    """On 50 problems."""
    for seed in range(10 * block, 10 * block + 10):
        Phi, t = problem(seed)
        expected, beta = naive.tipping_faul(
            Phi, t, FIRST, least=RULE.tol * len(t), between=lambda M: FEWEST + M // PART
        )
        pool, actions = pool_of(Phi, t), []
        fit, reason = grow(nothing(), RULE, on_action=actions.append, pool=pool)
        assert reason is Termination.CONVERGED
        assert [(a.kind, a.column) for a in actions] == [(kind, j) for kind, j, _, _ in expected]
        np.testing.assert_allclose([a.alpha for a in actions], [alpha for _, _, alpha, _ in expected], rtol=1e-6)
        np.testing.assert_allclose(fit.beta, beta, rtol=1e-8)
        last = naive.log_evidence(Phi[:, fit.labels], t, fit.alpha, fit.beta)
        np.testing.assert_allclose(fit.log_evidence, last, rtol=1e-8, atol=1e-8)
        assert fit.n == len(t)


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
    np.testing.assert_allclose(taken.energy, [w @ t**2], rtol=1e-12)
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
    Phi, t = problem(1)
    fit, reason = grow(nothing(), replace(RULE, max_iterations=1), pool=pool_of(Phi, t))
    assert reason is Termination.ITERATIONS
    assert 0 < fit.n_columns == len(fit.alpha) < Phi.shape[1]
    empty = Pool("b", NOBODY, DesignRows.of(np.zeros((40, 0)), t[:, None]))
    assert grow(nothing(), RULE, pool=empty)[0].n_columns == 0
