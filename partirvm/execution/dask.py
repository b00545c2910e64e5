"""The executor for passes and dense fits on a Dask cluster.

A task runs the local tile function over an aligned run of tiles and returns one node of the fixed
summation tree; workers add the nodes. Large arguments and in-process rows are sent once.
"""

import uuid
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import closing, suppress
from functools import partial
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from partirvm.core.statistics import TreeSum, aligned_runs
from partirvm.data.source import Source
from partirvm.errors import PartirvmError
from partirvm.execution.cluster import ATTEMPTS, TIMES, Cluster, ClusterTimes
from partirvm.execution.kernel_store import Keeping, forget
from partirvm.execution.local import (
    SHARE,
    OfTile,
    Progress,
    added,
    grouped,
    solution,
    tile_statistics,
)
from partirvm.kernels.permission import permit_names, permitted_names
from partirvm.planning.machine import Machine
from partirvm.process import (
    one_blas_thread,
    resident_memory,
    return_freed_memory,
    unloaded_bytes,
    usable_cores,
)
from partirvm.spec.panel_pass import Pass
from partirvm.spec.problem import DenseFit, Solved

R = TypeVar("R")

TASKS_PER_THREAD = 4
"""Tasks per thread in a batch of passes: enough for load balancing, few enough for the
scheduler."""

MOST_TILES = 256
"""Maximum number of tiles per task, so that a lost worker costs little."""

AHEAD = 2
"""Maximum number of pending fits or mapped tiles per worker thread."""


