"""Statistics of deleted rows, for updates without the old data (online learning).

Let K be the number of columns of the model when the rows were deleted. The Gram matrix G = Φ_KᵀWΦ_K, the projection
Φ_KᵀWt and the target sum of squares of these columns over the deleted rows are stored, and are exact. The values of a
new column at the deleted rows are unknown. These values are approximated by the linear combination Φ_K b of the K
columns that fits the new column best. B (K, M) holds the coefficients of all M columns of a design. A column that is
one of the K columns has a unit vector as coefficients. The statistics over the deleted rows are then

    ΦᵀWΦ = BᵀGB,        ΦᵀW(t − Φm) = Bᵀ(Φ_KᵀWt − G B m).

These are valid statistics of rows at which new columns equal Φ_K b. So for any B, the sum with the statistics of the
available rows is positive semidefinite, and no residual is negative. If a new column would change the old function
within the span of the K columns, the evidence decreases accordingly. The part of a new column that is orthogonal to
the K columns is determined by the available rows only.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from partirvm.core.residuals import ResidualStatistics
from partirvm.core.statistics import CrossBlock, GramBlock, GramStatistics

Float = NDArray[np.float64]
Int = NDArray[np.int64]


@dataclass(frozen=True)
class PastStatistics:
    """Statistics of K columns over deleted rows, for the target without an offset."""

    statistics: GramStatistics

    def block(self, kept: Float, new: Float, offset: Float) -> GramBlock:
        """Return the ``GramBlock`` of new and kept columns with the coefficients ``new`` (K, P) and ``kept`` (K, M)."""
        projection, sum_squares = self._left(new, kept @ offset)
        gram, rows = self.statistics.gram @ new, self.statistics
        return GramBlock(kept.T @ gram, new.T @ gram, projection, sum_squares, rows.n, rows.log_weight)

    def cross(self, kept: Float, new: Float, offset: Float) -> CrossBlock:
        """Return the ``CrossBlock`` of columns with the coefficients ``new`` (K, P), on trial, and ``kept`` (K, M)."""
        whole = self.block(kept, new, offset)
        return CrossBlock(whole.cross, np.diagonal(whole.gram).copy(), whole.projection, whole.n)

    def residual(self, columns: Float, mean: Float, found: ResidualStatistics) -> ResidualStatistics:
        """Add to ``found`` the residuals of the mean (M, T) of columns with these coefficients (K, M)."""
        projection, sum_squares = self._left(columns, columns @ mean)
        return replace(
            found,
            n=found.n + self.statistics.n,
            sum_squares=found.sum_squares + sum_squares,
            projection=found.projection + projection,
        )

    def through(self, columns: Float, labels: Int) -> PastStatistics:
        """Return the statistics of the same rows for M columns with these coefficients (K, M) and labels (M,)."""
        old = self.statistics
        if not old.n:
            return PastStatistics(GramStatistics.empty(old.basis, old.n_targets))
        gram, projection = columns.T @ old.gram @ columns, columns.T @ old.projection
        return PastStatistics(
            replace(old, labels=labels, gram=gram, projection=projection, offset=np.zeros_like(projection))
        )

    def _left(self, columns: Float, mean: Float) -> tuple[Float, Float]:
        """Return projection (P, T) on these columns and sum of squares (T,) of the residual of ``mean`` (K, T)."""
        left = self.statistics.shift(mean)
        return columns.T @ left.projection, np.maximum(left.sum_squares, 0.0)
