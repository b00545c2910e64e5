"""Variances of sums of products over independent features, against sums over all combinations of
their values and against closed forms."""

from itertools import product

import numpy as np
import pytest
from numpy.random import default_rng
from numpy.testing import assert_allclose

from partirvm.kernels.feature_products import Factors


def factors(size, n_values, M=5, C=2):
    """Return random factors with ``size`` coefficients of features with these numbers of values;
    with an order, the first coefficient is 1."""
    rng = default_rng(0)
    samples = [rng.normal(0.5, 1.0, (size, q, M)) for q in n_values]
    if size > 1:
        for sample in samples:
            sample[0] = 1.0
    return Factors(samples, rng.normal(size=(M, C)))


def values_of(model):
    """Return f (q_1, …, q_d, C) at all combinations, from products of truncated polynomials that
    are multiplied out term by term."""
    shape = tuple(sample.shape[1] for sample in model.samples)
    size = len(model.samples[0])
    values = np.zeros((*shape, model.weights.shape[1]))
    for places in product(*map(range, shape)):
        columns = 0.0
        for powers in product(range(size), repeat=len(shape)):
            if sum(powers) < size:
                terms = zip(model.samples, powers, places, strict=True)
                columns = columns + np.prod([G[power, place] for G, power, place in terms], axis=0)
        values[places] = columns @ model.weights
    return values


def without(values, *axes):
    """Return the means over these axes, which are kept."""
    return values.mean(axis=axes, keepdims=True)


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("most", [1, 1 << 22])
def test_variances_are_those_of_all_combinations(size, most):
    """The parts of the Sobol decomposition come from means over the other features."""
    model = factors(size, (3, 4, 2))
    f = values_of(model)
    total, whole = model.variances(most)
    assert_allclose(whole, f.var(axis=(0, 1, 2)), rtol=1e-10)
    for j in range(3):
        others = tuple({0, 1, 2} - {j})
        assert_allclose(total[j], f.var(axis=j).mean(axis=(0, 1)), rtol=1e-10)
        effect = without(f, *others) - without(f, 0, 1, 2)
        assert_allclose(model.main_variances()[j], (effect**2).mean(axis=(0, 1, 2)), rtol=1e-10)
        columns = model.columns(j, model.samples[j])
        assert_allclose(columns @ model.weights, np.squeeze(effect, axis=others), atol=1e-12)
    for j, k in ((0, 1), (0, 2), (1, 2)):
        (other,) = {0, 1, 2} - {j, k}
        alone = without(f, j, other) + without(f, k, other)
        effect = without(f, other) - alone + without(f, 0, 1, 2)
        assert_allclose(model.pair_variance(j, k), (effect**2).mean(axis=(0, 1, 2)), 1e-9, 1e-12)
        columns = model.pair_columns(j, k, model.samples[j], model.samples[k])
        assert_allclose(columns @ model.weights, effect.squeeze(axis=other), atol=1e-12)


def test_no_features_have_no_variance():
    assert_allclose(Factors([], np.ones((3, 1))).variances().whole, [0.0])


MIDDLES = (np.arange(2000) + 0.5) / 2000
"""Midpoints of cells, whose means are integrals over the unit interval up to 1e-6."""

LINES = np.array([1.0, 2.0, 3.0])

ONE = np.ones(2000)


def ishigami():
    """sin x + 7 sin² y + 0.1 z⁴ sin x on (−π, π)³; see Ishigami & Homma (1990)."""
    x = np.pi * (2 * MIDDLES - 1)
    columns = [(np.sin(x), ONE, ONE), (ONE, np.sin(x) ** 2, ONE), (np.sin(x), ONE, x**4)]
    alone = 0.5 * (1 + 0.1 * np.pi**4 / 5) ** 2
    both = 0.01 * np.pi**8 * 8 / 225
    of_second = 49 / 8
    return columns, [1.0, 7.0, 0.1], [alone, of_second, 0.0], [alone + both, of_second, both]


def g_function():
    """Π_j (|4x_j − 2| + a_j)/(1 + a_j), in which a factor has variance 1/(3 (1 + a_j)²)."""
    a = np.array([0.0, 1.0, 4.5, 9.0])
    columns = [tuple((np.abs(4 * MIDDLES - 2) + share) / (1 + share) for share in a)]
    alone = 1 / (3 * (1 + a) ** 2)
    return columns, [1.0], alone, alone * np.prod(1 + alone) / (1 + alone)


def waves():
    """Σ_j sin(2π(j + 1)x_j), each of variance ½."""
    waves = [np.sin(2 * np.pi * (j + 1) * MIDDLES) for j in range(3)]
    columns = [tuple(waves[j] if j == k else ONE for k in range(3)) for j in range(3)]
    return columns, [1.0] * 3, [0.5] * 3, [0.5] * 3


def product_of_two():
    """(x − ½)(y − ½): no main effects, all of 1/144 in the pair."""
    return [(MIDDLES - 0.5, MIDDLES - 0.5)], [1.0], [0.0] * 2, [1 / 144] * 2


def exponential():
    """exp(Σ_j b_j x_j), a product of factors with closed moments; see Sobol & Levitan (1999)."""
    rates = np.array([1.5, 0.9, 0.6])
    columns = [tuple(np.exp(rate * MIDDLES) for rate in rates)]
    squared_means = np.expm1(rates) ** 2 / rates**2
    squares = np.expm1(2 * rates) / (2 * rates)
    alone = (squares / squared_means - 1) * np.prod(squared_means)
    total = (squares - squared_means) * np.prod(squares) / squares
    return columns, [1.0], alone, total


def line():
    """x + 2y + 3z, with variances b²/12."""
    columns = [tuple(MIDDLES if j == k else ONE for k in range(3)) for j in range(3)]
    return columns, LINES, LINES**2 / 12, LINES**2 / 12


@pytest.mark.parametrize(
    "function", [ishigami, g_function, exponential, waves, product_of_two, line]
)
def test_known_functions_have_their_sobol_indices(function):
    """Variances of main and total effects are those of the literature."""
    columns, weights, alone, total = function()
    samples = [np.stack(of_feature, axis=1)[None] for of_feature in zip(*columns, strict=True)]
    model = Factors(samples, np.array(weights)[:, None])
    assert_allclose(model.main_variances()[:, 0], alone, rtol=1e-4, atol=1e-6)
    assert_allclose(model.variances().total[:, 0], total, rtol=1e-4, atol=1e-6)
