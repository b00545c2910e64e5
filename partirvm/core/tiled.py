"""Cholesky factors and inverses of large matrices in tiles, on several threads with the same bits.

LAPACK's bits depend on the number of threads. Here every tile is computed by one thread, with one BLAS thread, in an
order that depends on the size of the matrix alone: the result is the same for any number of threads. The factorisation
is left-looking: the tiles of a block of columns are updated by one product each, then the diagonal tile is factorised,
and the tiles below it are solved. The blocks of columns of an inverse do not depend on each other.

SciPy's wrappers hold the interpreter's lock, and copy matrices that are parts of others. So the routines are those of
``scipy.linalg.cython_blas`` and ``cython_lapack``, called with the lock released and without copies. All matrices are
parts of float64 matrices in Fortran order: their columns are contiguous.
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


def _routine(library: Any, name: str, arguments: int) -> Callable[..., None]:
    """Return a routine whose arguments are pointers; ctypes releases the lock during the call."""
    capsule = library.__pyx_capi__[name]
    api = ctypes.pythonapi
    name_of = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", api))
    pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", api))
    pointer = pointer_of(capsule, name_of(capsule))
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * arguments)(pointer)


_gemm = _routine(cython_blas, "dgemm", 13)
_trsm = _routine(cython_blas, "dtrsm", 11)
_potrf = _routine(cython_lapack, "dpotrf", 5)
_trtri = _routine(cython_lapack, "dtrtri", 6)


def subtract_product(C: Float, A: Float, B: Float, *, transposed: bool) -> None:
    """Subtract A B, or A Bᵀ if ``transposed``, from C."""
    _gemm(
        b"N", b"T" if transposed else b"N", _int(C.shape[0]), _int(C.shape[1]), _int(A.shape[1]), _number(-1.0),
        *_matrix(A), *_matrix(B), _number(1.0), *_matrix(C),
    )  # fmt: skip


def solve_left(L: Float, B: Float) -> None:
    """Replace B by L⁻¹B; only the lower triangle of L is read."""
    _trsm(
        b"L", b"L", b"N", b"N", _int(B.shape[0]), _int(B.shape[1]), _number(1.0), *_matrix(L), *_matrix(B)
    )  # fmt: skip


def solve_right(B: Float, L: Float) -> None:
    """Replace B by B L⁻ᵀ; only the lower triangle of L is read."""
    _trsm(
        b"R", b"L", b"T", b"N", _int(B.shape[0]), _int(B.shape[1]), _number(1.0), *_matrix(L), *_matrix(B)
    )  # fmt: skip


def factorise(A: Float) -> int:
    """Replace the lower triangle of A by its Cholesky factor; return 0, or the first minor that is not positive."""
    info = ctypes.c_int()
    _potrf(b"L", _int(len(A)), *_matrix(A), ctypes.byref(info))
    return info.value


def invert(L: Float) -> None:
    """Replace the lower triangle of L by that of its inverse."""
    info = ctypes.c_int()
    _trtri(b"L", b"N", _int(len(L)), *_matrix(L), ctypes.byref(info))


def _int(value: int) -> Any:
    return ctypes.byref(ctypes.c_int(value))


def _number(value: float) -> Any:
    return ctypes.byref(ctypes.c_double(value))


def _matrix(A: Float) -> tuple[Any, Any]:
    """Return the address of A and its leading dimension."""
    assert A.dtype == np.float64
    assert A.strides[0] == A.itemsize or A.shape[0] == 1
    leading = max(A.strides[1] // A.itemsize, len(A), 1)
    return ctypes.c_void_p(A.ctypes.data), _int(leading)


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
