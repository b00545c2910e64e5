"""Tables and summaries: plain strings of plain values."""

from __future__ import annotations

import pytest

from partirvm.report.text import (
    format_evidence,
    format_rate,
    plan_line,
    round_columns,
    rows_per_second,
    summary,
    table_header,
    table_line,
)


def entry(**changes):
    """A line of history such as the driver records."""
    return {
        "kind": "round",
        "number": 1,
        "rows": 36_000,
        "candidates": 500,
        "vectors": 250,
        "train_rmse": 0.1234567,
        "held_out_rmse": None,
        "log_evidence": -12_345.6,
        "seconds": 75.2,
        "passes": 2,
        "pass_seconds": 0.5,
        "peak_memory": 320 << 20,
        **changes,
    }


def test_rate_counts_every_pass():
    """2 passes over 36,000 rows in half a second are 144,000 rows a second."""
    assert rows_per_second(entry()) == 144_000
    assert rows_per_second(entry(pass_seconds=0.0, passes=0)) is None
    assert format_rate(144_000) == "144 k"


def test_a_line_says_what_happened():
    words = table_line(entry(held_out_rmse=0.2)).split("  ")
    cells = [word.strip() for word in words if word.strip()]
    assert cells == ["1", "500", "250", "0.1235", "0.2", "-12,346", "144 k", "1 min 15 s", "320 MiB"]


@pytest.mark.parametrize("held_out", [None, 0.2])
def test_columns_are_aligned(held_out):
    history = [
        entry(held_out_rmse=held_out),
        entry(
            number=20, candidates=12_000, vectors=9_876, train_rmse=1e-7, log_evidence=-1.23e8, held_out_rmse=held_out
        ),
        entry(kind="final", seconds=86_400.0, passes=0, pass_seconds=0.0, held_out_rmse=held_out, log_evidence=0.5),
    ]
    lines = [table_header(held_out is not None), *map(table_line, history)]
    assert len({len(line) for line in lines}) == 1
    start = 0
    for column in round_columns(held_out is not None):
        assert {line[max(start - 2, 0) : start].strip() for line in lines} == {""}
        start += column.width + 2
    assert {len(line) for line in lines} == {start - 2}
    assert ("held-out RMSE" in lines[0]) == (held_out is not None)
    assert lines[-1].split()[0] == "last"
    assert len(round_columns(True)) == len(round_columns(False)) + 1


def plan(**changes):
    return {
        "rows": 36_000,
        "features": 8,
        "tiles": 18,
        "strategy": "working-set",
        "partition_size": 500,
        "max_rounds": 9,
        "workers": 1,
        "threads": 2,
        "memory_peak": 300 << 20,
        "memory_limit": 512 << 20,
        "seconds": 80.0,
        **changes,
    }


def test_a_plan_in_two_lines():
    assert plan_line(plan()) == (
        "36,000 rows × 8 features in 18 tiles; working-set, 500 candidates per round, up to 9 rounds\n"
        "2 threads, about 300 MiB of 512 MiB memory, about 1 min 20 s"
    )
    assert "until the evidence is flat" in plan_line(plan(max_rounds=None))
    assert "one round" in plan_line(plan(strategy="basic"))
    assert "3 workers of 2 threads" in plan_line(plan(workers=3))


def facts(**changes):
    return {
        "job": "jobs/run1",
        "target": "fare",
        "n_rows": 36_000,
        "n_vectors": 1,
        "rounds": 9,
        "train_rmse": 0.5,
        "held_out_rmse": 0.25,
        "held_out_nlpd": -0.5,
        "noise_sd": 0.125,
        "log_evidence": -99.5,
        "reason": "rounds",
        "advice": "More rounds may help.",
        "seconds": 80.0,
        "peak_memory": 320 << 20,
        **changes,
    }


def test_summary_says_all_that_the_json_says():
    text = summary(facts())
    for piece in ("1 relevance vector of", "36,000", "0.5 ", "'fare'", "0.25", "-0.5", "0.125", "-99.5", "More rounds"):
        assert piece in text
    assert "1 min 20 s, peak memory 320 MiB" in text
    assert "jobs/run1" in text
    assert "held-out" not in summary(facts(held_out_rmse=None, held_out_nlpd=None))


def test_nothing_known_is_a_dash():
    assert format_evidence(None) == "–"
    assert format_rate(None) == "–"
