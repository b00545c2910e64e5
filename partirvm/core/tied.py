"""The tied RVM, with one α for all kernel columns and one for all leading columns, and the gradient of its evidence.

Without pruning, the evidence is a smooth function of the kernel's parameters, which kernel learning maximises. α and β
follow MacKay's fixed point (Tipping 2001, eqs. 16–18), α ← Σγ_i / Σμ_i² over tied columns. Priors are not used.

**Slopes.** The evidence of Tipping's eq. 15, with W the weights of rows, is

    L(Φ) = ½ [ log|A| − log|H| + N log β + log|W| − N log 2π − β (t − Φμ)ᵀW(t − Φμ) − μᵀAμ ],     H = βΦᵀWΦ + A.

μ maximises the last two terms, so only d log|H| = 2β tr(Σ ΦᵀW dΦ) remains: dL = Σ_nm D_nm dΦ_nm with D = β W [ (t −
Φμ)μᵀ − ΦΣ ]. ∂L/∂ log θ = Σ_nm D_nm ∂Φ_nm/∂ log θ is a sum over rows, which a pass computes, and over targets.

**Sums.** The updates need only tr Σ, ‖μ‖² and ‖t − Φμ‖². Let k be the K kernel columns and l the J leading columns,
with α and b. One reduction G_kk = QTQᵀ to a tridiagonal T (LAPACK's ``dsytrd``, 4/3 K³ flops) serves all α and β: with
B = QᵀG_kl, c = Qᵀp_k and the tridiagonal matrix R = βT + αI,

    S = βG_ll + bI − β²BᵀR⁻¹B,             μ_l = βS⁻¹(p_l − βBᵀR⁻¹c),      Qᵀμ_k = βR⁻¹(c − Bμ_l),
    tr Σ_kk = tr R⁻¹ + β² tr (R⁻¹BS⁻¹BᵀR⁻¹),   tr Σ_ll = tr S⁻¹.

**Class indicators**: least squares in place of the softmax. The K targets of a row are 1 for its class and 0 otherwise.
They share α and β, and so Σ. With T (N, K) and M = βΣΦᵀT the slopes are D = βW[(T − ΦM)Mᵀ − KΦΣ], and the updates α ←
KΣγ_i / ΣM_ik² and β ← K(N − Σγ) / tr (T − ΦM)ᵀW(T − ΦM). Widths that suit the indicators suit the softmax.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, lapack

from partirvm.core.posterior import Posterior, factorise, posterior
from partirvm.core.statistics import EPS, GramStatistics
from partirvm.core.updates import ALPHA_FLOOR, NOISE_FLOOR

Float = NDArray[np.float64]
Int = NDArray[np.int64]

ALPHA_CEILING = 1e5
"""Maximum α, as a multiple of the columns' largest data precision: larger values could hardly decrease again."""


@dataclass(frozen=True)
class Tied:
    """α of all kernel columns, α of the leading columns, and the noise precision β, (T,) for several targets."""

    alpha: float
    leading: float
    beta: float | Float = 1.0

    def alphas(self, labels: Int) -> Float:
        """Return α of the columns with these labels, (M,)."""
        return np.where(labels < 0, self.leading, self.alpha)


Sums: TypeAlias = tuple[Float, Float, float]
"""Σγ (2,), Σμ² (2,) over the kernel columns and over the leading ones, ‖t − Φμ‖²; the last two over all targets."""


