"""Regression problems with waves that several parts share."""

import numpy as np
from numpy.random import default_rng


def bent_plane(n, seed=3, noise=0.2, d=2):
    """Return inputs (n, d) in [−3, 3] and the target sin(2 x₀) + x₁ with normal noise."""
    rng = default_rng(seed)
    X = rng.uniform(-3, 3, size=(n, d))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] + noise * rng.normal(size=n)


def saddle(n, seed=0, low=-2.0, high=2.0):
    """Return two inputs, the first between bounds, and the target sin(2 x₀) x₁ with noise of .1."""
    rng = default_rng(seed)
    X = np.column_stack([rng.uniform(low, high, n), rng.uniform(-2, 2, n)])
    return X, np.sin(2 * X[:, 0]) * X[:, 1] + 0.1 * rng.normal(size=n)


def additive(n, d, seed=0, noise=0.1):
    """Return rows in [−1, 1]ᵈ, and a sum of one wave per feature with normal noise."""
    frequencies = np.linspace(1.0, 5.0, d)
    rng = default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n, d))
    return X, np.sin(frequencies * X + np.arange(d)).sum(axis=1) + noise * rng.normal(size=n)
