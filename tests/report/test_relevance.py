"""Bars of relevance: on a page that a browser draws well, and in a picture; ranked, counted, and named."""

from __future__ import annotations

import re

import numpy as np
import pytest
from pages import browse, browser, check

from partirvm.report.page import JobFacts, page
from partirvm.report.relevance_bars import MOST, bars, draw_relevance, ranking, relevance_of

NAMES = ["a<b>&c", "M" * 40, *(f"feature {k}" for k in range(28))]
RELEVANCE = {name: 0.8**k for k, name in enumerate(NAMES)} | {f"noise {k}": 1e-4 for k in range(90)}


def facts(relevance):
    """A job of which nothing is known but this."""
    return JobFacts("jobs/one", "done", "", "", "", None, None, None, {}, None, [], relevance)


def test_largest_first_and_the_rest_counted():
    """0.8³⁰ = 0.0012: 30 features count, of which 20 have a bar as long as their share of the longest."""
    shuffled = dict(sorted(RELEVANCE.items()))
    found = ranking(shuffled)
    assert [name for name, _ in found.shown] == NAMES[:MOST]
    assert (found.more, set(found.off)) == (10, {f"noise {k}" for k in range(90)})
    read, (drawing,) = check(page(facts(shuffled)))
    widths = [float(width) for width in re.findall(r'<rect class="bar".*? width="(.*?)"', drawing)]
    assert [width / widths[0] for width in widths] == pytest.approx([0.8**k for k in range(MOST)], abs=0.01)
    for text in ("10 more of less relevance", "90 features switched off", "noise 0", "noise 89", "a<b>&c"):
        assert text in read.text


def test_no_bars_where_there_is_nothing_to_tell():
    """One width for all standardised features, a constant one among them; no kernel that tells; a single feature."""
    for relevance in ({"a": 1.0, "b": 1.0, "c": 0.0}, {}, {"a": 1.0}):
        assert not bars(relevance)
    assert "Features" not in check(page(facts(None)))[0].text


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
    """Columns of a frame have their names there, others a number; a bar's length is its relevance."""
    from matplotlib.figure import Figure

    from partirvm.report.relevance_bars import plot_relevance

    class Fitted:
        feature_relevance_ = np.array([0.25, 1.0, 0.0])

    assert list(relevance_of(Fitted())) == ["x0", "x1", "x2"]
    Fitted.feature_names_in_ = ["age", "height", "shoe"]
    axis = Figure().add_subplot()
    plot_relevance(axis, Fitted())
    assert [label.get_text() for label in axis.get_yticklabels()] == ["height", "age"]
    assert [bar.get_width() for bar in axis.patches] == [1.0, 0.25]
    assert "1 feature switched off" in axis.get_xlabel()
    draw_relevance(Fitted(), tmp_path / "bars.png", title="who counts")
    assert (tmp_path / "bars.png").read_bytes().startswith(b"\x89PNG")
