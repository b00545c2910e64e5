"""The local residual records of all rows, from one pass over the rows and one sort into cells."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np

from partirvm.core.group_effects import GroupEffects
from partirvm.data.source import Source, Tile
from partirvm.data.writer import ExternalSorter, runs_of
from partirvm.execution import Executor
from partirvm.kernels.design import Design
from partirvm.learning.sample import gathered
from partirvm.learning.target import require_positive
from partirvm.local.cells import Cells, leaf_order, rows_of_cell
from partirvm.local.metric import Metric
from partirvm.spec.entries import Spent
from partirvm.storage import open_folder
from partirvm.strategies.instructions import FitResiduals
from partirvm.types import PANEL_ROWS, RESIDUAL_COLUMNS, Float, Int

Keep: TypeAlias = Callable[[Callable[[str], Cells]], Cells]
"""Calls a function with the path or URL of a new folder, which is kept if the function returns."""

LEAVES = 16
"""Approximate number of leaves per cell: cells are runs of leaves, which may end anywhere."""


@dataclass(frozen=True)
class ResidualReader:
    """How the rows of local residuals are read.

    Attributes:
        source: the rows.
        executor: runs passes.
        progress: called before each evaluation of a search; may raise an exception to end the work.
        spent: counts passes and their time.
        keep: writes records to disk; None if there is no folder.
    """

    source: Source
    executor: Executor
    progress: Callable[..., None]
    spent: Spent
    keep: Keep | None = None

    def inputs(self, rows: Int) -> Float:
        """Return the features (n, d) of rows."""
        return self.tile(rows).X

    def tile(self, rows: Int) -> Tile:
        """Return rows with these increasing numbers (n,)."""
        with gathered(self.source, rows, self.executor, self.progress, self.spent) as sample:
            return sample.rows.gather(rows)

    def original_rows(self, rows: Int) -> Int:
        """Return the numbers (n,) of rows before the source was shuffled."""
        source = self.source
        tiles = rows // source.tile_rows
        numbers = []
        for tile in np.unique(tiles):
            places = rows[tiles == tile] - tile * source.tile_rows
            numbers.append(source.original_rows(tile)[places])
        return np.concatenate(numbers)

    def cells(
        self, request: FitResiduals, metric: Metric, points: Float, *, in_memory: bool
    ) -> Cells:
        """Return the cells of all rows with positive weight, from one pass.

        Args:
            request: the fit whose errors are recorded
            metric: gives the points of rows
            points: (m, r), points of some rows
            in_memory: whether the records are kept in memory
        """
        mean = request.fit.posterior.mean
        task = partial(records_of_tile, request.design, mean, metric, request.effects)
        began = time.perf_counter()
        source = self.source
        tiles = range(source.n_tiles)
        read = self.executor.map(task, source, tiles, partial(self.progress, ()))
        pieces = (records for _, records in read)
        keep = None if in_memory else self.keep
        cells = sorted_cells(pieces, source.n_rows, points, keep, source.n_targets)
        self.spent.add(began, 1, source.n_rows)
        return cells


def sorted_cells(
    pieces: Iterable[Float], n: int, points: Float, keep: Keep | None, n_targets: int = 1
) -> Cells:
    """Return the cells of records, in the leaf order of some points.

    Args:
        pieces: records (rows, width), in pieces
        n: maximum number of records
        points: (m, r), points whose k-d tree gives the order
        keep: writes the cells to a folder; None to hold them in memory
        n_targets: number of targets
    """
    rank = points.shape[1]
    width = rank + n_targets + RESIDUAL_COLUMNS
    most = rows_of_cell(width)
    count = -(-n // most)
    places = leaf_order(points, LEAVES * count)

    def written(place: str) -> Cells:
        with (
            open_folder(place).scratch() as scratch,
            ExternalSorter(Path(scratch, "unsorted"), 1 + width) as sorter,
        ):
            for records in pieces:
                sorter.add(np.column_stack([places(records[:, :rank]), records]))
            cells = runs_of((block[:, 1:] for block in sorter.blocks()), most)
            return Cells.written(place, cells, count, width, n_targets)

    if keep is None:
        records = np.concatenate(list(pieces))
        return Cells.of(records[np.argsort(places(records[:, :rank]), kind="stable")], n_targets)
    return keep(written)


def records_of_tile(
    design: Design,
    mean: Float,
    metric: Metric,
    effects: GroupEffects | None,
    source: Source,
    number: int,
) -> Float:
    """Return the records of a tile's rows with positive weight.

    Args:
        design: the design of M columns, with the scaling of inputs and targets
        mean: posterior mean, (M,) or (M, T)
        metric: gives the points of rows
        effects: effects of groups, which are subtracted from the errors, or None
        source: the source of the tile
        number: the number of the tile
    """
    tile = source.tile(number)
    numbers = source.original_rows(number)
    scaling = design.scaling
    weights = np.ones(len(tile.X)) if tile.weights is None else tile.weights
    positive = np.flatnonzero(weights > 0)
    width = metric.width + len(scaling.t_scale) + RESIDUAL_COLUMNS
    records = np.empty((len(positive), width))
    require_positive(scaling.target, float(tile.t[positive].min(initial=1.0)))
    offsets = np.zeros(len(tile.X))
    if effects is not None and tile.groups is not None:
        offsets, _ = effects.of_groups(tile.groups)
    for start in range(0, len(positive), PANEL_ROWS):
        rows = positive[start : start + PANEL_ROWS]
        X = tile.X[rows]
        fitted = design.block(X) @ mean
        records[start : start + len(rows)] = np.column_stack(
            [
                metric(scaling.inputs(X)),
                scaling.targets(tile.t[rows]) - fitted.reshape(len(X), -1) - offsets[rows, None],
                np.log(np.ones(len(X)) * design.noise_factor(X)),
                1.0 / weights[rows],
                numbers[rows],
            ]
        )
    return records
