"""Forests of boosted trees: predictions of scikit-learn, hand-made trees, folds, bits, and stored
state."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from partirvm.kernels.trees import BoostedTrees

INNER = -1.0


def forests(link="identity", outputs=1, shift=0.0):
    """Return two forests, each with one tree of these outputs:

    x₀ ≤ 0.5 (missing: right): level x₁ in {0, 2} (missing and unknown: left): 1, else 2; else 4.

    The second forest adds ``shift`` to all leaves.
    """
    leaves = [[INNER, INNER, 1.0, 2.0, 4.0], [INNER, INNER, 1.0, 2.0, 4.0]]
    n_trees = 2 * outputs
    values = [
        [0.5 if j == 0 else 0.0 if j == 1 else leaf + (shift if k >= outputs else 0.0)
         for j, leaf in enumerate(leaves[0])]
        for k in range(n_trees)
    ]  # fmt: skip
    starts = 5 * np.arange(n_trees)
    return BoostedTrees(
        link=link,
        features=np.tile([0, 1, -1, -1, -1], n_trees),
        thresholds=np.ravel(values),
        rights=np.concatenate([start + np.array([4, 3, 0, 0, 0]) * 1 for start in starts]),
        missing_left=np.tile([False, True, False, False, False], n_trees),
        sets=np.concatenate([[-1, k, -1, -1, -1] for k in range(n_trees)]),
        levels=np.tile([True, False, True], (n_trees, 1)),
        roots=starts.reshape(2, outputs, 1),
        constants=np.tile(10.0 * np.arange(outputs), (2, 1)),
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
    assert forests()(np.array([row])) == leaf


def test_outputs_are_constants_plus_trees():
    values = forests(outputs=3)(np.array([[0.0, 1.0], [1.0, 1.0]]))
    assert_array_equal(values, [[2.0, 12.0, 22.0], [4.0, 14.0, 24.0]])


def test_links_turn_outputs_into_probabilities():
    """Softmax of the outputs of three classes; the logit and the probability of one of two."""
    row = np.array([[0.0, 1.0]])
    weights = np.exp([2.0, 12.0, 22.0])
    assert_allclose(forests("softmax", 3)(row), [weights / weights.sum()], rtol=1e-12)
    assert_allclose(forests("logistic")(row), [[2.0, 1 / (1 + np.exp(-2.0))]], rtol=1e-12)
    assert [forests(*case).size for case in (("softmax", 3), ("logistic", 1))] == [3, 2]


def test_training_rows_have_the_forest_of_their_fold():
    """Forest f + 1 predicts fold f; a fold without a forest has the last one."""
    X = np.tile([1.0, 1.0], (3, 1))
    trees = forests(shift=100.0)
    assert_array_equal(trees.left_out(X, np.array([0, 1, 0]))[:, 0], [104.0, 104.0, 104.0])
    assert_array_equal(trees(X)[:, 0], [4.0, 4.0, 4.0])
    assert_array_equal(trees.part(1)(X)[:, 0], [104.0, 104.0, 104.0])


def test_unlearned_trees_are_zero():
    trees = BoostedTrees.none("identity", 2, np.zeros(3, np.int64))
    assert_array_equal(trees(np.ones((4, 3))), np.zeros((4, 2)))
    assert not trees.used.any()


def test_a_pickle_has_the_same_trees_and_no_caches():
    trees = forests()
    X = np.random.default_rng(0).normal(size=(50, 2))
    values = trees(X)
    restored = pickle.loads(pickle.dumps(trees))
    assert set(vars(restored)) == set(vars(forests()))
    assert restored.key == trees.key
    assert restored.key != forests(shift=1.0).key
    assert_array_equal(restored(X), values)
    assert_array_equal(np.concatenate([trees(X[:1]), trees(X[1:])]), values)
