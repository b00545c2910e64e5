"""Factors and inverses in tiles are correct and have the same bits for any number of threads."""

import threading

import naive
import numpy as np
import pytest
from fits import statistics_of
from numpy.random import default_rng
from numpy.testing import assert_allclose, assert_array_equal

from partirvm.core import factorise
from partirvm.core import posterior as module
from partirvm.core.posterior import JITTERS, posterior, root_of
from partirvm.process import in_threads, on_threads

M = module.LEAST + module.TILE + 37
"""The number of columns: several tiles, the last of them smaller."""


@pytest.fixture(scope="module")
def positive():
    """Return a positive definite matrix (M, M) whose diagonal spans six orders of magnitude."""
    rng = default_rng(0)
    X = rng.normal(size=(M + 20, M)) * 10 ** rng.uniform(-1.5, 1.5, size=M)
    return X.T @ X + np.diag(rng.uniform(0.5, 1.0, size=M))


def factor(H, threads):
    with on_threads(threads):
        return factorise(H.copy())


def test_factor_and_inverse_of_a_large_matrix_are_correct(positive):
    """LLᵀ = SHS has a unit diagonal, L is lower triangular, and LL⁻¹ = 1."""
    L, scale = factor(positive, 2)
    assert_array_equal(L, np.tril(L))
    assert_allclose(scale, 1 / np.sqrt(np.diagonal(positive)), rtol=1e-15)
    assert_allclose(L @ L.T, positive * scale * scale[:, None], atol=1e-13)
    with on_threads(2):
        found = root_of(L, np.ones(M)).T
    assert_array_equal(found, np.tril(found))
    assert_allclose(L @ found, np.eye(M), atol=1e-8)


def test_bits_do_not_depend_on_the_number_of_threads(positive):
    """The bits of factor and posterior are compared; the posterior follows the formulas."""
    alone, _ = factor(positive, 1)
    rows = default_rng(4).normal(size=(100, M + 1))
    X = rows[:, 1:]
    t = rows[:, 0]
    statistics = statistics_of(X, t)
    alpha = default_rng(1).uniform(0.1, 2.0, size=M)

    def everything():
        fit = posterior(statistics, alpha, 0.7)
        arrays = fit.mean, fit.variance, fit.factor, fit.root()
        return [each.tobytes() for each in arrays], fit.log_evidence, fit.residual, fit.rounding

    expected = everything()
    for threads in (5,):
        assert factor(positive, threads)[0].tobytes() == alone.tobytes()
        with on_threads(threads):
            assert everything() == expected
    fit = posterior(statistics, alpha, 0.7)
    mean, Sigma = naive.posterior(X, t, alpha, 0.7)
    assert_allclose(fit.mean, mean, rtol=1e-8, atol=1e-10)
    assert_allclose(fit.variance, np.diagonal(Sigma), rtol=1e-9)
    assert fit.residual == pytest.approx(np.sum((t - X @ mean) ** 2), rel=1e-8)
    assert_allclose(fit.root() @ fit.root().T, Sigma, atol=1e-12)


def test_equal_columns_need_jitter():
    """The second attempt begins with the matrix, not with the result of the first."""
    rng = default_rng(3)
    X = rng.normal(size=(M + 20, M))
    X[:, -5:] = X[:, 100:105] * (1 + 1e-9 * rng.normal(size=5))
    H = X.T @ X
    H = np.triu(H) + np.triu(H, 1).T
    L, scale = factor(H, 2)
    added = L @ L.T - H * scale * scale[:, None]
    assert_allclose(added, added[0, 0] * np.eye(M), atol=1e-13)
    assert min(abs(added[0, 0] / jitter - 1) for jitter in JITTERS[1:]) < 0.5


def test_tiles_run_on_the_given_threads():
    """Without threads, tiles run in the caller's thread; errors are raised in the caller."""
    both = threading.Barrier(2, timeout=10)
    with on_threads(2):
        names = in_threads(
            lambda number: (both.wait(), threading.current_thread().name)[1], range(2)
        )
        with pytest.raises(ZeroDivisionError):
            in_threads(lambda number: 1 / number, range(2))
    assert len(set(names)) == 2
    here = threading.current_thread().name
    assert in_threads(lambda number: threading.current_thread().name, range(2)) == [here, here]
