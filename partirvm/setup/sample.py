"""A sample of rows in memory for small fits before a fit or between its rounds; passes run in this process."""

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
from partirvm.blas_threads import one_blas_thread
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

OnProgress = Callable[[Sequence[Pass], int, int], None]
"""Progress callback with the passes, the number of tiles done and the total; an exception from it ends the work."""


@dataclass(frozen=True)
class SampledRows:
    """Rows held in memory, and the executor of passes over these rows.

    ``whole`` is True if the sample contains all rows of the source. ``room`` is the number of bytes for kernel blocks
    of one design that are kept between passes. ``log`` is called with each history record, and ``best`` with each
    kernel that is the best so far.
    """

    rows: GatheredRows
    whole: bool
    executor: LocalExecutor
    on_progress: OnProgress
    spent: Spent
    room: int = 0
    log: Callable[[Record], None] = lambda record: None
    best: Callable[[Kernel | Several], None] = lambda kernel: None

    @cached_property
    def _blocks(self) -> OneDesign:
        return OneDesign(self.rows.n_rows, self.room)

    def run(self, *passes: Any) -> list[Any]:
        """Run passes over all rows of the sample with one reading; return their statistics."""
        self.on_progress(passes, 0, 0)
        began = time.perf_counter()

        def progress(done: int, total: int) -> None:
            self.on_progress(passes, done, total)

        found = self.executor.run(passes, self.rows, progress, self._blocks)
        self.spent.passing += time.perf_counter() - began
        self.spent.passes += len(passes)
        self.spent.rows += len(passes) * self.rows.n_rows
        return found

    def keep(self, design: Design) -> None:
        """Keep the kernel blocks of this design between passes, and drop the blocks of the previous design."""
        self._blocks.turn(design)

    def solve(self, solves: Sequence[DenseFit]) -> list[Any]:
        """Run dense fits in parallel; return a ``backends.base.Solution`` for each."""
        self.check_interrupted()
        found = self.executor.solve(solves, lambda done, total: self.check_interrupted())
        for solution in found:
            self.spent.solved(solution.began, solution.ended)
        return found

    def check_interrupted(self, info: StepInfo | None = None) -> None:
        """Call the progress callback without a pass, so that it can interrupt dense computations."""
        self.on_progress((), 0, 0)

    def only(self, rows: Int) -> SampledRows:
        """Return a sample of some of the rows; ``rows`` are increasing row numbers of the source."""
        return replace(self, rows=self.rows.only(rows), whole=False)

    def candidates(self, problem: Problem, rows: Int) -> tuple[Design, Design]:
        """Make two designs of these rows: all their kernel columns, and the leading columns plus the distinct ones.

        Rows of zero weight have no columns. Of several equal columns, the first one is kept.
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
    on_progress: OnProgress,
    spent: Spent,
    room: int = 0,
    log: Callable[[Record], None] = lambda record: None,
    best: Callable[[Kernel | Several], None] = lambda kernel: None,
) -> Iterator[SampledRows]:
    """Read rows of a source with its executor and hold them in this process; ``rows`` are increasing, None for all."""
    with in_this_process(executor) as local, one_blas_thread():
        on_progress((), 0, 0)
        began, numbers = time.perf_counter(), np.arange(source.n_rows) if rows is None else rows
        tiles = np.unique(numbers // source.tile_rows).tolist()
        found = executor.map(
            partial(rows_of_tile, numbers), source, tiles, lambda done, total: on_progress((), done, total)
        )
        held = GatheredRows(source, numbers, (piece for _, piece in found))
        spent.passing += time.perf_counter() - began
        yield SampledRows(held, rows is None, local, on_progress, spent, room, log, best)
