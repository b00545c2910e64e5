"""Tables that tests of several parts fit, and divisions of tables into tiles."""

from itertools import pairwise

import numpy as np
from numpy.random import default_rng


def rough(n, seed=0):
    """Return inputs (n, 2), and a noisy target with details that a few wide functions miss."""
    rng = default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, 2))
    y = np.sin(3 * X[:, 0]) + 0.5 * np.sin(15 * X[:, 0]) * np.cos(15 * X[:, 1])
    return X, y + 0.05 * rng.standard_normal(n)


def pieces(n, cuts):
    """Return row ranges between cuts in any order; ranges may be empty."""
    edges = [0, *sorted(min(cut, n) for cut in cuts), n]
    return [slice(a, b) for a, b in pairwise(edges)]
