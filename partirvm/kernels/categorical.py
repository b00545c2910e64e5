"""A kernel for categories: k(x, z) = exp(−Σ_j gamma_j [x_j ≠ z_j]).

Codes are only compared for equality, so a level that no centre has differs equally from all centres. Two standardised
codes are equal if and only if the codes are equal.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from partirvm.kernels.base import GROUP, by_groups, runs
from partirvm.kernels.widths import Widths

Float = NDArray[np.float64]


@dataclass(frozen=True)
class Categorical(Widths):
    """Kernel of categorical codes; combine it with ``OnColumns`` for data that also have numeric columns.

    Parameters
    ----------
    gamma : tuple of float
        Decrease of log k for a different level in each column: one number for all columns, or one per column. A column
        with gamma 0 is ignored.

    Examples
    --------
    >>> out = np.empty((2, 1))
    >>> Categorical((0.5, 1.0)).prepare(np.array([[3.0, 7.0]]))(np.array([[3.0, 7.0], [3.0, 8.0]]), out)
    >>> out[:, 0].round(3).tolist()
    [1.0, 0.368]
    """

    name = "categorical"
    local = True

    def prepare(self, centres: Float, origin: Float | None = None) -> PreparedCategorical:
        """Prepare the kernel for the centres (m, d); ``origin`` has no effect."""
        return PreparedCategorical(self, self.widths(centres.shape[1]), np.ascontiguousarray(centres.T))

    def diagonal(self, points: Float) -> Float:
        """Return k(x, x) = 1 for each point (n, d), shape (n,)."""
        return np.ones(len(points))


@dataclass(frozen=True)
class PreparedCategorical:
    """The kernel prepared for centres (d, m): one column of codes and one group of centres are evaluated at a time."""

    kernel: Categorical
    widths: Float
    centres: Float

    def __call__(self, points: Float, out: Float) -> None:
        """Write k(points, centres) into ``out`` (n, m)."""
        X, other, cost = np.ascontiguousarray(points.T), _flags(points), np.empty((GROUP, len(points)))

        def write(some: slice, work: Float) -> None:
            work[...] = 0.0
            for j in np.flatnonzero(self.widths):
                differ = np.not_equal(X[j], self.centres[j, some, None], out=other[: len(work)])
                work -= np.multiply(differ, self.widths[j], out=cost[: len(work)])
            np.exp(work, out=work)

        by_groups(out, write)

    def input_gradient(self, points: Float, values: Float, weights: Float) -> Float:
        """Return zeros (n, d): a category has no derivative."""
        return np.zeros(points.shape)

    def gradient(self, points: Float, values: Float, weights: Float) -> Float:
        """Return the weighted sum of ∂k/∂ log gamma_j = −k gamma_j [x_j ≠ z_j]."""
        X, other = np.ascontiguousarray(points.T), _flags(points)
        total = np.zeros(len(self.widths))
        for some in runs(self.centres.shape[1]):
            slopes = weights.T[some] * values.T[some]
            for j in np.flatnonzero(self.widths):
                differ = np.not_equal(X[j], self.centres[j, some, None], out=other[: len(slopes)])
                total[j] -= self.widths[j] * np.einsum("mn,mn->", slopes, differ)
        return self.kernel.shared(total)


def _flags(points: Float) -> NDArray[np.bool_]:
    return np.empty((GROUP, len(points)), dtype=np.bool_)
