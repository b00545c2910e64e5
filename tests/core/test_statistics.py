"""Gram statistics equal sums over all rows: splits, extension, selected columns, weights."""

from functools import reduce
from operator import add

import numpy as np
from fits import dense_statistics
from hypothesis import given
from hypothesis import strategies as st
from naive import gram
from numpy.random import default_rng
from numpy.testing import assert_allclose, assert_array_equal
from tables import pieces

from partirvm.core import GramBlock, GramStatistics
from partirvm.types import BIAS

seeds = st.integers(0, 2**32 - 1)
counts = st.integers(0, 6)
weightings = st.sampled_from([None, "positive", "some zero"])


def rows(seed, n, m, weighting, targets=1):
    """Draw a design (n, m), targets (n, T) and weights."""
    rng = default_rng(seed)
    w = None if weighting is None else rng.uniform(0.1, 5.0, size=n)
    if weighting == "some zero":
        w[rng.random(n) < 0.3] = 0.0
    return rng.normal(size=(n, m)), rng.normal(size=(n, targets)), w


def assert_same(found, expected):
    assert found.n == expected.n
    assert_array_equal(found.labels, expected.labels)
    for name in ("gram", "projection", "sum_squares", "offset", "log_weight"):
        assert_allclose(
            getattr(found, name), getattr(expected, name), rtol=1e-10, atol=1e-10, err_msg=name
        )


@given(
    seeds,
    st.integers(1, 40),
    counts,
    counts,
    weightings,
    st.integers(1, 3),
    st.lists(st.integers(0, 40), max_size=4),
)
def test_any_split_of_rows_gives_the_same_sums(seed, n, kept, new, weighting, targets, cuts):
    """The sums are Φ_keptᵀWΦ_new, Φ_newᵀWΦ_new, Φ_newᵀWt, tᵀWt, the number of rows and Σ log w."""
    Phi, t, w = rows(seed, n, kept + new, weighting, targets)
    blocks = []
    crosses = []
    for piece in pieces(n, cuts):
        part = Phi[piece, :kept], Phi[piece, kept:], t[piece], None if w is None else w[piece]
        blocks.append(GramBlock.of(*part))
        crosses.append(GramBlock.of(*part, diagonal=True))
    block = reduce(add, blocks)
    cross = reduce(add, crosses)
    G, b, sum_squares = gram(Phi, t, w)
    close = {"rtol": 1e-12, "atol": 1e-12}
    assert_allclose(block.cross, G[:kept, kept:], **close)
    assert_allclose(block.gram, G[kept:, kept:], **close)
    assert_allclose(block.projection, b[kept:], **close)
    assert_allclose(block.sum_squares, sum_squares, **close)
    assert_allclose(cross.cross, G[:kept, kept:], **close)
    assert_allclose(cross.gram, np.diagonal(G)[kept:], **close)
    assert_allclose(cross.projection, b[kept:], **close)
    present = np.ones(n) if w is None else w[w > 0]
    assert block.n == cross.n == len(present)
    assert_allclose(block.log_weight, np.log(present).sum(), **close)


def test_a_sum_does_not_modify_its_terms(rng):
    """Tasks may run twice, and nodes are shared."""
    Phi, t, _ = rows(0, 12, 5, None)
    first, second = (
        GramBlock.of(Phi[some, :2], Phi[some, 2:], t[some]) for some in (slice(6), slice(6, None))
    )
    before = first.cross.copy(), second.projection.copy()
    first + second
    assert_array_equal(first.cross, before[0])
    assert_array_equal(second.projection, before[1])


@given(
    seeds,
    st.integers(8, 40),
    weightings,
    st.integers(1, 3),
    st.lists(st.integers(1, 4), min_size=1, max_size=4),
)
def test_extending_equals_computing_at_once(seed, n, weighting, targets, groups):
    """New columns in statistics with offset m see r = t − Φ_kept·m, and have the offset zero."""
    Phi, t, w = rows(seed, n, sum(groups), weighting, targets)
    labels = np.arange(sum(groups)) * 7 + BIAS
    statistics = GramStatistics.empty(targets)
    at = 0
    for size in groups:
        block = GramBlock.of(Phi[:, :at], Phi[:, at : at + size], t, w)
        statistics = statistics.extend(labels[at : at + size], block)
        at += size
    assert_same(statistics, dense_statistics(Phi, t, w, labels=labels))
    first, rest = np.split(np.arange(len(labels)), [groups[0]])
    m = default_rng(seed).normal(size=(len(first), targets))
    block = GramBlock.of(Phi[:, first], Phi[:, rest], t - Phi[:, first] @ m, w)
    found = dense_statistics(Phi[:, first], t, w, offset=m).extend(rest, block)
    offset = np.vstack([m, np.zeros((len(rest), targets))])
    assert_same(found, dense_statistics(Phi, t, w, offset=offset))


@given(seeds, st.permutations(range(6)), st.integers(0, 6), st.booleans())
def test_taking_columns_equals_computing_only_these_columns(seed, order, count, with_offset):
    """The offset of a dropped column returns to the target."""
    Phi, t, w = rows(seed, 20, 6, "positive", 2)
    offset = default_rng(seed).normal(size=(6, 2)) * with_offset
    columns = np.array(order[:count], dtype=np.int64)
    taken = dense_statistics(Phi, t, w, offset=offset).take(columns)
    assert_same(taken, dense_statistics(Phi[:, columns], t, w, columns, offset[columns]))
