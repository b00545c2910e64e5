"""The memory of this process: its use, its limit, and what it returns to the operating system."""

from __future__ import annotations

import ctypes
import os
import resource
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

M_MMAP_THRESHOLD = -3  # option number of glibc's malloc.h
THRESHOLD = 256 << 10  # minimum bytes of a block that is returned to the system as soon as it is freed
NO_LIMIT = 1 << 60  # version 1 of control groups states a number above this one where there is no limit


def _status(field: str) -> int | None:
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(field + ":"):
                return int(line.split()[1]) * 1024
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
    """Return the bytes that this process may use: the smallest limit of its cgroup and parents, or all memory."""
    return min([os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), *_cgroup_limits(proc, cgroups)])


def _cgroup_limits(proc: Path, cgroups: Path) -> Iterator[int]:
    """Yield the memory limits of this process's control group and of all parents, for cgroup versions 1 and 2."""
    lines = ["0::/", "0:memory:/"]  # a container may see its limit as that of the root
    with suppress(OSError):
        lines += (proc / "self" / "cgroup").read_text().splitlines()
    for line in lines:
        _, controllers, path = line.split(":", 2)
        folder, name = cgroups, "memory.max"
        if controllers:
            if "memory" not in controllers.split(","):
                continue
            folder, name = cgroups / "memory", "memory.limit_in_bytes"
        for part in ["", *(part for part in path.split("/") if part not in ("", ".."))]:
            folder /= part
            with suppress(OSError):
                text = (folder / name).read_text().strip()
                if text.isdigit() and int(text) < NO_LIMIT:
                    yield int(text)


def return_freed_memory() -> bool:
    """Make glibc return freed blocks at once from now on; True if this is supported (glibc only).

    Otherwise a fit, which frees many matrices of slowly growing size, resides in 1.5 times the used memory.
    """
    return _glibc("mallopt", M_MMAP_THRESHOLD, THRESHOLD)


def settled_memory() -> int:
    """Return all freed blocks that glibc holds to the system, which is slow, then return the resident bytes."""
    _glibc("malloc_trim", 0)
    return resident_memory()


def _glibc(function: str, *values: int) -> bool:
    if sys.platform.startswith("linux"):
        with suppress(OSError, AttributeError):
            return bool(ctypes.CDLL(None)[function](*values))
    return False
