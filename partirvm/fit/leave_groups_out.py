"""Leave groups of rows out of a fit: the instruction ``LeaveGroupsOut``.

The rows are read once; there are at most ``LEFT_OUT_ROWS`` of them. Their design is in memory for
a batch of groups at a time.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from operator import add

import numpy as np

from partirvm.core.left_out import LeftOut
from partirvm.core.left_out_groups import (
    GroupedDesign,
    IndicatorFit,
    TargetFit,
    in_order,
    left_out_classes,
    left_out_groups,
)
from partirvm.core.left_out_process import process_errors
from partirvm.core.ramp import LeftOutClasses
from partirvm.data.source import Tile
from partirvm.fit.residual_rows import ResidualReader
from partirvm.kernels.design import NONE, TEMPER, Design
from partirvm.strategies.instructions import LeaveGroupsOut
from partirvm.types import PANEL_ROWS, Float, Int

PROCESS_ROWS = 600
"""Maximum number of rows of the process."""

BATCH_ROWS = 4 * PANEL_ROWS
"""Approximate number of rows whose design is in memory at the same time."""


def leave_groups_out(request: LeaveGroupsOut, reader: ResidualReader) -> tuple[LeftOut, ...]:
    """Return the errors of each target on groups that are left out of a fit, with their ``excess``
    in a process."""
    tile = reader.tile(request.groups.rows)
    owners = owners_of(request.design, reader)
    batches = request.groups.batches(BATCH_ROWS)
    nearest = None
    if len(batches) > 1:
        nearest = np.zeros(request.design.n_columns)
        for rows in batches:
            design = grouped_design(request, tile.take(rows, 0), rows, owners)
            nearest = np.maximum(nearest, design.nearest())
            reader.progress()
    fits = target_fits(request, tile)
    parts: list[list[LeftOut]] = [[] for _ in fits]
    for rows in batches:
        design = grouped_design(request, tile.take(rows, 0), rows, owners)
        for fit, of_target in zip(fits, parts, strict=True):
            reader.progress()
            of_batch = replace(fit, target=fit.target[rows])
            of_target.append(left_out_groups(design, of_batch, nearest))
    reader.progress()
    excesses = excess_of_groups(request, tile, fits)
    effects = effect_variances(request.design, tile.X)
    return tuple(
        replace(in_order(of_target), excess=excess).without_variances(request.groups.rows, effects)
        for of_target, excess in zip(parts, excesses, strict=True)
    )


def leave_groups_out_of_indicators(
    request: LeaveGroupsOut, reader: ResidualReader
) -> LeftOutClasses:
    """Return the predictors of a fit to class indicators for groups that are left out of it."""
    tile = reader.tile(request.groups.rows)
    owners = owners_of(request.design, reader)
    posterior = request.fit.posterior
    alpha = request.fit.alpha
    fit = IndicatorFit(posterior.mean, posterior.root(), alpha, float(request.fit.beta))
    parts = []
    for rows in request.groups.batches(BATCH_ROWS):
        reader.progress()
        design = grouped_design(request, tile.take(rows, 0), rows, owners)
        parts.append(left_out_classes(design, tile.t[rows, 0], fit))
    return reduce(add, parts)


def excess_of_groups(
    request: LeaveGroupsOut, tile: Tile, fits: Sequence[TargetFit]
) -> list[float | None]:
    """Return for each target how much larger the mean squared error of left-out groups is than that
    of left-out rows, in a process with the kernel of the fit; None without a single kernel.

    Args:
        request: the fit and all left-out rows
        tile: the rows
        fits: the fit of each target
    """
    weights = np.ones(len(tile.X)) if tile.weights is None else tile.weights
    present = np.flatnonzero(weights > 0)
    places = present[np.unique(np.linspace(0, len(present) - 1, PROCESS_ROWS).astype(np.int64))]
    X = tile.X[places]
    plain = request.design.without_groups()
    leading = plain.take(NONE).block(X)
    design = plain.with_centres(X, request.groups.rows[places])
    kernel = design.block(X)
    if kernel.shape[1] != len(X):
        return [None] * len(fits)
    groups = request.groups.codes[places]
    shared = effect_covariance(request.design, X, groups)
    errors = [
        process_errors(
            kernel, leading, fit.target[places], weights[places], groups, fit.beta * shared
        )
        for fit in fits
    ]
    return [None if of_target is None else of_target.excess for of_target in errors]


def effect_variances(design: Design, X: Float) -> Float:
    """Return the prior variances (n,) of groups' effects at raw inputs X (n, d); 0 without columns
    of groups."""
    columns = design.group_columns
    return np.zeros(len(X)) if columns is None else columns.prior_variance(design.features(X))


def effect_covariance(design: Design, X: Float, groups: Int) -> Float:
    """Return the prior covariance (n, n) of groups' effects; 0 without columns of groups.

    Args:
        design: the design of the fit
        X: raw inputs (n, d)
        groups: groups of the rows (n,)
    """
    columns = design.group_columns
    if columns is None:
        return np.zeros((len(X), len(X)))
    return columns.covariance(design.features(X), groups)


def target_fits(request: LeaveGroupsOut, tile: Tile) -> list[TargetFit]:
    """Return the fit of each target, with the targets of the tile's rows."""
    targets = request.design.scaling.targets(tile.t)
    betas = np.atleast_1d(request.fit.beta).tolist()
    posteriors = request.fit.posterior.targets or (request.fit.posterior,)
    return [
        TargetFit(
            targets[:, target],
            posterior.mean,
            posterior.root(),
            request.fit.alpha,
            betas[target],
            request.least_square,
        )
        for target, posterior in enumerate(posteriors)
    ]


def grouped_design(request: LeaveGroupsOut, tile: Tile, rows: Int, owners: Int) -> GroupedDesign:
    """Return the design at some left-out rows.

    Args:
        request: the fit and all left-out rows
        tile: the rows
        rows: positions of the rows among all left-out rows (n,)
        owners: groups of the columns (M,), −1 for leading ones
    """
    design = request.design
    groups = request.groups.take(rows)
    X = without_own_levels(tile.X, groups.codes, design.scaling.embedded)
    block = np.empty((len(X), design.n_columns))
    factor = np.empty(len(X))
    for start in range(0, len(X), PANEL_ROWS):
        panel = slice(start, start + PANEL_ROWS)
        block[panel] = design.block(X[panel])
        factor[panel] = design.noise_factor(X[panel])
    weights = np.ones(len(X)) if tile.weights is None else tile.weights
    return GroupedDesign(
        block,
        groups,
        owners,
        design.n_leading + np.arange(len(design.rows)),
        np.concatenate([np.full(design.n_leading, np.inf), design.peaks()]),
        weights * factor ** (-TEMPER) if design.weighs_rows else weights,
        weights / factor,
    )


def owners_of(design: Design, reader: ResidualReader) -> Int:
    """Return the groups of all columns (M,), −1 for leading ones."""
    owners = np.full(design.n_columns, -1)
    if len(design.rows):
        rows, places = np.unique(design.rows, return_inverse=True)
        codes = reader.tile(rows).groups
        assert codes is not None
        owners[design.n_leading :] = codes[places]
    return owners


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
