"""Sums over the columns of a tied RVM at many values of α and β, from one reduction of the Gram matrix.

MacKay's updates of a tied RVM (``core.tied``) need only tr Σ, ‖μ‖² and ‖t − Φμ‖². Let k be the K kernel columns and l
the J leading columns, with α and b. One reduction G_kk = QTQᵀ to a tridiagonal T (LAPACK's ``dsytrd``, 4/3 K³ flops)
serves all α and β: with B = QᵀG_kl, c = Qᵀp_k and the tridiagonal matrix R = βT + αI,

    S = βG_ll + bI − β²BᵀR⁻¹B,             μ_l = βS⁻¹(p_l − βBᵀR⁻¹c),      Qᵀμ_k = βR⁻¹(c − Bμ_l),
    tr Σ_kk = tr R⁻¹ + β² tr (R⁻¹BS⁻¹BᵀR⁻¹),   tr Σ_ll = tr S⁻¹,

which takes O(K (J + T)²) flops with T targets. tr R⁻¹ follows from the eigenvalues of T. A posterior takes ⅔ K³ flops.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, lapack

from partirvm.core.statistics import EPS, GramStatistics

Float = NDArray[np.float64]

REFLECTORS = 64
"""Number of columns of workspace of LAPACK's products with Q, per column."""


@dataclass(frozen=True)
class ColumnGroup:
    """Sums over some columns: their number, Σγ_i, Σμ_i², and the largest element of the Gram matrix's diagonal."""

    columns: int
    determined: float
    square: float
    largest: float

    def shared_by(self, targets: int) -> ColumnGroup:
        """Return the sums with Σγ_i counted for each of the targets that share Σ."""
        return replace(self, determined=targets * self.determined)

    def plus(self, other: ColumnGroup) -> ColumnGroup:
        """Return the sums over the same columns for these targets and others."""
        return ColumnGroup(self.columns, self.determined + other.determined, self.square + other.square, self.largest)


@dataclass(frozen=True)
class Sums:
    """Sums over the kernel columns and over the leading columns, and ‖t − Φμ‖² (weighted), of one or more targets.

    Targets share Σ; μ² and ‖t − Φμ‖² are summed over them.
    """

    kernels: ColumnGroup
    leading: ColumnGroup
    residual: float


