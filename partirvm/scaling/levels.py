"""Codes of categorical levels, which can include the fold that was left out to learn an effect."""

import numpy as np

from partirvm.types import Float, Int

FOLD = 1 / 64
"""A training row of fold f has the level code c + (f + 1)·``FOLD``: its level's effect is learned
without this fold."""


def levels_of(codes: Float, count: int) -> Int:
    """Return the levels (n,) of a feature's codes; ``count`` + 1 for missing codes and for all
    other numbers, such as ``count`` + 1 with a fold."""
    codes = codes.real
    is_known = (codes >= 0) & (codes < count)
    return np.where(is_known, codes, count + 1).astype(np.int64)


def blocks_of(codes: Float, count: int) -> Int:
    """Return which of a table's ``count`` blocks applies to each code (n,): 0, or 1 + fold for a
    code with a fold."""
    fractions = np.nan_to_num(np.mod(codes.real, 1.0))
    blocks = np.rint(fractions / FOLD)
    return np.where(blocks < count, blocks, 0).astype(np.int64)


def known_levels(table: Float) -> int:
    """Return the number L of known levels of a table (B, L + 2, …)."""
    return int(table.shape[1]) - 2


def of_levels(table: Float, codes: Float) -> Float:
    """Return the elements of a table (B, L + 2, …) for a feature's codes (n,), with shape (n,
    …)."""
    blocks = blocks_of(codes, len(table))
    levels = levels_of(codes, known_levels(table))
    return table[blocks, levels]


def with_folds(codes: Float, count: int, folds: Int) -> Float:
    """Return the codes (n,) of a feature with ``count`` levels in training rows of these folds
    (n,)."""
    levels = np.where(np.isnan(codes), count + 1.0, np.floor(codes))
    return np.asarray(levels + FOLD * (1.0 + folds))


def without_folds(codes: Float, count: int) -> Float:
    """Return the codes (n,) of training rows as they were before ``with_folds``."""
    is_missing = levels_of(codes, count) == count + 1
    return np.where(is_missing, np.nan, np.floor(codes))


def level_functions(X: Float, numbers: Int, moments: Float, p: int) -> Float:
    """Return p functions (n, p) of g numeric features: 1 and, for each feature z, cos πu, cos 2πu
    and so on.

    z = (x − mean)/deviation is within ±4, and 0 for a gap; u = (1 + tanh .8z)/2 is roughly its
    quantile.

    Args:
        X: rows (n, d)
        numbers: column numbers of the features (g,)
        moments: means and standard deviations of the features (2, g)
        p: number of functions, 1 plus a multiple of g
    """
    means, deviations = moments
    z = (X[:, numbers] - means) / deviations
    z = np.nan_to_num(np.clip(z, -4.0, 4.0))
    quantiles = 0.5 + 0.5 * np.tanh(0.8 * z)
    functions = [np.ones((len(X), 1))]
    if p > 1:
        functions.append(z)
    count = (p - 1) // max(len(numbers), 1)
    functions += [np.cos(np.pi * k * quantiles) for k in range(1, count)]
    return np.concatenate(functions, axis=1)
