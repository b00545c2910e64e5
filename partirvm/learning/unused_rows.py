"""Rows from which no kernel was learned, each predicted by an exact process from all other rows.

With K the covariance of all n rows, the errors of the rows G of a group that is left out, and their
covariance, are

    e_G = P_GG⁻¹ (P t)_G,    P_GG⁻¹,    P = K⁻¹,

which for a single row i is (P t)_i/P_ii and 1/P_ii (Rasmussen & Williams 2006, eqs. 5.10 to 5.12).
Compared with one split into known and new rows, each row is predicted from twice as many rows,
nearly as in the finished fit: standard errors of the same kernels' differences are smaller.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.linalg import lapack

from partirvm.learning.exact_process import ProcessFit, ProcessRows, triangle
from partirvm.types import Bool, Float, Int


class RowLosses(NamedTuple):
    """The losses of predicted rows.

    Attributes:
        squares: weighted squared errors (m,)
        losses: minus log densities in nats (m,), after multiplying all variances by one factor, as
            a fit does
    """

    squares: Float
    losses: Float


@dataclass(frozen=True)
class UnusedRows:
    """The rows of a process, some of which no kernel was learned from.

    Attributes:
        rows: all rows (n,)
        is_new: True for rows from which nothing was learned (n,)
        groups: groups of the rows, which are left out together (n,), or None
    """

    rows: ProcessRows
    is_new: Bool
    groups: Int | None = None

    @cached_property
    def new(self) -> ProcessRows:
        """The rows from which nothing was learned, (m,)."""
        return self.rows.part(self.is_new)

    @property
    def new_groups(self) -> Int | None:
        """Groups of the rows from which nothing was learned (m,), or None."""
        return None if self.groups is None else self.groups[self.is_new]

    def losses(self, fit: ProcessFit) -> RowLosses:
        """Return the losses of the new rows with a kernel, infinite if its covariance is not
        positive definite."""
        rows = self.rows
        covariance = rows.covariance(triangle(fit.kernel, rows.X).values, fit)
        factor, failed = lapack.dpotrf(covariance, lower=1)
        if failed:
            infinite = np.full(int(self.is_new.sum()), np.inf)
            return RowLosses(infinite, infinite)
        precision = lapack.dpotri(factor, lower=1)[0]
        precision = np.tril(precision) + np.tril(precision, -1).T
        errors, variances = left_out_moments(precision, rows.t, self.groups)
        errors = errors[self.is_new]
        squares = (errors**2).mean(axis=1) / self.new.inverse
        sums = (errors**2).sum(axis=1)
        T = errors.shape[1]
        return RowLosses(squares, adjusted_losses(sums, variances[self.is_new], T))


def left_out_moments(
    precision: Float, targets: Float, groups: Int | None = None
) -> tuple[Float, Float]:
    """Return the errors (n, T) and variances (n,) of rows that are left out one by one, or group by
    group.

    Args:
        precision: inverse covariance of all rows (n, n)
        targets: their targets (n, T)
        groups: their groups (n,), or None
    """
    weights = precision @ targets
    diagonal = precision.diagonal()
    if groups is None:
        return weights / diagonal[:, None], 1 / diagonal
    errors = np.empty_like(weights)
    variances = np.empty(len(weights))
    for group in np.unique(groups):
        places = np.flatnonzero(groups == group)
        covariance = np.linalg.inv(precision[np.ix_(places, places)])
        errors[places] = covariance @ weights[places]
        variances[places] = covariance.diagonal()
    return errors, variances


def adjusted_losses(squares: Float, variances: Float, T: int) -> Float:
    """Return minus the log densities (n,) of T errors with variances (n,), after multiplying all
    variances by the factor with the highest density.

    Args:
        squares: sums of the T squared errors (n,)
        variances: predicted variances (n,)
        T: number of targets
    """
    ratios = squares / variances
    factor = max(float(ratios.mean()) / T, np.finfo(float).tiny)
    return np.asarray(0.5 * (T * np.log(2 * np.pi * factor * variances) + ratios / factor))
