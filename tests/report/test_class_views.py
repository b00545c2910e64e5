"""Fits of classes in every view: log loss, error and Newton passes, and nothing of RMSE or noise."""

from __future__ import annotations

import io
import json
import math
import re
import warnings
from dataclasses import asdict
from types import SimpleNamespace

import class_fits
import numpy as np
import pytest
from by_default import some
from pages import browse, browser, check, drawn, holds, lines_of
from rich.console import Console

from partirvm import ingest, jobs
from partirvm.core.termination import Termination
from partirvm.core.updates import StepInfo
from partirvm.errors import PartirvmWarning
from partirvm.likelihoods.class_passes import GainPass, LogisticPass, LogisticScorePass, MisclassificationPass
from partirvm.options import Request
from partirvm.report.curves import curves
from partirvm.report.displays import PlainView
from partirvm.report.lines import Lines
from partirvm.report.live import LiveView
from partirvm.report.page import JobFacts, page
from partirvm.report.progress import TITLES, Progress
from partirvm.report.quantities import CLASSIFICATION, KEYS, REGRESSION, format_error, format_share, kind_of
from partirvm.report.remaining import Remaining
from partirvm.report.stages import stages
from partirvm.report.status import jobs_table, status_text
from partirvm.report.text import fit_facts, plan_line, summary, table_header, table_line
from partirvm.strategies.instructions import Record

STRATEGIES = ("basic", "split-merge", "incremental", "working-set")
OF_NUMBERS = re.compile(r"RMSE|NLPD|[Nn]oise|\bnan\b|None")
"""What no view of classes may say."""


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """A fit of three classes by each strategy: the job, and what the fit returned."""
    rng = np.random.default_rng(5)
    X = rng.uniform(-3, 3, (400, 2))
    y = (X[:, 0] + 0.5 * rng.normal(size=len(X)) > 0).astype(int) + (X[:, 1] > 1)
    folder = tmp_path_factory.mktemp("classes")
    ingest((X, y), str(folder / "data"), classes=True)
    found = {}

    def of(strategy):
        if strategy not in found:
            parameters = Request(strategy=strategy, gamma=0.5, partition_size=100, max_rounds=None)
            if strategy == "working-set":
                parameters = Request(strategy=strategy, gamma=0.5, max_rounds=3)
            job = str(folder / strategy)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", PartirvmWarning)
                found[strategy] = job, jobs.fit(str(folder / "data"), job, parameters)
        return found[strategy]

    return of


def plan(strategy):
    """A plan's JSON for the histories of ``class_fits``."""
    return {
        "rows": 400,
        "features": 2,
        "tile_rows": 100,
        "tiles": 4,
        "rows_per_task": 100,
        "outputs": 3,
        "strategy": strategy,
        "selection": "gain",
        "fit_rows": "full",
        "sample_rows": None,
        "notes": [],
        "partition_size": 50,
        "partitions": 8,
        "rho": None,
        "rho_rows": None,
        "rounds": 4,
        "max_rounds": None,
        "max_vectors": None,
        "max_columns": 900,
        "passes": 120,
        "threads": 2,
        "workers": 1,
        "seconds": 4.2,
        "memory_limit": 1 << 30,
        "memory_peak": 400 << 20,
    }


def job_of(strategy, *, held_out=True):
    """A job with a history of ``class_fits``."""
    return JobFacts(
        *("jobs/flowers", "done", "Its model is ready.", "converged", "Nothing to do.", 1785600000.0, 1785600001.0),
        ended=1785600100.0,
        seconds=99.0,
        spec={"data": "flowers", "parameters": asdict(Request(gamma=0.5)), "versions": {}, "tile_rows": 100},
        plan=plan(strategy),
        history=class_fits.history(strategy, held_out=held_out),
    )


def test_every_quantity_is_a_field_of_the_record():
    """Keys in use are those that strategies write, and the histories of these tests hold what drivers write."""
    fields = set(Record.__dataclass_fields__)
    assert set(KEYS) <= fields


