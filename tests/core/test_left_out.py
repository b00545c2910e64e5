"""Predictions of left-out rows equal predictions by fits without these rows."""

from dataclasses import replace

import naive
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import t as student

from partirvm.core import Calibration, LeftOut, sampled_rows
from partirvm.core.left_out import OF_ROWS
from partirvm.errors import UsageError
from partirvm.types import LEFT_OUT_ROWS

N = 20
M = 6


@pytest.fixture
def fit(rng):
    """Return a fit with columns centred at row 3 (two of them), rows 7 and 11, and no row (two)."""
    Phi = rng.normal(size=(N, M))
    alpha = rng.uniform(0.1, 3, M)
    beta = 2.5
    own = [(3, np.array([0, 1])), (7, np.array([2])), (11, np.array([4]))]
    return Phi, rng.normal(size=N), alpha, beta, own


def left(errors, variances=0.0):
    """Return rows that are not centres, with these errors and variances."""
    errors = np.repeat(np.asarray(errors, float)[:, None], 2, axis=1)
    n = len(errors)
    variances = np.broadcast_to(np.asarray(variances, float), errors.shape)
    return LeftOut(errors, variances, np.full(n, -1), np.arange(n), np.ones((n, 2)), np.zeros(0))


@pytest.mark.parametrize("weighted", [False, True])
def test_errors_equal_those_of_a_fit_without_the_row(rng, fit, weighted):
    """Error and variance are compared with and without the columns centred at the row."""
    Phi, t, alpha, beta, own = fit
    w = rng.choice([0.0, 0.5, 2.0], N) if weighted else np.ones(N)
    w[[3, 7]] = w.max()
    expected = []
    for n in np.flatnonzero(w):
        others = np.arange(N) != n
        for columns in (np.arange(M), np.setdiff1d(np.arange(M), dict(own).get(n, []))):
            mu, Sigma = naive.posterior(
                Phi[others][:, columns], t[others], alpha[columns], beta, w[others]
            )
            row = Phi[n, columns]
            expected.append((np.sqrt(w[n]) * (t[n] - row @ mu), w[n] * (row @ Sigma @ row)))
    expected = np.array(expected).reshape(-1, 4).T
    mu, Sigma = naive.posterior(Phi, t, alpha, beta, w)
    root = np.linalg.cholesky(Sigma)
    found = LeftOut.of(
        Phi.copy(), t, mu, root, beta, w if weighted else None, own, peaks=np.full(M, 2.0)
    )
    assert_allclose(found.errors.T, expected[[0, 2]], rtol=1e-8)
    assert_allclose(found.variances.T, expected[[1, 3]], rtol=1e-8)
    owner = np.full(N, -1)
    owner[[3, 7, 11]] = [0, 2, 4]
    assert_array_equal(found.owner, owner[w > 0])
    rest = np.abs(Phi)
    rest[[3, 3, 7, 11], [0, 1, 2, 4]] = 0
    assert_allclose(found.nearest, rest[w > 0].max(axis=0) / 2)


def test_panels_add_up_and_noise_factors_scale(fit):
    """Errors scale with √u of a noise factor u, variances with u; ``scaled`` affects named rows
    only."""
    Phi, t, alpha, beta, own = fit
    mu, Sigma = naive.posterior(Phi, t, alpha, beta)
    root = np.linalg.cholesky(Sigma)
    whole = LeftOut.of(Phi.copy(), t, mu, root, beta, None, own)
    parts = LeftOut.of(Phi[:12].copy(), t[:12], mu, root, beta, None, own)
    parts += LeftOut.of(Phi[12:].copy(), t[12:], mu, root, beta, rows=np.arange(12, N))
    assert parts.groups is None
    for name in (*OF_ROWS, "nearest"):
        assert_allclose(getattr(parts, name), getattr(whole, name))
    half = np.full(N, 0.5)
    found = LeftOut.of(Phi.copy(), t, mu, root, beta, None, own, factor=half)
    assert_allclose(found.errors, np.sqrt(0.5) * whole.errors)
    assert_allclose(found.variances, 0.5 * whole.variances)
    scaled = whole.scaled(np.array([2, 7]), np.array([4.0, 9.0]))
    factors = np.ones(N)
    factors[[2, 7]] = 2, 3
    assert_allclose(scaled.errors, factors[:, None] * whole.errors)
    assert_allclose(scaled.variances, factors[:, None] ** 2 * whole.variances)


