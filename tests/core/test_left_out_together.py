"""Rows that are left out of a fit together, beside a fit to the other rows."""

import numpy as np
import pytest

from partirvm.core.held_back import FOLDS, folds_of
from partirvm.core.left_out_together import left_out_together


def fit_of(block, t, weights, alpha, beta):
    """Mean (M, T) and covariance (M, M) of the weights: Σ = (ΦᵀWΦβ + A)⁻¹, μ = βΣΦᵀWt."""
    covariance = np.linalg.inv(beta * block.T @ (weights[:, None] * block) + np.diag(alpha))
    return beta * covariance @ block.T @ (weights[:, None] * t), covariance


@pytest.mark.parametrize("n_targets", [1, 3])
@pytest.mark.parametrize("with_own", [False, True])
def test_a_fold_has_the_errors_of_a_fit_to_the_other_rows(n_targets, with_own):
    """At the same α and β, with weights; the columns that its rows own are then held at zero."""
    rng = np.random.default_rng(n_targets)
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
    mean, covariance = fit_of(block, t, weights, alpha, beta)
    without, of_others = fit_of(block[others], t[others], weights[others], alpha, beta)
    kept = (
        np.setdiff1d(np.arange(M), np.concatenate([columns for _, columns in own]))
        if with_own
        else np.arange(M)
    )
    fewer, of_fewer = fit_of(block[others][:, kept], t[others], weights[others], alpha[kept], beta)

    found = left_out_together(
        block[fold],
        t[fold] - block[fold] @ mean,
        beta * weights[fold],
        mean,
        np.linalg.cholesky(covariance),
        own,
    )

    predicted = block[fold] @ mean
    np.testing.assert_allclose(found.change, without - mean, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(
        predicted + found.shifts[:, 0], block[fold] @ without, rtol=1e-6, atol=1e-8
    )
    np.testing.assert_allclose(
        predicted + found.shifts[:, 1], block[fold][:, kept] @ fewer, rtol=1e-6, atol=1e-8
    )
    for column, (rows, spread) in enumerate(
        [(block[fold], of_others), (block[fold][:, kept], of_fewer)]
    ):
        expected = np.einsum("nm,mk,nk->n", rows, spread, rows)
        np.testing.assert_allclose(found.variances[:, column], expected, rtol=1e-6)
    np.testing.assert_array_equal(found.owner, [-1, 2, -1, -1, 7] if with_own else [-1] * 5)


@pytest.mark.parametrize("count", [1, 7, 10, 93])
def test_folds_hold_each_row_once(count):
    folds = folds_of(np.arange(count))
    np.testing.assert_array_equal(np.sort(np.concatenate(folds)), np.arange(count))
    assert len(folds) == min(count, FOLDS)
    assert max(map(len, folds)) - min(map(len, folds)) <= 1
