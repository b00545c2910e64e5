"""Errors of groups that are left out of a fit as a whole, with the columns centred at their rows.

For a group B with the design Φ_B, the posterior Σ, the noise covariance R_B = (β W)⁻¹ and the
residuals r_B, let H = Φ_BΣΦ_Bᵀ R_B⁻¹. Without the group, at fixed α and β, the errors and the
covariance of the predictions at its rows are

    e_B = (I − H)⁻¹ r_B,        V_B = (I − H)⁻¹ Φ_BΣΦ_Bᵀ

(``core.left_out_together``: a row is the case m = 1 of ``core.left_out``). A new group owns no
columns either, so that the columns D of all centres in the group are removed by conditioning on
w_D = 0. As for single rows, a fit without the group might choose centres in other groups instead:
of the change, the fraction (1 − ρ²)^⅛ is counted, where ρ is the largest value of a column at rows
of other groups. For a row of the group, the column that is largest there decides. A column in
another group is no substitute for what only this group shows: if the mean squared error e² of
left-out groups exceeds that of left-out rows, r², the fraction 1 − r²/e² of the change is counted
in any case (40 stations: e .34, with all of the change 1.15; refits without a fifth of the stations
1.13).

This is exact for groups of at most ``MOST_OF_GROUP`` rows, of which none is missing in the sample;
larger groups are represented by some of their rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import iadd

import numpy as np

from partirvm.core.groups import GroupedRows
from partirvm.core.left_out import LeftOut
from partirvm.core.left_out_together import KnownShare, left_out_together
from partirvm.core.link import targets
from partirvm.core.ramp import LeftOutClasses
from partirvm.types import PANEL_ROWS, Float, Int


@dataclass(frozen=True)
class GroupedDesign:
    """Rows of a fit that are left out by groups, with their design.

    Attributes:
        block: design at the rows (n, M)
        grouped: numbers and groups of the rows (n,)
        owners: group of each column's centre (M,); only columns in ``owned`` have one
        owned: positions of the columns with a centre in a group
        peaks: the columns' largest values (M,)
        weights: row weights of the fit, times those of local noise (n,)
        units: u (n,), with which σ²/u is the noise variance of a row
    """

    block: Float
    grouped: GroupedRows
    owners: Int
    owned: Int
    peaks: Float
    weights: Float
    units: Float

    def nearest(self) -> Float:
        """Return the largest absolute value of each column at rows outside its group, ÷ its peak
        (M,)."""
        largest = np.zeros(self.block.shape[1])
        for start in range(0, len(self.block), PANEL_ROWS):
            panel = slice(start, start + PANEL_ROWS)
            block = np.abs(self.block[panel])
            is_own = self.grouped.codes[panel, None] == self.owners[self.owned]
            block[:, self.owned] = np.where(is_own, 0.0, block[:, self.owned])
            largest = np.maximum(largest, block.max(axis=0, initial=0.0))
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(largest / np.abs(self.peaks))

    def columns_of(self, group: int) -> Int:
        """Return the positions of the columns whose centres are in a group."""
        return np.asarray(self.owned[self.owners[self.owned] == group])

    def owner(self, rows: Int, columns: Int) -> Int:
        """Return, of these columns (D,), the one that is largest at each of the rows (m,), or −1
        if there are none."""
        if not len(columns):
            return np.full(len(rows), -1)
        with np.errstate(divide="ignore", invalid="ignore"):
            values = np.abs(self.block[np.ix_(rows, columns)] / self.peaks[columns])
        return np.asarray(columns[np.nan_to_num(values).argmax(axis=1)])


@dataclass(frozen=True)
class TargetFit:
    """The fit of one target.

    Attributes:
        target: targets of the rows (n,)
        mean: μ (M,)
        root: R (M, M), Σ = RRᵀ
        alpha: α (M,)
        beta: noise precision
        least_square: a lower bound on the mean squared error
    """

    target: Float
    mean: Float
    root: Float
    alpha: Float
    beta: float
    least_square: float = 0.0


@dataclass(frozen=True)
class IndicatorFit:
    """A fit to class indicators, which share Σ.

    Attributes:
        mean: μ (M, K)
        root: R (M, M), Σ = RRᵀ
        alpha: α (M,)
        beta: noise precision
    """

    mean: Float
    root: Float
    alpha: Float
    beta: float


def left_out_groups(design: GroupedDesign, fit: TargetFit, nearest: Float | None = None) -> LeftOut:
    """Leave out each group of rows of a fit; rows of weight 0 are dropped.

    ``nearest`` (M,) is that of more groups, if these rows are only some of the groups.
    """
    present = design.weights > 0
    nearest = design.nearest() if nearest is None else nearest
    parts = [
        _left_out_group(design, fit, rows[present[rows]], nearest)
        for rows in design.grouped.members()
        if present[rows].any()
    ]
    return in_order(parts)


def left_out_classes(design: GroupedDesign, codes: Float, fit: IndicatorFit) -> LeftOutClasses:
    """Leave out each group of rows of a fit to class indicators, with all columns of its centres;
    rows of weight 0 are dropped. The predictors are exactly those of a fit to the other groups, at
    fixed α and β and without these columns.

    Args:
        design: the rows of all groups
        codes: classes of the rows (n,)
        fit: the fit
    """
    present = design.weights > 0
    f = design.block @ fit.mean
    residuals = targets(codes, f.shape[1]) - f
    for members in design.grouped.members():
        rows = members[present[members]]
        if not len(rows):
            continue
        factors = design.grouped.shares[rows]
        together = left_out_together(
            design.block[rows],
            residuals[rows],
            fit.beta * design.weights[rows],
            fit.mean,
            fit.root,
            group=design.columns_of(int(design.grouped.codes[rows[0]])),
            known=KnownShare(factors, fit.alpha) if factors[0] > 1.0 else None,
        )
        f[rows] += together.shifts[:, 1]
    return LeftOutClasses(f[present], codes[present], design.weights[present])


def in_order(parts: Sequence[LeftOut]) -> LeftOut:
    """Return the errors of all parts in the order of the row numbers."""
    left_out = reduce(iadd, parts)
    return left_out.take(np.argsort(left_out.rows))


def _left_out_group(design: GroupedDesign, fit: TargetFit, rows: Int, nearest: Float) -> LeftOut:
    """Leave out one group.

    Args:
        design: the rows of all groups
        fit: the fit of one target
        rows: positions of the group's rows (m,)
        nearest: largest value of each column in other groups (M,)
    """
    block = design.block[rows]
    target = fit.target[rows]
    residuals = target - block @ fit.mean
    code = int(design.grouped.codes[rows[0]])
    columns = design.columns_of(code)
    factors = design.grouped.shares[rows]
    together = left_out_together(
        block,
        residuals[:, None],
        fit.beta * design.weights[rows],
        fit.mean[:, None],
        fit.root,
        group=columns,
        known=KnownShare(factors, fit.alpha) if factors[0] > 1.0 else None,
    )
    units = design.units[rows]
    return LeftOut(
        errors=np.sqrt(units)[:, None] * (residuals[:, None] - together.shifts[:, :, 0]),
        variances=units[:, None] * together.variances,
        owner=design.owner(rows, columns),
        rows=design.grouped.rows[rows],
        targets=np.column_stack([target, units]),
        nearest=nearest,
        least_square=fit.least_square,
        groups=np.full(len(rows), code),
    )
