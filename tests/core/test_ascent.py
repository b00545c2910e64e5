"""Ascent by L-BFGS climbs within bounds and ends; features are switched off and on again."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.random import default_rng
from numpy.testing import assert_allclose

from partirvm.core import Termination, ascent
from partirvm.core.ascent import (
    HIGHEST,
    LOWEST,
    PROMISE,
    RISE,
    WINDOW,
    ascend,
    awakened,
    off,
    raised,
)


def climbed(function, begin, low=None, high=None, scale=1.0, **limits):
    """Return the reason, the number of evaluations, and all points with their values."""
    points = []
    values = []

    def seen(x):
        value, slopes = function(x)
        points.append(x)
        values.append(value)
        return value, slopes

    low, high = (
        begin + bound if own is None else own for bound, own in ((LOWEST, low), (HIGHEST, high))
    )
    return *ascend(seen, begin, low, high, scale, **limits), points, values


@given(st.lists(st.floats(-3, 3), min_size=1, max_size=5), st.sampled_from([0.3, 1.0]))
def test_ascent_finds_the_peak_of_a_hill(peak, scale):
    """The curvatures differ by a factor of 100."""
    peak = np.array(peak)
    steep = 10.0 ** np.linspace(-1, 1, len(peak))
    reason, count, points, values = climbed(
        lambda x: (-(steep @ (x - peak) ** 2), -2 * steep * (x - peak)),
        np.zeros(len(peak)),
        scale=scale,
    )
    assert reason is Termination.CONVERGED
    assert max(values) > -5 * RISE
    assert count == len(points)


@given(st.integers(0, 2**32 - 1))
def test_bounds_hold_for_any_values_and_slopes(seed):
    """Parameters that begin at −∞ are fixed."""
    rng = default_rng(seed)
    begin = rng.normal(size=4)
    begin[1] = -np.inf
    reason, _, points, _ = climbed(lambda x: (rng.normal(), rng.normal(size=4)), begin)
    assert reason in {Termination.CONVERGED, Termination.ITERATIONS}
    for point in points:
        assert point[1] == -np.inf
        assert ((point >= begin + LOWEST - 1e-12) & (point <= begin + HIGHEST + 1e-12)).all()


def test_a_start_outside_the_bounds_is_moved_inside_them():
    _, _, points, _ = climbed(
        lambda x: (-x @ x, -2 * x), np.array([9.0, 0.5]), np.zeros(2), np.ones(2)
    )
    assert_allclose(points[0], [1.0, 0.5])


def test_ascent_ends_after_small_gains_or_at_the_evaluation_limit():
    """The function is Rosenbrock's valley."""

    def valley(x, size=1.0):
        a = 1 - x[0]
        b = x[1] - x[0] ** 2
        return -size * (a**2 + 100 * b**2), size * np.array([2 * a + 400 * x[0] * b, -200 * b])

    begin = np.array([-1.2, 1.0])
    early = climbed(lambda x: valley(x, 1e-5), begin)
    assert early[0] is Termination.CONVERGED
    assert early[1] <= 5 * (WINDOW + 1)
    limited = climbed(valley, begin, most=5)
    assert limited[0] is Termination.ITERATIONS
    assert limited[1] == 5
    assert max(climbed(valley, begin)[3]) == pytest.approx(0.0, abs=2 * PROMISE)
    assert climbed(valley, begin, low=np.full(2, -np.inf))[:2] == (Termination.CONVERGED, 1)


def test_features_that_are_off_can_be_switched_on_again():
    """Kernels with a gamma per feature each have a largest gamma; revival raises all of them."""
    names = [
        "weights[0]",
        "parts[0].gamma[0]",
        "parts[0].gamma[1]",
        "parts[1].gamma[0]",
        "parts[1].gamma[1]",
    ]
    features = ascent.groups(names)
    logs = np.array([-30.0, 0.0, -8.0, -9.3, -9.5])
    start = np.array([0.0, -1.0, -1.0, -8.0, -np.inf])
    assert off(logs, features).tolist() == [2]
    everyone = np.concatenate(features)
    switched = off(logs, features)
    assert_allclose(
        raised(logs, start, everyone, 1 / 3), [-30, 0, -1 - np.log(3), -8 - np.log(3), -9.5]
    )
    assert_allclose(raised(logs, start, switched, 1 / 10), [-30, 0, -1 - np.log(10), -9.3, -9.5])
    assert_allclose(awakened(logs, features), [-30, 0, np.log(1e-2), -9.3, -9.5])


@pytest.mark.parametrize("steep", [0.0, 1.0, 100.0])
def test_a_parameter_at_its_bound_does_not_stop_the_others(steep):
    """f = k·a − (b − 2)² − (c − b)² with a at its upper bound: b = c = 2."""

    def function(x):
        a, b, c = x
        return steep * a - (b - 2) ** 2 - (c - b) ** 2, np.array(
            [steep, -2 * (b - 2) + 2 * (c - b), -2 * (c - b)]
        )

    points = []
    ascend(
        lambda x: points.append(x) or function(x),
        np.zeros(3),
        np.full(3, -9.0),
        np.array([0.0, 9.0, 9.0]),
    )
    best = max(points, key=lambda x: function(x)[0])
    assert_allclose(best, [best[0], 2.0, 2.0], atol=0.1)
