"""Which lines of a history are shown, as lists."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from partirvm.report.lines import FIRST, Lines
from partirvm.report.text import table_line


def entry(number=1, seconds=1.0, **changes):
    """A round such as the driver records."""
    return {
        "kind": "round",
        "number": number,
        "level": None,
        "rows": 1000,
        "candidates": 50,
        "vectors": 25,
        "train_rmse": 0.5,
        "held_out_rmse": None,
        "log_evidence": -10.0,
        "seconds": seconds,
        "pass_rows": 1000,
        "pass_seconds": 0.5,
        "peak_memory": 1 << 28,
        **changes,
    }


def shown(lines, history):
    """First words of the lines that a history gets, the heading aside."""
    found = [line for one in history for line in lines.of(one)]
    assert [line.heading for line in found] == [True] + [False] * (len(found) - 1)
    return [line.text.split()[0] for line in found[1:]]


def test_many_quick_rounds_get_few_lines():
    """The first ten in any case, then one a second, and the last."""
    history = [entry(number, seconds=0.25 * number) for number in range(1, 31)]
    history.append(entry(30, kind="final", seconds=7.6))
    expected = [*range(1, FIRST + 1), 14, 18, 22, 26, 30]
    assert shown(Lines(), history) == [*map(str, expected), "last"]


def test_slow_rounds_get_a_line_each():
    history = [entry(number, seconds=2.0 * number) for number in range(1, 31)]
    assert shown(Lines(), history) == [str(number) for number in range(1, 31)]


def test_a_round_held_back_is_shown_if_nothing_follows():
    """Where a limit or a person ends the fit the last model has its line, once."""
    lines = Lines()
    history = [entry(number, seconds=0.01 * number) for number in range(1, 15)]
    shown(lines, history)
    assert [line.text for line in lines.rest()] == [table_line(history[-1])]
    assert lines.rest() == []


def part(level, number, seconds, candidates=10, vectors=7):
    return entry(number, seconds, kind="part", level=level, candidates=candidates, vectors=vectors)


@pytest.mark.parametrize("planned", [True, False])
def test_a_level_has_one_line(planned):
    """Sums and seconds of its fits, at once where the plan told their number, else when the next level begins."""
    lines = Lines()
    if planned:
        lines.on_plan(SimpleNamespace(rounds=[SimpleNamespace(fits=3), SimpleNamespace(fits=1)]))
    history = [part(0, 1, 1.0), part(0, 2, 1.5), part(0, 3, 2.0), part(1, 1, 2.5, 14, 8)]
    found = [[line.text for line in lines.of(one)] for one in history]
    first = "level 0: 3 fits, 30 candidates → 21 vectors, 2.0 s"
    second = "level 1: 1 fit, 14 candidates → 8 vectors, 0.5 s"
    assert found == ([[], [], [first], [second]] if planned else [[], [], [], [first]])
    assert [line.text for line in lines.rest()] == ([] if planned else [second])


def test_a_level_that_was_left_says_so():
    """An abort in mid-level: how many of its fits were done."""
    lines = Lines()
    lines.on_plan(SimpleNamespace(rounds=[SimpleNamespace(fits=46)]))
    for number in range(1, 13):
        assert lines.of(part(0, number, 0.1 * number)) == []
    assert [line.text for line in lines.rest()] == ["level 0: 12 of 46 fits, 120 candidates → 84 vectors, 1.2 s"]


def test_kernels_are_told_of_where_they_were_learned():
    """Before the fit, in histories of older versions as well, and again between rounds."""
    shown = [
        Lines().of({"kind": "kernel", "text": "so", **more})[0].text for more in ({}, {"taken": None}, {"taken": False})
    ]
    assert shown == ["learned: so", "learned: so", "learned again: so"]
