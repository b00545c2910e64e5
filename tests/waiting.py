"""Waits with a limit, and a simulated clock, so that tests do not depend on the machine's load."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SAMPLE = 0.05
"""CPU seconds from which the load of the machine is measured."""


def load() -> float:
    """Return the wall-clock seconds that this process needs for a CPU second, at least 1."""
    began = time.perf_counter()
    end = time.thread_time() + SAMPLE
    while time.thread_time() < end:
        pass
    return max(1.0, (time.perf_counter() - began) / SAMPLE)


LOAD = load()
"""Factor of the time limits of tests: on a busy machine each step takes longer."""

PATIENCE = 120.0 * LOAD
"""Maximum seconds for anything; a longer wait counts as a hang."""


def wait_for(
    condition: Callable[[], Any], what: str = "it", seconds: float = PATIENCE, pause: float = 0.005
) -> Any:
    """Poll until the condition holds and return its value; poll slow conditions less often."""
    end = time.monotonic() + seconds
    while True:
        began = time.monotonic()
        if found := condition():
            return found
        now = time.monotonic()
        assert now < end, f"{what} did not come within {seconds:.0f} s"
        time.sleep(max(pause, 3 * (now - began)))


def stopped(pid: int) -> bool:
    """Return True if every thread of a process is stopped by SIGSTOP."""
    states = (
        path.read_text().rpartition(")")[2].split()[0]
        for path in Path(f"/proc/{pid}/task").glob("*/stat")
    )
    return all(state in "tT" for state in states)


class Clock:
    """Replaces the module ``time``: ``sleep`` returns at once, counts ``naps`` and calls
    ``on_nap``."""

    def __init__(
        self, now: float | None = None, on_nap: Callable[[float], None] = lambda now: None
    ) -> None:
        self.now = time.time() if now is None else now
        self.naps = 0
        self._on_nap = on_nap

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now

    def ctime(self, seconds: float) -> str:
        return f"{seconds} s"

    def sleep(self, seconds: float) -> None:
        self.now = self.now + seconds
        self.naps = self.naps + 1
        self._on_nap(self.now)
