"""Statistics of deleted rows, for updates without the old data (online learning).

For rows that cannot be read any more, the Gram matrix G = Φ_KᵀWΦ_K, the projection Φ_KᵀWt and the target sum of squares
of the K columns kept then are exact. The values of a new column at these rows are unknown. They are approximated by the
linear combination Φ_K b of the K columns that fits the new column best. For a design whose columns have the
coefficients B (K, M), unit vectors for those that are among the K, the statistics over these rows are then

    ΦᵀWΦ = BᵀGB,        ΦᵀW(t − Φm) = Bᵀ(Φ_KᵀWt − G B m).

These are the statistics of possible rows, at which new columns equal Φ_K b. So together with the rows at hand they are
positive semidefinite, for any B; no residual can become negative, and the fit retains what it learned: a new column
that would change the old function, as far as the K columns can represent it, lowers the evidence accordingly. The part
of a new column that is orthogonal to the K columns is determined by the rows at hand only.
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
class Remembered:
    """Statistics of K columns over deleted rows, of the target itself (offset 0)."""

    statistics: GramStatistics

    def block(self, kept: Float, new: Float, offset: Float) -> GramBlock:
        """The ``GramBlock`` of columns with coefficients ``new`` (K, P) and kept ones ``kept`` (K, M)."""
        projection, sum_squares = self._left(new, kept @ offset)
        gram, rows = self.statistics.gram @ new, self.statistics
        return GramBlock(kept.T @ gram, new.T @ gram, projection, sum_squares, rows.n, rows.log_weight)

    def cross(self, kept: Float, new: Float, offset: Float) -> CrossBlock:
        """The ``CrossBlock`` of the same columns, on trial."""
        whole = self.block(kept, new, offset)
        return CrossBlock(whole.cross, np.diagonal(whole.gram).copy(), whole.projection, whole.n)

    def residual(self, columns: Float, mean: Float, found: ResidualStatistics) -> ResidualStatistics:
        """``found`` plus the residuals of the mean (M, T) of columns with these coefficients (K, M)."""
        projection, sum_squares = self._left(columns, columns @ mean)
        return replace(
            found,
            n=found.n + self.statistics.n,
            sum_squares=found.sum_squares + sum_squares,
            projection=found.projection + projection,
        )

    def through(self, columns: Float, labels: Int) -> Remembered:
        """The same rows, represented by M columns with these coefficients (K, M) and labels (M,)."""
        old = self.statistics
        if not old.n:
            return Remembered(GramStatistics.empty(old.basis, old.n_targets))
        gram, projection = columns.T @ old.gram @ columns, columns.T @ old.projection
        return Remembered(
            replace(old, labels=labels, gram=gram, projection=projection, offset=np.zeros_like(projection))
        )

    def _left(self, columns: Float, mean: Float) -> tuple[Float, Float]:
        """Projection (P, T) on these columns and sum of squares (T,) of the residual of ``mean`` (K, T)."""
        left = self.statistics.shift(mean)
        return columns.T @ left.projection, np.maximum(left.sum_squares, 0.0)
