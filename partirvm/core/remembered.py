"""Rows that are gone, and are remembered by the statistics of the columns that were kept while they were there.

K columns' Gram matrix G = Φ_KᵀWΦ_K, projection Φ_KᵀWt and energy of rows that cannot be read any more are exact, and
stay so. Of a column that comes later nobody knows what it was at these rows. It is taken to have been there what the K
columns make of it, Φ_K b with the coefficients b of its best approximation by them. A design whose columns have the
coefficients B (K, M), unit vectors for those of the K that it holds, then has over these rows

    ΦᵀWΦ = BᵀGB,        ΦᵀW(t − Φm) = Bᵀ(Φ_KᵀWt − G B m).

These are the statistics of rows that could have been: ones at which new columns are Φ_K b. So together with the rows at
hand they are positive semidefinite with their targets, whatever B is; no residual can become negative, and a fit cannot
forget: what a new column would change of the old function, as far as the K columns can tell it, is paid for in full.
What they cannot tell, the part of the column that is orthogonal to them, is seen only at the rows at hand.
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
    """Statistics of K columns over rows that are gone, of the target itself (offset 0)."""

    statistics: GramStatistics

    def block(self, kept: Float, new: Float, offset: Float) -> GramBlock:
        """What columns of coefficients ``new`` (K, P) add to those of ``kept`` (K, M), as a gram pass would."""
        projection, energy = self._left(new, kept @ offset)
        gram, rows = self.statistics.gram @ new, self.statistics
        return GramBlock(kept.T @ gram, new.T @ gram, projection, energy, rows.n, rows.log_weight)

    def cross(self, kept: Float, new: Float, offset: Float) -> CrossBlock:
        """The same for columns on trial."""
        whole = self.block(kept, new, offset)
        return CrossBlock(whole.cross, np.diagonal(whole.gram).copy(), whole.projection, whole.n)

    def residual(self, columns: Float, mean: Float, found: ResidualStatistics) -> ResidualStatistics:
        """``found`` and what the mean (M, T) of columns with these coefficients (K, M) leaves over these rows."""
        projection, energy = self._left(columns, columns @ mean)
        return replace(
            found,
            n=found.n + self.statistics.n,
            energy=found.energy + energy,
            projection=found.projection + projection,
        )

    def through(self, columns: Float, labels: Int) -> Remembered:
        """The same rows, remembered by M columns of these coefficients (K, M), labels (M,)."""
        old = self.statistics
        if not old.n:
            return Remembered(GramStatistics.empty(old.basis, old.n_targets))
        gram, projection = columns.T @ old.gram @ columns, columns.T @ old.projection
        return Remembered(
            replace(old, labels=labels, gram=gram, projection=projection, offset=np.zeros_like(projection))
        )

    def _left(self, columns: Float, mean: Float) -> tuple[Float, Float]:
        """Projection (P, T) on these columns, and energy (T,), of what ``mean`` (K, T) leaves of the target."""
        left = self.statistics.shift(mean)
        return columns.T @ left.projection, np.maximum(left.energy, 0.0)
