"""Cholesky factors and inverses in tiles, on several threads with the same bits.

LAPACK's bits depend on the number of threads. Here every tile is computed by one thread, in an order that depends on
the size of the matrix alone. The factorisation is left-looking: the tiles of a block of columns are updated by one
product each, then the diagonal tile is factorised, and the tiles below it are solved.

SciPy's wrappers hold the interpreter's lock, and copy matrices that are parts of others. So ctypes calls the routines
of ``scipy.linalg.cython_blas`` and ``cython_lapack``. All matrices are parts of float64 ones in Fortran order.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cython_blas, cython_lapack

Float = NDArray[np.float64]
_Thing = TypeVar("_Thing")
_Found = TypeVar("_Found")

TILE = 256
"""Rows and columns of a tile."""

LEAST = 4 * TILE
"""Number of columns from which matrices are divided into tiles; LAPACK is as fast for fewer."""


_pool: ContextVar[ThreadPoolExecutor | None] = ContextVar("_pool", default=None)


def _routine(library: Any, name: str) -> Callable[..., int]:
    """Return a routine that returns LAPACK's info. A matrix stands for its address and leading dimension."""
    capsule, api = library.__pyx_capi__[name], ctypes.pythonapi
    name_of = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", api))
    address_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", api))
    address = address_of(capsule, name_of(capsule))
    assert address is not None
    routine = ctypes.CFUNCTYPE(None)(address)

    def call(*arguments: Any) -> int:
        given, info = list[Any](), ctypes.c_int()
        for value in arguments:
            if isinstance(value, np.ndarray):
                leading = max(value.strides[1] // value.itemsize, len(value), 1)
                given += ctypes.c_void_p(value.ctypes.data), ctypes.byref(ctypes.c_int(leading))
            elif isinstance(value, bytes):
                given.append(value)
            else:
                given.append(ctypes.byref((ctypes.c_int if isinstance(value, int) else ctypes.c_double)(value)))
        if library is cython_lapack:
            given.append(ctypes.byref(info))
        routine(*given)
        return info.value

    return call


_gemm, _trsm = _routine(cython_blas, "dgemm"), _routine(cython_blas, "dtrsm")
_potrf, _trtri = _routine(cython_lapack, "dpotrf"), _routine(cython_lapack, "dtrtri")


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
        size = k.stop - k.start

        def update(i: slice, k: slice = k, size: int = size) -> None:
            """Subtract L[i, :k] L[k, :k]ᵀ from L[i, k]."""
            before = slice(k.start)
            _gemm(b"N", b"T", i.stop - i.start, size, k.start, -1.0, L[i, before], L[k, before], 1.0, L[i, k])

        def solve(i: slice, k: slice = k, size: int = size) -> None:
            """Multiply L[i, k] by the inverse of L[k, k]ᵀ."""
            _trsm(b"R", b"L", b"T", b"N", i.stop - i.start, size, 1.0, L[k, k], L[i, k])

        if number:
            each(update, ranges[number:])
        if _potrf(b"L", size, L[k, k]):
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
        size = j.stop - j.start
        W = np.zeros((len(L) - j.start, size), order="F")
        W[:size] = L[j, j]
        _trtri(b"L", b"N", size, W[:size])
        for i in ranges[number + 1 :]:
            above, part, rows = W[: i.start - j.start], W[i.start - j.start : i.stop - j.start], i.stop - i.start
            _gemm(b"N", b"N", rows, size, len(above), -1.0, L[i, j.start : i.start], above, 1.0, part)
            _trsm(b"L", b"L", b"N", b"N", rows, size, 1.0, L[i, i], part)
        use(j, W)

    each(inverse, range(len(ranges)))
