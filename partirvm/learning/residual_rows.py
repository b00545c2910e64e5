"""The records of local residuals of all rows, from one pass over the rows and one sort into cells.

Appended rows join the records of a model (``with_rows``, ``with_rows_of``): their errors are those of its vectors, and
the local kernel and the calibration stay. A record of an old row is not changed.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TypeAlias

import numpy as np

from partirvm.data.source import Source, Tile
from partirvm.data.writer import ExternalSorter, runs_of
from partirvm.execution import Executor
from partirvm.kernels.design import Design
from partirvm.learning.sample import Spent
from partirvm.learning.target import require_positive
from partirvm.local.cells import COLUMNS, NUMBER, Cells, leaf_order, rows_of_cell
from partirvm.local.metric import Metric
from partirvm.local.residuals import LocalResiduals
from partirvm.process import one_blas_thread
from partirvm.storage import open_folder
from partirvm.strategies.problem import FitResiduals
from partirvm.types import PANEL_ROWS, Float, Int

Keep: TypeAlias = Callable[[Callable[[str], Cells]], Cells]
"""Calls a function with the path or URL of a new folder, which stays if it returns."""

LEAVES, SAMPLE = 16, 64
"""Number of leaves of a cell, about: cells are runs of leaves, which end anywhere. Leaves of rows that others join are
those of one row of so many."""


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
    """Return the cells of all rows of positive weight, from one pass.

    ``points`` (m, r) are those of some rows. ``keep`` makes a folder for the records; without it they stay in memory.
    """
    task, began = partial(records_of_tile, asked.design, asked.fit.posterior.mean, metric), time.perf_counter()
    pieces = (records for _, records in executor.map(task, source, range(source.n_tiles), partial(progress, ())))
    found = sorted_cells(pieces, source.n_rows, points, keep, source.n_targets)
    spent.passing += time.perf_counter() - began
    spent.passes += 1
    spent.rows += source.n_rows
    return found


def sorted_cells(pieces: Iterable[Float], n: int, points: Float, keep: Keep | None, n_targets: int = 1) -> Cells:
    """Return the cells of at most ``n`` records, given in pieces (rows, width), in the order of leaves of ``points``.

    ``keep`` writes them to a folder; without it they stay in memory.
    """
    rank = points.shape[1]
    width = rank + n_targets + COLUMNS
    most = rows_of_cell(width)
    count = -(-n // most)
    places = leaf_order(points, LEAVES * count)

    def written(place: str) -> Cells:
        with open_folder(place).scratch() as scratch, ExternalSorter(Path(scratch, "unsorted"), 1 + width) as sorter:
            for records in pieces:
                sorter.add(np.column_stack([places(records[:, :rank]), records]))
            cells = runs_of((block[:, 1:] for block in sorter.blocks()), most)
            return Cells.written(place, cells, count, width, n_targets)

    if keep is None:
        records = np.concatenate(list(pieces))
        return Cells.of(records[np.argsort(places(records[:, :rank]), kind="stable")], n_targets)
    return keep(written)


@one_blas_thread()
def with_rows(residuals: LocalResiduals, design: Design, mean: Float, rows: Tile) -> LocalResiduals:
    """Return local residuals with further rows in memory, whose numbers follow those of all earlier rows.

    ``design`` and ``mean``, (M,) or (M, T), are those of the model.
    """
    first, count = residuals.n_rows, residuals.n_rows + len(rows.X)
    records = records_of(design, mean, residuals.metric, rows, np.arange(first, count))
    return _joined(residuals, iter([records]), count, None)


def with_rows_of(
    residuals: LocalResiduals,
    design: Design,
    mean: Float,
    source: Source,
    executor: Executor,
    progress: Callable[[int, int], None],
    keep: Keep | None,
) -> LocalResiduals:
    """Return local residuals with those rows of a source that were appended to the earlier ones, from one pass.

    ``keep`` makes a folder for the records; without it they stay in memory.
    """
    first, task = residuals.n_rows, partial(records_of_tile, design, mean, residuals.metric)
    found = executor.map(task, source, range(first // source.tile_rows, source.n_tiles), progress)
    pieces = (records[records[:, NUMBER] >= first] for _, records in found)
    return _joined(residuals, pieces, source.n_rows, keep)


def _joined(residuals: LocalResiduals, pieces: Iterator[Float], count: int, keep: Keep | None) -> LocalResiduals:
    """Return local residuals of ``count`` rows with further records, sorted by some old points and the first piece."""
    cells, first = residuals.cells, next(pieces, np.empty((0, residuals.cells.width)))
    numbers = range(len(cells.boxes))
    points = [cells.cell(number)[::SAMPLE, : cells.rank] for number in numbers]
    points.append(first[:, : cells.rank])
    together, most = chain(map(cells.cell, numbers), [first], pieces), cells.n_rows + count - residuals.n_rows
    found = sorted_cells(together, most, np.concatenate(points), keep, cells.n_targets)
    return replace(residuals, cells=found, n_rows=count)


def records_of_tile(design: Design, mean: Float, metric: Metric, source: Source, number: int) -> Float:
    """Return the records of one tile."""
    return records_of(design, mean, metric, source.tile(number), source.original_rows(number))


def records_of(design: Design, mean: Float, metric: Metric, tile: Tile, numbers: Int) -> Float:
    """Return the records of the rows of positive weight in a tile, with these ``numbers``."""
    scaling = design.scaling
    weights = np.ones(len(tile.X)) if tile.weights is None else tile.weights
    there = np.flatnonzero(weights > 0)
    found = np.empty((len(there), metric.width + len(scaling.t_scale) + COLUMNS))
    require_positive(scaling.target, float(tile.t[there].min(initial=1.0)))
    for start in range(0, len(there), PANEL_ROWS):
        some = there[start : start + PANEL_ROWS]
        X, fitted = tile.X[some], design.block(tile.X[some]) @ mean
        errors = scaling.targets(tile.t[some]) - fitted.reshape(len(X), -1)
        others = np.log(np.ones(len(X)) * design.noise_factor(X)), 1.0 / weights[some], numbers[some]
        found[start : start + len(some)] = np.column_stack([metric(scaling.inputs(X)), errors, *others])
    return found