def test_noise_is_the_mean_squared_error_minus_the_variance():
    """It is at least 1/β, and exceeds 1/β by at most the mean square of the target."""
    errors = np.sqrt([4.0, 6.0] * 10)
    found = left(errors, 2.0).calibration(1.0, 9.0)
    assert (found.noise_variance, found.overconfidence) == pytest.approx((5 - 2, 5 / (2 + 1)))
    assert left(errors, 7.0).calibration(1.0, 9.0).noise_variance == 1.0
    assert left(1e3 * errors, 2.0).calibration(1.0, 9.0).noise_variance == 10.0
    assert left([]).calibration(4.0, 9.0) is None
    # a known mean square of 50 is larger: quantiles are in units of the larger standard deviation
    rows = left(np.arange(1.0, 41.0) / 10, 2.0)
    plain = rows.calibration(1.0, 100.0)
    wide = replace(rows, least_square=50.0).calibration(1.0, 100.0)
    assert wide.noise_variance == 48.0
    assert wide.quantiles == plain.quantiles
    assert replace(rows, least_square=0.5).calibration(1.0, 100.0) == plain
    assert (
        replace(rows, least_square=1e9).calibration(1.0, 100.0).noise_variance
        == plain.noise_variance + 100.0
    )


def test_a_column_with_a_substitute_counts_less():
    """The fraction (1 − ρ²)^⅛ of the change from removing it is counted, and nothing if ρ > 1."""
    errors = np.array([[0.0, 1.0], [0.0, 2.0], [0.0, 3.0]])
    none = np.zeros((3, 2))
    found = LeftOut(errors, none, np.arange(3), np.arange(3), none, np.array([0.6, 1.0, 4.0]))
    assert found.calibration(100.0, 9.0).noise_variance == pytest.approx((0.64**0.125) ** 2 / 3)


def test_extreme_errors_of_centres_are_scaled_down():
    """They are limited to 30 times the root mean square of at least ten other rows."""
    errors = np.repeat([1.0, 1e3], [10, 2])
    owner = np.repeat([-1, 0], [10, 2])
    found = replace(left(errors), owner=owner, nearest=np.zeros(1))
    assert found.calibration(100.0, 1e9).noise_variance == pytest.approx((10 + 2 * 30**2) / 12)
    few = replace(left(errors[1:]), owner=owner[1:], nearest=np.zeros(1))
    assert few.calibration(100.0, 1e9).noise_variance == pytest.approx((9 + 2e6) / 11)
    # ten centres have errors three times as large: all are scaled to the root mean square √5
    z = np.linspace(0.5, 1.5, 10)
    z /= np.sqrt(np.mean(z**2))
    both = np.concatenate([z, 3 * z])
    found = replace(left(both), owner=np.repeat([-1, 0], 10), nearest=np.zeros(1)).calibration(
        1e9, 0.0
    )
    alike = left(np.sqrt(5) * np.concatenate([z, z])).calibration(1e9, 0.0)
    assert_allclose(found.quantiles, alike.quantiles)


@pytest.mark.parametrize("n", [20, 100, 5000])
def test_quantiles_are_order_statistics_of_the_errors(rng, n):
    """The k-th error is at k/(n + 1); quantiles are linear below it, and follow Student's t above
    the last one."""
    z = np.abs(rng.standard_t(3, n))
    found = left(z).calibration(1.0, 0.0)
    z = np.sort(z)
    top = min(0.995, 1 - 10 / n)
    assert found.noise_variance == 1.0
    assert found.top == pytest.approx(top)
    levels = found.top * np.arange(1, 201) / 200
    assert_allclose(
        [found.multiple(level) for level in levels],
        np.interp(levels * (n + 1), range(n + 1), [0, *z]),
    )
    tail = student.ppf(0.9995, n) / student.ppf(0.5 + top / 2, n)
    assert_allclose(found.multiple(0.999) / found.multiple(top), tail)
    levels = np.linspace(0.01, 0.9999, 300)
    assert (np.diff([found.multiple(level) for level in levels]) > 0).all()
    assert found.scale == pytest.approx(found.multiple(0.9) / 1.6448536269514722)


def test_fewer_than_20_rows_use_quantiles_of_students_t():
    found = left(np.ones(19)).calibration(4.0, 9.0)
    assert found.noise_variance == 1.0
    assert found.multiple(0.95) == pytest.approx(student.ppf(0.975, 19))
    with pytest.raises(UsageError, match="level is 1"):
        Calibration(20, 1.0, 1.0, 0.9, (1.0, 2.0)).multiple(1.0)


def test_many_rows_are_sampled():
    """The sample takes one row of each stratum, or consecutive rows if the rows are shuffled."""
    assert sampled_rows(LEFT_OUT_ROWS, shuffled=False) is None
    assert sampled_rows(LEFT_OUT_ROWS, shuffled=True) is None
    last = sampled_rows(7 * LEFT_OUT_ROWS + 3, shuffled=True)
    assert (last[0], last[-1], len(last)) == (
        6 * LEFT_OUT_ROWS + 3,
        7 * LEFT_OUT_ROWS + 2,
        LEFT_OUT_ROWS,
    )
    rows = sampled_rows(7 * LEFT_OUT_ROWS + 3, shuffled=False)
    assert len(rows) == LEFT_OUT_ROWS
    assert (np.diff(rows) > 0).all()
    edges = np.arange(LEFT_OUT_ROWS + 1) * (7 * LEFT_OUT_ROWS + 3) // LEFT_OUT_ROWS
    assert ((edges[:-1] <= rows) & (rows < edges[1:])).all()
    assert len(np.unique((rows - edges[:-1])[:100])) == 7
