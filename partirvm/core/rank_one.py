"""The posterior of the active ones among many candidate columns, updated as single columns join and leave.

G = ΦᵀΦ and b = Φᵀt of all K candidates are known, or a row of G once its column joins (``core.on_demand``); M of the
candidates are *active*. With Σ and μ of the active columns, and for all candidates

    S_k = βφ_kᵀφ_k − β²φ_kᵀΦΣΦᵀφ_k,      Q_k = βφ_kᵀ(t − Φμ)      (Tipping & Faul 2003, eqs. 24 and 25),

a change of one α changes Σ by a matrix of rank one, and μ, S and Q follow (their appendix): O(KM + M²) flops, limited
by memory bandwidth for M rows of G and Σ. No row of the data is read.

For an inactive candidate s = S and q = Q; for an active one s = 1/Σ_ii − α_i and q = μ_i/Σ_ii, which is more accurate
than computing them from S and Q (their eq. 23) when the data are much more informative than the prior.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, lapack

from partirvm.core.on_demand import OnDemand
from partirvm.core.posterior import Posterior, posterior
from partirvm.core.statistics import GramStatistics
from partirvm.core.updates import DEPENDENT, sparsity_quality

Float = NDArray[np.float64]
Int = NDArray[np.int64]

ROOM = 64
"""Number of columns that can join before arrays are enlarged."""


class ActiveColumns:
    """Mutable. ``columns`` (M,) are the positions of the active candidates, in order of joining.

    ``alpha``, ``mean``, ``variance`` (M,) belong to them, ``S`` and ``Q`` (K,) to all candidates. ``statistics`` of all
    K candidates (one target) must not be changed by the caller. ``refresh`` computes everything again.
    """

    def __init__(self, statistics: GramStatistics | OnDemand, columns: Int, alpha: Float, beta: float) -> None:
        K = statistics.n_columns
        self.statistics = statistics
        self.beta = beta
        self.diagonal: Float = statistics.diagonal
        self.place: Int = np.full(K, -1)
        self._columns: Int = np.array(columns, dtype=np.int64)
        self._alpha: Float = np.array(alpha, dtype=np.float64)
        self._mean: Float = np.zeros(len(columns))
        self._rows: Float = np.empty((len(columns), K))
        self._Sigma: Float = np.zeros((len(columns), len(columns)), order="F")
        for i, column in enumerate(self._columns):
            self._rows[i] = statistics.row(column)
        self.place[self._columns] = np.arange(len(columns))
        self.M = len(columns)
        self.posterior: Posterior = self._anew(beta)

    @property
    def columns(self) -> Int:
        """Positions of the active candidates (M,)."""
        return self._columns[: self.M]

    @property
    def alpha(self) -> Float:
        """α of the active candidates (M,)."""
        return self._alpha[: self.M]

    @property
    def mean(self) -> Float:
        """μ (M,)."""
        return self._mean[: self.M]

    @property
    def variance(self) -> Float:
        """The diagonal of Σ (M,)."""
        return self._Sigma.diagonal()[: self.M]

    def refresh(self, beta: float) -> Posterior:
        """Compute everything again at this β: one Cholesky factorisation, 2M³ + KM² flops."""
        del self.posterior  # free it before its replacement is computed
        self.posterior = self._anew(beta)
        return self.posterior

    def _anew(self, beta: float) -> Posterior:
        self.beta, M, room = beta, self.M, len(self._Sigma)
        del self._Sigma  # free it, too
        back = self.statistics.offset.copy()
        back[self.columns] = 0.0
        if isinstance(self.statistics, GramStatistics) and back.any():
            self.statistics = self.statistics.shift(-back)
        found = posterior(self.statistics.take(self.columns), self.alpha, beta)
        self._Sigma = np.zeros((room, room), order="F")
        if M:
            inverse, Sigma = lapack.dpotri(found.factor, lower=1)[0], self._Sigma[:M, :M]
            np.add(inverse, inverse.T, out=Sigma)  # the other triangle is zero
            np.fill_diagonal(Sigma, np.diagonal(inverse))
            del inverse
            Sigma *= found.scale
            Sigma *= found.scale[:, None]
        self._mean[:M] = found.mean
        offset, projection = self.statistics.offset[self.columns, 0], self.statistics.projection[:, 0]
        self.S, self.Q = sparsity_quality(found, beta, offset, self._rows[:M], self.diagonal, projection)
        return found

    def clear(self) -> None:
        """Free the arrays needed for actions, M × K and M × M, when they are over."""
        self._rows, self._Sigma = self._rows[:0, :0].copy(), self._Sigma[:0, :0].copy()

    def add(self, column: int, alpha: float, likely: tuple[Int, Float] | None = None) -> None:
        """Activate a candidate at this α; ``likely`` are candidates that may come next, and their promised gains."""
        if len(self._rows) == self.M:
            self._grow()
        M, beta = self.M, self.beta
        tied = np.zeros(len(self._rows))
        tied[:M] = beta * (self._Sigma[:M, :M] @ self._rows[:M, column])
        row = self.statistics.row(column, likely)
        change = beta * (row - tied[:M] @ self._rows[:M])
        variance = 1.0 / (alpha + self.S[column])
        mean = variance * self.Q[column]
        self.S -= variance * change**2
        self.Q -= mean * change
        self._mean[:M] -= mean * tied[:M]
        self._mean[M], self._alpha[M], self._columns[M], self._rows[M] = mean, alpha, column, row
        self.place[column] = M
        self.M += 1
        tied[M] = -1.0
        self._add_outer(variance, tied)

    def change(self, column: int, alpha: float) -> None:
        """Change the α of an active candidate."""
        i = self.place[column]
        change = alpha - self._alpha[i]
        self._scale(i, change / (1.0 + change * self._Sigma[i, i]))
        self._alpha[i] = alpha

    def delete(self, column: int) -> None:
        """Deactivate a candidate; the last one moves to its position."""
        i, last = int(self.place[column]), self.M - 1
        self._scale(i, 1.0 / self._Sigma[i, i])
        Sigma = self._Sigma
        if i != last:
            self._rows[i] = self._rows[last]
            Sigma[:, i] = Sigma[:, last]
            Sigma[i, :] = Sigma[last, :]
            Sigma[i, i] = Sigma[last, last]
            for each in (self._mean, self._alpha, self._columns):
                each[i] = each[last]
            self.place[self._columns[i]] = i
        Sigma[last, :] = 0.0
        Sigma[:, last] = 0.0
        self.place[column] = -1
        self.M = last

    def sparsity_and_quality(self) -> tuple[Float, Float]:
        """s and q of all candidates (K,), as if each were not active."""
        s, q = np.maximum(self.S, 0.0), self.Q.copy()
        s[self.columns], q[self.columns] = self.own_factors()
        return s, q

    def own_factors(self) -> tuple[Float, Float]:
        """s and q of the active candidates (M,)."""
        precision = 1.0 / self.variance
        return np.maximum(precision - self.alpha, 0.0), self.mean * precision

    def now(self) -> Posterior:
        """The last posterior with current mean, variance, γ and residual; its factor and evidence are not updated."""
        gamma = np.clip(1.0 - self.alpha * self.variance, 0.0, 1.0)
        return replace(
            self.posterior,
            mean=self.mean.copy(),
            variance=self.variance.copy(),
            determinedness=gamma,
            residual=self._residual(),
        )

    def drift(self) -> float:
        """Largest difference of Q from αμ over the active columns (zero in exact arithmetic), in units of √S."""
        if not self.M:
            return 0.0
        off = np.abs(self.Q[self.columns] - self.alpha * self.mean)
        least = DEPENDENT * self.beta * self.diagonal[self.columns]
        return float(np.max(off / np.sqrt(np.maximum(self.S[self.columns], least))))

    def _residual(self) -> float:
        """‖t − Φμ‖² from β(b − Gδ) = Q, which is αμ for active columns."""
        delta, quality = -self.statistics.offset[:, 0], self.Q.copy()
        delta[self.columns] += self.mean
        quality[self.columns] = self.alpha * self.mean
        return float(self.statistics.sum_squares[0] - delta @ (self.statistics.projection[:, 0] + quality / self.beta))

    def _scale(self, i: int, kappa: float) -> None:
        """Σ −= κΣ_iΣ_iᵀ, and the resulting updates."""
        column = self._Sigma[:, i].copy()
        change = self.beta * (column[: self.M] @ self._rows[: self.M])
        mean = kappa * self._mean[i]
        self.S += kappa * change**2
        self.Q += mean * change
        self._mean[: self.M] -= mean * column[: self.M]
        self._add_outer(-kappa, column)

    def _add_outer(self, factor: float, x: Float) -> None:
        """Σ += factor·xxᵀ in place; x is zero beyond M."""
        blas.dger(factor, x, x[: self.M], a=self._Sigma[:, : self.M], overwrite_a=1)

    def _grow(self) -> None:
        M, room = self.M, self.M + ROOM
        rows = np.empty((room, self._rows.shape[1]))
        rows[:M] = self._rows
        self._rows = rows
        Sigma = np.zeros((room, room), order="F")
        Sigma[:M, :M] = self._Sigma
        self._Sigma = Sigma
        self._mean, self._alpha = np.resize(self._mean, room), np.resize(self._alpha, room)
        self._columns = np.resize(self._columns, room)
