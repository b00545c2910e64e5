"""Models with jumps as basis functions, made without a search."""

from dataclasses import replace
from functools import cache

import numpy as np
from numpy.random import default_rng

from partirvm import AlphaPrior, RVMRegressor
from partirvm.kernels.functions import Basis
from partirvm.kernels.jumps import Jumps

JUMPS = Jumps((0, 0, 2), (-0.4, 0.6, 0.1))


def rows_with_gaps(n=60):
    """Return inputs (n, 3), of which some are missing, and targets."""
    rng = default_rng(0)
    X = rng.normal(size=(n, 3))
    y = np.sin(X[:, 1]) + JUMPS(X) @ np.array([1.0, -2.0, 0.5]) + 0.05 * rng.normal(size=n)
    return X, y


@cache
def estimator_with_jumps(kernel="gaussian"):
    """Return a fitted estimator, shared by all tests, whose three linear functions have become jumps
    with the same weights."""
    X, y = rows_with_gaps()
    options = {"gamma": 0.5} if isinstance(kernel, str) else {}
    options |= {"residual": "none", "noise": 0.05, "reference": "none", "random_state": 0}
    prior = AlphaPrior(fixed={"x0": 1.0, "x1": 1.0, "x2": 1.0})
    estimator = RVMRegressor(kernel, basis="linear", alpha_prior=prior, **options).fit(X, y)
    model = estimator.model_
    functions = Basis(((JUMPS, JUMPS.size),))
    estimator.model_ = replace(model, design=replace(model.design, functions=functions))
    return estimator
