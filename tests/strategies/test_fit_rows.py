"""The rows that a fit uses and searches, their classes, and the columns that join it."""

from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import naive
import numpy as np
import pytest
from by_default import some
from fits import statistics_of
from hypothesis import given
from hypothesis import strategies as st
from numpy.random import default_rng
from numpy.testing import assert_allclose, assert_array_equal
from simulator import Simulator, wave

from partirvm.core import GramBlock, HyperState, Purpose
from partirvm.likelihoods import (
    GAUSSIAN,
    ErrorPass,
    GaussianLikelihood,
    GramPass,
    LeaveOneOutPass,
    ResidualPass,
    Solve,
    gaussian,
)
from partirvm.spec import Options, Solved
from partirvm.strategies.fit_rows import SPAN, drawn_rows, quotas, ranked, stratified_partition

PARTITIONED = ["split-merge", "incremental", "working-set"]


@pytest.mark.parametrize(
    ("name", "shuffled"),
    some(product(PARTITIONED, [True, False]), {("split-merge", False), ("incremental", True)}),
)
def test_a_sample_is_the_same_for_every_intermediate_fit(name, shuffled):
    """The last fit uses all rows."""
    simulator = Simulator(*wave(150, noise=0.3), shuffled=shuffled)
    simulator.run(name, Options(20, "random", "sample", sample_rows=60, max_rounds=4))
    passes = simulator.passes(GramPass)
    rows = passes[0].rows
    assert len(np.unique(rows)) == 60
    for pass_ in passes[:-1]:
        assert_array_equal(pass_.rows, rows)
    assert passes[-1].rows is None
    assert simulator.passes(Solve)[-1].start.statistics.n == 150
    assert all(solve.start.statistics.n == 60 for solve in simulator.passes(Solve)[:-1])


@pytest.mark.parametrize("name", PARTITIONED)
def test_a_centre_far_from_all_sampled_rows_is_pruned(name):
    """Its column is zero there."""
    X, y = wave(300, noise=0.3)
    X[250] = 1e3
    simulator = Simulator(X, y)
    simulator.run(name, Options(50, "random", "sample", sample_rows=100))
    assert 250 in simulator.candidates()
    for solve, answer in zip(simulator.passes(Solve), simulator.heard_of(Solved), strict=True):
        if solve.start.statistics.n == 100 and 250 in solve.start.statistics.labels:
            assert 250 not in answer.fit.statistics.labels


@pytest.mark.parametrize(("selection", "share"), [("largest-error", 1.0), ("error", 20 * 6 / 400)])
def test_candidates_are_the_largest_errors_of_searched_rows(selection, share):
    """``error`` searches 20·P rows, ``largest-error`` searches all (Ben-Shimon & Shmilovici
    2006)."""
    rng = default_rng(2)
    X = rng.uniform(-3, 3, (400, 2))
    simulator = Simulator(X, np.sin(2 * X[:, 0]) * X[:, 1] + 0.1 * rng.normal(size=400))
    simulator.run("working-set", Options(partition_size=6, selection=selection, max_rounds=5))
    searches = 0
    for turn, answer in zip(simulator.turns, simulator.answers, strict=False):
        pass_ = turn[0]
        if not isinstance(pass_, ErrorPass):
            continue
        searched = simulator.sampled(pass_)
        assert searched.mean() == pytest.approx(share)
        error = np.abs(simulator.t[:, 0] - simulator.phi(pass_.design) @ pass_.mean[:, 0])
        free = [row for row in np.argsort(-error) if searched[row] and row not in pass_.exclude]
        found = answer[0].rows.tolist()
        assert sorted(found) == sorted(free[:6])
        searches += 1
    assert searches >= 3


@pytest.mark.parametrize("new_rows", [[7], [7, 11, 2], [40, 41]])
def test_joining_columns_are_marked_and_others_keep_their_alpha(new_rows):
    """The statistics equal the dense ones."""
    simulator = Simulator(*wave(60))
    kept_rows = np.array([9, 3, 30])
    alpha = np.array([1e-3, 2.0, 0.5])
    new_rows = np.array(new_rows)
    kept = simulator.empty.with_centres(simulator.X[kept_rows], kept_rows)
    new = simulator.empty.with_centres(simulator.X[new_rows], new_rows)
    Phi = simulator.phi(kept)
    added = simulator.phi(new)
    t = simulator.t
    statistics = statistics_of(Phi, t, labels=kept.labels)
    before = HyperState(statistics, alpha, 50.0, target_variance=1.0, iteration=3)
    fit = GAUSSIAN.join(simulator.problem, before, kept, new, GramBlock.of(Phi, added, t))
    labels = fit.statistics.labels
    assert sorted(labels) == sorted([*kept_rows, *new_rows])
    assert fit.entered.tolist() == [label in new_rows for label in labels]
    alphas = dict(zip(labels, fit.alpha, strict=True))
    assert [alphas[row] for row in kept_rows] == alpha.tolist()
    design = naive.gaussian(simulator.X, simulator.X[labels], simulator.gamma)
    assert_allclose(fit.statistics.gram, design.T @ design, rtol=1e-9, atol=1e-9)


