"""The tiers of the tests, chosen by what a test starts and not by hand.

- *unit*, the default: everything in this process.
- *system* (``-m system``): tests that use one of the fixtures in ``STARTS``, and tests of bits.
- *slow* (``-m slow``): full matrices of cases, whatever they start.

A test that starts a process without such a fixture fails.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

STARTS = {
    "processes": "processes, clusters over TCP and servers",
    "interruptions": "jobs that are killed, interrupted or stopped at many places and resumed",
    "forgeries": "reads of many forged or damaged copies of stored files",
    "default_fits": "fits that learn their kernel with all defaults, and are judged on new rows",
    "snippets": "the code and commands in the documentation",
}
"""Fixtures of system tests, and what such tests start."""

EVENTS = ("subprocess.Popen", "os.fork", "os.posix_spawn", "os.exec", "os.system")
"""Audit events of a start of a process."""

HARMLESS = ("lscpu",)
"""Programs that libraries start to count cores."""


def tier_of(item: pytest.Item) -> str:
    """Return "unit", "system" or "slow"."""
    if item.get_closest_marker("slow"):
        return "slow"
    starts = STARTS.keys() & set(getattr(item, "fixturenames", ()))
    is_system = starts or item.get_closest_marker("bits") or item.get_closest_marker("system")
    return "system" if is_system else "unit"


class Guard:
    """Refuses starts of processes during unit tests."""

    def __init__(self) -> None:
        self._unit_test: str | None = None
        sys.addaudithook(self._audit)

    @contextmanager
    def watching(self, item: pytest.Item) -> Iterator[None]:
        """Refuse starts of processes in the block if the test is a unit test."""
        if tier_of(item) == "unit":
            self._unit_test = item.nodeid
        try:
            yield
        finally:
            self._unit_test = None

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self._unit_test is None or event not in EVENTS:
            return
        program = str(arguments[0]) if arguments else event
        if program not in HARMLESS:
            raise AssertionError(
                f"{self._unit_test} starts {program}: use the fixture `processes`, which makes it"
                " a system test"
            )
