"""What a fit without some of its rows would state of them: the posterior of the other rows at the
same kernel, α and β.

The rows are left out in folds, as in cross-validation. A vector in the fold is replaced by the
nearest row outside, since a fit without the fold would have chosen another vector nearby. The
model without the fold has the calibration of the fit, the reach of the other rows and, with local
residuals, their leave-one-out errors. Its interval for a left-out row is the one that the program
would state, so that a row counts as covered only if the stated uncertainty grows with its error.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np

from partirvm.core.held_back import group_folds
from partirvm.core.left_out import LEAST
from partirvm.core.local_quantiles import multiples_at
from partirvm.core.posterior import posterior
from partirvm.core.statistics import GramBlock, GramStatistics
from partirvm.data.source import Tile
from partirvm.fit.leave_groups_out import without_own_levels
from partirvm.kernels.design import NONE, Design
from partirvm.local.cells import Cells
from partirvm.local.metric import Metric
from partirvm.local.residuals import LocalResiduals
from partirvm.model import Model
from partirvm.model.base import nearness_in
from partirvm.model.fitted import reach_of
from partirvm.types import Float, Int

FOLDS = 5
"""Number of folds: each takes a dense solve."""

JUDGED = 256
"""Number of rows that are predicted with local residuals: each takes a solve with its neighbours.
"""

LEVEL = 0.95
"""Level of the intervals."""

LEAST_END = 1e-9
"""Minimum distance of an interval's end from the mean, in standard deviations."""


class RefitScores(NamedTuple):
    """What models without them state of m of the n rows.

    Attributes:
        rows: positions of the rows, increasing (m,)
        errors: target − mean, in the target's units (m,)
        standardised: errors ÷ stated standard deviations (m,)
        scores: |error| ÷ the distance of the interval's end on its side; above 1, the row is
            outside its 95 % interval (m,)
    """

    rows: Int
    errors: Float
    standardised: Float
    scores: Float


