"""Evidence, slopes and predicted densities of an exact Gaussian process against those of multivariate normals."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from partirvm.learning.exact_process import predicted, process_evidence


def covariances(n, seed=0):
    """A covariance of n values, and a symmetric matrix in whose direction it is moved."""
    rng = np.random.default_rng(seed)
    root, move = rng.normal(size=(n, n)), rng.normal(size=(n, n))
    return root @ root.T + np.eye(n), move + move.T


def test_the_evidence_is_the_density_of_a_normal_and_its_slopes_are_differences():
    """Two targets that share the covariance: the sum of their log densities, and central differences of it."""
    K, move = covariances(7)
    t = np.random.default_rng(1).normal(size=(7, 2))

    def density(covariance):
        return sum(multivariate_normal(np.zeros(7), covariance).logpdf(each) for each in t.T)

    found = process_evidence(K, t)
    assert found.value == pytest.approx(density(K), rel=1e-12)
    np.testing.assert_allclose(K @ found.weights, t, atol=1e-12)
    step = 1e-5
    slope = (density(K + step * move) - density(K - step * move)) / (2 * step)
    assert (found.slopes * move).sum() == pytest.approx(slope, rel=1e-7)
    np.testing.assert_array_equal(found.slopes, found.slopes.T)


def test_a_covariance_that_is_not_definite_has_no_evidence():
    """None instead of an error, so that a search can take a smaller step."""
    assert process_evidence(np.array([[1.0, 2.0], [2.0, 1.0]]), np.ones((2, 1))) is None


def test_new_targets_have_the_density_of_the_conditional_normal():
    """log p(t₁, t₂) − log p(t₁) of the joint normal, for each new row alone, summed over two targets."""
    K, _ = covariances(9, seed=2)
    t = np.random.default_rng(3).normal(size=(9, 2))
    found = predicted(K[:6, :6], t[:6], K[6:, :6], K[6:, 6:].diagonal(), t[6:]).log_densities
    for row in range(3):
        with_it = [*range(6), 6 + row]
        joint, alone = (
            multivariate_normal(np.zeros(7), K[np.ix_(with_it, with_it)]),
            multivariate_normal(np.zeros(6), K[:6, :6]),
        )
        expected = sum(joint.logpdf(t[with_it, k]) - alone.logpdf(t[:6, k]) for k in range(2))
        assert found[row] == pytest.approx(expected, rel=1e-10)
