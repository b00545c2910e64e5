"""Rows by classes: quotas, random rows, partitions, whatever the classes' sizes."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from partirvm.core.sampling import Purpose
from partirvm.strategies.fit_rows import SPAN, drawn_rows, quotas, ranked, stratified_partition

EVENS = st.sampled_from([0.0, 0.5, 1.0])


def drawn(codes, n_classes, used, count, *, shuffled, numbers=False, **options):
    """Rows drawn in a problem of these classes, or of as many numbers."""
    own = None if numbers else codes
    problem = SimpleNamespace(codes=own, n_classes=n_classes, shuffled=shuffled, n_rows=len(codes))
    return drawn_rows(problem, used, count, **options)


@st.composite
def classes(draw):
    """Codes (N,) of K classes, some of them rare or without rows, in any order."""
    K = draw(st.integers(1, 6))
    sizes = draw(st.lists(st.sampled_from([0, 1, 2, 5, 30]), min_size=K, max_size=K).filter(sum))
    codes = np.repeat(np.arange(K), sizes).astype(np.int8)
    if draw(st.booleans()):
        np.random.default_rng(draw(st.integers(0, 9))).shuffle(codes)
    return codes, K


@given(st.lists(st.integers(0, 40), min_size=1, max_size=8), st.integers(0, 120), EVENS, st.integers(0, 5))
def test_quotas(sizes, count, even, least):
    """As many as asked for or there are, none above a class's size, ``least`` of each where that is possible."""
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
    """Without a least or an even part each class gives its share, to a row."""
    sizes = np.array(sizes)
    count = min(count, int(sizes.sum()))
    assert (np.abs(quotas(sizes, count, 0.0, 0) - count * sizes / sizes.sum()) <= 1).all()


BOTH = st.booleans()
PURPOSES = st.sampled_from([Purpose.SAMPLE, Purpose.CANDIDATES])


@given(classes(), st.integers(0, 60), st.integers(0, 5), st.integers(0, 4), BOTH, BOTH, PURPOSES, st.data())
def test_drawn_rows(problem, count, seed, draw, shuffled, numbers, purpose, data):
    """Unused rows, increasing, as many as asked for or left; of each class that has one, if as many are asked for."""
    codes, K = problem
    used = np.array(sorted(data.draw(st.sets(st.integers(0, len(codes) - 1)))), dtype=np.int64)
    options = {"seed": seed, "draw": draw, "shuffled": shuffled, "purpose": purpose, "numbers": numbers}
    rows = drawn(codes, K, used, count, **options)
    left = np.setdiff1d(np.arange(len(codes)), used)
    assert len(rows) == min(count, len(left))
    assert (np.diff(rows) > 0).all()
    assert np.isin(rows, left).all()
    there, found = set(codes[left].tolist()), set(codes[rows].tolist())
    assert numbers or (found == there if count >= len(there) else len(found) == count)
    np.testing.assert_array_equal(rows, drawn(codes, K, used, count, **options))


def test_unshuffled_rows_are_drawn_from_everywhere():
    """Not a run of neighbours, and another seed draws others."""
    codes, how = np.zeros(10_000, np.int8), {"numbers": True, "purpose": Purpose.SAMPLE}
    one, other = (drawn(codes, 1, codes[:0], 200, seed=seed, draw=0, shuffled=False, **how) for seed in (0, 1))
    assert np.ptp(one) > 9_000
    assert set(one.tolist()) != set(other.tolist())
    assert np.ptp(drawn(codes, 1, codes[:0], 200, seed=0, draw=3, shuffled=True, **how)) == 199


@given(st.integers(2, 9), st.integers(1, 8), st.booleans())
def test_classes_take_turns_where_they_are_more_than_rows(K, count, shuffled):
    """Draws of fewer rows than classes reach each class within ⌈K/count⌉ of them."""
    codes, used = np.repeat(np.arange(K), 20), np.zeros(0, np.int64)
    for draw in range(-(-K // count)):
        rows = drawn(codes, K, used, count, seed=0, draw=draw, shuffled=shuffled)
        used = np.union1d(used, rows)
    assert set(codes[used].tolist()) == set(range(K))


@given(classes(), st.integers(1, 40), st.integers(0, 3), st.booleans())
def test_stratified_partitions(problem, size, seed, shuffled):
    """Together every row once; sizes, and the rows of each class, differ by one at most."""
    codes, K = problem
    count = -(-len(codes) // size)
    parts = [stratified_partition(codes, K, count, k, seed=seed, shuffled=shuffled) for k in range(count)]
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(codes)))
    assert max(map(len, parts)) <= size
    shares = np.array([np.bincount(codes[part], minlength=K) for part in parts])
    assert (np.ptp(shares, axis=0) <= 1).all()
    assert np.ptp(shares.sum(axis=1)) <= 1
    assert all((np.diff(part) > 0).all() for part in parts)


def test_partitions_of_shuffled_rows_are_neighbours_among_their_class():
    """The members of a partition have ranks in a row; elsewhere they come from everywhere, by the seed."""
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
def test_ranked(spans, seed, data):
    """Positions by rank among the members, looked through a span at a time."""
    rng = np.random.default_rng(seed)
    n = spans * SPAN - 7
    members = rng.random(n) < 0.001
    expected = np.flatnonzero(members)
    ranks = np.array(sorted(data.draw(st.sets(st.integers(0, len(expected) - 1), max_size=20))), dtype=np.int64)
    np.testing.assert_array_equal(ranked(members, ranks), expected[ranks])
