"""Backends: who runs passes. In this process, or on a Dask cluster."""

from __future__ import annotations

from typing import Any

from partirvm.backends.base import Executor
from partirvm.backends.local import LocalExecutor

__all__ = ["Executor", "LocalExecutor", "connect", "executor_for"]


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
