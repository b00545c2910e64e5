"""Squared distances r² = Σ_j gamma_j (x_j − z_j)² of all pairs of points and centres, and their gradient.

Let u = √gamma ∘ (x − origin) and v = √gamma ∘ (z − origin). Then −r² = 2u·v − ‖v‖² − ‖u‖² is one matrix product of
coordinates that are extended by 1 and ‖u‖². Coordinates are measured from ``origin``, a point near the centres, so
that inputs far from zero lose no digits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partirvm.kernels.base import GROUP, Products, runs

Float = NDArray[np.float64]

WIDE_GROUP, WIDE = 32, 100
"""Number of centres per matrix product for ``WIDE`` features or more, for which larger products are faster."""


@dataclass(frozen=True)
class SquaredDistances:
    """Squared distances to m centres. ``centres`` (m, d) holds the v of the centres, ``root`` (d,) is √gamma."""

    origin: Float
    root: Float
    centres: Float
    products: Products

    @classmethod
    def of(cls, centres: Float, widths: Float, origin: Float | None) -> SquaredDistances:
        """Return distances to centres (m, d), for gamma per feature (d,). The default origin is the centres' mean."""
        m, d = centres.shape
        root = np.sqrt(widths)
        if origin is None:
            origin = centres.mean(axis=0) if m else np.zeros(d)
        rows = np.empty((m, d + 2))
        V = (centres - origin) * root
        np.multiply(V, 2, out=rows[:, :d])
        rows[:, d] = -np.einsum("md,md->m", V, V)
        rows[:, d + 1] = -1.0
        return cls(origin, root, V, Products.of(rows, WIDE_GROUP if d >= WIDE else GROUP))

    def fill(self, points: Float, out: Float, finish: Callable[[Float], Any]) -> None:
        """Write −r² (≤ 0 up to rounding) into ``out`` (n, m), and apply ``finish`` to each group (g, n) in place."""
        self.products.fill(self.widened(points), out, finish)

    def widened(self, points: Float) -> Float:
        """Return the points (n, d) extended by 1 and ‖u‖², (n, d + 2)."""
        n, d = points.shape
        left = np.empty((n, d + 2))
        U = np.multiply(points - self.origin, self.root, out=left[:, :d])
        left[:, d] = 1.0
        np.einsum("nd,nd->n", U, U, out=left[:, d + 1])
        return left

    def gradient(self, points: Float, slopes: Callable[[slice], Float]) -> Float:
        """Return Σ_nm S_nm ∂r²_nm/∂ log gamma_j = Σ_nm S_nm (u_nj − v_mj)², shape (d,).

        ``slopes`` returns the columns of S for a group of centres, (g, n). Each group takes one matrix product with
        [u, u∘u, 1].
        """
        n, d = points.shape
        left = np.empty((n, 2 * d + 1))
        U = np.multiply(points - self.origin, self.root, out=left[:, :d])
        np.multiply(U, U, out=left[:, d : 2 * d])
        left[:, 2 * d] = 1.0
        total = np.zeros(d)
        for some in self.groups():
            sums, V = slopes(some) @ left, self.centres[some]
            total += (sums[:, d : 2 * d] - V * (2 * sums[:, :d] - V * sums[:, 2 * d :])).sum(axis=0)
        return total

    def input_gradient(self, points: Float, slopes: Callable[[slice], Float]) -> Float:
        """Return Σ_m S_nm ∂r²_nm/∂x_n = 2 √gamma ∘ (u_n Σ_m S_nm − Σ_m S_nm v_m), (n, d); S as in ``gradient``."""
        d = points.shape[1]
        right = np.ones((len(self.centres), d + 1))
        right[:, :d] = self.centres
        sums = np.zeros((len(points), d + 1))
        for some in self.groups():
            sums += slopes(some).T @ right[some]
        U = (points - self.origin) * self.root
        found: Float = 2 * self.root * (U * sums[:, d:] - sums[:, :d])
        return found

    def groups(self) -> list[slice]:
        """Return the groups of centres whose products are computed together."""
        return runs(len(self.centres), self.products.size)
