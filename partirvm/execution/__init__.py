"""Executors that run passes and dense fits in this process or on a Dask cluster."""

from typing import TYPE_CHECKING, Any, TypeAlias

from partirvm.execution.local import LocalExecutor

if TYPE_CHECKING:
    from partirvm.execution.dask import DaskExecutor

__all__ = ["Executor", "LocalExecutor", "executor_for"]

Executor: TypeAlias = "LocalExecutor | DaskExecutor"
"""An executor; both kinds produce the same bits."""


def executor_for(client: Any = None) -> Executor:
    """Return the executor for a ``distributed.Client``, or for this process if ``client`` is None."""
    if client is None:
        return LocalExecutor()
    from partirvm.execution.dask import DaskExecutor

    return DaskExecutor(client)
