"""The option ``class_weight``: compute the weight of each class of a data source."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from partirvm.backends import Executor
from partirvm.backends.base import Progress
from partirvm.data.source import Source
from partirvm.data.weighted import class_weights
from partirvm.errors import UsageError
from partirvm.options import Request
from partirvm.quoting import quoted

Float = NDArray[np.float64]


def class_weights_of(
    source: Source, parameters: Request, executor: Executor, progress: Progress | None = None
) -> Float | None:
    """Return the weight of each class (K,), or None if ``class_weight`` is None.

    The value "balanced" reads all rows once to count the classes. ``progress`` is called after each tile, and an
    exception from ``progress`` ends the reading. Raises the errors of ``class_weights``, and ``UsageError`` if the
    target is numeric.
    """
    if parameters.class_weight is None:
        return None
    if source.columns.classes is None:
        raise UsageError(
            f"{source}: class_weight needs classes, but the target {quoted(source.columns.target)} is a number: "
            "ingest the data with classes=True (`--classes`), or with a column of row weights (`--weights`)"
        )
    balanced = parameters.class_weight == "balanced"
    counts = class_totals(source, executor, progress) if balanced else None
    return class_weights(parameters.class_weight, source.columns.classes, counts)


def class_totals(source: Source, executor: Executor, progress: Progress | None = None) -> Float:
    """Read all rows once; return the number of rows of each class (K,), or the sum of their weights."""
    assert source.columns.classes is not None
    count = CountTile(len(source.columns.classes))
    found = sorted(executor.map(count, source, range(source.n_tiles), progress), key=lambda each: each[0])
    total: Float = np.sum([counts for _, counts in found], axis=0)
    return total


@dataclass(frozen=True)
class CountTile:
    """Task that counts the rows of each class in one tile, or sums their weights; its result is an array (K,)."""

    n_classes: int

    def __call__(self, source: Source, number: int) -> Float:
        """Read the tile and count its classes."""
        tile = source.tile(number)
        counts = np.bincount(tile.t[:, 0].astype(np.int64), tile.weights, minlength=self.n_classes)
        return counts.astype(np.float64)
