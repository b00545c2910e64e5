"""The Laplacian (ℓ1) kernel ``k(x, z) = exp(−Σ_j gamma_j |x_j − z_j|)``."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from partirvm.kernels.base import GROUP, by_groups, runs
from partirvm.kernels.widths import Widths

Float = NDArray[np.float64]


@dataclass(frozen=True)
class Laplacian(Widths):
    """Laplacian kernel, as in ``sklearn.metrics.pairwise.laplacian_kernel``.

    Parameters
    ----------
    gamma : tuple of float
        Width parameters, in 1/unit of the kernel's inputs: one for all features, or one per feature.

    Examples
    --------
    >>> out = np.empty((1, 1))
    >>> Laplacian(0.5).prepare(np.zeros((1, 2)))(np.array([[1.0, -1.0]]), out)
    >>> bool(np.isclose(out[0, 0], np.exp(-1.0)))
    True
    """

    name = "laplacian"
    local = True

    def prepare(self, centres: Float, origin: Float | None = None) -> PreparedLaplacian:
        """Prepare the kernel for centres (m, d). Coordinates are relative to ``origin``, default the centres' mean."""
        m, d = centres.shape
        if origin is None:
            origin = centres.mean(axis=0) if m else np.zeros(d)
        widths = self.widths(d)
        return PreparedLaplacian(self, origin, widths, np.ascontiguousarray(((centres - origin) * widths).T))

    def diagonal(self, points: Float) -> Float:
        """Return k(x, x) = 1 for each point (n, d), shape (n,)."""
        return np.ones(len(points))


@dataclass(frozen=True)
class PreparedLaplacian:
    """The kernel prepared for ``centres`` = gamma ∘ (z − origin) (d, m): features are evaluated one by one."""

    kernel: Laplacian
    origin: Float
    widths: Float
    centres: Float

    def __call__(self, points: Float, out: Float) -> None:
        """Write k(points, centres) into ``out`` (n, m)."""
        U, steps = self._scaled(points), np.empty((GROUP, len(points)))

        def write(some: slice, work: Float) -> None:
            work[...] = 0.0
            for j in np.flatnonzero(self.widths):
                work -= _steps(U[j], self.centres[j, some], steps)
            np.exp(work, out=work)

        by_groups(out, write)

    def gradient(self, points: Float, values: Float, weights: Float) -> Float:
        """Return the weighted sum of ``∂k/∂ log gamma_j = −k gamma_j |x_j − z_j|``."""
        U, steps = self._scaled(points), np.empty((GROUP, len(points)))
        total = np.zeros(len(self.widths))
        for some in runs(self.centres.shape[1]):
            slopes = weights.T[some] * values.T[some]
            for j in np.flatnonzero(self.widths):
                total[j] -= np.einsum("mn,mn->", slopes, _steps(U[j], self.centres[j, some], steps))
        return self.kernel.shared(total)

    def _scaled(self, points: Float) -> Float:
        return np.ascontiguousarray(((points - self.origin) * self.widths).T)


def _steps(u: Float, v: Float, steps: Float) -> Float:
    """Compute |u_n − v_m| for one feature, (g, n), in the buffer ``steps``."""
    found = np.subtract(u, v[:, None], out=steps[: len(v)])
    return np.abs(found, out=found)
