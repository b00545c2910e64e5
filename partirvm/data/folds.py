"""Training rows whose level codes identify a fold, so that the level effects for a row are learned
without that row (cross-fitting).

A row's fold depends only on its number in the source, not on tiles, memory, workers, interruptions
or rows appended later.
"""

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import Any, Self

import numpy as np

from partirvm.core.held_back import level_folds
from partirvm.data.source import Source, Tile
from partirvm.scaling.levels import with_folds
from partirvm.scaling.maps import FeatureMap, Scaling
from partirvm.types import Float, Int


def folded_inputs(X: Float, features: FeatureMap, folds: Int) -> Float:
    """Return training rows X (n, d) with their folds (n,) included in the codes of embedded
    features."""
    folded_X = X.copy()
    for j, count in features.folded.items():
        folded_X[:, j] = with_folds(X[:, j], count, folds)
    return folded_X


class FoldedSource(Source):
    """A source's training rows; the codes of embedded ``features`` also encode each row's fold."""

    def __init__(self, source: Source, features: FeatureMap) -> None:
        self._source = source
        self._features = features
        self._take_shape_of(source)
        self.moments = source.moments

    def tile(self, number: int) -> Tile:
        tile = self._source.tile(number)
        numbers = tile.start + np.arange(len(tile.X), dtype=np.int64)
        return self._folded(tile, numbers)

    def gather(self, rows: Sequence[int] | Int) -> Tile:
        numbers = np.asarray(rows, dtype=np.int64)
        return self._folded(self._source.gather(numbers), numbers)

    def groups_of_tile(self, number: int) -> Int | None:
        return self._source.groups_of_tile(number)

    def original_rows(self, number: int) -> Int:
        return self._source.original_rows(number)

    def part(self, tiles: Sequence[int]) -> Self:
        part = self._source.part(tiles)
        return self if part is self._source else self._of(part)

    def with_class_weights(self, weights: Float) -> Self:
        return self._of(self._source.with_class_weights(weights))

    def with_weight_unit(self, unit: float) -> Self:
        return self._of(self._source.with_weight_unit(unit))

    def __getattr__(self, name: str) -> Any:
        """Return other attributes of the source, such as its fingerprint."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._source, name)

    def __str__(self) -> str:
        return str(self._source)

    def _of(self, source: Source) -> Self:
        other = copy(self)
        other._source = source
        other.moments = source.moments
        return other

    def _folded(self, tile: Tile, numbers: Int) -> Tile:
        X = folded_inputs(tile.X, self._features, level_folds(numbers))
        X.flags.writeable = False
        return replace(tile, X=X)


def folded(source: Source, scaling: Scaling) -> Source:
    """Return the source for a fit with this scaling: with folds if levels are embedded, otherwise
    unchanged."""
    if scaling.features is None or not scaling.features.folded:
        return source
    return FoldedSource(source, scaling.features)
