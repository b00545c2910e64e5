"""Rows that small fits are made of before a fit, or beside it: gathered once, then passes over them in this process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partirvm.backends import Executor, LocalExecutor, in_this_process
from partirvm.backends.blocks import OneDesign
from partirvm.backends.threads import one_blas_thread
from partirvm.core.updates import StepInfo
from partirvm.data.gathered import GatheredRows, rows_of_tile
from partirvm.data.source import Source
from partirvm.kernels import Kernel, Several
from partirvm.kernels.design import Design
from partirvm.likelihoods.base import DenseFit
from partirvm.likelihoods.passes import Pass
from partirvm.setup.spent import Spent
from partirvm.strategies.instructions import Record
from partirvm.strategies.new_columns import fresh
from partirvm.strategies.problem import Problem

Int = NDArray[np.int64]

Heard = Callable[[Sequence[Pass], int, int], None]
"""Hears of passes that so many of their tiles are done, or that none are made yet; may raise to leave."""


@dataclass(frozen=True)
class Sample:
    """Rows held in memory, and who makes passes over them; ``whole`` says that they are all rows of the source.

    ``room`` is how many bytes kernel blocks of one design may take that are kept from one pass to the next. ``log``
    hears of lines of history, ``best`` of each kernel that is the best so far.
    """

    rows: GatheredRows
    whole: bool
    executor: LocalExecutor
    heard: Heard
    spent: Spent
    room: int = 0
    log: Callable[[Record], None] = lambda record: None
    best: Callable[[Kernel | Several], None] = lambda kernel: None

    @cached_property
    def _blocks(self) -> OneDesign:
        return OneDesign(self.rows.n_rows, self.room)

    def run(self, *passes: Any) -> list[Any]:
        """The statistics of passes over all of these rows, by one reading."""
        self.heard(passes, 0, 0)
        began = time.perf_counter()

        def progress(done: int, total: int) -> None:
            self.heard(passes, done, total)

        found = self.executor.run(passes, self.rows, progress, self._blocks)
        self.spent.passing += time.perf_counter() - began
        self.spent.passes += len(passes)
        self.spent.rows += len(passes) * self.rows.n_rows
        return found

    def keep(self, design: Design) -> None:
        """Keep the kernel blocks of this design for the passes to come, in place of those of another one."""
        self._blocks.turn(design)

    def solve(self, solves: Sequence[DenseFit]) -> list[Any]:
        """Dense fits side by side (``backends.base.Solution``)."""
        self.look()
        found = self.executor.solve(solves, lambda done, total: self.look())
        for solution in found:
            self.spent.solved(solution.began, solution.ended)
        return found

    def look(self, info: StepInfo | None = None) -> None:
        """Ask whether to leave; for where there is no pass."""
        self.heard((), 0, 0)

    def only(self, rows: Int) -> Sample:
        """Some of the rows, by their numbers in the source, increasing."""
        return replace(self, rows=self.rows.only(rows), whole=False)

    def candidates(self, problem: Problem, rows: Int) -> tuple[Design, Design]:
        """All columns that these rows offer, and without those that are the same function, after the leading ones.

        Rows of no weight offer none. The first of equal ones stays.
        """
        points, weights = self.rows.gather(rows), self.rows.weights_of(rows)
        there = slice(None) if weights is None else weights > 0
        offered = problem.empty.with_centres(points[there], rows[there])
        return offered, offered.take(fresh(offered, problem.empty), leading=problem.leading)


@contextmanager
def gathered(
    source: Source,
    rows: Int | None,
    executor: Executor,
    heard: Heard,
    spent: Spent,
    room: int = 0,
    log: Callable[[Record], None] = lambda record: None,
    best: Callable[[Kernel | Several], None] = lambda kernel: None,
) -> Iterator[Sample]:
    """These rows of a source (numbers, increasing; None for all), read by its executor and held in this process."""
    with in_this_process(executor) as local, one_blas_thread():
        heard((), 0, 0)
        began, numbers = time.perf_counter(), np.arange(source.n_rows) if rows is None else rows
        tiles = np.unique(numbers // source.tile_rows).tolist()
        found = executor.map(partial(rows_of_tile, numbers), source, tiles, lambda done, total: heard((), done, total))
        held = GatheredRows(source, numbers, (piece for _, piece in found))
        spent.passing += time.perf_counter() - began
        yield Sample(held, rows is None, local, heard, spent, room, log, best)
