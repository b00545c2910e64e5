"""Passes in this process: threads over tiles, one BLAS thread each."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from numpy.typing import NDArray

from partirvm.backends.base import Progress
from partirvm.backends.passes import MomentsPass, tile_statistic, tiles_of
from partirvm.backends.process import available_memory, resident_memory
from partirvm.backends.threads import one_blas_thread
from partirvm.core.reduction import TreeSum
from partirvm.data.source import Source
from partirvm.planning.plan import Machine
from partirvm.strategies.instructions import Pass

SHARE = 0.7
"""Part of the available memory that ``memory_limit="auto"`` allows."""


def usable_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class LocalExecutor:
    """Runs tiles on a pool of threads. NumPy lets go of the interpreter in the products and the exponentials."""

    elastic = True

    def __init__(self, threads: int | None = None) -> None:
        self.threads = threads or usable_cores()
        self._pool = _pool(self.threads)

    def machine(self, limit: int | None) -> Machine:
        """This process: its threads, resident bytes, and the limit given or 70 % of the memory it may use."""
        return Machine(self.threads, resident_memory(), limit or int(SHARE * available_memory()))

    def use(self, threads: int) -> None:
        """Take this many threads from now on."""
        self.close()
        self.threads = threads
        self._pool = _pool(threads)

    def run(self, pass_: Pass | MomentsPass, source: Source, progress: Progress | None = None) -> Any:
        """The statistic of a pass, summed in the fixed tree as tiles come in."""
        tiles = tiles_of(pass_, source)
        total: TreeSum[Any] = TreeSum(len(tiles))
        statistics = self.map(lambda source, number: tile_statistic(pass_, source, number), source, tiles, progress)
        for position, (_, statistic) in enumerate(statistics):
            total.add(position, statistic)
        return total.result()

    def map(
        self,
        function: Callable[[Source, int], Any],
        source: Source,
        tiles: Sequence[int],
        progress: Progress | None = None,
    ) -> Iterator[tuple[int, Any]]:
        """Yield results in order of tiles; at most one finished tile per thread waits, so memory stays bounded."""
        waiting: deque[tuple[int, Future[Any]]] = deque()
        queue = iter(tiles)
        done = 0
        with one_blas_thread():
            try:
                for number in queue:
                    waiting.append((number, self._pool.submit(function, source, number)))
                    if len(waiting) > self.threads:
                        break
                while waiting:
                    number, future = waiting.popleft()
                    result = future.result()
                    for following in queue:
                        waiting.append((following, self._pool.submit(function, source, following)))
                        break
                    done += 1
                    if progress is not None:
                        progress(done, len(tiles))
                    yield number, result
            finally:
                for _, future in waiting:
                    future.cancel()

    def gather(self, source: Source, rows: NDArray[Any]) -> NDArray[Any]:
        """Inputs of rows by number."""
        return source.gather(rows)

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown(wait=True, cancel_futures=True)


def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="partirvm-tile")
