"""The Gaussian kernel k(x, z) = exp(−Σ_j gamma_j (x_j − z_j)²), with one gamma or one per feature."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from partirvm.errors import UsageError

Float = NDArray[np.float64]


@dataclass(frozen=True)
class Gaussian:
    """Gaussian kernel.

    Parameters
    ----------
    gamma : tuple of float
        Width parameters, in 1/unit² of the inputs that the kernel sees: one for all features, or one per feature. A
        zero switches its feature off; at least one must be positive.

    Examples
    --------
    >>> out = np.empty((1, 1))
    >>> Gaussian((0.5,)).prepare(np.zeros((1, 2)))(np.array([[1.0, 1.0]]), out)
    >>> bool(np.isclose(out[0, 0], np.exp(-1.0)))
    True
    """

    gamma: tuple[float, ...]
    name = "gaussian"

    def __post_init__(self) -> None:
        values = np.asarray(self.gamma, dtype=float)
        if (
            values.ndim != 1
            or values.size == 0
            or not np.isfinite(values).all()
            or (values < 0).any()
            or not values.any()
        ):
            raise UsageError(
                f"gamma of the gaussian kernel is {list(self.gamma)}: it must be one positive number, or one number "
                "≥ 0 per feature with at least one positive"
            )

    def widths(self, n_features: int) -> Float:
        """gamma of each feature, shape (n_features,). Raises ``UsageError`` if their number does not match."""
        if len(self.gamma) not in (1, n_features):
            raise UsageError(f"gamma has {len(self.gamma)} values but the data have {n_features} features")
        return np.broadcast_to(np.asarray(self.gamma, dtype=float), (n_features,))

    def prepare(self, centres: Float) -> PreparedGaussian:
        """Work in the centres (m, d)."""
        root = np.sqrt(self.widths(centres.shape[1]))
        origin = centres.mean(axis=0) if len(centres) else np.zeros(centres.shape[1])
        Z = (centres - origin) * root
        right = np.concatenate([2 * Z, -np.einsum("md,md->m", Z, Z)[:, None], np.full((len(Z), 1), -1.0)], axis=1)
        return PreparedGaussian(origin, root, np.ascontiguousarray(right.T))

    def diagonal(self, points: Float) -> Float:
        """k(x, x) = 1 of each point (n, d), shape (n,)."""
        return np.ones(len(points))

    def spec(self) -> dict[str, Any]:
        """Plain JSON: ``{"name": "gaussian", "gamma": [...]}``."""
        return {"name": self.name, "gamma": list(self.gamma)}

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> Self:
        """The kernel that has this spec."""
        return cls(tuple(float(value) for value in spec["gamma"]))


@dataclass(frozen=True)
class PreparedGaussian:
    """−‖u − v‖² = 2u·v − ‖v‖² − ‖u‖² as one matrix product of widened coordinates, then ``exp`` in place.

    Coordinates are taken from the centres' mean (``origin``), so that inputs far from zero lose no digits.
    """

    origin: Float
    root: Float
    right: Float

    def __call__(self, points: Float, out: Float) -> None:
        """Write k(points, centres) into ``out`` (n, m)."""
        n, d = points.shape
        left = np.empty((n, d + 2))
        U = np.multiply(points - self.origin, self.root, out=left[:, :d])
        left[:, d] = 1.0
        np.einsum("nd,nd->n", U, U, out=left[:, d + 1])
        np.matmul(left, self.right, out=out)
        np.minimum(out, 0.0, out=out)
        np.exp(out, out=out)
