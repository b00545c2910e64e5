"""A Dask cluster as seen by its client: the workers, whether the scheduler responds, and the reason
for a failure.

The module also has the functions that run a job's driver on the cluster, independently of the
submitting process.
"""

import asyncio
import inspect
import math
import time
import uuid
from collections.abc import Callable, Collection, Coroutine, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from concurrent.futures import wait as wait_for
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from partirvm.errors import ClusterError, NoWorkersError, PartirvmError, UsageError
from partirvm.execution.local import POLL
from partirvm.process import PACKAGES
from partirvm.storage.address import allow_protocols, allowed

R = TypeVar("R")

CONNECT = 10.0  # seconds to wait for a scheduler's first response
ATTEMPTS = 5  # maximum number of attempts if workers are lost repeatedly

UNANSWERED = (OSError, RuntimeError, AttributeError, CancelledError, UnboundLocalError)
"""Errors from a query to the scheduler: unreachable, event loop ended, client closed, call
cancelled. The last two occur on a worker that is stopped while this process waits
(``distributed.utils.sync`` has no result then)."""


@dataclass(frozen=True)
class ClusterTimes:
    """How long a process waits for a cluster.

    Attributes:
        patience: seconds to wait for a worker before an error
        question: seconds to wait for a response from the scheduler
        silence: seconds without a response after which a scheduler, even if restarted, is
            considered gone
        answer: seconds to wait for all workers to respond to one query
        poll: seconds between two polls
        clock: the module ``time``, or an object with the same functions
    """

    patience: float = 30.0
    question: float = 5.0
    silence: float = 20.0
    answer: float = 60.0
    poll: float = POLL
    clock: Any = time


TIMES = ClusterTimes()
"""The times of every cluster, unless others are passed."""


def connect(address: str) -> Any:
    """Return a client of the scheduler at this address, configured by Dask. Raises ``UsageError``
    if none responds."""
    from distributed import Client  # type: ignore[attr-defined,unused-ignore]

    try:
        return Client(address, timeout=CONNECT)  # type: ignore[no-untyped-call,unused-ignore]
    except (OSError, ValueError, TypeError, RuntimeError) as error:
        # the last two: TLS on one side only
        text = (
            f"{error} {error.__cause__ or ''}".rstrip()
        )  # some ssl errors appear only in the text
        raise UsageError(
            f"no Dask scheduler responds at {address!r} ({text}): start one with `dask "
            "scheduler`, pass the address that it prints, such as tcp://10.0.0.5:8786; if the "
            "scheduler uses TLS, pass its tls:// address, and set DASK_CONFIG to a tls.yaml with "
            "client certificates that were created together with the scheduler's"
        ) from error


def address_of(client: Any) -> str:
    """Return the address of a client's scheduler. Raises ``ClusterError`` if the client is
    closed."""
    if client.scheduler is None:
        raise ClusterError(
            "the Dask client is closed, or the worker that it belongs to was stopped: open a new "
            "client, and resume a job with `partirvm resume JOB --scheduler ADDRESS`"
        )
    return str(client.scheduler.address)


