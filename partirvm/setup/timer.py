"""The time of a fit: from its first look at the data, learning and planning included."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from partirvm.core.termination import Termination


@dataclass
class Timer:
    """Begins when it is made; ``limit`` is in seconds. ``since`` is its beginning in seconds since 1970."""

    limit: float | None = None
    clock: Callable[[], float] = time.monotonic
    since: float = field(default_factory=time.time)
    _began: float = field(init=False)

    def __post_init__(self) -> None:
        self._began = self.clock()

    @property
    def seconds(self) -> float:
        """Seconds since it began."""
        return self.clock() - self._began

    def __call__(self) -> Termination | None:
        """``TIME`` once the limit is over."""
        return Termination.TIME if self.seconds > (math.inf if self.limit is None else self.limit) else None

    def after(self, other: Callable[[], Termination | None]) -> Callable[[], Termination | None]:
        """What the ``other`` answers, or else this."""
        return lambda: other() or self()
