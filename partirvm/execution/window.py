"""A window over a sequence of tasks: results in order, with a bounded number of pending tasks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

T = TypeVar("T")

POLL = 1.0
"""Seconds between checks for other events (an abort, a broken cluster) while waiting for a result."""


class Window(Generic[T]):
    """Results of tasks in order. While one task is awaited, up to ``ahead`` further tasks are started.

    ``begin`` starts a task and returns a future. The argument of ``next`` waits for a future and returns the result.

    >>> window = Window("ab", str.upper, ahead=1)
    >>> [window.next(lambda future: future + "!") for _ in range(window.total)]
    ['A!', 'B!']
    """

    def __init__(self, things: Sequence[T], begin: Callable[[T], Any], ahead: int) -> None:
        self._things, self._begin, self._ahead = things, begin, ahead
        self._begun: deque[Any] = deque()
        self.done, self.total = 0, len(things)

    def next(self, end: Callable[[Any], Any]) -> Any:
        """Return the next result. If ``end`` raises an exception, the next call waits for the same task."""
        reach = min(self.done + self._ahead + 1, self.total)
        for position in range(self.done + len(self._begun), reach):
            self._begun.append(self._begin(self._things[position]))
        result = end(self._begun[0])
        self._begun.popleft()
        self.done += 1
        return result

    def forget(self) -> list[Any]:
        """Remove and return the pending futures. A later ``next`` starts their tasks again."""
        begun = list(self._begun)
        self._begun.clear()
        return begun
