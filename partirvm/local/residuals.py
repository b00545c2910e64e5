"""A model's training rows with their errors, and predictions of the error at a point from the
nearest rows.

Neighbours are found exactly and in a fixed order (``cells``), so the bits of a prediction do not
depend on other points.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partirvm.core.left_out import Calibration
from partirvm.local.cells import LOG_FACTOR, NOISE, NUMBER, Cells, near_order
from partirvm.local.kriging import LocalKernel, Neighbourhoods, Offsets, moments, weights
from partirvm.local.metric import Metric
from partirvm.types import Float, Int


@dataclass(frozen=True, eq=False)
class LocalResiduals:
    """A fit's rows in the coordinates of ``metric``, with their errors.

    Attributes:
        metric: the coordinates in which distances are measured
        kernels: the error kernel for each target
        neighbours: k
        cells: the rows' records, with errors in the model's units
        calibrations: quantiles of left-out errors for each target
        n_rows: the number of rows in the data, including rows of weight 0, which have no record;
            numbers of rows added later start from this value
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

        ``factor`` (n,) is the noise factor at the points. The variance includes noise if ``noisy``
        is true.
        """
        means = np.empty((len(self.kernels), len(points)))
        variances = np.empty(means.shape)
        for places, _, targets in self._neighbourhoods(points, factor):
            for target, (kernel, rows) in enumerate(zip(self.kernels, targets, strict=True)):
                mean, variance = moments(kernel, rows, noisy=noisy)
                means[target, places] = mean
                variances[target, places] = variance
        return _together(list(means)), _together(list(variances))

    def explained(
        self, points: Float, factor: Float | float, own: Float | None = None
    ) -> dict[str, NDArray[Any]]:
        """Return the neighbours' ``rows``, ``distances`` in the metric, ``weights`` and ``errors``,
        (n, k) each.

        The mean error at one of the ``points`` (n, d) is the sum of weights times errors. For T
        targets, weights and errors are (n, k, T). ``own`` (n,) are numbers of rows to ignore, one
        per point.
        """
        order = list[Int]()
        parts = list[dict[str, NDArray[Any]]]()
        for places, near, targets in self._neighbourhoods(points, factor, own):
            order.append(places)
            parts.append(
                {
                    "rows": near[:, :, NUMBER].astype(np.int64),
                    "distances": targets[0].offsets.distances,
                    "weights": _together(list(map(weights, self.kernels, targets))),
                    "errors": _together([rows.errors for rows in targets]),
                }
            )
        first = np.argsort(np.concatenate(order))
        return {name: np.concatenate([part[name] for part in parts])[first] for name in parts[0]}

    def _neighbourhoods(
        self, points: Float, factor: Float | float, own: Float | None = None
    ) -> Iterator[tuple[Int, Float, list[Neighbourhoods]]]:
        """Yield positions (m,) of nearby points, the records of their neighbours, and the
        neighbourhoods for each target."""
        coordinates = self.metric(points)
        log_factors = np.broadcast_to(np.log(factor), len(points))
        order = near_order(coordinates)
        excluded = None if own is None else own[order]
        for panel, near in self.cells.neighbours(coordinates[order], self.neighbours, excluded):
            places = order[panel]
            noises = np.ones(len(near))
            yield places, near, hoods_of(near, coordinates[places], log_factors[places], noises)


def _together(targets: Sequence[Float]) -> Float:
    """Return a single target's array, or the arrays of several targets stacked along the last
    axis."""
    return targets[0] if len(targets) == 1 else np.stack(targets, axis=-1)


def hoods_of(near: Float, points: Float, log_factors: Float, noises: Float) -> list[Neighbourhoods]:
    """Return the neighbourhoods of n rows for each target.

    Args:
        near: (n, k, width), records of the neighbours
        points: (n, r), the rows' coordinates
        log_factors: (n,), logarithms of the rows' noise factors
        noises: (n,), inverses of the rows' weights
    """
    rank = points.shape[1]
    offsets = Offsets(near[:, :, :rank] - points[:, None])
    return [
        Neighbourhoods(
            offsets,
            errors,
            near[:, :, LOG_FACTOR],
            near[:, :, NOISE],
            log_factors,
            noises,
        )
        for errors in np.moveaxis(near[:, :, rank:LOG_FACTOR], 2, 0)
    ]
