"""Ctrl-C during a fit: the first asks it to stop and keep its model, the second stops it at once.

A signal may arrive inside a write to stderr, where another write is an error (``reentrant call``): the handler counts,
and the message is printed by the fit when it polls.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType
from typing import Any


class Interruption:
    """Counts Ctrl-C and polite kills, once ``listen`` has been called and until the block ends.

    The second raises ``KeyboardInterrupt``; later ones are ignored, so that what it interrupted can be recorded.
    ``announce`` is called with a message for people by the first ``poll`` after the first signal.
    """

    def __init__(self, announce: Callable[[str], None]) -> None:
        self._announce = announce
        self._before: dict[int, Any] = {}
        self._count = 0
        self._announced = False

    def listen(self) -> None:
        """Take over the signals."""
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._hear)

    def poll(self) -> bool:
        """Whether the fit has to stop."""
        if self._count and not self._announced:
            self._announced = True
            self._announce(
                "stopping after this step and keeping the last model, if there is one; Ctrl-C again to stop at once"
            )
        return self._count > 0

    def __enter__(self) -> Interruption:
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self._count += 1
        if self._count == 2:
            raise KeyboardInterrupt