def test_histories_of_these_tests_are_as_drivers_write_them(fitted):
    _, result = fitted("working-set")
    assert set(result.history[-1]) == set(class_fits.entry(1.0))


def test_the_kind_of_a_line():
    """By what it holds; before there is a line, by the plan; a job of an earlier version is one of numbers."""
    line = class_fits.entry(1.0)
    assert kind_of(line) is CLASSIFICATION
    assert kind_of(class_fits.regression(line)) is REGRESSION
    assert kind_of(class_fits.regression(line), {"outputs": 3}) is REGRESSION
    assert kind_of({}) is REGRESSION
    assert kind_of({}, {"outputs": 1}) is CLASSIFICATION


@pytest.mark.parametrize("held_out", [False, True])
def test_the_table_of_rounds(held_out):
    history = class_fits.history("working-set", held_out=held_out)
    lines = Lines()
    header, *rows = [line.text for one in history for line in lines.of(one)]
    titles = re.split(" {2,}", header.strip())
    errors = ["held-out log loss", "held-out error"] if held_out else ["training error"]
    assert titles[: 4 + len(errors)] == ["round", "candidates", "vectors", "training log loss", *errors]
    assert len({len(row) for row in (header, *rows)}) == 1
    last = history[-1]
    cells = re.split(" {2,}", rows[-1].strip())
    values = [format_error(last["held_out_log_loss"]), format_share(last["held_out_error"])]
    expected = values if held_out else [format_share(last["train_error"])]
    assert cells[: 4 + len(expected)] == ["last", "28", "14", format_error(last["train_log_loss"]), *expected]
    assert cells[4 + len(expected)] == "-112.3"


def test_an_old_history_keeps_its_table():
    line = {**class_fits.regression(class_fits.entry(1.0)), "held_out_rmse": None}
    assert "training RMSE" in table_header(line)
    assert "0.5" in table_line(line).split()


def test_what_came_of_a_fit():
    """Log loss, error in per cent, vectors, and the passes of all fits, the heuristic's among them."""
    history = [class_fits.entry(0.1, kind="heuristic", passes=9), *class_fits.history("working-set")]
    outcome = SimpleNamespace(reason=Termination.CONVERGED, seconds=5.5, remarks=())
    facts = fit_facts("jobs/flowers", "species", history, outcome, plan("working-set"))
    assert facts["passes"] == 9 + 5 * 17 + 12
    assert not {"train_rmse", "held_out_rmse", "held_out_nlpd", "noise_sd"} & set(facts)
    last = history[-1]
    for key in ("train_log_loss", "train_error", "held_out_log_loss", "held_out_error"):
        assert facts[key] == last[key]
    json.dumps(facts)
    text = summary(facts)
    assert not OF_NUMBERS.search(text)
    lines = dict(re.split(" {2,}", line, maxsplit=1) for line in text.splitlines())
    assert lines["vectors"] == "14 relevance vectors of 400 rows"
    assert lines["training error"] == "9.5 % (log loss 0.1758)"
    assert lines["held-out error"] == "11 % (log loss 0.1934)"
    assert lines["passes"] == "106 over the rows, in all fits"
    alone = fit_facts("j", "species", class_fits.history("basic", held_out=False), outcome, plan("basic"))
    assert "held-out" not in summary(alone)


def test_the_plan_names_the_classes():
    assert plan_line(plan("basic")).startswith("400 rows × 2 features, 3 classes, 3 outputs in 4 tiles; basic")
    assert "2 classes, 1 output in" in plan_line({**plan("basic"), "outputs": 1})


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_real_fit_in_words(fitted, strategy):
    """Summary, status, progress and lines of a fit that was really done."""
    job, result = fitted(strategy)
    last, stream = result.history[-1], io.StringIO()
    with Progress(PlainView(stream)) as progress:
        progress.on_plan(result.plan)
        for line in result.history:
            progress.on_record(line)
    told = jobs.open_job(job).progress()
    facts = fit_facts(job, "species", result.history, result.outcome, result.plan.to_json())
    texts = [status_text(told), summary(facts), stream.getvalue()]
    assert not any(OF_NUMBERS.search(text) for text in texts)
    error = f"{format_share(last['train_error'])} (log loss {format_error(last['train_log_loss'])})"
    for text in texts[:2]:
        assert re.search(rf"^training error +{re.escape(error)}$", text, flags=re.MULTILINE)
    assert f"{sum(line['passes'] for line in result.history)} over the rows" in texts[1]
    assert "training log loss" in texts[2]


