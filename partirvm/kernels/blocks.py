"""Kernels prepared for their centres, and how blocks of kernel values are computed, a group of columns at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]

GROUP = 16  # Number of columns that are computed together, so that temporary arrays stay in the cache
PIECE_ROWS = 128
"""Number of rows of one matrix product, a divisor of `PANEL_ROWS`. Larger products are not faster."""


class PreparedKernel:
    """Base of a kernel prepared for m centres."""

    def __call__(self, points: Float, out: Float) -> None:
        """Write k(points, centres) of points (n, d) into ``out`` (n, m), which may be columns of a wider array."""
        raise NotImplementedError

    def gradient(self, points: Float, values: Float, weights: Float) -> Float:
        """Return Σ_nm weights[n, m] ∂k(x_n, z_m)/∂ log parameter_p, shape (p,).

        ``values`` (n, m) is the output of a call for the same points. The arrays given are not changed.
        """
        return np.zeros(0)

    def input_gradient(self, points: Float, values: Float, weights: Float) -> Float:
        """Return Σ_m weights[n, m] ∂k(x_n, z_m)/∂x_n, (n, d), of radial and categorical kernels and combinations."""
        raise NotImplementedError


@dataclass(frozen=True)
class Products:
    """Matrix products of points with m centres, computed for groups of columns and blocks of ``PIECE_ROWS`` rows.

    Smaller products are padded, so that all have one even shape, and the bits of an element depend only on its point
    and its centre: BLAS selects its algorithm by the shape of the whole product.
    """

    right: Float

    @property
    def size(self) -> int:
        """Number of columns of a group."""
        return int(self.right.shape[1])

    @classmethod
    def of(cls, rows: Float, group: int = GROUP) -> Products:
        """Return the products with the centres ``rows`` (m, k)."""
        m, k = rows.shape
        right = np.zeros((-(-m // group), group, k))
        right.reshape(-1, k)[:m] = rows
        return cls(right)

    def fill(self, left: Float, out: Float, finish: Callable[[Float], Any]) -> None:
        """Write ``left`` (n, k) times the centres into ``out`` (n, m), and apply ``finish`` to each group (g, n)."""
        n, left = len(left), padded(left, PIECE_ROWS)
        for some in runs(out.shape[1], self.size):
            block = self.block(left, some)[:, :n]
            finish(block)
            out.T[some] = block

    def block(self, left: Float, some: slice) -> Float:
        """Return ``left`` (n, k) times a group of centres, (g, n)."""
        whole = padded(left, PIECE_ROWS)
        pieces = whole.reshape(-1, PIECE_ROWS, whole.shape[1])
        product = np.empty((self.size, len(whole)))
        places = product.reshape(self.size, -1, PIECE_ROWS).transpose(1, 0, 2)
        np.matmul(self.right[some.start // self.size], pieces.transpose(0, 2, 1), out=places)
        return product[: some.stop - some.start, : len(left)]


def padded(points: Float, multiple: int) -> Float:
    """Pad the points (n, d) to a multiple of rows by repeating the last point, since bits of products vary with it."""
    n = len(points)
    return points if n % multiple == 0 else points[np.minimum(np.arange(n + -n % multiple), n - 1)]


def by_groups(out: Float, write: Callable[[slice, Float], Any], size: int = GROUP) -> None:
    """Call ``write(which, place)`` for each group of columns of ``out`` (n, m); a row of place (g, n) is a column."""
    columns = out.T
    for some in runs(len(columns), size):
        place = np.empty((some.stop - some.start, columns.shape[1]))  # the bits do not depend on the layout of out
        write(some, place)
        columns[some] = place


def runs(m: int, size: int = GROUP) -> list[slice]:
    """Return slices that cut m columns into groups of ``size`` columns."""
    return [slice(start, min(start + size, m)) for start in range(0, m, size)]


def origin_of(centres: Float, origin: Float | None) -> Float:
    """Return the point (d,) from which coordinates are measured: the given one, or the mean of the centres (m, d)."""
    if origin is None:
        return np.asarray(centres.mean(axis=0)) if len(centres) else np.zeros(centres.shape[1])
    return origin
