"""The local residual records of all rows, from one pass over the rows and one sort into cells."""

import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np

from partirvm.data.source import Source
from partirvm.data.writer import ExternalSorter, runs_of
from partirvm.execution import Executor
from partirvm.kernels.design import Design
from partirvm.learning.sample import Spent
from partirvm.learning.target import require_positive
from partirvm.local.cells import Cells, leaf_order, rows_of_cell
from partirvm.local.metric import Metric
from partirvm.storage import open_folder
from partirvm.strategies.problem import FitResiduals
from partirvm.types import PANEL_ROWS, RESIDUAL_COLUMNS, Float

Keep: TypeAlias = Callable[[Callable[[str], Cells]], Cells]
"""Calls a function with the path or URL of a new folder, which is kept if the function returns."""

LEAVES = 16
"""Approximate number of leaves per cell: cells are runs of leaves, which may end anywhere."""


def cells_of(
    asked: FitResiduals,
    metric: Metric,
    source: Source,
    executor: Executor,
    progress: Callable[..., None],
    spent: Spent,
    keep: Keep | None,
    points: Float,
) -> Cells:
    """Return the cells of all rows with positive weight, from one pass.

    ``points`` (m, r) are some rows' points. ``keep`` makes a folder for the records; without it,
    they stay in memory.
    """
    task = partial(records_of_tile, asked.design, asked.fit.posterior.mean, metric)
    began = time.perf_counter()
    pieces = (
        records
        for _, records in executor.map(task, source, range(source.n_tiles), partial(progress, ()))
    )
    found = sorted_cells(pieces, source.n_rows, points, keep, source.n_targets)
    spent.add(began, 1, source.n_rows)
    return found


def sorted_cells(
    pieces: Iterable[Float], n: int, points: Float, keep: Keep | None, n_targets: int = 1
) -> Cells:
    """Return the cells of at most ``n`` records, passed in pieces (rows, width), in the leaf order
    of ``points``.

    ``keep`` writes them to a folder; without it, they stay in memory.
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
    design: Design, mean: Float, metric: Metric, source: Source, number: int
) -> Float:
    """Return the records of a tile's rows with positive weight."""
    tile = source.tile(number)
    numbers = source.original_rows(number)
    scaling = design.scaling
    weights = np.ones(len(tile.X)) if tile.weights is None else tile.weights
    there = np.flatnonzero(weights > 0)
    found = np.empty((len(there), metric.width + len(scaling.t_scale) + RESIDUAL_COLUMNS))
    require_positive(scaling.target, float(tile.t[there].min(initial=1.0)))
    for start in range(0, len(there), PANEL_ROWS):
        some = there[start : start + PANEL_ROWS]
        X = tile.X[some]
        fitted = design.block(tile.X[some]) @ mean
        errors = scaling.targets(tile.t[some]) - fitted.reshape(len(X), -1)
        others = (
            np.log(np.ones(len(X)) * design.noise_factor(X)),
            1.0 / weights[some],
            numbers[some],
        )
        found[start : start + len(some)] = np.column_stack(
            [metric(scaling.inputs(X)), errors, *others]
        )
    return found
