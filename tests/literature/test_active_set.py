"""Algorithm 1: the largest MAP weights join, nothing more joins when none exceeds the threshold."""

from __future__ import annotations

import math

import naive
import numpy as np
import pytest

from partirvm import RVMClassifier, RVMRegressor
from partirvm.literature.active_set import active_set


def waves(n=200, seed=2):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, (n, 2))
    return X, np.sin(2 * X[:, 0]) * X[:, 1] + 0.1 * rng.normal(size=n)


@pytest.mark.parametrize("scale", [1.0, 50.0])
def test_the_first_rows_have_the_largest_weights(scale):
    """At α = e⁵ for all columns, densely; with the paper's bound no other row ever joins."""
    X, y = waves()
    found = active_set(RVMRegressor(noise="constant"), X, scale * y, gamma=1.0, bound=math.exp(5))
    Z, t = (X - X.mean(axis=0)) / X.std(axis=0), (y - y.mean()) / y.std()
    Phi = np.column_stack([np.ones(len(X)), naive.gaussian(Z, Z, 1.0)])
    w = np.abs(naive.map_weights(Phi, t, np.full(len(X) + 1, math.exp(5)), 10.0))[1:]
    assert set(found.active) <= set(np.argsort(-w)[:20])
    assert (found.candidates, found.rounds) == (20, 1)


def test_few_rows_do_what_all_do():
    """With α = 1 outside it goes on; the error is near the noise, 0.1; the last weights outside are small."""
    X, y = waves(600)
    found = active_set(RVMRegressor(noise="constant"), X[:400], y[:400], gamma=1.0)
    assert 20 < found.candidates < 400
    assert len(set(found.active)) == len(found.active)
    assert np.sqrt(np.mean((found.estimator.predict(X[400:]) - y[400:]) ** 2)) < 0.13


def test_two_classes():
    X, y = waves(300)
    labels = np.where(y > 0, "up", "down")
    found = active_set(RVMClassifier(), X[:200], labels[:200], gamma=1.0)
    assert np.mean(found.estimator.predict(X[200:]) != labels[200:]) < 0.15
