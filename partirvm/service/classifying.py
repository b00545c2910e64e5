"""Linear predictors of a classification at the rows of a source, tile by tile."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from partirvm.data import ZarrSource
from partirvm.data.source import Source
from partirvm.model import FAR, ClassModel

Float = NDArray[np.float64]


@dataclass(frozen=True)
class PredictorsTile:
    """Of one tile: an array (rows, C + 2) of original row number, linear predictors, and whether the row is far away.

    Predictors are as the link gets them, moderated where the model moderates.
    """

    model: ClassModel

    def __call__(self, source: Source, number: int) -> Float:
        """Read the tile and predict it."""
        tile = source.tile(number)
        rows = source.original_rows(number) if isinstance(source, ZarrSource) else tile.start + np.arange(len(tile.X))
        f, nearness = self.model.predictors(tile.X)
        return np.column_stack([rows, f, nearness < FAR])
