"""The search by signs of slopes: it climbs, remembers the best, keeps bounds, ends; and features off and on again."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from partirvm.core import rprop
from partirvm.core.rprop import HIGHEST, LOWEST, MOST_ROUNDS, WINDOW, advance, again, begin, off, raised
from partirvm.core.termination import Termination

ROWS = 1000


def climb(value, slope, search, most=400):
    """Search until it is over: the search, the reason, and all the points that it looked at."""
    points = []
    for _ in range(most):
        points.append(search.logs)
        search, reason = advance(search, value(search.logs), slope(search.logs), ROWS)
        if reason is not None:
            return search, reason, points
    raise AssertionError("it does not end")


@given(st.lists(st.floats(-3, 3), min_size=1, max_size=5))
def test_it_finds_the_peak_of_a_hill(peak):
    """Steeper in some directions than in others by a factor of 10,000."""
    peak = np.array(peak)
    steep = 10.0 ** np.linspace(0, 4, len(peak))
    search, reason, points = climb(
        lambda x: -(steep @ (x - peak) ** 2), lambda x: -2 * steep * (x - peak), begin(np.zeros(len(peak)))
    )
    assert reason is Termination.CONVERGED
    assert search.peak > -RISE_OF_ALL
    assert len(points) == len(search.values) > WINDOW


RISE_OF_ALL = 5 * rprop.RISE * ROWS
"""Nats that a search may leave undone at its end."""


@given(st.integers(0, 2**32 - 1))
def test_whatever_it_is_told_the_best_is_the_best_and_bounds_hold(seed):
    """Random values and slopes: the answer is the point of the largest value; nothing leaves the bounds."""
    rng = np.random.default_rng(seed)
    start = rng.normal(size=4)
    start[1] = -np.inf
    values = iter(rng.normal(size=MOST_ROUNDS + 1) * 1000)
    search, reason, points = climb(lambda x: next(values), lambda x: rng.normal(size=4), begin(start))
    best = int(np.argmax(search.values))
    assert search.peak == max(search.values)
    np.testing.assert_array_equal(search.best, points[best])
    assert reason in {Termination.CONVERGED, Termination.ITERATIONS}
    for point in points:
        assert point[1] == -np.inf
        assert ((point >= start + LOWEST) & (point <= start + HIGHEST)).all()


def test_steps_grow_with_one_sign_and_halve_with_a_change():
    """iRprop⁻: ×1.2; ×½ and a round of rest; the size of a slope does not count."""
    search = begin(np.zeros(2), step=0.2)
    search, _ = advance(search, 0.0, np.array([1.0, -1e9]), ROWS)
    np.testing.assert_allclose(search.logs, [0.2, -0.2])
    search, _ = advance(search, 0.0, np.array([1e-9, -1.0]), ROWS)
    np.testing.assert_allclose(search.logs, [0.44, -0.44])
    search, _ = advance(search, 0.0, np.array([-5.0, -1.0]), ROWS)
    np.testing.assert_allclose(search.logs, [0.44, -0.44 - 0.288])
    search, _ = advance(search, 0.0, np.array([-5.0, -1.0]), ROWS)
    np.testing.assert_allclose(search.logs[0], 0.44 - 0.12)


def test_features_off_come_back_where_they_are_given_another_chance():
    """Of two kernels with a gamma per feature each has a largest; revival raises all of them, growth those off."""
    names = ["weights[0]", "parts[0].gamma[0]", "parts[0].gamma[1]", "parts[1].gamma[0]", "parts[1].gamma[1]"]
    features = rprop.groups(names)
    logs = np.array([-30.0, 0.0, -8.0, -9.3, -9.5])
    assert off(logs, features).tolist() == [2]
    search, _ = advance(begin(np.array([0.0, -1.0, -1.0, -8.0, -np.inf]), logs), 1.0, np.zeros(5), ROWS)
    everyone, switched = np.concatenate(features), off(search.best, features)
    np.testing.assert_allclose(raised(search, everyone, 1 / 3), [-30, 0, -1 - np.log(3), -8 - np.log(3), -9.5])
    np.testing.assert_allclose(raised(search, switched, 1 / 10), [-30, 0, -1 - np.log(10), -9.3, -9.5])
    later = again(search, raised(search, switched, 1 / 10), 0.1)
    assert (later.peak, later.values) == (1.0, ())
    worse, _ = advance(later, 0.5, np.zeros(5), ROWS)
    assert worse.values[-1] < worse.peak
    np.testing.assert_array_equal(worse.best, logs)
