"""A Dask cluster as reported by its client: the workers, whether the scheduler responds, and what has failed."""

from __future__ import annotations

import asyncio
import inspect
import math
import socket
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import CancelledError, Future
from concurrent.futures import wait as wait_for
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from partirvm.blas_threads import kernels
from partirvm.errors import ClusterError, NoWorkersError, PartirvmError, PartirvmWarning
from partirvm.execution import tasks
from partirvm.execution.window import POLL

R = TypeVar("R")

QUESTION = 5.0
"""Seconds to wait for one response of the scheduler."""

SILENCE = 20.0
"""Seconds without response after which a scheduler counts as gone. A restarted scheduler can respond in time."""

ANSWER = 60.0
"""Seconds to wait for the responses of all workers to one question."""

WORKER_TIMEOUT = 30.0
"""Seconds to wait for a worker before an error."""

ATTEMPTS = 5
"""Maximum number of attempts if workers are lost repeatedly."""


STOPPED: ContextVar[threading.Event | None] = ContextVar("STOPPED", default=None)
"""For a driver on a worker: set when the worker begins to stop (``execution.detached``)."""


def address_of(client: Any) -> str:
    """Return the address of the scheduler of a client. Raises ``ClusterError`` if the client is closed."""
    scheduler = client.scheduler
    if scheduler is None:
        raise ClusterError(
            "the Dask client is closed, or the worker that it belongs to was stopped: open a new client, "
            "and resume a job with `partirvm resume JOB --scheduler ADDRESS`"
        )
    return str(scheduler.address)


def worker_left(error: Exception) -> bool:
    """Return True for an error of a client call that a worker causes by leaving during the call.

    Besides ``OSError`` these are missing entries in tables of ``distributed``, raised by its own code.
    """
    if not isinstance(error, KeyError | AttributeError):
        return isinstance(error, OSError)
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return str(frame.f_globals.get("__name__")).partition(".")[0] == "distributed"


