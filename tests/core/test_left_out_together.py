"""Rows that are left out together are compared with a fit to the other rows."""

import naive
import numpy as np
import pytest
from numpy.random import default_rng
from numpy.testing import assert_allclose, assert_array_equal

from partirvm.core import FOLDS, folds_of
from partirvm.core.left_out_together import left_out_together


@pytest.mark.parametrize("n_targets", [1, 3])
@pytest.mark.parametrize("with_own", [False, True])
def test_fold_errors_equal_those_of_a_fit_to_the_other_rows(n_targets, with_own):
    """α, β and weights are the same; columns centred at rows of the fold are removed."""
    rng = default_rng(n_targets)
    n = 40
    M = 9
    beta = 3.0
    block = rng.normal(size=(n, M))
    t = rng.normal(size=(n, n_targets))
    weights = rng.uniform(0.5, 2.0, size=n)
    alpha = rng.uniform(0.5, 2.0, size=M)
    fold = np.array([3, 8, 9, 20, 31])
    own = [(1, np.array([2, 5])), (4, np.array([7]))] if with_own else []
    others = np.setdiff1d(np.arange(n), fold)
    mean, covariance = naive.posterior(block, t, alpha, beta, weights)
    others_only = block[others], t[others]
    without, of_others = naive.posterior(*others_only, alpha, beta, weights[others])
    kept = np.setdiff1d(np.arange(M), [2, 5, 7] if with_own else [])
    fewer, of_fewer = naive.posterior(
        block[others][:, kept], t[others], alpha[kept], beta, weights[others]
    )
    found = left_out_together(
        block[fold],
        t[fold] - block[fold] @ mean,
        beta * weights[fold],
        mean,
        np.linalg.cholesky(covariance),
        own,
    )
    predicted = block[fold] @ mean
    assert_allclose(found.change, without - mean, rtol=1e-6, atol=1e-9)
    assert_allclose(predicted + found.shifts[:, 0], block[fold] @ without, rtol=1e-6, atol=1e-8)
    assert_allclose(
        predicted + found.shifts[:, 1], block[fold][:, kept] @ fewer, rtol=1e-6, atol=1e-8
    )
    for column, (rows, spread) in enumerate(
        [(block[fold], of_others), (block[fold][:, kept], of_fewer)]
    ):
        expected = np.einsum("nm,mk,nk->n", rows, spread, rows)
        assert_allclose(found.variances[:, column], expected, rtol=1e-6)
    assert_array_equal(found.owner, [-1, 2, -1, -1, 7] if with_own else [-1] * 5)


@pytest.mark.parametrize("count", [1, 7, 10, 93])
def test_folds_contain_each_row_once(count):
    folds = folds_of(np.arange(count))
    assert_array_equal(np.sort(np.concatenate(folds)), np.arange(count))
    assert len(folds) == min(count, FOLDS)
    assert max(map(len, folds)) - min(map(len, folds)) <= 1
