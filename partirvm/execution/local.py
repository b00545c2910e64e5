"""The executor for passes and dense fits in this process, with one thread per tile or fit and one
BLAS thread each.

``tile_statistics`` reads one tile and returns its contribution to each pass. Rows are processed in
*panels* of a fixed size, so that a tile's full design matrix is never in memory. Tiles and panels
do not depend on the machine, so with one BLAS thread per task, neither do the bits. Task functions
are pure: a scheduler may run a task twice.
"""

import hashlib
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import add
from typing import Any, TypeAlias

import numpy as np

from partirvm.core.moments import Moments
from partirvm.core.statistics import TreeSum
from partirvm.core.updates import StepInfo
from partirvm.data.source import Source, Tile
from partirvm.execution.kernel_store import Keeping, fill_block, forget
from partirvm.kernels.design import Design
from partirvm.planning.machine import Machine
from partirvm.process import (
    available_memory,
    on_threads,
    one_blas_thread,
    resident_memory,
    unloaded_bytes,
    usable_cores,
)
from partirvm.spec.panel_pass import Panel, Pass, Rows, between
from partirvm.spec.problem import DenseFit, Solved
from partirvm.types import PANEL_ROWS, Int

SHARE = 0.7  # fraction of the available memory that ``memory_limit="auto"`` allows
POLL = 1.0
"""Seconds between checks for other events (an abort, a broken cluster) while awaiting a result."""

Progress = Callable[[int, int], None]
"""A function called with the number of finished tasks and the total number; it raises an exception
to stop them."""

OfTile = Callable[[Source, int], Any]
"""A function of a source and the number of one of its tiles."""


@dataclass(frozen=True)
class MomentsPass(Pass, name="moments"):
    """Pass over all rows for the moments of inputs and targets and the first non-finite value."""

    def statistic(self, tile: Tile) -> Moments:
        """Return the moments of the tile's rows."""
        return Moments.of(tile.X, tile.t, tile.weights, tile.start)


Statistics: TypeAlias = tuple[Any, ...]
"""Statistics of several passes over the same tiles."""


def added(statistics: Statistics, other: Statistics) -> Statistics:
    """Return the sum of the statistics of each pass."""
    return tuple(map(add, statistics, other))


def grouped(passes: Sequence[Pass], source: Source) -> list[tuple[list[int], list[Pass]]]:
    """Group consecutive passes that read the same tiles; return the tiles and passes of each
    group."""
    groups = groupby(passes, lambda pass_: tiles_of(pass_, source))
    return [(tiles, list(of_tiles)) for tiles, of_tiles in groups]


