"""Work that goes on by itself on a cluster, whoever asked for it: a job's driver, and questions to a worker."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from partirvm.backends.dask import DaskExecutor
from partirvm.errors import ClusterError, PartirvmError

ANSWER = 60.0
"""Seconds that a worker may take to answer a question, such as whether it can open the data; a scheduler as well."""

POLL = 0.02
"""Seconds between two questions to the scheduler."""


def ask(client: Any, function: Callable[..., Any], *args: Any) -> Any:
    """``function(*args)`` on some worker, which sees the files that tasks will see.

    Raises ``NoWorkersError`` for a cluster without workers, ``ClusterError`` if packages differ or no answer comes in
    ``ANSWER`` seconds, and whatever of ours the function raises.
    """
    DaskExecutor(client).close()
    future = client.submit(function, *args, pure=False)
    try:
        return future.result(timeout=ANSWER)
    except PartirvmError:
        raise
    except TimeoutError as error:
        future.cancel()
        raise ClusterError(
            f"no worker of the cluster answered within {ANSWER:.0f} s: they are all busy; try again, or add workers"
        ) from error
    except Exception as error:
        raise ClusterError(f"a worker could not do it: {type(error).__name__}: {error}") from error


def start(client: Any, key: str, function: Callable[..., Any], *args: Any, **options: Any) -> None:
    """Run ``function(*args, **options, client=…)`` on a worker, to its end even if this process goes away.

    The task leaves its worker's slot, so that a cluster of one worker with one thread does the work and drives it. If
    that worker dies the scheduler begins the task again elsewhere: the function must go on from what it left behind.
    Raises ``ClusterError`` if the scheduler has not taken it over in ``ANSWER`` seconds.
    """
    from distributed import fire_and_forget  # type: ignore[attr-defined,unused-ignore]

    future = client.submit(_aside, function, args, options, key=key, pure=False)
    fire_and_forget(future)  # type: ignore[no-untyped-call,unused-ignore]
    end = time.monotonic() + ANSWER
    while not _taken_over(client, key):
        if time.monotonic() > end:
            raise ClusterError(
                f"the scheduler of the cluster did not take over the fit within {ANSWER:.0f} s: try again"
            )
        time.sleep(POLL)


def _taken_over(client: Any, key: str) -> bool:
    """Whether the scheduler has the task, and goes on with it when this process is gone: both are sent by and by."""

    def wanted(dask_scheduler: Any) -> bool:
        # by value, as the scheduler need not have this package
        task = dask_scheduler.tasks.get(key)
        return task is not None and any(one.client_key == "fire-and-forget" for one in task.who_wants)

    return bool(client.run_on_scheduler(wanted))


def _aside(function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> None:
    from distributed import get_client, secede  # type: ignore[attr-defined,unused-ignore]

    client = get_client()  # type: ignore[no-untyped-call,unused-ignore]
    secede()  # type: ignore[no-untyped-call,unused-ignore]
    function(*args, **options, client=client)
