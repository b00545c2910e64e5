"""The page for readers who cannot see it, use a keyboard, or need contrast: structure, names and colours."""

from __future__ import annotations

import re
from importlib.resources import files
from itertools import pairwise

import class_fits
import numpy as np
import pytest
from pages import check

from partirvm.core.diagnostics import NumberDiagnostics
from partirvm.core.scores import ClassScores
from partirvm.report.model_tables import Direction
from partirvm.report.page import JobFacts, page

CSS = (files("partirvm.report") / "page.css").read_text(encoding="utf-8")
PLAN = {
    "rows": 400, "features": 2, "tile_rows": 400, "tiles": 1, "strategy": "working-set", "fit_rows": "full",
    "sample_rows": None, "selection": "error", "partition_size": 50, "partitions": 8, "rho": None, "rho_rows": None,
    "rounds": 5, "max_rounds": 5, "max_vectors": None, "max_columns": 900, "passes": 9, "rows_per_task": 400,
    "threads": 1, "workers": 1, "seconds": 4.0, "memory_limit": 1 << 30, "memory_peak": 1 << 28, "notes": ["a note"],
}  # fmt: skip


def numbers(n=100):
    """Diagnostics of a regression."""
    rng = np.random.default_rng(0)
    mean, std = rng.normal(size=n), np.exp(0.5 * rng.normal(size=n))
    return NumberDiagnostics.of(mean + std * rng.normal(size=n), mean, std, np.arange(n)).to_json()


def classes(K, n=200):
    """Diagnostics of a classification."""
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.full(K, 0.4), n)
    codes = np.array([rng.choice(K, p=each) for each in p])
    return ClassScores.of(codes, p, p[:, 1].copy() if K == 2 else None).diagnostics[0].to_json()


def facts(kind):
    """A job with every part of the page."""
    history = class_fits.history("working-set")
    outputs = {"two": ("no", "yes"), "three": ("a", "b", "c"), "numbers": ("y",), "several": ("y", "z")}[kind]
    stored = {"two": [classes(2)], "three": [classes(3)], "numbers": [numbers()], "several": [numbers(), numbers()]}
    if kind in ("numbers", "several"):
        history = [class_fits.regression(entry) for entry in history]
    history[-1]["diagnostics"] = stored[kind]
    long = [{**history[0], "number": number} for number in range(30)]
    return JobFacts(
        "jobs/one", "done", "Ready.", "converged", "Nothing to do.", 0.0, 1.0, 2.0,
        {"data": "d", "parameters": {"gamma": 0.5}}, PLAN, [*long, *history],
        relevance={"a": 1.0, "b": 0.4, "c": 0.0}, directions=[Direction(1.0, {"a": 0.6, "b": 0.8})],
        outputs=outputs, seconds=9.0,
    )  # fmt: skip


@pytest.fixture(params=["numbers", "several", "two", "three"])
def read(request):
    """A page, read."""
    return check(page(facts(request.param)))


def test_language_title_and_main(read):
    tags = [tag for tag, _ in read.elements]
    assert read.elements[tags.index("html")][1]["lang"] == "en"
    assert [tags.count(tag) for tag in ("main", "h1", "header", "footer")] == [1, 1, 1, 1]
    assert tags.index("title") < tags.index("body")
    viewport = next(attributes for tag, attributes in read.elements if attributes.get("name") == "viewport")
    assert "user-scalable" not in viewport["content"]


def test_headings_are_in_order(read):
    levels = [int(tag[1]) for tag, _ in read.elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_every_drawing_has_a_text(read):
    labels = [attributes for tag, attributes in read.elements if tag == "svg"]
    assert len(labels) > 8
    for attributes in labels:
        assert attributes["role"] == "img"
        assert len(attributes["aria-label"]) > 10


def test_every_table_has_a_caption_and_headers(read):
    """A header for each column and each row, in a region with a name of its own that a keyboard can scroll."""
    regions = [attributes for tag, attributes in read.elements if attributes.get("class") == "scroll"]
    names = [attributes["aria-label"] for attributes in regions]
    assert len(set(names)) == len(names)
    assert all(attributes["tabindex"] == "0" and attributes["role"] == "region" for attributes in regions)
    tags = [tag for tag, _ in read.elements]
    assert tags.count("table") == tags.count("caption") == len(regions) >= 5
    scopes = [attributes.get("scope") for tag, attributes in read.elements if tag == "th"]
    assert set(scopes) == {"col", "row"}
    rows = tags.count("tr")
    gaps = sum(attributes.get("class") == "gap" for tag, attributes in read.elements if tag == "tr")
    assert scopes.count("row") == rows - tags.count("table") - gaps


def test_values_of_drawings_are_text_too(read):
    """What a tooltip shows stands in a list or a table as well."""
    assert "Values" in read.text or "Numbers of rows" in read.text
    tips = {attributes.get("aria-label") for tag, attributes in read.elements if tag == "ul"}
    assert all(tip is None or tip.startswith("Values of ") for tip in tips)


def test_the_focus_is_visible():
    assert re.search(r":focus-visible \{ outline: 2px solid", CSS)
    assert not re.search(r"outline: *(none|0)", CSS)