def test_jobs_of_both_kinds_in_one_table(fitted):
    """Each line says what its errors are; a job without a fit has none, an unreadable one as many cells."""
    classes = jobs.open_job(fitted("basic")[0]).progress()
    numbers = {**classes, **dict.fromkeys(KEYS), "job": "a/numbers", "train_rmse": 0.5, "held_out_rmse": 0.25}
    waiting = {**classes, **dict.fromkeys(KEYS), "job": "a/waiting", "vectors": None}
    old = {key: value for key, value in numbers.items() if not key.endswith(("_log_loss", "_error"))}
    header, *rows = jobs_table([classes, numbers, old, waiting, {"job": "a/bad", "error": "damaged"}]).splitlines()
    titles = re.split(" {2,}", header)
    cells = [dict(zip(titles, re.split(" {2,}", row), strict=True)) for row in rows]
    errors = [(one["measure"], one["training"], one["held-out"]) for one in cells]
    assert errors == [
        ("log loss", format_error(classes["train_log_loss"]), "–"),
        ("RMSE", "0.5", "0.25"),
        ("RMSE", "0.5", "0.25"),
        ("–", "–", "–"),
        ("–", "–", "–"),
    ]
    assert not OF_NUMBERS.search(status_text(classes))
    assert "training error  0.5 (RMSE)\nheld-out error  0.25 (RMSE)\n" in status_text(numbers)


NEWTON = StepInfo(6, 20, 0, -120.0, math.nan, math.nan)


def panel(progress):
    """The panel as text, without what the terminal has seen before."""
    console = Console(file=io.StringIO(), width=100)
    console.print(progress.view.panel(progress))
    return console.file.getvalue()


class Screen(io.StringIO):
    def isatty(self):
        return True


def test_the_live_view(monkeypatch, fitted):
    """Before the first fit by the plan, then by the fit: errors of classes, the Newton pass, and no noise."""
    monkeypatch.setenv("TERM", "xterm")
    _, result = fitted("working-set")

    class Planned:
        strategy, rounds, max_rounds, batch_elements = "working-set", result.plan.rounds, 3, 0

        def to_json(self):
            return plan("working-set")

    with Progress(LiveView(Screen())) as progress:
        progress.on_plan(Planned())
        assert "held-out log loss" in panel(progress)
        progress.on_tiles("newton", 1, 4, 400)
        assert "Newton passes" in panel(progress)
        assert "1 of 4 tiles" in panel(progress)
        progress.on_step(NEWTON, 40)
        text = panel(progress)
        assert "Newton pass 7" in text
        assert "0 of 4 tiles" in text
        assert "40 → 20" in text
        assert not OF_NUMBERS.search(text)
        last = class_fits.history("working-set")[-1]
        progress.on_record(last)
        text = panel(progress)
        for words in ("held-out error", "11 %", "training log loss", "0.1758", "-112.3"):
            assert words in text
        progress.on_record(result.history[-1])
        assert "training error" in panel(progress)
        assert "held-out" not in panel(progress)
        assert not OF_NUMBERS.search(panel(progress))
        progress.on_step(StepInfo(3, 20, 0, -1.0, 0.1, 0.2), 40)
        assert "dense fit, iteration 3" in panel(progress)


def test_every_phase_has_a_title():
    for each in (LogisticPass, MisclassificationPass, GainPass, LogisticScorePass):
        assert each.name in TITLES


