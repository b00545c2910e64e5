"""Passes on a Dask cluster. The only module that knows ``distributed``.

A task is the local tile function over an aligned run of tiles; it is pure, safe to run twice, and returns one node of
the fixed summation tree. Nodes are added on the workers, pair by pair, and only the root comes back. What a pass
carries (designs, offsets) and rows that live in this process are sent once and referred to by every task.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from partirvm.backends.allocator import return_freed_memory
from partirvm.backends.base import Progress
from partirvm.backends.passes import MomentsPass, tile_statistic, tiles_of
from partirvm.backends.process import resident_memory
from partirvm.backends.threads import one_blas_thread
from partirvm.core.reduction import TreeSum, aligned_runs
from partirvm.data.source import Source
from partirvm.errors import ClusterError, NoWorkersError, PartirvmError
from partirvm.planning.plan import Machine
from partirvm.strategies.instructions import Pass

SHARE = 0.7
"""Part of a worker's memory that ``memory_limit="auto"`` allows."""

TASKS_PER_THREAD = 4
"""Tasks of a pass for each worker thread: enough to balance, few enough to schedule."""

MOST_TILES = 256
"""Most tiles of one task, so that a lost worker costs little."""

PATIENCE = 30.0
"""Seconds to wait for a worker before giving up."""

ANSWER = 10.0
"""Seconds to wait for a scheduler's answer."""

POLL = 1.0
"""Seconds between looks at the cluster while a pass runs."""

ATTEMPTS = 5
"""How often a pass is begun before a cluster that keeps losing workers is given up."""

PACKAGES = ("numpy", "scipy", "zarr", "partirvm")


def run_tiles(pass_: Pass | MomentsPass, source: Source, tiles: Sequence[int]) -> Any:
    """The node of an aligned run of tiles; on a worker, with one BLAS thread for its slot."""
    return_freed_memory()
    total: TreeSum[Any] = TreeSum(len(tiles))
    with one_blas_thread():
        for position, number in enumerate(tiles):
            total.add(position, tile_statistic(pass_, source, number))
    return total.result()


def map_tile(function: Callable[..., Any], source: Source, number: int) -> Any:
    """``function`` of one tile, on a worker."""
    return_freed_memory()
    with one_blas_thread():
        return function(source, number)


def gather_rows(source: Source, rows: NDArray[Any]) -> NDArray[Any]:
    """Inputs of rows by number, on a worker."""
    return source.gather(rows)


def add_nodes(left: Any, right: Any) -> Any:
    """Sum of two sibling nodes, on a worker."""
    return left + right


def package_versions() -> dict[str, str]:
    """Versions of what decides the bits of a result, in this process."""
    import importlib.metadata
    import platform

    return {"python": platform.python_version(), **{name: importlib.metadata.version(name) for name in PACKAGES}}


def connect(address: str) -> Any:
    """A client of the scheduler at this address. Raises ``ClusterError`` if none answers within ``ANSWER`` seconds."""
    from distributed import Client  # type: ignore[attr-defined,unused-ignore]

    try:
        return Client(address, timeout=ANSWER)  # type: ignore[no-untyped-call,unused-ignore]
    except (OSError, ValueError) as error:
        raise ClusterError(
            f"no Dask scheduler answers at {address!r} ({error}): start one with `dask scheduler`, and give the "
            "address that it prints, such as tcp://10.0.0.5:8786"
        ) from error


