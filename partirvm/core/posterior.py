"""The Gaussian posterior of the weights and the evidence, from one Cholesky factorisation.

In Tipping (2001), Σ = (βΦᵀΦ + A)⁻¹ (eqs. 6 and 12) and μ = βΣΦᵀt (eq. 13). With H = Σ⁻¹, the log
evidence (eq. 15) is

    ½ [ Σᵢ log αᵢ − log|H| + N log β − N log 2π − β‖t − Φμ‖² − μᵀAμ ].

H is scaled to unit diagonal before it is factorised, S H S with S = diag(H)^(−½), so that
precisions from 1e-6 to 1e12 cause no loss of accuracy. If it is not numerically positive definite,
the smallest sufficient power of ten, the ``jitter``, is added to it. With a residual target (offset
m), the system is solved for δ = μ − m: H δ = βΦᵀr − A m.

**Tiles.** The bits of LAPACK's results depend on the number of threads. Therefore each tile of a
large factor or inverse is computed by one thread (``process.in_threads``), with operations that
depend only on the size of the matrix. The factorisation is left-looking: one product updates a tile
with the tiles before it; then a diagonal tile is factorised, and any other solved. Matrices are
float64, in Fortran order.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import repeat
from typing import Any

import numpy as np
from scipy.linalg import blas, lapack, rq

from partirvm.core.statistics import GramStatistics
from partirvm.errors import NumericalError
from partirvm.process import in_threads, unlocked
from partirvm.types import Bool, Each, Float, Int

WEAK_CORRELATION = 0.1
"""Absolute posterior correlation of two weights below which their columns may be deleted
together."""

JITTERS = (0.0, 1e-15, 1e-14, 1e-13, 1e-12, 1e-11, 1e-10)
"""Values added to the unit diagonal, tried in this order."""

TILE = 192
"""Number of rows and columns of a tile."""

LEAST = 4 * TILE
"""Minimum number of columns for dividing a factor into tiles; for fewer, LAPACK is as fast."""

LEAST_INVERSE = 2 * TILE
"""Minimum number of columns for dividing an inverse into tiles."""


@dataclass(frozen=True)
class Posterior:
    """Posterior of M weights at fixed α and β, for one target or for T targets that share columns
    and α.

    If each target has its own β, vectors are (M, T), scalars are (T,), and log evidences are
    summed; only the posteriors in ``targets``, one per target, have factors. Targets with a common
    β (class indicators) share Σ: μ is (M, T), and scalars are sums.

    Attributes:
        mean: μ (M,)
        variance: the diagonal of Σ (M,)
        determinedness: γ = 1 − αΣ_ii (M,)
        residual: ‖t − Φμ‖² (weighted), at least ``rounding``
        log_evidence: log evidence in nats
        factor: lower Cholesky factor L of the scaled H (M, M)
        scale: S (M,), Σ = S(LLᵀ)⁻¹S
        rounding: a bound on the rounding error of ``residual``
        targets: the posterior of each target that has its own β
    """

    mean: Float
    variance: Float
    determinedness: Float
    residual: Any
    log_evidence: float
    factor: Float
    scale: Float
    rounding: Any
    targets: tuple["Posterior", ...] = ()

    @property
    def cancelled(self) -> bool:
        """True if rounding may have left only two correct digits in any target's residual."""
        return bool(np.any(self.residual < 100 * self.rounding))

    @property
    def means(self) -> Float:
        """μ as (M, T), even for one target."""
        return self.mean if self.mean.ndim == 2 else self.mean[:, None]

    @property
    def covariances(self) -> Float:
        """Σ as (T, M, M), even for one target."""
        roots = [target.root() for target in self.targets or (self,)]
        return np.stack([root @ root.T for root in roots])

    def root(self) -> Float:
        """Return R, (M, M) or (T, M, M), with Σ = R Rᵀ: a predictive variance φᵀΣφ = ‖Rᵀφ‖² is
        never negative."""
        if self.targets:
            return np.stack([target.root() for target in self.targets])
        return root_of(self.factor, self.scale)


