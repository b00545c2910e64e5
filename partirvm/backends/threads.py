"""How many threads BLAS may use. Bits of a product can depend on it, so it is set, never left to chance."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController

SOLVE_THREADS = 2
"""Threads of a dense solve, everywhere: a constant, because the factor's last bits depend on it."""


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
def one_blas_thread() -> None:
    """Limit BLAS of this process to one thread, for good: a worker's slots are its threads."""
    _controller().limit(limits=1, user_api="blas")
