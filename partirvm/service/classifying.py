"""Linear predictors of a classification at rows in memory, and at the rows of a source tile by tile."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from partirvm.backends.threads import one_blas_thread
from partirvm.data import ZarrSource
from partirvm.data.source import Source
from partirvm.errors import DataWarning
from partirvm.model import FAR
from partirvm.model.classifier import ClassModel

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


def predictors_of_rows(model: ClassModel, X: Float) -> tuple[Float, int]:
    """Linear predictors (n, C) of raw inputs X (n, d) in memory, and the number of far rows: the bits of a pass."""
    with one_blas_thread():
        f, nearness = model.predictors(X)
    return f, int((nearness < FAR).sum())


def warn_of_unknown_rows(far: int, rows: int) -> None:
    """Say how many rows the model knows nothing of."""
    if far:
        warnings.warn(
            f"{far:,} of {rows:,} rows are far from every relevance vector: their probabilities are little more than "
            "the share of each class that the bias stands for",
            DataWarning,
            stacklevel=3,
        )
