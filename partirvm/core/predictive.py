"""Predictive distributions: row-by-row products, the uncertainty of α and β, and RVM*.

**Row-by-row products.** BLAS selects its algorithm by the shape of the whole product: OpenBLAS's
AVX-512 kernels process 24 rows at a time and round the remaining rows differently. So predictions
are computed in pieces of a fixed height, a multiple of 24: a row yields the same bits alone, in a
table, or in a tile.

**The uncertainty of α and β**, by the delta method. Let θ = (log α_1 … log α_M, log β) be normal
around the optimum, with covariance C. Σ grows by JCJᵀ with J = ∂μ/∂θ: ∂μ/∂log α_j = −α_j μ_j Σ_:j
and ∂μ/∂log β = ΣAμ. A noise variance with ν degrees of freedom has Var(log σ²) = 2/ν, so intervals
use Student's t with this ν. C is the inverse of the Fisher information ½ tr(K⁻¹∂K K⁻¹∂K) of t ~
N(0, K), K = β⁻¹ + ΦA⁻¹Φᵀ; the Hessian itself is indefinite if an α is not optimal. With S = A^½ΣA^½
and Γ = 1 − S, whose diagonal is γ, the information has the elements

    (log α_i, log α_j):  ½ Γ_ij²
    (log α_i, log β):    ½ (SΓ)_ii
    (log β, log β):      ½ (N − 2 Σγ + tr Γ²).

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
    whole = n - n % ROWS
    columns = weights.shape[1:]
    out = np.empty((n, *columns))
    pieces = block[:whole].reshape(n // ROWS, ROWS, M)
    np.matmul(pieces, weights, out=out[:whole].reshape(n // ROWS, ROWS, *columns))
    if whole < n:
        last = np.zeros((ROWS, M), order="F")
        last[: n - whole] = block[whole:]
        out[whole:] = (last @ weights)[: n - whole]
    return out


def quadratic_forms(block: Float, root: Float) -> Float:
    """Return φᵀRRᵀφ (n,) for each row φ of ``block`` (n, M), with an upper triangular root R (M,
    M)."""
    forms = np.empty(len(block))
    stored = np.ascontiguousarray(root).T  # lower triangular, in BLAS's layout
    piece = np.zeros((root.shape[1], ROWS)).T
    for start in range(0, len(block), ROWS):
        rows = block[start : start + ROWS]
        n = len(rows)
        piece[:n] = rows
        product = blas.dtrmm(1.0, stored, piece, side=1, lower=1, trans_a=1, overwrite_b=1)
        forms[start : start + ROWS] = np.einsum("nm,nm->n", product, product)[:n]
    return forms


def information(alpha: Float, root: Float, n: int) -> Float:
    """Return the Fisher information (M + 1, M + 1) of (log α, log β) in n targets, from α (M,) and
    Σ's root (M, M)."""
    M = len(alpha)
    scaled = np.sqrt(alpha)[:, None] * root
    S = scaled @ scaled.T
    Gamma = np.eye(M) - S
    elements = np.empty((M + 1, M + 1))
    np.square(Gamma, out=elements[:M, :M])
    elements[:M, M] = elements[M, :M] = np.einsum("ij,ij->i", S, Gamma)
    elements[M, M] = n - 2 * np.trace(Gamma) + elements[:M, :M].sum()
    return 0.5 * elements


def widened(
    alpha: Float, mean: Float, root: Float, n: int, *, known_noise: bool, known: Sequence[int] = ()
) -> tuple[Float, float]:
    """Return a root (M, M) of Σ + JCJᵀ, and ν: infinite with a known β, otherwise at least one.

    Args:
        alpha: α (M,)
        mean: μ (M,)
        root: R (M, M), Σ = RRᵀ
        n: number of rows of the fit
        known_noise: True if the user set β
        known: columns whose α the user set
    """
    M = len(alpha)
    parameters = np.arange(M if known_noise else M + 1)
    free = np.setdiff1d(parameters, np.asarray(known, dtype=np.int64))
    if not len(free):
        return root, np.inf
    precision = information(alpha, root, n)[np.ix_(free, free)] + np.eye(len(free)) / REACH**2
    factor = np.linalg.cholesky(precision)
    moved = np.vstack([-(alpha * mean)[:, None] * root, (alpha * mean) @ root])  # Vᵀ, where J = RV
    white = solve_triangular(factor, moved[free], lower=True, check_finite=False)
    if M:
        # an upper triangular factor, from the last row upwards, keeps the root upper triangular
        reversed_sum = (white.T @ white + np.eye(M))[::-1, ::-1]
        root = root @ np.linalg.cholesky(reversed_sum)[::-1, ::-1]
    if known_noise:
        return root, np.inf
    # 1/L_MM² is the last element of (LLᵀ)⁻¹
    return root, max(2 * float(factor[-1, -1]) ** 2, 1.0)


def quantile(level: float, freedom: float = np.inf) -> float:
    """Return a central interval's half width in σ (Student's t or normal). Raises ``UsageError``
    unless 0 < level < 1."""
    if not 0 < level < 1:
        raise UsageError(f"level is {level}: it must lie between 0 and 1, such as 0.95")
    half = 0.5 + level / 2
    return float(ndtri(half) if np.isinf(freedom) else stdtrit(freedom, half))


def augmentation(
    extra: GramBlock, block: Float, heights: Float, root: Float, beta: float, variance: float
) -> tuple[Float, Float]:
    """Return the corrections to the mean and the variance, (G,) each, from the extra column of each
    of G test rows; zero for a row of height 0.

    Args:
        extra: products of the extra columns, of which only the first G are used, with the M columns
            and with t − Φμ
        block: Φ at the test rows (G, M)
        heights: k(x*, x*) (G,)
        root: R (M, M), Σ = RRᵀ
        beta: noise precision
        variance: target variance in the model's units
    """
    G = len(heights)
    if not variance > 0:
        return np.zeros(G), np.zeros(G)
    projected = beta * products(extra.cross.T[:G], root)
    s = np.maximum(beta * extra.gram[:G] - np.einsum("gm,gm->g", projected, projected), 0.0)
    e = heights - np.einsum("gm,gm->g", products(block, root), projected)
    precision = heights**2 / variance + s
    ratio = np.divide(e, precision, out=np.zeros(G), where=precision > 0)
    return ratio * (beta * extra.projection[:G, 0]), ratio * e