def last_passes(simulator):
    """Return the kinds of the passes after the last fit."""
    return [type(pass_) for pass_ in simulator.turns[-2]]


class FewLeftOutRows(GaussianLikelihood):
    """The likelihood, which leaves out at most 399 rows."""

    left_out_rows = 399


class SomeLeftOut(Simulator):
    """A simulator in which fewer rows are left out than there are."""

    @property
    def problem(self):
        return replace(super().problem, likelihood=FewLeftOutRows())


def test_precise_statistics_do_not_need_a_residual_pass():
    """σ² is MacKay's estimate from the residuals of all rows."""
    simulator = SomeLeftOut(*wave(400, noise=0.3), gamma=0.5)
    simulator.run("working-set", Options(20, "random", max_rounds=3))
    assert last_passes(simulator) == [LeaveOneOutPass]
    design = simulator.saves[-1].design
    fit = simulator.saves[-1].fit
    mean = fit.posterior.means[:, 0]
    residual = np.sum((simulator.t[:, 0] - simulator.phi(design) @ mean) ** 2)
    assert fit.posterior.residual == pytest.approx(residual, rel=1e-8)
    free = 400 - fit.posterior.determinedness.sum()
    assert 1 / fit.beta == pytest.approx(residual / free, rel=1e-3)


def test_imprecise_statistics_need_a_residual_pass():
    """Without noise the residual is as small as its rounding error."""
    rng = default_rng(0)
    X = rng.uniform(-1, 1, size=(400, 1))
    simulator = SomeLeftOut(X, np.sin(2 * X[:, 0]), gamma=0.5)
    simulator.run("working-set", Options(20, "random", max_rounds=3))
    (solved,) = simulator.answers[-3]
    found = solved.fit.posterior
    assert found.rounding > gaussian.PRECISE * found.residual
    assert last_passes(simulator) == [LeaveOneOutPass, ResidualPass]


def drawn(codes, n_classes, used, count, *, shuffled, numbers=False, **options):
    """Return rows drawn in a problem with these classes, or in a regression with as many rows."""
    problem = SimpleNamespace(n_classes=n_classes, shuffled=shuffled, n_rows=len(codes))
    problem.codes = None if numbers else codes
    return drawn_rows(problem, used, count, **options)


@st.composite
def classes(draw):
    """Draw codes (N,) of K classes in any order; classes may be rare or empty."""
    K = draw(st.integers(1, 6))
    sizes = draw(st.lists(st.sampled_from([0, 1, 2, 5, 30]), min_size=K, max_size=K).filter(sum))
    codes = np.repeat(np.arange(K), sizes).astype(np.int8)
    if draw(st.booleans()):
        default_rng(draw(st.integers(0, 9))).shuffle(codes)
    return codes, K


@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=8),
    st.integers(0, 120),
    st.sampled_from([0.0, 0.5, 1.0]),
    st.integers(0, 5),
)
def test_quotas_respect_class_sizes_and_minimums(sizes, count, even, least):
    """Their sum is the number of rows requested or available."""
    sizes = np.array(sizes)
    found = quotas(sizes, count, even, least)
    assert found.sum() == min(count, sizes.sum())
    assert ((found >= 0) & (found <= sizes)).all()
    if np.minimum(sizes, least).sum() <= count:
        assert (found >= np.minimum(sizes, least)).all()
    elif least == 1:
        assert found.max() == 1


@given(st.lists(st.integers(1, 400), min_size=2, max_size=6), st.integers(1, 200))
def test_quotas_are_proportional(sizes, count):
    """They differ from the exact proportions by at most one row."""
    sizes = np.array(sizes)
    count = min(count, int(sizes.sum()))
    assert (np.abs(quotas(sizes, count, 0.0, 0) - count * sizes / sizes.sum()) <= 1).all()