def blocks(n: int, least: int = LEAST) -> list[slice]:
    """Return the row or column ranges of the tiles of a matrix of size n; a single range below
    ``least``."""
    size = TILE if n >= least else max(n, 1)
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]


@cache
def _above_diagonal() -> Bool:
    """Return a mask of the elements above the diagonal of the largest tile; its first rows and
    columns are the mask of a smaller one."""
    return np.triu(np.ones((LEAST, LEAST), dtype=bool), 1)


def cholesky(data: Float, left: Float, right: Float, diagonal: float) -> Float | None:
    """Return the lower factor, in Fortran order, of the matrix left_i data_ij right_j (M, M); None
    if it is not positive definite.

    Args:
        data: symmetric (M, M)
        left: factors of the rows (M,)
        right: factors of the columns (M,)
        diagonal: replaces all diagonal elements
    """
    ld = len(data)
    ranges = blocks(ld)
    L = np.empty((ld, ld), order="F")
    info = np.zeros(1, dtype=np.intc)

    def update(i: slice, k: slice) -> None:
        tile = L[i, k]
        np.multiply(data[k, i].T, left[i, None] * right[k], out=tile)
        if i == k:
            np.fill_diagonal(tile, diagonal)
        if k.start:
            m, n = tile.shape
            unlocked("dgemm", "N", "T", m, n, k.start, -1.0, L[i], ld, L[k], ld, 1.0, tile, ld)

    def solve(i: slice, k: slice) -> None:
        m, n = L[i, k].shape
        unlocked("dtrsm", "R", "L", "T", "N", m, n, 1.0, L[k, k], ld, L[i, k], ld)
        L[k, i] = 0.0

    for number, k in enumerate(ranges):
        in_threads(update, ranges[number:], repeat(k))
        tile = L[k, k]
        size = len(tile)
        unlocked("dpotrf", "L", size, tile, ld, info)
        if info[0]:
            return None
        np.copyto(tile, 0.0, where=_above_diagonal()[:size, :size])
        in_threads(solve, ranges[number + 1 :], repeat(k))
    return L


def inverse_columns(L: Float, use: Callable[[slice, Float], Any]) -> list[Any]:
    """Compute the inverse of L (M, M) by column blocks; return ``use(columns, rows from there on)``
    for each block, in order."""
    ranges = blocks(len(L), LEAST_INVERSE)
    ld = len(L)
    info = np.zeros(1, dtype=np.intc)

    def inverse(number: int) -> Any:
        j = ranges[number]
        n = j.stop - j.start
        W = np.empty((len(L) - j.start, n), order="F")
        ldw = len(W)
        W[:n] = L[j, j]
        unlocked("dtrtri", "L", "N", n, W, ldw, info)
        for i in ranges[number + 1 :]:
            m = i.stop - i.start
            above = i.start - j.start
            tile = W[above:]
            factor = L[i, j.start :]
            unlocked("dgemm", "N", "N", m, n, above, -1.0, factor, ld, W, ldw, 0.0, tile, ldw)
            unlocked("dtrsm", "L", "L", "N", "N", m, n, 1.0, L[i, i], ld, tile, ldw)
        return use(j, W)

    return in_threads(inverse, range(len(ranges)))


def factorise(data: Float, alpha: Float | float = 0.0, beta: float = 1.0) -> tuple[Float, Float]:
    """Return the scaled Cholesky factor (L, S) of H = β·data + A, with symmetric data (M, M): SHS +
    jitter·I = LLᵀ.

    Raises ``NumericalError`` if H is not finite or not positive definite with any jitter.
    """
    diagonal = beta * np.diagonal(data) + alpha
    wrong = ~(np.isfinite(diagonal) & (diagonal > 0))
    if wrong.any():
        raise NumericalError(
            f"{int(wrong.sum()):,} of {len(wrong):,} basis functions, the first at position "
            f"{int(np.argmax(wrong))}, have a sum of squares or a precision that is not finite "
            "and positive: standardize the inputs, choose a gamma, degree or basis with smaller "
            "values, or leave alpha and noise to be estimated"
        )
    scale = 1.0 / np.sqrt(diagonal)
    for jitter in JITTERS:
        L = cholesky(data, beta * scale, scale, 1.0 + jitter)
        if L is not None:
            return L, scale
    raise NumericalError(
        f"the posterior precision of {len(data)} columns is not positive definite even with a "
        f"jitter of {JITTERS[-1]:g}"
    )