@dataclass(frozen=True)
class Reduced:
    """Gram statistics (M columns, T targets, offset 0) with the kernel columns rotated by Q.

    ``diagonal`` (K,), ``beside`` (K − 1,) and ``eigenvalues`` (K,) are those of T, ``border`` (K, J) is B,
    ``projection`` (K, T) is c. ``corner`` (J, J) and ``corner_projection`` (J, T) are G_ll and p_l.
    """

    diagonal: Float
    beside: Float
    eigenvalues: Float
    border: Float
    projection: Float
    corner: Float
    corner_projection: Float
    sum_squares: Float
    largest: tuple[float, float]

    @classmethod
    def of(cls, statistics: GramStatistics) -> Reduced | None:
        """Reduce the statistics; None if there are fewer than three kernel columns or LAPACK fails."""
        kernels = statistics.labels >= 0
        K, gram = int(kernels.sum()), statistics.gram
        if K < 3 or statistics.offset.any():
            return None
        square = np.array(gram[np.ix_(kernels, kernels)], order="F")
        work = int(lapack.dsytrd_lwork(K, lower=1)[0])
        reflectors, diagonal, beside, tau, failed = lapack.dsytrd(square, lower=1, lwork=work, overwrite_a=1)
        eigenvalues, bad = lapack.dsterf(diagonal, beside)
        if failed or bad or not np.isfinite(eigenvalues).all():
            return None
        right = np.column_stack([gram[np.ix_(kernels, ~kernels)], statistics.projection[kernels]])
        Q, below = np.asfortranarray(reflectors[1:, :-1]), np.asfortranarray(right[1:])
        right[1:] = lapack.dormqr("L", "T", Q, tau, below, REFLECTORS * right.shape[1])[0]
        J = len(kernels) - K
        return cls(
            diagonal,
            beside,
            np.maximum(eigenvalues, 0.0),
            right[:, :J],
            right[:, J:],
            gram[np.ix_(~kernels, ~kernels)],
            statistics.projection[~kernels],
            statistics.sum_squares,
            _largest(statistics),
        )

    def target(self, k: int) -> Reduced:
        """Return the statistics of one target."""
        one = slice(k, k + 1)
        return replace(
            self,
            projection=self.projection[:, one],
            corner_projection=self.corner_projection[:, one],
            sum_squares=self.sum_squares[one],
        )

    def sums(self, alpha: float, leading: float, beta: float) -> Sums | None:
        """Return the sums at these values; None if R or S is not positive definite after rounding."""
        J = self.border.shape[1]
        both = beta * np.column_stack([self.border, self.projection])
        d, e, failed = lapack.dpttrf(beta * self.diagonal + alpha, beta * self.beside)
        if failed:
            return None
        solved = lapack.dpttrs(d, e, both)[0]
        X, rotated = solved[:, :J], solved[:, J:]
        traces = float(np.sum(1.0 / (beta * self.eigenvalues + alpha))), 0.0
        mean = np.zeros((0, rotated.shape[1]))
        if J:
            schur = beta * (self.corner - self.border.T @ X)
            schur.flat[:: J + 1] += leading
            try:
                factor = cho_factor(schur, lower=True, check_finite=False)
            except np.linalg.LinAlgError:
                return None
            mean = cho_solve(factor, beta * (self.corner_projection - self.border.T @ rotated))
            rotated = rotated - X @ mean
            inverse = cho_solve(factor, np.eye(J))
            traces = traces[0] + float(np.sum(inverse * (X.T @ X))), float(np.trace(inverse))
        return Sums(
            _group(len(self.diagonal), alpha, traces[0], rotated, self.largest[0]),
            _group(J, leading, traces[1], mean, self.largest[1]),
            self._residual(rotated, mean),
        )

    def _residual(self, rotated: Float, mean: Float) -> float:
        """Return Σ ‖t − Φμ‖² of the rotated weights of kernel columns and the weights of leading columns."""
        product = self.diagonal[:, None] * rotated + self.border @ mean
        product[1:] += self.beside[:, None] * rotated[:-1]
        product[:-1] += self.beside[:, None] * rotated[1:]
        corner = self.border.T @ rotated + self.corner @ mean
        square = float(self.sum_squares.sum())
        explained = float(np.sum(rotated * (2 * self.projection - product)))
        explained += float(np.sum(mean * (2 * self.corner_projection - corner)))
        return max(square - explained, EPS * square)


def sums_of(statistics: GramStatistics, determinedness: Float, mean: Float, residual: float) -> Sums:
    """Return the sums of a posterior with γ (M,), μ (M,) or (M, T), and ‖t − Φμ‖²."""
    kernels, largest = statistics.labels >= 0, _largest(statistics)
    groups = [
        ColumnGroup(int(own.sum()), float(determinedness[own].sum()), float(np.sum(mean[own] ** 2)), each)
        for own, each in zip((kernels, ~kernels), largest, strict=True)
    ]
    return Sums(groups[0], groups[1], residual)


def _largest(statistics: GramStatistics) -> tuple[float, float]:
    """Return the largest Σφ² of the kernel columns, and of the leading columns."""
    kernels, squares = statistics.labels >= 0, np.diagonal(statistics.gram)
    return float(squares[kernels].max(initial=0.0)), float(squares[~kernels].max(initial=0.0))


def _group(columns: int, alpha: float, trace: float, mean: Float, largest: float) -> ColumnGroup:
    determined = min(max(columns - alpha * trace, 0.0), float(columns))
    return ColumnGroup(columns, determined, float(np.sum(mean**2)), largest)
