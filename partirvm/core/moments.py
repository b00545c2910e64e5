"""What is known of the columns of a table: their moments, and non-finite values.

Means and centred sums of squares are merged (Chan, Golub & LeVeque 1983, eq. 2.1), and never raw sums of squares, so
that data in raw units lose no digits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from partirvm.errors import DataError
from partirvm.types import Bool, Float


@dataclass(frozen=True)
class ColumnMoments:
    """Count of rows, mean, centred sum of squares, minimum and maximum of each column.

    ``n`` counts rows of positive weight, ``total`` sums the row weights. The others are float64 arrays (columns,).
    """

    n: int
    total: float
    mean: Float
    square: Float
    minimum: Float
    maximum: Float

    @classmethod
    def of(cls, values: Float, weights: Float | None = None) -> ColumnMoments:
        """Return moments of ``values`` (rows, columns), with precision weights (rows,); weight zero excludes a row."""
        if weights is not None:
            present = weights > 0
            if not present.all():
                values, weights = values[present], weights[present]
        n, columns = values.shape
        if values.size == 0:
            zero = np.zeros(columns)
            return cls(0, 0.0, zero, zero, np.full(columns, np.inf), np.full(columns, -np.inf))
        minimum, maximum = values.min(axis=0), values.max(axis=0)
        with np.errstate(all="ignore"):  # extreme values and weights are refused later
            total = float(n) if weights is None else float(weights.sum())
            mean = np.average(values, axis=0, weights=weights)
            deviations = values - mean
            square = np.einsum("ij,ij->j", deviations, deviations if weights is None else deviations * weights[:, None])
        # rounding must not take the mean of a huge constant from the constant
        return cls(n, total, np.clip(mean, minimum, maximum), square, minimum, maximum)

    def __add__(self, other: ColumnMoments) -> ColumnMoments:
        if not (self.n and other.n):
            return self if self.n else other
        total = self.total + other.total
        minimum, maximum = np.minimum(self.minimum, other.minimum), np.maximum(self.maximum, other.maximum)
        with np.errstate(all="ignore"):
            difference = other.mean - self.mean
            square = self.square + other.square + difference**2 * (self.total * other.total / total)
            mean = np.clip(self.mean + difference * (other.total / total), minimum, maximum)
        return ColumnMoments(self.n + other.n, total, mean, square, minimum, maximum)

    @property
    def largest(self) -> Float:
        """Largest absolute value of each column, (columns,)."""
        return np.maximum(np.abs(self.minimum), np.abs(self.maximum))

    @property
    def constant(self) -> Bool:
        """Array (columns,), True if the values of a column differ by at most one unit in the last place (rounding)."""
        with np.errstate(all="ignore"):
            return np.asarray((self.n > 0) & (self.maximum - self.minimum <= np.spacing(self.largest)))

    @property
    def variance(self) -> Float:
        """Variance with ddof 0 of each column, shape (columns,); exactly 0 for a constant column."""
        return np.where(self.constant, 0.0, self.square / max(self.total, np.finfo(float).tiny))

    @property
    def deviation(self) -> Float:
        """Standard deviation of each column, shape (columns,), in the data's units; exactly 0 for a constant column."""
        return np.sqrt(self.variance)


@dataclass(frozen=True)
class Moments:
    """Moments of X (d columns) and t (T columns) over one set of rows, and the number ``bad`` of non-finite values.

    ``first_bad`` is (row, column) of the first one, or None; columns are counted through X, then t, then the weights.
    """

    inputs: ColumnMoments
    targets: ColumnMoments
    bad: int = 0
    first_bad: tuple[int, int] | None = None

    @classmethod
    def of(cls, X: Float, t: Float, weights: Float | None = None, start: int = 0) -> Moments:
        """Return moments of a tile: X (rows, d), t (rows, T), weights (rows,). ``start`` is the first row's number."""
        columns = [X, t] if weights is None else [X, t, weights[:, None]]
        bad, first = 0, None
        if not all(np.isfinite(block).all() for block in columns):
            wrong = ~np.isfinite(np.hstack(columns))
            row, column = np.argwhere(wrong)[0]
            bad, first, keep = int(wrong.sum()), (start + int(row), int(column)), ~wrong.any(axis=1)
            X, t, weights = X[keep], t[keep], None if weights is None else weights[keep]
        return cls(ColumnMoments.of(X, weights), ColumnMoments.of(t, weights), bad, first)

    def __add__(self, other: Moments) -> Moments:
        firsts = [first for first in (self.first_bad, other.first_bad) if first is not None]
        inputs, targets = self.inputs + other.inputs, self.targets + other.targets
        return Moments(inputs, targets, self.bad + other.bad, min(firsts, default=None))


def refuse_masked(values: Any, name: str) -> None:
    """Raise ``DataError`` if a NumPy array has masked values, which a conversion to float64 would include."""
    if np.ma.is_masked(values):
        raise DataError(f"{name} has masked values: leave these rows out, or impute the values.")
