"""Time by phase and memory beside the limit, from the lines of a history."""

from __future__ import annotations

import class_fits
import pytest

from partirvm.report.phases import phases, time_and_memory


def test_phases_add_up_to_the_time_of_the_job():
    """Learning and the heuristic are phases of their own; what no line names is the rest."""
    history = class_fits.history("working-set")
    first = {**history[0], "kind": "kernel", "pass_seconds": 1.5, "solve_seconds": 0.5}
    heuristic = {**history[0], "kind": "heuristic", "pass_seconds": 0.25, "solve_seconds": 0.0}
    found = dict(phases([first, heuristic, *history], 30.0))
    assert found["kernel learning"] == 2.0
    assert found["partition size"] == 0.25
    assert found["passes"] == pytest.approx(sum(entry["pass_seconds"] for entry in history))
    assert found["dense fits"] == pytest.approx(0.2 * len(history))
    assert sum(found.values()) == pytest.approx(30.0)


def test_fits_in_parallel_have_no_rest():
    history = class_fits.history("split-merge")
    assert "rest" not in dict(phases(history, 0.1))
    assert "in parallel" in time_and_memory(history, 0.1, None)[0][1]


def test_nothing_is_drawn_without_seconds_or_memory():
    history = [{"kind": "round"}]
    assert phases(history, None) == []
    assert time_and_memory(history, None, None) == []
    assert time_and_memory([], 3.0, {"memory_limit": 100, "memory_peak": 50}) == []


def test_memory_stands_beside_its_limit():
    history = [{**entry, "peak_memory": 1 << 28} for entry in class_fits.history("basic")]
    plan = {"memory_limit": 1 << 30, "memory_peak": 1 << 29}
    heading, remark, drawing = time_and_memory(history, 9.0, plan)[1]
    assert (heading, remark) == ("Peak memory", "25 % of the limit")
    assert 'aria-label="Peak memory. measured: 256 MiB; expected: 512 MiB; limit: 1 GiB"' in drawing
