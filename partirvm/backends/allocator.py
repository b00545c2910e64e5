"""How this process gives memory back.

glibc keeps freed blocks of up to 32 MiB for itself once it has seen one of that size. A fit, which frees many matrices
of slowly growing size, then ends up with half as much again as it ever held: 422 MiB for 285 MiB in one measured fit.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Numbers of the options in glibc's malloc.h."""

THRESHOLD = 256 << 10
"""Bytes from which a block is returned to the system as soon as it is freed."""


def return_freed_memory() -> bool:
    """From now on return freed blocks at once. Returns whether that is possible: only glibc has a threshold."""
    return _set(M_MMAP_THRESHOLD, THRESHOLD)


def keep_freed_memory() -> bool:
    """From now on keep freed blocks, as glibc does by itself: faster where blocks of the same sizes come again."""
    return _set(M_MMAP_THRESHOLD, 32 << 20) and _set(M_TRIM_THRESHOLD, 64 << 20)


def _set(option: int, value: int) -> bool:
    if not sys.platform.startswith("linux"):
        return False
    try:
        return bool(ctypes.CDLL(None).mallopt(option, value))
    except (OSError, AttributeError):
        return False


def give_back_freed_memory() -> None:
    """Return to the system what glibc keeps of freed blocks now. Slower than not to, so for few moments."""
    if sys.platform.startswith("linux"):
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)


ARROW_POOL = "ARROW_DEFAULT_MEMORY_POOL"
"""Environment variable that says where Arrow, which reads it when it is imported, takes memory from."""


@contextmanager
def arrow_from_system() -> Iterator[None]:
    """Inside the block Arrow, unless imported before or told otherwise, takes to the system's allocator for good.

    Its other ones keep for themselves what was freed.
    """
    told = ARROW_POOL in os.environ
    os.environ.setdefault(ARROW_POOL, "system")
    try:
        yield
    finally:
        if not told:
            os.environ.pop(ARROW_POOL, None)
