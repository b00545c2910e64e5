"""Work begun ahead of the result that is awaited: results in order, and a bounded number of things under way."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

T = TypeVar("T")

POLL = 1.0
"""Seconds between looks at what else happens (an abort, a cluster that falls apart) while a result is awaited."""


class Window(Generic[T]):
    """Hands out the results of things in their order, with up to ``ahead`` more begun than the one awaited.

    ``begin`` starts the work on a thing and returns a future; ``next`` is told how to wait for one.

    >>> window = Window("ab", str.upper, ahead=1)
    >>> [window.next(lambda future: future + "!") for _ in range(window.total)]
    ['A!', 'B!']
    """

    def __init__(self, things: Sequence[T], begin: Callable[[T], Any], ahead: int) -> None:
        self._things, self._begin, self._ahead = things, begin, ahead
        self._begun: deque[Any] = deque()
        self.done, self.total = 0, len(things)

    def next(self, end: Callable[[Any], Any]) -> Any:
        """The next result; where ``end`` raises, the same one is awaited by the next call."""
        reach = min(self.done + self._ahead + 1, self.total)
        for position in range(self.done + len(self._begun), reach):
            self._begun.append(self._begin(self._things[position]))
        result = end(self._begun[0])
        self._begun.popleft()
        self.done += 1
        return result

    def forget(self) -> list[Any]:
        """What is under way, which is begun again if ``next`` is called again."""
        begun = list(self._begun)
        self._begun.clear()
        return begun
