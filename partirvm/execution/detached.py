"""Functions that run on a cluster without the submitting process: the driver of a job, and calls on a worker."""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

from partirvm.errors import ClusterError, PartirvmError
from partirvm.execution.cluster import ANSWER, STOPPED, Cluster
from partirvm.storage.address import allow_protocols, allowed_protocols

FAREWELL = 3.0
"""Seconds that a worker which is stopped waits until its driver has recorded the end; Dask kills it after 4 s."""

POLL = 0.02
"""Seconds between two requests to the scheduler."""


def ask(client: Any, function: Callable[..., Any], *args: Any) -> Any:
    """Call ``function(*args)`` on any worker, which can read the same files as the tasks.

    Raises ``NoWorkersError`` for a cluster without workers. Raises ``ClusterError`` if packages differ or there is no
    response in ``ANSWER`` seconds. A ``PartirvmError`` raised by the function is raised again.
    """
    cluster = Cluster(client)
    cluster.workers()
    cluster.check_packages()
    with cluster.reaching():
        future = client.submit(_call, allowed_protocols(), function, *args, pure=False)
    try:
        return future.result(timeout=ANSWER)
    except PartirvmError:
        raise
    except TimeoutError as error:
        future.cancel()
        raise ClusterError(
            f"no worker of the cluster responded within {ANSWER:.0f} s: all are busy; try again, or add workers"
        ) from error
    except Exception as error:
        raise cluster.failure(error) from error


def start(client: Any, key: str, function: Callable[..., Any], *args: Any, **options: Any) -> None:
    """Run ``function(*args, **options, client=…)`` on a worker, to its end even if this process exits.

    The task does not occupy a thread slot of the worker, so that one worker with one thread can run the driver and the
    tasks of the driver. If the worker dies, the scheduler restarts the task on another worker. So the function must
    resume from its stored state.

    Raises ``ClusterError`` if the scheduler has not accepted the task in ``ANSWER`` seconds.
    """
    from distributed import fire_and_forget  # type: ignore[attr-defined,unused-ignore]

    end = time.monotonic() + ANSWER
    cluster = Cluster(client)
    with cluster.reaching():
        future = client.submit(_aside, allowed_protocols(), function, args, options, key=key, pure=False)
        fire_and_forget(future)  # type: ignore[no-untyped-call,unused-ignore]
        while not _taken_over(cluster, key):
            if time.monotonic() > end:
                raise ClusterError(
                    f"the scheduler of the cluster did not accept the fit within {ANSWER:.0f} s: try again"
                )
            time.sleep(POLL)


def _taken_over(cluster: Cluster, key: str) -> bool:
    """Return True if the scheduler has received the task and the request to keep it after this process exits."""

    def kept(dask_scheduler: Any) -> bool:
        # pickled by value, since this package may be missing on the scheduler's machine
        task = dask_scheduler.tasks.get(key)
        return task is not None and any(one.client_key == "fire-and-forget" for one in task.who_wants)

    return bool(cluster.call(cluster.client.run_on_scheduler(kept, asynchronous=True)))


def _call(protocols: tuple[str, ...], function: Callable[..., Any], *args: Any) -> Any:
    """Call a function in a process of the cluster, which may open what the submitting process may open."""
    allow_protocols(*protocols)
    return function(*args)


def _aside(
    protocols: tuple[str, ...], function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]
) -> None:
    from distributed import WorkerPlugin, get_client, get_worker, secede  # type: ignore[attr-defined,unused-ignore]

    stopped, ended = threading.Event(), threading.Event()

    class ClusterDriver(WorkerPlugin):
        async def teardown(self, worker: Any) -> None:
            """Let the driver record its end before the worker closes its client."""
            stopped.set()
            await asyncio.to_thread(ended.wait, FAREWELL)

    client, worker, name = get_client(), get_worker(), f"partirvm-{uuid.uuid4().hex}"  # type: ignore[no-untyped-call,unused-ignore]
    allow_protocols(*protocols)
    secede()  # type: ignore[no-untyped-call,unused-ignore]
    client.sync(worker.plugin_add, ClusterDriver(), name=name, callback_timeout=ANSWER)  # type: ignore[no-untyped-call,unused-ignore]
    STOPPED.set(stopped)
    try:
        function(*args, **options, client=client)
    finally:
        worker.plugins.pop(name, None)
        ended.set()
