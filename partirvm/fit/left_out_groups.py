"""Leave groups of rows out of a fit: the instruction ``LeaveGroupsOut``.

The rows are read once. They and their design are held in memory; there are at most
``LEFT_OUT_ROWS`` of them.
"""

import numpy as np

from partirvm.core.groups import GroupedRows
from partirvm.core.left_out import LeftOut
from partirvm.core.left_out_groups import GroupedDesign, TargetFit, left_out_groups
from partirvm.data.source import Tile
from partirvm.fit.residual_rows import ResidualReader
from partirvm.kernels.design import TEMPER, Design
from partirvm.strategies.instructions import LeaveGroupsOut
from partirvm.types import PANEL_ROWS, Float, Int


def leave_groups_out(request: LeaveGroupsOut, reader: ResidualReader) -> tuple[LeftOut, ...]:
    """Return the errors of each target on groups that are left out of a fit."""
    tile = reader.tile(request.groups.rows)
    design = grouped_design(request, tile, reader)
    targets = request.design.scaling.targets(tile.t)
    betas = np.atleast_1d(request.fit.beta).tolist()
    left_out = list[LeftOut]()
    for target, posterior in enumerate(request.fit.posterior.targets or (request.fit.posterior,)):
        reader.progress()
        fit = TargetFit(
            targets[:, target],
            posterior.mean,
            posterior.root(),
            request.fit.alpha,
            betas[target],
            request.least_square,
        )
        left_out.append(left_out_groups(design, fit))
    return tuple(left_out)


def grouped_design(request: LeaveGroupsOut, tile: Tile, reader: ResidualReader) -> GroupedDesign:
    """Return the design at the left-out rows, and the groups that own its columns."""
    design = request.design
    X = without_own_levels(tile.X, request.groups.codes, design.scaling.embedded)
    block = np.empty((len(X), design.n_columns))
    factor = np.empty(len(X))
    for start in range(0, len(X), PANEL_ROWS):
        panel = slice(start, start + PANEL_ROWS)
        block[panel] = design.block(X[panel])
        factor[panel] = design.noise_factor(X[panel])
        reader.progress()
    weights = np.ones(len(X)) if tile.weights is None else tile.weights
    tempered = weights if not design.weighs_rows else weights * factor ** (-TEMPER)
    owned, owners = owners_of(design, request.groups, reader)
    return GroupedDesign(
        block,
        request.groups,
        owners,
        owned,
        np.concatenate([np.full(design.n_leading, np.inf), design.peaks()]),
        tempered,
        weights / factor,
    )


def owners_of(design: Design, groups: GroupedRows, reader: ResidualReader) -> tuple[Int, Int]:
    """Return the positions of the kernel columns (M',) and the groups of all columns (M,), −1 for
    leading ones."""
    owned = design.n_leading + np.arange(len(design.rows))
    owners = np.full(design.n_columns, -1)
    if len(owned):
        rows, places = np.unique(design.rows, return_inverse=True)
        codes = reader.tile(rows).groups
        assert codes is not None
        owners[owned] = codes[places]
    return owned, owners


def without_own_levels(X: Float, groups: Int, embedded: list[int]) -> Float:
    """Return inputs X (n, d) whose ``embedded`` features are missing where only the row's group
    has the level: without the group, nothing is known of its effect.

    ``groups`` (n,) are the codes of the rows' groups.
    """
    alone = X.copy()
    for feature in embedded:
        levels = np.floor(X[:, feature])
        of_level = np.unique(np.column_stack([levels, groups]), axis=0)
        values, counts = np.unique(of_level[:, 0], return_counts=True)
        is_own = np.isin(levels, values[counts == 1])
        alone[is_own, feature] = np.nan
    return alone
