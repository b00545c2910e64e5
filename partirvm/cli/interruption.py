"""Ctrl-C during a fit: the first asks it to stop and keep its model, the second stops it at once."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType
from typing import Any


class Interruption:
    """Says when Ctrl-C or a polite kill came, once ``listen`` has been called and until the block ends.

    ``announce`` is called with a message for people at the first one; the second raises ``KeyboardInterrupt``.
    """

    def __init__(self, announce: Callable[[str], None]) -> None:
        self._announce = announce
        self._before: dict[int, Any] = {}
        self.came = False

    def listen(self) -> None:
        """Take over the signals."""
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._hear)

    def __enter__(self) -> Interruption:
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self.came:
            raise KeyboardInterrupt
        self.came = True
        self._announce(
            "stopping after this step and keeping the last model, if there is one; Ctrl-C again to stop at once"
        )
