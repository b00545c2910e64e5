"""Several kernels at the same centres: columns, labels, gradients, and equal functions."""

from dataclasses import replace

import naive
import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.metrics.pairwise import laplacian_kernel

from partirvm.kernels import Design, Gaussian, Laplacian, Linear, Several, kernel_from_spec
from partirvm.scaling import Scaling
from partirvm.strategies.fit_rows import fresh

D = 3
THREE = Several((Gaussian(0.4), Laplacian((0.1, 0.0, 2.0)), Linear()))


def made(rng, rows=70):
    """Draw the columns of these rows in any order, as a fit leaves them, and the bias."""
    scaling = Scaling(rng.normal(size=D), rng.uniform(0.5, 2, D), np.zeros(1), np.ones(1))
    empty = Design(THREE, scaling, np.zeros((0, D)), np.zeros(0, np.int64), bias=False)
    design = replace(
        empty.with_centres(rng.normal(size=(rows, D)), 10 + np.arange(rows)), bias=True
    )
    return design.take(rng.permutation(len(design.labels))[: 2 * rows])


def phi(design, X):
    """Return the columns according to the definition."""
    s = design.scaling
    widths = np.array([0.1, 0.0, 2.0])
    points = (X - s.x_shift) / s.x_scale
    centres = (design.centres - s.x_shift) / s.x_scale
    each = [
        naive.gaussian(points, centres, 0.4),
        laplacian_kernel(points * widths, centres * widths, 1.0),
        points @ centres.T,
    ]
    values = np.choose(design.labels % 3, each)
    return np.hstack([np.ones((len(X), 1)), values])


def test_a_row_proposes_a_column_for_each_kernel(rng):
    """Labels are row·K + kernel; the peak of a column is k(z, z)."""
    design = made(rng)
    X = rng.normal(size=(40, D))
    assert_allclose(design.block(X), phi(design, X), rtol=1e-11, atol=1e-12)
    assert_array_equal(design.rows, design.labels // 3)
    assert_array_equal(design.which, design.labels % 3)
    assert_allclose(design.peaks(), np.diagonal(phi(design, design.centres)[:, 1:]), rtol=1e-11)
    assert not THREE.local
    assert Several(THREE.kernels[:2]).local


def test_several_kernels_survive_their_spec():
    """Relevances are sums over kernels, unless a kernel has none."""
    assert kernel_from_spec(THREE.spec()) == THREE
    assert THREE.parameters == ("kernels[0].gamma", *(f"kernels[1].gamma[{j}]" for j in range(3)))
    assert THREE.relevances(3) is None
    assert_allclose(Several(THREE.kernels[:2]).relevances(3), [0.5, 0.4, 2.4])


@given(
    st.lists(st.integers(0, 3), max_size=12), st.lists(st.integers(0, 3), max_size=5), st.booleans()
)
def test_equal_functions_join_only_once(points, present, several):
    """The first column of a kernel joins at each new point, in order."""
    kernel = Several((Gaussian(0.4), Gaussian(1.0))) if several else Gaussian(0.4)
    scaling = Scaling(np.zeros(1), np.ones(1), np.zeros(1), np.ones(1))
    empty = Design(kernel, scaling, np.zeros((0, 1)), np.zeros(0, np.int64), bias=False)
    new, old = (
        empty.with_centres(np.array(each, float).reshape(-1, 1), np.arange(len(each)))
        for each in (points, present)
    )
    old = old.take(np.flatnonzero(old.which == 0))  # another kernel's columns are all missing
    seen = {(0, point) for point in present}
    expected = []
    for label in new.labels.tolist():
        column = (label % (1 + several), points[label // (1 + several)])
        expected += [label] * (column not in seen)
        seen.add(column)
    assert new.labels[fresh(new, old)].tolist() == expected
