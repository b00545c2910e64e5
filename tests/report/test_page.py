"""The page of a job: complete in itself, true to its numbers, safe to open; and a browser draws it well."""

from __future__ import annotations

import json
import math
import re
import warnings
from dataclasses import asdict, replace

import numpy as np
import pytest
from by_default import some
from markupsafe import escape
from pages import browse, browser, check, holds, labels_of, lines_of

from partirvm import ingest, jobs
from partirvm.core.termination import Termination
from partirvm.errors import PartirvmWarning
from partirvm.options import Request
from partirvm.planning.units import format_bytes, format_duration
from partirvm.report.curves import MOST, curves
from partirvm.report.page import TONES, JobFacts, page
from partirvm.report.quantities import format_error, format_evidence, kind_of
from partirvm.report.stages import stages

STRATEGIES = ("basic", "split-merge", "incremental", "working-set")
HOSTILE = "</style><script>alert('1')</script>\"'&<img src=x onerror=alert(2)>"


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Training and held-out DATA."""
    rng = np.random.default_rng(5)
    X = rng.uniform(-3, 3, (500, 2))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=len(X))
    folder = tmp_path_factory.mktemp("data")
    for name, rows in (("train", slice(0, 400)), ("held-out", slice(400, 500))):
        ingest((X[rows], y[rows]), str(folder / name))
    return str(folder / "train"), str(folder / "held-out")


@pytest.fixture(scope="module")
def fitted(tables, tmp_path_factory):
    """A job of each strategy, with held-out rows and without, fitted once each."""
    facts = {}

    def of(strategy, held_out=True):
        if (strategy, held_out) not in facts:
            data, validation = tables
            parameters = Request(strategy=strategy, gamma=0.5, max_rounds=4 if strategy == "working-set" else None)
            if strategy in ("split-merge", "incremental"):
                parameters = replace(parameters, partition_size=50)
            job = str(tmp_path_factory.mktemp("jobs") / strategy)
            validation = validation if held_out else None
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", PartirvmWarning)
                result = jobs.fit(data, job, parameters, validation=validation)
            reason = result.outcome.reason
            facts[strategy, held_out] = JobFacts(
                location=job,
                status="done",
                status_advice="Its model is ready.",
                reason=reason.value,
                advice=reason.advice,
                queued=1785600000.0,
                began=1785600001.0,
                ended=1785600100.0,
                seconds=99.0,
                spec={
                    "data": data,
                    "validation": validation,
                    "parameters": json.loads(json.dumps(asdict(parameters))),  # as a job's folder holds them
                    "versions": {"partirvm": "0.1.0", "python": "3.11.7"},
                    "tile_rows": result.plan.shape.tile_rows,
                },
                plan=result.plan.to_json(),
                history=json.loads(json.dumps(result.history)),
            )
        return facts[strategy, held_out]

    return of


@pytest.fixture(params=["queued", "planned", "running", "no model", "aborting", "aborted", "failed", "interrupted"])
def unfinished(request, fitted):
    """A job in each state but done."""
    name = request.param
    job = fitted("split-merge" if name == "no model" else "working-set")
    status = {"planned": "running", "no model": "running"}.get(name, name)
    job = replace(job, status=status, status_advice=f"It is {status}.", reason="", advice="", ended=None)
    if name == "queued":
        return replace(job, began=None, plan=None, history=[])
    if name == "planned":
        return replace(job, history=[])
    if name == "aborted":
        job = replace(job, reason="aborted", advice=Termination.ABORTED.advice)
    if name == "failed":
        job = replace(job, reason="StorageError: no room\n  left on the device", ended=1785600050.0)
    return replace(job, history=job.history[: 10 if name == "no model" else 3])


@pytest.mark.parametrize("held_out", [False, True])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_number_is_there(fitted, strategy, held_out):
    job = fitted(strategy, held_out)
    read = check(page(job))
    last, plan = job.history[-1], job.plan
    figures = [
        job.location,
        "done",
        job.status_advice,
        job.advice,
        "2026-08-01 16:00:00 UTC",
        "2026-08-01 16:01:40 UTC",
        f"{last['vectors']:,}",
        "of 400 rows",
        format_error(last["train_rmse"]),
        format_error(math.sqrt(last["noise_variance"])),
        format_evidence(last["log_evidence"]),
        f"Time {format_duration(99.0)}",
        "peak memory " + format_bytes(max(entry["peak_memory"] for entry in job.history)),
        "400 rows × 2 features",
        f"P = {plan['partition_size']}",
        job.spec["data"],
        "gamma 0.5",
        "partirvm 0.1.0, python 3.11.7",
        format_bytes(plan["memory_limit"]),
        f"Passes {plan['passes']} {sum(entry['passes'] for entry in job.history if entry['kind'] != 'heuristic')}",
    ]
    if held_out:
        figures += [format_error(last["held_out_rmse"]), "NLPD " + format_error(last["held_out_nlpd"])]
        figures.append(job.spec["validation"])
    else:
        assert "Held-out error" not in read.text
    for figure in figures:
        assert figure.replace("-", "−") in read.text.replace("-", "−")
    rounds = [entry for entry in job.history if entry["kind"] in ("round", "final")]
    levels = {entry["level"] for entry in job.history if entry["kind"] == "part"}
    points, several = len(rounds) + len(levels), len(rounds) + len(levels) > 1
    drawings = curves(stages(job.history), kind_of(last))
    assert len(drawings) == (6 if several else 0)
    assert ("Error over time" in labels_of(read)) == several
    for drawing in drawings[:2]:
        lines = lines_of(drawing)
        assert {len(line) for line in lines.values()} == {points}
        assert set(lines) == ({"training", "held-out"} if held_out else {"training"})
    fits = re.search(r"<details>.*?</details>", page(job).partition("<h2>History</h2>")[2], flags=re.DOTALL)
    assert fits[0].count("<tr") == len(job.history) + 1


def test_any_state(unfinished):
    read = check(page(unfinished))
    assert f"{unfinished.status} It is {unfinished.status}." in read.text
    assert " ".join(unfinished.reason.split()) in read.text
    assert ("No model" in read.text) != any(entry["saved"] for entry in unfinished.history)
    if unfinished.ended is None:
        assert " ended 2" not in read.text


def test_every_status_of_a_job_has_a_tone(fitted):
    """And one that a later version adds is no reason to fail."""
    for status in (*TONES, "a later one"):
        source = page(replace(fitted("basic"), status=status))
        assert f'class="status {status if status in TONES else "other"}"' in source


def test_levels_that_are_not_done_say_so(fitted):
    """400 rows in partitions of 50 are 8 fits on level 0, and 4 merges."""
    job = fitted("split-merge")
    for fits, expected in ((3, "0 3 of 8"), (10, "1 2 of 4")):
        read = check(page(replace(job, status="running", history=job.history[:fits])))
        assert expected in read.text


def test_a_long_history_is_folded(fitted):
    job = fitted("working-set")
    line = next(entry for entry in job.history if entry["kind"] == "round")
    history = [{**line, "number": number, "seconds": 100.0 * number} for number in range(1, 1001)]
    read = check(page(replace(job, history=history)))
    assert "988 more" in read.text
    assert "All 1,000 fits, every column" in read.text
    assert "elapsed, h" in read.text
    assert len(lines_of(curves(stages(history), kind_of(line))[0])["training"]) == MOST


def test_hostile_text_stays_text(fitted):
    """Whatever a job is called and says: the page holds the text, and no element of it."""
    job = fitted("working-set")
    plan = {**job.plan, "notes": [HOSTILE], "strategy": HOSTILE, "selection": HOSTILE}
    history = [{**entry, "termination": HOSTILE} for entry in job.history]
    spec = {
        "data": HOSTILE,
        "validation": HOSTILE,
        "parameters": {**job.spec["parameters"], "kernel": HOSTILE, HOSTILE: HOSTILE},
        "versions": {HOSTILE: HOSTILE},
        "tile_rows": 1,
    }
    for reason in (HOSTILE, "short<b>"):
        hostile = JobFacts(HOSTILE, HOSTILE, HOSTILE, reason, HOSTILE, 0.0, 1.0, 2.0, spec, plan, history)
        source = page(hostile)
        read = check(source)
        assert "<script" not in source
        assert "<img" not in source
        assert source.count("</style>") == 1
        assert read.text.count(" ".join(HOSTILE.split())) >= 8
        assert escape(HOSTILE) in source


def test_values_that_are_no_numbers_are_left_out(fitted):
    job = fitted("incremental")
    history = [dict(entry) for entry in job.history]
    history[1].update(train_rmse=math.nan, held_out_rmse=math.inf, log_evidence=-math.inf)
    check(page(replace(job, history=history)))
    lines = lines_of(curves(stages(history), kind_of(history[0]))[0])
    assert {len(line) for line in lines.values()} == {len(history) - 1}


def test_the_page_without_matplotlib_has_the_values(fitted, monkeypatch):
    monkeypatch.setattr("partirvm.report.page.drawable", lambda: False)
    read = check(page(fitted("working-set")))
    assert 'pip install "partirvm[plot]"' in read.text
    assert labels_of(read) == []
    assert re.search(r"training: [\d.]+ at first, [\d.]+ at last", read.text)


def test_a_job_of_another_version_is_shown(fitted):
    """Fields that are not there are left out."""
    job = fitted("working-set")
    needed = {"kind", "number", "level", "rows", "candidates", "vectors", "iterations", "termination", "seconds"}
    needed |= {"train_rmse", "log_evidence", "noise_sd"}
    history = [{name: value for name, value in entry.items() if name in needed} for entry in job.history]
    check(page(replace(job, history=history, spec={}, queued=None, began=None, ended=None)))


def test_parameters_that_differ_come_first(fitted):
    source = page(fitted("incremental"))
    first, _, rest = source.partition("<h2>Parameters</h2>")[2].partition("<details>")
    assert re.findall(r"<dt>(.*?)</dt>", first) == ["gamma", "strategy", "partition_size"]
    assert rest.count("<tr>") == len(asdict(Request())) + 1


@browser
@pytest.mark.parametrize(
    ("strategy", "width"),
    some(
        [("working-set", 1100), ("split-merge", 390), ("incremental", 390), ("basic", 320)],
        {("working-set", 1100)},
    ),
)
def test_a_browser_draws_it(fitted, tmp_path, strategy, width):
    """Nothing is cut off, nothing lies on something else, and the page is no wider than the window."""
    job = fitted(strategy)
    measured, picture = browse(tmp_path, page(job), width=width)
    assert measured["found"] == []
    assert measured["wide"] <= measured["seen"] == width
    assert f"Relevance vectors\n{job.history[-1]['vectors']:,}\n" in measured["text"]
    assert measured["text"].count("elapsed, s") == (0 if strategy == "basic" else 3)
    assert holds(picture, "#ffffff")
    assert holds(picture, "#f6f6f3")
    assert strategy == "basic" or (holds(picture, "#2c66a8") and holds(picture, "#bf4f2c"))


@browser
@pytest.mark.slow
def test_a_browser_draws_it_dark(fitted, tmp_path):
    measured, picture = browse(
        tmp_path, page(fitted("working-set")), "--blink-settings=preferredColorScheme=0", width=900
    )
    assert measured["paper"] == "rgb(20, 23, 27)"
    assert float(picture.mean()) < 0.25
    assert holds(picture, "#6ea8e6")


@browser
def test_a_browser_runs_nothing_of_a_hostile_job(fitted, tmp_path):
    """Long words do not burst the page either."""
    job = fitted("working-set")
    name = HOSTILE + "<script>document.title = 'taken'</script>" + "x" * 300
    spec = {**job.spec, "data": name}
    hostile = replace(job, location=name, status="failed", reason=name, spec=spec)
    measured, _ = browse(tmp_path, page(hostile), width=390)
    assert measured["title"].endswith("· failed · partirvm")
    assert name in measured["text"]
    assert measured["wide"] <= measured["seen"] == 390
