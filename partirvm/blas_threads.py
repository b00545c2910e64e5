"""Limit BLAS to one thread, since the last bits of products and factorisations depend on the number of threads.

A pass uses one thread per tile, and a dense fit gains little from several BLAS threads, which wait actively: on a busy
machine a factorisation with two threads can take ten times as long as with one.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import repeat
from typing import Any

from threadpoolctl import ThreadpoolController

_lock = threading.Lock()
_inside = 0
_before: list[int] = []


@cache
def _libraries() -> list[Any]:
    import scipy.linalg  # noqa: F401  (loads the BLAS that is to be limited)

    return list(ThreadpoolController().select(user_api="blas").lib_controllers)


def _set_threads(numbers: Iterable[int]) -> None:
    for library, number in zip(_libraries(), numbers, strict=False):
        # threadpoolctl >= 3.7 accepts limits only from the first Python thread that set a limit, and silently ignores
        # other threads. A fit in any thread needs one BLAS thread, and the lock in this module prevents conflicts.
        getattr(library, "_real_set_num_threads", library.set_num_threads)(number)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS of this process to one thread while any Python thread is inside the block."""
    global _inside
    with _lock:
        if _inside == 0:
            _before[:] = [library.num_threads for library in _libraries()]
            _set_threads(repeat(1))
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                _set_threads(_before)
