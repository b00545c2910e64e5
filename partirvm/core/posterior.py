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
from itertools import repeat
from typing import Any

import numpy as np
from scipy.linalg import blas, lapack

from partirvm.core.statistics import GramStatistics
from partirvm.errors import NumericalError
from partirvm.process import in_threads, unlocked
from partirvm.types import Each, Float, Int

WEAK_CORRELATION = 0.1
"""Absolute posterior correlation of two weights below which their columns may be deleted
together."""

JITTERS = (0.0, 1e-15, 1e-14, 1e-13, 1e-12, 1e-11, 1e-10)
"""Values added to the unit diagonal, tried in this order."""

TILE = 192
"""Number of rows and of columns of a tile."""

LEAST, LEAST_INVERSE = 4 * TILE, 2 * TILE
"""Number of columns from which a factor and an inverse are divided into tiles; for fewer, LAPACK is
as fast."""


@dataclass(frozen=True)
class Posterior:
    """Posterior of M weights at fixed α and β, for one target or for T targets that share columns
    and α.

    ``mean`` (M,) is μ, ``variance`` (M,) the diagonal of Σ, ``determinedness`` (M,) γ = 1 − αΣ_ii.
    ``residual`` is ‖t − Φμ‖² (weighted), at least ``rounding``, a bound on its rounding error.
    ``log_evidence`` is in nats. ``factor`` (M, M) is the lower Cholesky factor L of the scaled H,
    ``scale`` (M,) is S: Σ = S(LLᵀ)⁻¹S. If each target has its own β, vectors are (M, T), scalars
    (T,), and log evidences are summed; only ``targets``, the posterior of each, have factors.
    Targets with a common β (class indicators) share Σ: μ is (M, T), and scalars are sums.
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
        """True if rounding may have left only two correct digits of the residual of any target."""
        return bool(np.any(self.residual < 100 * self.rounding))

    @property
    def means(self) -> Float:
        """μ as (M, T), even for one target."""
        return self.mean if self.mean.ndim == 2 else self.mean[:, None]

    @property
    def covariances(self) -> Float:
        """Σ as (T, M, M), even for one target."""
        return np.stack([root @ root.T for root in (one.root() for one in self.targets or (self,))])

    def root(self) -> Float:
        """Return R, (M, M) or (T, M, M), with Σ = R Rᵀ: a predictive variance φᵀΣφ = ‖Rᵀφ‖² is
        never negative."""
        return (
            np.stack([one.root() for one in self.targets])
            if self.targets
            else root_of(self.factor, self.scale)
        )


def blocks(n: int, least: int = LEAST) -> list[slice]:
    """Return the row or column ranges of the tiles of a matrix of size n; a single range below
    ``least``."""
    size = TILE if n >= least else max(n, 1)
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]


def cholesky(data: Float, left: Float, right: Float, diagonal: float) -> Float | None:
    """Return the lower factor, in Fortran order, of a matrix (M, M); None if it is not positive
    definite.

    Its elements are left_i data_ij right_j with symmetric ``data``, except for its diagonal, which
    is constant.
    """
    ranges = blocks(len(data))
    ld = len(data)
    L = np.empty(data.shape, order="F")
    info = np.zeros(1, dtype=np.intc)

    def update(i: slice, k: slice) -> None:
        np.multiply(data[k, i].T, left[i, None] * right[k], out=L[i, k])
        if i == k:
            np.fill_diagonal(L[k, k], diagonal)
        unlocked(
            "dgemm", "N", "T", *L[i, k].shape, k.start, -1.0, L[i], ld, L[k], ld, 1.0, L[i, k], ld
        )

    def solve(i: slice, k: slice) -> None:
        unlocked("dtrsm", "R", "L", "T", "N", *L[i, k].shape, 1.0, L[k, k], ld, L[i, k], ld)
        L[k, i] = 0.0

    for number, k in enumerate(ranges):
        in_threads(update, ranges[number:], repeat(k))
        unlocked("dpotrf", "L", k.stop - k.start, L[k, k], ld, info)
        if info[0]:
            return None
        L[k, k] = np.tril(L[k, k])
        in_threads(solve, ranges[number + 1 :], repeat(k))
    return L


def inverse_columns(L: Float, use: Callable[[slice, Float], Any]) -> list[Any]:
    """Compute L⁻¹ of L (M, M) by column blocks; return ``use(columns, rows from there on)`` of
    each, in order."""
    ranges = blocks(len(L), LEAST_INVERSE)
    ld = len(L)
    info = np.zeros(1, dtype=np.intc)

    def inverse(number: int) -> Any:
        j = ranges[number]
        W = np.empty((len(L) - j.start, j.stop - j.start), order="F")
        n = j.stop - j.start
        W[:n] = L[j, j]
        unlocked("dtrtri", "L", "N", n, W, len(W), info)
        for i in ranges[number + 1 :]:
            m = i.stop - i.start
            above = i.start - j.start
            own = W[i.start - j.start :]
            unlocked(
                "dgemm",
                "N",
                "N",
                m,
                n,
                above,
                -1.0,
                L[i, j.start :],
                ld,
                W,
                len(W),
                0.0,
                own,
                len(W),
            )
            unlocked("dtrsm", "L", "L", "N", "N", m, n, 1.0, L[i, i], ld, own, len(W))
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
        if (L := cholesky(data, beta * scale, scale, 1.0 + jitter)) is not None:
            return L, scale
    raise NumericalError(
        f"the posterior precision of {len(data)} columns is not positive definite even with a "
        f"jitter of {JITTERS[-1]:g}"
    )


def root_of(factor: Float, scale: Float) -> Float:
    """Return the upper triangular R = SL⁻ᵀ (M, M), so that H⁻¹ = RRᵀ."""
    found = np.zeros_like(factor)

    def store(columns: slice, block: Float) -> None:
        found[columns.start :, columns] = block

    inverse_columns(factor, store)
    return np.ascontiguousarray(scale[:, None] * found.T)


def posterior(statistics: GramStatistics, alpha: Float, beta: Each) -> Posterior:
    """Return the posterior and evidence of the columns of ``statistics`` at α (M,) and β, (T,) or
    shared by T targets.

    This takes ⅔ M³ flops for each β. Raises ``NumericalError`` as ``factorise`` does.
    """
    if isinstance(beta, np.ndarray):
        each = tuple(
            posterior(statistics.of_target(k), alpha, float(b)) for k, b in enumerate(beta)
        )
        names = ("mean", "variance", "determinedness", "residual", "rounding")
        none = np.zeros(0)
        joined = {name: np.stack([getattr(one, name) for one in each], axis=-1) for name in names}
        log_evidence = float(sum(one.log_evidence for one in each))
        return Posterior(**joined, log_evidence=log_evidence, factor=none, scale=none, targets=each)
    T = len(statistics.sum_squares)
    m, projection = (
        each if T > 1 else each[:, 0] for each in (statistics.offset, statistics.projection)
    )
    delta, log_det, parts = solve(statistics.gram, alpha, beta * projection - (alpha * m.T).T, beta)
    mean = m + delta

    residual, rounding = statistics.residual(delta)
    normal = statistics.n * (np.log(beta) - np.log(2 * np.pi))
    of_each = np.log(alpha).sum() - log_det + normal + statistics.log_weight
    log_evidence = 0.5 * (T * of_each - beta * residual - np.sum(alpha @ mean**2))
    return Posterior(
        mean=mean, residual=residual, log_evidence=float(log_evidence), rounding=rounding, **parts
    )


def solve(
    data: Float, alpha: Float, right: Float, beta: float = 1.0
) -> tuple[Float, float, dict[str, Any]]:
    """Return H⁻¹·right, (M,) or (M, T), log|H|, and the fields of the posterior that follow from H
    = β·data + A.

    Raises ``NumericalError`` as ``factorise`` does.
    """
    factor, scale = factorise(data, alpha, beta)
    solution = right
    variance = scale
    if len(right):
        solution = (scale * lapack.dpotrs(factor, (scale * right.T).T, lower=1)[0].T).T
        # the squared column lengths of L⁻¹ are the diagonal of (LLᵀ)⁻¹
        lengths = inverse_columns(
            factor, lambda columns, block: np.einsum("ij,ij->j", block, block)
        )
        variance = scale**2 * np.concatenate(lengths)
    log_det = 2 * (np.log(np.diagonal(factor)).sum() - np.log(scale).sum())
    determinedness = np.clip(1.0 - alpha * variance, 0.0, 1.0)
    parts = {
        "variance": variance,
        "determinedness": determinedness,
        "factor": factor,
        "scale": scale,
    }
    return solution, float(log_det), parts


def own_factors(fit: Any, alpha: Float) -> tuple[Float, Float]:
    """Return s_i = 1/Σ_ii − α_i and q_i = μ_i/Σ_ii (Tipping & Faul) of a fit's own columns, (M,) or
    (M, T).

    For targets that share Σ, q_i is the root mean square, which gives each the mean of their
    evidence terms.
    """
    precision = 1.0 / fit.variance
    mean = shared(fit.mean, fit.variance)
    return np.maximum(
        precision - (alpha if mean.ndim == 1 else alpha[:, None]), 0.0
    ), mean * precision


def shared(values: Float, variance: Float) -> Float:
    """Return the values, (P,) or (P, T); for targets that share the ``variance`` (P,), the root
    mean square, (P,)."""
    return values if values.ndim == variance.ndim else np.sqrt(np.mean(values**2, axis=1))


def sparsity_quality(
    old: Posterior, beta: float, offset: Float, cross: Float, diagonal: Float, projection: Float
) -> tuple[Float, Float]:
    """Return s = βφᵀφ − β²φᵀΦΣΦᵀφ and q = βφᵀ(t − Φμ) of P columns, from cross (M, P), diagonal and
    projection (P,)."""
    half = whitened(old, cross)
    s = beta * diagonal - beta**2 * np.einsum("pm,pm->p", half, half)
    return np.maximum(s, 0.0), beta * (projection - cross.T @ (old.mean - offset))


def whitened(old: Posterior, cross: Float) -> Float:
    """Return W (P, M) with WWᵀ = crossᵀ Σ cross, from cross (M, P)."""
    # the transposed problem: rows of ``cross`` are columns for BLAS, so nothing is copied
    right = (old.scale[:, None] * cross).T
    return np.asarray(blas.dtrsm(1.0, old.factor, right, side=1, lower=1, trans_a=1, overwrite_b=1))


def weakly_correlated(old: Sequence[Posterior], columns: Int) -> Int:
    """Select columns whose weights are nearly uncorrelated in every posterior, the least determined
    columns first."""
    order = columns[np.argsort(sum(each.determinedness[columns] for each in old), kind="stable")]
    unit = np.zeros((len(old[0].mean), len(order)))
    unit[order, np.arange(len(order))] = 1.0
    correlation = np.zeros((len(order), len(order)))
    for each in old:
        half = whitened(each, unit)
        found = np.abs(half @ half.T) / np.sqrt(
            np.outer(each.variance[order], each.variance[order])
        )
        correlation = np.maximum(correlation, found)
    gone: list[int] = []
    for k in range(len(order)):
        if not gone or correlation[k, gone].max() < WEAK_CORRELATION:
            gone.append(k)
    return order[gone]
