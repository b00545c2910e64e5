"""History lines that are printed."""

import re

import pytest
from histories import round_of

from partirvm.report.history import Lines


def printed(history, lines=None):
    """Return the printed lines of a history."""
    lines = lines or Lines()
    return [line for one in history for line in lines.of(one)]


def test_relearned_kernels_have_a_line():
    """The first kernel is in the plan."""
    kernel = {"kind": "kernel", "text": "so"}
    history = [kernel, {**kernel, "taken": None}, {**kernel, "taken": False}]
    assert printed(history, Lines(details=True)) == ["learned again: so"]
    (line,) = printed(history)
    assert line.endswith("not better")


@pytest.mark.parametrize("held_out", [None, 0.2])
def test_columns_are_aligned(held_out):
    large = {"candidates": 12_000, "vectors": 9_876, "train_rmse": 1e-7, "log_evidence": -1.23e8}
    history = [
        round_of(1, 75.2, held_out_rmse=held_out, train_rmse=0.1234567, log_evidence=-12_345.6),
        round_of(20, 80.0, **large),
        round_of(kind="final", seconds=86_400.0, pass_rows=0, pass_seconds=0.0, log_evidence=0.5),
    ]
    lines = printed(history, Lines(details=True))
    assert len({len(line) for line in lines}) == 1
    assert ("held-out RMSE" in lines[0]) == (held_out is not None)
    for width in (80, 100, 200):
        assert len(Lines(details=True).of(history[0], width)[0]) <= width
    errors = ["0.1235", "0.2"] if held_out else ["0.1235"]
    cells = ["1", "50", "25", *errors, "-12,346", "2,000", "1 min 15 s", "256 MiB"]
    assert re.split(" {2,}", lines[1].strip()) == cells
    assert re.split(" {2,}", printed(history)[1].strip()) == ["1", "25", *errors, "1 min 15 s"]
