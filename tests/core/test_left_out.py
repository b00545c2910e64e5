"""Rows left out, against fits without them."""

from __future__ import annotations

from dataclasses import astuple

import naive
import numpy as np
import pytest

from partirvm.core.left_out import LeftOut

N, M = 20, 6


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
    kept = square = stated = 0.0
    for n in np.flatnonzero(w):
        columns = np.setdiff1d(np.arange(M), dict(own).get(n, []))
        others = np.arange(N) != n
        mu, _ = naive.posterior(Phi[others], t[others], alpha, beta, w[others])
        kept += w[n] * (t[n] - Phi[n] @ mu) ** 2
        mu, Sigma = naive.posterior(Phi[others][:, columns], t[others], alpha[columns], beta, w[others])
        row = Phi[n, columns]
        square += w[n] * (t[n] - row @ mu) ** 2
        stated += w[n] * (1 / (beta * w[n]) + row @ Sigma @ row)
    mu, Sigma = naive.posterior(Phi, t, alpha, beta, w)
    found = LeftOut.of(Phi, t, mu, np.linalg.cholesky(Sigma), beta, w if weighted else None, own)
    np.testing.assert_allclose(astuple(found), [(w > 0).sum(), kept, square, stated], rtol=1e-9)


def test_sums_are_those_of_the_parts(fit):
    """Rows in two panels add up to the whole; nobody's own columns are at home in the second."""
    Phi, t, alpha, beta, own = fit
    mu, Sigma = naive.posterior(Phi, t, alpha, beta)
    root = np.linalg.cholesky(Sigma)
    whole = LeftOut.of(Phi, t, mu, root, beta, None, own)
    parts = LeftOut.of(Phi[:12], t[:12], mu, root, beta, None, own) + LeftOut.of(Phi[12:], t[12:], mu, root, beta)
    np.testing.assert_allclose(astuple(parts), astuple(whole))


def test_noise_is_what_the_errors_have_beyond_the_weights():
    """σ² + mean e² − mean v; never below 1/β, nor above that by more than the target's mean square."""
    assert LeftOut(10, 0.0, 50.0, 20.0).noise_variance(1.0, 9.0) == pytest.approx(1 + 5 - 2)
    assert LeftOut(10, 50.0, 0.0, 20.0).overconfidence == pytest.approx(2.5)
    assert LeftOut(10, 0.0, 15.0, 20.0).noise_variance(1.0, 9.0) == 1.0
    assert LeftOut(10, 0.0, 1e6, 20.0).noise_variance(1.0, 9.0) == 10.0
    assert LeftOut(0, 0.0, 0.0, 0.0).noise_variance(4.0, 9.0) == 0.25


def test_a_kernel_that_sees_single_rows_only():
    """Φ = I: the error of a row left out is its target, with its column or without, and 1/β is what is stated."""
    t, beta, alpha = np.array([1.0, -2.0, 0.5]), 1e8, 1.0
    variance = 1 / (beta + alpha)
    own = [(n, np.array([n])) for n in range(3)]
    found = LeftOut.of(np.eye(3), t, beta * variance * t, np.sqrt(variance) * np.eye(3), beta, None, own)
    np.testing.assert_allclose([found.kept, found.square, found.stated], [t @ t, t @ t, 3 / beta], rtol=1e-6)