class Cluster:
    """A ``distributed.Client``, and the times to wait for its cluster.

    ``n_threads`` and ``least_threads`` are the thread counts of all workers and of the smallest, as
    last polled. ``n_lost`` is the number of workers that have left without being retired, and
    ``last_lost`` the time of the last.
    """

    def __init__(self, client: Any, times: ClusterTimes = TIMES) -> None:
        self.client = client
        self.times = times
        self.address = address_of(client)
        self.n_threads = self.least_threads = 1
        self.n_lost = 0
        self.last_lost = 0.0
        self._known_workers: set[str] = set()
        self._first_task: Any = None  # the task's future
        self._last_poll = times.clock.monotonic()
        self._silent_since: float | None = None
        self._empty_since: float | None = None

    def workers(self) -> dict[str, Any]:
        """Wait for at least one worker, and return the scheduler's record of each worker. Raises
        the errors of ``poll``."""
        self._submit_first_task()
        while not (workers := self.poll()):
            self.times.clock.sleep(0.1)
        return workers

    def poll_if_due(self) -> None:
        """Poll, unless the last poll was too short a time ago."""
        if self.times.clock.monotonic() - self._last_poll > self.times.poll:
            self.poll()

    def poll(self) -> dict[str, Any] | None:
        """Return the workers, or None while the scheduler does not respond.

        Raises ``NoWorkersError`` after ``times.patience`` seconds without a worker, and
        ``ClusterError`` after ``times.silence`` seconds without a scheduler, or at once if the
        client has closed, as happens when this process's worker stops.
        """
        if self.client.status == "closed":
            raise self.failure()
        try:
            identity = self.client.sync(
                self.client.scheduler.identity, n_workers=-1, callback_timeout=self.times.question
            )
        except UNANSWERED:
            identity = None
        self._last_poll = now = self.times.clock.monotonic()
        if identity is None:
            self._silent_since = self._silent_since or now
            silence = now - self._silent_since
            if self.client.status == "closed" or silence > self.times.silence:
                raise self.failure()
            return None
        workers: dict[str, Any] = identity["workers"]
        threads = [worker["nthreads"] for worker in workers.values()]
        self.n_threads = sum(threads) or 1
        self.least_threads = min(threads, default=1)
        self._silent_since = None
        self._count_lost(workers.keys())
        self._empty_since = None if workers else self._empty_since or now
        if self._empty_since is not None and now - self._empty_since > self.times.patience:
            self.close()
            raise NoWorkersError(
                f"the cluster at {self.address} has had no worker for "
                f"{self.times.patience:.0f} s: start one with `dask worker {self.address}`"
            )
        return workers

    def _submit_first_task(self) -> None:
        """Submit a small task, and keep its result on the cluster until ``close``.

        ``cluster.adapt`` starts a worker only for a task, and ends the last worker only if it holds
        no result.
        """
        if self._first_task is None:
            with suppress(Exception):  # the client has just closed, which the next poll reports
                self._first_task = self.client.submit(
                    len, "1", key=f"first-task-{uuid.uuid4().hex}", pure=False
                )

    def close(self) -> None:
        """Release the result of the first task, so that an adaptive cluster may end its last
        worker."""
        if self._first_task is not None:
            self._first_task.release()
            self._first_task = None

    def _count_lost(self, workers: Collection[str]) -> None:
        """Count the known workers that have left without being retired, for example by
        ``cluster.adapt``."""
        lost = self._known_workers.difference(workers)
        self._known_workers = set(workers)
        for address in sorted(lost):
            removals = [
                event
                for event in self._events_of(address)
                if event[1].get("action") == "remove-worker"
            ]
            left_at, removal = removals[-1] if removals else (self.times.clock.time(), {})
            if not removal.get("expected"):
                self.n_lost += 1
                self.last_lost = max(self.last_lost, left_at)

    def _events_of(self, address: str) -> Sequence[tuple[float, dict[str, Any]]]:
        """Return the scheduler's events about a worker, or none if the scheduler does not
        respond."""
        try:
            events = self.client.sync(
                self.client.scheduler.events, topic=address, callback_timeout=self.times.question
            )
        except UNANSWERED:
            return ()
        return cast(Sequence[tuple[float, dict[str, Any]]], events)

    def call(self, coroutine: Coroutine[Any, Any, R], seconds: float = math.inf) -> R:
        """Return the result of a call in the client's event loop. Raises the errors of ``poll``, or
        an error after a time-out."""
        clock = self.times.clock
        end = clock.monotonic() + seconds
        called: Future[R] | None = None
        with self.reaching():
            try:
                called = asyncio.run_coroutine_threadsafe(coroutine, self.client.loop.asyncio_loop)
                while not wait_for([called], min(self.times.poll, seconds)).done:
                    self.poll_if_due()
                    if clock.monotonic() > end:
                        raise ClusterError(
                            f"the cluster at {self.address} has not responded for {seconds:.0f} "
                            "s: add workers if all are busy, or end one that hangs (Dask's "
                            "dashboard shows when each was last seen)"
                        )
                return called.result()
            finally:
                if called is not None:
                    called.cancel()
                # the event loop may have ended before the call began
                if inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED:
                    coroutine.close()

    def ask(self, coroutine: Coroutine[Any, Any, R]) -> R:
        """Return the cluster's response to a query that concerns no task. Raises ``ClusterError``
        if there is none."""
        try:
            return self.call(coroutine, self.times.answer)
        except CancelledError as error:  # this process is a worker that is being stopped
            raise self.failure() from error

    @contextmanager
    def reaching(self) -> Iterator[None]:
        """Convert errors from client calls inside the block to ``ClusterError`` if the scheduler is
        gone."""
        try:
            yield
        except (PartirvmError, CancelledError):
            raise
        except Exception:
            while self.poll() is None:
                self.times.clock.sleep(0.1)
            raise

    def failure(self, error: Exception | None = None) -> ClusterError:
        """Return the error to raise for an ``error`` from ``distributed``, or for an unreachable
        cluster."""
        from distributed.scheduler import KilledWorker

        resume = "resume with `partirvm resume JOB --scheduler ADDRESS`"
        if error is None or self.client.status == "closed":
            return ClusterError(
                f"the connection to the Dask cluster at {self.address} ended: its client was "
                "closed, its scheduler no longer responds (start a new one with `dask "
                "scheduler`, and its workers), or the worker that ran the fit was stopped "
                f"(retired, scaled down): if no other worker continues, {resume}"
            )
        if isinstance(error, KilledWorker | CancelledError | KeyError | OSError):
            return ClusterError(
                f"workers of the cluster at {self.address} died, left or were restarted again and "
                "again during the same work, most often for lack of memory: see their logs; give "
                f"workers more memory, or lower memory_limit, and {resume}"
            )
        return ClusterError(f"a task failed on the cluster: {type(error).__name__}: {error}")

    def result(self, future: Any) -> Any:
        """Return a task's result, or raise its ``PartirvmError``, ``CancelledError`` (lost data) or
        ``ClusterError``."""

        async def value() -> Any:
            return await future

        try:
            return self.call(value())
        except (PartirvmError, CancelledError):
            raise
        except Exception as error:
            raise self.failure(error) from error

    def check_packages(self) -> None:
        """Raise ``ClusterError`` unless all workers have this process's versions of the packages
        that affect bits."""
        from distributed.versions import get_versions

        question = {"op": "versions", "packages": list(PACKAGES)}
        ours = get_versions(PACKAGES)["packages"]
        self.workers()  # workers that leave in the meantime do not respond
        answers = self.ask(self.client.scheduler.broadcast(msg=question, on_error="ignore"))
        for worker, theirs in answers.items():
            for name in ("python", *PACKAGES):
                if (other := theirs["packages"][name]) != ours[name]:
                    raise ClusterError(
                        f"worker {worker} has {name} {other}, this process has {ours[name]}: "
                        "results would differ; install the same versions"
                    )


