"""Codes of levels of categorical features, with the fold without which an effect was learned."""

import numpy as np

from partirvm.types import Float, Int

FOLD = 1 / 64
"""A training row of fold f has the level code c + (f + 1)·``FOLD``: its level's effect is learned
without the fold."""


def levels_of(codes: Float, count: int) -> Int:
    """Return the levels (n,) of a feature's codes; ``count`` for unknown codes, ``count`` + 1 for
    missing ones.

    A missing code is NaN, or ``count`` + 1 with a fold.
    """
    codes = codes.real
    known = (codes >= 0) & (codes < count)
    missing = np.isnan(codes) | ((np.floor(codes) == count + 1) & (codes > count + 1))
    return np.where(missing, count + 1, np.where(known, codes, count)).astype(np.int64)


def blocks_of(codes: Float, count: int) -> Int:
    """Return which of ``count`` blocks of a table applies to codes (n,): 0, or 1 + fold for a code
    with a fold."""
    blocks = np.rint(np.nan_to_num(np.mod(codes.real, 1.0)) / FOLD)
    return np.where(blocks < count, blocks, 0).astype(np.int64)


def of_levels(table: Float, codes: Float) -> Float:
    """Return the elements of a table (B, L + 2, …) for a feature's codes (n,), with shape (n,
    …)."""
    n_blocks, n_levels = table.shape[:2]
    return table[blocks_of(codes, n_blocks), levels_of(codes, n_levels - 2)]


def with_folds(codes: Float, count: int, folds: Int) -> Float:
    """Return the codes (n,) of a feature with ``count`` levels in training rows of these folds
    (n,)."""
    return np.asarray(
        np.where(np.isnan(codes), count + 1.0, np.floor(codes)) + FOLD * (1.0 + folds)
    )


def without_folds(codes: Float, count: int) -> Float:
    """Return the codes (n,) of training rows as they were before ``with_folds``."""
    return np.where(levels_of(codes, count) == count + 1, np.nan, np.floor(codes))


def level_functions(X: Float, numbers: Int, moments: Float, p: int) -> Float:
    """Return p functions (n, p) of g numeric features: 1 and, for each z, cos πu, cos 2πu and
    so on.

    z = (x − mean)/deviation is within ±4, a gap 0; u = (1 + tanh .8z)/2 is about its quantile.

    Args:
        X: rows (n, d)
        numbers: column numbers of the features (g,)
        moments: means and deviations of the features (2, g)
        p: number of functions, 1 plus a multiple of g
    """
    z = np.nan_to_num(np.clip((X[:, numbers] - moments[0]) / moments[1], -4.0, 4.0))
    quantile = 0.5 + 0.5 * np.tanh(0.8 * z)
    curves = [
        np.cos(np.pi * k * quantile) if k else z for k in range((p - 1) // max(len(numbers), 1))
    ]
    return np.concatenate([np.ones((len(X), 1)), *curves], axis=1)
