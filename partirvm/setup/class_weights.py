"""``class_weight`` of a fit: the weights of the classes of a source, counted where they must be."""

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
    """The weight of each class (K,) that is asked for; None where rows count as they are.

    "balanced" reads all rows once, to count the classes; ``progress`` hears of its tiles, and may end it. Raises
    ``UsageError`` and ``DataError`` as ``class_weights`` does, and ``UsageError`` for class weights of a target that is
    no class.
    """
    if parameters.class_weight is None:
        return None
    if source.columns.classes is None:
        raise UsageError(
            f"{source}: class_weight is for classes, and the target {quoted(source.columns.target)} is a number: "
            "ingest the data with classes=True (`--classes`), or name a column of weights there (`--weights`)"
        )
    balanced = parameters.class_weight == "balanced"
    counts = class_totals(source, executor, progress) if balanced else None
    return class_weights(parameters.class_weight, source.columns.classes, counts)


def class_totals(source: Source, executor: Executor, progress: Progress | None = None) -> Float:
    """Rows of each class, or the sum of their weights, (K,): one reading of all rows."""
    assert source.columns.classes is not None
    count = CountTile(len(source.columns.classes))
    found = sorted(executor.map(count, source, range(source.n_tiles), progress), key=lambda each: each[0])
    total: Float = np.sum([counts for _, counts in found], axis=0)
    return total


@dataclass(frozen=True)
class CountTile:
    """Rows of each class in one tile, or the sum of their weights: an array (K,)."""

    n_classes: int

    def __call__(self, source: Source, number: int) -> Float:
        """Read the tile and count."""
        tile = source.tile(number)
        counts = np.bincount(tile.t[:, 0].astype(np.int64), tile.weights, minlength=self.n_classes)
        return counts.astype(np.float64)
