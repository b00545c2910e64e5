"""Use one BLAS thread: the last bits of a product or a factorisation depend on the number of threads.

A pass has one thread per tile, and a dense fit gains little from several: BLAS threads spin while they wait, and on a
busy machine a factorisation with two threads can take ten times as long as with one.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController

_lock = threading.Lock()
_inside = 0
_before: list[int] = []


@cache
def _libraries() -> list[Any]:
    import scipy.linalg  # noqa: F401  (loads the BLAS that is to be limited)

    return list(ThreadpoolController().select(user_api="blas").lib_controllers)


def _set_threads(library: Any, number: int) -> None:
    # threadpoolctl >= 3.7 accepts limits only from the first Python thread that ever set one, and silently ignores
    # others; a fit in any thread needs one BLAS thread, and the lock here prevents the conflict behind that rule
    getattr(library, "_real_set_num_threads", library.set_num_threads)(number)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS of this process to one thread inside the block. Several Python threads may be inside at once.

    The first thread to enter sets the limit, the last one to leave restores the previous value.
    """
    global _inside
    with _lock:
        if _inside == 0:
            _before[:] = [library.num_threads for library in _libraries()]
            for library in _libraries():
                _set_threads(library, 1)
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                for library, number in zip(_libraries(), _before, strict=True):
                    _set_threads(library, number)
