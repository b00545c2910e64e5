"""Executors that run passes and dense fits in this process or on a Dask cluster."""

from typing import TYPE_CHECKING, Any, TypeAlias

from partirvm.execution.local import LocalExecutor, MomentsPass

if TYPE_CHECKING:
    from partirvm.execution.dask import DaskExecutor

__all__ = [
    "Executor",
    "LocalExecutor",
    "MomentsPass",
    "executor_for",
    "is_ended",
]

Executor: TypeAlias = "LocalExecutor | DaskExecutor"
"""An executor; both kinds produce the same bits."""


def executor_for(client: Any = None) -> Executor:
    """Return the executor for a ``distributed.Client``, or for this process if ``client`` is
    None."""
    if client is None:
        return LocalExecutor()
    from partirvm.execution.dask import DaskExecutor

    return DaskExecutor(client)


def is_ended(client: Any) -> bool:
    """Return True for a ``distributed.Client`` that is closing or closed, such as the client of a
    worker that is being stopped."""
    return client is not None and client.status in ("closing", "closed")
