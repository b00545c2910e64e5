"""Errors that teach and judge local residuals: rows left out together, and their neighbours' errors
without them.

Each row is predicted from neighbours outside its fold, whose errors are those of the fit without
the fold (``core.left_out_together``). A neighbour's leave-one-out error of the whole fit would
contain the row itself with the wrong sign: on 700 rows of concrete, the log density then seems to
fall by .23 nats where it rises by .14 on new rows.
"""

import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from partirvm.core.held_back import folds_of
from partirvm.core.left_out import LeftOut
from partirvm.core.left_out_together import left_out_together
from partirvm.kernels.design import TEMPER, Design
from partirvm.local.cells import NUMBER, Cells
from partirvm.strategies.instructions import FitResiduals
from partirvm.types import PANEL_ROWS, Float, Int


@dataclass(frozen=True)
class LeftOutFolds:
    """Rows left out in folds, and what leaving them out changes at all other left-out rows.

    Attributes:
        rows: (m,), positions of the rows in the records
        members: for each of F folds, its places in ``rows``
        left_out: for each target, the errors and variances of ``rows``
        shifts: (F, n, T), the change of the leave-one-out errors of all n rows when the fold is
            left out
    """

    rows: Int
    members: tuple[Int, ...]
    left_out: tuple[LeftOut, ...]
    shifts: Float

    def own_records(self, records: Float, rank: int) -> Float:
        """Return the records (m, width) of the rows, with the errors of the fits without their
        folds."""
        of_rows = records[self.rows]
        for target, left_out in enumerate(self.left_out):
            of_rows[:, rank + target] = left_out.expected()[0] / np.sqrt(left_out.targets[:, 1])
        return of_rows

    def near(self, records: Float, rank: int, k: int) -> Float:
        """Return the records (m, k, width) of the nearest rows outside the fold of each row."""
        n_targets = len(self.left_out)
        neighbours = np.empty((len(self.rows), k, records.shape[1]))
        for fold, places in enumerate(self.members):
            rows = self.rows[places]
            outside = np.delete(records, rows, axis=0)
            outside[:, rank : rank + n_targets] += np.delete(self.shifts[fold], rows, axis=0)
            neighbours[places] = nearest(Cells.of(outside, n_targets), records[rows], k)
        return neighbours

    @property
    def most_neighbours(self) -> int:
        """The number of rows outside the largest fold, less one, since a search leaves room for the
        row itself."""
        return int(self.shifts.shape[1]) - max(map(len, self.members)) - 1


def nearest(cells: Cells, records: Float, k: int) -> Float:
    """Return the records (m, k, width) of the neighbours of rows with these ``records``, without
    the rows themselves."""
    points = records[:, : cells.rank]
    return np.concatenate([near for _, near in cells.neighbours(points, k, records[:, NUMBER])])


def left_out_folds(
    request: FitResiduals, X: Float, rows: Int, poll: Callable[[], Any]
) -> LeftOutFolds:
    """Leave rows out in folds.

    Args:
        request: the fit
        X: (n, d), inputs of all left-out rows
        rows: (m,), positions of the rows among these
        poll: called between steps; may raise an exception to end the work
    """
    members = tuple(folds_of(request.left_out[0].rows[rows]))
    order = np.argsort(np.concatenate(members))
    betas = np.atleast_1d(request.fit.beta).tolist()
    posteriors = request.fit.posterior.targets or (request.fit.posterior,)
    changes = list[Float]()
    left_out = list[LeftOut]()
    for alone, posterior, beta in zip(request.left_out, posteriors, betas, strict=True):
        folds = [
            _left_out(request.design, alone, posterior, beta, X[rows[places]], rows[places])
            for places in members
        ]
        poll()
        changes.append(np.column_stack([fold.change for fold in folds]))
        left_out.append(reduce(operator.iadd, [fold.left_out for fold in folds]).take(order))
    shifts = _shifts(request, X, changes, betas, poll)
    return LeftOutFolds(rows, members, tuple(left_out), shifts)


def _shifts(
    request: FitResiduals,
    X: Float,
    changes: list[Float],
    betas: list[float],
    poll: Callable[[], Any],
) -> Float:
    """Return the change (F, n, T) of the leave-one-out errors of all rows without each fold.

    Args:
        request: the fit
        X: (n, d), inputs of all left-out rows
        changes: (M, F) for each target, the change of μ without each fold
        betas: noise precision of each target
        poll: called between panels
    """
    design = request.design
    shifts = np.empty((changes[0].shape[1], len(X), len(changes)))
    for start in range(0, len(X), PANEL_ROWS):
        panel = slice(start, start + PANEL_ROWS)
        block = design.block(X[panel])
        factor = np.ones(len(block)) * design.noise_factor(X[panel])
        for target, change in enumerate(changes):
            # 1/(1 − h) = 1 + βwv of the leave-one-out variance v, whose u is the weight over the
            # noise factor
            variances = request.left_out[target].variances[panel, 0]
            leverage = 1.0 + betas[target] * factor ** (1.0 - TEMPER) * variances
            shifts[:, panel, target] = -((block @ change) * leverage[:, None]).T
        poll()
    return shifts


@dataclass(frozen=True)
class LeftOutFold:
    """One fold left out, for one target.

    Attributes:
        left_out: errors and variances of its rows
        change: (M,), of μ
    """

    left_out: LeftOut
    change: Float


def _left_out(
    design: Design, alone: LeftOut, posterior: Any, beta: float, X: Float, rows: Int
) -> LeftOutFold:
    """Leave out the rows of one fold for one target.

    Args:
        design: the design of the fit
        alone: leave-one-out errors of all left-out rows
        posterior: of the target
        beta: its noise precision
        X: (b, d), inputs of the rows
        rows: (b,), their positions in ``alone``
    """
    fold = alone.take(rows)
    targets, u = fold.targets.T
    factor = np.ones(len(X)) * design.noise_factor(X)
    block = design.block(X)
    residuals = targets - block @ posterior.mean
    centres = [
        (place, design.n_leading + np.flatnonzero(design.rows == fold.rows[place]))
        for place in np.flatnonzero(np.isin(fold.rows, design.rows)).tolist()
    ]
    precisions = beta * u * factor ** (1.0 - TEMPER)
    without = left_out_together(
        block,
        residuals[:, None],
        precisions,
        posterior.mean[:, None],
        posterior.root(),
        centres,
    )
    errors = np.sqrt(u)[:, None] * (residuals[:, None] - without.shifts[:, :, 0])
    variances = u[:, None] * without.variances
    left_out = LeftOut(
        errors,
        variances,
        without.owner,
        fold.rows,
        fold.targets,
        alone.nearest,
        alone.least_square,
    )
    return LeftOutFold(left_out, without.change[:, 0])
