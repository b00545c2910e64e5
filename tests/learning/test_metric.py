"""Directions: gradients of the mean, the start of the search, and when directions are used."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.random import default_rng
from numpy.testing import assert_allclose, assert_array_equal
from sampling import Passes, problem_of, sample_of

from partirvm.kernels import (
    Categorical,
    Directions,
    Gaussian,
    Laplacian,
    Matern32,
    Matern52,
    OnColumns,
    Product,
)
from partirvm.learning import SearchEffort, forms, learning_options
from partirvm.learning.forms import DIRECTIONS, EACH, along_directions, learn, turnable
from partirvm.learning.search import begin_stage
from partirvm.likelihoods import SlopePass
from partirvm.likelihoods.passes import InputGradientPass


def ridge(n, d, seed=0, noise=0.1):
    """Return a wave along (1, 1, 0, ...)/√2, invisible in single features, and a trend along (1,
    −1, 0, ...)."""
    rng = default_rng(seed)
    X = rng.normal(size=(n, d))
    y = np.sin(2 * (X[:, 0] + X[:, 1])) + 0.3 * (X[:, 0] - X[:, 1]) + noise * rng.normal(size=n)
    return X, y - y.mean()


def learned(X, y, kernel, metric="auto", passes=None, **hooks):
    """Return the last history line, and the kernel."""
    lines = []
    options = learning_options(len(X), metric=metric)
    with sample_of(X, y, passes=passes, lines=lines, **hooks) as sample:
        found = learn(sample, problem_of(X, y, kernel), options, 0).kernel
    assert found.spec() == lines[-1].kernel
    return lines[-1], found


def test_the_outer_product_equals_that_of_the_gradients_of_the_mean():
    """It is compared with central differences of Φμ, with row weights and two columns of μ."""
    rng = default_rng(1)
    X = rng.normal(size=(30, 3))
    w = rng.choice([0.5, 2.0], size=30)
    mean = rng.normal(size=(6, 2))
    problem = problem_of(X, X[:, 0], Gaussian((0.3, 0.5, 0.1)))
    design = replace(problem.empty.with_centres(X[:5], np.arange(5)), bias=True)
    with sample_of(X, X[:, 0], w, tile_rows=8) as sample:
        (found,) = sample.run(InputGradientPass(design, mean))
    step = 1e-5
    total = 0.0
    for k in range(2):
        slopes = [
            (design.block(X + e) - design.block(X - e)) @ mean[:, k] / (2 * step)
            for e in step * np.eye(3)
        ]
        gradient = np.stack(slopes, axis=1)
        total = total + (w[:, None] * gradient).T @ gradient
    assert_allclose(found, total, rtol=1e-7)


@pytest.mark.parametrize("family", [Gaussian, Matern32, Matern52])
def test_directions_start_at_eigenvectors_with_the_width_of_one_input(family):
    """gamma_i is the family's factor / (d · variance along the direction), in descending order."""
    X, y = ridge(60, 3)
    X *= [1.0, 2.0, 0.5]
    with sample_of(X, y) as sample:
        stage = begin_stage(sample, problem_of(X, y, family(0.7)), learning_options(60), 0)
        stage.evaluate(stage.logs)
        found = forms.directed(stage)
        (outer,) = sample.run(InputGradientPass(stage.design(stage.kernel), stage.best.weights))
    axes = np.linalg.eigh(outer)[1].T[::-1]
    assert_allclose(np.abs(np.array(found.axes) @ axes.T), np.eye(3), atol=1e-10)
    variance = np.array([a @ np.cov(X, rowvar=False) @ a for a in axes])
    assert_allclose(found.kernel.gamma, family.typical_gamma / (3 * variance), rtol=1e-10)
    assert not found.free


def test_only_numeric_columns_get_directions():
    """Kernels of one feature and kernels that are not radial have none."""
    mixed = Product((OnColumns(Gaussian((0.5, 0.1)), (0, 2)), OnColumns(Categorical(0.7), (1,))))
    assert turnable(mixed, 3)
    found = along_directions(mixed, np.diag([1.0, 9.0, 2.0]), lambda old, columns, axes: np.ones(2))
    assert_allclose(np.abs(found.parts[0].kernel.axes), [[0.0, 1.0], [1.0, 0.0]], atol=1e-15)
    assert found.parts[0].columns == (0, 2)
    assert found.parts[1] == mixed.parts[1]
    assert not turnable(Laplacian(0.5), 3)
    assert not turnable(Gaussian(0.5), 46)
    assert not turnable(
        Product((OnColumns(Gaussian(0.5), (0,)), OnColumns(Categorical(0.7), (1,)))), 2
    )


@pytest.mark.usefixtures("default_fits")
def test_a_wave_along_a_diagonal_is_found():
    line, kernel = learned(*ridge(600, 4), Gaussian((0.25,) * 4))
    assert line.choice["form"] == DIRECTIONS
    assert line.choice["directions"] > 0.5 * 4 * 4 * np.log(
        600
    )  # each of 4 × 4 entries gains enough
    first = np.array(kernel.axes[int(np.argmax(kernel.kernel.gamma))])
    assert abs(first @ [0.5**0.5, 0.5**0.5, 0, 0]) > 0.99


@pytest.mark.slow
def test_directions_without_a_gain_are_not_used():
    """The target is a sum of functions of single features."""
    rng = default_rng(3)
    X = rng.normal(size=(500, 3))
    y = np.sin(3 * X[:, 0]) + X[:, 1] ** 2 / 4 + 0.1 * rng.normal(size=500)
    line, kernel = learned(X, y - y.mean(), Gaussian((1 / 3,) * 3))
    assert line.choice["form"] == EACH
    assert isinstance(kernel, Gaussian)


@pytest.mark.slow
def test_free_directions_must_gain_enough_for_each_entry():
    """Above ``free_rows``, entries may change if each gains half a log N; otherwise they are
    fixed."""
    X, y = ridge(500, 3, noise=0.02)
    before, still = learned(X, y, Gaussian((1 / 3,) * 3), "directions")
    effort = SearchEffort(free_rows=100)
    passes = Passes()
    line, kernel = learned(X, y, Gaussian((1 / 3,) * 3), "directions", passes, effort=effort)
    tried = [
        one.design.kernel
        for one in passes.of(SlopePass)
        if isinstance(one.design.kernel, Directions)
    ]
    moved, kept = (
        [np.array(one.axes) for one in tried if one.free is free] for free in (True, False)
    )
    assert any((axes != moved[0]).any() for axes in moved)
    for axes in kept:
        used = axes.any(axis=0)
        assert_array_equal(axes[:, used], kept[0][:, used])
    gain = line.log_evidence - before.log_evidence
    assert not still.free
    assert kernel.free == (gain > 0.5 * 3 * np.log(500))  # the metric has three more parameters
    assert gain >= 0
