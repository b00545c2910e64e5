"""Left-out groups of a fit whose noise is correlated within groups, against fits without them."""

import numpy as np
from numpy.random import default_rng
from numpy.testing import assert_allclose

from partirvm.fit.comparison import ComparedFold

GROUPS = np.repeat(np.arange(6), 4)


def test_predictors_are_those_of_fits_without_the_groups():
    """At fixed α and with the noise covariance C = W⁻¹ + E, the weights have the precision ΦᵀC⁻¹Φ +
    diag(α); two whole groups are left out."""
    rng = default_rng(0)
    Phi = rng.normal(size=(24, 3))
    target = rng.normal(size=24)
    precisions = rng.uniform(0.5, 2.0, 24)
    slopes = rng.normal(size=24)
    effects = (GROUPS[:, None] == GROUPS) * (0.7 + 0.3 * np.outer(slopes, slopes))
    alpha = np.array([0.3, 1.0, 2.0])

    def fit(rows):
        noise = np.diag(1 / precisions[rows]) + effects[np.ix_(rows, rows)]
        white = np.linalg.solve(
            np.linalg.cholesky(noise), np.column_stack([Phi[rows], target[rows]])
        )
        covariance = np.linalg.inv(white[:, :3].T @ white[:, :3] + np.diag(alpha))
        return covariance @ white[:, :3].T @ white[:, 3], covariance

    mean, covariance = fit(np.arange(24))
    root = np.linalg.cholesky(covariance[::-1, ::-1])[::-1, ::-1]  # upper triangular
    fold = np.flatnonzero(GROUPS < 2)
    compared = ComparedFold(fold, Phi[fold], [], np.zeros(3))
    left_out = compared.left_out_with_effects(
        target[fold] - Phi[fold] @ mean, precisions[fold], mean, root, effects[np.ix_(fold, fold)]
    )
    without, _ = fit(np.flatnonzero(GROUPS >= 2))
    expected = Phi[fold] @ (without - mean)
    assert_allclose(left_out.shifts[:, 0, 0], expected, rtol=1e-8, atol=1e-10)
