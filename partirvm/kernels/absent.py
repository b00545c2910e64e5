"""No kernel: rows offer no functions, and a design has its leading columns alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from partirvm.errors import UsageError
from partirvm.kernels.base import Described, Fixed, PreparedKernel

Float = NDArray[np.float64]


@dataclass(frozen=True)
class NoKernel(Fixed, Described):
    """Stands where a kernel would, and has no values.

    Examples
    --------
    >>> NoKernel().spec()
    {'name': 'none'}
    """

    name = "none"
    local = False

    def prepare(self, centres: Float, origin: Float | None = None) -> PreparedKernel:
        """Raises ``UsageError``: there are no centres."""
        raise UsageError("there is no kernel, and so nothing to evaluate at centres")

    def diagonal(self, points: Float) -> Float:
        """Of no points, shape (0,)."""
        return np.zeros(len(points))
