"""What the operating system says of this process's memory."""

from __future__ import annotations

import resource
import sys
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
    """Peak resident bytes of this process so far (VmHWM)."""
    peak = _status("VmHWM")
    if peak is None:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return peak


def resident_memory() -> int:
    """Resident bytes of this process now."""
    return _status("VmRSS") or peak_memory()


def available_memory() -> int:
    """Bytes that this process may use: the tightest cgroup limit, or the machine's memory."""
    limits = [_read(Path(name)) for name in _CGROUP_FILES]
    total = _meminfo()
    return min(limit for limit in [*limits, total] if limit is not None)


_CGROUP_FILES = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def _read(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def _meminfo() -> int:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemTotal:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 8 << 30
