"""The training rows of a model with their errors: the exact search for the nearest ones, and what they predict.

Distances are sums over coordinates in their order, and of rows at equal distance the one that comes first is nearer: so
the neighbours, and with them the bits of a prediction, do not depend on the other queries.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partirvm.core.left_out import Calibration
from partirvm.local.kriging import LocalKernel, Neighbourhoods, moments, weights
from partirvm.local.metric import Metric
from partirvm.types import Float, Int

ROWS = 128
"""Number of rows whose neighbourhoods are held at once, k² numbers a row and correlation."""


@dataclass(frozen=True, eq=False)
class LocalResiduals:
    """Errors (N,) of the rows of a fit at ``points`` (N, r) in the ``metric``, in the model's units.

    ``log_factors`` (N,) are logarithms of their noise factors, ``noises`` (N,) the inverses of their weights, and
    ``rows`` (N,) their numbers before shuffling. ``neighbours`` is k. ``calibration`` has the quantiles of errors of
    rows left out.
    """

    metric: Metric
    kernel: LocalKernel
    neighbours: int
    points: Float
    errors: Float
    log_factors: Float
    noises: Float
    rows: Int
    calibration: Calibration

    def __getstate__(self) -> dict[str, Any]:
        """The fields: the tree is built again."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    def nbytes(self) -> int:
        """Bytes of the rows."""
        return sum(each.nbytes for each in (self.points, self.errors, self.log_factors, self.noises, self.rows))

    @cached_property
    def _tree(self) -> Any:
        return tree_of(self.points)

    def moments(self, points: Float, factor: Float | float, *, noisy: bool = True) -> tuple[Float, Float]:
        """Return mean and variance (n,) of the errors at ``points`` (n, d) in the kernel's coordinates.

        ``factor`` (n,) is the noise factor there. The variance is of a new noisy error, or else of its mean.
        """
        found = [moments(self.kernel, hoods, noisy=noisy) for _, hoods in self._neighbourhoods(points, factor)]
        mean, variance = (np.concatenate(parts) for parts in zip(*found, strict=True))
        return mean, variance

    def explained(self, points: Float, factor: Float | float) -> dict[str, NDArray[Any]]:
        """Return ``rows``, ``distances`` in the metric, ``weights`` and ``errors`` of the neighbours, (n, k) each.

        The mean error at one of the ``points`` (n, d) is the sum of weights times errors.
        """
        found: dict[str, list[NDArray[Any]]] = {"rows": [], "distances": [], "weights": [], "errors": []}
        for near, hoods in self._neighbourhoods(points, factor):
            parts = self.rows[near], np.sqrt(hoods.squares), weights(self.kernel, hoods), hoods.errors
            for own, part in zip(found.values(), parts, strict=True):
                own.append(part)
        return {name: np.concatenate(parts) for name, parts in found.items()}

    def _neighbourhoods(self, points: Float, factor: Float | float) -> Iterator[tuple[Int, Neighbourhoods]]:
        """Yield the positions of the neighbours of ``ROWS`` points at a time, and their neighbourhoods."""
        places, logs = self.metric(points), np.broadcast_to(np.log(factor), len(points))
        for start in range(0, max(len(points), 1), ROWS):
            some = slice(start, start + ROWS)
            near = nearest(self._tree, places[some], self.neighbours)
            own = places[some], logs[some], np.ones(len(near))
            yield near, hoods_of((self.points, self.errors, self.log_factors, self.noises), near, *own)


def hoods_of(rows: Sequence[Float], near: Int, points: Float, log_factors: Float, noises: Float) -> Neighbourhoods:
    """Return the neighbourhoods of rows at ``points`` (n, r), whose neighbours have the positions ``near`` (n, k).

    ``rows`` are points, errors, log factors and noises of all rows.
    """
    return Neighbourhoods.of(points, *(each[near] for each in rows), log_factors, noises)


def tree_of(points: Float) -> Any:
    """Return the tree of points (N, r) for ``nearest``."""
    from scipy.spatial import cKDTree  # its import takes megabytes

    return cKDTree(points)


def nearest(tree: Any, points: Float, k: int, own: Int | None = None) -> Int:
    """Return the positions (n, k) of the nearest rows of the tree to ``points`` (n, r), the nearest first.

    Of rows at equal distance the first one is nearer. ``own`` (n,) are positions that do not count, by default none; of
    fewer than k other rows all are returned.
    """
    k = min(k, tree.n - (own is not None))
    found, open_rows, asked = np.empty((len(points), k), dtype=np.int64), np.arange(len(points)), k + 2
    while len(open_rows):
        asked = min(asked, tree.n)
        distances, near = tree.query(points[open_rows], np.arange(1, asked + 1))
        if own is not None:
            distances[near == own[open_rows, None]] = np.inf
        order = np.lexsort((near, distances))[:, :k]
        # beyond the last row of the query others may be as near as the last one that counts
        last = distances.max(axis=1, where=np.isfinite(distances), initial=0.0)
        done = (np.take_along_axis(distances, order, axis=1)[:, -1] < last) | (asked == tree.n)
        found[open_rows[done]] = np.take_along_axis(near, order, axis=1)[done]
        open_rows, asked = open_rows[~done], 2 * asked
    return found