@dataclass(frozen=True)
class FittedRows:
    """Rows of a fit of one target.

    Attributes:
        model: the model of the fit
        beta: noise precision of its posterior
        tile: the rows (n)
        numbers: their numbers, increasing (n,)
    """

    model: Model
    beta: float
    tile: Tile
    numbers: Int

    def take(self, places: Int) -> Self:
        """Return the rows at these increasing positions."""
        tile = self.tile.take(places, self.tile.start)
        return replace(self, tile=tile, numbers=self.numbers[places])

    @cached_property
    def block(self) -> Float:
        """The design at the rows (n, M)."""
        return self.model.design.block(self.tile.X)

    @cached_property
    def weights(self) -> Float:
        """The row weights of the fit (n,)."""
        weights = np.ones(len(self.tile.X)) * self.tile.root_weights**2
        tempered = self.model.design.row_weights(self.tile.X)
        return weights if tempered is None else weights * tempered

    @cached_property
    def target(self) -> Float:
        """The targets in the model's units (n,)."""
        return np.asarray(self.model.design.scaling.targets(self.tile.t)[:, 0])

    @cached_property
    def points(self) -> Float:
        """The rows in the coordinates of the kernel's metric, or in the kernel's own (n, r)."""
        points = self.model.design.scaling.inputs(self.tile.X)
        metric = Metric.of(self.model.design, self.model.columns)
        return np.nan_to_num(points if metric is None else metric(points))

    @cached_property
    def centres(self) -> Int:
        """The positions of the vectors among the rows, −1 for others (m,)."""
        rows = self.model.design.rows
        places = np.minimum(np.searchsorted(self.numbers, rows), len(self.numbers) - 1)
        return np.where(self.numbers[places] == rows, places, -1)

    @cached_property
    def of_vectors(self) -> Self:
        """The rows with the model without its local residuals."""
        return replace(self, model=self.model.sparse())

    def left_out(self, groups: Int) -> RefitScores:
        """Leave out the rows in folds of whole ``groups`` (n,), and return the scores of all rows
        or, with local residuals, of about ``JUDGED`` of them: these take most of the time."""
        every = 1 if self.model.residuals is None else -(-len(groups) // JUDGED)
        X = without_own_levels(self.tile.X, groups, self.model.design.scaling.embedded)
        parts = [
            self._scores(self.without(fold), X, fold[::every])
            for fold in group_folds(groups, FOLDS)
        ]
        joined = [np.concatenate(part) for part in zip(*parts, strict=True)]
        order = np.argsort(joined[0])
        return RefitScores(*(values[order] for values in joined))

    def _scores(self, model: Model, X: Float, rows: Int) -> RefitScores:
        """Return what a model states of rows that were left out of it.

        Args:
            model: the model without these rows
            X: inputs of all rows (n, d)
            rows: positions of the rows (m,)
        """
        scaling = model.design.scaling
        stated = model.predictive
        mean, variance, _ = stated.moments(X[rows])
        deviations = np.sqrt(variance)
        y = float(scaling.t_shift[0]) + float(scaling.t_scale[0]) * self.target[rows]
        lower, upper = multiples_at(stated.multiples([LEVEL]), deviations[:, None])[:, :, 0]
        root_weights = (np.ones(len(X)) * self.tile.root_weights)[rows]
        z = root_weights * (y - mean) / deviations
        scores = np.where(
            z < 0, z / np.minimum(lower, -LEAST_END), z / np.maximum(upper, LEAST_END)
        )
        return RefitScores(rows, y - mean, z, scores)

    def without(self, fold: Int) -> Model:
        """Return the model without the rows at these positions."""
        others = np.delete(np.arange(len(self.numbers)), fold)
        design, block = self._design_without(fold, others)
        weights = self.weights[others]
        target = self.target[others]
        statistics = GramStatistics.of(
            design.all_labels, GramBlock.of(block[:, :0], block, target[:, None], weights)
        )
        refit = posterior(statistics, self.model.alpha, self.beta)
        model = replace(self.model, design=design, mean=refit.mean, root=refit.root())
        if model.residuals is not None:
            residuals = target - block @ model.mean
            errors = leave_one_out(block @ model.root, residuals, self.beta * weights)
            tile = self.tile.take(others, self.tile.start)
            local = residuals_of_rows(
                model.residuals, self.model.design, tile, self.numbers[others], errors[:, None]
            )
            model = replace(model, residuals=local)
        if not design.kernel.local or not len(design.centres):
            return model
        near = nearness_in(design, block)
        return replace(model, reach=reach_of(near)) if len(near) else model

    def _design_without(self, fold: Int, others: Int) -> tuple[Design, Float]:
        """Return the design without vectors at the rows of a fold, and its block at the others.

        Args:
            fold: positions of the left-out rows
            others: positions of the other rows
        """
        from scipy.spatial import cKDTree  # importing it takes megabytes

        design = self.model.design
        block = self.block[others]
        replaced = np.flatnonzero((self.centres >= 0) & np.isin(self.centres, fold))
        if not len(replaced):
            return design, block
        _, nearest = cKDTree(self.points[others]).query(self.points[self.centres[replaced]])
        centres = design.centres.copy()
        centres[replaced] = self.tile.X[others[nearest], : centres.shape[1]]
        design = replace(design, centres=centres)
        columns = design.take(replaced, leading=NONE)
        block[:, design.n_leading + replaced] = columns.block(self.tile.X[others])
        return design, block


def residuals_of_rows(
    residuals: LocalResiduals, design: Design, tile: Tile, numbers: Int, errors: Float
) -> LocalResiduals:
    """Return local residuals of some rows alone.

    Args:
        residuals: those of a fit
        design: its design
        tile: the rows (n)
        numbers: their numbers (n,)
        errors: their leave-one-out errors (n, T)
    """
    factor = np.ones(len(tile.X)) * design.noise_factor(tile.X)
    noise = 1.0 / (np.ones(len(tile.X)) * tile.root_weights**2)
    points = residuals.metric(design.scaling.inputs(tile.X))
    records = np.column_stack([points, errors, np.log(factor), noise, numbers])
    neighbours = min(residuals.neighbours, len(numbers) - 1)
    cells = Cells.of(records, n_targets=errors.shape[1])
    return replace(residuals, neighbours=neighbours, cells=cells)


def leave_one_out(white: Float, residuals: Float, precisions: Float) -> Float:
    """Return the leave-one-out errors (n,), r/(1 − h) (``core.left_out``).

    Args:
        white: design times the root of the covariance (n, M)
        residuals: r (n,)
        precisions: β times the row weights (n,)
    """
    leverage = precisions * np.einsum("nm,nm->n", white, white)
    return np.asarray(residuals / np.maximum(1.0 - leverage, LEAST))
