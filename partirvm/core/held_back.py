"""Choice of left-out rows: everything that evaluates a model, a kernel or a map on rows that were
not used to learn it chooses these rows here.

Rows are given by their numbers in the source, so that changing this file alone would suffice to
leave out related rows together. Each function's docstring says whether it returns positions or
numbers.
"""

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

SEARCH_FOLDS = 5
"""Number of folds in which forms of a kernel are compared."""

SEARCH_ROWS = 400
"""Number of left-out rows after which a kernel search uses no further fold."""

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


def folds_of(rows: Int) -> list[Int]:
    """Return the positions of rows (n,) in at most ``FOLDS`` folds, each spread over all rows."""
    positions = np.arange(len(rows), dtype=np.int64)
    return [positions[start::FOLDS] for start in range(min(FOLDS, len(rows)))]


def level_folds(rows: Int) -> Int:
    """Return the fold (n,) of each row (n,), without which the effects of its levels are learned;
    it depends only on the row number."""
    draws: Float = uniform(rows, draw_key(0, Purpose.LEVEL_FOLDS))
    return np.floor(LEVEL_FOLDS * draws).astype(np.int64)


def level_halves(rows: Int, seed: int) -> list[Int]:
    """Return the positions of rows (n,) in two random halves, each of which evaluates level effects
    learned from the other."""
    return np.array_split(stream(seed, Purpose.LEVELS).permutation(len(rows)), 2)


def search_splits(order: Int, most: int) -> list[Split]:
    """Return the numbers of at most ``most`` rows for learning a kernel, and of rows for evaluating
    it: one split if there are many rows, folds if there are few.

    Args:
        order: row numbers in random order (n,)
        most: maximum number of rows to learn from
    """
    n = len(order)
    if n >= most + SEARCH_ROWS:
        return [Split(order[:most], order[most : 3 * most])]
    count = int(np.ceil(SEARCH_ROWS * SEARCH_FOLDS / n))
    folds = [order[first::SEARCH_FOLDS] for first in range(SEARCH_FOLDS)][:count]
    return [Split(np.setdiff1d(order, fold, assume_unique=True)[:most], fold) for fold in folds]


def equal_split(order: Int, most: int) -> Split:
    """Return the split of row numbers in random order (n,) into ``most`` rows for learning and at
    most as many for evaluation."""
    return Split(order[:most], order[most : 2 * most])


def keeps_nearly_all(n: int, most: int) -> bool:
    """Return whether ``most`` rows include nearly all learning rows of ``search_splits`` with n
    rows."""
    return (SEARCH_FOLDS - 1) * n <= SEARCH_FOLDS * most


def last_left_out(order: Int, most: int, share: float) -> Split:
    """Return the split of row numbers in random order (n,) whose last rows are left out, at most
    this number and this fraction."""
    first = len(order) - min(most, int(share * len(order)))
    return Split(order[:first], order[first:])


def compared_rows(n_rows: int, most: int, seed: int) -> Int:
    """Return the numbers of at most ``most`` random rows, in order, on which a finished model is
    compared with others."""
    return np.sort(stream(seed, Purpose.COMPARED_ROWS).permutation(n_rows)[:most])


def judging(rows: Int) -> Bool:
    """Return a mask (n,), True for rows on which a finished model is evaluated; its rivals learn
    from the others."""
    return np.asarray(np.arange(len(rows)) % EVERY == 0)


def alternate_halves(rows: Int) -> list[Split]:
    """Return two splits of the positions of rows (n,), each of which learns from every other
    row."""
    positions = np.arange(len(rows))
    even = positions[::2]
    odd = positions[1::2]
    return [Split(even, odd), Split(odd, even)]
