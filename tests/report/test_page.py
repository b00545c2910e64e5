"""A job's page is complete, agrees with its numbers, and is safe to open."""

import json
import math
import re
import warnings
from dataclasses import asdict, replace
from itertools import pairwise

import histories
import numpy as np
import pytest
from by_default import some
from markupsafe import escape
from numpy.random import default_rng
from pages import check, lines_of

from partirvm import ingest, jobs
from partirvm.core import ClassDiagnostics, ClassScores, NumberDiagnostics, Termination
from partirvm.core.diagnostics import to_json
from partirvm.errors import PartirvmWarning
from partirvm.kernels import Categorical, Directions, Gaussian, Matern52, OnColumns, Product
from partirvm.model.facts import directions_json
from partirvm.options import Request
from partirvm.quoting import format_bytes, format_duration
from partirvm.report.history import (
    CLASSIFICATION,
    MEASURED,
    format_error,
    format_evidence,
    format_share,
    kind_of,
)
from partirvm.report.page import FEATURES, LISTS, Report, history_charts

FITS = [("basic", False), ("split-merge", False), ("incremental", True), ("working-set", True)]
HOSTILE = "</style><script>alert('1')</script>\"'&<img src=x onerror=alert(2)>"
OF_NUMBERS = re.compile(r"RMSE|NLPD|[Nn]oise|\bnan\b|None")
"""Text that no page about classes may contain."""


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Return training and held-out DATA."""
    rng = default_rng(5)
    X = rng.uniform(-3, 3, (500, 2))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=len(X))
    folder = tmp_path_factory.mktemp("data")
    for name, rows in (("train", slice(0, 400)), ("held-out", slice(400, 500))):
        ingest((X[rows], y[rows]), str(folder / name))
    return str(folder / "train"), str(folder / "held-out")


class Shown(Report):
    """A report with its values as attributes."""

    def __getattr__(self, name):
        return self.values[name]


def shown_with(report, **values):
    """Return the report with other values."""
    return Shown(report.values | values)


@pytest.fixture(scope="module")
def fitted(tables, tmp_path_factory):
    """Return the report of a job for each strategy, with or without held-out rows, fitted once."""
    reports = {}

    def of(strategy, held_out=True):
        if (strategy, held_out) not in reports:
            data, validation = tables
            asked = Request(
                strategy=strategy, gamma=0.5, max_rounds=4 if strategy == "working-set" else None
            )
            if strategy in ("split-merge", "incremental"):
                asked = replace(asked, partition_size=50)
            job = str(tmp_path_factory.mktemp("jobs") / strategy)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", PartirvmWarning)
                jobs.fit(data, job, asked, validation=validation if held_out else None)
            begin = 1785600000.0
            times = {"queued": begin, "began": begin + 1, "ended": begin + 100, "seconds": 99.0}
            reports[strategy, held_out] = shown_with(jobs.open_job(job).report(), **times)
        return reports[strategy, held_out]

    return of


STATES = ["queued", "planned", "running", "no model", "aborting", "aborted", "failed"]


@pytest.fixture(params=[*STATES, "interrupted"])
def unfinished(request, fitted):
    """Return a job in each state except done."""
    name = request.param
    job = fitted("working-set")
    status = {"planned": "running", "no model": "running"}.get(name, name)
    job = shown_with(
        job, status=status, status_advice=f"It is {status}.", reason="", advice="", ended=None
    )
    if name == "queued":
        return shown_with(job, began=None, plan=None, history=[])
    if name == "planned":
        return shown_with(job, history=[])
    if name == "aborted":
        job = shown_with(job, reason="aborted", advice=Termination.ABORTED.advice)
    if name == "failed":
        job = shown_with(
            job, reason="StorageError: no room\n  left on the device", ended=1785600050.0
        )
    if name == "no model":
        parts = [{**entry, "kind": "part", "saved": False} for entry in job.history[:2]]
        return shown_with(job, history=parts)
    return shown_with(job, history=job.history[:3])


@pytest.mark.usefixtures("without_charts")
def test_the_page_shows_nearest_rows_and_their_corrections(fitted):
    job = fitted("working-set")
    last = {
        **job.history[-1],
        "residuals": {"bytes": 1, "lacking": 0, "rmse": 0, "rmse_gain": 0, "density_gain": 0},
    }
    near = [[1234, 0.25, 0.5, -0.125], [1235, 0.5, -0.25, 2.0], [1236, 1.0, 0.0, 3.0]]
    last["diagnostics"] = [
        {**each, "neighbours": [near] * len(each["largest"])} for each in last["diagnostics"]
    ]
    text, without = (
        check(shown_with(job, history=[*job.history[:-1], line]).html).text
        for line in (last, job.history[-1])
    )
    row = last["diagnostics"][0]["largest"][0][0]
    rows = "1,234: 0.25, +0.50, -0.125 1,235: 0.5, -0.25, +2 1,236: 1, +0.00, +3"
    assert f"third {row:,} {rows}" in text
    for said in (
        "nearest training rows correct each",
        "are those of the vectors alone",
        "Their nearest training rows",
    ):
        assert said in text
        assert said not in without


@pytest.mark.parametrize(("strategy", "held_out"), some(FITS, {("working-set", True)}))
def test_the_page_shows_every_number(fitted, strategy, held_out):
    job = fitted(strategy, held_out)
    html = job.html
    read = check(html)
    last = job.history[-1]
    plan = job.plan
    figures = [
        job.location,
        "done",
        job.status_advice,
        job.advice,
        "queued 1 Aug 2026, 16:00 UTC",
        "ended 1 Aug 2026, 16:01 UTC",
        f"Vectors {last['vectors']:,} relevance vectors of 400 rows",
        format_error(last["train_rmse"]),
        format_error(math.sqrt(last["noise_variance"])),
        format_evidence(last["log_evidence"]),
        f"Time {format_duration(99.0)} ({format_duration(plan['seconds'])} planned)",
        f"Memory {format_bytes(max(entry['peak_memory'] for entry in job.history))} (",
        "400 rows × 2 features",
        " ".join(plan["text"].split()),
        job.parameters["data"],
        "gamma 0.5",
        ", ".join(f"{part} {version}" for part, version in job.versions.items()),
        format_bytes(plan["memory_limit"]),
    ]
    if held_out:
        figures += [
            format_error(last["held_out_rmse"]),
            "NLPD " + format_error(last["held_out_nlpd"]),
            job.parameters["validation"],
        ]
    else:
        assert "Held-out error" not in read.text
    for figure in figures:
        assert figure in read.text
    done = [entry for entry in job.history if entry["kind"] not in MEASURED]
    points = len(done)
    charts = history_charts(job.history, kind_of(last))
    scored = sum(entry["held_out_nlpd"] is not None for entry in done)
    assert len(charts) == (3 + (scored > 1) if points > 1 else 0)
    assert ("Error over fits" in read.titles) == (points > 1)
    for chart in charts[:1]:
        lines = lines_of(chart)
        assert lines["training"][:, 0].tolist() == list(range(1, points + 1))
        assert lines["training"][:, 1].tolist() == [entry["train_rmse"] for entry in done]
        assert set(lines) == ({"training", "held-out"} if held_out else {"training"})
    fits = html.partition("<h2>History</h2>")[2].partition("</table>")[0]
    assert fits.count("<tr") == len(job.history) + 1


@pytest.mark.usefixtures("without_charts")
def test_the_page_of_an_unfinished_job_shows_its_state(unfinished):
    read = check(unfinished.html)
    assert f"{unfinished.status} It is {unfinished.status}." in read.text
    assert " ".join(unfinished.reason.split()) in read.text
    assert ("no model" in read.text) != any(entry["saved"] for entry in unfinished.history)
    if unfinished.ended is None:
        assert " ended 2" not in read.text


@pytest.mark.usefixtures("without_charts")
def test_a_notebook_shows_plan_model_job_and_report(tables, tmp_path):
    found = jobs.fit(
        tables[0], str(tmp_path / "job"), Request(gamma=0.5, max_rounds=1, residual="none")
    )
    job = jobs.open_job(str(tmp_path / "job"))
    plan, model, handle, report = (
        each._repr_html_() for each in (found.plan, found.model, job, job.report())
    )
    assert "<caption>Plan</caption>" in plan
    assert ">400 rows × 2 features (1 tile of " in plan
    assert "<caption>Model</caption>" in model
    for sentence in found.model.summary().sentences:
        assert all(sentence in shown for shown in (model, handle))
        assert sentence in job.report().html
    assert re.search(r">status</th><td [^>]*>done since \d+ \w+ \d{4}, \d\d:\d\d</td>", handle)
    assert report.startswith('<iframe title="Report of a job" sandbox srcdoc="&lt;!')


@pytest.mark.usefixtures("without_charts")
def test_hostile_text_is_escaped(fitted):
    """The page contains no element from it."""
    job = fitted("working-set")
    plan = {**job.plan, "notes": [HOSTILE], "text": f"work        {HOSTILE}"}
    texts = dict.fromkeys(("location", "status", "status_advice", "reason", "advice"), HOSTILE)
    hostile = shown_with(
        job,
        **texts,
        parameters={**job.parameters, "kernel": HOSTILE, "data": HOSTILE, HOSTILE: HOSTILE},
        versions={HOSTILE: HOSTILE},
        plan=plan,
        history=[{**entry, "termination": HOSTILE} for entry in job.history],
        relevance={HOSTILE: 1.0, "b": 0.5, HOSTILE + "off": 0.0},
        directions=[{"share": 1.0, "loadings": {HOSTILE: 1.0}}],
        bases=[{"name": HOSTILE, "weights": [1.0], "relevance": 1.0}],
        damaged=[HOSTILE],
    )
    source = hostile.html
    read = check(source)
    assert "<script" not in source
    assert "<img src=x" not in source
    assert source.count("</style>") == 1
    assert read.text.count(" ".join(HOSTILE.split())) >= 12
    assert escape(HOSTILE) in source


def test_charts_leave_out_non_finite_values(fitted):
    job = fitted("incremental")
    history = [dict(entry) for entry in job.history]
    history[1].update(train_rmse=math.nan, held_out_rmse=math.inf, log_evidence=-math.inf)
    check(shown_with(job, history=history).html)
    lines = lines_of(history_charts(history, kind_of(history[0]))[0])
    assert {len(line) for line in lines.values()} == {len(history) - 1}


@pytest.mark.usefixtures("without_charts")
def test_the_page_without_matplotlib_has_no_charts(fitted):
    read = check(fitted("working-set").html)
    assert 'pip install "partirvm[plot]"' in read.text
    assert read.titles == []


@pytest.mark.usefixtures("without_charts")
def test_parameters_that_differ_from_their_defaults_come_first(fitted):
    table = fitted("incremental").html.partition("<h2>Parameters</h2>")[2]
    names = re.findall(r'<th scope="row">(.*?)</th>', table)
    assert names[:5] == ["gamma", "strategy", "partition_size", "data", "validation"]
    assert sorted(names) == sorted([*asdict(Request()), "data", "validation"])


def job_of(strategy, *, held_out=True, **changes):
    """Return a job for three classes with a history from ``histories``."""
    plan = histories.plan(strategy, outputs=3)
    history = histories.history(strategy, held_out=held_out)
    parameters = json.loads(json.dumps(asdict(Request(gamma=0.5))))
    facts = {"plan": plan, "history": history, "seconds": 99.0, "parameters": parameters}
    facts |= {"location": "jobs/flowers", "status": "done", "status_advice": "Its model is ready."}
    facts |= {"reason": "converged", "advice": "Nothing to do."}
    facts |= dict.fromkeys(("versions", "relevance", "queued", "began", "ended"))
    facts |= dict.fromkeys(LISTS, ()) | {"missing": {}}
    return Shown(facts | changes)


@pytest.mark.parametrize(("strategy", "held_out"), some(FITS, {("working-set", True)}))
def test_the_page_for_classes_shows_log_loss_and_error(strategy, held_out):
    """It shows Newton passes, but neither RMSE nor noise."""
    job = job_of(strategy, held_out=held_out)
    text = check(job.html).text
    assert not OF_NUMBERS.search(text.partition("Parameters")[0])
    last = job.history[-1]
    for rows in ["train", *["held_out"] * held_out]:
        figures = format_share(last[f"{rows}_error"]), format_error(last[f"{rows}_log_loss"])
        assert "{} (log loss {})".format(*figures) in text
    assert ("Held-out" in text) == held_out
    assert f"Passes {sum(entry['passes'] for entry in job.history)} over the rows" in text
    assert "Newton passes" in text
    for chart in history_charts(job.history, CLASSIFICATION)[:2]:
        assert set(lines_of(chart)) == {"training", *["held-out"] * held_out}


def with_every_part(kind):
    history = histories.history("working-set")
    outputs = {"two": ("no", "yes"), "three": ("a", "b", "c"), "several": ("y", "z")}[kind]
    stored = {
        "several": [to_json(NumberDiagnostics.of(*histories.numbers(100, 0.5), np.arange(100)))] * 2
    }
    for name, K in (("two", 2), ("three", 3)):
        codes, p = histories.classes(K, 200)
        scores = ClassScores.of(codes, p, p[:, 1].copy() if K == 2 else None)
        stored[name] = [to_json(scores.diagnostics[0])]
    if kind == "several":
        history = [histories.regression(entry) for entry in history]
    history[-1]["diagnostics"] = stored[kind]
    long = [{**history[0], "number": number} for number in range(30)]
    more = {
        "relevance": RELEVANCE,
        "directions": [{"share": 1.0, "loadings": {"a": 0.6, "b": 0.8}}],
    }
    return job_of("working-set", history=[*long, *history], outputs=outputs, **more)


NAMES = ["a<b>&c", "M" * 40, *(f"feature {k}" for k in range(28))]
RELEVANCE = (
    {name: 0.8**k for k, name in enumerate(NAMES)}
    | {"little": 1e-4}
    | {f"noise {k}": 0.0 for k in range(90)}
)


@pytest.mark.parametrize("kind", some(["several", "two", "three"], {"three"}))
def test_the_page_is_accessible(kind):
    """It has a language, landmarks, ordered headings, alternative texts for drawings, and named
    regions."""
    read = check(with_every_part(kind).html)
    tags = [tag for tag, _ in read.elements]
    assert read.elements[tags.index("html")][1]["lang"] == "en"
    assert [tags.count(tag) for tag in ("main", "h1", "header", "footer")] == [1, 1, 1, 1]
    levels = [int(tag[1]) for tag in tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert len(read.titles) >= 6
    assert all(len(attributes["alt"]) > 10 for tag, attributes in read.elements if tag == "img")
    regions = [attributes for _, attributes in read.elements if attributes.get("class") == "scroll"]
    assert len({attributes["aria-label"] for attributes in regions}) == len(regions)
    assert {attributes["tabindex"] for attributes in regions} == {"0"}
    assert {attributes["role"] for attributes in regions} == {"region"}
    assert tags.count("table") == tags.count("caption") == len(regions) >= 4
    scopes = [attributes.get("scope") for tag, attributes in read.elements if tag == "th"]
    assert scopes.count("row") == tags.count("tr") - tags.count("thead")
    assert set(scopes) == {"col", "row"}


@pytest.mark.usefixtures("without_charts")
def test_the_page_has_tables_of_the_largest_errors():
    """They give row, actual and predicted value, deviation and ratio; classes are named."""
    line = histories.history("basic")[-1]
    p = np.array([[0.9, 0.1], [0.4, 0.6]])
    t = np.array([1.0, -2.0])
    mean = np.array([0.5, 1.0])
    std = np.array([0.25, 2.0])
    numbers = NumberDiagnostics.of(t, mean, std, np.array([1234, 7]))
    classes = ClassDiagnostics.of(np.array([1, 1]), p)
    for found, outputs, said in (
        (numbers, ("y",), "7 -2 1 2 -1.50 1,234 1 0.5 0.25 2.00"),
        (classes, ("no", "yes"), "0 yes no 10 % 90 % 1 yes yes 60 % 60 %"),
    ):
        job = job_of("basic", history=[{**line, "diagnostics": [to_json(found)]}], outputs=outputs)
        assert said in check(job.html).text


@pytest.mark.usefixtures("without_charts")
def test_features_are_ranked_by_relevance():
    """Features that are switched off come last; equal features have no table."""
    page = job_of("basic", relevance=dict(sorted(RELEVANCE.items()))).html.partition(
        "<h2>Features</h2>"
    )[2]
    rows = re.findall(r'<th scope="row">(.*?)</th><td>(.*?)</td>', page.partition("</table>")[0])
    shown = [f"{100 * 0.8**k:.3g} %" for k in range(30)] + ["&lt; 0.1 %"] + ["switched off"] * 90
    assert [value for _, value in rows] == shown
    assert rows[2][0] == "feature 0"
    for relevance in ({"a": 1.0, "b": 1.0}, {}, {"a": 1.0}, None):
        assert "Features" not in check(job_of("basic", relevance=relevance).html).text


@pytest.mark.usefixtures("without_charts")
def test_the_page_shows_fractions_of_missing_values():
    page = check(job_of("basic", missing={"age": 0.25, "height": 0.001}).html).text
    assert "Missing values" in page
    assert ("25 %" in page, "0.1 %" in page) == (True, True)


FEATURE_NAMES = ("age", "zone", "height")


def test_shares_and_loadings_for_a_product_with_categories():
    """share_i ∝ gamma_i Σ_j a_ij² v_j; loadings have unit length."""
    axes = np.array([[3.0, 4.0], [1.0, 0.0]])
    variance = np.array([1.0, 0.25, 4.0])
    directions = OnColumns(Directions(Gaussian((0.5, 2.0)), axes), (0, 2))
    found = directions_json(
        Product((directions, OnColumns(Categorical(1.0), (1,)))), variance, FEATURE_NAMES
    )
    weights = np.array([0.5 * (9 * 1 + 16 * 4), 2.0 * 1])
    assert [each["share"] for each in found] == pytest.approx(weights / weights.sum())
    assert found[0]["loadings"] == pytest.approx({"age": 0.6, "height": 0.8})
    assert found[1]["loadings"] == pytest.approx({"age": 1.0, "height": 0.0})
    assert directions_json(Matern52(0.5), variance, FEATURE_NAMES) == []


@pytest.mark.usefixtures("without_charts")
def test_the_page_lists_directions_by_share():
    """Each direction lists its main features."""
    loadings = {f"feature {k}": 0.3 for k in range(FEATURES + 3)}
    pairs = [(0.2, {"age": -0.8, "height": 0.6}), (0.796, loadings), (0.004, {"age": 1.0})]
    given = [{"share": share, "loadings": own} for share, own in pairs]
    read = check(job_of("basic", directions=given).html)
    for text in ("Directions", "79.6 %", "20 %", "-0.80 age +0.60 height", "0.4 %"):
        assert text in read.text
    assert read.text.index("79.6 %") < read.text.index("20 %")
    assert "Directions" not in check(job_of("basic").html).text
