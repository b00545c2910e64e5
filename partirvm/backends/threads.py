"""How many threads BLAS may use. Bits of a product can depend on it, so it is set, never left to chance."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController

from partirvm.backends.allocator import return_freed_memory

MANY_COLUMNS = 3000
"""Columns from which a dense solve is worth two threads."""


def solve_threads(columns: int) -> int:
    """Threads of a dense solve, by its size alone, because the factor's last bits depend on it.

    Two at most: BLAS threads wait for each other in a spin, and on a busy machine a small solve on several of them
    takes ten times as long as on one.
    """
    return 2 if columns >= MANY_COLUMNS else 1


@cache
def _controller() -> Any:
    import scipy.linalg  # noqa: F401  (loads the BLAS that is to be limited)

    return ThreadpoolController()


@contextmanager
def blas_threads(number: int) -> Iterator[None]:
    """Limit BLAS to this many threads inside the block. Not to be entered by two threads at once."""
    with _controller().limit(limits=number, user_api="blas"):
        yield


@cache
def prepare_worker() -> None:
    """Set up a worker process, once and for good: one BLAS thread for each slot, freed memory given back."""
    _controller().limit(limits=1, user_api="blas")
    return_freed_memory()
