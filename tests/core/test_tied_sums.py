"""Sums of a tied RVM from the reduced Gram matrix, beside the formulas with inverses."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from partirvm.core.statistics import GramBlock, GramStatistics
from partirvm.core.tied import Reduced, sums_of


def statistics_of(K, J, T, n=60, seed=0, rank=None):
    """Statistics of a random design of K kernel columns and J leading ones, in mixed order."""
    random = np.random.default_rng(seed)
    Phi, t = random.normal(size=(n, K + J)), random.normal(size=(n, T))
    if rank is not None:
        Phi = Phi[:, :rank] @ random.normal(size=(rank, K + J))
    labels = np.r_[-1 - np.arange(J), np.arange(K)]
    labels = labels[random.permutation(K + J)]
    block = GramBlock(np.zeros((0, K + J)), Phi.T @ Phi, Phi.T @ t, np.sum(t**2, axis=0), n, 0.0)
    return Phi, t, GramStatistics.empty("test", T).extend(labels, block, "test")


def expected(Phi, t, labels, alpha, leading, beta):
    """Σγ, Σμ² of kernel and leading columns, and the residual, by inversion."""
    a = np.where(labels < 0, leading, alpha)
    Sigma = np.linalg.inv(beta * Phi.T @ Phi + np.diag(a))
    mean, gamma = beta * Sigma @ Phi.T @ t, 1 - a * np.diagonal(Sigma)
    own = labels >= 0
    found = [float(each) for group in (own, ~own) for each in (gamma[group].sum(), np.sum(mean[group] ** 2))]
    return [*found, float(np.sum((t - Phi @ mean) ** 2))]


def listed(sums):
    return [
        sums.kernels.determined,
        sums.kernels.square,
        sums.leading.determined,
        sums.leading.square,
        sums.residual,
    ]


@pytest.mark.parametrize("J", [0, 1, 4])
@pytest.mark.parametrize("T", [1, 3])
@pytest.mark.parametrize("K", [3, 4, 40])
def test_the_formulas(K, J, T):
    Phi, t, statistics = statistics_of(K, J, T)
    reduced = Reduced.of(statistics)
    for alpha, leading, beta in [(1.0, 1.0, 1.0), (1e-6, 10.0, 300.0), (1e4, 1e-3, 0.2)]:
        truth = expected(Phi, t, statistics.labels, alpha, leading, beta)
        found = reduced.sums(alpha, leading, beta)
        assert_allclose(listed(found), truth, rtol=1e-8, atol=1e-12)
        assert (found.kernels.columns, found.leading.columns) == (K, J)
        squares = np.sum(Phi**2, axis=0)
        assert found.kernels.largest == pytest.approx(squares[statistics.labels >= 0].max())
    for k in range(T):
        truth = expected(Phi, t[:, [k]], statistics.labels, 0.5, 2.0, 3.0)
        assert_allclose(listed(reduced.target(k).sums(0.5, 2.0, 3.0)), truth, rtol=1e-8, atol=1e-12)


def test_columns_that_repeat_each_other():
    """A Gram matrix of rank 10 has 30 eigenvalues 0, whose γ is 0."""
    Phi, t, statistics = statistics_of(40, 0, 1, rank=10)
    found = Reduced.of(statistics).sums(1e-3, 1.0, 10.0)
    truth = expected(Phi, t, statistics.labels, 1e-3, 1.0, 10.0)
    assert_allclose(listed(found), truth, rtol=1e-6, atol=1e-9)


def test_no_sums_where_rounding_leaves_no_positive_matrix():
    _, _, statistics = statistics_of(40, 1, 1, rank=10)
    assert Reduced.of(statistics).sums(1e-300, 1e-300, 1.0) is None


def test_too_few_columns_and_offsets_have_no_reduction():
    assert Reduced.of(statistics_of(2, 1, 1)[2]) is None
    _, _, statistics = statistics_of(5, 1, 1)
    assert Reduced.of(statistics.shift(np.ones((6, 1)))) is None


def test_sums_of_a_posterior():
    Phi, t, statistics = statistics_of(6, 2, 1)
    a = np.where(statistics.labels < 0, 2.0, 0.5)
    Sigma = np.linalg.inv(3 * Phi.T @ Phi + np.diag(a))
    mean = 3 * Sigma @ Phi.T @ t
    found = sums_of(statistics, 1 - a * np.diagonal(Sigma), mean, 7.0)
    truth = expected(Phi, t, statistics.labels, 0.5, 2.0, 3.0)
    assert_allclose(listed(found)[:4], truth[:4], rtol=1e-10)
    assert found.residual == 7.0
