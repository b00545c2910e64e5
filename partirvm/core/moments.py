"""Column statistics of a table: moments, and non-finite values.

Means and centred sums of squares are merged (Chan, Golub & LeVeque 1983, eq. 2.1), never raw sums
of squares, so that data in raw units lose no digits.
"""

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from partirvm.errors import DataError
from partirvm.types import Bool, Float, Int

TINY = np.finfo(float).tiny


@dataclass(frozen=True)
class ColumnMoments:
    """Moments of columns over the rows that have a value.

    Attributes:
        n: number of rows with positive weight
        missing: number of these rows without a value (NaN), int64 (columns,)
        total: sum of the weights of the rows with a value (columns,)
        mean: (columns,)
        square: centred sum of squares (columns,)
        minimum: (columns,)
        maximum: (columns,)
    """

    n: int
    missing: Int
    total: Float
    mean: Float
    square: Float
    minimum: Float
    maximum: Float

    @classmethod
    def of(cls, values: Float, weights: Float | None = None) -> Self:
        """Return moments of ``values`` (rows, columns), with precision weights (rows,); weight zero
        excludes a row."""
        if weights is not None and not (weights > 0).all():
            values = values[weights > 0]
            weights = weights[weights > 0]
        n = len(values)
        absent = np.isnan(values)
        minimum = np.fmin.reduce(values, axis=0, initial=np.inf)
        maximum = np.fmax.reduce(values, axis=0, initial=-np.inf)
        shares = np.where(absent, 0.0, 1.0 if weights is None else weights[:, None])
        if absent.any():
            values = np.where(absent, 0.0, values)
        with np.errstate(all="ignore"):  # extreme values and weights are rejected later
            total = shares.sum(axis=0)
            mean = _within(
                (values * shares).sum(axis=0) / np.maximum(total, TINY), minimum, maximum
            )
            square = np.einsum("ij,ij->j", (values - mean) * shares, values - mean)
        return cls(n, absent.sum(axis=0), total, mean, square, minimum, maximum)

    def __add__(self, other: Self) -> Self:
        if not (self.n and other.n):
            return self if self.n else other
        total = self.total + other.total
        missing = self.missing + other.missing
        minimum = np.minimum(self.minimum, other.minimum)
        maximum = np.maximum(self.maximum, other.maximum)
        with np.errstate(all="ignore"):
            difference = other.mean - self.mean
            whole = np.maximum(total, TINY)
            square = self.square + other.square + difference**2 * (self.total * other.total / whole)
            mean = _within(self.mean + difference * (other.total / whole), minimum, maximum)
        return type(self)(self.n + other.n, missing, total, mean, square, minimum, maximum)

    @property
    def largest(self) -> Float:
        """Largest absolute value of each column, (columns,)."""
        return np.maximum(np.abs(self.minimum), np.abs(self.maximum))

    @property
    def constant(self) -> Bool:
        """Mask (columns,), True where a column's values differ by at most one unit in the last
        place (rounding)."""
        with np.errstate(all="ignore"):
            return (self.total > 0) & (self.maximum - self.minimum <= np.spacing(self.largest))

    @property
    def variance(self) -> Float:
        """Variance with ddof 0 of each column, shape (columns,); exactly 0 for a constant
        column."""
        return np.where(self.constant, 0.0, self.square / np.maximum(self.total, TINY))

    @property
    def deviation(self) -> Float:
        """Standard deviation of each column, shape (columns,), in the data's units; exactly 0 for a
        constant column."""
        return np.sqrt(self.variance)


@dataclass(frozen=True)
class Moments:
    """Moments of X (d columns) and t (T columns) over one set of rows.

    Attributes:
        inputs: moments of X
        targets: moments of t
        bad: number of unusable values: infinite ones, and NaN in t or the weights
        first_bad: row and column of the first unusable value, or None; columns are numbered across
            X, then t, then the weights
    """

    inputs: ColumnMoments
    targets: ColumnMoments
    bad: int = 0
    first_bad: tuple[int, int] | None = None

    @classmethod
    def of(cls, X: Float, t: Float, weights: Float | None = None, start: int = 0) -> Self:
        """Return the moments of a tile.

        Args:
            X: inputs (n, d)
            t: targets (n, T)
            weights: row weights (n,)
            start: number of the first row
        """
        wrong = [np.isinf(X), ~np.isfinite(t)]
        if weights is not None:
            wrong.append(~np.isfinite(weights[:, None]))
        unusable = np.hstack(wrong)
        bad = int(unusable.sum())
        first = None
        if bad:
            row, column = np.argwhere(unusable)[0]
            first = (start + int(row), int(column))
            usable = ~unusable.any(axis=1)
            X = X[usable]
            t = t[usable]
            weights = None if weights is None else weights[usable]
        return cls(ColumnMoments.of(X, weights), ColumnMoments.of(t, weights), bad, first)

    def __add__(self, other: Self) -> Self:
        firsts = [first for first in (self.first_bad, other.first_bad) if first is not None]
        inputs = self.inputs + other.inputs
        targets = self.targets + other.targets
        return type(self)(inputs, targets, self.bad + other.bad, min(firsts, default=None))


def _within(mean: Float, minimum: Float, maximum: Float) -> Float:
    """Return means clipped to the columns' ranges, which rounding of a huge constant can exceed; 0
    for a column without values."""
    return np.where(minimum <= maximum, np.clip(mean, minimum, maximum), 0.0)


def refuse_masked(values: Any, name: str) -> None:
    """Raise ``DataError`` for masked values, which a conversion would include, and for SciPy sparse
    arrays."""
    if np.ma.is_masked(values):
        raise DataError(f"{name} has masked values: leave these rows out, or impute the values.")
    if hasattr(values, "nnz") and hasattr(values, "toarray"):
        size = 8 * math.prod(values.shape) / 2**20
        raise DataError(
            f"{name} is a sparse array: pass {name}.toarray(), which takes {size:,.2f} MiB in "
            "float64."
        )
