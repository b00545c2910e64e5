"""Choice of left-out rows: everything that evaluates a model, a kernel or a map on rows that were
not used to learn it chooses these rows here.

Rows are given by their numbers in the source. Rows of one *group* (``core.groups``), such as a
station or a patient, are left out together: functions with the argument ``groups``, the codes (n,)
of the rows' groups, then leave out whole groups. Each function's docstring says whether it returns
positions or numbers.
"""

import heapq
from typing import NamedTuple

import numpy as np

from partirvm.core.sampling import Purpose, draw_key, stream, uniform
from partirvm.types import LEFT_OUT_ROWS, Bool, Float, Int

FOLDS = 10
"""Number of folds of a fit: with a tenth of the rows left out, the others still have nearly all
their neighbours."""

LEVEL_FOLDS = 8
"""Number of folds of levels: the effect for a training row is learned without an eighth of its
level's rows."""

TREE_FOLDS = 5
"""Number of folds of boosted trees: a training row is predicted without a fifth of the rows."""

CORRECTION_FOLDS = 5
"""Number of folds of left-out rows that choose a correction of class probabilities."""

SEARCH_FOLDS = 5
"""Number of folds in which forms of a kernel are compared."""

SEARCH_ROWS = 400
"""Number of left-out rows after which a kernel search uses no further fold."""

LAST_SHARE = 0.25
"""Minimum fraction of the rows whose groups are left out of a kernel search."""

LEAST_SEARCH_ROWS = 100
"""Minimum number of left-out rows of a single split."""

EVERY = 5
"""A finished model is evaluated on one in this many rows."""


class Split(NamedTuple):
    """Two sets of rows, given by their numbers or positions.

    Attributes:
        known: rows to learn from (n,)
        new: left-out rows (m,)
    """

    known: Int
    new: Int


def sampled_rows(
    n_rows: int, rows: Int | None = None, most: int | None = None, *, shuffled: bool
) -> Int | None:
    """Return the numbers of the rows that are left out of a fit one by one, in increasing order;
    None means all rows.

    Args:
        n_rows: number of rows of the data
        rows: numbers of the rows of the fit, None for all
        most: maximum number of left-out rows, ``LEFT_OUT_ROWS`` by default
        shuffled: if True, take the last rows; otherwise draw one from each stratum
    """
    n = n_rows if rows is None else len(rows)
    most = most or LEFT_OUT_ROWS
    if n <= most:
        return rows
    if shuffled:
        places = np.arange(n - most, n)
    else:
        edges = np.arange(most + 1, dtype=np.int64) * n // most
        draws = uniform(edges[:-1], draw_key(0, Purpose.LEFT_OUT_ROWS))
        places = edges[:-1] + np.floor(draws * np.diff(edges)).astype(np.int64)
    return places if rows is None else rows[places]


def folds_of(rows: Int, groups: Int | None = None) -> list[Int]:
    """Return the positions of rows (n,) in at most ``FOLDS`` folds, each spread over all rows, or
    over all ``groups``."""
    if groups is not None:
        return group_folds(groups, FOLDS)
    positions = np.arange(len(rows), dtype=np.int64)
    return [positions[start::FOLDS] for start in range(min(FOLDS, len(rows)))]


def level_folds(rows: Int) -> Int:
    """Return the fold (n,) of each row (n,), without which the effects of its levels are learned;
    it depends only on the row number."""
    draws: Float = uniform(rows, draw_key(0, Purpose.LEVEL_FOLDS))
    return np.floor(LEVEL_FOLDS * draws).astype(np.int64)


def tree_folds(rows: Int, groups: Int | None = None) -> Int:
    """Return the fold (n,) of each row (n,), without which boosted trees predict it.

    It depends only on the row number or, with ``groups`` (n,), on the group.
    """
    numbers = rows if groups is None else groups
    draws: Float = uniform(numbers, draw_key(0, Purpose.TREE_FOLDS))
    return np.floor(TREE_FOLDS * draws).astype(np.int64)


def correction_folds(n: int) -> list[Bool]:
    """Return masks (n,) of the folds of n left-out rows, without which a correction of class
    probabilities is learned; they are random, since rows may be in order."""
    draws: Float = uniform(np.arange(n), draw_key(0, Purpose.CORRECTION_FOLDS))
    numbers = np.floor(CORRECTION_FOLDS * draws)
    return [np.asarray(numbers == fold) for fold in range(CORRECTION_FOLDS)]


def level_halves(rows: Int, seed: int) -> list[Int]:
    """Return the positions of rows (n,) in two random halves, each of which evaluates level effects
    learned from the other."""
    return np.array_split(stream(seed, Purpose.LEVELS).permutation(len(rows)), 2)