OPTIONS = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 5),
        "draw": st.integers(0, 4),
        "shuffled": st.booleans(),
        "numbers": st.booleans(),
        "purpose": st.sampled_from([Purpose.SAMPLE, Purpose.CANDIDATES]),
    }
)


@given(classes(), st.integers(0, 60), OPTIONS, st.data())
def test_drawn_rows_are_unused_and_from_all_classes(problem, count, options, data):
    """They are increasing, as many as requested or left, and equal for equal seeds."""
    codes, K = problem
    used = np.array(sorted(data.draw(st.sets(st.integers(0, len(codes) - 1)))), dtype=np.int64)
    rows = drawn(codes, K, used, count, **options)
    left = np.setdiff1d(np.arange(len(codes)), used)
    assert len(rows) == min(count, len(left))
    assert (np.diff(rows) > 0).all()
    assert np.isin(rows, left).all()
    there = set(codes[left].tolist())
    found = set(codes[rows].tolist())
    if not options["numbers"]:
        assert found == there if count >= len(there) else len(found) == count
    assert_array_equal(rows, drawn(codes, K, used, count, **options))


def test_unshuffled_rows_are_drawn_over_the_full_range():
    """They depend on the seed; shuffled rows are drawn consecutively."""
    codes = np.zeros(10_000, np.int8)
    how = {"numbers": True, "purpose": Purpose.SAMPLE}
    one, other = (
        drawn(codes, 1, codes[:0], 200, seed=seed, draw=0, shuffled=False, **how) for seed in (0, 1)
    )
    assert np.ptp(one) > 9_000
    assert set(one.tolist()) != set(other.tolist())
    assert np.ptp(drawn(codes, 1, codes[:0], 200, seed=0, draw=3, shuffled=True, **how)) == 199


@given(st.integers(2, 9), st.integers(1, 8), st.booleans())
def test_draws_smaller_than_the_number_of_classes_take_turns(K, count, shuffled):
    """Each class is drawn within ⌈K/count⌉ draws."""
    codes = np.repeat(np.arange(K), 20)
    used = np.zeros(0, np.int64)
    for draw in range(-(-K // count)):
        rows = drawn(codes, K, used, count, seed=0, draw=draw, shuffled=shuffled)
        used = np.union1d(used, rows)
    assert set(codes[used].tolist()) == set(range(K))


@given(classes(), st.integers(1, 40), st.integers(0, 3), st.booleans())
def test_stratified_partitions_contain_each_row_once(problem, size, seed, shuffled):
    """The sizes of partitions, and of classes in them, differ by at most one."""
    codes, K = problem
    count = -(-len(codes) // size)
    parts = [
        stratified_partition(codes, K, count, k, seed=seed, shuffled=shuffled) for k in range(count)
    ]
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(codes)))
    assert max(map(len, parts)) <= size
    shares = np.array([np.bincount(codes[part], minlength=K) for part in parts])
    assert (np.ptp(shares, axis=0) <= 1).all()
    assert np.ptp(shares.sum(axis=1)) <= 1
    assert all((np.diff(part) > 0).all() for part in parts)


def test_partitions_of_shuffled_rows_are_consecutive_in_each_class():
    """For unshuffled rows they depend on the seed and cover the full range."""
    codes = (np.arange(1000) % 10 == 0).astype(np.int8)
    for number in range(4):
        part = stratified_partition(codes, 2, 4, number, seed=0, shuffled=True)
        for k in range(2):
            ranks = np.searchsorted(np.flatnonzero(codes == k), part[codes[part] == k])
            assert (np.diff(ranks) == 1).all()
    parts = [stratified_partition(codes, 2, 4, 1, seed=seed, shuffled=False) for seed in (0, 1)]
    assert set(parts[0].tolist()) != set(parts[1].tolist())
    assert all(np.ptp(part) > 900 for part in parts)


@given(st.integers(1, 3), st.integers(0, 50), st.data())
def test_members_are_found_by_rank(spans, seed, data):
    rng = default_rng(seed)
    n = spans * SPAN - 7
    members = rng.random(n) < 0.001
    expected = np.flatnonzero(members)
    ranks = np.array(
        sorted(data.draw(st.sets(st.integers(0, len(expected) - 1), max_size=20))), dtype=np.int64
    )
    assert_array_equal(ranked(members, ranks), expected[ranks])
