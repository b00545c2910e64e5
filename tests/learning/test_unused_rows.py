"""Rows from which nothing was learned, predicted from all others by an exact process."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sampling import arm, problem_of, sample_of

from partirvm.kernels import Anova, Gaussian
from partirvm.learning import ProcessFit, ProcessRows, SearchSettings, learning_options
from partirvm.learning.process_steps import in_order
from partirvm.learning.regression_search import RegressionSearch
from partirvm.learning.unused_rows import UnusedRows, left_out_moments

FIT = ProcessFit(Anova((0.4, 0.2), (0.5, 2.0)), np.log(1.5), np.log(0.3))


def rows_of(n=24, targets=1):
    """Return the rows of a process with this number of targets."""
    X, y = arm(n, 2)
    y = y if targets == 1 else np.column_stack([y, np.cos(X[:, 0])])
    with sample_of(X, y) as sample:
        return ProcessRows.of(sample, problem_of(X, y), np.arange(n))


@pytest.mark.parametrize("groups", [None, np.arange(24) // 5, np.zeros(24, dtype=int)])
@pytest.mark.parametrize("targets", [1, 2])
def test_left_out_rows_have_the_moments_of_the_other_rows_process(groups, targets):
    """Each row, or each group of rows, is predicted by the normal distribution given the others; a
    single group by that without any others."""
    rows = rows_of(targets=targets)
    values = FIT.kernel.values(rows.X, rows.X)
    K = np.exp(FIT.signal) * values + rows.columns @ rows.columns.T + 0.3 * np.eye(24)
    errors, variances = left_out_moments(np.linalg.inv(K), rows.t, groups)
    codes = np.arange(24) if groups is None else groups
    for i in range(24):
        known = codes != codes[i]
        weights = np.linalg.solve(K[np.ix_(known, known)], K[known, i])
        assert_allclose(errors[i], rows.t[i] - weights @ rows.t[known], rtol=1e-6, atol=1e-9)
        assert variances[i] == pytest.approx(K[i, i] - weights @ K[known, i], rel=1e-6)


def test_losses_are_those_of_new_rows_with_one_factor_of_all_variances():
    """With the factor, the mean of squared errors ÷ variances is 1, so that the mean loss is half
    of 1 + the mean of log 2πv."""
    rows = rows_of()
    is_new = np.arange(24) % 3 == 0
    losses = UnusedRows(rows, is_new).losses(FIT)
    values = FIT.kernel.values(rows.X, rows.X)
    K = np.exp(FIT.signal) * values + rows.columns @ rows.columns.T + 0.3 * np.eye(24)
    errors, variances = (part[is_new] for part in left_out_moments(np.linalg.inv(K), rows.t))
    assert_allclose(losses.squares, errors[:, 0] ** 2, rtol=1e-6)
    factor = (losses.squares / variances).mean()
    expected = 0.5 * (1 + np.log(2 * np.pi * factor * variances).mean())
    assert losses.losses.mean() == pytest.approx(expected, rel=1e-6)


def test_an_indefinite_covariance_has_infinite_losses():
    rows = rows_of()
    fit = ProcessFit(Gaussian(1e-9), 300.0, -300.0)
    losses = UnusedRows(rows, np.arange(24) < 6).losses(fit)
    assert losses.squares.tolist() == losses.losses.tolist() == [np.inf] * 6


@pytest.mark.parametrize(("n", "most"), [(60, 40), (60, 60), (1300, 400)])
@pytest.mark.parametrize("n_groups", [0, 12])
def test_new_rows_have_no_groups_of_the_rows_learned_from(n, most, n_groups):
    """Three quarters of the rows are learned from at most; up to 1,000 rows are compared."""
    X, y = arm(n, 2)
    groups = np.arange(n) % n_groups if n_groups else None
    settings = SearchSettings(learning_options(n), seed=0, columns=n)
    with sample_of(X, y, groups=groups) as sample:
        order = in_order(sample, 0)
        run = RegressionSearch(sample, problem_of(X, y), settings, order, most, {})
        unused = run.unused()
        taught = run.rows(run.taught)
    assert len(taught.X) == min(most, 3 * n // 4)
    assert len(unused.rows.X) == min(n, 1000)
    assert unused.is_new.any()
    assert not (unused.new.X[:, None] == taught.X).all(axis=2).any()
    if groups is None:
        assert unused.is_new.sum() == len(unused.rows.X) - len(taught.X)
        assert unused.new_groups is None
        return
    places = (unused.rows.X[:, None] == taught.X).all(axis=2).any(axis=1)
    assert not set(unused.groups[places]) & set(unused.new_groups)
