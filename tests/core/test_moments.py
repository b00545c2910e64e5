"""Moments are compared with NumPy: units, weights, splits of the rows, and the first bad value."""

from functools import reduce
from operator import add

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.random import default_rng
from numpy.testing import assert_allclose, assert_array_equal
from tables import pieces

from partirvm.core import ColumnMoments, Moments

seeds = st.integers(0, 2**32 - 1)


cuts = st.lists(st.integers(0, 60), max_size=5)


@given(seeds, st.integers(1, 60), cuts, st.sampled_from([0.0, 2024.0, 1e9]))
def test_any_split_gives_numpys_mean_and_variance(seed, n, cuts, offset):
    """The variance keeps all digits with an offset of 1e9; there may be weights."""
    values = offset + default_rng(seed).normal(size=(n, 3))
    total = reduce(add, [ColumnMoments.of(values[rows]) for rows in pieces(n, cuts)])
    exact = values.astype(np.longdouble)
    assert total.n == n
    assert (total.total.tolist(), total.missing.tolist()) == ([n] * 3, [0] * 3)
    assert_allclose(total.mean, exact.mean(axis=0).astype(float), rtol=n * 1.2e-16, atol=1e-15)
    assert_allclose(
        total.variance, exact.var(axis=0).astype(float), rtol=1e-12 + 1e-15 * offset, atol=1e-15
    )
    assert_array_equal(total.minimum, values.min(axis=0))
    assert_array_equal(total.maximum, values.max(axis=0))

    # with weights: mean = Σwx/Σw, variance = Σw(x − mean)²/Σw, over the rows of non-zero weight
    rng = default_rng(seed)
    values = rng.normal(size=(n, 2))
    w = rng.choice([0.0, 0.5, 1.0, 7.0], size=n)
    w[0] = 1.0
    total = reduce(add, [ColumnMoments.of(values[rows], w[rows]) for rows in pieces(n, cuts)])
    mean = (w @ values) / w.sum()
    assert total.n == (w > 0).sum()
    assert_allclose(total.total, [w.sum()] * 2, rtol=1e-14)
    assert_allclose(total.mean, mean, rtol=1e-12, atol=1e-14)
    assert_allclose(total.square, w @ (values - mean) ** 2, rtol=1e-11, atol=1e-14)
    assert_array_equal(total.minimum, values[w > 0].min(axis=0))


def test_a_constant_column_has_variance_exactly_zero():
    """In binary, 0.1 is rounded, and so is its mean."""
    moments = reduce(add, [ColumnMoments.of(np.full((n, 1), 0.1)) for n in (3, 7, 1000)])
    assert moments.variance.tolist() == [0.0]


@given(st.sets(st.tuples(st.integers(0, 29), st.integers(0, 3)), max_size=6), cuts)
def test_bad_values_are_counted_and_the_first_is_found(bad, cuts):
    """Bad values are infinite, or NaN in t; the first is by row, then column. Moments are of the
    other rows."""
    rng = default_rng(0)
    values = rng.normal(size=(30, 4))
    for place, (row, column) in enumerate(sorted(bad)):
        values[row, column] = [np.inf, -np.inf, np.nan][place % (2 + (column == 3))]
    parts = [
        Moments.of(values[rows, :3], values[rows, 3:], start=rows.start)
        for rows in pieces(30, cuts)
    ]
    total = reduce(add, parts)
    assert total.bad == len(bad)
    assert total.first_bad == min(bad, default=None)
    good = values[np.isfinite(values).all(axis=1)]
    if len(good):
        assert_allclose(total.inputs.mean, good[:, :3].mean(axis=0), rtol=1e-12, atol=1e-14)
        assert_allclose(total.targets.variance, good[:, 3:].var(axis=0), rtol=1e-12, atol=1e-14)


def test_a_bad_weight_counts_as_the_last_column():
    """Columns are numbered through X, t, and the weights."""
    w = np.array([1.0, 1.0, np.nan])
    moments = Moments.of(np.zeros((3, 2)), np.zeros((3, 1)), w, start=100)
    assert (moments.bad, moments.first_bad) == (1, (102, 3))
    assert moments.inputs.n == 2


@given(seeds, st.integers(1, 40), cuts)
def test_gaps_are_left_out_only_in_their_column(seed, n, cuts):
    """A column without values has mean and variance 0."""
    rng = default_rng(seed)
    values = 5 + rng.normal(size=(n, 3))
    w = rng.choice([0.0, 0.5, 2.0], size=n)
    values[rng.random((n, 3)) < [0.0, 0.4, 1.0]] = np.nan
    w[0] = 1.0
    found = reduce(
        add, [Moments.of(values[rows], w[rows, None], w[rows]) for rows in pieces(n, cuts)]
    )
    assert found.bad == 0
    for column, each in enumerate(values.T):
        there = ~np.isnan(each) & (w > 0)
        total = found.inputs
        assert total.missing[column] == (w > 0).sum() - there.sum()
        mean = np.average(each[there], weights=w[there]) if there.any() else 0.0
        variance = np.average((each[there] - mean) ** 2, weights=w[there]) if there.any() else 0.0
        assert_allclose(
            [total.mean[column], total.variance[column]], [mean, variance], 1e-10, 1e-14
        )
        assert total.minimum[column] == each[there].min(initial=np.inf)
        assert total.maximum[column] == each[there].max(initial=-np.inf)


def test_rows_without_weight_do_not_change_moments(rng):
    values = rng.normal(size=(5, 2))
    moments = ColumnMoments.of(values)
    absent = ColumnMoments.of(values, np.zeros(5))
    assert absent + moments is moments
    assert moments + absent is moments
