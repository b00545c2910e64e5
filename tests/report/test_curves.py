"""Axes and charts: ticks cover the values, and any numbers make a drawing that is whole."""

from __future__ import annotations

import itertools
import math
import xml.etree.ElementTree as ElementTree

from hypothesis import given
from hypothesis import strategies as st

from partirvm.report.curves import HEIGHT, WIDTH, Chart, Point, Series, draw, linear_axis, magnitude_axis, tick_labels

numbers = st.floats(-1e12, 1e12, allow_subnormal=False).filter(lambda value: not 0 < abs(value) < 1e-9)
values = st.lists(numbers, min_size=1, max_size=20)


@given(values)
def test_ticks_cover_the_values(values):
    for axis in (linear_axis(values), magnitude_axis(values)):
        slack = 1e-6 * (axis.high - axis.low)
        assert axis.low - slack <= min(values)
        assert max(values) <= axis.high + slack
        assert list(axis.ticks) == sorted(set(axis.ticks))
        assert 2 <= len(axis.ticks) <= 11
        assert all(-1e-6 <= axis.share(value) <= 1 + 1e-6 for value in (*values, *axis.ticks))


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=20))
def test_ticks_of_whole_numbers_are_whole(values):
    axis = linear_axis(values, whole=True, tight=True)
    assert all(tick == round(tick) and axis.low <= tick <= axis.high for tick in axis.ticks)
    assert len(axis.ticks) <= 7


@given(values)
def test_labels_of_a_linear_axis_differ(values):
    """Unless the values agree in their first six digits."""
    axis = linear_axis(values)
    if axis.high - axis.low > 1e-4 * max(abs(axis.low), abs(axis.high)):
        labels = tick_labels(axis.ticks)
        assert len(set(labels)) == len(labels)


@given(values, st.booleans(), st.booleans(), st.booleans())
def test_all_that_is_drawn_lies_inside(values, magnitudes, counts, whole):
    points = tuple(Point(float(k), value, f"<{value}>") for k, value in enumerate(values))
    chart = Chart("a <chart>", "x & y", whole=whole, magnitudes=magnitudes, counts=counts, last="last")
    drawing = ElementTree.fromstring(draw(chart, [Series("one", "training", points, ring=True)]))
    marks = [mark for mark in drawing if mark.tag == "circle"]
    assert len(marks) == len(values)
    for mark in marks:
        assert 0 <= float(mark.get("cx")) <= WIDTH
        assert 0 <= float(mark.get("cy")) <= HEIGHT
        assert mark[0].text.startswith("<")


def test_nothing_to_draw_is_nothing():
    """No point at all, or none that is finite."""
    assert draw(Chart("a", "b"), []) == ""
    assert draw(Chart("a", "b"), [Series("one", "training", (Point(1.0, math.nan), Point(2.0, math.inf)))]) == ""


def test_labels_at_the_ends_do_not_meet():
    """Two lines that end at one point: the labels stand one below the other."""
    lines = [Series(name, name, (Point(0.0, 1.0), Point(1.0, 2.0))) for name in ("training", "held-out")]
    drawing = ElementTree.fromstring(draw(Chart("a", "b"), lines))
    heights = sorted(float(text.get("y")) for text in drawing if text.get("class").startswith(("name ", "end ")))
    assert len(heights) == 4
    assert all(b - a >= 13 for a, b in itertools.pairwise(heights))
