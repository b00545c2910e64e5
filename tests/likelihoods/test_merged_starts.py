"""The beginning of a classification's fit to the columns of two fits."""

from __future__ import annotations

import numpy as np

from partirvm.core.gains import HOPE
from partirvm.likelihoods.classes import Start


def test_two_fits_together_begin_with_half_their_weights():
    """Both explain the same data: f = ½f₁ + ½f₂ on columns of either; α is HOPE × that of its fit."""
    left = Start(np.array([5, 1]), np.array([2.0, 3.0]), np.array([[1.0, 4.0], [2.0, 6.0]]))
    right = Start(np.array([7, 3]), np.array([0.5, 8.0]), np.array([[-1.0, 0.5], [10.0, 1.0]]))
    merged = left.merge(right, np.array([1, 5, 7]))
    assert merged.labels.tolist() == [1, 5, 7]
    np.testing.assert_array_equal(merged.alpha, HOPE * np.array([3.0, 2.0, 0.5]))
    np.testing.assert_array_equal(merged.weights, [[1.0, 3.0], [0.5, 2.0], [-0.5, 0.25]])
