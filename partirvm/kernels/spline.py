"""The linear spline kernel of Vapnik and Tipping (2001, eq. 29), a product over dimensions.

In each dimension, with a = min(x, z) and b = max(x, z),

    1 + xz + xz·min(x, z) − (x + z)/2·min(x, z)² + min(x, z)³/3  =  1 + ab + a²(3b − a)/6,

derived from ∫₀^min (x − u)(z − u) du. For x, z ≥ 0 this is a Mercer kernel. The formula is also used for negative
inputs, as in Tipping (2001) with x from −10 to 10. The formula also equals 1 + (z + z²/2) x − z³/6 + max(z − x, 0)³/6:
a cubic spline in x with its knot at z. So the span of the basis functions does not depend on the position of zero. For
negative inputs the kernel is not a Mercer kernel: k(x, x) = 1 + x² + x³/3 < 0 for x < −3.37. An RVM does not require
a Mercer kernel.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from partirvm.kernels.base import GROUP, Described, Fixed, FixedGradient, by_groups

Float = NDArray[np.float64]


@dataclass(frozen=True)
class LinearSpline(Fixed, Described):
    """Linear spline kernel, without parameters.

    Examples
    --------
    >>> LinearSpline().diagonal(np.array([[3.0]]))
    array([19.])
    """

    name = "linear-spline"
    local = False

    def prepare(self, centres: Float, origin: Float | None = None) -> PreparedLinearSpline:
        """Prepare the kernel for the centres (m, d); ``origin`` has no effect."""
        return PreparedLinearSpline(np.ascontiguousarray(centres.T))

    def diagonal(self, points: Float) -> Float:
        """Return k(x, x) = Π_j (1 + x_j² + x_j³/3) for each point (n, d), shape (n,)."""
        return np.asarray(np.prod(1.0 + points**2 + points**3 / 3.0, axis=1))


@dataclass(frozen=True)
class PreparedLinearSpline(FixedGradient):
    """The kernel prepared for ``centres`` (d, m): dimensions are evaluated one by one, in groups of columns."""

    centres: Float

    def __call__(self, points: Float, out: Float) -> None:
        """Write k(points, centres) into ``out`` (n, m)."""
        X, places = np.ascontiguousarray(points.T), np.empty((3, GROUP, len(points)))

        def write(some: slice, work: Float) -> None:
            work[...] = 1.0
            for x, z in zip(X, self.centres[:, some, None], strict=True):
                work *= _factor(x, z, places[:, : len(work)])

        by_groups(out, write)


def _factor(x: Float, z: Float, places: Float) -> Float:
    """Compute the factor 1 + ab + a²(3b − a)/6 = 1 + a(2h + a(h − a/6)) of one dimension, with h = b/2.

    ``places`` (3, g, n) are buffers; the result (g, n) is in the third buffer.
    """
    a, h = np.minimum(x, z, out=places[0]), np.maximum(0.5 * x, 0.5 * z, out=places[1])
    found: Float = np.multiply(a, -1.0 / 6.0, out=places[2])
    found += h
    found *= a
    found += h
    found += h
    found *= a
    found += 1.0
    return found