def search_splits(order: Int, most: int, groups: Int | None = None) -> list[Split]:
    """Return the numbers of at most ``most`` rows for learning a kernel, and of rows for evaluating
    it: one split if there are many rows, folds if there are few.

    Args:
        order: row numbers in random order (n,), as ``new_groups_last`` arranges them
        most: maximum number of rows to learn from
        groups: the rows' groups (n,)
    """
    n = len(order)
    split = Split(order[:most], order[most : 3 * most])
    if groups is not None:
        split = _split_of_last(order, groups, most, 2 * most)
    if n >= most + SEARCH_ROWS and len(split.new) >= LEAST_SEARCH_ROWS:
        return [split]
    count = int(np.ceil(SEARCH_ROWS * SEARCH_FOLDS / n))
    if groups is None:
        folds = [order[first::SEARCH_FOLDS] for first in range(SEARCH_FOLDS)][:count]
    else:
        folds = [order[places] for places in group_folds(groups, SEARCH_FOLDS)[:count]]
    return [Split(np.setdiff1d(order, fold, assume_unique=True)[:most], fold) for fold in folds]


def equal_split(order: Int, most: int, groups: Int | None = None) -> Split:
    """Return the split of row numbers in random order (n,) into ``most`` rows for learning and at
    most as many for evaluation, of other ``groups`` (n,)."""
    if groups is not None:
        return _split_of_last(order, groups, most, most)
    return Split(order[:most], order[most : 2 * most])


def _split_of_last(order: Int, groups: Int, most: int, most_new: int) -> Split:
    """Return the split of rows whose last groups are left out.

    Args:
        order: row numbers (n,), as ``new_groups_last`` arranges them
        groups: the rows' groups (n,)
        most: maximum number of known rows
        most_new: maximum number of left-out rows
    """
    first = len(order) - max(int(LAST_SHARE * len(order)), 1)
    is_new = np.isin(groups, groups[first:])
    return Split(order[~is_new][:most], order[is_new][:most_new])


def new_groups_last(order: Int, groups: Int) -> Int:
    """Return row numbers in random order (n,) with all rows of some ``groups`` (n,) at the end: at
    least a fraction ``LAST_SHARE`` of the rows, so that the last rows can be left out by groups."""
    codes, first, counts = np.unique(groups, return_index=True, return_counts=True)
    by_appearance = np.argsort(-first)
    n_before = np.cumsum(counts[by_appearance]) - counts[by_appearance]
    is_last = n_before[:-1] < LAST_SHARE * len(order)
    last = np.isin(groups, codes[by_appearance[:-1][is_last]])
    return np.concatenate([order[~last], order[last]])


def keeps_nearly_all(n: int, most: int) -> bool:
    """Return whether ``most`` rows include nearly all learning rows of ``search_splits`` with n
    rows."""
    return (SEARCH_FOLDS - 1) * n <= SEARCH_FOLDS * most


def last_left_out(order: Int, most: int, share: float, groups: Int | None = None) -> Split:
    """Return the split of row numbers whose last rows are left out, at most this number and this
    fraction.

    Args:
        order: row numbers in random order (n,), as ``new_groups_last`` arranges them
        most: maximum number of left-out rows
        share: maximum fraction of left-out rows
        groups: the rows' groups (n,); known rows belong to other groups
    """
    first = len(order) - min(most, int(share * len(order)))
    known = order[:first]
    if groups is not None:
        known = known[~np.isin(groups[:first], groups[first:])]
    return Split(known, order[first:])


def compared_rows(n_rows: int, most: int, seed: int) -> Int:
    """Return the numbers of at most ``most`` random rows, in order, on which a finished model is
    compared with others."""
    return np.sort(stream(seed, Purpose.COMPARED_ROWS).permutation(n_rows)[:most])


def judging(rows: Int, groups: Int | None = None) -> Bool:
    """Return a mask (n,), True for rows on which a finished model is evaluated; its rivals learn
    from the others, which belong to other ``groups`` (n,)."""
    if groups is None:
        return np.asarray(np.arange(len(rows)) % EVERY == 0)
    is_new = np.zeros(len(rows), dtype=np.bool_)
    is_new[group_folds(groups, EVERY)[-1]] = True
    return is_new


def alternate_halves(rows: Int, groups: Int | None = None) -> list[Split]:
    """Return two splits of the positions of rows (n,), each of which learns from every other row,
    or from every other of the ``groups`` (n,)."""
    if groups is not None:
        even, odd = group_folds(groups, 2)
        return [Split(even, odd), Split(odd, even)]
    positions = np.arange(len(rows))
    even = positions[::2]
    odd = positions[1::2]
    return [Split(even, odd), Split(odd, even)]


def group_folds(groups: Int, most: int) -> list[Int]:
    """Return the positions of rows (n,) in at most ``most`` folds of whole groups, of similar
    sizes: each group, the largest first, joins the smallest fold."""
    codes, places, counts = np.unique(groups, return_inverse=True, return_counts=True)
    fold_of_group = np.zeros(len(codes), dtype=np.int64)
    sizes = [(0, fold) for fold in range(min(most, len(codes)))]
    for group in np.argsort(-counts, kind="stable").tolist():
        size, fold = heapq.heappop(sizes)
        fold_of_group[group] = fold
        heapq.heappush(sizes, (size + int(counts[group]), fold))
    fold_of_row = fold_of_group[places]
    return [np.flatnonzero(fold_of_row == fold) for fold in range(len(sizes))]
