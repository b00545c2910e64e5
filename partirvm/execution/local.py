"""The executor of passes and dense fits in this process, with one thread per tile or fit and one BLAS thread each."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from functools import partial
from typing import Any

from partirvm.core.statistics import TreeSum
from partirvm.core.updates import StepInfo
from partirvm.data.source import Source
from partirvm.execution.kernel_store import Keeping, forget
from partirvm.execution.tasks import OfTile, Progress, SeveralStatistics, grouped, solution, tile_statistics, ungrouped
from partirvm.likelihoods.base import DenseFit, Pass, Solved
from partirvm.planning.plan import Machine
from partirvm.process import available_memory, one_blas_thread, resident_memory

SHARE = 0.7  # fraction of the available memory that ``memory_limit="auto"`` allows
POLL = 1.0  # seconds between checks for other events (an abort, a broken cluster) while waiting for a result


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class LocalExecutor:
    """Executor on the threads of this process; statistics do not depend on their number.

    At most one finished tile per thread waits for its addition, so memory is bounded.
    """

    def __init__(self, threads: int | None = None) -> None:
        self.threads = threads or usable_cores()
        self._pool = ThreadPoolExecutor(self.threads, thread_name_prefix="partirvm")

    def machine(self, limit: int | None) -> Machine:
        """Return threads and resident bytes of this process, and the given limit or 70 % of the available memory."""
        return Machine(self.threads, resident_memory(), limit or int(SHARE * available_memory()))

    def use(self, threads: int) -> None:
        """Set the number of threads."""
        self.close()
        self.threads = threads
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="partirvm")

    def run(
        self, passes: Sequence[Pass], source: Source, progress: Progress | None = None, keeping: Keeping | None = None
    ) -> list[Any]:
        """Return the statistic of each pass, summed in the fixed tree as tiles finish; each tile is read once.

        ``progress`` is called after each tile. ``keeping`` has the settings of kept kernel blocks.
        """
        groups = grouped(passes, source)
        totals: list[TreeSum] = [TreeSum(len(group.tiles)) for group in groups]
        leaves = [(k, position) for k, group in enumerate(groups) for position in range(len(group.tiles))]

        def statistics(leaf: tuple[int, int]) -> SeveralStatistics:
            group = groups[leaf[0]]
            return tile_statistics(group.passes, source, group.tiles[leaf[1]], keeping)

        for (k, position), found in zip(leaves, self._each(statistics, leaves, progress), strict=True):
            totals[k].add(position, found)
        return ungrouped(groups, [total.result() for total in totals])

    def forget(self, token: str) -> None:
        """Delete the kept kernel blocks of a fit."""
        forget(token)

    def solve(self, solves: Sequence[DenseFit], progress: Progress | None = None) -> list[Solved]:
        """Run dense fits, one per thread at a time, and return results in the given order.

        Fewer fits than threads share them. If ``progress``, called after each fit, raises, fits stop at the next step.
        """
        left = threading.Event()

        def check(info: StepInfo) -> None:
            if left.is_set():
                raise CancelledError("the result of this fit is not needed any more")

        run = partial(solution, on_step=check, threads=self.threads // max(len(solves), 1))
        try:
            # start all fits: the pool limits the number of running fits, and no thread is idle
            return list(self._each(run, solves, progress, ahead=len(solves)))
        finally:
            left.set()

    def map(
        self, function: OfTile, source: Source, tiles: Sequence[int], progress: Progress | None = None
    ) -> Iterator[tuple[int, Any]]:
        """Yield ``(number, function(source, number))`` for these tiles, in order."""
        return zip(tiles, self._each(lambda number: function(source, number), tiles, progress), strict=True)

    def _each(
        self, function: Callable[[Any], Any], things: Sequence[Any], progress: Progress | None, ahead: int | None = None
    ) -> Iterator[Any]:
        """Yield ``function(thing)`` for each of ``things`` in order; at most ``ahead`` calls run in advance."""
        waiting: deque[Future[Any]] = deque()
        report = progress or (lambda done, total: None)
        with one_blas_thread():
            try:
                for done in range(len(things)):
                    reach = done + 1 + (self.threads if ahead is None else ahead)
                    for thing in things[done + len(waiting) : reach]:
                        waiting.append(self._pool.submit(function, thing))
                    while not wait([waiting[0]], timeout=POLL).done:
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
