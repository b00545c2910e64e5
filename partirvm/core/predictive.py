"""Predictive distributions: products row by row, the uncertainty of α and β, and RVM*.

**Products row by row.** BLAS selects its algorithm by the shape of the whole product: OpenBLAS's
AVX-512 kernels process 24 rows at a time and round the remaining rows differently. So predictions
are computed in pieces of a fixed height, a multiple of 24: a row has the same bits alone, in a
table, or in a tile.

**The uncertainty of α and β**, by the delta method. Let θ = (log α_1 … log α_M, log β) be normal
around the optimum, with covariance C. Σ grows by JCJᵀ with J = ∂μ/∂θ: ∂μ/∂log α_j = −α_j μ_j Σ_:j
and ∂μ/∂log β = ΣAμ. A noise variance with ν degrees of freedom has Var(log σ²) = 2/ν, so intervals
use Student's t with this ν. C is the inverse of the Fisher information ½ tr(K⁻¹∂K K⁻¹∂K) of t ~
N(0, K), K = β⁻¹ + ΦA⁻¹Φᵀ; the Hessian itself is indefinite if an α is not optimal. With S = A^½ΣA^½
and Γ = 1 − S, whose diagonal is γ, the information has the elements

    (log α_i, log α_j):  ½ Γ_ij²        (log α_i, log β):  ½ (SΓ)_ii        (log β, log β):  ½ (N −
    2 Σγ + tr Γ²).

With Γ = 1, the last element gives ν = N − M, as in linear regression. μ is linear in log α only
over a few units, so each element of θ has a normal prior around the optimum, with standard
deviation ``REACH``.

**RVM*** (Rasmussen & Quiñonero-Candela 2005). Far from all relevance vectors, the columns of an RVM
are zero, so the predictive variance is smallest where the uncertainty is largest. RVM* adds a
column φ†(x) = k(x, x*) for each test input x* separately, with the prior precision α† = k(x*,
x*)²/var(t), at the given α and β. With c = ΦᵀWφ†,

    s = βφ†ᵀWφ† − β²cᵀΣc,    q = βφ†ᵀW(t − Φμ),    e = k(x*, x*) − βφ(x*)ᵀΣc
    mean* = φ(x*)ᵀμ + e·q / (α† + s),    var* = σ² + φ(x*)ᵀΣφ(x*) + e² / (α† + s).
"""

from collections.abc import Sequence

import numpy as np
from scipy.linalg import blas, solve_triangular
from scipy.special import ndtri, stdtrit

from partirvm.core.statistics import GramBlock
from partirvm.errors import UsageError
from partirvm.types import Float

ROWS = 192
"""Number of rows per piece."""

REACH = 3.0
"""Standard deviation of the prior on each log α and on log β, around the optimum."""


def products(block: Float, weights: Float) -> Float:
    """Return ``block`` (n, M) times ``weights``, (M,) or (M, K), with shape (n,) or (n, K), stored
    row by row."""
    n, M = block.shape
    count = n // ROWS
    whole = n - n % ROWS
    out = np.empty((n, *weights.shape[1:]))
    pieces = block[:whole].reshape(count, ROWS, M)
    places = out[:whole].reshape(count, ROWS, *weights.shape[1:])
    np.matmul(pieces, weights, out=places)
    if whole < n:
        last = np.zeros((ROWS, M), order="F")
        last[: n - whole] = block[whole:]
        out[whole:] = (last @ weights)[: n - whole]
    return out


def quadratic_forms(block: Float, root: Float) -> Float:
    """Return φᵀRRᵀφ (n,) for each row φ of ``block`` (n, M), with an upper triangular root R (M,
    M)."""
    found = np.empty(len(block))  # lower triangular, in BLAS's layout
    stored = np.ascontiguousarray(root).T
    piece = np.zeros((root.shape[1], ROWS)).T
    for start in range(0, len(block), ROWS):
        some = block[start : start + ROWS]
        piece[: len(some)] = some
        product = blas.dtrmm(1.0, stored, piece, side=1, lower=1, trans_a=1, overwrite_b=1)
        found[start : start + ROWS] = np.einsum("nm,nm->n", product, product)[: len(some)]
    return found


