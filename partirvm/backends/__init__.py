"""Backends: who runs passes. In this process, or on a Dask cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from partirvm.backends.base import Executor
from partirvm.backends.local import LocalExecutor, usable_cores

__all__ = ["Executor", "LocalExecutor", "connect", "executor_for", "in_this_process"]


def connect(address: str) -> Any:
    """A client of the Dask scheduler at this address. Raises ``ClusterError`` if none answers."""
    from partirvm.backends.dask import connect

    return connect(address)


def executor_for(client: Any = None) -> Executor:
    """The executor for a ``distributed.Client``, or for this process if there is none."""
    if client is None:
        return LocalExecutor()
    from partirvm.backends.dask import DaskExecutor

    return DaskExecutor(client)


@contextmanager
def in_this_process(executor: Executor) -> Iterator[LocalExecutor]:
    """An executor of this process: the one given, or beside one of a cluster its own, with a worker's threads."""
    if isinstance(executor, LocalExecutor):
        yield executor
        return
    local = LocalExecutor(min(executor.machine(None).threads, usable_cores()))
    try:
        yield local
    finally:
        local.close()
