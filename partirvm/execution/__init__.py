"""Executors that run passes and dense fits in this process or on a Dask cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from partirvm.execution.local import LocalExecutor, usable_cores

if TYPE_CHECKING:
    from partirvm.execution.dask import DaskExecutor

__all__ = ["Executor", "LocalExecutor", "executor_for", "in_this_process"]

Executor: TypeAlias = "LocalExecutor | DaskExecutor"
"""An executor; both kinds give the same bits."""


def executor_for(client: Any = None) -> Executor:
    """Return the executor for a ``distributed.Client``, or for this process if ``client`` is None."""
    if client is None:
        return LocalExecutor()
    from partirvm.execution.dask import DaskExecutor

    return DaskExecutor(client)


@contextmanager
def in_this_process(executor: Executor) -> Iterator[LocalExecutor]:
    """Yield a local executor: the given one, or for a cluster a new one with the worker's number of threads."""
    if isinstance(executor, LocalExecutor):
        yield executor
        return
    local = LocalExecutor(min(executor.machine(None).threads, usable_cores()))
    try:
        yield local
    finally:
        local.close()