def information(alpha: Float, root: Float, n: int) -> Float:
    """Return the Fisher information (M + 1, M + 1) of (log α, log β) in n targets, from α (M,) and
    Σ's root (M, M)."""
    M = len(alpha)
    scaled = np.sqrt(alpha)[:, None] * root
    S = scaled @ scaled.T
    determined = np.eye(M) - S
    found = np.empty((M + 1, M + 1))
    np.square(determined, out=found[:M, :M])
    found[:M, M] = found[M, :M] = np.einsum("ij,ij->i", S, determined)
    found[M, M] = n - 2 * np.trace(determined) + found[:M, :M].sum()
    return 0.5 * found


def widened(
    alpha: Float, mean: Float, root: Float, n: int, *, known_noise: bool, known: Sequence[int] = ()
) -> tuple[Float, float]:
    """Return a root (M, M) of Σ + JCJᵀ, and ν, for a fit to n rows with α, μ (M,) and R (M, M), Σ =
    RRᵀ.

    ν is infinite if the user set β (``known_noise``), else at least one. ``known`` lists columns
    whose α the user set.
    """
    M = len(alpha)
    free = np.setdiff1d(np.arange(M if known_noise else M + 1), np.asarray(known, dtype=np.int64))
    if not len(free):
        return root, np.inf
    factor = np.linalg.cholesky(
        information(alpha, root, n)[np.ix_(free, free)] + np.eye(len(free)) / REACH**2
    )
    moved = np.vstack([-(alpha * mean)[:, None] * root, (alpha * mean) @ root])  # Vᵀ, where J = RV
    white = solve_triangular(factor, moved[free], lower=True, check_finite=False)
    whole = white.T @ white + np.eye(M)
    # an upper triangular factor, from the last row upwards, keeps the root upper triangular
    wide = root @ np.linalg.cholesky(whole[::-1, ::-1])[::-1, ::-1] if M else root
    # 1/L_MM² is the last element of (LLᵀ)⁻¹
    return wide, np.inf if known_noise else max(2 * float(factor[-1, -1]) ** 2, 1.0)


def quantile(level: float, freedom: float = np.inf) -> float:
    """Return a central interval's half width in σ (Student's t or normal). ``UsageError`` unless 0
    < level < 1."""
    if not 0 < level < 1:
        raise UsageError(f"level is {level}: it must lie between 0 and 1, such as 0.95")
    half = 0.5 + level / 2
    return float(ndtri(half) if np.isinf(freedom) else stdtrit(freedom, half))


def augmentation(
    extra: GramBlock, block: Float, heights: Float, root: Float, beta: float, variance: float
) -> tuple[Float, Float]:
    """Return the corrections to mean and variance, (G,) each, due to the extra column of each of G
    test rows.

    ``extra`` holds the products of the extra columns, of which the first G count, with the M
    columns and with t − Φμ. ``block`` (G, M) is Φ at the test rows, ``heights`` (G,) is k(x*, x*),
    ``root`` (M, M) is R with Σ = RRᵀ, ``variance`` is the target variance in the model's units. A
    row with height 0 has zero corrections.
    """
    G = len(heights)
    if not variance > 0:
        return np.zeros(G), np.zeros(G)
    projected = beta * products(extra.cross.T[:G], root)
    sparsity = np.maximum(beta * extra.gram[:G] - np.einsum("gm,gm->g", projected, projected), 0.0)
    own = heights - np.einsum("gm,gm->g", products(block, root), projected)
    precision = heights**2 / variance + sparsity
    ratio = np.divide(own, precision, out=np.zeros(G), where=precision > 0)
    return ratio * (beta * extra.projection[:G, 0]), ratio * own
