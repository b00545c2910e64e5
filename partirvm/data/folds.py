"""Training rows with what was learned without them (cross-fitting).

Level codes identify a fold, so that the level effects for a row are learned without that row. With
columns of groups, the inputs (n, d) are followed by the place of the row's group
(``kernels.group_columns``).

A row's fold depends only on its number in the source, or on its group, not on tiles, memory,
workers, interruptions or rows appended later.
"""

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import Any, Self

import numpy as np

from partirvm.core.held_back import level_folds
from partirvm.data.source import Source, Tile
from partirvm.kernels.functions import Basis
from partirvm.kernels.group_columns import GroupColumns
from partirvm.scaling.levels import with_folds
from partirvm.scaling.maps import FeatureMap, Scaling
from partirvm.types import Float, Int


def folded_inputs(X: Float, features: FeatureMap | None, folds: Int) -> Float:
    """Return training rows X (n, d) with their folds (n,) included in the codes of embedded
    features; None has none."""
    folded_X = X.copy()
    for j, count in ({} if features is None else features.folded).items():
        folded_X[:, j] = with_folds(X[:, j], count, folds)
    return folded_X


class FoldedSource(Source):
    """A source's training rows; the codes of embedded ``features`` also encode each row's fold, and
    the inputs are followed by the place of the row's group among ``groups``."""

    def __init__(
        self,
        source: Source,
        features: FeatureMap | None,
        groups: GroupColumns | None = None,
    ) -> None:
        self._source = source
        self._features = features
        self._groups = groups
        self._take_shape_of(source)
        self.moments = source.moments

    def tile(self, number: int) -> Tile:
        tile = self._source.tile(number)
        numbers = tile.start + np.arange(len(tile.X), dtype=np.int64)
        return self._folded(tile, numbers)

    def gather(self, rows: Sequence[int] | Int) -> Tile:
        numbers = np.asarray(rows, dtype=np.int64)
        tile = self._source.gather(numbers)
        return self._folded(tile, numbers)

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
        if self._groups is not None:
            assert tile.groups is not None
            X = np.column_stack([X, self._groups.places_of(tile.groups)])
        X.flags.writeable = False
        return replace(tile, X=X)


def folded(source: Source, scaling: Scaling, functions: Basis | None = None) -> Source:
    """Return the source for a fit with this scaling and these basis functions: with folds if levels
    are embedded, with places if groups have columns, otherwise unchanged."""
    groups = None if functions is None else functions.groups
    is_folded = scaling.features is not None and bool(scaling.features.folded)
    if not is_folded and groups is None:
        return source
    return FoldedSource(source, scaling.features, groups)


def unfolded_source(source: Source) -> Source:
    """Return the source as it was before ``folded``."""
    return source._source if isinstance(source, FoldedSource) else source
