"""Training rows with what was learned without them (cross-fitting).

Level codes identify a fold, so that the level effects for a row are learned without that row. With
boosted trees as basis functions, the inputs (n, d) are followed by the predictions (n, B) of the
trees that were learned without the row's fold (``kernels.trees``); with columns of groups, the
place of the row's group is the last one (``kernels.group_columns``).

A row's fold depends only on its number in the source, or on its group, not on tiles, memory,
workers, interruptions or rows appended later.
"""

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import Any, Self

import numpy as np

from partirvm.core.held_back import level_folds, tree_folds
from partirvm.data.source import Source, Tile
from partirvm.kernels.functions import Basis
from partirvm.kernels.group_columns import GroupColumns
from partirvm.kernels.trees import BoostedTrees
from partirvm.scaling.levels import with_folds
from partirvm.scaling.maps import FeatureMap, Scaling
from partirvm.types import Float, Int

CACHED_BYTES = 1 << 26
"""Maximum number of bytes of the trees' predictions that a source holds in memory; of larger data,
they are computed whenever a tile is read."""


def folded_inputs(X: Float, features: FeatureMap | None, folds: Int) -> Float:
    """Return training rows X (n, d) with their folds (n,) included in the codes of embedded
    features; None has none."""
    folded_X = X.copy()
    for j, count in ({} if features is None else features.folded).items():
        folded_X[:, j] = with_folds(X[:, j], count, folds)
    return folded_X


class FoldedSource(Source):
    """A source's training rows; the codes of embedded ``features`` also encode each row's fold, and
    the inputs are followed by the predictions of ``trees`` without the row's fold and by the place
    of the row's group among ``groups``."""

    def __init__(
        self,
        source: Source,
        features: FeatureMap | None,
        trees: BoostedTrees | None = None,
        groups: GroupColumns | None = None,
    ) -> None:
        self._source = source
        self._features = features
        self._trees = trees
        self._groups = groups
        self._of_tiles = dict[int, Float]()
        self._take_shape_of(source)
        self.moments = source.moments

    def tile(self, number: int) -> Tile:
        tile = self._source.tile(number)
        numbers = tile.start + np.arange(len(tile.X), dtype=np.int64)
        predictions = self._of_tiles.get(number)
        if predictions is None:
            predictions = self._predictions(tile, numbers)
            if 8 * self.n_rows * predictions.shape[1] <= CACHED_BYTES:
                self._of_tiles[number] = predictions
        return self._folded(tile, numbers, predictions)

    def gather(self, rows: Sequence[int] | Int) -> Tile:
        numbers = np.asarray(rows, dtype=np.int64)
        tile = self._source.gather(numbers)
        return self._folded(tile, numbers, self._predictions(tile, numbers))

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

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_of_tiles": {}}

    def _predictions(self, tile: Tile, numbers: Int) -> Float:
        """Return the trees' predictions (n, B) for rows with these numbers (n,); B is 0 without
        trees."""
        if self._trees is None:
            return np.zeros((len(tile.X), 0))
        return self._trees.left_out(tile.X, tree_folds(numbers, tile.groups))

    def _folded(self, tile: Tile, numbers: Int, predictions: Float) -> Tile:
        X = folded_inputs(tile.X, self._features, level_folds(numbers))
        further = [predictions] if predictions.shape[1] else []
        if self._groups is not None:
            assert tile.groups is not None
            further.append(self._groups.places_of(tile.groups)[:, None])
        if further:
            X = np.concatenate([X, *further], axis=1)
        X.flags.writeable = False
        return replace(tile, X=X)


def folded(source: Source, scaling: Scaling, functions: Basis | None = None) -> Source:
    """Return the source for a fit with this scaling and these basis functions: with folds if levels
    are embedded, with predictions if there are trees, with places if groups have columns, otherwise
    unchanged."""
    trees = None if functions is None else functions.trees
    groups = None if functions is None else functions.groups
    is_folded = scaling.features is not None and bool(scaling.features.folded)
    if not is_folded and trees is None and groups is None:
        return source
    return FoldedSource(source, scaling.features, trees, groups)


def unfolded_source(source: Source) -> Source:
    """Return the source as it was before ``folded``."""
    return source._source if isinstance(source, FoldedSource) else source
