"""A forest of boosted trees made by hand: leaves, outputs, bits, and stored state."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from partirvm.kernels.trees import BoostedTrees


def forest(outputs=1, shift=0.0):
    """Return one tree for each of these outputs:

    x₀ ≤ 0.5 (missing: right): level x₁ in {0, 2} (missing and unknown: left): 1, else 2; else 4.

    ``shift`` is added to all leaves.
    """
    leaves = np.array([1.0, 2.0, 4.0]) + shift
    starts = 5 * np.arange(outputs)
    return BoostedTrees(
        features=np.tile([0, 1, -1, -1, -1], outputs),
        thresholds=np.tile([0.5, 0.0, *leaves], outputs),
        rights=np.concatenate([start + np.array([4, 3, 0, 0, 0]) for start in starts]),
        missing_left=np.tile([False, True, False, False, False], outputs),
        sets=np.concatenate([[-1, k, -1, -1, -1] for k in range(outputs)]),
        levels=np.tile([True, False, True], (outputs, 1)),
        roots=starts.reshape(outputs, 1),
        constants=10.0 * np.arange(outputs),
        counts=np.array([0, 3]),
    )


@pytest.mark.parametrize(
    ("row", "leaf"),
    [
        ((0.5, 0.0), 1.0),  # a threshold goes left
        ((-np.inf, 2.0), 1.0),
        ((0.0, 1.0), 2.0),
        ((0.0, np.nan), 1.0),  # a missing level goes left here
        ((0.0, 3.0), 1.0),  # and so does an unknown one
        ((0.0, -1.0), 1.0),
        ((np.nextafter(0.5, 1), 0.0), 4.0),
        ((np.inf, 1.0), 4.0),
        ((np.nan, 1.0), 4.0),  # a missing number goes right here
    ],
)
def test_a_row_reaches_its_leaf(row, leaf):
    assert forest()(np.array([row])) == leaf


def test_outputs_are_constants_plus_trees():
    values = forest(outputs=3)(np.array([[0.0, 1.0], [1.0, 1.0]]))
    assert_array_equal(values, [[2.0, 12.0, 22.0], [4.0, 14.0, 24.0]])


def test_a_pickle_has_the_same_trees_and_no_caches():
    trees = forest()
    X = np.random.default_rng(0).normal(size=(50, 2))
    values = trees(X)
    restored = pickle.loads(pickle.dumps(trees))
    assert set(vars(restored)) == set(vars(forest()))
    assert restored.key == trees.key
    assert restored.key != forest(shift=1.0).key
    assert_array_equal(restored(X), values)
    assert_array_equal(np.concatenate([trees(X[:1]), trees(X[1:])]), values)
