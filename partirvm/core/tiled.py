"""Cholesky factors and inverses of large matrices in tiles, on several threads with the same bits.

LAPACK's bits depend on the number of threads. Here every tile is computed by one thread, with one BLAS thread, in an
order that depends on the size of the matrix alone: the result is the same for any number of threads. The factorisation
is left-looking: the tiles of a block of columns are updated by one product each, then the diagonal tile is factorised,
and the tiles below it are solved. The blocks of columns of an inverse do not depend on each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from partirvm.core.unlocked import factorise, invert, solve_left, solve_right, subtract_product

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
    if count < 2:
        yield
        return
    with ThreadPoolExecutor(count, thread_name_prefix="partirvm-tiles") as pool:
        token = _pool.set(pool)
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
    """Return the ranges of ``TILE`` rows or columns of a matrix of size n.

    >>> blocks(300)
    [slice(0, 256, None), slice(256, 300, None)]
    """
    return [slice(start, min(start + TILE, n)) for start in range(0, n, TILE)]


def cholesky(L: Float) -> int:
    """Replace the lower triangle of a symmetric L (M, M), Fortran order, by its Cholesky factor.

    The upper triangle is not read. Returns 0, or the number of the first leading minor that is not positive.
    """
    ranges = blocks(len(L))
    for number, k in enumerate(ranges):

        def update(i: slice, k: slice = k) -> None:
            subtract_product(L[i, k], L[i, : k.start], L[k, : k.start], transposed=True)

        if number:
            each(update, ranges[number:])
        info = factorise(L[k, k])
        if info:
            return int(k.start) + info

        def solve(i: slice, k: slice = k) -> None:
            solve_right(L[i, k], L[k, k])

        each(solve, ranges[number + 1 :])
    return 0


def inverse_columns(L: Float, use: Callable[[slice, Float], None]) -> None:
    """Compute L⁻¹ of a lower triangular L (M, M) by blocks of columns.

    ``use(columns, W)`` gets each block W (M − first column, columns), the rows from the diagonal on, in any order.
    """
    ranges = blocks(len(L))

    def inverse(number: int) -> None:
        j = ranges[number]
        W = np.zeros((len(L) - j.start, j.stop - j.start), order="F")
        corner = W[: j.stop - j.start]
        corner[...] = np.tril(L[j, j])
        invert(corner)
        for i in ranges[number + 1 :]:
            part = W[i.start - j.start : i.stop - j.start]
            subtract_product(part, L[i, j.start : i.start], W[: i.start - j.start], transposed=False)
            solve_left(L[i, i], part)
        use(j, W)

    each(inverse, range(len(ranges)))
