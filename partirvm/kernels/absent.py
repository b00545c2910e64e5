"""The placeholder for a fit without a kernel: there are no candidates, and the design has only its leading columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from partirvm.errors import UsageError
from partirvm.kernels.base import Described, Fixed, PreparedKernel

Float = NDArray[np.float64]


@dataclass(frozen=True)
class NoKernel(Fixed, Described):
    """Placeholder for fits without a kernel, which has no values.

    Examples
    --------
    >>> NoKernel().spec()
    {'name': 'none'}
    """

    name = "none"
    local = False

    def prepare(self, centres: Float, origin: Float | None = None) -> PreparedKernel:
        """Raise ``UsageError``, because there are no centres."""
        raise UsageError("there is no kernel, so it cannot be evaluated at centres")

    def diagonal(self, points: Float) -> Float:
        """Return zeros, shape (n,). Without a kernel n is 0."""
        return np.zeros(len(points))