def reduction(statistics: GramStatistics) -> Callable[[float, float, float, slice], Sums | None] | None:
    """Rotate the kernel columns by Q; return a function of α, b, β and a range of targets that computes their sums.

    None for fewer than three kernel columns, or if LAPACK fails; the function also returns None if rounding has left R
    or S not positive definite. The statistics have the offset 0.
    """
    kernels = statistics.labels >= 0
    K, J, gram = int(kernels.sum()), int((~kernels).sum()), statistics.gram
    if K < 3:
        return None
    square = np.array(gram[np.ix_(kernels, kernels)], order="F")
    work = int(lapack.dsytrd_lwork(K, lower=1)[0])
    reflectors, diagonal, beside, tau, failed = lapack.dsytrd(square, lower=1, lwork=work, overwrite_a=1)
    eigenvalues, bad = lapack.dsterf(diagonal, beside)
    if failed or bad or not np.isfinite(eigenvalues).all():
        return None
    eigenvalues = np.maximum(eigenvalues, 0.0)
    right = np.column_stack([gram[np.ix_(kernels, ~kernels)], statistics.projection[kernels]])
    Q, below = np.asfortranarray(reflectors[1:, :-1]), np.asfortranarray(right[1:])
    right[1:] = lapack.dormqr("L", "T", Q, tau, below, 64 * right.shape[1])[0]  # LAPACK's blocks have 64 columns
    B, corner = right[:, :J], gram[np.ix_(~kernels, ~kernels)]

    def sums(alpha: float, leading: float, beta: float, targets: slice) -> Sums | None:
        c, p = right[:, J:][:, targets], statistics.projection[~kernels][:, targets]
        d, e, failed = lapack.dpttrf(beta * diagonal + alpha, beta * beside)
        if failed:
            return None
        solved = lapack.dpttrs(d, e, beta * np.column_stack([B, c]))[0]
        X, rotated = solved[:, :J], solved[:, J:]
        trace, corner_trace = float(np.sum(1.0 / (beta * eigenvalues + alpha))), 0.0
        mean = np.zeros((0, rotated.shape[1]))
        if J:
            schur = beta * (corner - B.T @ X)
            schur.flat[:: J + 1] += leading
            try:
                factor = cho_factor(schur, lower=True, check_finite=False)
            except np.linalg.LinAlgError:
                return None
            mean = cho_solve(factor, beta * (p - B.T @ rotated))
            rotated = rotated - X @ mean
            inverse = cho_solve(factor, np.eye(J))
            trace, corner_trace = trace + float(np.sum(inverse * (X.T @ X))), float(np.trace(inverse))
        product = diagonal[:, None] * rotated + B @ mean
        product[1:] += beside[:, None] * rotated[:-1]
        product[:-1] += beside[:, None] * rotated[1:]
        squares = float(statistics.sum_squares[targets].sum())
        explained = float(np.sum(rotated * (2 * c - product)))
        explained += float(np.sum(mean * (2 * p - (B.T @ rotated + corner @ mean))))
        size, free = np.array([K, J]), np.array([alpha * trace, leading * corner_trace])
        square = np.array([np.sum(rotated**2), np.sum(mean**2)])
        return np.clip(size - free, 0.0, size), square, max(squares - explained, EPS * squares)

    return sums


def indicator_posterior(statistics: GramStatistics, alpha: Float, beta: float) -> Posterior:
    """Return the posterior of T targets that share Σ, at this α (M,) and β: its mean is (M, T), numbers are sums."""
    H = beta * statistics.gram
    H.flat[:: len(H) + 1] += alpha
    factor, scale = factorise(H)
    half = scale[:, None] * lapack.dtrtri(factor, lower=1)[0].T
    covariance = half @ half.T
    mean = beta * covariance @ statistics.projection
    square = float(statistics.sum_squares.sum())
    explained = float(np.sum(mean * (2 * statistics.projection - statistics.gram @ mean)))
    residual = max(square - explained, NOISE_FLOOR * square)
    log_det = 2 * (np.log(np.diagonal(factor)).sum() - np.log(scale).sum())
    noise = statistics.n * np.log(beta / (2 * np.pi)) + statistics.log_weight
    targets = statistics.n_targets * (np.log(alpha).sum() - log_det + noise)
    log_evidence = float(0.5 * (targets - beta * residual - alpha @ np.square(mean).sum(axis=1)))
    variance = np.diagonal(covariance).copy()
    gamma = np.clip(1.0 - alpha * variance, 0.0, 1.0)
    return Posterior(mean, variance, gamma, residual, log_evidence, factor, scale, 0.0)


