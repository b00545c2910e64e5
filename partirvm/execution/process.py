"""The memory use and the memory limits of this process, as reported by the operating system."""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

_STATUS = Path("/proc/self/status")


def _status(field: str) -> int | None:
    try:
        for line in _STATUS.read_text().splitlines():
            if line.startswith(field + ":"):
                return int(line.split()[1]) * 1024
    except OSError:
        return None
    return None


def peak_memory() -> int:
    """Return the peak resident bytes of this process so far (VmHWM)."""
    peak = _status("VmHWM")
    if peak is None:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return peak


def resident_memory() -> int:
    """Return the current resident bytes of this process."""
    return _status("VmRSS") or peak_memory()


def available_memory(proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> int:
    """Return the bytes that this process may use: the smallest limit of its cgroup and parents, or all memory.

    ``proc`` and ``cgroups`` are the mount points of the process and control group file systems.
    """
    return min([_meminfo(proc), *_cgroup_limits(proc, cgroups)])


def _cgroup_limits(proc: Path, cgroups: Path) -> Iterator[int]:
    """Yield the memory limits of this process's control group and of all parents, for cgroup versions 1 and 2."""
    yield from _limits(cgroups, "memory.max")
    yield from _limits(cgroups / "memory", "memory.limit_in_bytes")
    try:
        lines = (proc / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        parts = [part for part in path.split("/") if part not in ("", "..")]
        if not controllers:
            yield from _limits(cgroups, "memory.max", parts)
            yield from _limits(cgroups / "unified", "memory.max", parts)
        elif "memory" in controllers.split(","):
            yield from _limits(cgroups / "memory", "memory.limit_in_bytes", parts)


def _limits(root: Path, name: str, parts: Sequence[str] = ()) -> Iterator[int]:
    """Yield the limits in the files ``name`` of the folder ``root/parts`` and of its parents up to ``root``."""
    for depth in range(len(parts) + 1):
        try:
            text = root.joinpath(*parts[:depth], name).read_text().strip()
        except OSError:
            continue
        if text.isdigit() and int(text) < _NO_LIMIT:  # otherwise "max", or version 1's number for no limit
            yield int(text)


_NO_LIMIT = 1 << 60


def _meminfo(proc: Path) -> int:
    try:
        for line in (proc / "meminfo").read_text().splitlines():
            if line.startswith("MemTotal:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 8 << 30
