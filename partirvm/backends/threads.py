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
_limited: Any = None


@cache
def _controller() -> Any:
    import scipy.linalg  # noqa: F401  (loads the BLAS that is to be limited)

    return ThreadpoolController()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS of this process to one thread inside the block. Several Python threads may be inside at once.

    The first to enter sets the limit, the last to leave restores what was there before.
    """
    global _inside, _limited
    with _lock:
        if _inside == 0:
            _limited = _controller().limit(limits=1, user_api="blas")
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                _limited.restore_original_limits()
