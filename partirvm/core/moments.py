"""Column moments of the inputs and the targets as an additive statistic (Chan, Golub & LeVeque 1983, eq. 2.1).

Means and centred sums of squares are merged, and never raw sums of squares. So data in raw units (years, metres, cents)
lose no digits. The same pass finds non-finite values and the position of the first non-finite value.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from partirvm.types import power_of_two

Float = NDArray[np.float64]


@dataclass(frozen=True)
class ColumnMoments:
    """Count of rows, mean, centred sum of squares, minimum and maximum of each column.

    ``n`` is the number of rows. ``total`` is the sum of the row weights, which is ``n`` without weights. ``mean``,
    ``square``, ``minimum`` and ``maximum`` are float64 arrays (columns,). ``square`` is the centred sum of squares in
    units of ``unit``²; ``unit`` is 1 except for values too large or too small to be squared.
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
        if n == 0:
            zero = np.zeros(columns)
            return cls(0, 0.0, zero, zero, np.full(columns, np.inf), np.full(columns, -np.inf))
        minimum, maximum = values.min(axis=0), values.max(axis=0)
        unit = _unit(minimum, maximum)
        if (unit != 1).any():
            values = values / unit
        with np.errstate(all="ignore"):  # extreme weights are refused later, when their sum is checked
            total = float(n) if weights is None else float(weights.sum())
            mean = np.average(values, axis=0, weights=weights)
            deviations = values - mean
            square = np.einsum("ij,ij->j", deviations, deviations if weights is None else deviations * weights[:, None])
        # rounding must not take the mean of a huge constant from the constant
        return cls(n, total, np.clip(mean * unit, minimum, maximum), square, minimum, maximum)

    def __add__(self, other: ColumnMoments) -> ColumnMoments:
        if other.n == 0:
            return self
        if self.n == 0:
            return other
        total = self.total + other.total
        minimum, maximum = np.minimum(self.minimum, other.minimum), np.maximum(self.maximum, other.maximum)
        unit = _unit(minimum, maximum)
        mine, its = (self.unit / unit) ** 2, (other.unit / unit) ** 2
        mean = self.mean / unit
        with np.errstate(all="ignore"):
            difference = other.mean / unit - mean
            square = self.square * mine + other.square * its + difference**2 * (self.total * other.total / total)
            mean = np.clip((mean + difference * (other.total / total)) * unit, minimum, maximum)
        return ColumnMoments(self.n + other.n, total, mean, square, minimum, maximum)

    @property
    def unit(self) -> Float:
        """Unit of each column, (columns,): 1, or a power of two for values too large or too small to be squared."""
        return _unit(self.minimum, self.maximum)

    @property
    def largest(self) -> Float:
        """Largest absolute value of each column, (columns,)."""
        return np.maximum(np.abs(self.minimum), np.abs(self.maximum))

    @property
    def constant(self) -> NDArray[np.bool_]:
        """Array (columns,), True if the values of a column differ by at most one unit in the last place (rounding)."""
        with np.errstate(all="ignore"):
            return np.asarray((self.n > 0) & (self.maximum - self.minimum <= np.spacing(self.largest)))

    @property
    def variance(self) -> Float:
        """Variance with ddof 0 of each column, shape (columns,), in ``unit``²; exactly 0 for a constant column."""
        return np.where(self.constant, 0.0, self.square / max(self.total, np.finfo(float).tiny))

    @property
    def deviation(self) -> Float:
        """Standard deviation of each column, shape (columns,), in the data's units; exactly 0 for a constant column."""
        found: Float = np.sqrt(self.variance) * self.unit
        return found

    def variance_over(self, scale: Float) -> Float:
        """Return the variance of the values divided by ``scale``, (columns,)."""
        with np.errstate(over="ignore"):  # the scale of a constant column may be far from its unit
            found: Float = self.variance / np.maximum((scale / self.unit) ** 2, np.finfo(float).tiny)
        return found


def _unit(minimum: Float, maximum: Float) -> Float:
    return power_of_two(np.maximum(np.abs(minimum), np.abs(maximum)))


@dataclass(frozen=True)
class Moments:
    """Moments of X (d columns) and of t (T columns) over one set of rows, and the number of non-finite values.

    ``bad`` counts non-finite values. ``first_bad`` is (row, column) of the first non-finite value, or None; columns are
    counted through X, then t, then the weights.
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
            bad = int(wrong.sum())
            row, column = np.argwhere(wrong)[0]
            first = (start + int(row), int(column))
            keep = ~wrong.any(axis=1)
            X, t, weights = X[keep], t[keep], None if weights is None else weights[keep]
        return cls(ColumnMoments.of(X, weights), ColumnMoments.of(t, weights), bad, first)

    def __add__(self, other: Moments) -> Moments:
        firsts = [first for first in (self.first_bad, other.first_bad) if first is not None]
        return Moments(
            self.inputs + other.inputs, self.targets + other.targets, self.bad + other.bad, min(firsts, default=None)
        )
