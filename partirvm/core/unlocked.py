"""BLAS and LAPACK calls on parts of matrices that let other threads run.

SciPy's wrappers hold the interpreter's lock, and copy matrices that are parts of others. These functions call the same
routines, found in ``scipy.linalg.cython_blas`` and ``cython_lapack``, with the lock released and without copies. All
matrices are parts of float64 matrices in Fortran order: their columns are contiguous.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

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
