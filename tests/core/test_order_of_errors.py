"""Errors of successive rows are compared with those of rows with similar features."""

import numpy as np
import pytest
from by_default import some
from numpy.random import default_rng

from partirvm.core.row_order import LEAST_PAIRS, resemblance

SURE = 4.0
"""Standard errors within which a figure has its expected value."""


def batches(rho, size, n=1200, d=3, seed=0):
    """Rows with random features, whose errors have unit variance, of which batches of successive
    rows share the fraction ρ."""
    rng = default_rng(seed)
    batch = np.arange(n) // size
    shared = rng.standard_normal(batch[-1] + 1)[batch]
    z = np.sqrt(rho) * shared + np.sqrt(1 - rho) * rng.standard_normal(n)
    return rng.uniform(-1, 1, (n, d)), z


@pytest.mark.parametrize(
    ("rho", "size"),
    some(
        [(0.8, 20), (0.5, 20), (0.3, 20), (0.0, 20), (0.8, 5), (0.8, 40), (0.95, 24), (0.6, 12)],
        {(0.8, 20), (0.5, 20), (0.0, 20)},
    ),
)
def test_batches_share_the_fraction_of_the_variance_that_they_were_made_with(rho, size):
    """Of size − 1 in size pairs, both rows are of one batch."""
    found = resemblance(*batches(rho, size))
    assert abs(found.correlation - rho * (1 - 1 / size)) < SURE * found.standard_error
    assert found.standard_error < 0.25


@pytest.mark.parametrize("seed", some(range(8), {0, 1}))
def test_rows_in_random_order_share_nothing(seed):
    points, z = batches(0.8, 20, seed=seed)
    order = default_rng(seed).permutation(len(z))
    found = resemblance(points[order], z[order])
    assert abs(found.correlation) < SURE * found.standard_error


def waves(rows, columns):
    """A grid in row order, and a product of waves with a period of 16 steps."""
    points = np.column_stack(np.divmod(np.arange(rows * columns), columns)).astype(float)
    return points, np.sin(np.pi * points[:, 0] / 8) * np.cos(np.pi * points[:, 1] / 8)


def test_errors_that_are_a_function_of_ordered_features_are_no_groups():
    """Successive rows of the grid have a correlation of cos(2π/16) = .92, and so have rows one
    above the other, which are 80 places apart: the difference is due to the edges alone."""
    points, z = waves(16, 80)
    found = resemblance(points, z)
    assert np.mean(z[:-1] * z[1:]) / np.mean(z**2) == pytest.approx(0.92, abs=0.02)
    assert abs(found.correlation) < 0.05


def test_a_grid_with_short_rows_has_no_controls():
    """Rows one above the other are 36 places apart, and others are less near than the next one."""
    assert resemblance(*waves(36, 36)) is None


def test_rows_in_the_order_of_their_only_feature_have_no_controls():
    """Whatever changes along the table may be due to this feature."""
    time = np.linspace(0, 1, 500)
    assert resemblance(time[:, None], np.sin(20 * time)) is None


def test_groups_show_even_if_the_features_change_slowly_along_the_table():
    """A feature is constant for a day, and the days' errors are not: controls are hours of other
    days with nearly the same feature."""
    rng = default_rng(0)
    day = np.arange(1200) // 24
    hour = rng.uniform(-1, 1, 1200)
    warm = np.round(rng.standard_normal(50), 1)[day]
    z = rng.standard_normal(50)[day] + 0.5 * rng.standard_normal(1200)
    found = resemblance(np.column_stack([hour, warm]), z)
    assert found.correlation - 2 * found.standard_error > 0.41


def test_scale_and_shift_of_features_and_the_scale_of_errors_have_no_effect():
    points, z = batches(0.8, 20)
    expected = resemblance(points, z).correlation
    assert resemblance(1e-3 * points + 7, -50 * z).correlation == pytest.approx(expected)


@pytest.mark.parametrize(
    ("points", "z"),
    [
        (np.zeros((LEAST_PAIRS, 1)), np.arange(LEAST_PAIRS)),
        (np.zeros((200, 2)), np.zeros(200)),
    ],
)
def test_few_rows_or_no_errors_say_nothing(points, z):
    assert resemblance(points, z) is None
