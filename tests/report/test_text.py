"""Tables and summaries: plain strings of plain values."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from partirvm.core.termination import Termination
from partirvm.report.quantities import format_evidence
from partirvm.report.text import (
    fit_facts,
    format_rate,
    heuristic_line,
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
        "level": None,
        "pass_rows": 72_000,
        "pass_seconds": 0.5,
        "peak_memory": 320 << 20,
        **changes,
    }


def test_rate_counts_the_rows_of_every_pass():
    """2 passes over 36,000 rows in half a second are 144,000 rows a second; fits may see fewer, passes read fewer."""
    assert rows_per_second(entry()) == 144_000
    assert rows_per_second(entry(rows=500, pass_rows=36_500)) == 73_000
    assert rows_per_second(entry(pass_seconds=0.0, pass_rows=0)) is None
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
        entry(kind="final", seconds=86_400.0, pass_rows=0, pass_seconds=0.0, held_out_rmse=held_out, log_evidence=0.5),
    ]
    lines = [table_header(history[0]), *map(table_line, history)]
    assert len({len(line) for line in lines}) == 1
    start = 0
    for column in round_columns(history[0]):
        assert {line[max(start - 2, 0) : start].strip() for line in lines} == {""}
        start += column.width + 2
    assert {len(line) for line in lines} == {start - 2}
    assert ("held-out RMSE" in lines[0]) == (held_out is not None)
    assert lines[-1].split()[0] == "last"
    assert len(round_columns(entry(held_out_rmse=0.2))) == len(round_columns(entry())) + 1


def plan(**changes):
    return {
        "rows": 36_000,
        "features": 8,
        "tiles": 18,
        "strategy": "working-set",
        "fit_rows": "full",
        "sample_rows": None,
        "partition_size": 500,
        "partitions": 72,
        "rounds": 9,
        "max_rounds": 9,
        "rho": None,
        "notes": [],
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
    assert "until the evidence stops rising" in plan_line(plan(max_rounds=None))
    assert "basic, all rows at once\n" in plan_line(plan(strategy="basic"))
    assert "3 workers of 2 threads" in plan_line(plan(workers=3))
    assert plan_line(plan(notes=["P held to 500", "two"])).splitlines()[2:] == ["note: P held to 500", "note: two"]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"strategy": "incremental", "max_rounds": None}, "incremental, 72 partitions of 500 candidates in order"),
        ({"strategy": "incremental"}, "72 partitions of 500 candidates in order, at most 9 of them"),
        (
            {"strategy": "split-merge", "rounds": 8, "max_rounds": None},
            "72 partitions of 500 candidates, merged on 7 levels",
        ),
        (
            {"strategy": "split-merge", "rounds": 2, "partitions": 2},
            "2 partitions of 500 candidates, merged on 1 level",
        ),
        ({"strategy": "split-merge", "rounds": 1, "partitions": 1}, "split-merge, 1 partition of 500 candidates"),
        ({"fit_rows": "sample", "sample_rows": 10_000}, "9 rounds, likelihood of a sample of 10,000 rows"),
    ],
)
def test_the_course_of_every_strategy(changes, says):
    """What becomes a candidate when, and which rows judge it where these are not all; first line, to its end."""
    assert plan_line(plan(**changes)).splitlines()[0].endswith(says)


def test_the_heuristic_in_a_line():
    """ρ = 27/222, and P as it was found and as it was held."""
    measured = {"vectors": 27, "rows": 222, "partition_size": 45, "heuristic_size": 45}
    assert heuristic_line(measured) == "sparseness: 27 of 222 random rows became vectors (ρ = 0.122) → P = 45"
    assert heuristic_line({**measured, "heuristic_size": 1200}).endswith("→ P = 1,200, limited to 45")


def facts(**changes):
    return {
        "job": "jobs/run1",
        "target": "fare",
        "strategy": "working-set",
        "n_rows": 36_000,
        "n_vectors": 1,
        "rounds": 9,
        "fits": 9,
        "train_rmse": 0.5,
        "held_out_rmse": 0.25,
        "held_out_nlpd": -0.5,
        "noise_sd": 0.125,
        "log_evidence": -99.5,
        "reason": "rounds",
        "advice": "More rounds may help.",
        "remarks": ["Boosting has an RMSE of 0.2."],
        "seconds": 80.0,
        "peak_memory": 320 << 20,
        **changes,
    }


def test_summary_says_all_that_the_json_says():
    text = summary(facts())
    for piece in (
        "1 relevance vector of",
        "36,000",
        "0.5 ",
        "'fare'",
        "0.25",
        "-0.5",
        "0.125",
        "-99.5",
        "More rounds",
        "Boosting",
    ):
        assert piece in text
    assert "1 min 20 s, peak memory 320 MiB" in text
    assert "jobs/run1" in text
    assert "held-out" not in summary(facts(held_out_rmse=None, held_out_nlpd=None))


def test_nothing_known_is_a_dash():
    assert format_evidence(None) == "–"
    assert format_rate(None) == "–"


def test_summary_counts_fits():
    """In turn, on levels, or the only one."""
    for strategy, fits, rounds, says in (
        ("working-set", 9, 9, "working-set, 9 fits\n"),
        ("split-merge", 91, 7, "split-merge, 91 fits on 7 levels\n"),
        ("split-merge", 1, 1, "split-merge, 1 fit on 1 level\n"),
        ("basic", 1, 1, "basic, 1 fit\n"),
    ):
        assert says in summary(facts(strategy=strategy, fits=fits, rounds=rounds))


HEURISTIC = {"kind": "heuristic", "number": 1, "level": None}


def part(level):
    return entry(kind="part", level=level)


@pytest.mark.parametrize(
    ("strategy", "history", "rounds", "fits"),
    [
        ("basic", [entry(kind="final")], 1, 1),
        ("working-set", [HEURISTIC, entry(), entry(number=2), entry(number=2, kind="final")], 2, 3),
        ("incremental", [entry(), entry(number=2, kind="final")], 2, 2),
        ("split-merge", [HEURISTIC, *map(part, (0, 0, 0, 1)), entry(kind="final")], 3, 5),
        ("split-merge", [entry(kind="final")], 1, 1),
    ],
)
def test_facts_of_every_strategy(strategy, history, rounds, fits):
    """Rounds leave a model, or are the levels of split-merge; fits are all but the heuristic's; N is the plan's."""
    history[-1] |= {"rows": 10_000, "held_out_nlpd": None, "noise_variance": 0.25, "noise_sd": 0.5}
    outcome = SimpleNamespace(reason=Termination.CONVERGED, seconds=1.5, remarks=())
    found = fit_facts("job", "fare", history, outcome, plan(strategy=strategy, fit_rows="sample", rho=0.12))
    assert (found["rounds"], found["fits"], found["n_rows"]) == (rounds, fits, 36_000)
    assert (found["strategy"], found["fit_rows"], found["partition_size"]) == (strategy, "sample", 500)
    assert (found["rho"], found["noise_sd"], found["reason"]) == (0.12, 0.5, "converged")
    assert ("random candidates" in found["advice"]) == (strategy == "working-set")
    assert summary(found)
