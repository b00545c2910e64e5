"""The posterior of the active columns among many candidates, updated when a single column joins or leaves.

G = ΦᵀΦ and b = Φᵀt of all K candidates are known. M of the candidates are *active*; Σ and μ refer to these. All have

    S_k = βφ_kᵀφ_k − β²φ_kᵀΦΣΦᵀφ_k,      Q_k = βφ_kᵀ(t − Φμ)      (Tipping & Faul 2003, eqs. 24 and 25).

A change of one α changes Σ by a matrix of rank one. The changes of μ, S and Q follow from this matrix (appendix of the
paper). An update takes O(KM + M²) flops, and its speed is limited by the memory bandwidth for M rows of G and Σ. No row
of the data is read.

An inactive candidate has s = S and q = Q. An active candidate has s = 1/Σ_ii − α_i and q = μ_i/Σ_ii. For active
candidates eq. 23 of the paper, which uses S and Q, is less accurate if the data are much more informative than the
prior.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, lapack

from partirvm.core.gains import DEPENDENT, sparsity_quality
from partirvm.core.posterior import Posterior, posterior
from partirvm.core.statistics import EPS, GramStatistics

Float = NDArray[np.float64]
Int = NDArray[np.int64]

ROOM = 64
"""Number of columns that can join before arrays are enlarged."""


class ActiveColumns:
    """Posterior of the M active columns among K candidates. Mutable.

    ``columns`` (M,) are the positions of the active candidates, in order of joining. ``alpha``, ``mean`` and
    ``variance`` (M,) refer to the active candidates, ``S`` and ``Q`` (K,) to all candidates. The caller must not change
    ``statistics`` (of all K candidates and one target). ``refresh`` computes everything again.
    """

    def __init__(self, statistics: GramStatistics, columns: Int, alpha: Float, beta: float) -> None:
        K = statistics.n_columns
        self.statistics = statistics
        self.beta = beta
        self.diagonal: Float = statistics.diagonal
        self.place: Int = np.full(K, -1)
        self._columns: Int = np.array(columns, dtype=np.int64)
        self._alpha: Float = np.array(alpha, dtype=np.float64)
        self._mean: Float = np.zeros(len(columns))
        self._rows: Float = statistics.gram[self._columns]
        self._Sigma: Float = np.zeros((len(columns), len(columns)), order="F")
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
        """Compute everything again at this β by one Cholesky factorisation, 2M³ + KM² flops; return the posterior."""
        del self.posterior  # free the old arrays before new ones are computed
        self.posterior = self._anew(beta)
        return self.posterior

    def _anew(self, beta: float) -> Posterior:
        self.beta, M, room = beta, self.M, len(self._Sigma)
        del self._Sigma  # free the old matrix, too
        back = self.statistics.offset.copy()
        back[self.columns] = 0.0
        if back.any():
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
        """Free the arrays that only actions need, M × K and M × M."""
        self._rows, self._Sigma = self._rows[:0, :0].copy(), self._Sigma[:0, :0].copy()

    def add(self, column: int, alpha: float) -> None:
        """Activate a candidate at this α."""
        if len(self._rows) == self.M:
            self._grow()
        M, beta = self.M, self.beta
        tied = np.zeros(len(self._rows))
        tied[:M] = beta * (self._Sigma[:M, :M] @ self._rows[:M, column])
        row = self.statistics.gram[column]
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
        # 1 − α_old Σ_ii + α_new Σ_ii is above zero, but rounds to zero if the data say nothing of this column
        left = max(1.0 + change * self._Sigma[i, i], EPS)
        self._scale(i, change / left)
        self._alpha[i] = alpha

    def delete(self, column: int) -> None:
        """Deactivate a candidate. The last active candidate moves to the free position."""
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
        """Return s and q of all candidates (K,), each computed as if the candidate were not active."""
        s, q = np.maximum(self.S, 0.0), self.Q.copy()
        s[self.columns], q[self.columns] = self.own_factors()
        return s, q

    def own_factors(self) -> tuple[Float, Float]:
        """Return s and q of the active candidates (M,)."""
        precision = 1.0 / self.variance
        return np.maximum(precision - self.alpha, 0.0), self.mean * precision

    def now(self) -> Posterior:
        """Return the posterior with current mean, variance, γ and residual; factor and evidence are not updated."""
        gamma = np.clip(1.0 - self.alpha * self.variance, 0.0, 1.0)
        return replace(
            self.posterior,
            mean=self.mean.copy(),
            variance=self.variance.copy(),
            determinedness=gamma,
            residual=self._residual(),
        )

    def drift(self) -> float:
        """Return the largest |Q − αμ| of the active columns in units of √S, which is zero in exact arithmetic."""
        if not self.M:
            return 0.0
        off = np.abs(self.Q[self.columns] - self.alpha * self.mean)
        least = DEPENDENT * self.beta * self.diagonal[self.columns]
        return float(np.max(off / np.sqrt(np.maximum(self.S[self.columns], least))))

    def _residual(self) -> float:
        """Return ‖t − Φμ‖², computed with Q = β(b − Gδ), which equals αμ for active columns."""
        delta, quality = -self.statistics.offset[:, 0], self.Q.copy()
        delta[self.columns] += self.mean
        quality[self.columns] = self.alpha * self.mean
        return float(self.statistics.sum_squares[0] - delta @ (self.statistics.projection[:, 0] + quality / self.beta))

    def _scale(self, i: int, kappa: float) -> None:
        """Subtract κΣ_iΣ_iᵀ from Σ, and update μ, S and Q accordingly."""
        column = self._Sigma[:, i].copy()
        change = self.beta * (column[: self.M] @ self._rows[: self.M])
        mean = kappa * self._mean[i]
        self.S += kappa * change**2
        self.Q += mean * change
        self._mean[: self.M] -= mean * column[: self.M]
        self._add_outer(-kappa, column)

    def _add_outer(self, factor: float, x: Float) -> None:
        """Add factor·xxᵀ to Σ in place; x is zero beyond M."""
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
