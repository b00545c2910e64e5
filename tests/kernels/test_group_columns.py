"""Columns of groups: their values by hand, and the covariance of the effects."""

import pickle

import numpy as np
import pytest
from numpy.random import default_rng
from numpy.testing import assert_allclose, assert_array_equal

from partirvm.kernels.functions import LINEAR, Basis
from partirvm.kernels.group_columns import NO_GROUP, GroupColumns

COLUMNS = GroupColumns(np.array([7, 3]), 2, 4.0, 0.25)
"""Two groups with an intercept of variance 4 and two slopes of variance 1/4."""

POINTS = np.array([[1.0, 2.0], [-3.0, 0.5], [5.0, 6.0]])


def test_a_row_has_one_and_its_features_in_the_columns_of_its_group():
    """Group 9 has no columns."""
    places = COLUMNS.places_of(np.array([3, 7, 9]))
    assert_array_equal(places, [1, 0, NO_GROUP])
    expected = [[0, 0, 0, 1, 1, 2], [1, -3, 0.5, 0, 0, 0], [0, 0, 0, 0, 0, 0]]
    assert_array_equal(COLUMNS(POINTS, places), expected)
    assert COLUMNS.size == 6


def test_intercepts_alone_have_a_column_for_each_group():
    columns = GroupColumns(np.array([3, 7]), 0, 4.0, 0.0)
    assert_array_equal(
        columns(POINTS, columns.places_of(np.array([7, 7, 3]))), [[0, 1]] * 2 + [[1, 0]]
    )


def test_further_groups_follow_the_first_ones():
    more = COLUMNS.with_groups(np.array([1, 3, 5, 7]))
    assert_array_equal(more.codes, [7, 3, 1, 5])
    groups = np.array([3, 5, 7])
    assert_array_equal(more.places_of(groups), [1, 3, 0])
    assert_array_equal(more(POINTS, more.places_of(groups))[0], [*[0] * 3, 1, 1, 2, *[0] * 6])


def test_covariances_are_those_of_the_weights_of_the_columns():
    """With the prior variances A of the weights, the covariance is ZAZᵀ."""
    groups = np.array([3, 7, 3])
    Z = COLUMNS(POINTS, COLUMNS.places_of(groups))
    expected = Z * np.tile([4.0, 0.25, 0.25], 2) @ Z.T
    assert_allclose(COLUMNS.covariance(POINTS, groups), expected)
    assert_allclose(COLUMNS.prior_variance(POINTS), np.diagonal(expected))


@pytest.mark.parametrize("n_slopes", [0, 2])
def test_a_basis_has_columns_of_training_rows_only(n_slopes):
    """The place of the group follows the features of a training row."""
    columns = GroupColumns(np.array([3, 7]), n_slopes, 1.0, 1.0)
    basis = Basis(((LINEAR, 2), (columns, columns.size)))
    places = np.array([0.0, 1.0, NO_GROUP])
    of_training = basis(POINTS, np.column_stack([POINTS, places]))
    assert_array_equal(of_training, np.hstack([POINTS, columns(POINTS, places)]))
    assert_array_equal(basis(POINTS, POINTS), np.hstack([POINTS, np.zeros((3, columns.size))]))
    assert basis.without_groups() == Basis(((LINEAR, 2),))
    assert not basis.features(np.arange(2, basis.size), 2).any()


def test_equal_columns_have_equal_texts_and_pickles_are_equal():
    """The text identifies columns whose kernel blocks are kept."""
    copy = pickle.loads(pickle.dumps(COLUMNS))
    assert repr(copy) == repr(COLUMNS)
    others = [(np.array([7, 4]), 2, 4.0, 0.25), (np.array([7, 3]), 2, 4.0, 0.5)]
    assert repr(COLUMNS) not in {repr(GroupColumns(*parts)) for parts in others}


def test_places_do_not_depend_on_the_order_of_the_codes():
    codes = default_rng(0).permutation(50)
    columns = GroupColumns(codes, 0, 1.0, 0.0)
    assert_array_equal(codes[columns.places_of(np.arange(50)).astype(int)], np.arange(50))
