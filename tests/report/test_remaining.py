"""Time left: the plan's proportions at the pace of what is done, for every strategy."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from partirvm.report.remaining import Remaining


def cost(pass_seconds, solve_seconds, passes=1, fits=1, kept=1, candidates=9):
    return SimpleNamespace(
        pass_seconds=pass_seconds, solve_seconds=solve_seconds, passes=passes, fits=fits, kept=kept,
        candidates=candidates,
    )  # fmt: skip


def remaining_of(strategy, *rounds, max_rounds=None, batch_elements=0):
    plan = SimpleNamespace(strategy=strategy, rounds=rounds, max_rounds=max_rounds, batch_elements=batch_elements)
    remaining = Remaining.of(plan)
    remaining.began = 100.0
    return remaining


ROUND, FINAL = {"kind": "round"}, {"kind": "final"}


@pytest.mark.parametrize("strategy", ["working-set", "incremental"])
def test_rounds_scale_the_plan(strategy):
    """Planned: 10 s in a first round (two passes of 4 s, 2 s dense) and 30 s in a second.

    Twice as slow: after 4 of 40 planned seconds took 8, the other 36 will take 72.
    """
    remaining = remaining_of(strategy, cost(8.0, 2.0, passes=2), cost(20.0, 10.0, passes=2), max_rounds=2)
    assert remaining.seconds(now=100.0) is None
    remaining.on_record({"kind": "heuristic"})
    remaining.on_tiles(5, 10)
    remaining.on_tiles(10, 10)
    assert remaining.seconds(now=108.0) == pytest.approx(72.0)
    remaining.on_tiles(1, 10)
    remaining.on_tiles(5, 10)
    assert remaining.seconds(now=112.0) == pytest.approx(12.0 / 6.0 * 34.0)
    remaining.on_record(ROUND)
    assert remaining.seconds(now=120.0) == pytest.approx(60.0)
    remaining.on_record(FINAL)
    assert remaining.seconds(now=180.0) is None


def test_levels_scale_the_plan():
    """Planned: 4 fits of 1 s passes and 4 s dense each, two side by side, then a last one of 20 s; twice as slow."""
    level, last = cost(4.0, 16.0, passes=4, fits=4), cost(10.0, 10.0, passes=2, kept=0)
    remaining = remaining_of("split-merge", level, last, batch_elements=2 * 10**2)
    part = {"kind": "part", "level": 0}

    def left(planned_done):
        now = 100.0 + 2 * planned_done
        return remaining.seconds(now) == pytest.approx(2 * (40.0 - planned_done))

    remaining.on_tiles(5, 10)
    assert left(1.0)
    remaining.on_tiles(10, 10)
    assert left(2.0)
    remaining.on_solves(1, 2)
    assert left(6.0)
    remaining.on_solves(2, 2)
    assert left(10.0)
    remaining.on_record(part)
    assert left(10.0), "what a batch has done is not taken back when its fits are recorded"
    remaining.on_record(part)
    assert left(10.0)
    remaining.on_tiles(5, 10)
    assert left(11.0)
    remaining.on_tiles(10, 10)
    remaining.on_solves(2, 2)
    for _ in range(2):
        remaining.on_record(part)
    assert left(20.0)
    remaining.on_tiles(10, 10)
    assert left(25.0)
    remaining.on_record(FINAL)
    assert remaining.seconds(now=200.0) is None


def test_unknown_without_a_number_of_rounds():
    remaining = remaining_of("working-set", cost(8.0, 2.0))
    remaining.on_tiles(4, 4)
    assert remaining.seconds() is None


def test_more_fits_than_planned_are_no_error():
    """A run that takes another course than its plan: unknown, and no exception."""
    remaining = remaining_of("incremental", cost(1.0, 1.0))
    for _ in range(3):
        remaining.on_tiles(1, 1)
        remaining.on_record(ROUND)
    assert remaining.seconds(now=200.0) is None
