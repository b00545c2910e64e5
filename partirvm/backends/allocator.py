"""Control how this process returns memory to the operating system.

Once glibc has freed a block of up to 32 MiB, it keeps freed blocks of that size. A fit frees many matrices of slowly
growing size, so its resident memory grows to half more than it ever used: 422 MiB for 285 MiB in one measured fit.
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
"""Blocks of this many bytes or more are returned to the system as soon as they are freed."""


def return_freed_memory() -> bool:
    """From now on return freed blocks at once. Returns True if supported (glibc only)."""
    return _set(M_MMAP_THRESHOLD, THRESHOLD)


def keep_freed_memory() -> bool:
    """From now on keep freed blocks (glibc's default): faster if blocks of the same sizes are allocated again."""
    return _set(M_MMAP_THRESHOLD, 32 << 20) and _set(M_TRIM_THRESHOLD, 64 << 20)


def _set(option: int, value: int) -> bool:
    if not sys.platform.startswith("linux"):
        return False
    try:
        return bool(ctypes.CDLL(None).mallopt(option, value))
    except (OSError, AttributeError):
        return False


def give_back_freed_memory() -> None:
    """Return the freed blocks that glibc holds now to the system. Slow: call it rarely."""
    if sys.platform.startswith("linux"):
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)


ARROW_POOL = "ARROW_DEFAULT_MEMORY_POOL"
"""Environment variable that selects Arrow's allocator; Arrow reads it on import."""


@contextmanager
def arrow_from_system() -> Iterator[None]:
    """Inside the block, importing Arrow makes it use the system's allocator permanently, unless the user set another.

    Arrow's other allocators keep freed memory.
    """
    chosen = ARROW_POOL in os.environ
    os.environ.setdefault(ARROW_POOL, "system")
    try:
        yield
    finally:
        if not chosen:
            os.environ.pop(ARROW_POOL, None)
