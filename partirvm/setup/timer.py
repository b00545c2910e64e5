"""The timer of a fit, which includes kernel learning and planning."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from partirvm.core.termination import Termination


@dataclass
class Timer:
    """A timer that starts on creation. ``limit`` is in seconds; ``since`` is the start in seconds since 1970."""

    limit: float | None = None
    clock: Callable[[], float] = time.monotonic
    since: float = field(default_factory=time.time)
    _began: float = field(init=False)

    def __post_init__(self) -> None:
        self._began = self.clock()

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return self.clock() - self._began

    def __call__(self) -> Termination | None:
        """Return ``TIME`` if the time limit is over, otherwise None."""
        return Termination.TIME if self.seconds > (math.inf if self.limit is None else self.limit) else None

    def after(self, other: Callable[[], Termination | None]) -> Callable[[], Termination | None]:
        """Return a function that first calls ``other``, and calls this timer if ``other`` returns None."""
        return lambda: other() or self()
