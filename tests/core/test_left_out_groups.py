"""Groups that are left out of a fit are compared with refits to the other groups."""

from dataclasses import replace

import naive
import numpy as np
import pytest
from numpy.random import default_rng
from numpy.testing import assert_allclose, assert_array_equal

from partirvm.core import LeftOut
from partirvm.core.groups import (
    MOST_GROUPS,
    MOST_OF_GROUP,
    GroupCounts,
    GroupedRows,
    independent_count,
    standard_error,
)
from partirvm.core.left_out import FEWEST, quantiles
from partirvm.core.left_out_groups import (
    GroupedDesign,
    IndicatorFit,
    TargetFit,
    in_order,
    left_out_classes,
    left_out_groups,
)
from partirvm.core.left_out_together import WIDEST, KnownShare, left_out_together


def grouped_fit(seed, n=60, M=9, n_groups=7, beta=3.0):
    """A random design with row weights, in which three columns have centres in groups."""
    rng = default_rng(seed)
    block = rng.normal(size=(n, M))
    target = block @ rng.normal(size=M) + rng.normal(size=n)
    weights = rng.uniform(0.5, 2.0, size=n)
    alpha = rng.uniform(0.5, 2.0, size=M)
    codes = rng.integers(0, n_groups, size=n) * 1000 - 2000
    owners = np.full(M, -1)
    owners[[2, 5, 7]] = codes[[0, 1, 2]]
    mean, covariance = naive.posterior(block, target[:, None], alpha, beta, weights)
    design = GroupedDesign(
        block,
        GroupedRows(np.arange(n), codes, np.ones(n), np.unique(codes)),
        owners,
        np.array([2, 5, 7]),
        np.full(M, 5.0),
        weights,
        weights,
    )
    fit = TargetFit(target, mean[:, 0], np.linalg.cholesky(covariance), alpha, beta)
    return design, fit


def refitted(design, fit, code, *, with_own):
    """Errors and variances at a group's rows from a dense fit to the other groups."""
    group = design.grouped.codes == code
    columns = np.arange(design.block.shape[1])
    if not with_own:
        columns = columns[design.owners != code]
    block = design.block[:, columns]
    mean, covariance = naive.posterior(
        block[~group],
        fit.target[~group, None],
        fit.alpha[columns],
        fit.beta,
        design.weights[~group],
    )
    rows = block[group]
    return fit.target[group] - rows @ mean[:, 0], np.einsum("nm,mk,nk->n", rows, covariance, rows)


@pytest.mark.parametrize("seed", range(29))
def test_left_out_groups_equal_refits(seed):
    """29 fits of 7 groups: 203 refits, with and without the group's own columns."""
    design, fit = grouped_fit(seed)
    found = left_out_groups(design, fit)
    assert_array_equal(found.rows, np.arange(60))
    for code in np.unique(design.grouped.codes):
        group = design.grouped.codes == code
        for column, with_own in enumerate([True, False]):
            errors, variances = refitted(design, fit, code, with_own=with_own)
            roots = np.sqrt(design.units[group])
            assert_allclose(found.errors[group, column], roots * errors, rtol=1e-8, atol=1e-8)
            assert_allclose(
                found.variances[group, column], roots**2 * variances, rtol=1e-8, atol=1e-8
            )
        assert_array_equal(found.groups[group], code)


@pytest.mark.parametrize("extra", [0, 1, 400])
def test_wide_groups_equal_refits(extra):
    """From one row more than ``WIDEST`` on, the matrix of the columns is factored instead."""
    n = WIDEST + extra
    design, fit = grouped_fit(extra, n=n + 50, n_groups=1)
    codes = np.where(np.arange(n + 50) < n, 5, 6)
    grouped = GroupedRows(np.arange(n + 50), codes, np.ones(n + 50), np.array([5, 6]))
    owners = np.full(9, -1)
    owners[2] = 5
    design = GroupedDesign(
        design.block, grouped, owners, np.array([2]), design.peaks, design.weights, design.units
    )
    found = left_out_groups(design, fit)
    for column, with_own in enumerate([True, False]):
        errors, variances = refitted(design, fit, 5, with_own=with_own)
        roots = np.sqrt(design.units[:n])
        assert_allclose(found.errors[:n, column], roots * errors, rtol=1e-7, atol=1e-7)
        assert_allclose(found.variances[:n, column], roots**2 * variances, rtol=1e-6)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("n_classes", [2, 4])
