"""How this process gives memory back.

glibc keeps freed blocks of up to 32 MiB for itself once it has seen one of that size. A fit, which frees many matrices
of slowly growing size, then ends up with half as much again as it ever held: 422 MiB for 285 MiB in one measured fit.
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache

M_MMAP_THRESHOLD = -3
"""Number of the option in glibc's malloc.h."""

THRESHOLD = 256 << 10
"""Bytes from which a block is returned to the system as soon as it is freed."""


@cache
def return_freed_memory() -> bool:
    """Fix glibc's threshold for the rest of the process. Returns whether that was possible: only glibc has one."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        return bool(ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, THRESHOLD))
    except (OSError, AttributeError):
        return False
