"""The training rows of a model with their errors, and what the nearest ones predict of the error at a point.

Neighbours are exact and in a fixed order (``cells``), so that the bits of a prediction do not depend on other points.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partirvm.core.left_out import Calibration
from partirvm.local.cells import COLUMNS, ERROR, LOG_FACTOR, NOISE, NUMBER, Cells, near_order
from partirvm.local.kriging import LocalKernel, Neighbourhoods, moments, weights
from partirvm.local.metric import Metric
from partirvm.types import Float


@dataclass(frozen=True, eq=False)
class LocalResiduals:
    """The rows of a fit in the ``metric``, with errors in the model's units, and the ``kernel`` of these errors.

    ``neighbours`` is k. ``calibration`` has the quantiles of errors of rows left out.
    """

    metric: Metric
    kernel: LocalKernel
    neighbours: int
    cells: Cells
    calibration: Calibration

    def moments(self, points: Float, factor: Float | float, *, noisy: bool = True) -> tuple[Float, Float]:
        """Return mean and variance (n,) of the errors at ``points`` (n, d) in the kernel's coordinates.

        ``factor`` (n,) is the noise factor there. The variance is of a new noisy error, or else of its mean.
        """
        places, logs = self.metric(points), np.broadcast_to(np.log(factor), len(points))
        order, found = near_order(places), np.empty((2, len(places)))
        for some, near in self.cells.neighbours(places[order], self.neighbours):
            own = order[some]
            hoods = hoods_of(near, places[own], logs[own], np.ones(len(near)))
            found[:, own] = moments(self.kernel, hoods, noisy=noisy)
        return found[0], found[1]

    def explained(self, points: Float, factor: Float | float, own: Float | None = None) -> dict[str, NDArray[Any]]:
        """Return ``rows``, ``distances`` in the metric, ``weights`` and ``errors`` of the neighbours, (n, k) each.

        The mean error at one of the ``points`` (n, d) is the sum of weights times errors. ``own`` (n,) are numbers of
        rows that do not count.
        """
        found: dict[str, list[NDArray[Any]]] = {"rows": [], "distances": [], "weights": [], "errors": []}
        for near, hoods in self._neighbourhoods(points, factor, own):
            numbers = near[:, :, NUMBER].astype(np.int64)
            parts = numbers, np.sqrt(hoods.squares), weights(self.kernel, hoods), hoods.errors
            for some, part in zip(found.values(), parts, strict=True):
                some.append(part)
        return {name: np.concatenate(parts) for name, parts in found.items()}

    def _neighbourhoods(
        self, points: Float, factor: Float | float, own: Float | None = None
    ) -> Iterator[tuple[Float, Neighbourhoods]]:
        """Yield the records of the neighbours of some points at a time, and their neighbourhoods."""
        places, logs = self.metric(points), np.broadcast_to(np.log(factor), len(points))
        for some, near in self.cells.neighbours(places, self.neighbours, own):
            yield near, hoods_of(near, places[some], logs[some], np.ones(len(near)))


def hoods_of(near: Float, points: Float, log_factors: Float, noises: Float) -> Neighbourhoods:
    """Return the neighbourhoods of rows at ``points`` (n, r), of whose neighbours ``near`` (n, k, width) are records.

    ``log_factors`` (n,) are logarithms of the noise factors of the rows, ``noises`` (n,) the inverses of their weights.
    """
    errors = (near[:, :, column] for column in (ERROR, LOG_FACTOR, NOISE))
    return Neighbourhoods.of(points, near[:, :, :-COLUMNS], *errors, log_factors, noises)
