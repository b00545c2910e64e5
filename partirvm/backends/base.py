"""What a driver asks of a backend."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from numpy.typing import NDArray

from partirvm.backends.blocks import Fetched, Keeping
from partirvm.core.termination import Termination
from partirvm.core.updates import HyperState, StepInfo
from partirvm.data.source import Source
from partirvm.likelihoods.base import DenseFit
from partirvm.likelihoods.passes import Pass
from partirvm.planning.plan import Machine

Progress = Callable[[int, int], None]
"""Called with things done and things in all; may raise to leave."""


@dataclass(frozen=True)
class Solution:
    """Where a dense fit ended and why, and from when to when it ran (seconds since the epoch)."""

    fit: HyperState
    reason: Termination
    began: float
    ended: float


def solution(solve: DenseFit, on_step: Callable[[StepInfo], None] = lambda info: None) -> Solution:
    """A dense fit from beginning to end, where it is called. ``on_step`` hears of each step, and may raise to leave."""
    began = time.time()
    fit, reason = solve.run(on_step)
    return Solution(fit, reason, began, time.time())


@dataclass
class Blocks:
    """How the kernel blocks of a fit are kept, and how that went.

    ``room`` says how many bytes each process may keep while the fit has so many columns; ``fetched`` counts, and
    ``keeping`` is of the run of passes that began last.
    """

    keeping: Keeping
    room: Callable[[int], int]
    fetched: Fetched = field(default_factory=Fetched)

    def begin(self, columns: int) -> None:
        """A run of passes begins, with so many columns."""
        self.keeping = replace(self.keeping, run=self.keeping.run + 1, budget=self.room(columns))

    def heard(self, fetched: Iterable[Fetched]) -> None:
        """Count what a run fetched."""
        self.fetched = sum(fetched, self.fetched)


class Executor(Protocol):
    """Runs passes over the tiles of a source. The statistic does not depend on which executor, or how many workers."""

    elastic: bool  # whether ``use`` can take fewer threads

    def machine(self, limit: int | None) -> Machine:
        """Threads, bytes in use and limit of the tightest process; the limit is 70 % of what it has unless given."""
        ...

    def use(self, threads: int) -> None:
        """Take this many threads from now on, where the executor can choose."""
        ...

    def run(
        self,
        passes: Sequence[Pass],
        source: Source,
        progress: Progress | None = None,
        blocks: Blocks | None = None,
    ) -> list[Any]:
        """The statistic of each pass, summed over its tiles in the fixed tree. A tile that several want is read once.

        ``progress`` hears of tiles; ``blocks`` says how kernel blocks are kept, and hears how that went.
        """
        ...

    def forget(self, token: str) -> None:
        """Drop the kernel blocks that were kept of a fit."""
        ...

    def solve(self, solves: Sequence[DenseFit], progress: Progress | None = None) -> list[Solution]:
        """Dense fits side by side, in the order given; ``progress`` hears of fits."""
        ...

    def map(self, function: Callable[..., Any], source: Source, tiles: Sequence[int], progress: Progress | None) -> Any:
        """Yield ``(number, function(source, number))`` for these tiles, in order."""
        ...

    def gather(self, source: Source, rows: NDArray[Any]) -> NDArray[Any]:
        """Inputs of rows by number, shape (len(rows), d)."""
        ...

    def close(self) -> None:
        """Give back threads and whatever was sent to workers."""
        ...