def updates(
    statistics: GramStatistics, tied: Tied, count: int, target_variance: float | Float, fixed: float | Float | None
) -> tuple[Tied, Posterior]:
    """Apply ``count`` updates of α and β on these statistics, and return α, β and the posterior.

    ``target_variance`` defines the noise floor, ``fixed`` is a given β; both (T,) for several targets. Raises
    ``NumericalError``.
    """
    floor = NOISE_FLOOR * np.atleast_1d(target_variance)

    def precision(found: list[Sums]) -> float | Float:
        """Return MacKay's β of each target, limited by the noise floor."""
        if fixed is not None:
            return fixed
        freedom = np.maximum(statistics.n - np.array([determined.sum() for determined, _, _ in found]), 1.0)
        residual = np.array([residual for _, _, residual in found])
        beta = np.minimum(freedom / np.maximum(residual, floor * freedom), 1 / floor)
        return beta if isinstance(target_variance, np.ndarray) else float(beta[0])

    tied = _updated(statistics, tied, count, 1, precision)
    return tied, posterior(statistics, tied.alphas(statistics.labels), tied.beta)


def indicator_updates(statistics: GramStatistics, tied: Tied, count: int) -> tuple[Tied, Posterior]:
    """Apply ``count`` updates of α and β on the statistics of class indicators; return α, β and the posterior."""
    K, n = statistics.n_targets, statistics.n
    floor = NOISE_FLOOR * float(statistics.sum_squares.sum()) / max(K * n, 1)

    def precision(found: list[Sums]) -> float:
        ((determined, _, residual),) = found
        kernels, leading = map(float, determined)
        return 1.0 / max(residual / (K * max(n - kernels - leading, 1.0)), floor)

    tied = _updated(statistics, tied, count, K, precision)
    return tied, indicator_posterior(statistics, tied.alphas(statistics.labels), float(tied.beta))


def _updated(
    statistics: GramStatistics, tied: Tied, count: int, size: int, precision: Callable[[list[Sums]], float | Float]
) -> Tied:
    """Update α and β ← ``precision(sums)``. ``size`` targets share a β."""
    parts = [slice(k, k + size) for k in range(0, statistics.n_targets, size)]
    kernels, reduced = statistics.labels >= 0, reduction(statistics)
    groups = [np.flatnonzero(kernels), np.flatnonzero(~kernels)]
    largest = np.array([statistics.diagonal[group].max(initial=0.0) for group in groups])
    for _ in range(count):
        found = []
        for part, beta in zip(parts, np.atleast_1d(tied.beta).tolist(), strict=True):
            sums = None if reduced is None else reduced(tied.alpha, tied.leading, beta, part)
            if sums is None:
                fit = indicator_posterior(statistics.of_targets(part), tied.alphas(statistics.labels), beta)
                values = np.column_stack([fit.determinedness, (fit.mean**2).sum(axis=1)])
                determined, square = np.array([values[group].sum(axis=0) for group in groups]).T
                sums = determined, square, fit.residual
            found.append(sums)
        determined, square = size * sum(each for each, _, _ in found), sum(each for _, each, _ in found)
        new_beta = precision(found)
        bound = np.max(new_beta) * largest
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(square > 0, determined / square, np.inf)
        ratio = np.clip(ratio, ALPHA_FLOOR * bound, ALPHA_CEILING * bound)
        alpha, leading = np.where(bound > 0, ratio, [tied.alpha, tied.leading]).tolist()
        tied = Tied(alpha, leading, new_beta)
    return tied


def slopes(block: Float, target: Float, mean: Float, covariance: Float, beta: float, weights: Float | None) -> Float:
    """Return D (n, M), nats, of a block Φ (n, M) of the design and K targets that share Σ (M, M) and β.

    ``target`` is (n, K), ``mean`` (M, K), and ``weights`` (n,) are the row weights.
    """
    found: Float = (covariance @ block.T).T  # stored column by column, the fastest layout for kernels
    found *= -beta * target.shape[1]
    found += (mean @ (beta * (target - block @ mean)).T).T
    if weights is not None:
        found *= weights[:, None]
    return found
