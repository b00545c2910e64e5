"""Products of design rows whose bits depend only on the row, not on its position or on other rows.

BLAS selects its algorithm by the shape of the whole product. The AVX-512 kernels of OpenBLAS process 24 rows at a time.
Remaining rows, and columns past a multiple of 8, are rounded differently. So rows are processed in pieces of one
fixed height, a multiple of 24. Predictions need this, since the same row may be predicted alone, in a table, or in a
tile. Passes do not need this, since the panel of a row never changes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]

ROWS = 192
"""Number of rows of a piece."""

COLUMNS = 96
"""Number of columns of a root that are multiplied together."""


def products(block: Float, weights: Float) -> Float:
    """Return ``block`` (n, M) times ``weights``, (M,) or (M, K), with shape (n,) or (n, K), stored row by row.

    >>> products(np.eye(2), np.array([3.0, 4.0])).tolist()
    [3.0, 4.0]
    """
    n, M = block.shape
    count, whole = n // ROWS, n - n % ROWS
    out = np.empty((n, *weights.shape[1:]))
    pieces, places = block[:whole].reshape(count, ROWS, M), out[:whole].reshape(count, ROWS, *weights.shape[1:])
    np.matmul(pieces, weights, out=places)
    if whole < n:
        last = np.zeros((ROWS, M), order="F")
        last[: n - whole] = block[whole:]
        out[whole:] = (last @ weights)[: n - whole]
    return out


def quadratic_forms(block: Float, root: Float) -> Float:
    """Return φᵀRRᵀφ of each row φ of ``block`` (n, M), with ``root`` R (M, M); shape (n,).

    Columns of R are multiplied in groups, each without the rows below its last row that is not zero: an upper
    triangular R costs half of the flops.
    """
    found = np.zeros(len(block))
    for start in range(0, root.shape[1], COLUMNS):
        some = root[:, start : start + COLUMNS]
        end = int(np.flatnonzero(some.any(axis=1)).max(initial=-1)) + 1
        product = products(block[:, :end], some[:end])
        found += np.einsum("nm,nm->n", product, product)
    return found
