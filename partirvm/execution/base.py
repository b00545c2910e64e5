"""The interface of executors, which run passes and dense fits."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from numpy.typing import NDArray

from partirvm.core.termination import Termination
from partirvm.core.tiled import on_threads
from partirvm.core.updates import StepInfo
from partirvm.data.source import Source
from partirvm.execution.block_store import Fetched, Keeping
from partirvm.likelihoods.base import DenseFit, Fit, Pass
from partirvm.planning.plan import Machine

Progress = Callable[[int, int], None]
"""Type of a function called with the numbers of finished and of all tasks. To stop, it raises an exception."""


@dataclass(frozen=True)
class Solution:
    """The final state of a dense fit, the reason for its end, and the times of start and end in seconds since 1970."""

    fit: Fit
    reason: Termination
    began: float
    ended: float


def solution(solve: DenseFit, on_step: Callable[[StepInfo], None] = lambda info: None, *, threads: int = 1) -> Solution:
    """Run a dense fit to its end; large matrices use ``threads`` threads, with the same bits for any number of them.

    ``on_step`` is called at each step, and may raise an exception to stop.
    """
    began = time.time()
    with on_threads(threads):
        fit, reason = solve.run(on_step)
    return Solution(fit, reason, began, time.time())


@dataclass
class Blocks:
    """Storage of the kernel blocks of a fit, with counts of evaluated and stored elements.

    ``room`` returns the bytes that each process may use, given a number of columns. ``fetched`` holds the counts, and
    ``keeping`` the settings of the current run of passes.
    """

    keeping: Keeping
    room: Callable[[int], int]
    fetched: Fetched = field(default_factory=Fetched)

    def begin(self, columns: int) -> None:
        """Start a run of passes with this many columns."""
        self.keeping = replace(self.keeping, run=self.keeping.run + 1, budget=self.room(columns))

    def count_fetched(self, fetched: Iterable[Fetched]) -> None:
        """Add the counts of a run of passes."""
        self.fetched = sum(fetched, self.fetched)


class Executor(Protocol):
    """Interface of executors. Statistics do not depend on the executor or the number of workers."""

    elastic: bool  # True if ``use`` can reduce the number of threads

    @property
    def threads(self) -> int:
        """Number of threads that a dense fit in this process may use."""
        ...

    def machine(self, limit: int | None) -> Machine:
        """Return threads, bytes in use and memory limit (default: 70 % of the memory) of the most limited process."""
        ...

    def use(self, threads: int) -> None:
        """Set the number of threads, if the executor is elastic."""
        ...

    def run(
        self,
        passes: Sequence[Pass],
        source: Source,
        progress: Progress | None = None,
        blocks: Blocks | None = None,
    ) -> list[Any]:
        """Return the statistic of each pass, summed over its tiles in the fixed tree.

        A tile that several passes need is read once. ``progress`` is called after each tile. ``blocks`` has the
        settings for stored kernel blocks, and receives the counts.
        """
        ...

    def forget(self, token: str) -> None:
        """Delete the stored kernel blocks of a fit."""
        ...

    def solve(self, solves: Sequence[DenseFit], progress: Progress | None = None) -> list[Solution]:
        """Run dense fits in parallel, and return results in the given order. ``progress`` is called after each fit."""
        ...

    def map(self, function: Callable[..., Any], source: Source, tiles: Sequence[int], progress: Progress | None) -> Any:
        """Yield ``(number, function(source, number))`` for these tiles, in order."""
        ...

    def gather(self, source: Source, rows: NDArray[Any]) -> NDArray[Any]:
        """Return the inputs of the rows with these numbers, shape (len(rows), d)."""
        ...

    def close(self) -> None:
        """Release threads and data sent to workers."""
        ...
