"""Sobol indices of fitted models of known functions: against Monte Carlo of the model, and against
the indices of the function."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
from by_default import some
from numpy.testing import assert_allclose
from scipy.stats import qmc

from partirvm import Anova, RVMRegressor
from partirvm.model.feature_effects import effects_of


class Function(NamedTuple):
    """A function of d features that are uniform on (0, 1)."""

    d: int
    values: Callable[..., np.ndarray]


def ishigami(x, y, z):
    """See Ishigami & Homma (1990)."""
    x, y, z = (np.pi * (2 * u - 1) for u in (x, y, z))
    return np.sin(x) + 7 * np.sin(y) ** 2 + 0.1 * z**4 * np.sin(x)


def g_function(*features):
    """See Saltelli & Sobol (1995)."""
    shares = (0.0, 1.0, 4.5)
    factors = [(np.abs(4 * x - 2) + a) / (1 + a) for x, a in zip(features, shares, strict=True)]
    return np.prod(np.broadcast_arrays(*factors), axis=0)


def friedman(a, b, c, d, e):
    """See Friedman (1991)."""
    return 10 * np.sin(np.pi * a * b) + 20 * (c - 0.5) ** 2 + 10 * d + 5 * e


def exponential(a, b, c, d):
    """See Sobol & Levitan (1999)."""
    return np.exp(1.5 * a + 0.9 * b + 0.6 * c + 0.3 * d)


def alternating(a, b, c, d):
    """See Bratley, Fox & Niederreiter (1992)."""
    return -a + a * b - a * b * c + a * b * c * d


def waves(a, b, c):
    return np.sin(2 * np.pi * a) + 0.7 * np.sin(4 * np.pi * b) + np.cos(np.pi * c)


FUNCTIONS = {
    "Ishigami": Function(3, ishigami),
    "g-function": Function(3, g_function),
    "Friedman": Function(5, friedman),
    "exponential": Function(4, exponential),
    "alternating": Function(4, alternating),
    "waves": Function(3, waves),
}

HALF_NODES, HALF_WEIGHTS = np.polynomial.legendre.leggauss(8)

NODES = np.r_[HALF_NODES + 1, HALF_NODES + 3] / 4
"""Nodes of the Gauss-Legendre rule on both halves of (0, 1), so that a kink at ½ does no harm."""

WEIGHTS = np.r_[HALF_WEIGHTS, HALF_WEIGHTS] / 4


def integral(values, axes):
    """Return the integrals over these features of values on the grid of all nodes."""
    for axis in sorted(axes, reverse=True):
        values = np.tensordot(values, WEIGHTS, axes=(axis, 0))
    return values


def indices_of(function):
    """Return first-order and total indices (d,) each of a function."""
    features = range(function.d)
    values = function.values(*np.meshgrid(*[NODES] * function.d, indexing="ij", sparse=True))
    mean = integral(values, features)
    variance = integral((values - mean) ** 2, features)
    alone = np.empty(function.d)
    total = np.empty(function.d)
    for j in features:
        effect = integral(values, set(features) - {j}) - mean
        alone[j] = integral(effect**2, [0])
        total[j] = integral(values**2, features)
        total[j] -= integral(integral(values, [j]) ** 2, range(function.d - 1))
    return alone / variance, total / variance


def indices_by_monte_carlo(estimator, n_rows):
    """Return first-order and total indices (d,) each of an estimator's predictions.

    Rows are drawn twice, from the values that the model stores of each feature; first-order indices
    come from Saltelli's (2010) estimator, total ones from Jansen's (1999).
    """
    marginals = estimator.model_.marginals
    q, d = marginals.shape
    places = qmc.Sobol(2 * d, seed=0).random(n_rows) * q
    drawn = np.concatenate([marginals, marginals], axis=1)
    drawn = np.take_along_axis(drawn, places.astype(int), axis=0)
    first, second = drawn[:, :d], drawn[:, d:]

    of_first = estimator.predict(first)
    of_second = estimator.predict(second)
    variance = np.r_[of_first, of_second].var()
    alone = np.empty(d)
    total = np.empty(d)
    for j in range(d):
        mixed = first.copy()
        mixed[:, j] = second[:, j]
        of_mixed = estimator.predict(mixed)
        alone[j] = np.mean((of_second - of_second.mean()) * (of_mixed - of_first)) / variance
        total[j] = np.mean((of_first - of_mixed) ** 2) / (2 * variance)
    return alone, total


def sampled(function, n_rows):
    """Return inputs (n, d), evenly spread over the unit cube, and a function of them."""
    X = qmc.Sobol(function.d, seed=1).random(n_rows)
    return X, function.values(*X.T)


def indices_of_model(model, X=None):
    """Return first-order and total indices (d,) each, computed exactly."""
    effects = {int(main.at.feature[1:]): main for main in effects_of(model, X=X).main}
    alone = [effects[j].share for j in range(len(effects))]
    total = [effects[j].total for j in range(len(effects))]
    return np.array(alone), np.array(total)


@pytest.mark.parametrize("name", some(FUNCTIONS, {"Ishigami"}))
def test_shares_of_a_model_are_those_of_monte_carlo(name):
    """Within half a percent of the variance."""
    X, y = sampled(FUNCTIONS[name], 64)
    options = {"noise": 0.01, "residual": "none", "reference": "none", "random_state": 0}
    estimator = RVMRegressor(Anova(1.0, shares=0.5), **options).fit(X, y)
    expected = indices_by_monte_carlo(estimator, 1 << 13)
    assert_allclose(indices_of_model(estimator.model_), expected, atol=0.005)


@pytest.mark.usefixtures("default_fits")
@pytest.mark.parametrize("name", some(FUNCTIONS, {"Friedman"}))
def test_shares_of_a_fit_are_those_of_the_function(name):
    """Within 1 % of the variance, with noise of a twentieth of the standard deviation."""
    function = FUNCTIONS[name]
    X, y = sampled(function, 512)
    y = y + 0.05 * y.std() * np.random.default_rng(0).normal(size=len(y))
    model = RVMRegressor("anova", random_state=0).fit(X, y).model_
    grid = np.repeat(((np.arange(128) + 0.5) / 128)[:, None], function.d, axis=1)
    assert_allclose(indices_of_model(model, grid), indices_of(function), atol=0.01)