def root_of(factor: Float, scale: Float) -> Float:
    """Return the upper triangular R = SL⁻ᵀ (M, M), so that H⁻¹ = RRᵀ."""
    inverse = np.zeros_like(factor)

    def store(columns: slice, block: Float) -> None:
        inverse[columns.start :, columns] = block

    inverse_columns(factor, store)
    return np.ascontiguousarray(scale[:, None] * inverse.T)


def marginal_root(root: Float, columns: Int) -> Float:
    """Return the upper triangular R' (m, m) with R'R'ᵀ the covariance of the weights of some
    columns (m,), given R (M, M) of all, or of those of each of several targets (T, M, M)."""
    if len(columns) == root.shape[-1]:
        return root
    return np.ascontiguousarray(rq(root[columns], mode="economic")[0])


def posterior(statistics: GramStatistics, alpha: Float, beta: Each) -> Posterior:
    """Return the posterior and evidence of the columns of ``statistics`` at α (M,) and β, (T,) or
    shared by T targets.

    This takes ⅔ M³ flops for each β. Raises ``NumericalError`` like ``factorise``.
    """
    if isinstance(beta, np.ndarray):
        betas = enumerate(beta)
        return _joined([posterior(statistics.of_target(k), alpha, float(b)) for k, b in betas])
    T = len(statistics.sum_squares)
    m = statistics.offset
    projection = statistics.projection
    if T == 1:
        m = m[:, 0]
        projection = projection[:, 0]
    solution = solve(statistics.gram, alpha, beta * projection - (alpha * m.T).T, beta)
    delta = solution.x
    mean = m + delta
    residual, rounding = statistics.residual(delta)
    normal = statistics.n * (np.log(beta) - np.log(2 * np.pi))
    shared_terms = np.log(alpha).sum() - solution.log_det + normal + statistics.log_weight
    log_evidence = 0.5 * (T * shared_terms - beta * residual - np.sum(alpha @ mean**2))
    return solution.posterior(mean, residual, float(log_evidence), rounding)


def _joined(targets: list[Posterior]) -> Posterior:
    """Return the posterior of several targets, each with its own β."""
    none = np.zeros(0)

    def stacked(name: str) -> Float:
        return np.stack([getattr(target, name) for target in targets], axis=-1)

    return Posterior(
        mean=stacked("mean"),
        variance=stacked("variance"),
        determinedness=stacked("determinedness"),
        residual=stacked("residual"),
        log_evidence=float(sum(target.log_evidence for target in targets)),
        factor=none,
        scale=none,
        rounding=stacked("rounding"),
        targets=tuple(targets),
    )


@dataclass(frozen=True)
class Solution:
    """The solution of a linear system with H = β·data + A, and other results of its factor.

    Attributes:
        x: H⁻¹ times the right-hand side, (M,) or (M, T)
        log_det: log|H|
        variance: the diagonal of H⁻¹ (M,)
        determinedness: γ = 1 − α × variance (M,)
        factor: lower Cholesky factor of the scaled H (M, M)
        scale: S (M,)
    """

    x: Float
    log_det: float
    variance: Float
    determinedness: Float
    factor: Float
    scale: Float

    def posterior(self, mean: Float, residual: Any, evidence: float, rounding: Any) -> Posterior:
        """Return the posterior with these variances.

        Args:
            mean: μ
            residual: ‖t − Φμ‖²
            evidence: log evidence, in nats
            rounding: a bound on the rounding error of ``residual``
        """
        return Posterior(
            mean=mean,
            variance=self.variance,
            determinedness=self.determinedness,
            residual=residual,
            log_evidence=evidence,
            factor=self.factor,
            scale=self.scale,
            rounding=rounding,
        )