def tiles_of(pass_: Pass, source: Source) -> list[int]:
    """Return the numbers of the tiles that a pass reads, in increasing order: all tiles, or the
    tiles that contain its rows."""
    rows = pass_.rows
    if rows is None:
        return list(range(source.n_tiles))
    if isinstance(rows, range):
        return list(range(rows.start // source.tile_rows, -(-rows.stop // source.tile_rows)))
    return list(map(int, np.unique(rows // source.tile_rows)))


@dataclass(frozen=True)
class _Tile(Tile):
    """A tile whose kernel blocks are kept between passes."""

    keeping: Keeping | None = None

    def panels(self, rows: Rows | None, *designs: Design) -> Iterator[tuple[Any, ...]]:
        """Yield the panels of the selected rows, each with its block of every design, stored column
        by column.

        A panel's blocks overwrite the previous panel's blocks: allocating new pages would cost as
        much as the kernel evaluation.
        """
        numbers = self.start + np.arange(len(self.X), dtype=np.int64)
        if rows is not None:
            numbers = between(rows, numbers[0], numbers[-1])
        is_whole = len(numbers) == len(self.X)
        digest = "" if is_whole else hashlib.blake2b(numbers.tobytes(), digest_size=16).hexdigest()
        noise = next((design for design in designs if design.weighs_rows), None)
        places = [np.empty(min(PANEL_ROWS, len(numbers)) * design.n_columns) for design in designs]
        for number, start in enumerate(range(0, len(numbers), PANEL_ROWS)):
            panel = self._panel(numbers[start : start + PANEL_ROWS], noise, is_whole=is_whole)
            blocks = []
            for design, place in zip(designs, places, strict=True):
                size = len(panel.X) * design.n_columns
                block = place[:size].reshape(design.n_columns, len(panel.X)).T
                fill_block(self.keeping, (self.number, digest, number), design, panel.X, block)
                blocks.append(block)
            yield panel, *blocks

    def _panel(self, numbers: Int, noise: Design | None, *, is_whole: bool) -> Panel:
        """Return the panel of these row numbers, weighted by the ``noise`` of a design.

        ``is_whole`` is true if all rows of the tile are selected.
        """
        places: Any = numbers - self.start
        if is_whole:  # the usual case: slices copy nothing
            places = slice(int(places[0]), int(places[-1]) + 1)
        X = self.X[places]
        weights = None if self.weights is None else self.weights[places]
        factors = None if noise is None else noise.row_weights(X)
        if factors is not None:
            weights = factors if weights is None else weights * factors
        return Panel(numbers, X, self.t[places], weights)


def tile_statistics(
    passes: Sequence[Pass], source: Source, number: int, keeping: Keeping | None = None
) -> Statistics:
    """Return one tile's contribution to each pass. ``keeping`` has the settings for kept kernel
    blocks.

    Args:
        passes: the passes.
        source: the rows.
        number: the number of the tile.
        keeping: the settings for kept kernel blocks.
    """
    read = source.tile(number)
    tile = _Tile(read.number, read.start, read.X, read.t, read.weights, keeping=keeping)
    return tuple(pass_.statistic(tile) for pass_ in passes)


def solution(
    solve: DenseFit, on_step: Callable[[StepInfo], None] = lambda info: None, *, threads: int = 1
) -> Solved:
    """Run a dense fit to completion on this many threads; ``on_step``, called at each step, may
    raise an exception to stop it."""
    with on_threads(threads):
        return Solved(*solve.run(on_step))


class LocalExecutor:
    """Executor that uses threads of this process, each holding one finished tile; the number of
    threads does not affect results. Progress is reported every ``poll_seconds`` at least."""

    forget = staticmethod(forget)
    lost_workers = (0, 0.0)  # as in ``DaskExecutor``; this executor has no workers to lose

    def __init__(self, threads: int | None = None, poll: float = POLL) -> None:
        self.threads = threads or usable_cores()
        self.poll_seconds = poll
        self._pool = ThreadPoolExecutor(self.threads, thread_name_prefix="partirvm")

    def machine(self, limit: int | None) -> Machine:
        """Return this process's threads and resident bytes, and the given limit or 70 % of the
        available memory."""
        allowed = limit or int(SHARE * available_memory())
        return Machine(self.threads, resident_memory(), allowed, libraries=unloaded_bytes())

    def use(self, threads: int) -> None:
        """Set the number of threads."""
        self.close()
        self.threads = threads
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="partirvm")

    def run(
        self,
        passes: Sequence[Pass],
        source: Source,
        progress: Progress | None = None,
        keeping: Keeping | None = None,
    ) -> list[Any]:
        """Return the statistic of each pass, summed in the fixed tree; ``keeping`` has the settings
        for kept blocks.

        Args:
            passes: the passes.
            source: the rows.
            progress: called with the number of finished tasks and the total number.
            keeping: the settings for kept kernel blocks.
        """
        groups = grouped(passes, source)
        totals: list[TreeSum] = [TreeSum(len(tiles), added) for tiles, _ in groups]
        leaves = [
            (k, position) for k, (tiles, _) in enumerate(groups) for position in range(len(tiles))
        ]

        def statistics(leaf: tuple[int, int]) -> Statistics:
            k, position = leaf
            tiles, of_tiles = groups[k]
            return tile_statistics(of_tiles, source, tiles[position], keeping)

        results = self._each(statistics, leaves, progress)
        for (k, position), result in zip(leaves, results, strict=True):
            totals[k].add(position, result)
        return [part for total in totals for part in total.result()]

    def solve(self, solves: Sequence[DenseFit], progress: Progress | None = None) -> list[Solved]:
        """Run dense fits on threads, and return their results in order; all stop if ``progress``,
        called after each, raises an exception."""
        left = threading.Event()

        def check(info: StepInfo) -> None:
            if left.is_set():
                raise CancelledError("the result of this fit is no longer needed")

        run = partial(solution, on_step=check, threads=self.threads // max(len(solves), 1))
        try:
            # submit all fits: the pool limits how many run at once, and no thread is idle
            return list(self._each(run, solves, progress, ahead=len(solves)))
        finally:
            left.set()

    def map(
        self,
        function: OfTile,
        source: Source,
        tiles: Sequence[int],
        progress: Progress | None = None,
    ) -> Iterator[tuple[int, Any]]:
        """Yield ``(number, function(source, number))`` for these tiles, in order.

        Args:
            function: a function of a source and a tile's number.
            source: the rows.
            tiles: the numbers of the tiles.
            progress: called with the number of finished tasks and the total number.
        """
        return zip(
            tiles, self._each(lambda number: function(source, number), tiles, progress), strict=True
        )

    def _each(
        self,
        function: Callable[[Any], Any],
        things: Sequence[Any],
        progress: Progress | None,
        ahead: int | None = None,
    ) -> Iterator[Any]:
        """Yield ``function(thing)`` for each of ``things`` in order; at most ``ahead`` calls run in
        advance.

        Args:
            function: the function.
            things: its arguments.
            progress: called with the number of finished tasks and the total number.
            ahead: the number of calls in advance; None for one per thread.
        """
        waiting: deque[Future[Any]] = deque()
        report = progress or (lambda done, total: None)
        with one_blas_thread():
            try:
                for done in range(len(things)):
                    reach = done + 1 + (self.threads if ahead is None else ahead)
                    for thing in things[done + len(waiting) : reach]:
                        waiting.append(self._pool.submit(function, thing))
                    while not wait([waiting[0]], timeout=self.poll_seconds).done:
                        report(done, len(things))
                    result = waiting.popleft().result()
                    report(done + 1, len(things))
                    yield result
            finally:
                for future in waiting:
                    future.cancel()

    def close(self) -> None:
        """Stop the threads."""
        self._pool.shutdown(wait=True, cancel_futures=True)
