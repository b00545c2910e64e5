"""Predictive distributions that include the uncertainty of α and β, by the delta method.

α and β are point estimates that maximise the evidence. Let θ = (log α_1 … log α_M, log β) be approximately normal
around the optimum, with covariance C. The mean μ(θ)ᵀφ of a prediction varies with θ, so the predictive variance grows
by φᵀJCJᵀφ with J = ∂μ/∂θ. In closed form, with A = diag(α),

    ∂μ/∂log α_j = −α_j μ_j Σ_:j,        ∂μ/∂log β = ΣAμ.

So Σ grows by the matrix JCJᵀ, for all predictions. The noise variance is uncertain too. An estimate with ν degrees of
freedom has Var(log σ²) = 2/ν, so intervals use the quantiles of Student's t with this ν.

**C.** C is the inverse of Fisher's information ½ tr(K⁻¹∂K K⁻¹∂K) of t ~ N(0, K), K = β⁻¹ + ΦA⁻¹Φᵀ, which is the
expectation of the negative Hessian of the evidence. The Hessian is indefinite if an α is at its floor or not exactly at
the optimum. The information is never indefinite. For a single column, Hessian and information agree at the optimum.
Let S = A^½ΣA^½ and Γ = 1 − S, whose diagonal is γ. The elements of the information depend only on Σ, α and the number
of rows:

    (log α_i, log α_j):  ½ Γ_ij²        (log α_i, log β):  ½ (SΓ)_ii        (log β, log β):  ½ (N − 2 Σγ + tr Γ²).

With M fully determined columns (Γ = 1) the last element is ½ (N − M), so that ν = N − M, as in linear regression.

If the data hardly determine a weight, the information about its α is small too: ½γ² ≈ 0. But μ is linear in log α only
over a few units, since at e^±3 × α a weight is either determined by the data alone, or zero. A normal prior with
standard deviation ``REACH`` around the optimum, on each element of θ, models this.

The uncertainty of the kernel's parameters is not included, since their information would need passes over all rows.
Besides, a learned kernel maximises the tied evidence of a sample (``core.tied``), which has another curvature than the
evidence of the fit.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.special import ndtri, stdtrit

from partirvm.errors import UsageError

Float = NDArray[np.float64]

REACH = 3.0
"""Standard deviation of the prior on each log α and on log β, around the optimum."""


def information(alpha: Float, root: Float, n: int) -> Float:
    """Return Fisher's information (M + 1, M + 1) of θ = (log α, log β) in n targets, without the prior.

    ``alpha`` (M,) and ``root`` (M, M), a root of Σ, are from a fit to all n rows.
    """
    M = len(alpha)
    scaled = np.sqrt(alpha)[:, None] * root
    S = scaled @ scaled.T
    determined = -S
    determined.flat[:: M + 1] += 1.0
    found = np.empty((M + 1, M + 1))
    np.square(determined, out=found[:M, :M])
    found[:M, M] = found[M, :M] = np.einsum("ij,ij->i", S, determined)
    found[M, M] = n - 2 * np.trace(determined) + found[:M, :M].sum()
    found *= 0.5
    return found


def widened(
    alpha: Float, mean: Float, root: Float, n: int, *, known_noise: bool, known: Sequence[int] = ()
) -> tuple[Float, float]:
    """Return a root (M, M) of Σ + JCJᵀ, and ν, for a fit to n rows with α, μ (M,) and R (M, M), Σ = RRᵀ.

    ν is infinite if the user gave β (``known_noise``), and otherwise at least one. ``known`` are the columns whose α
    the user gave. The cost is about 3 M³ flops.
    """
    M = len(alpha)
    free = np.setdiff1d(np.arange(M if known_noise else M + 1), np.asarray(known, dtype=np.int64))
    if not len(free):
        return root, np.inf
    inner = information(alpha, root, n)[np.ix_(free, free)]
    inner.flat[:: len(free) + 1] += 1 / REACH**2
    factor = np.linalg.cholesky(inner)
    moved = np.empty((M + 1, M))  # Vᵀ, where J = RV
    moved[:M] = -(alpha * mean)[:, None] * root
    moved[M] = (alpha * mean) @ root
    white = solve_triangular(factor, moved[free], lower=True, check_finite=False)
    whole = white.T @ white
    whole.flat[:: M + 1] += 1.0
    # an upper triangular factor, from the last row upwards, keeps the root upper triangular
    wide = root @ np.linalg.cholesky(whole[::-1, ::-1])[::-1, ::-1] if M else root
    if known_noise:
        return wide, np.inf
    return wide, max(2 * float(factor[-1, -1]) ** 2, 1.0)  # 1/L_MM² is the last element of (LLᵀ)⁻¹


def quantile(level: float, freedom: float = np.inf) -> float:
    """Return the half width of the central interval at this level, in standard deviations, for Student's t or normal.

    Raises ``UsageError`` unless the level lies between 0 and 1.

    >>> round(quantile(0.95), 3), round(quantile(0.95, 10), 3)
    (1.96, 2.228)
    """
    if not 0 < level < 1:
        raise UsageError(f"level is {level}: it must lie between 0 and 1, such as 0.95")
    half = 0.5 + level / 2
    return float(ndtri(half) if np.isinf(freedom) else stdtrit(freedom, half))
