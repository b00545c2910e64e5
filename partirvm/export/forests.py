"""Boosted trees and jumps in the graph of a model; jumps are trees with two leaves.

A split on a category becomes a split on a number: for each different set of levels, a table gives 0
for the levels that go left and 1 for the others.
"""

from typing import Any

import numpy as np

from partirvm.kernels.jumps import Jumps
from partirvm.kernels.trees import BoostedTrees
from partirvm.types import Float, Int

BETWEEN = 0.5
"""Threshold of a split on such a table."""


def values_of_trees(graph: Any, forest: BoostedTrees) -> Any:
    """Return the outputs (n, C) of boosted trees, as a node of the graph."""
    positions = forest.features.copy()
    thresholds = forest.thresholds.copy()
    columns = [graph.rows]
    width = graph.rows.width
    for feature in np.flatnonzero(forest.counts).tolist():
        nodes = np.flatnonzero(forest.features == feature)
        if not len(nodes):
            continue
        sides, places = np.unique(sides_of_levels(forest, nodes), axis=1, return_inverse=True)
        positions[nodes] = width + places.ravel()
        thresholds[nodes] = BETWEEN
        columns.append(graph("Table", graph.rows.take([feature]), sides))
        width += sides.shape[1]
    return graph(
        "Trees",
        graph.joined(columns),
        forest.constants,
        positions,
        thresholds,
        forest.rights,
        forest.missing_left,
        forest.roots,
    )


def values_of_jumps(graph: Any, jumps: Jumps, numbers: Int) -> Any:
    """Return the jumps with these numbers (k,), as trees with two leaves."""
    count = len(numbers)
    features = np.full((count, 3), -1, dtype=np.int64)
    features[:, 0] = jumps.positions[numbers]
    thresholds = np.zeros((count, 3))
    thresholds[:, 0] = np.array(jumps.thresholds)[numbers]
    thresholds[:, 2] = 1.0
    roots = 3 * np.arange(count, dtype=np.int64)
    rights = np.zeros((count, 3), dtype=np.int64)
    rights[:, 0] = roots + 2
    return graph(
        "Trees",
        graph.rows,
        np.zeros(count),
        features.ravel(),
        thresholds.ravel(),
        rights.ravel(),
        np.ones(3 * count, dtype=np.bool_),
        roots[:, None],
    )


def sides_of_levels(forest: BoostedTrees, nodes: Int) -> Float:
    """Return the sides (L + 1, k) of the levels of a feature at splits (k,) on it: 0 is left, and
    the last row is for missing and unknown levels."""
    n_levels = int(forest.counts[forest.features[nodes[0]]])
    left = np.vstack([forest.levels[forest.sets[nodes], :n_levels].T, forest.missing_left[nodes]])
    return np.where(left, 0.0, 1.0)
