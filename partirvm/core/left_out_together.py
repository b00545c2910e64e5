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
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from partirvm.core.left_out import OwnColumns, owners
from partirvm.types import Float, Int

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


def left_out_together(
    block: Float,
    residuals: Float,
    precisions: Float,
    mean: Float,
    root: Float,
    own: OwnColumns = (),
) -> LeftOutTogether:
    """Leave out the rows of a fold together.

    Args:
        block: design at the rows (m, M)
        residuals: target minus Φμ, for T targets that share Σ (m, T)
        precisions: β times the weight of each row, above 0 (m,)
        mean: μ (M, T)
        root: R (M, M), Σ = RRᵀ
        own: positions of the rows that are centres, with their columns' positions
    """
    scale = np.sqrt(precisions)[:, None]
    white = scale * (block @ root)  # A
    inverse = np.linalg.inv((1.0 + LEAST_REST) * np.eye(len(block)) - white @ white.T)  # Z
    change = -root @ (white.T @ (inverse @ (scale * residuals)))
    shift = block @ change
    variance = np.maximum(np.diagonal(inverse) - 1.0, 0.0) / precisions
    removed = np.concatenate([np.zeros(0, dtype=np.int64), *(columns for _, columns in own)])
    cross, solved = _cross_covariance(root[removed], white, inverse, scale)
    shift_without = shift - solved.T @ (mean + change)[removed]
    variance_without = np.maximum(variance - np.einsum("dm,dm->m", solved, cross), 0.0)
    return LeftOutTogether(
        shifts=np.stack([shift, shift_without], axis=1),
        variances=np.column_stack([variance, variance_without]),
        owner=owners(len(block), own),
        change=change,
    )


def _cross_covariance(part: Float, white: Float, inverse: Any, scale: Float) -> tuple[Float, Any]:
    """Return C (D, m), the covariance of the weights of D columns with the predictors of a left-out
    fold, and V⁻¹C, where V is the covariance of these weights.

    Args:
        part: rows of R for the D columns (D, M)
        white: A (m, M)
        inverse: Z (m, m)
        scale: square roots of the rows' precisions (m, 1)
    """
    spread = part @ white.T
    cross = spread @ inverse / scale.T
    covariance = part @ part.T + spread @ inverse @ spread.T
    return cross, np.linalg.lstsq(covariance, cross, rcond=None)[0]