class Cluster:
    """A ``distributed.Client`` and the seconds to wait for a worker before an error (``patience``)."""

    def __init__(self, client: Any, patience: float) -> None:
        self.client, self.patience = client, patience
        self.address, self._generation = address_of(client), client.generation
        self._stopped = STOPPED.get()
        self.n_threads = 1  # of all workers, at the last poll
        self.least_threads = 1  # of a worker, at the last poll

    @property
    def stopped(self) -> bool:
        """Return True if this process is a worker that is being stopped."""
        return self._stopped is not None and self._stopped.is_set()

    def watch(self) -> ClusterWatch:
        """Return a new ``ClusterWatch`` of the cluster."""
        return ClusterWatch(self)

    def workers(self) -> dict[str, Any]:
        """Wait for at least one worker, and return the scheduler's record of each worker.

        Raises ``NoWorkersError`` if no worker joins, ``ClusterError`` if the scheduler does not respond.
        """
        watch = self.watch()
        while not (workers := watch.poll()):
            time.sleep(0.1)
        return workers

    def current_workers(self) -> dict[str, Any] | None:
        """Return the current workers, or None if the scheduler does not respond."""
        try:
            identity = self.client.sync(self.client.scheduler.identity, n_workers=-1, callback_timeout=QUESTION)
        except (OSError, RuntimeError, AttributeError):  # unreachable, event loop ended, client closed
            return None
        workers: dict[str, Any] = identity["workers"]
        self.n_threads = sum(worker["nthreads"] for worker in workers.values()) or 1
        self.least_threads = min((worker["nthreads"] for worker in workers.values()), default=1)
        return workers

    def call(self, coroutine: Coroutine[Any, Any, R], seconds: float = math.inf) -> R:
        """Return the result of a call of the client, which runs in the client's event loop, or raise its error.

        Never blocks on a broken cluster: raises as ``ClusterWatch.poll`` does, and ``TimeoutError`` after ``seconds``.
        """
        watch, end = self.watch(), time.monotonic() + seconds
        called: Future[R] | None = None
        try:
            called = asyncio.run_coroutine_threadsafe(coroutine, self.client.loop.asyncio_loop)
            while not wait_for([called], min(POLL, seconds)).done:
                watch.poll_if_due()
                if time.monotonic() > end:
                    raise TimeoutError
            return called.result()
        finally:
            if called is not None:
                called.cancel()
            if inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED:  # the event loop has ended
                coroutine.close()

    @contextmanager
    def reaching(self) -> Iterator[None]:
        """Convert errors of client calls inside the block to ``ClusterError`` if the scheduler is gone."""
        try:
            yield
        except (PartirvmError, CancelledError):
            raise
        except Exception:
            watch = self.watch()
            while watch.poll() is None:
                time.sleep(0.1)
            raise

    def failure(self, error: Exception | None = None) -> ClusterError:
        """Return the error to raise for ``error`` of ``distributed``, or for a cluster that does not respond.

        Each cause has its own sentence and advice.
        """
        from distributed.scheduler import KilledWorker

        resume = f"resume with `partirvm resume JOB --scheduler {self.address}`"
        if self.stopped or (self.client.status == "closed" and self._listens()):
            if self.client.generation != self._generation:
                return ClusterError(f"the Dask cluster at {self.address} was restarted, which ends its fits: {resume}")
            return ClusterError(
                f"the Dask client of {self.address} was closed, or the worker that ran the fit was stopped (retired, "
                f"scaled down): if no other worker continues, {resume}"
            )
        if isinstance(error, KilledWorker | CancelledError | KeyError | OSError):
            return ClusterError(
                f"workers of the cluster at {self.address} died, left or were restarted again and again during the "
                "same work, most often for lack of memory: see their logs; give workers more memory, or lower "
                f"memory_limit, and {resume}"
            )
        if error is not None:
            return ClusterError(f"a task failed on the cluster: {type(error).__name__}: {error}")
        return ClusterError(
            f"the Dask scheduler at {self.address} does not respond any more: start a new one with "
            "`dask scheduler`, and its workers, and resume there with `partirvm resume JOB --scheduler ADDRESS`"
        )

    def _listens(self) -> bool:
        """Return True if something accepts connections at the scheduler's address, or the address is in this process.

        A client also closes by itself, after it has looked for a lost scheduler in vain.
        """
        from distributed.comm.addressing import get_address_host_port

        try:
            place = get_address_host_port(self.address)
        except ValueError:
            return True
        try:
            socket.create_connection(place, timeout=QUESTION).close()
        except OSError:
            return False
        return True

    def ask_workers(self, function: Callable[[], Any]) -> dict[str, Any]:
        """Return the result of ``function()``, or its exception, for each worker. Workers that leave are not counted.

        Raises ``ClusterError`` if all workers leave in each of ``ATTEMPTS`` attempts or a worker does not respond in
        ``ANSWER`` seconds, and as ``workers`` does.
        """
        error: Exception = OSError("no worker is left")
        for _ in range(ATTEMPTS):
            try:
                with self.reaching():
                    said: dict[str, Any] = self.call(
                        self.client.run(function, on_error="return", asynchronous=True), ANSWER
                    )
            except PartirvmError:
                raise
            except TimeoutError as silent:
                raise ClusterError(
                    f"a worker of the cluster at {self.address} has not responded for {ANSWER:.0f} s: end the worker "
                    "that hangs (Dask's dashboard shows when each was last seen), and try again"
                ) from silent
            except Exception as lost:
                if not worker_left(lost):
                    raise
                error, said = lost, {}
            found = {worker: value for worker, value in said.items() if not isinstance(value, OSError)}
            if found:
                return found
            error = next(iter(said.values()), error)
            self.workers()
        raise self.failure(error) from error

    def check_packages(self, *here: str) -> None:
        """Raise ``ClusterError`` unless all workers have this process's versions of the packages that affect bits.

        Warn if workers have other BLAS kernels than each other, or than ``here``: those of this process, if it takes
        part in the work.
        """
        ours = tasks.package_versions()
        for worker, versions in self.ask_workers(tasks.package_versions).items():
            if isinstance(versions, Exception):
                raise ClusterError(
                    f"worker {worker} cannot import partirvm ({versions}): install the same packages there"
                ) from versions
            for name, version in versions.items():
                if ours[name] != version:
                    raise ClusterError(
                        f"worker {worker} has {name} {version}, this process has {ours[name]}: results would differ; "
                        "install the same versions"
                    )
        found = sorted({*here, *map(str, self.ask_workers(kernels).values())})
        if len(found) > 1:
            warnings.warn(
                f"processors of the cluster at {self.address} use different BLAS kernels ({'; '.join(found)}): results "
                "are as accurate, but their last bits may differ from run to run; to repeat them exactly, use like "
                "machines, or set OPENBLAS_CORETYPE to one kind for all of them",
                PartirvmWarning,
                stacklevel=3,
            )


class ClusterWatch:
    """Regular polls of a cluster, with an error after too long a time without workers or without scheduler."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._last_poll = self._last_response = self._last_worker = time.monotonic()

    def poll_if_due(self) -> None:
        """Poll the cluster, unless the last poll was less than ``POLL`` seconds ago."""
        if time.monotonic() - self._last_poll > POLL:
            self.poll()

    def poll(self) -> dict[str, Any] | None:
        """Return the workers, or None while the scheduler does not respond.

        Raises ``NoWorkersError`` after ``patience`` seconds without a worker, ``ClusterError`` after ``SILENCE``
        seconds without a scheduler, or at once if the client has closed or the worker of this process is stopped.
        """
        cluster = self._cluster
        if cluster.stopped:
            raise cluster.failure()
        workers = cluster.current_workers()
        self._last_poll = now = time.monotonic()
        if workers is None:
            if now - self._last_response > SILENCE or cluster.client.status == "closed":
                raise cluster.failure()
            return None
        self._last_response = now
        if workers:
            self._last_worker = now
        elif now - self._last_worker > cluster.patience:
            raise NoWorkersError(
                f"the cluster at {cluster.address} has had no worker for {cluster.patience:.0f} s: start one with "
                f"`dask worker {cluster.address}`"
            )
        return workers
