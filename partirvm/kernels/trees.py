"""Boosted regression trees, stored as arrays and evaluated with NumPy.

A forest has the same number of trees for each of its outputs; an output is a constant plus the sum
of its trees. The outputs are scaled targets, or logits of classes.

The nodes of a tree follow each other in pre-order: the left child of an inner node is the next
node. A number goes left if it is at most the threshold, a level if it belongs to the split's set of
levels. A missing value goes to the side that was better in training; so do levels that the trees
have not seen (as in scikit-learn's ``HistGradientBoosting``).

A forest is evaluated for all its trees at once (Lucchese et al. 2015, *QuickScorer*): each inner
node has a mask of the leaves that remain if a row goes right, and the leaf of a row is the first
one that remains after all these masks. The product of the masks of one feature depends only on the
place of the row's value among the thresholds, so that it is looked up in a table.
"""

import hashlib
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from partirvm.types import Bool, DeclaredState, Float, Int

MOST_LEAVES = 31
"""Maximum number of leaves of a tree: the masks have 32 bits."""

MOST_LEVELS = 255
"""Maximum number of levels of a categorical feature on which trees split: the limit of
scikit-learn's bins. Trees ignore a feature with more levels."""

EVALUATED = 1 << 16
"""Number of rows × trees that are evaluated together, so that masks and values stay in the
processor's cache."""

ALL_LEAVES = np.uint32(0xFFFFFFFF)

FIRST_BIT = np.zeros(32, dtype=np.int64)
"""Position of the only set bit of a word, by the word's product with a de Bruijn sequence
(Leiserson et al. 1998)."""

DE_BRUIJN = np.uint32(0x077CB531)
FIRST_BIT[(((1 << np.arange(32)) * int(DE_BRUIJN) % (1 << 32)) >> 27)] = np.arange(32)

Masks = NDArray[np.uint32]


class FeatureMasks(NamedTuple):
    """The masks of the leaves that remain after all splits on one feature.

    Attributes:
        feature: number of the feature
        edges: (m,), increasing thresholds; empty for a categorical feature
        masks: (m + 2, T) by the number of thresholds below a value, or (L + 1, T) by level; the
            last row is for missing values
    """

    feature: int
    edges: Float
    masks: Masks

    def of_values(self, x: Float) -> Masks:
        """Return the masks (n, T) for the feature's values (n,)."""
        last = len(self.masks) - 1
        if len(self.edges):
            places = np.where(np.isnan(x), last, np.searchsorted(self.edges, x))
        else:
            places = np.where((x >= 0) & (x < last), x, last).astype(np.int64)
        return self.masks[places]


