"""Bars of relevance: on a page that a browser draws well, and in a picture; ranked, counted, and named."""

from __future__ import annotations

import numpy as np
import pytest
from pages import browse, browser, check, drawn

from partirvm.report.curves import SHOWN, draw_relevance, informative, ranking
from partirvm.report.page import JobFacts, page

NAMES = ["a<b>&c", "M" * 40, *(f"feature {k}" for k in range(28))]
RELEVANCE = {name: 0.8**k for k, name in enumerate(NAMES)} | {f"noise {k}": 1e-4 for k in range(90)}


def facts(relevance):
    """A job of which nothing is known but this."""
    return JobFacts("jobs/one", "done", "", "", "", None, None, None, {}, None, [], relevance)


def test_largest_first_and_the_rest_counted():
    """0.8³⁰ = 0.0012: 30 features count, of which 20 have a bar as long as their share of the longest."""
    shuffled = dict(sorted(RELEVANCE.items()))
    found = ranking(shuffled)
    assert list(found.shown) == NAMES[:SHOWN]
    assert (found.more, set(found.off)) == (10, {f"noise {k}" for k in range(90)})
    widths = [bar.get_width() for bar in drawn(found.panel).patches]
    assert widths == pytest.approx([0.8**k for k in range(SHOWN)])
    read = check(page(facts(shuffled)))
    for text in ("10 more of less relevance", "90 features switched off", "noise 0", "noise 89", "a<b>&c"):
        assert text in read.text


def test_no_bars_where_there_is_nothing_to_tell():
    """One width for all standardised features, a constant one among them; no kernel that tells; a single feature."""
    for relevance in ({"a": 1.0, "b": 1.0, "c": 0.0}, {}, {"a": 1.0}):
        assert not informative(relevance)
    assert "Features" not in check(page(facts(None))).text


@browser
@pytest.mark.parametrize("width", [390, 1100])
def test_a_browser_finds_room_for_it(tmp_path, width):
    """Nothing cut off, nothing on something else, on a phone and on a screen."""
    source = page(facts(RELEVANCE))
    assert ".names" in source.partition("</style>")[0]
    measured, _ = browse(tmp_path, source, width=width)
    assert measured["found"] == []
    assert measured["wide"] <= measured["seen"]


def test_a_picture_of_an_estimator(tmp_path):
    """Columns of a frame have their names there, others a number."""

    class Fitted:
        feature_relevance_ = np.array([0.25, 1.0, 0.0])

    draw_relevance(Fitted(), tmp_path / "numbered.png")
    Fitted.feature_names_in_ = ["age", "height", "shoe"]
    for ending, start in (("png", b"\x89PNG"), ("svg", b"<?xml")):
        draw_relevance(Fitted(), tmp_path / f"bars.{ending}", title="who counts")
        assert (tmp_path / f"bars.{ending}").read_bytes().startswith(start)
    for text in (b"height", b"age", b"who counts"):
        assert b"<!-- " + text in (tmp_path / "bars.svg").read_bytes()
