"""Which rows are left out: everything that judges a model, a kernel or a map on rows that did not
teach it chooses these rows here.

Rows are given by their numbers in the source, so that rows that belong together can be left out
together by a change of this file alone. Results are positions or numbers, as each function says.
"""

from typing import NamedTuple

import numpy as np

from partirvm.core.sampling import Purpose, draw_key, stream, uniform
from partirvm.types import LEFT_OUT_ROWS, Bool, Float, Int

FOLDS = 10
"""Number of folds of a fit: with a tenth of the rows left out, the others still have nearly all
neighbours."""

LEVEL_FOLDS = 8
"""Number of folds of levels: an effect that a training row sees lacks an eighth of its level's
rows."""

SEARCH_FOLDS = 5
"""Number of folds in which forms of a kernel are compared."""

SEARCH_ROWS = 400
"""Number of left-out rows of a kernel search after which no fold follows."""

EVERY = 5
"""One of so many rows judges a finished model."""


class Split(NamedTuple):
    """Numbers of rows, or their positions.

    Attributes:
        known: rows that teach (n,)
        new: left-out rows (m,)
    """

    known: Int
    new: Int


def sampled_rows(
    n_rows: int, rows: Int | None = None, most: int | None = None, *, shuffled: bool
) -> Int | None:
    """Return the numbers of the rows that are left out of a fit one by one, in order; None stands
    for all rows.

    Args:
        n_rows: number of rows of the data
        rows: numbers of the rows of the fit, None for all
        most: maximum number of left-out rows, ``LEFT_OUT_ROWS`` by default
        shuffled: True takes the last rows, otherwise one is drawn from each stratum
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
    """Return the fold (n,) of rows (n,), without which the effects of their levels are learned; it
    depends on the number of a row alone."""
    draws: Float = uniform(rows, draw_key(0, Purpose.LEVEL_FOLDS))
    return np.floor(LEVEL_FOLDS * draws).astype(np.int64)


def level_halves(rows: Int, seed: int) -> list[Int]:
    """Return the positions of rows (n,) in two random halves, of which each judges effects of
    levels that the other teaches."""
    return np.array_split(stream(seed, Purpose.LEVELS).permutation(len(rows)), 2)


def search_splits(order: Int, most: int) -> list[Split]:
    """Return the numbers of at most ``most`` rows that teach a kernel, and of rows that judge it:
    one split if there are many rows, folds if few.

    Args:
        order: row numbers in random order (n,)
        most: maximum number of rows that teach
    """
    n = len(order)
    if n >= most + SEARCH_ROWS:
        return [Split(order[:most], order[most : 3 * most])]
    count = int(np.ceil(SEARCH_ROWS * SEARCH_FOLDS / n))
    folds = [order[first::SEARCH_FOLDS] for first in range(SEARCH_FOLDS)][:count]
    return [Split(np.setdiff1d(order, fold, assume_unique=True)[:most], fold) for fold in folds]


def equal_split(order: Int, most: int) -> Split:
    """Return the split of row numbers in random order (n,) in which ``most`` rows teach, and at
    most as many judge."""
    return Split(order[:most], order[most : 2 * most])


def keeps_nearly_all(n: int, most: int) -> bool:
    """Return whether ``most`` rows are nearly all of n rows that teach in ``search_splits``."""
    return (SEARCH_FOLDS - 1) * n <= SEARCH_FOLDS * most


def last_left_out(order: Int, most: int, share: float) -> Split:
    """Return the split of row numbers in random order (n,) whose last rows are left out, at most
    this number and share."""
    first = len(order) - min(most, int(share * len(order)))
    return Split(order[:first], order[first:])


def compared_rows(n_rows: int, most: int, seed: int) -> Int:
    """Return the numbers of at most ``most`` random rows, in order, on which a finished model is
    compared with others."""
    return np.sort(stream(seed, Purpose.COMPARED_ROWS).permutation(n_rows)[:most])


def judging(rows: Int) -> Bool:
    """Return the mask (n,) of those of rows (n,) that judge a finished model; the others teach its
    rivals."""
    return np.asarray(np.arange(len(rows)) % EVERY == 0)


def alternate_halves(rows: Int) -> list[Split]:
    """Return two splits of the positions of rows (n,), of which each has every other row."""
    positions = np.arange(len(rows))
    even = positions[::2]
    odd = positions[1::2]
    return [Split(even, odd), Split(odd, even)]
