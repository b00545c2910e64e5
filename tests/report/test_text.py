"""Texts about plans, fits and jobs, and tables of jobs."""

import json
import re
from types import SimpleNamespace

import histories
import numpy as np
import pytest
from click.testing import CliRunner
from histories import plan, round_of
from numpy.random import default_rng

import partirvm
from partirvm.cli.commands import partirvm as group
from partirvm.jobs import JobState, Status, advice_of, fit, open_job
from partirvm.options import Request
from partirvm.report.history import QUANTITIES
from partirvm.report.text import (
    compare_text,
    followed,
    job_facts,
    jobs_table,
    scores_text,
    status_text,
)

OF_NUMBERS = re.compile(r"RMSE|NLPD|[Nn]oise|\bnan\b|None")
"""Text that no output about classes may contain."""


HEURISTIC = {"kind": "heuristic", "number": 1, "level": None}


def part(level):
    return round_of(kind="part", level=level)


def facts_of(history, seconds=1.5, **plans):
    """Return the facts of a finished job with this history."""
    request = {"versions": {}}
    state = JobState(
        Status.DONE, reason="converged", plan=plan(**plans), history=tuple(history), request=request
    )
    fits = sum(entry["kind"] != "heuristic" for entry in history)
    progress = {"status": "done", "advice": advice_of(state), "fits": fits, "seconds": seconds}
    progress |= {"job": "jobs/run1", "reason": "converged", "since": 0.0, "attempt": 2, "doing": ""}
    job = SimpleNamespace(state=lambda: state, progress=lambda: progress)
    job.asked = lambda: {"data": "d.zarr"}
    return job_facts(job)


@pytest.mark.parametrize(
    ("strategy", "history", "rounds", "fits"),
    [
        ("basic", [round_of(kind="final")], 1, 1),
        (
            "working-set",
            [HEURISTIC, round_of(), round_of(number=2), round_of(number=2, kind="final")],
            2,
            3,
        ),
        ("incremental", [round_of(), round_of(number=2, kind="final")], 2, 2),
        ("split-merge", [HEURISTIC, *map(part, (0, 0, 0, 1)), round_of(kind="final")], 1, 5),
    ],
)
def test_the_status_of_every_strategy_shows_its_facts(strategy, history, rounds, fits):
    """Rounds are the model's; the heuristic does not count as a fit; N is the plan's."""
    history[-1] |= {"rows": 10_000, "held_out_nlpd": None, "noise_variance": 0.25, "noise_sd": 0.5}
    plans = {"strategy": strategy, "fit_rows": "sample", "rho": 0.12}
    found = {**facts_of(history, **plans), "target": "fare"}
    expected = {**plans, "rounds": rounds, "fits": fits, "n_rows": 400, "partition_size": 50}
    expected |= {"noise_sd": 0.5, "reason": "converged"}
    assert {name: found[name] for name in expected} == expected
    said = {"n_rows": 36_000, "n_vectors": 1, "train_rmse": 0.5, "log_evidence": -99.5}
    said |= {"advice": "More rounds may help.", "peak_memory": 320 << 20, "seconds": 80.0}
    said |= {"job": "jobs/run1", "held_out_rmse": 0.25, "held_out_nlpd": -0.625}
    text = status_text({**found, **said}, details=True)
    numbers = ("36,000", "0.5 ", "0.25", "-0.625", "-99.5")
    spent = ("1 min 20 s (1 min 20 s planned)", "320 MiB (300 MiB planned)")
    words = ("1 relevance vector of", "'fare'", "jobs/run1", "More rounds may help.")
    for piece in (*numbers, *spent, *words):
        assert piece in text
    brief = status_text({**found, **said})
    assert set(brief.splitlines()) < set(text.splitlines())
    assert not re.search("evidence|passes|strategy|noise", brief)
    for piece in ("1 relevance vector of", *spent):
        assert piece in brief
    assert "held-out" not in status_text({**found, "held_out_rmse": None, "held_out_nlpd": None})


def test_the_status_describes_local_residuals():
    """Training error and noise then refer to the model without local residuals."""
    gains = "-18%, mean log density +0.03"
    would = (
        f"not used, but would change the RMSE of left-out rows by {gains}: their 960 MiB need a "
        "job folder or a larger"
    )
    changed = f"RMSE of left-out rows 0.25 ({gains}), 12 MiB; residual='none' keeps the 25"
    said = {(0, 0): f"not used: RMSE of left-out rows {gains}", (0, 960): f"{would} memory_limit"}
    for (kept, lacking), expected in {**said, (12, 0): f"{changed} vectors alone"}.items():
        found = {
            "rmse_gain": 0.18,
            "density_gain": 0.03,
            "rmse": 0.25,
            "bytes": kept << 20,
            "lacking": lacking << 20,
        }
        facts = facts_of([round_of(kind="final", residuals=found, noise_sd=0.5)])
        lines = dict(
            re.split(" {2,}", line, maxsplit=1)
            for line in status_text({**facts, "target": "y"}, details=True).splitlines()
        )
        alone = " of the vectors alone" if kept else ""
        assert lines["neighbours"] == expected
        assert lines["training error"] == f"0.5 (RMSE{alone}, in the units of 'y')"
        assert lines["noise"] == f"0.5 (standard deviation){alone}"


