"""The records of local residuals of all rows, from one pass over the rows and one sort into cells."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np

from partirvm.data.source import Source
from partirvm.data.writer import ExternalSorter, runs_of
from partirvm.execution import Executor
from partirvm.kernels.design import Design
from partirvm.learning.sample import Spent
from partirvm.local.cells import COLUMNS, Cells, Leaves, rows_of_cell
from partirvm.local.metric import Metric
from partirvm.storage import open_folder
from partirvm.strategies.problem import FitResiduals
from partirvm.types import PANEL_ROWS, Float, Int

Keep: TypeAlias = Callable[[Callable[[str], Cells]], Cells]
"""Calls a function with the path or URL of a new folder, which stays if it returns."""

LEAVES = 16
"""Number of leaves per cell, by which rows are sorted."""


def cells_of(
    asked: FitResiduals,
    metric: Metric,
    source: Source,
    executor: Executor,
    progress: Callable[..., None],
    spent: Spent,
    keep: Keep | None,
    points: Float,
    wanted: Int,
) -> tuple[Cells, Float]:
    """Return the cells of all rows of positive weight, from one pass, and the records of the ``wanted`` ones.

    ``points`` (m, r) are those of some rows. ``keep`` makes a folder for the records; without it they stay in memory.
    """
    task = partial(records_of_tile, asked.design, asked.fit.posterior.mean, metric, wanted)
    sample, width, n = list[Float](), metric.width + COLUMNS, source.n_rows
    leaves, began = Leaves.of(points, LEAVES * (n // rows_of_cell(width))), time.perf_counter()

    def keyed() -> Iterator[Float]:
        """Yield records after their leaves; within a leaf they stay in order."""
        done = 0
        for _, (records, some) in executor.map(task, source, range(source.n_tiles), partial(progress, ())):
            sample.append(some)
            places = leaves.numbers(records[:, :-COLUMNS]) + (done + np.arange(len(records))) / n
            yield np.column_stack([places / leaves.count, records])
            done += len(records)

    def written(place: str) -> Cells:
        with open_folder(place).scratch() as scratch, ExternalSorter(Path(scratch, "unsorted"), 1 + width) as sorter:
            for piece in keyed():
                sorter.add(piece)
            runs = runs_of((block[:, 1:] for block in sorter.blocks()), rows_of_cell(width))
            return Cells.written(place, runs, sorter.n_records, width)

    if keep is None:
        records = np.concatenate(list(keyed()))
        found = Cells.of(records[np.argsort(records[:, 0], kind="stable"), 1:])
    else:
        found = keep(written)
    spent.passing += time.perf_counter() - began
    spent.passes += 1
    spent.rows += n
    return found, np.concatenate(sample)


def records_of_tile(
    design: Design, mean: Float, metric: Metric, wanted: Int, source: Source, number: int
) -> tuple[Float, Float]:
    """Return the records of one tile, and those of the ``wanted`` rows, numbers in the source, among them."""
    tile, scaling, numbers = source.tile(number), design.scaling, source.original_rows(number)
    weights = np.ones(len(tile.X)) if tile.weights is None else tile.weights
    there = np.flatnonzero(weights > 0)
    found = np.empty((len(there), metric.width + COLUMNS))
    for start in range(0, len(there), PANEL_ROWS):
        some = there[start : start + PANEL_ROWS]
        X, target = tile.X[some], scaling.targets(tile.t[some])[:, 0]
        parts = (
            metric(scaling.inputs(X)),
            target - design.block(X) @ mean,
            np.log(design.noise_factor(X) + 0.0 * target),
        )
        found[start : start + len(some)] = np.column_stack([*parts, 1.0 / weights[some], numbers[some]])
    return found, found[np.isin(tile.start + there, wanted)]
