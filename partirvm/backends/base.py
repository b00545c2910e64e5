"""What a driver asks of a backend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from numpy.typing import NDArray

from partirvm.backends.passes import MomentsPass
from partirvm.data.source import Source
from partirvm.planning.plan import Machine
from partirvm.strategies.instructions import Pass

Progress = Callable[[int, int], None]
"""Called with tiles done and tiles in all; may raise to leave the pass."""


class Executor(Protocol):
    """Runs passes over the tiles of a source. The statistic does not depend on which executor, or how many workers."""

    elastic: bool  # whether ``use`` can take fewer threads

    def machine(self, limit: int | None) -> Machine:
        """Threads, bytes in use and limit of the tightest process; the limit is 70 % of what it has unless given."""
        ...

    def use(self, threads: int) -> None:
        """Take this many threads from now on, where the executor can choose."""
        ...

    def run(self, pass_: Pass | MomentsPass, source: Source, progress: Progress | None = None) -> Any:
        """The statistic of a pass over its tiles, summed in the fixed tree."""
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
