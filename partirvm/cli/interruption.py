"""Handling of Ctrl-C and SIGTERM.

During a fit the first signal requests a stop that keeps the model, and the second one stops the fit at once. A signal
may arrive inside a write to stderr, where another write is an error (``reentrant call``). So the handler only counts
signals, and the fit prints the message at its next poll. After a command has received a signal that ends it, further
signals are ignored, so that the command ends with its own message and exit status.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, NoReturn

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Signals:
    """Signal handling during a command: the first Ctrl-C or SIGTERM raises ``KeyboardInterrupt``, others are ignored.

    The exception lets the command remove files that are half-written. With ``alone`` the process runs only this
    command, and signals stay ignored until the process exits: the handlers of Python would print a traceback and change
    the exit status. Without ``alone`` the earlier handlers return after the command.
    """

    def __init__(self, *, alone: bool) -> None:
        self._alone = alone
        self._before: dict[int, Any] = {}
        self._hook = sys.unraisablehook

    def __enter__(self) -> Signals:
        for number in SIGNALS:
            self._before[number] = signal.signal(number, _interrupt)
            if self._before[number] is signal.SIG_IGN and number == signal.SIGINT:
                signal.signal(
                    number, signal.SIG_IGN
                )  # a background process of a shell: Ctrl-C is meant for other processes
        return self

    def __exit__(self, *error: object) -> None:
        if not (self._alone and signal.getsignal(signal.SIGTERM) is signal.SIG_IGN):
            sys.unraisablehook = self._hook
            for number, handler in self._before.items():
                signal.signal(number, handler)


class Interruption:
    """Counter of SIGINT and SIGTERM between the call of ``listen`` and the end of the block.

    The second signal raises ``KeyboardInterrupt``; later signals are ignored. After at least one signal, signals are
    also ignored after the block, until ``Signals`` ends. The first ``poll`` after the first signal calls ``announce``
    with a message for the user.
    """

    def __init__(self, announce: Callable[[str], None]) -> None:
        self._announce = announce
        self._before: dict[int, Any] = {}
        self._count = 0
        self._announced = False

    def listen(self) -> None:
        """Replace the handlers of SIGINT and SIGTERM by this counter."""
        for number in SIGNALS:
            self._before[number] = signal.signal(number, self._on_signal)

    def poll(self) -> bool:
        """Return whether the fit must stop."""
        if self._count and not self._announced:
            self._announced = True
            self._announce(
                "stopping after this step and keeping the last model, if there is one; Ctrl-C again to stop at once"
            )
        return self._count > 0

    def __enter__(self) -> Interruption:
        return self

    def __exit__(self, *error: object) -> None:
        if self._count:
            _ignore()
        else:
            for number, handler in self._before.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._count += 1
        if self._count == 2:
            # The first signal already ends the fit at the next poll. Only an exception can end a wait for threads,
            # for a store or for a cluster before the next poll.
            _interrupt(number, frame)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    """Raise ``KeyboardInterrupt``, and silence tracebacks of incomplete objects when they are collected."""
    _ignore()
    sys.unraisablehook = lambda unraisable: None
    raise KeyboardInterrupt


def _ignore() -> None:
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
