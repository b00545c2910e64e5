"""The tied RVM, with one α for all kernel columns and one for all leading columns, and the gradient of its evidence.

Without pruning, the evidence is a smooth function of the kernel's parameters. Kernel learning maximises this function.
α and β follow MacKay's fixed point with sums over the tied columns in place of single columns (Tipping 2001, eqs.
16–18): γ_i = 1 − αΣ_ii, α ← Σγ_i / Σμ_i², β ← (N − Σγ)/‖t − Φμ‖². Kernel learning does not use the priors and the fixed
α of ``core.priors``. If the noise variance is given, kernel learning uses it.

**Slopes.** The evidence of Tipping's eq. 15, with W the weights of rows, is

    L(Φ) = ½ [ log|A| − log|H| + N log β + log|W| − N log 2π − β (t − Φμ)ᵀW(t − Φμ) − μᵀAμ ],     H = βΦᵀWΦ + A.

μ maximises the last two terms, so their derivative in μ is zero; d log|H| = 2β tr(Σ ΦᵀW dΦ) remains. Hence dL = Σ_nm
D_nm dΦ_nm with D = β W [ (t − Φμ)μᵀ − ΦΣ ], and ∂L/∂ log θ = Σ_nm D_nm ∂Φ_nm/∂ log θ: a sum over rows, which a pass
computes. For several targets D is the sum over targets, each with separate t, μ, Σ and β.

**Sums.** The updates need only tr Σ, ‖μ‖² and ‖t − Φμ‖². Let k be the K kernel columns and l the J leading columns,
with α and b. One reduction G_kk = QTQᵀ to a tridiagonal T (LAPACK's ``dsytrd``, 4/3 K³ flops) serves all α and β: with
B = QᵀG_kl, c = Qᵀp_k and the tridiagonal matrix R = βT + αI,

    S = βG_ll + bI − β²BᵀR⁻¹B,             μ_l = βS⁻¹(p_l − βBᵀR⁻¹c),      Qᵀμ_k = βR⁻¹(c − Bμ_l),
    tr Σ_kk = tr R⁻¹ + β² tr (R⁻¹BS⁻¹BᵀR⁻¹),   tr Σ_ll = tr S⁻¹,

which takes O(K (J + T)²) flops with T targets. tr R⁻¹ follows from the eigenvalues of T. A posterior takes ⅔ K³ flops.

**Class indicators**: least squares in place of the softmax, to learn kernels for several classes. The K targets of a
row are 1 for its class and 0 otherwise. They share α and β, and so Σ: one factorisation serves them all. With T (N, K)
and M = βΣΦᵀT the evidence is that of eq. 15 summed over targets, its slopes are D = βW[(T − ΦM)Mᵀ − KΦΣ], and the
updates are α ← KΣγ_i / ΣM_ik² and β ← K(N − Σγ) / tr (T − ΦM)ᵀW(T − ΦM). The widths that suit the indicators suit the
softmax, and the evidence of the indicators has no approximation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, lapack

from partirvm.core.posterior import AnyPosterior, any_posterior, factorise, posterior
from partirvm.core.statistics import EPS, GramStatistics
from partirvm.core.updates import ALPHA_FLOOR, NOISE_FLOOR

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


Int = NDArray[np.int64]

ALPHA_CEILING = 1e5
"""Maximum α, as a multiple of the columns' largest data precision: larger values could hardly decrease again."""


@dataclass(frozen=True)
class Tied:
    """α of all kernel columns, α of the leading columns, and the noise precision β, which is (T,) for several targets.

    β is 1 for classification.
    """

    alpha: float
    leading: float
    beta: float | Float = 1.0

    def alphas(self, labels: Int) -> Float:
        """Return α of the columns with these labels, (M,)."""
        return np.where(labels < 0, self.leading, self.alpha)


@dataclass(frozen=True)
class NoiseBounds:
    """Constraints of β: the ``target_variance``, which defines the noise floor, or a ``fixed`` value of β.

    For several targets both are arrays (T,).
    """

    target_variance: float | Float
    fixed: float | Float | None = None

    def precision(self, n: int, sums: Sequence[Sums]) -> float | Float:
        """Return MacKay's β of ``n`` rows and these sums for each target, limited by the noise floor."""
        if self.fixed is not None:
            return self.fixed
        floor = NOISE_FLOOR * np.atleast_1d(self.target_variance)
        determined = np.array([each.kernels.determined + each.leading.determined for each in sums])
        freedom = np.maximum(n - determined, 1.0)
        residual = np.array([each.residual for each in sums])
        beta = np.minimum(freedom / np.maximum(residual, floor * freedom), 1 / floor)
        return beta if isinstance(self.target_variance, np.ndarray) else float(beta[0])


