"""The search for a maximum: parabolas exactly, other functions nearly, and an end where there is no maximum."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from partirvm.likelihoods.pooled import STEPS, Peak


def found(function, step):
    """The last point, and all points of the search."""
    peak, points = Peak(step), []
    while not peak.last:
        points.append(peak.x)
        peak = peak.after(function(peak.x))
    return peak.x, points


@given(top=st.floats(-5, 5), bend=st.floats(0.1, 10), step=st.floats(0.5, 2))
def test_the_vertex_of_a_parabola(top, bend, step):
    """−b(x − x₀)² has its maximum at x₀; no point is evaluated twice."""
    x, points = found(lambda x: -bend * (x - top) ** 2, step)
    assert x == pytest.approx(top, abs=1e-6)
    assert len(set(points)) == len(points) <= abs(top) / step + 4


def test_a_maximum_that_is_no_parabola():
    """x − eˣ⁻¹ is greatest at 1; the vertex is nearer than half a step."""
    x, _ = found(lambda x: x - np.exp(x - 1.0), 1.1)
    assert x == pytest.approx(1.0, abs=0.3)


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_a_function_that_rises_without_end(sign):
    """The search ends after ``STEPS`` steps, at the best point."""
    x, points = found(lambda x: sign * x, 0.5)
    assert x == sign * 0.5 * STEPS
    assert len(points) <= STEPS + 2


def test_a_constant_stays():
    """Nothing rises: the search ends where it began or beside it."""
    assert abs(found(lambda x: 0.0, 1.0)[0]) <= 1.0
