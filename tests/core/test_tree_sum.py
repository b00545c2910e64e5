"""The fixed summation tree: neither division nor arrival order of the tiles changes a bit."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from naive import tree_sum

from partirvm.core import TreeSum
from partirvm.core.statistics import aligned_runs


@dataclass(frozen=True)
class Word:
    """A value whose sum spells out how it was added."""

    text: str

    def __add__(self, other):
        return Word(f"({self.text}+{other.text})")


def node(values, level, index):
    """Return node (level, index) as a task computes it: the sum of an aligned run."""
    run = values[index << level : (index + 1) << level]
    total = TreeSum(len(run))
    for position, value in enumerate(run):
        total.add(position, value)
    return total.result()


@st.composite
def cuttings(draw):
    """Draw a number of tiles, their division into aligned runs, and an arrival order of these."""
    n = draw(st.integers(1, 40))

    def cut(level, index):
        if index << level >= n:
            return []
        if level == 0 or draw(st.booleans()):
            return [(level, index)]
        return cut(level - 1, 2 * index) + cut(level - 1, 2 * index + 1)

    return n, draw(st.permutations(cut(max(n - 1, 0).bit_length(), 0)))


@given(cuttings())
def test_any_division_and_order_gives_the_same_sum(case):
    n, nodes = case
    tiles = [Word(str(tile)) for tile in range(n)]
    total = TreeSum(n)
    for level, index in nodes:
        total.add(index, node(tiles, level, index), level)
    assert total.result() == tree_sum(tiles)


@given(cuttings(), st.data())
def test_an_incomplete_sum_is_refused(case, data):
    n, nodes = case
    missing = data.draw(st.sampled_from(range(len(nodes))))
    total = TreeSum(n)
    for position, (level, index) in enumerate(nodes):
        if position != missing:
            total.add(index, 1.0, level)
    with pytest.raises(RuntimeError, match="incomplete"):
        total.result()


@given(st.integers(1, 200), st.integers(0, 8))
def test_aligned_runs_contain_each_tile_once(n, level):
    """Run i consists of the tiles [i·2^level, (i + 1)·2^level) ∩ [0, n)."""
    runs = list(aligned_runs(n, level))
    assert [tile for _, run in runs for tile in run] == list(range(n))
    assert all(run.start == index << level and len(run) <= 1 << level for index, run in runs)
