"""One BLAS thread: the last bits of a product or a factor depend on their number, so it is never left to chance.

A pass has a thread for each tile, and a dense fit gains little from several: BLAS threads wait for each other in a
spin, and on a busy machine a factorisation on two of them can take ten times as long as on one.
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
    # threadpoolctl >= 3.7 lets only the first Python thread that ever set a limit set another one, and ignores the rest
    # without a word; a fit in any thread must have its one BLAS thread, and the lock here does what that rule is for
    getattr(library, "_real_set_num_threads", library.set_num_threads)(number)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS of this process to one thread inside the block. Several Python threads may be inside at once.

    The first to enter sets the limit, the last to leave restores what was there before.
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
