"""Rows left out, against fits without them."""

from __future__ import annotations

from dataclasses import astuple

import naive
import numpy as np
import pytest
from scipy.stats import t as student

from partirvm.core.left_out import OCTAVE, REACH, LeftOut, Spread
from partirvm.errors import UsageError

N, M = 20, 6
NOBODY = np.zeros(2 * OCTAVE * REACH, np.int64)


@pytest.fixture
def fit(rng):
    """Columns whose centres are rows: 0 and 1 both of row 3, 2 of row 7, 4 of row 11; the others of none."""
    Phi, alpha, beta = rng.normal(size=(N, M)), rng.uniform(0.1, 3, M), 2.5
    own = [(3, np.array([0, 1])), (7, np.array([2])), (11, np.array([4]))]
    return Phi, rng.normal(size=N), alpha, beta, own


@pytest.mark.parametrize("weighted", [False, True])
def test_errors_are_those_of_a_fit_without_the_row_and_its_columns(rng, fit, weighted):
    """Mean and variance of row n from the posterior of the other rows, with and without the columns of its own."""
    Phi, t, alpha, beta, own = fit
    w = rng.choice([0.0, 0.5, 2.0], N) if weighted else np.ones(N)
    w[[3, 7]] = w.max()
    errors, variances = [], []
    for n in np.flatnonzero(w):
        columns = np.setdiff1d(np.arange(M), dict(own).get(n, []))
        others = np.arange(N) != n
        mu, _ = naive.posterior(Phi[others], t[others], alpha, beta, w[others])
        errors.append(t[n] - Phi[n] @ mu)
        _, Sigma = naive.posterior(Phi[others][:, columns], t[others], alpha[columns], beta, w[others])
        row = Phi[n, columns]
        variances.append(1 / (beta * w[n]) + row @ Sigma @ row)
    mu, Sigma = naive.posterior(Phi, t, alpha, beta, w)
    found = LeftOut.of(Phi, t, mu, np.linalg.cholesky(Sigma), beta, w if weighted else None, own)
    errors, variances, there = np.array(errors), np.array(variances), w[w > 0]
    sums = [len(there), there @ errors**2, there @ variances]
    np.testing.assert_allclose([found.n, found.square, found.stated], sums, rtol=1e-9)
    z = np.sort(np.abs(errors) / np.sqrt(variances))
    edges = 2.0 ** (np.arange(2 * OCTAVE * REACH + 1) / OCTAVE - REACH)
    np.testing.assert_array_equal(found.counts, np.histogram(z, edges)[0])


def test_sums_are_those_of_the_parts(fit):
    """Rows in two panels add up to the whole; nobody's own columns are at home in the second."""
    Phi, t, alpha, beta, own = fit
    mu, Sigma = naive.posterior(Phi, t, alpha, beta)
    root = np.linalg.cholesky(Sigma)
    whole = LeftOut.of(Phi, t, mu, root, beta, None, own)
    parts = LeftOut.of(Phi[:12], t[:12], mu, root, beta, None, own) + LeftOut.of(Phi[12:], t[12:], mu, root, beta)
    for mine, theirs in zip(astuple(parts), astuple(whole), strict=True):
        np.testing.assert_allclose(mine, theirs)


def test_noise_is_what_the_errors_have_beyond_the_weights():
    """σ² + mean e² − mean v; never below 1/β, nor above that by more than the target's mean square."""
    assert LeftOut(10, 50.0, 20.0, NOBODY).noise_variance(1.0, 9.0) == pytest.approx(1 + 5 - 2)
    assert LeftOut(10, 50.0, 20.0, NOBODY).overconfidence == pytest.approx(2.5)
    assert LeftOut(10, 15.0, 20.0, NOBODY).noise_variance(1.0, 9.0) == 1.0
    assert LeftOut(10, 1e6, 20.0, NOBODY).noise_variance(1.0, 9.0) == 10.0
    assert LeftOut(0, 0.0, 0.0, NOBODY).noise_variance(4.0, 9.0) == 0.25


@pytest.mark.parametrize("n", [20, 100, 5000])
def test_a_spread_has_the_order_statistics_of_the_errors(rng, n):
    """At k/(n + 1) the k-th error, to the width of a bin, × 1 + 1.5·M/n; beyond the tenth last the tail of Student's t;
    half of it all at half the level is the median, not half of anything."""
    z = np.abs(rng.standard_t(3, n))
    block = np.zeros((n, 1))
    found = LeftOut.of(block, z / np.sqrt(2.5), np.zeros(1), np.eye(1), 2.5).spread(8)
    z = np.sort(z) * (1 + 1.5 * 8 / n)
    top = min(0.995, 1 - 10 / n)
    assert found.top == pytest.approx(top)
    ranks = np.unique(np.linspace(1, top * (n + 1), 12).astype(int))[1:]
    between = [(z[max(k - 2, 0)], z[min(k, n - 1)]) for k in ranks]
    for k, (low, high) in zip(ranks, between, strict=True):
        assert low * 0.98 <= found.at(k / (n + 1), np.inf) <= high * 1.02
    last = found.at(top, np.inf)
    np.testing.assert_allclose(found.at(0.999, 7.0) / last, student.ppf(0.9995, 7) / student.ppf(0.5 + top / 2, 7))
    levels = np.linspace(0.01, 0.9999, 300)
    assert (np.diff([found.at(level, 7.0) for level in levels]) > 0).all()


def test_a_spread_needs_rows_and_bounds_what_it_counts():
    """Nineteen rows tell none; errors of 0 and of 10⁹ standard deviations are in the first and the last bin."""
    none = np.zeros((19, 0))
    assert LeftOut.of(none, np.ones(19), np.zeros(0), np.zeros((0, 0)), 1.0).spread(0) is None
    odd = LeftOut.of(np.zeros((2, 0)), np.array([0.0, 1e9]), np.zeros(0), np.zeros((0, 0)), 1.0)
    assert (odd.counts[0], odd.counts[-1], odd.counts.sum()) == (1, 1, 2)
    with pytest.raises(UsageError, match="level is 1"):
        Spread(0.9, (1.0, 2.0)).at(1.0, np.inf)


def test_a_kernel_that_sees_single_rows_only():
    """Φ = I: the error of a row left out is its target, with its column or without, and 1/β is what is stated."""
    t, beta, alpha = np.array([1.0, -2.0, 0.5]), 1e8, 1.0
    variance = 1 / (beta + alpha)
    own = [(n, np.array([n])) for n in range(3)]
    found = LeftOut.of(np.eye(3), t, beta * variance * t, np.sqrt(variance) * np.eye(3), beta, None, own)
    np.testing.assert_allclose([found.square, found.stated], [t @ t, 3 / beta], rtol=1e-6)
