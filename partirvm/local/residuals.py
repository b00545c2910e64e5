"""A model's training rows with their errors, and the error that the nearest rows predict at a
point.

Neighbours are exact and in a fixed order (``cells``), so the bits of a prediction do not depend on
other points.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partirvm.core.left_out import Calibration
from partirvm.local.cells import LOG_FACTOR, NOISE, NUMBER, Cells, near_order
from partirvm.local.kriging import LocalKernel, Neighbourhoods, Steps, moments, weights
from partirvm.local.metric import Metric
from partirvm.types import Float, Int


@dataclass(frozen=True, eq=False)
class LocalResiduals:
    """The rows of a fit in the ``metric``, their errors in the model's units, and the kernel of
    these for each target.

    ``neighbours`` is k. ``calibrations`` hold the quantiles of left-out errors. ``n_rows`` is the
    number of all rows of the data, including those of weight 0, which have no record; the numbers
    of rows added later start from it.
    """

    metric: Metric
    kernels: tuple[LocalKernel, ...]
    neighbours: int
    cells: Cells
    calibrations: tuple[Calibration, ...]
    n_rows: int = 0

    def moments(
        self, points: Float, factor: Float | float, *, noisy: bool = True
    ) -> tuple[Float, Float]:
        """Return the mean and variance, (n,) or (n, T) for T targets, of the errors at the kernel's
        ``points`` (n, d).

        ``factor`` (n,) is the noise factor there. The variance is that of a ``noisy`` error, or
        else of its mean.
        """
        found = np.empty((len(self.kernels), 2, len(points)))
        for some, _, hoods in self._neighbourhoods(points, factor):
            for target, kernel in enumerate(self.kernels):
                found[target][:, some] = moments(kernel, hoods[target], noisy=noisy)
        mean, variance = _together(list(found))
        return mean, variance

    def explained(
        self, points: Float, factor: Float | float, own: Float | None = None
    ) -> dict[str, NDArray[Any]]:
        """Return ``rows``, ``distances`` in the metric, ``weights`` and ``errors`` of the
        neighbours, (n, k) each.

        The mean error at one of the ``points`` (n, d) is the sum of weights times errors. For T
        targets, both are (n, k, T). ``own`` (n,) are numbers of rows to ignore.
        """
        order = list[Int]()
        found = list[tuple[NDArray[Any], ...]]()
        for some, near, hoods in self._neighbourhoods(points, factor, own):
            numbers = near[:, :, NUMBER].astype(np.int64)
            distances = hoods[0].steps.distances
            shares = _together(list(map(weights, self.kernels, hoods)))
            order.append(some)
            found.append((numbers, distances, shares, _together([each.errors for each in hoods])))
        places = np.argsort(np.concatenate(order))
        columns = zip(
            ("rows", "distances", "weights", "errors"), zip(*found, strict=True), strict=True
        )
        return {name: np.concatenate(parts)[places] for name, parts in columns}

    def _neighbourhoods(
        self, points: Float, factor: Float | float, own: Float | None = None
    ) -> Iterator[tuple[Int, Float, list[Neighbourhoods]]]:
        """Yield positions (m,) of nearby points, records of their neighbours, and neighbourhoods
        for each target."""
        places = self.metric(points)
        logs = np.broadcast_to(np.log(factor), len(points))
        order = near_order(places)
        for some, near in self.cells.neighbours(
            places[order], self.neighbours, None if own is None else own[order]
        ):
            mine = order[some]
            yield mine, near, hoods_of(near, places[mine], logs[mine], np.ones(len(near)))


def _together(parts: Sequence[Float]) -> Float:
    """Return the array of a single target, or those of several stacked along the last axis."""
    return parts[0] if len(parts) == 1 else np.stack(parts, axis=-1)


def hoods_of(near: Float, points: Float, log_factors: Float, noises: Float) -> list[Neighbourhoods]:
    """Return the neighbourhoods of rows at ``points`` (n, r) for each target; ``near`` (n, k,
    width) are records.

    ``log_factors`` (n,) are the logarithms of the rows' noise factors, ``noises`` (n,) the inverses
    of their weights.
    """
    rank = points.shape[1]
    errors = np.moveaxis(near[:, :, rank:LOG_FACTOR], 2, 0)
    others = near[:, :, LOG_FACTOR], near[:, :, NOISE], log_factors, noises
    steps = Steps(near[:, :, :rank] - points[:, None])
    return [Neighbourhoods(steps, each, *others) for each in errors]