def updates(statistics: GramStatistics, tied: Tied, count: int, noise: NoiseBounds) -> tuple[Tied, AnyPosterior]:
    """Apply ``count`` updates of α and β on these statistics, and return α, β and the posterior.

    One reduction of the Gram matrix serves all updates (``core.tied``). Raises ``NumericalError`` as ``posterior``
    does.
    """
    reduced = Reduced.of(statistics)
    for _ in range(count):
        sums = [_sums(statistics, reduced, tied, k) for k in range(statistics.n_targets)]
        beta = noise.precision(statistics.n, sums)
        kernels = reduce(ColumnGroup.plus, (each.kernels for each in sums))
        tied = retied(tied, kernels, reduce(ColumnGroup.plus, (each.leading for each in sums)), beta)
    return tied, any_posterior(statistics, tied.alphas(statistics.labels), tied.beta)


def _sums(statistics: GramStatistics, reduced: Reduced | None, tied: Tied, k: int) -> Sums:
    """Return the sums of target ``k``, from the posterior if there is no reduction or it does not serve."""
    beta = float(np.atleast_1d(tied.beta)[k])
    found = None if reduced is None else reduced.target(k).sums(tied.alpha, tied.leading, beta)
    if found is None:
        one = statistics.target(k)
        made = posterior(one, tied.alphas(statistics.labels), beta)
        found = sums_of(one, made.determinedness, made.mean, made.residual)
    return found


def retied(tied: Tied, kernels: ColumnGroup, leading: ColumnGroup, beta: float | Float) -> Tied:
    """Update α ← Σγ_i/Σμ_i² over the kernel columns, and over the leading columns."""
    most = float(np.max(beta))

    def ratio(group: ColumnGroup, before: float) -> float:
        largest = most * group.largest
        if not (group.columns and largest > 0):
            return before
        alpha = group.determined / group.square if group.square > 0 else np.inf
        return float(np.clip(alpha, ALPHA_FLOOR * largest, ALPHA_CEILING * largest))

    return Tied(ratio(kernels, tied.alpha), ratio(leading, tied.leading), beta)


def slopes(block: Float, target: Float, mean: Float, covariance: Float, beta: float, weights: Float | None) -> Float:
    """Return D (n, M), nats: the derivative of the evidence in each element of a block Φ (n, M) of the design.

    ``target`` (n, K) and ``mean`` (M, K) are those of K targets that share Σ (M, M) and β; ``weights`` (n,) are the row
    weights.
    """
    found: Float = (covariance @ block.T).T  # stored column by column, the fastest layout for kernels
    found *= -beta * target.shape[1]
    found += (mean @ (beta * (target - block @ mean)).T).T
    if weights is not None:
        found *= weights[:, None]
    return found


@dataclass(frozen=True)
class Indicators:
    """Posterior of K indicators: ``mean`` M (M, K), ``covariance`` Σ (M, M), ‖T − ΦM‖² and the log evidence in nats."""

    mean: Float
    covariance: Float
    residual: float
    log_evidence: float

    def determinedness(self, alpha: Float) -> Float:
        """Return γ (M,) for α (M,)."""
        return np.clip(1.0 - alpha * np.diagonal(self.covariance), 0.0, 1.0)


def indicator_posterior(statistics: GramStatistics, tied: Tied) -> Indicators:
    """Return the posterior at the given α and β. Raises ``NumericalError`` if H is not positive definite."""
    alpha, beta, K = tied.alphas(statistics.labels), float(tied.beta), statistics.n_targets
    H = beta * statistics.gram
    H.flat[:: len(H) + 1] += alpha
    factor, scale, _ = factorise(H)
    half = scale[:, None] * lapack.dtrtri(factor, lower=1)[0].T
    covariance = half @ half.T
    mean = beta * covariance @ statistics.projection
    square = float(statistics.sum_squares.sum())
    explained = float(np.sum(mean * (2 * statistics.projection - statistics.gram @ mean)))
    residual = max(square - explained, NOISE_FLOOR * square)
    log_det = 2 * (np.log(np.diagonal(factor)).sum() - np.log(scale).sum())
    log_evidence = 0.5 * (
        K * (np.log(alpha).sum() - log_det + statistics.n * np.log(beta / (2 * np.pi)) + statistics.log_weight)
        - beta * residual
        - alpha @ np.square(mean).sum(axis=1)
    )
    return Indicators(mean, covariance, residual, float(log_evidence))


def indicator_updates(statistics: GramStatistics, tied: Tied, count: int) -> tuple[Tied, Indicators]:
    """Apply ``count`` updates of α and β on these statistics; return α, β and the posterior."""
    K, reduced = statistics.n_targets, Reduced.of(statistics)
    floor = NOISE_FLOOR * float(statistics.sum_squares.sum()) / max(K * statistics.n, 1)
    for _ in range(count):
        sums = None if reduced is None else reduced.sums(tied.alpha, tied.leading, float(tied.beta))
        if sums is None:
            found = indicator_posterior(statistics, tied)
            gamma = found.determinedness(tied.alphas(statistics.labels))
            sums = sums_of(statistics, gamma, found.mean, found.residual)
        freedom = K * max(statistics.n - sums.kernels.determined - sums.leading.determined, 1.0)
        beta = 1.0 / max(sums.residual / freedom, floor)
        tied = retied(tied, sums.kernels.shared_by(K), sums.leading.shared_by(K), beta)
    return tied, indicator_posterior(statistics, tied)
