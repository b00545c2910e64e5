"""The Gaussian kernel k(x, z) = exp(−Σ_j gamma_j (x_j − z_j)²), with one gamma or one per feature."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from partirvm.errors import UsageError

Float = NDArray[np.float64]

GROUP, WIDE_GROUP, WIDE = 16, 32, 100
"""Centres of one matrix product; from ``WIDE`` features on it takes more of them to be worth a product of its own."""


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

    def prepare(self, centres: Float, origin: Float | None = None) -> PreparedGaussian:
        """Work in the centres (m, d). Coordinates are taken from ``origin`` (d,), or the centres' mean."""
        m, d = centres.shape
        root = np.sqrt(self.widths(d))
        if origin is None:
            origin = centres.mean(axis=0) if m else np.zeros(d)
        group = WIDE_GROUP if d >= WIDE else GROUP
        right = np.zeros((-(-m // group), group, d + 2))
        rows = right.reshape(-1, d + 2)[:m]
        Z = (centres - origin) * root
        np.multiply(Z, 2, out=rows[:, :d])
        rows[:, d] = -np.einsum("md,md->m", Z, Z)
        rows[:, d + 1] = -1.0
        return PreparedGaussian(origin, root, right)

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
    """−‖u − v‖² = 2u·v − ‖v‖² − ‖u‖² as matrix products of widened coordinates, then ``exp`` in place.

    Coordinates are taken from ``origin``, near the centres, so that inputs far from zero lose no digits. Every product
    has the same shape, with centres of zeros where there are no more: BLAS chooses its way, and with it the last bits
    of each column, by the shape of the whole product. For a given ``origin`` a column's bits are its own.
    """

    origin: Float
    root: Float
    right: Float

    def __call__(self, points: Float, out: Float) -> None:
        """Write k(points, centres) into ``out`` (n, m); fastest where that is stored column by column."""
        n, d = points.shape
        left = np.empty((n, d + 2))
        U = np.multiply(points - self.origin, self.root, out=left[:, :d])
        left[:, d] = 1.0
        np.einsum("nd,nd->n", U, U, out=left[:, d + 1])
        columns, group = out.T, self.right.shape[1]
        direct = columns.strides[1] == columns.itemsize
        for number, some in enumerate(self.right):
            place = columns[number * group : (number + 1) * group]
            if direct and len(place) == group:
                np.matmul(some, left.T, out=place)
            else:
                place[...] = np.matmul(some, left.T)[: len(place)]
        np.minimum(out, 0.0, out=out)
        np.exp(out, out=out)
