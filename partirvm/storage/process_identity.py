"""The identity of a process. On the machine of the process, the identity shows whether the process is still alive.

Process numbers are reused. They have no meaning on another machine, after a reboot or in another container. Therefore
an identity also contains the host name, the boot, the namespace of process numbers and the start time of the process.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

PROC = Path("/proc")
"""The path of Linux's process file system."""


@dataclass(frozen=True)
class Process:
    """A process on a host. ``space`` identifies the boot and the namespace of ``pid``; ``began`` is the start time of
    the process.

    ``began`` is empty if the operating system does not report the start time.
    """

    host: str
    pid: int
    began: str
    space: str

    @classmethod
    def this(cls) -> Process:
        """Return the identity of the current process."""
        return cls(socket.gethostname(), os.getpid(), started(os.getpid()) or "", _space())

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Process:
        """Read an identity from the JSON of ``to_json``."""
        return cls(str(value["host"]), int(value["pid"]), str(value["began"]), str(value["space"]))

    def to_json(self) -> dict[str, Any]:
        """Return the identity as a JSON object."""
        return asdict(self)

    @property
    def local(self) -> bool:
        """Return True if the process runs on this machine, in the same boot and namespace of process numbers."""
        return (self.host, self.space) == (socket.gethostname(), _space())

    @property
    def dead(self) -> bool:
        """Return True if the process has certainly ended: it ran on this machine, and its number is free or reused."""
        if not self.local:
            return False
        now = started(self.pid)
        return now is None or bool(self.began and now and now != self.began)

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


def started(pid: int) -> str | None:
    """Return the start time of a process on this machine: None for an ended process, "" if the time is unknown.

    The format is the operating system's. A killed process whose parent has not collected it counts as ended. On Linux
    the unit is ticks since the boot: psutil's time of day changes with the clock, so a live process could appear to be
    another process.
    """
    stat = PROC / str(pid) / "stat"
    if (PROC / "self" / "stat").exists():
        try:
            # the name in parentheses may contain any text; after the last parenthesis: state, 18 fields, start time
            fields = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            return None
        return None if fields[0] in "ZX" else fields[19]
    import psutil

    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else repr(process.create_time())
    except psutil.NoSuchProcess:
        return None
    except psutil.AccessDenied:
        return ""


@cache
def _space() -> str:
    boot, names = "", ""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    with suppress(OSError):
        names = os.readlink("/proc/self/ns/pid")  # noqa: PTH115 - it is no path
    return f"{boot} {names}".strip()