def start(client: Any, key: str, function: Callable[..., Any], *args: Any, **options: Any) -> None:
    """Run ``function(*args, **options, client=…)`` on a worker, to completion even if this process
    exits.

    The task leaves the worker's thread slots, so that a single-threaded worker can run both the
    driver and its tasks. If the worker dies, the scheduler restarts the task on another, so the
    function must resume from its stored state. Raises ``ClusterError`` if the scheduler has not
    accepted the task in time (``ClusterTimes``).
    """
    from distributed import fire_and_forget  # type: ignore[attr-defined,unused-ignore]

    def kept(dask_scheduler: Any) -> bool:
        """Return True if the scheduler has the task and the request to keep it after this process
        exits."""
        # pickled by value, since this package may be missing on the scheduler's machine
        task = dask_scheduler.tasks.get(key)
        return task is not None and any(
            client.client_key == "fire-and-forget" for client in task.who_wants
        )

    async def accepted() -> None:
        while not await client.run_on_scheduler(kept, asynchronous=True):
            await asyncio.sleep(0.02)

    cluster = Cluster(client)
    with cluster.reaching():
        future = client.submit(_drive, tuple(allowed), function, args, options, key=key, pure=False)
        fire_and_forget(future)  # type: ignore[no-untyped-call,unused-ignore]
    cluster.ask(accepted())


def _drive(
    protocols: tuple[str, ...], function: Callable[..., Any], args: Any, options: dict[str, Any]
) -> None:
    """Call a function in a cluster process.

    Args:
        protocols: protocols that the submitting process, and thus this one, may open
        function: function to call, with a client of the cluster as ``client``
        args: its positional arguments
        options: its keyword arguments
    """
    from distributed import get_client, secede  # type: ignore[attr-defined,unused-ignore]

    allow_protocols(*protocols)
    client = get_client()  # type: ignore[no-untyped-call,unused-ignore]
    secede()  # type: ignore[no-untyped-call,unused-ignore]
    function(*args, **options, client=client)