def test_time_left_with_many_passes_to_a_fit():
    """Two fits side by side of 10 passes each, 4 planned seconds; then a last one of 10 passes, 6 seconds."""

    def cost(pass_seconds, fits):
        kept = {"kept": 0, "candidates": 10}
        return SimpleNamespace(pass_seconds=pass_seconds, solve_seconds=0.0, passes=10 * fits, fits=fits, **kept)

    asked = {"strategy": "split-merge", "max_rounds": None, "batch_elements": 2 * 10**2}
    remaining = Remaining.of(SimpleNamespace(rounds=[cost(4.0, 2), cost(6.0, 1)], **asked))
    remaining.began = 100.0
    for _ in range(5):
        remaining.on_tiles(2, 4)
        remaining.on_tiles(4, 4)
    assert remaining.seconds(now=104.0) == pytest.approx(2 * 8.0)
    for number in (1, 2):
        remaining.on_record({"kind": "part", "number": number, "level": 0})
    assert remaining.seconds(now=108.0) == pytest.approx(2 * 6.0)


@pytest.mark.parametrize("held_out", [False, True])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_page(strategy, held_out):
    job = job_of(strategy, held_out=held_out)
    read = check(page(job))
    last, said = job.history[-1], read.text.replace("−", "-")
    assert not OF_NUMBERS.search(said.partition("Parameters")[0])
    figures = [
        f"Training log loss {format_error(last['train_log_loss'])} nats per row",
        f"Log evidence {last['log_evidence']:.4g} nats (Laplace), over 400 rows",
        "400 rows × 2 features, 3 classes, 3 outputs",
        f"Passes 120 {sum(entry['passes'] for entry in job.history if entry['kind'] != 'heuristic')}",
        "Newton passes",
    ]
    if held_out:
        figures.append(f"Held-out log loss {format_error(last['held_out_log_loss'])} nats per row")
        figures.append(f"Held-out error {format_share(last['held_out_error'])} of rows in a wrong class")
    else:
        figures.append(f"Training error {format_share(last['train_error'])} of rows in a wrong class")
        assert "Held-out" not in said
    for figure in figures:
        assert figure in said
    points = len(stages(job.history))
    scored = len([entry for entry in job.history if entry["held_out_error"] is not None])
    drawings = curves(stages(job.history), CLASSIFICATION)
    for drawing in drawings[:4]:
        lines = {name: len(line) for name, line in lines_of(drawing).items()}
        assert lines == {"training": points} | ({"held-out": scored} if held_out else {})
    assert ("Error over time % of rows in a wrong class" in said) == (points > 1)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_page_of_a_real_fit(fitted, strategy):
    job, result = fitted(strategy)
    opened = jobs.open_job(job)
    facts = JobFacts(
        *(job, "done", "", "", "", None, None, None, opened.store.spec()),
        plan=result.plan.to_json(),
        history=opened.state().history,
    )
    read = check(page(facts))
    assert not OF_NUMBERS.search(read.text.partition("Parameters")[0])
    assert f"Training error {format_share(result.history[-1]['train_error'])}" in read.text


def test_errors_of_separable_classes_are_drawn_from_zero():
    """No error at all: the axis does not go below 0 %."""
    history = [class_fits.entry(number, number=number, train_error=0.0, held_out_error=0.0) for number in (1, 2, 3)]
    errors = curves(stages(history), CLASSIFICATION)[2]
    assert errors.title == "Error over rounds"
    assert drawn(errors).get_ylim()[0] == 0.0


@browser
@pytest.mark.parametrize(
    ("strategy", "width"), some([("working-set", 1100), ("split-merge", 390), ("basic", 320)], {("split-merge", 390)})
)
def test_a_browser_draws_it(tmp_path, strategy, width):
    """Nothing is cut off, nothing lies on something else, and the page is no wider than the window."""
    job = job_of(strategy)
    measured, picture = browse(tmp_path, page(job), width=width, height=3000)
    assert measured["found"] == []
    assert measured["wide"] <= measured["seen"] == width
    assert measured["text"].count("elapsed, s") == (0 if strategy == "basic" else 4)
    assert strategy == "basic" or holds(picture, "#2c66a8")