def solve(data: Float, alpha: Float, right: Float, beta: float = 1.0) -> Solution:
    """Solve a linear system with H = β·data + A. Raises ``NumericalError`` like ``factorise``.

    Args:
        data: symmetric (M, M)
        alpha: the diagonal of A (M,)
        right: right-hand side, (M,) or (M, T)
        beta: factor of ``data``
    """
    factor, scale = factorise(data, alpha, beta)
    x = right
    variance = scale
    if len(right):
        x = (scale * lapack.dpotrs(factor, (scale * right.T).T, lower=1)[0].T).T
        # the squared column lengths of L⁻¹ are the diagonal of (LLᵀ)⁻¹
        lengths = inverse_columns(
            factor, lambda columns, block: np.einsum("ij,ij->j", block, block)
        )
        variance = scale**2 * np.concatenate(lengths)
    log_det = float(2 * (np.log(np.diagonal(factor)).sum() - np.log(scale).sum()))
    determinedness = np.clip(1.0 - alpha * variance, 0.0, 1.0)
    return Solution(x, log_det, variance, determinedness, factor, scale)


def own_factors(fit: Any, alpha: Float) -> tuple[Float, Float]:
    """Return s_i = 1/Σ_ii − α_i and q_i = μ_i/Σ_ii (Tipping & Faul) of a fit's own columns, (M,) or
    (M, T).

    For targets that share Σ, q_i is the root mean square over them, which gives each target the
    mean of their evidence terms.
    """
    precision = 1.0 / fit.variance
    mean = shared(fit.mean, fit.variance)
    s = precision - (alpha if mean.ndim == 1 else alpha[:, None])
    return np.maximum(s, 0.0), mean * precision


def shared(values: Float, variance: Float) -> Float:
    """Return the values, (P,) or (P, T); for targets that share the ``variance`` (P,), return the
    root mean square, (P,)."""
    return values if values.ndim == variance.ndim else np.sqrt(np.mean(values**2, axis=1))


def sparsity_quality(
    old: Posterior, beta: float, offset: Float, cross: Float, diagonal: Float, projection: Float
) -> tuple[Float, Float]:
    """Return s = βφᵀφ − β²φᵀΦΣΦᵀφ and q = βφᵀ(t − Φμ) of P columns φ, (P,) each.

    Args:
        old: posterior of the M columns Φ
        beta: noise precision
        offset: m (M,), of the residual target t − Φm
        cross: Φᵀφ (M, P)
        diagonal: φᵀφ (P,)
        projection: φᵀ(t − Φm) (P,)
    """
    half = whitened(old, cross)
    s = beta * diagonal - beta**2 * np.einsum("pm,pm->p", half, half)
    return np.maximum(s, 0.0), beta * (projection - cross.T @ (old.mean - offset))


def whitened(old: Posterior, cross: Float) -> Float:
    """Return W (P, M) with WWᵀ = crossᵀ Σ cross, from cross (M, P)."""
    # the transposed problem: rows of ``cross`` are columns for BLAS, so nothing is copied
    right = (old.scale[:, None] * cross).T
    return np.asarray(blas.dtrsm(1.0, old.factor, right, side=1, lower=1, trans_a=1, overwrite_b=1))


def weakly_correlated(old: Sequence[Posterior], columns: Int) -> Int:
    """Select columns whose weights are nearly uncorrelated in every posterior, starting with the
    least determined columns."""
    determined = sum(posterior.determinedness[columns] for posterior in old)
    order = columns[np.argsort(determined, kind="stable")]
    n = len(order)
    unit = np.zeros((len(old[0].mean), n))
    unit[order, np.arange(n)] = 1.0
    correlation = np.zeros((n, n))
    for posterior in old:
        half = whitened(posterior, unit)
        variance = posterior.variance[order]
        magnitudes = np.abs(half @ half.T) / np.sqrt(np.outer(variance, variance))
        correlation = np.maximum(correlation, magnitudes)
    selected: list[int] = []
    for k in range(n):
        if not selected or correlation[k, selected].max() < WEAK_CORRELATION:
            selected.append(k)
    return order[selected]