class DaskExecutor:
    """Executor that runs on the workers of a ``distributed.Client``, bit-identical to a
    ``LocalExecutor``.

    Raises ``NoWorkersError`` if there is no worker in time (``ClusterTimes``), and ``ClusterError``
    if the scheduler is gone or a worker has different package versions.
    """

    def __init__(self, client: Any, times: ClusterTimes = TIMES) -> None:
        self._client = client
        self._cluster = Cluster(client, times)
        self._sent: WeakKeyDictionary[Source, tuple[int, dict[int, Any]]] = WeakKeyDictionary()
        """Rows on the cluster, for each in-process source: a level, and futures for runs of
        2**level tiles."""
        self._cluster.check_packages()

    @property
    def lost_workers(self) -> tuple[int, float]:
        """Number of workers lost so far, as last polled, and the time of the last loss."""
        return self._cluster.n_lost, self._cluster.last_lost

    @property
    def threads(self) -> int:
        """Number of threads for a dense fit in this process: as many as the smallest worker has,
        which may be this process."""
        return min(self._cluster.least_threads, usable_cores())

    def machine(self, limit: int | None) -> Machine:
        """Return the maximum thread count, the maximum resident bytes and the minimum memory over
        all workers."""
        workers = list(self._cluster.workers().values())
        base = max(resident_memory(), *(worker["metrics"].get("memory", 0) for worker in workers))
        memory = min(
            (worker["memory_limit"] for worker in workers if worker["memory_limit"]), default=0
        )
        threads = max(worker["nthreads"] for worker in workers)
        allowed = limit or int(SHARE * memory) or 8 << 30
        return Machine(
            threads, base, allowed, len(workers), least_threads=threads, libraries=unloaded_bytes()
        )

    def use(self, threads: int) -> None:
        """Do nothing: the workers determine the number of threads."""

    def run(
        self,
        passes: Sequence[Pass],
        source: Source,
        progress: Progress | None = None,
        keeping: Keeping | None = None,
    ) -> list[Any]:
        """Return the statistic of each pass, summed on the workers; ``progress`` is called after
        each tile.

        Args:
            passes: the passes.
            source: the rows.
            progress: called with the number of finished tasks and the total number.
            keeping: the settings for kept kernel blocks.
        """
        return self._persist(lambda: self._run(grouped(passes, source), source, progress, keeping))

    def forget(self, token: str) -> None:
        """Delete a fit's kept kernel blocks on all workers that respond."""
        # an unreachable worker deletes the blocks after ``IDLE`` seconds
        with suppress(Exception):
            request = self._client.run(forget, token, asynchronous=True)
            self._cluster.call(request, self._cluster.times.question)

    def _run(
        self,
        groups: list[tuple[list[int], list[Pass]]],
        source: Source,
        progress: Progress | None,
        keeping: Keeping | None,
    ) -> list[Any]:
        """Run each group of passes over its tiles, and return the statistics of all passes.

        Args:
            groups: the tile numbers and the passes of each group.
            source: the rows.
            progress: called with the number of finished tiles and the total number.
            keeping: the settings for kept kernel blocks.
        """
        self._cluster.workers()
        level = self._level(sum(len(numbers) for numbers, _ in groups))
        tiles: dict[Any, int] = {}
        roots: list[Any] = []
        sent = self._send([passes for _, passes in groups], "pass")
        try:
            for (numbers, passes), sent_passes in zip(groups, sent, strict=True):
                total = TreeSum(len(numbers), partial(self._submit, "sum", added))
                for index, run in aligned_runs(len(numbers), level):
                    of_run = numbers[run.start : run.stop]
                    future = self._submit_tiles(
                        passes[0].name, sent_passes, source, of_run, keeping
                    )
                    tiles[future] = len(run)
                    total.add(index, future, level)
                roots.append(total.result())
            self._await(tiles, roots, progress)
            return [part for root in roots for part in self._cluster.result(root)]
        finally:
            _release([*tiles, *roots, *sent])

    def _submit_tiles(
        self, name: str, passes: Any, source: Source, tiles: list[int], keeping: Keeping | None
    ) -> Any:
        """Submit the passes over a run of tiles, and return the task's future.

        Args:
            name: the name of the task.
            passes: the future of the passes.
            source: the rows.
            tiles: the numbers of the tiles.
            keeping: the settings for kept kernel blocks.
        """
        parts, places = self._parts(source, tiles)
        return self._submit(name, run_tiles, passes, parts, places, keeping)

    def _await(self, tiles: dict[Any, int], roots: list[Any], progress: Progress | None) -> None:
        """Wait for all tasks, and remove the finished ones from ``tiles``, so that workers can free
        each node as soon as it has been added.

        Args:
            tiles: the number of tiles of each task.
            roots: the tasks whose results are the sums.
            progress: called with the number of finished tiles and the total number.
        """
        n_tiles = sum(tiles.values())
        done = 0
        waiting = {*tiles, *roots}
        while waiting:
            finished = self._finished(waiting)
            waiting -= finished
            done += sum(tiles.pop(future, 0) for future in finished)
            if progress is not None:
                progress(done, n_tiles)

    def solve(self, solves: Sequence[DenseFit], progress: Progress | None = None) -> list[Solved]:
        """Run dense fits, one task each, and return their results in order. If ``progress``, called
        after each, raises an exception, all results are lost."""

        fits = partial(self._submit, "dense-fit", solution)
        return list(
            self._each(lambda solve: fits(*self._send([solve], "columns")), solves, progress, [])
        )

    def map(
        self,
        function: OfTile,
        source: Source,
        tiles: Sequence[int],
        progress: Progress | None = None,
    ) -> Iterator[tuple[int, Any]]:
        """Yield results in tile order, with a bounded number of pending tiles, which are released
        at the end.

        Args:
            function: a function of a source and a tile's number.
            source: the rows.
            tiles: the numbers of the tiles.
            progress: called with the number of finished tasks and the total number.
        """
        sent: list[Any] = []

        def begin(number: int) -> Any:
            if not sent:
                sent.extend(self._send([function], "model"))
            parts, _ = self._parts(source, [number])
            return self._submit(getattr(function, "name", "tile"), sent[0], parts[0], number)

        with closing(self._each(begin, tiles, progress, sent)) as results:
            yield from zip(tiles, results, strict=True)

    def _each(
        self,
        begin: Callable[[Any], Any],
        things: Sequence[Any],
        progress: Progress | None,
        sent: list[Any],
    ) -> Generator[Any, None, None]:
        """Yield results of tasks that ``begin`` submits, in order; ``sent`` holds shared data, and
        is emptied if a worker is lost.

        Args:
            begin: submits the task for an argument, and returns its future.
            things: the arguments of the tasks.
            progress: called with the number of finished tasks and the total number.
            sent: futures of shared data, emptied if a worker is lost.
        """
        waiting: deque[Any] = deque()
        report = progress or (lambda done, total: None)

        def release() -> None:
            _release([*waiting, *sent])
            waiting.clear()
            sent.clear()

        def following(done: int) -> Any:
            """Submit the tasks up to a bounded number ahead, again after a loss, and return the
            result of the first that is waiting."""
            ahead = slice(done + len(waiting), done + AHEAD * self._cluster.n_threads)
            waiting.extend(begin(thing) for thing in things[ahead])
            while not self._finished([waiting[0]]):
                report(done, len(things))
            return self._cluster.result(waiting[0])

        try:
            for done in range(len(things)):
                result = self._persist(partial(following, done), release)
                _release([waiting.popleft()])
                report(done + 1, len(things))
                yield result
        finally:
            release()

    def close(self) -> None:
        """Release the rows sent to workers, and the workers of an adaptive cluster."""
        for _, futures in self._sent.values():
            _release(futures.values())
        self._sent.clear()
        self._cluster.close()

    def _level(self, n_tiles: int) -> int:
        """Return the level of a task's run of tiles (log2 of its length), given the total number of
        tiles."""
        per_task = n_tiles // (TASKS_PER_THREAD * self._cluster.n_threads)
        return min(max(per_task, 1), MOST_TILES).bit_length() - 1

    def _parts(
        self, source: Source, tiles: Sequence[int]
    ) -> tuple[list[Any], list[tuple[int, int]]]:
        """Return a task's parts (the source, or blocks of tiles sent once), and for each tile its
        number and the index of its part."""
        if source.part([0]) is source:
            return [source], [(number, 0) for number in tiles]
        level, futures = self._sent.setdefault(source, (self._level(source.n_tiles), {}))
        needed = sorted({number >> level for number in tiles})
        for block in needed:
            if block not in futures:
                rows = range(block << level, min((block + 1) << level, source.n_tiles))
                (futures[block],) = self._send([source.part(rows)], "rows")
        return [futures[block] for block in needed], [
            (number, needed.index(number >> level)) for number in tiles
        ]

    def _persist(self, attempt: Callable[[], R], release: Callable[[], None] = lambda: None) -> R:
        """Retry after the loss of a worker with the only copy of some data; everything that was
        sent is released first."""
        for _ in range(ATTEMPTS):
            try:
                return attempt()
            except CancelledError as error:
                lost = error
                release()
                self.close()
                self._cluster.workers()
        raise self._cluster.failure(lost) from lost

    def _send(self, values: Sequence[Any], name: str) -> list[Any]:
        """Send values to workers and return their futures. Raises ``CancelledError`` if a worker is
        leaving."""
        if not values:
            return []
        try:
            sent = self._client.scatter(
                {_key(name): value for value in values}, hash=False, asynchronous=True
            )
            futures: dict[str, Any] = self._cluster.call(sent)
        except (PartirvmError, TypeError, ValueError):  # the last two: it cannot be pickled
            raise
        except Exception as error:
            # a worker left: missing entries in distributed's tables, or OSError
            raise CancelledError(str(error)) from error
        return list(futures.values())

    def _submit(self, name: str, function: Any, *arguments: Any) -> Any:
        """Submit a task; functions and arguments may be futures. Dask's dashboard shows tasks by
        ``name``."""
        with self._cluster.reaching():
            names = permitted_names()
            return self._client.submit(
                on_worker, names, function, *arguments, key=_key(name), pure=False
            )

    def _finished(self, waiting: Collection[Any]) -> set[Any]:
        """Return the tasks that ended within a poll. Raises ``CancelledError`` for lost data,
        or a task's error."""
        from distributed import wait  # type: ignore[attr-defined,unused-ignore]

        seconds = self._cluster.times.poll

        async def ended() -> None:
            with self._client.as_current(), suppress(TimeoutError, CancelledError):
                await wait(list(waiting), timeout=seconds, return_when="FIRST_COMPLETED")  # type: ignore[no-untyped-call,unused-ignore]

        self._cluster.call(ended())
        status = {future: future.status for future in waiting}
        # raise errors first, since an error causes the cancellation of other tasks
        for kind in ("error", "cancelled", "lost"):
            for future in waiting:
                if status[future] == kind:
                    self._cluster.result(future)
        self._cluster.poll_if_due()
        return {future for future in waiting if status[future] != "pending"}


def _release(futures: Collection[Any]) -> None:
    """Release unneeded futures at once, which cancels the queued tasks of a stopped pass and frees
    results."""
    # Python would release them too late: exceptions raised by distributed refer to themselves and
    # their frames
    for future in futures:
        future.release()


def _key(name: str) -> str:
    return f"{name}-{uuid.uuid4().hex}"


def run_tiles(
    passes: list[Pass], parts: list[Source], tiles: list[tuple[int, int]], keeping: Keeping | None
) -> Any:
    """Return the node for an aligned run of tiles. Each tile is given by its number and the index
    of its part.

    Args:
        passes: the passes.
        parts: the source, or parts of it.
        tiles: the number of each tile, and the index of its part.
        keeping: the settings for kept kernel blocks.
    """
    total = TreeSum(len(tiles), added)
    for position, (number, part) in enumerate(tiles):
        total.add(position, tile_statistics(passes, parts[part], number, keeping))
    return total.result()


def on_worker(names: tuple[str, ...], function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a task's function on a worker, with one BLAS thread; the function may call the user's
    functions with these names."""
    permit_names(names)
    return_freed_memory()
    with one_blas_thread():
        return function(*arguments)
