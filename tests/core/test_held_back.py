"""Left-out rows: none both teaches and judges, and each judges as often as specified."""

import numpy as np
import pytest

from partirvm.core import FOLDS, LEVEL_FOLDS, folds_of, level_folds
from partirvm.core.held_back import (
    SEARCH_FOLDS,
    SEARCH_ROWS,
    alternate_halves,
    compared_rows,
    equal_split,
    judging,
    keeps_nearly_all,
    last_left_out,
    level_halves,
    search_splits,
)

ROWS = np.sort(np.random.default_rng(0).choice(10_000, 997, replace=False))
"""The numbers of a subset of a source's rows."""

ORDER = np.random.default_rng(1).permutation(ROWS)


def are_disjoint(split):
    return not np.intersect1d(split.known, split.new).size


@pytest.mark.parametrize(
    "splits",
    [
        search_splits(ORDER, 300),
        search_splits(ORDER, 700),
        [equal_split(ORDER, 300)],
        [last_left_out(ORDER, 100, 0.25)],
        alternate_halves(ROWS),
    ],
    ids=["one split", "folds", "equal", "last", "halves"],
)
def test_no_row_is_used_for_both_learning_and_judging(splits):
    assert all(are_disjoint(split) for split in splits)
    new = np.concatenate([split.new for split in splits])
    assert len(np.unique(new)) == len(new) > 0


def test_many_rows_get_one_split_and_few_rows_get_folds():
    """With at least ``SEARCH_ROWS`` further rows, up to twice as many judge; otherwise folds follow
    until that many rows have judged."""
    (split,) = search_splits(ORDER, len(ORDER) - SEARCH_ROWS)
    assert len(split.known) == len(ORDER) - SEARCH_ROWS
    assert len(split.new) == SEARCH_ROWS
    folds = search_splits(ORDER, len(ORDER) - SEARCH_ROWS + 1)
    judges = sum(len(split.new) for split in folds)
    assert SEARCH_ROWS <= judges < SEARCH_ROWS + len(ORDER) / SEARCH_FOLDS + 1


@pytest.mark.parametrize(("n", "most", "nearly"), [(500, 400, True), (501, 400, False)])
def test_a_fold_leaves_nearly_all_rows_for_learning(n, most, nearly):
    """Without one of five folds, 400 of 500 rows are used for learning."""
    assert keeps_nearly_all(n, most) is nearly
    kept = [len(split.known) for split in search_splits(np.arange(n), most)]
    assert (min(kept) * SEARCH_FOLDS >= (SEARCH_FOLDS - 1) * n) is nearly


def test_the_last_rows_are_left_out_up_to_a_number_and_a_fraction():
    assert len(last_left_out(ORDER, 100, 0.25).new) == 100
    assert len(last_left_out(ORDER, 900, 0.25).new) == len(ORDER) // 4
    split = last_left_out(ORDER[:3], 100, 0.25)
    assert len(split.new) == 0
    assert np.array_equal(split.known, ORDER[:3])


def test_folds_contain_each_row_once():
    places = np.concatenate(folds_of(ROWS))
    assert np.array_equal(np.sort(places), np.arange(len(ROWS)))
    assert len(folds_of(ROWS)) == FOLDS
    halves = np.concatenate(level_halves(ROWS, 3))
    assert np.array_equal(np.sort(halves), np.arange(len(ROWS)))


def test_the_fold_of_a_row_with_a_level_depends_only_on_the_row():
    folds = level_folds(ROWS)
    assert set(folds) == set(range(LEVEL_FOLDS))
    assert np.array_equal(level_folds(ROWS[::-1]), folds[::-1])


def test_a_random_fifth_of_the_rows_judges_a_model():
    rows = compared_rows(10_000, 500, 0)
    assert len(np.unique(rows)) == 500
    assert np.array_equal(rows, np.sort(rows))
    assert judging(rows).sum() == 100
    assert not np.array_equal(rows, compared_rows(10_000, 500, 1))
    assert len(compared_rows(300, 500, 0)) == 300
