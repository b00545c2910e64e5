"""When a fit is asked to end: its time limit, which includes kernel learning and planning, and an abort."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from partirvm.core.termination import Termination
from partirvm.options import Request
from partirvm.planning.units import parse_duration

Interrupted: TypeAlias = Callable[[], Termination | None]
"""Called repeatedly during a fit; returns the reason to end the fit, or None to continue."""


class StoppedError(Exception):
    """Raised if an abort is requested while a fit is planned; the caller decides which files to keep."""


def check_aborted(interrupted: Interrupted) -> None:
    """Raise ``StoppedError`` if an abort was requested."""
    if interrupted() is Termination.ABORTED:
        raise StoppedError


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

    def after(self, other: Interrupted) -> Interrupted:
        """Return a function that first calls ``other``, and calls this timer if ``other`` returns None."""
        return lambda: other() or self()


def timer_of(parameters: Request) -> Timer:
    """Start the timer of a fit. Raises ``UsageError`` for an invalid time limit."""
    limit = parameters.time_limit
    return Timer(None if limit is None else parse_duration(limit, "time_limit"))
