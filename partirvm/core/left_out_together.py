"""Errors of rows that are left out of a fit together, at fixed α and β, from the fit to the other
rows.

Leave-one-out errors (``core.left_out``) stand in for the errors of new rows one at a time. They are
unsuitable for predicting a row's error from its neighbours' errors: each neighbour's error comes
from a fit that contains the row, and therefore has the opposite sign of the error that a new row
would see. Rows in a *fold* are left out together. With A = (precision)^½ Φ_B R for the rows B of a
fold, Σ = RRᵀ, residuals r, and Z = (I − AAᵀ)⁻¹, the fit to the others has

    errors     Z(precision^½ r), each ÷ precision^½
    variances  (Z − I) ÷ precision
    Δμ         −R Aᵀ Z precision^½ r.

The precision of a row is β times its weight. Conditioning on w_D = 0 for the columns D that the
fold's rows own gives the errors without these columns, as in ``core.left_out``.

For more than ``WIDEST`` rows, I − AAᵀ would be larger than the matrix I − AᵀA of the columns, whose
Cholesky factor L gives the root R' = RL⁻ᵀ of the covariance without the fold, Σ' = R'R'ᵀ: then Δμ =
−R'R'ᵀΦᵀ(precision · r), and the variances are the squared rows of ΦR'. Both forms are exact.

Of a group of m rows, of which only s are known, the block's information AᵀA is estimated by m/s
times that of the s rows. It cannot exceed the information of all rows, I − RᵀαR in the coordinates
of R, so negative eigenvalues of the difference are set to 0, and R' belongs to the remaining
information plus the prior's.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular

from partirvm.core.left_out import OwnColumns, owners
from partirvm.types import Float, Int

WIDEST = 512
"""Maximum number of rows of a fold whose own matrix is inverted."""

LEAST_REST = 1e-10
"""Value added to the diagonal of I − AAᵀ: smaller eigenvalues are rounding errors."""


@dataclass(frozen=True)
class LeftOutTogether:
    """Predictors, errors and variances of a fold's m rows, from the fit to the other rows.

    Attributes:
        shifts: change of a row's predictor when its fold is left out, and when its columns are left
            out as well (m, 2, T)
        variances: variances of the predictors, without noise (m, 2)
        owner: the first column that a row owns, or −1 (m,)
        change: change of μ when the rows, but no columns, are left out (M, T)
    """

    shifts: Float
    variances: Float
    owner: Int
    change: Float


@dataclass(frozen=True)
class Remainder:
    """What the rows outside a fold say of the fold's m rows, at fixed α and β.

    Attributes:
        variance: variances of the predictors (m,)
        change: change of μ (M, T)
        cross: covariance of the weights of D columns with the predictors (D, m)
        covariance: covariance of these weights (D, D)
    """

    variance: Float
    change: Float
    cross: Float
    covariance: Float


def left_out_together(
    block: Float,
    residuals: Float,
    precisions: Float,
    mean: Float,
    root: Float,
    own: OwnColumns = (),
    group: Int | None = None,
    known: "KnownShare | None" = None,
) -> LeftOutTogether:
    """Leave out the rows of a fold together.

    Args:
        block: design at the rows (m, M)
        residuals: target minus Φμ, for T targets that share Σ (m, T)
        precisions: β times the weight of each row, above 0 (m,)
        mean: μ (M, T)
        root: R (M, M), Σ = RRᵀ
        own: positions of the rows that are centres, with their columns' positions
        group: positions (D,) of the columns that are left out, by default those in ``own``
        known: the known part of the fold's rows, if it has more
    """
    removed = np.concatenate([np.zeros(0, dtype=np.int64), *(columns for _, columns in own)])
    if group is not None:
        removed = group
    if known is None and len(block) <= WIDEST:
        outside = _by_rows(block, residuals, precisions, root, removed)
    else:
        new_root = _root_without(block, precisions, root, known)
        outside = _by_columns(block, residuals, precisions, new_root, removed, known)
    change = outside.change
    shift = block @ change
    variance = outside.variance
    solved = np.linalg.lstsq(outside.covariance, outside.cross, rcond=None)[0]
    shift_without = shift - solved.T @ (mean + change)[removed]
    reduction = np.einsum("dm,dm->m", solved, outside.cross)
    return LeftOutTogether(
        shifts=np.stack([shift, shift_without], axis=1),
        variances=np.column_stack([variance, np.maximum(variance - reduction, 0.0)]),
        owner=owners(len(block), own),
        change=change,
    )


@dataclass(frozen=True)
class KnownShare:
    """The known part of the rows of a fold.

    Attributes:
        factors: number of rows for which each known row stands (m,)
        alpha: prior precisions α (M,)
    """

    factors: Float
    alpha: Float


def _by_rows(
    block: Float, residuals: Float, precisions: Float, root: Float, removed: Int
) -> Remainder:
    """Return what the other rows say, from the inverse of I − AAᵀ.

    Args:
        block: design at the rows (m, M)
        residuals: residuals of the rows (m, T)
        precisions: precisions of the rows (m,)
        root: R (M, M)
        removed: positions of D columns
    """
    scale = np.sqrt(precisions)[:, None]
    white = scale * (block @ root)  # A
    inverse = np.linalg.inv((1.0 + LEAST_REST) * np.eye(len(block)) - white @ white.T)  # Z
    change = -root @ (white.T @ (inverse @ (scale * residuals)))
    variance = np.maximum(np.diagonal(inverse) - 1.0, 0.0) / precisions
    part = root[removed]
    spread = part @ white.T
    cross = spread @ inverse / scale.T
    covariance = part @ part.T + spread @ inverse @ spread.T
    return Remainder(variance, change, cross, covariance)


def _by_columns(
    block: Float,
    residuals: Float,
    precisions: Float,
    root: Float,
    removed: Int,
    known: KnownShare | None,
) -> Remainder:
    """Return what the other rows say, from the root R' of the covariance without the fold.

    Args:
        block: design at the rows (m, M)
        residuals: residuals of the rows (m, T)
        precisions: precisions of the rows (m,)
        root: R' (M, M)
        removed: positions of D columns
        known: the known part of the fold's rows, if it has more
    """
    white = block @ root
    weights = precisions if known is None else precisions * known.factors
    change = -root @ (white.T @ (weights[:, None] * residuals))
    part = root[removed]
    variance = np.einsum("mk,mk->m", white, white)
    return Remainder(variance, change, part @ white.T, part @ part.T)


def _root_without(block: Float, precisions: Float, root: Float, known: KnownShare | None) -> Float:
    """Return the root R' (M, M) of the covariance without a fold's rows.

    Args:
        block: design at the rows (m, M)
        precisions: precisions of the rows (m,)
        root: R (M, M)
        known: the known part of the fold's rows, if it has more
    """
    M = len(root)
    weights = precisions if known is None else precisions * known.factors
    white = np.sqrt(weights)[:, None] * (block @ root)  # A
    remaining = np.eye(M) - white.T @ white
    if known is not None:
        of_prior = (known.alpha[:, None] * root).T @ root
        values, vectors = np.linalg.eigh(remaining - of_prior)
        remaining = of_prior + (np.maximum(values, 0.0) * vectors) @ vectors.T
    remaining[np.diag_indices(M)] += LEAST_REST
    factor = np.linalg.cholesky(remaining)
    return np.asarray(solve_triangular(factor, root.T, lower=True, check_finite=False).T)