def test_left_out_classes_equal_refits(seed, n_classes):
    """The predictors of indicators at each group, from refits without the group and its columns."""
    design, fit = grouped_fit(seed)
    codes = default_rng(seed).integers(0, n_classes, 60).astype(float)
    indicators = (codes[:, None] == np.arange(n_classes)).astype(float)
    present = design.weights > 0.6
    weights = np.where(present, design.weights, 0.0)
    mean, covariance = naive.posterior(design.block, indicators, fit.alpha, fit.beta, weights)
    root = np.linalg.cholesky(covariance)
    left_out = left_out_classes(
        replace(design, weights=weights), codes, IndicatorFit(mean, root, fit.alpha, fit.beta)
    )
    assert_array_equal(left_out.codes, codes[present])
    assert_array_equal(left_out.weights, weights[present])
    expected = np.zeros((60, n_classes))
    for code in np.unique(design.grouped.codes):
        group = design.grouped.codes == code
        columns = design.owners != code
        block = design.block[:, columns]
        without, _ = naive.posterior(
            block[~group], indicators[~group], fit.alpha[columns], fit.beta, weights[~group]
        )
        expected[group] = block[group] @ without
    assert_allclose(left_out.f, expected[present], rtol=1e-8, atol=1e-8)


def test_rows_of_random_groups_are_left_out_of_a_sample():
    """Whole groups, as far as their rows belong to the fit; at least two."""
    codes = np.repeat(np.arange(50) * 11, 10)
    grouped = GroupedRows(np.arange(500) * 2, codes, np.ones(500), np.unique(codes))
    fit_rows = np.arange(0, 1000, 4)
    some = grouped.of_fit(fit_rows, 60)
    assert len(some.rows) == 60
    assert len(np.unique(some.codes)) == 12
    assert np.isin(some.rows, fit_rows).all()
    assert len(np.unique(grouped.of_fit(None, 3).codes)) == 2
    assert_array_equal(grouped.of_fit(None, 500).rows, grouped.rows)


def test_a_group_of_which_a_part_is_known_is_left_out_with_its_weight():
    """Every row twice: half of the rows, each of which stands for two, are the whole group."""
    rng = default_rng(0)
    once = rng.normal(size=(20, 5))
    others = rng.normal(size=(30, 5))
    block = np.concatenate([once, once, others])
    target = rng.normal(size=(70, 1))
    target[20:40] = target[:20]
    alpha = rng.uniform(0.5, 2.0, size=5)
    mean, covariance = naive.posterior(block, target, alpha, 2.0)
    without, _ = naive.posterior(others, target[40:], alpha, 2.0)
    found = left_out_together(
        once,
        target[:20] - once @ mean,
        np.full(20, 2.0),
        mean,
        np.linalg.cholesky(covariance),
        known=KnownShare(np.full(20, 2.0), alpha),
    )
    assert_allclose(mean + found.change, without, rtol=1e-7)


def test_an_overestimated_group_leaves_the_prior():
    """If the known rows stand for more information than all rows have, no variance exceeds the
    prior's."""
    rng = default_rng(1)
    block = rng.normal(size=(30, 4))
    target = rng.normal(size=(30, 1))
    alpha = np.full(4, 0.5)
    mean, covariance = naive.posterior(block, target, alpha, 2.0)
    part = block[:10]
    found = left_out_together(
        part,
        target[:10] - part @ mean,
        np.full(10, 2.0),
        mean,
        np.linalg.cholesky(covariance),
        known=KnownShare(np.full(10, 9.0), alpha),
    )
    prior = np.einsum("nm,m,nm->n", part, 1 / alpha, part)
    assert np.all(found.variances[:, 0] <= prior * (1 + 1e-6))
    assert np.all(np.isfinite(found.shifts))


def test_columns_count_as_replaced_by_the_nearest_other_group():
    design, fit = grouped_fit(3)
    found = left_out_groups(design, fit)
    for column in [2, 5, 7]:
        others = design.grouped.codes != design.owners[column]
        expected = np.abs(design.block[others, column]).max() / 5.0
        assert found.nearest[column] == expected
    without_columns = ~np.isin(design.grouped.codes, design.owners[[2, 5, 7]])
    assert_array_equal(found.owner[without_columns], -1)


@pytest.mark.parametrize(("correlation", "expected"), [(0.0, 2000), (0.5, 98), (1.0, 50)])
def test_the_number_of_independent_errors_follows_the_design_effect(correlation, expected):
    """2,000 errors in 50 groups of 40: 2,000/(1 + 39ρ) of them are independent."""
    rng = default_rng(0)
    groups = np.repeat(np.arange(50), 40)
    effects = np.sqrt(correlation) * rng.normal(size=50)[groups]
    counts = [
        independent_count(effects + np.sqrt(1 - correlation) * rng.normal(size=2000), groups)
        for _ in range(20)
    ]
    assert np.median(counts) == pytest.approx(expected, rel=0.25)
    assert independent_count(rng.normal(size=2000), None) == 2000


