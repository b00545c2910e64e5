"""Cholesky factors and inverses in tiles, on several threads with the same bits.

LAPACK's bits depend on the number of threads. Here every tile is computed by one thread, in an order that depends on
the size of the matrix alone. The factorisation is left-looking: the tiles of a block of columns are updated by one
product each, then the diagonal tile is factorised, and the tiles below it are solved.

NumPy's products release the interpreter's lock; SciPy's wrappers hold it for tiles on the diagonal and their solutions.
All matrices are float64 ones in Fortran order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, lapack

Float = NDArray[np.float64]
_Thing = TypeVar("_Thing")
_Found = TypeVar("_Found")

TILE = 256
"""Rows and columns of a tile."""

LEAST = 4 * TILE
"""Number of columns from which matrices are divided into tiles; LAPACK is as fast for fewer."""


_pool: ContextVar[ThreadPoolExecutor | None] = ContextVar("_pool", default=None)


@contextmanager
def on_threads(count: int) -> Iterator[None]:
    """Use ``count`` threads for the tiles of this thread's matrices inside the block."""
    with ThreadPoolExecutor(max(count, 1), thread_name_prefix="partirvm-tiles") as pool:
        token = _pool.set(pool if count > 1 else None)
        try:
            yield
        finally:
            _pool.reset(token)


def each(function: Callable[[_Thing], _Found], things: Sequence[_Thing]) -> list[_Found]:
    """Return ``function(thing)`` for each of ``things``, in order, computed by the threads of ``on_threads``."""
    pool = _pool.get()
    if pool is None or len(things) < 2:
        return [function(thing) for thing in things]
    return list(pool.map(function, things))


def blocks(n: int) -> list[slice]:
    """Return the ranges of rows or columns of the tiles of a matrix of size n."""
    size = TILE if n >= LEAST else max(n, 1)
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]


def cholesky(L: Float) -> bool:
    """Replace the lower triangle of a symmetric L (M, M), Fortran order, by its factor; False if L is not positive."""
    ranges = blocks(len(L))
    for number, k in enumerate(ranges):
        before = slice(k.start)

        def update(i: slice, k: slice = k, before: slice = before) -> None:
            L[i, k] -= L[i, before] @ L[k, before].T

        def solve(i: slice, k: slice = k) -> None:
            L[i, k] = blas.dtrsm(1.0, L[k, k], L[i, k], side=1, lower=1, trans_a=1)

        if number:
            each(update, ranges[number:])
        L[k, k], failed = lapack.dpotrf(L[k, k], lower=1, clean=0, overwrite_a=1)
        if failed:
            return False
        each(solve, ranges[number + 1 :])
    return True


def inverse_columns(L: Float, use: Callable[[slice, Float], None]) -> None:
    """Compute L⁻¹ of L (M, M), zero above the diagonal, by blocks of columns W, in any order: ``use(columns, rows
    from there)``.
    """
    ranges = blocks(len(L))

    def inverse(number: int) -> None:
        j = ranges[number]
        W = np.zeros((len(L) - j.start, j.stop - j.start), order="F")
        W[: j.stop - j.start] = lapack.dtrtri(L[j, j], lower=1)[0]
        for i in ranges[number + 1 :]:
            above = W[: i.start - j.start]
            W[len(above) : i.stop - j.start] = blas.dtrsm(-1.0, L[i, i], L[i, j.start : i.start] @ above, lower=1)
        use(j, W)

    each(inverse, range(len(ranges)))