class DaskExecutor:
    """Runs passes on the workers of a ``distributed.Client``. Statistics have the bits of a ``LocalExecutor``'s.

    Raises ``NoWorkersError`` if no worker joins in time, ``ClusterError`` if a worker's packages differ from ours.
    """

    elastic = False

    def __init__(self, client: Any, patience: float = PATIENCE) -> None:
        self._client, self._patience = client, patience
        self._sent: WeakKeyDictionary[Any, dict[tuple[int, ...], Any]] = WeakKeyDictionary()
        self._wait_for_workers()
        self._check_packages()

    def _workers(self) -> dict[str, Any]:
        workers: dict[str, Any] = self._client.scheduler_info(n_workers=-1)["workers"]
        return workers

    def _wait_for_workers(self) -> None:
        try:
            self._client.wait_for_workers(1, timeout=self._patience)
        except TimeoutError as error:
            raise NoWorkersError(
                f"the cluster at {self._client.scheduler.address} has had no worker for {self._patience:.0f} s: start "
                "one with `dask worker ADDRESS`"
            ) from error

    def _check_packages(self) -> None:
        ours = package_versions()
        try:
            theirs = self._client.run(package_versions)
        except Exception as error:
            raise ClusterError(
                f"the workers cannot import partirvm: install the same packages there ({error})"
            ) from error
        for worker, versions in theirs.items():
            for name, version in versions.items():
                if ours[name] != version:
                    raise ClusterError(
                        f"worker {worker} has {name} {version}, this process has {ours[name]}: results would differ; "
                        "install the same versions"
                    )

    def machine(self, limit: int | None) -> Machine:
        """The tightest worker: most threads, most resident bytes, least memory."""
        workers = list(self._workers().values())
        bases = self._client.run(resident_memory).values()
        memory = min((worker["memory_limit"] for worker in workers if worker["memory_limit"]), default=0)
        threads = max(worker["nthreads"] for worker in workers)
        return Machine(
            threads, max(*bases, resident_memory()), limit or int(SHARE * memory) or 8 << 30, workers=len(workers)
        )

    def use(self, threads: int) -> None:
        """Nothing to do: a worker's threads are its own."""

    def run(self, pass_: Pass | MomentsPass, source: Source, progress: Progress | None = None) -> Any:
        """The statistic of a pass, summed on the workers in the fixed tree."""
        return self._persist(lambda: self._run(pass_, source, progress))

    def _persist(self, attempt: Callable[[], Any]) -> Any:
        """Begin again where a worker took along what only it held: what was sent from here cannot be computed again."""
        for _ in range(ATTEMPTS):
            try:
                return attempt()
            except CancelledError as error:
                lost = error
                self._sent.clear()
                self._wait_for_workers()
        raise ClusterError(f"workers were lost in {ATTEMPTS} attempts at the same pass: {lost}") from lost

    def _run(self, pass_: Pass | MomentsPass, source: Source, progress: Progress | None) -> Any:
        tiles = tiles_of(pass_, source)
        slots = sum(worker["nthreads"] for worker in self._workers().values()) or 1
        most = min(max(len(tiles) // (TASKS_PER_THREAD * slots), 1), MOST_TILES)
        level = most.bit_length() - 1
        carried = self._send(pass_)
        total: TreeSum[_Node] = TreeSum(len(tiles))
        leaves = {}
        for index, run in aligned_runs(len(tiles), level):
            numbers = [tiles[position] for position in run]
            future = self._client.submit(run_tiles, carried, self._part(source, numbers), numbers, pure=False)
            leaves[future] = len(numbers)
            total.add(index, _Node(self._client, future), level)
        root = total.result().future
        self._follow(leaves, len(tiles), progress)
        return self._result(root)

    def map(
        self,
        function: Callable[[Source, int], Any],
        source: Source,
        tiles: Sequence[int],
        progress: Progress | None = None,
    ) -> Iterator[tuple[int, Any]]:
        """Yield results in order of tiles; a bounded number of tiles is under way at any time."""
        slots = sum(worker["nthreads"] for worker in self._workers().values()) or 1
        waiting: dict[int, Any] = {}
        carried: list[Any] = []

        def result(position: int) -> Any:
            try:
                if not carried:
                    carried.append(self._send(function))
                for following in range(position, min(position + 2 * slots + 1, len(tiles))):
                    if following not in waiting:
                        number = tiles[following]
                        part = self._part(source, [number])
                        waiting[following] = self._client.submit(map_tile, carried[0], part, number, pure=False)
                self._follow({waiting[position]: 1}, 1, None)
                return self._result(waiting.pop(position))
            except CancelledError:
                waiting.clear()
                carried.clear()
                raise

        for position, number in enumerate(tiles):
            yield number, self._persist(partial(result, position))
            if progress is not None:
                progress(position + 1, len(tiles))

    def gather(self, source: Source, rows: NDArray[Any]) -> NDArray[Any]:
        """Inputs of rows by number: on a worker where the data live behind an address, here where they live here."""
        if source.part([0]) is not source:
            return source.gather(rows)

        def attempt() -> Any:
            future = self._client.submit(gather_rows, source, np.asarray(rows), pure=False)
            self._follow({future: 1}, 1, None)
            return self._result(future)

        gathered: NDArray[Any] = self._persist(attempt)
        return gathered

    def close(self) -> None:
        """Let go of the rows that were sent to workers."""
        self._sent.clear()

    def _part(self, source: Source, tiles: Sequence[int]) -> Any:
        """What a task needs to read its tiles: the source itself if it is an address, else rows sent once and kept."""
        part = source.part(tiles)
        if part is source:
            return source
        kept = self._sent.setdefault(source, {})
        key = tuple(tiles)
        if key not in kept:
            kept[key] = self._send(part)
        return kept[key]

    def _send(self, value: Any) -> Any:
        """Put a value on a worker and return its future. Raises ``CancelledError`` if that worker is just leaving."""
        try:
            (future,) = self._client.scatter([value], hash=False)
        except OSError as error:
            raise CancelledError(str(error)) from error
        return future

    def _follow(self, leaves: dict[Any, int], total: int, progress: Progress | None) -> None:
        """Wait for tasks, report tiles, and never wait for a cluster that has no workers.

        Raises ``CancelledError`` if a worker has left with what the tasks need, and the task's own error if one fails.
        """
        from distributed import wait  # type: ignore[attr-defined,unused-ignore]

        waiting, done, lonely = set(leaves), 0, None
        while waiting:
            try:
                with self._client.as_current():
                    finished = wait(waiting, timeout=POLL, return_when="FIRST_COMPLETED").done  # type: ignore[no-untyped-call,unused-ignore]
            except TimeoutError:
                finished = set()
            for future in finished:
                if future.status in ("error", "cancelled", "lost"):
                    self._result(future)
                done += leaves[future]
            waiting -= finished
            if progress is not None:
                progress(done, total)
            lonely = None if self._workers() else lonely or time.monotonic()
            if lonely is not None and time.monotonic() - lonely > self._patience:
                raise NoWorkersError(
                    f"all workers of the cluster at {self._client.scheduler.address} are gone, and none came back "
                    f"within {self._patience:.0f} s"
                )

    def _result(self, future: Any) -> Any:
        try:
            return future.result()
        except (PartirvmError, CancelledError):
            raise
        except Exception as error:
            raise ClusterError(f"a task failed on the cluster: {type(error).__name__}: {error}") from error


class _Node:
    """A node that lives on the cluster: adding two submits the addition."""

    def __init__(self, client: Any, future: Any) -> None:
        self.client, self.future = client, future

    def __add__(self, other: _Node) -> _Node:
        return _Node(self.client, self.client.submit(add_nodes, self.future, other.future, pure=False))
