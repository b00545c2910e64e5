"""A variance that depends on the inputs is compared with the functions it is drawn from and with
formulas."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import approx_fprime, minimize
from scipy.stats import kstest, norm

from partirvm.likelihoods.noise_fit import (
    FOLDS,
    _likelihood,
    _mode,
    cross_fitted,
    dependence,
    fit,
    overall_level,
)


def bumps(x, centres=9, width=1.0):
    """Return Gaussian columns on [−3, 3]."""
    return np.exp(-(((x[:, None] - np.linspace(-3, 3, centres)) / width) ** 2))


def drawn(rng, n, g, variance=0.0):
    """Return inputs, and squares of errors with variance ``variance`` + exp g(x)."""
    x = rng.uniform(-3, 3, n)
    return x, rng.normal(size=n) ** 2 * (variance + np.exp(g(x)))


def log_likelihood(g, squares, variances):
    return norm.logpdf(np.sqrt(squares), scale=np.sqrt(variances + np.exp(g))).sum()


def test_slope_and_curvature_follow_from_the_density(rng):
    """The curvature is the variance of the slope over drawn errors (Fisher)."""
    g = rng.normal(size=7)
    variances = rng.uniform(0, 2, 7)
    squares = rng.normal(size=7) ** 2 * 3
    value, slope, curvature = _likelihood(g, squares, variances)
    assert value == pytest.approx(log_likelihood(g, squares, variances) + 3.5 * np.log(2 * np.pi))
    assert_allclose(
        slope, approx_fprime(g, lambda g: log_likelihood(g, squares, variances), 1e-6), atol=1e-4
    )
    errors = rng.normal(size=(200_000, 7)) * np.sqrt(variances + np.exp(g))
    slopes = _likelihood(np.tile(g, 200_000), (errors**2).ravel(), np.tile(variances, 200_000))[
        1
    ].reshape(-1, 7)
    assert_allclose(slopes.mean(axis=0), 0, atol=0.01)
    assert_allclose(slopes.var(axis=0), curvature, rtol=0.03)


@pytest.mark.parametrize("variance", [0.0, 0.5])
def test_a_known_log_variance_is_found(rng, variance):
    """It is within .15 with 4,000 rows, also if a known variance is added."""
    x, squares = drawn(rng, 4000, lambda x: 1.5 * np.sin(x) - 1, variance)
    found = fit(bumps(x), squares, np.full(4000, variance))
    noise = found.level * np.exp(bumps(x) @ found.weights)
    off = np.log(variance + noise) - np.log(variance + np.exp(1.5 * np.sin(x) - 1))
    assert np.sqrt(np.mean(off**2)) < 0.15


def test_a_constant_variance_is_one_level(rng):
    """The level is the mean of e² − v."""
    _, squares = drawn(rng, 2000, lambda x: np.zeros(len(x)), 0.5)
    block = bumps(rng.uniform(-3, 3, 2000))
    found = fit(block, squares, np.full(2000, 0.5))
    assert found.level == overall_level(squares, np.full(2000, 0.5)) == pytest.approx(1.0, abs=0.15)
    assert np.abs(block @ found.weights).max() < 0.5


def test_the_evidence_prefers_the_true_width_and_follows_the_unit(rng):
    x, squares = drawn(rng, 1000, lambda x: 1.5 * np.sin(x))
    nothing = np.zeros(1000)
    right, narrow = (
        fit(bumps(x, 30, width), squares, nothing).log_evidence for width in (1.0, 0.05)
    )
    assert right > narrow + 20
    scaled = fit(bumps(x, 30), 100 * squares, nothing).log_evidence
    assert scaled == pytest.approx(right - 1000 * np.log(10), abs=1e-6)


def test_the_variance_of_a_row_does_not_depend_on_its_error(rng):
    """It depends only on the other folds."""
    x, squares = drawn(rng, 200, np.sin)
    other = squares.copy()
    other[5] *= 100
    before, after = (cross_fitted(bumps(x), each, np.zeros(200)) for each in (squares, other))
    own = np.arange(200) % FOLDS == 5 % FOLDS
    assert_array_equal(before[own], after[own])
    assert (before[~own] != after[~own]).all()


def test_p_values_are_uniform_without_dependence_and_small_with_it(rng):
    """There are 300 samples of 150 rows, with normal and heavy-tailed errors."""
    for draw in (rng.standard_normal, lambda n: rng.standard_t(3, n)):
        found = [
            dependence(bumps(rng.uniform(-3, 3, 150)), draw(150) ** 2, np.zeros(150))
            for _ in range(300)
        ]
        assert kstest(found, "uniform").pvalue > 1e-3
    x, squares = drawn(rng, 150, lambda x: 2 * np.sin(x))
    assert dependence(bumps(x), squares, np.zeros(150)) < 1e-4
    assert dependence(np.ones((150, 1)), squares, np.zeros(150)) == 1.0


def test_the_mode_is_a_maximum(rng):
    x, squares = drawn(rng, 200, np.sin, 0.3)
    block, alpha, variances = bumps(x), rng.uniform(0.5, 3, 9), np.full(200, 0.3)

    def objective(w):
        return -log_likelihood(block @ w, squares, variances) + 0.5 * (alpha * w**2).sum()

    found = _mode(block, squares, variances, np.zeros(9), alpha, block.T @ block)[0]
    assert objective(found) == pytest.approx(minimize(objective, np.zeros(9)).fun, abs=2e-3)