def test_standard_errors_count_groups():
    """Errors that are equal in a group have the standard error of the groups' means."""
    rng = default_rng(0)
    of_groups = rng.normal(size=50)
    values = np.repeat(of_groups, 40)
    groups = np.repeat(np.arange(50), 40)
    assert standard_error(values, groups) == pytest.approx(of_groups.std() / np.sqrt(50))
    assert standard_error(of_groups) == pytest.approx(of_groups.std() / np.sqrt(50))


def test_few_independent_errors_have_no_quantiles():
    z = np.abs(default_rng(0).normal(size=1000))
    assert quantiles(z, FEWEST - 1) == (0.0, ())
    top, levels = quantiles(z, 40)
    assert top == 0.95
    assert levels[-1] == pytest.approx(np.quantile(z, 0.95 * 41 / 40), rel=0.01)


def test_few_rows_are_all_left_out():
    counts = GroupCounts.of(np.array([3, 3, 1])) + GroupCounts.of(np.array([1, 2]))
    assert_array_equal(counts.codes, [1, 2, 3])
    assert_array_equal(counts.counts, [2, 1, 2])
    drawn = counts.drawn()
    assert drawn.has(np.array([1, 2, 3, 9]), np.arange(4)).tolist() == [True] * 3 + [False]
    grouped = drawn.of_rows(np.arange(5), np.array([3, 3, 1, 1, 2]))
    assert_array_equal(grouped.shares, np.ones(5))
    assert [rows.tolist() for rows in grouped.members()] == [[2, 3], [4], [0, 1]]


def test_many_rows_are_left_out_by_whole_groups():
    """Random groups, all of whose rows are left out, up to the number of rows; of larger groups,
    a random part that stands for all."""
    groups = np.repeat(np.arange(500), 200)
    drawn = GroupCounts.of(groups).drawn(20_000)
    assert len(drawn.codes) == 100
    mask = drawn.has(groups, np.arange(len(groups)))
    assert mask.sum() == 20_000
    large = np.repeat(np.arange(5), 3 * MOST_OF_GROUP)
    drawn = GroupCounts.of(large).drawn(3 * MOST_OF_GROUP)
    mask = drawn.has(large, np.arange(len(large)))
    assert mask.sum() == pytest.approx(3 * MOST_OF_GROUP, rel=0.05)
    rows = np.flatnonzero(mask)
    shares = drawn.of_rows(rows, large[rows]).shares
    assert_allclose(shares, 3.0, rtol=0.1)
    many = GroupCounts.of(np.arange(2 * MOST_GROUPS)).drawn()
    assert len(many.codes) == MOST_GROUPS


@pytest.mark.parametrize(
    ("of_rows", "of_effects", "difference"),
    [(1.0, 0.0, 0.75), (2.0, 0.0, 0.0), (3.0, 0.0, 0.0), (1.0, 1.0, 0.5), (1.0, 3.0, 0.0)],
)
def test_differences_between_groups_have_no_substitutes(of_rows, of_effects, difference):
    """Errors 2 without the group, 4 without its columns; of the change, at least 1 − (r² + v)/2²
    counts, with the variance v of effects, and the rest as far as a column in another group is not
    near."""
    n = 30
    groups = LeftOut(
        np.tile([2.0, 4.0], (n, 1)),
        np.tile([0.0, 1.0], (n, 1)),
        np.zeros(n, dtype=np.int64),
        np.arange(n),
        np.ones((n, 2)),
        nearest=np.array([1.0]),
        groups=np.arange(n) // 3,
    ).without_variances(np.arange(n), np.full(n, of_effects))
    rows = LeftOut(
        np.full((n, 2), of_rows),
        np.zeros((n, 2)),
        np.full(n, -1),
        np.arange(n),
        np.ones((n, 2)),
        nearest=np.zeros(1),
    )
    errors, variances = groups.different_from(rows).expected()
    assert_allclose(errors, 2.0 + 2.0 * difference)
    assert_allclose(variances, difference * max(1.0 - of_effects, 0.0))


@pytest.mark.parametrize("most", [1, 15, 40, 1000])
def test_batches_of_groups_leave_out_the_same(most):
    """Batches are whole groups; with the nearest values of all, errors do not depend on them."""
    design, fit = grouped_fit(4)
    whole = left_out_groups(design, fit)
    parts = []
    batches = design.grouped.batches(most)
    assert_array_equal(np.sort(np.concatenate(batches)), np.arange(60))
    for rows in batches:
        part = replace(
            design,
            block=design.block[rows],
            grouped=design.grouped.take(rows),
            weights=design.weights[rows],
            units=design.units[rows],
        )
        of_rows = replace(fit, target=fit.target[rows])
        parts.append(left_out_groups(part, of_rows, design.nearest()))
    joined = in_order(parts)
    assert_array_equal(joined.rows, whole.rows)
    assert_allclose(joined.errors, whole.errors)
    assert_array_equal(joined.owner, whole.owner)