class Forest(NamedTuple):
    """A forest that is prepared for evaluation.

    Attributes:
        features: the masks of each feature on which it splits
        values: (T, 32), values of the leaves of each tree, from left to right
        constants: (C,), constant part of each output
    """

    features: tuple[FeatureMasks, ...]
    values: Float
    constants: Float

    def __call__(self, X: Float) -> Float:
        """Return the outputs (n, C) at raw inputs X (n, d); their bits do not depend on the other
        rows."""
        T = len(self.values)
        C = len(self.constants)
        outputs = np.empty((len(X), C))
        height = max(EVALUATED // max(T, 1), 1)
        for start in range(0, len(X), height):
            rows = slice(start, start + height)
            leaves = self._leaves(X[rows])
            terms = np.empty((len(leaves), C, 1 + T // C))
            terms[:, :, 0] = self.constants
            terms[:, :, 1:] = self.values[np.arange(T), leaves].reshape(len(leaves), C, -1)
            # added in the order of the trees, whatever the number of rows
            outputs[rows] = np.add.accumulate(terms, axis=2)[:, :, -1]
        return outputs

    def _leaves(self, X: Float) -> Int:
        """Return the number (n, T) of the leaf of each tree that raw inputs X (n, d) reach."""
        masks = np.full((len(X), len(self.values)), ALL_LEAVES)
        for feature in self.features:
            masks &= feature.of_values(X[:, feature.feature])
        first = masks & (~masks + np.uint32(1))
        return np.asarray(FIRST_BIT[(first * DE_BRUIJN) >> np.uint32(27)])


@dataclass(frozen=True, eq=False, repr=False)
class BoostedTrees(DeclaredState):
    """A forest of boosted trees with C outputs; m nodes and r trees of an output.

    Attributes:
        features: (m,), number of the feature of an inner node, −1 for a leaf
        thresholds: (m,), threshold of a split on a number; the value of a leaf
        rights: (m,), position of the right child of an inner node; 0 for a leaf
        missing_left: (m,), True if missing values go left
        sets: (m,), row of ``levels`` of a split on a category; −1 for other nodes
        levels: (s, L), True for a level that goes left
        roots: (C, r), positions of the trees' first nodes
        constants: (C,), constant part of each output
        counts: (d,), number of levels of a categorical feature; 0 for a number
    """

    features: Int
    thresholds: Float
    rights: Int
    missing_left: Bool
    sets: Int
    levels: Bool
    roots: Int
    constants: Float
    counts: Int

    @property
    def used(self) -> Bool:
        """A mask (d,) of the features on which a tree splits."""
        return np.isin(np.arange(len(self.counts)), self.features)

    @cached_property
    def key(self) -> str:
        """Hash of the trees."""
        text = hashlib.blake2b(digest_size=16)
        for field in fields(self):
            part = np.asarray(getattr(self, field.name))
            text.update(f"{part.shape} {part.dtype}".encode() + part.tobytes())
        return text.hexdigest()

    def __repr__(self) -> str:
        outputs, rounds = self.roots.shape
        return f"<{outputs} × {rounds} boosted trees {self.key}>"

    def __call__(self, X: Float) -> Float:
        """Return the outputs (n, C) at raw inputs X (n, d)."""
        return self._forest(X)

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @cached_property
    def _forest(self) -> Forest:
        return prepared(self)


def prepared(trees: BoostedTrees) -> Forest:
    """Prepare a forest for evaluation."""
    roots = trees.roots.ravel()
    before = np.append(0, np.cumsum(trees.features < 0))  # leaves before each node
    owners = np.searchsorted(roots, np.arange(len(trees.features)), side="right") - 1
    leaves = np.flatnonzero(trees.features < 0)
    values = np.zeros((len(roots), 32))
    values[owners[leaves], before[leaves] - before[roots][owners[leaves]]] = trees.thresholds[
        leaves
    ]
    splits = np.flatnonzero(trees.features >= 0)
    lefts = before[splits + 1] - before[roots][owners[splits]]
    rights = before[trees.rights[splits]] - before[roots][owners[splits]]
    masks = (ALL_LEAVES - ((1 << rights) - (1 << lefts))).astype(np.uint32)
    features = []
    for feature in np.flatnonzero(trees.used).tolist():
        places = np.flatnonzero(trees.features[splits] == feature)
        of_feature = Splits(splits[places], owners[splits[places]], masks[places])
        kind = masks_of_category if trees.counts[feature] else masks_of_number
        features.append(kind(trees, feature, of_feature, len(roots)))
    return Forest(tuple(features), values, trees.constants)


class Splits(NamedTuple):
    """Splits on one feature.

    Attributes:
        nodes: (k,), their positions
        owners: (k,), numbers of their trees
        masks: (k,), the leaves that remain if a row goes right
    """

    nodes: Int
    owners: Int
    masks: Masks


def masks_of_number(trees: BoostedTrees, feature: int, splits: Splits, count: int) -> FeatureMasks:
    """Return the masks of a feature that is a number.

    Args:
        trees: the nodes
        feature: number of the feature
        splits: its splits
        count: number T of trees
    """
    thresholds = trees.thresholds[splits.nodes]
    edges = np.unique(thresholds)
    masks = np.full((len(edges) + 2, count), ALL_LEAVES)
    places = np.searchsorted(edges, thresholds) + 1
    np.bitwise_and.at(masks, (places, splits.owners), splits.masks)
    masks[:-1] = np.bitwise_and.accumulate(masks[:-1], axis=0)
    right = ~trees.missing_left[splits.nodes]
    np.bitwise_and.at(masks[-1], splits.owners[right], splits.masks[right])
    return FeatureMasks(feature, edges, masks)


def masks_of_category(
    trees: BoostedTrees, feature: int, splits: Splits, count: int
) -> FeatureMasks:
    """Return the masks of a categorical feature.

    Args:
        trees: the nodes
        feature: number of the feature
        splits: its splits
        count: number T of trees
    """
    n_levels = int(trees.counts[feature])
    masks = np.full((n_levels + 1, count), ALL_LEAVES)
    for node, owner, mask in zip(*splits, strict=True):
        left = trees.levels[trees.sets[node], :n_levels]
        masks[np.append(~left, not trees.missing_left[node]), owner] &= mask
    return FeatureMasks(feature, np.zeros(0), masks)


def mixed(predictions: Any, by_trees: Any, share: Any) -> Any:
    """Return the weighted mean of predictions of the fit and of the trees, (n, …) both."""
    return predictions + share * (by_trees - predictions)
