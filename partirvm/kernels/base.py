"""Kernels as values: k(x, z), its spec, and the registry by name.

A kernel is a small frozen value. It sees coordinates as the model does (standardised if the fit standardises) and knows
nothing of data, weights or files. ``spec`` and ``kernel_from_spec`` are inverse, and a spec is plain JSON, so that a
model file holds no code.
"""

from __future__ import annotations

from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]


class PreparedKernel(Protocol):
    """A kernel with its centres worked in."""

    def __call__(self, points: Float, out: Float, /) -> None:
        """Write k(points, centres) of points (n, d) into ``out`` (n, m), a run of columns of a wider array perhaps."""
        ...


class Kernel(Protocol):
    """A kernel function k(x, z) with parameters."""

    name: str

    def prepare(self, centres: Float, /, origin: Float | None = None) -> PreparedKernel:
        """Work in the centres (m, d) once, for many blocks of points.

        ``origin`` (d,) is a point near them, from which coordinates may be taken; where it is given the bits of a
        column must not depend on the centres beside it.
        """
        ...

    def diagonal(self, points: Float, /) -> Float:
        """k(x, x) of each point (n, d), shape (n,)."""
        ...

    def spec(self) -> dict[str, Any]:
        """Name and parameters as plain JSON."""
        ...

    @classmethod
    def from_spec(cls, spec: dict[str, Any], /) -> Self:
        """The kernel that has this spec. Raises ``UsageError`` for parameters that cannot be."""
        ...
