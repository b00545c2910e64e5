"""Control of the memory that this process returns to the operating system.

After glibc has freed a block of up to 32 MiB, glibc keeps freed blocks of this size. A fit frees many matrices of
slowly growing size, so the resident memory grows to 1.5 times the used memory: 422 MiB instead of 285 MiB in one fit.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Option numbers of glibc's malloc.h."""

THRESHOLD = 256 << 10
"""Minimum bytes of a block that is returned to the system as soon as it is freed."""


def return_freed_memory() -> bool:
    """Make glibc return freed blocks at once from now on. Returns True if this is supported (glibc only)."""
    return _set(M_MMAP_THRESHOLD, THRESHOLD)


def keep_freed_memory() -> bool:
    """Make glibc keep freed blocks from now on (the default), which is faster if equal sizes are allocated again."""
    return _set(M_MMAP_THRESHOLD, 32 << 20) and _set(M_TRIM_THRESHOLD, 64 << 20)


def _set(option: int, value: int) -> bool:
    if not sys.platform.startswith("linux"):
        return False
    try:
        return bool(ctypes.CDLL(None).mallopt(option, value))
    except (OSError, AttributeError):
        return False


def give_back_freed_memory() -> None:
    """Return all freed blocks that glibc holds to the system. This call is slow and should be rare."""
    if sys.platform.startswith("linux"):
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)


ARROW_POOL = "ARROW_DEFAULT_MEMORY_POOL"
"""Environment variable that selects Arrow's allocator when Arrow is imported."""


@contextmanager
def arrow_from_system() -> Iterator[None]:
    """Make an import of Arrow inside the block select the system's allocator, unless the user set another allocator.

    The selection is permanent. Arrow's other allocators keep freed memory.
    """
    chosen = ARROW_POOL in os.environ
    os.environ.setdefault(ARROW_POOL, "system")
    try:
        yield
    finally:
        if not chosen:
            os.environ.pop(ARROW_POOL, None)