def test_the_status_for_classes_shows_log_loss_and_error():
    """Passes are counted over all fits except the heuristic, as in the plan."""
    history = [histories.entry(0.1, kind="heuristic", passes=9), *histories.history("working-set")]
    found = {**facts_of(history), "target": "species"}
    assert found["passes"] == 5 * 17 + 12
    assert {
        found[name] for name in ("train_rmse", "held_out_rmse", "held_out_nlpd", "noise_sd")
    } == {None}
    for key in ("train_log_loss", "train_error", "held_out_log_loss", "held_out_error"):
        assert found[key] == history[-1][key]
    json.dumps(found)
    text = status_text(found, details=True)
    assert not OF_NUMBERS.search(text)
    assert re.search(r"^job +jobs/run1\nstatus +done since .*, attempt 2\nstrategy ", text)
    lines = dict(re.split(" {2,}", line, maxsplit=1) for line in text.splitlines())
    assert lines["vectors"] == "14 relevance vectors of 400 rows"
    assert lines["training error"] == "9.5 % (log loss 0.1758)"
    assert lines["held-out error"] == "11 % (log loss 0.1934)"
    assert lines["passes"] == "97 over the rows (120 planned)"
    assert "held-out" not in status_text(
        {**facts_of(histories.history("basic", held_out=False)), "target": "species"}
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return two jobs on the same DATA with different widths, the second with held-out rows, and
    one for classes."""
    place = tmp_path_factory.mktemp("jobs")
    rng = default_rng(5)
    X = rng.uniform(-3, 3, (200, 1))
    y = np.sin(X[:, 0]) + rng.normal(0, 0.1, 200)
    partirvm.ingest((X, y), place / "d.zarr")
    partirvm.ingest((X, (y > 0).astype(int)), place / "c.zarr", classes=True)
    held_out = str(place / "d.zarr")
    made = ("wide", "d", 0.5, None), ("narrow", "d", 4.0, held_out), ("classes", "c", 0.5, None)
    for name, data, gamma, validation in made:
        asked = Request(gamma=gamma, strategy="working-set", partition_size=20, max_rounds=2)
        fit(str(place / f"{data}.zarr"), str(place / name), asked, validation=validation)
    return place


def test_the_histories_in_these_tests_have_the_drivers_keys(folder):
    assert set(open_job(str(folder / "classes")).state().history[-1]) >= set(histories.entry(1.0))


def test_a_table_of_jobs_names_the_error_measures(folder):
    """A job without a fit has none, and an unreadable job has the same number of cells."""
    classes = open_job(str(folder / "classes")).progress()
    keys = list(QUANTITIES)
    empty = {**classes, **dict.fromkeys(keys)}
    numbers = {**empty, "job": "a/numbers", "train_rmse": 0.5, "held_out_rmse": 0.25}
    waiting = {**empty, "job": "a/waiting", "vectors": None}
    bad = {"job": "a/bad", "error": "damaged"}
    header, *rows = jobs_table([classes, numbers, waiting, bad]).splitlines()
    titles = re.split(" {2,}", header)
    cells = [dict(zip(titles, re.split(" {2,}", row), strict=True)) for row in rows]
    errors = [(one["measure"], one["training"], one["held-out"]) for one in cells]
    first = ("error", f"{100 * classes['train_error']:.3g} %", "–")
    assert errors == [first, ("RMSE", "0.5", "0.25"), ("–", "–", "–"), ("–", "–", "–")]


def test_the_table_of_jobs_fits_the_terminal(folder):
    """A narrow one has fewer columns and shortens reasons."""
    job = {**open_job(str(folder / "narrow")).progress(), "reason": "no space is left " * 9}
    narrow, wide, whole = (jobs_table([job], width).splitlines() for width in (80, 120, 0))
    assert {len(narrow[1]), len(wide[1])} == {80, 120}
    assert narrow[0].split() == [
        "job",
        "status",
        "vectors",
        "measure",
        "training",
        "held-out",
        "reason",
    ]
    assert len(re.split(" {2,}", wide[0])) == 10
    assert job["reason"].strip() in whole[1]
    assert narrow[1].endswith("…")


def invoke(*arguments):
    done = CliRunner().invoke(group, [str(each) for each in arguments])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_comparisons_show_the_parameters_that_differ(folder):
    text = invoke("compare", folder / "wide", folder / "narrow", "--details")
    lines = {line.split("  ")[0]: line.split()[-2:] for line in text.splitlines() if line}
    names = ("narrow", "wide")  # in the order of their errors
    assert text.splitlines()[0].split() == [*names]
    summaries = [job_facts(open_job(str(folder / job)))["summary"] for job in names]
    assert [float(cell) for cell in lines["RMSE"]] == pytest.approx(
        [summary["rmse"] for summary in summaries], rel=5e-3
    )
    assert summaries[0]["rmse"] < summaries[1]["rmse"]
    assert "judged on different rows" in text
    for name, key in (("vectors", "vectors"), ("training RMSE", "train_rmse")):
        found = [open_job(str(folder / job)).progress()[key] for job in names]
        assert [float(cell) for cell in lines[name]] == pytest.approx(found, rel=1e-3)
    assert lines["--gamma"] == ["4.0", "0.5"]
    assert lines["held-out RMSE"][1] == "–"
    assert lines["rank"] == ["1", "2"]
    brief = invoke("compare", folder / "wide", folder / "narrow")
    assert set(brief.splitlines()) < set(text.splitlines())
    assert not re.search("evidence|training|passes", brief)
    assert "--partition-size" not in text
    found = job_facts(open_job(str(folder / "wide")))
    assert compare_text([found]).splitlines()[0].strip() == "wide"
    assert "gamma" in compare_text(
        [found, {**found, "parameters": {**found["parameters"], "gamma": 3.0}}]
    )


def test_comparisons_say_what_auto_stands_for(folder):
    """The facts name the strategy, and whether nearby errors correct the predictions."""
    found = {
        **job_facts(open_job(str(folder / "wide"))),
        "strategy": "working-set",
        "residuals": {"bytes": 0},
    }
    parameters = found["parameters"]
    automatic = {**parameters, "strategy": "auto", "residual": "auto", "kernel": "auto"}
    other = {**parameters, "strategy": "basic", "residual": "local", "kernel": "linear"}
    text = compare_text([{**found, "parameters": automatic}, {**found, "parameters": other}])
    rows = [re.split(" {2,}", line) for line in text.splitlines()]
    assert ["strategy", "auto (working-set)", "basic"] in rows
    assert ["residual", "auto (none)", "local"] in rows
    assert ["kernel", "auto", "linear"] in rows


def test_scores_of_several_targets_have_a_column_each():
    scores = {"n_rows": 40, "n_vectors": 3, "rmse": 5.0, "targets": {"a": {"rmse": 3.0}}}
    assert scores_text(scores).splitlines() == [
        "                      together     a",
        "rows                        40     –",
        "relevance vectors            3     –",
        "RMSE (typical error)      5.00  3.00",
    ]


def test_followed_states_print_each_change_once():
    """A resumed job may repeat a round."""
    rounds = tuple(round_of(number=number, seconds=number) for number in range(1, 4))
    first = JobState(Status.RUNNING, reason="here", attempt=1, plan=plan(), history=rounds[:2])
    again = JobState(Status.RUNNING, reason="there", attempt=2, plan=plan(), history=rounds[:1])
    more = JobState(Status.RUNNING, reason="", attempt=2, plan=plan(), history=rounds)
    ended = JobState(Status.DONE, reason="rounds", attempt=2, plan=plan(), history=rounds)
    begun, *planned = followed([first, first, again, more, ended], details=True)
    assert planned[:2] == plan()["text"].splitlines()
    shown = planned[3:]
    assert begun.endswith("running: here")
    assert [line.split()[0] for line in (shown[0], shown[1], shown[3])] == ["1", "2", "3"]
    assert [line.split()[-1] for line in (shown[2], shown[4])] == ["there", "rounds"]
    assert len(shown) == 5
    lines = followed([first, again, more, ended], True)
    assert [json.loads(line)["number"] for line in lines] == [1, 2, 3]


def test_followed_states_print_each_stage_of_learning_once():
    """This holds although the rate changes in every state."""
    said = [
        f"learning the kernel, {n} of 6: widths, {rate} evaluations/s"
        for n, rate in ((1, 2.0), (1, 2.1), (2, 2.1))
    ]
    states = [JobState(Status.RUNNING, attempt=1, doing=text) for text in said]
    assert [line for line in followed(states) if "learning" in line] == [said[0], said[2]]
