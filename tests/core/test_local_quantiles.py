"""Quantiles of standardised errors depend on the standard deviation, and cover on average."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import brentq
from scipy.stats import norm
from scipy.stats import t as student

from partirvm.core import Calibration, LeftOut, LocalQuantiles, QuantileCurves, local_quantiles
from partirvm.errors import UsageError

N = 1000


def normal_scores(n, rng):
    """Return the n quantiles of the standard normal at (k − ½)/n, in random order."""
    return norm.ppf((rng.permutation(n) + 0.5) / n)


def calibration_of(z, deviations, top=0.98):
    """Return a calibration with the quantiles of these errors."""
    local = LocalQuantiles.of(z, deviations, top, 200).calibrated(z, deviations, top)
    return Calibration(len(z), 1.0, 1.0, top, (1.0, 2.0), local)


def ends_of(calibration, level, deviations):
    """Return the lower and upper ends of intervals, in standard deviations."""
    return calibration.curves(np.array([-level, level])).at(deviations)


def coverage(calibration, level, z, deviations):
    """Return whether each error is inside the interval of its standard deviation."""
    lower, upper = ends_of(calibration, level, deviations)
    return (lower <= z) & (z <= upper)


def test_weighted_quantiles_by_hand():
    """Weights 3 and 1 of the values 1 and 3 put them at 3/8 and 7/8 of the distribution."""
    found = local_quantiles.weighted_quantiles(
        np.array([3.0, 1.0]), np.array([1.0, 3.0]), np.array([0.1, 0.5, 0.95])
    )
    assert_allclose(found, [1.0, 1.5, 3.0])


def test_multiples_are_linear_in_the_logarithm_and_follow_the_units():
    """Between s = 1 and 4, half of the way is s = 2. Deviations that are predicted twice as large,
    in units of 1/10, need half of the multiples at 20 s."""
    curves = QuantileCurves(np.log([1.0, 4.0]), np.array([[-1.0, -3.0], [1.0, 5.0]]))
    s = np.array([0.1, 2.0, 9.0, 0.0])
    expected = np.array([[-1.0, -2.0, -3.0, -1.0], [1.0, 3.0, 5.0, 1.0]])
    assert_allclose(curves.at(s), expected)
    assert_allclose(curves.rescaled(10.0, 2.0).at(20 * s), expected / 2)
    constant = QuantileCurves.constant([-2.0, 2.0])
    assert_allclose(constant.at(s), np.repeat([[-2.0], [2.0]], 4, axis=1))
    ends = local_quantiles.ends_at((curves, constant), np.column_stack([s, s]))
    assert ends.shape == (2, 1, 2, 4)
    assert_allclose(ends[:, 0, 0], expected)
    assert local_quantiles.ends_at((constant, constant), np.ones((4, 2))).shape == (2, 1, 2, 1)


def test_a_knot_has_the_quantiles_of_the_weighted_distribution(rng):
    """Errors of small deviations are half as large as stated, others twice: F is a mixture of both
    with the weights of the rows."""
    deviations = np.exp(np.linspace(-1, 1, N))
    ranks = (np.arange(N) + 0.5) / N
    factors = np.where(ranks < 0.5, 0.5, 2.0)
    z = factors * np.concatenate([normal_scores(N // 2, rng), normal_scores(N // 2, rng)])
    local = LocalQuantiles.of(z, deviations, 0.98, 200)
    assert_allclose(np.exp(local.knots[[0, -1]]), deviations[[55, -56]], rtol=2e-3)
    weights = local_quantiles.SHARE + np.exp(
        -0.5 * ((ranks - 0.5 / local_quantiles.KNOTS) / local_quantiles.WIDTH) ** 2
    )
    small = weights[: N // 2].sum() / weights.sum()

    def excess(x, p):
        return small * norm.cdf(x / 0.5) + (1 - small) * norm.cdf(x / 2.0) - p

    found = local.curves(np.array([-0.8, 0.8]) / 0.98).at(deviations[:1])[:, 0]
    expected = [brentq(excess, -9, 9, args=(p,)) for p in (0.1, 0.9)]
    assert_allclose(found, expected, atol=0.03)


@pytest.mark.parametrize("seed", range(3))
def test_intervals_cover_their_level_on_average_and_more_evenly_than_one_quantile(seed):
    """With errors of sd ½ and 2 of the stated one, one quantile of |z| covers all of the first half
    and 2p − 1 of the second half of the rows."""
    rng = np.random.default_rng(seed)
    deviations = rng.permutation(np.exp(np.linspace(-1, 1, N)))
    small = deviations < 1.0
    z = np.where(small, 0.5, 2.0) * rng.standard_normal(N)
    calibration = calibration_of(z, deviations)
    for level in (0.5, 0.8, 0.9, 0.95):
        inside = coverage(calibration, level, z, deviations)
        assert inside.mean() == pytest.approx(level, abs=0.006)
    edge = np.abs(np.log(deviations)) > 0.5
    inside = coverage(calibration, 0.8, z, deviations)
    pooled = np.abs(z) <= np.quantile(np.abs(z), 0.8)
    for rows in (edge & small, edge & ~small):
        assert abs(inside[rows].mean() - 0.8) < 0.75 * abs(pooled[rows].mean() - 0.8)


def test_skewed_errors_have_two_tails(rng):
    """Exponential errors minus 1 have the quantiles −1 − log(1 − p) at every deviation."""
    z = -1.0 - np.log1p(-(rng.permutation(N) + 0.5) / N)
    deviations = np.exp(rng.normal(size=N))
    calibration = calibration_of(z, deviations)
    ends = ends_of(calibration, 0.9, np.exp([-2.0, 0.0, 2.0]))
    assert_allclose(ends[0], -1 - np.log(0.95), atol=0.02)
    assert_allclose(ends[1], -1 - np.log(0.05), atol=0.35)
    assert (z < ends[0].mean()).mean() == pytest.approx(0.05, abs=0.01)
    assert (z > ends[1].mean()).mean() == pytest.approx(0.05, abs=0.01)
    median = calibration.curves(np.zeros(1)).at(np.ones(1))
    assert_allclose(median, np.log(2) - 1, atol=0.05)


def test_quantiles_are_in_order_and_grow_like_students_beyond_the_highest(rng):
    calibration = calibration_of(rng.standard_t(3, size=N), np.exp(rng.normal(size=N)))
    tails = np.linspace(-0.9999, 0.9999, 301)
    s = np.exp(np.linspace(-3, 3, 7))
    assert (np.diff(calibration.curves(tails).at(s), axis=0) >= 0).all()
    top, beyond = calibration.curves(np.array([0.98, 0.999])).at(s)
    ratio = student.ppf(0.9995, N) / student.ppf(0.99, N)
    assert_allclose(beyond / top, ratio)
    with pytest.raises(UsageError, match="level is 1"):
        calibration.curves(np.array([1.0]))


def test_equal_deviations_have_one_knot(rng):
    """Errors of which nothing says the size have the same quantiles everywhere."""
    z = normal_scores(N, rng)
    local = LocalQuantiles.of(z, np.full(N, 2.0), 0.98, 200)
    assert_allclose(local.knots, [np.log(2.0)], atol=5e-4)
    found = local.curves(np.array([-0.8, 0.0, 0.8]) / 0.98).multiples[:, 0]
    assert_allclose(found, norm.ppf([0.1, 0.5, 0.9]), atol=0.01)


def test_errors_of_zero_and_units_of_the_deviation(rng):
    """Without errors, intervals have no width. Deviations in other units move the knots alone."""
    s = np.exp(rng.normal(size=N))
    zeros = np.zeros(N)
    nothing = LocalQuantiles.of(zeros, s, 0.98, 20).calibrated(zeros, s, 0.98)
    assert not nothing.quantiles.any()
    z = rng.normal(size=N)
    plain, scaled = (LocalQuantiles.of(z, factor * s, 0.98, 20) for factor in (1.0, 1024.0))
    assert_allclose(scaled.knots, plain.knots + np.log(1024.0), atol=1.1e-3)
    assert_allclose(scaled.quantiles, plain.quantiles, atol=1e-2)


def left(errors, groups=None, u=1.0):
    """Return rows that are not centres, with errors and no variance of the mean, at weight u."""
    n = len(errors)
    columns = np.repeat((np.sqrt(u) * errors)[:, None], 2, axis=1)
    targets = np.column_stack([np.zeros(n), np.broadcast_to(u, n)])
    none = np.zeros((n, 2))
    rows = np.arange(n)
    return LeftOut(columns, none, np.full(n, -1), rows, targets, np.zeros(0), groups=groups)


def test_few_rows_and_groups_have_one_quantile_of_all(rng):
    """Up to ``FEWEST_LOCAL`` rows, and if groups were left out, intervals are symmetric."""
    errors = rng.normal(size=local_quantiles.FEWEST_LOCAL)
    assert left(errors[1:]).calibration(1.0, 1.0).local is None
    assert left(errors, np.arange(len(errors)) // 4).calibration(1.0, 1.0).local is None
    assert left(errors).calibration(1.0, 1.0).local is not None
    few = Calibration(40, 0.3, 1.1, 0.8, (0.5, 1.5)).curves(np.array([-0.4, 0.4]))
    assert_allclose(few.multiples[:, 0], [-0.5, 0.5])


def test_knots_are_standard_deviations_of_the_rows(rng):
    """At noise variance 1 and weight u, a row's standard deviation is 1/√u; errors keep their
    sign."""
    u = np.exp(rng.normal(size=N))
    errors = (rng.exponential(size=N) - 1.0) / np.sqrt(u)
    calibration = left(errors, u=u).calibration(1.0, 0.0)
    middle = local_quantiles.KNOTS // 2
    assert_allclose(calibration.local.knots[middle], np.median(-0.5 * np.log(u)), atol=1e-3)
    lower, upper = ends_of(calibration, 0.9, np.ones(1))
    assert_allclose([lower, upper], [[-1 - np.log(0.95)], [-1 - np.log(0.05)]], atol=0.4)
