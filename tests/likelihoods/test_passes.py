"""The eligible rows of a panel, and a start from two fits."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from partirvm.core.priors import JOINING
from partirvm.spec import Panel, Start
from partirvm.spec.panel_pass import between, eligible

ROWS = np.array([4, 5, 7, 9])


@pytest.mark.parametrize(
    "excluded", [[], [4], [9], [4, 9], [5, 7], [0, 3, 8, 12], [0, 4, 5, 7, 9, 12]]
)
@pytest.mark.parametrize("weights", [None, np.array([0.0, 1.0, 2.0, 1e-300])])
def test_eligible_rows_have_a_weight_and_are_not_excluded(excluded, weights):
    X = np.zeros((4, 1))
    found = eligible(Panel(ROWS, X, X, weights), np.array(excluded, dtype=np.int64))
    weight = np.ones(4) if weights is None else weights
    assert found.tolist() == [
        w > 0 and row not in excluded for row, w in zip(ROWS.tolist(), weight, strict=True)
    ]


@pytest.mark.parametrize(("first", "last"), [(0, 1), (2, 5), (5, 5), (5, 8), (8, 12), (9, 12)])
def test_both_kinds_of_rows_have_the_same_ones_between_two_numbers(first, last):
    """Rows 3 to 8 as a range and as an array; both ends belong to what is between."""
    rows = range(3, 9)
    expected = [row for row in rows if first <= row <= last]
    assert between(rows, first, last).tolist() == expected
    assert between(np.array(rows), first, last).tolist() == expected


def test_a_merge_begins_with_half_the_weights_of_both_fits():
    """f = ½f₁ + ½f₂, α is JOINING times that of its fit, and β is the larger one."""
    left = Start(np.array([5, 1]), np.array([2.0, 3.0]), 4.0, np.array([[1.0, 4.0], [2.0, 6.0]]))
    right = Start(np.array([7, 3]), np.array([0.5, 8.0]), 2.0, np.array([[-1.0, 0.5], [10.0, 1.0]]))
    merged = left.merge(right, np.array([1, 5, 7]))
    assert (merged.labels.tolist(), merged.beta) == ([1, 5, 7], 4.0)
    assert_array_equal(merged.alpha, JOINING * np.array([3.0, 2.0, 0.5]))
    assert_array_equal(merged.weights, [[1.0, 3.0], [0.5, 2.0], [-0.5, 0.25]])
