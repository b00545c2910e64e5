"""The table of directions on a job's page: shares and loadings by formula, and a page that a browser draws well."""

from __future__ import annotations

import numpy as np
import pytest
from pages import browse, browser, check

from partirvm.kernels import Categorical, Directions, Gaussian, Matern52, OnColumns, Product
from partirvm.report.model_tables import NAMED, Direction, combination, directions_table
from partirvm.report.page import JobFacts, page
from partirvm.setup.relevance import directions_json

FEATURES = ("age", "zone", "height", "M" * 40)


def facts(directions):
    """A job of which nothing is known but this."""
    return JobFacts("jobs/one", "done", "", "", "", None, None, None, {}, None, [], directions=directions)


def test_shares_and_loadings_of_a_product_with_categories():
    """share_i = gamma_i Σ_j a_ij² v_j over their sum; loadings of unit length, by the names of the numeric columns."""
    axes, variance = np.array([[3.0, 4.0], [1.0, 0.0]]), np.array([1.0, 0.25, 4.0])
    directions = OnColumns(Directions(Gaussian((0.5, 2.0)), axes), (0, 2))
    found = directions_json(Product((directions, OnColumns(Categorical(1.0), (1,)))), variance, FEATURES[:3])
    weights = np.array([0.5 * (9 * 1 + 16 * 4), 2.0 * 1])
    assert [each["share"] for each in found] == pytest.approx(weights / weights.sum())
    assert found[0]["loadings"] == pytest.approx({"age": 0.6, "height": 0.8})
    assert found[1]["loadings"] == pytest.approx({"age": 1.0, "height": 0.0})
    assert directions_json(Matern52(0.5), variance, FEATURES[:3]) == []


def test_the_features_beside_are_directions_too():
    """With ``features`` each feature is a direction of its own loading."""
    found = directions_json(Directions(Gaussian(1.0), [[0.6, 0.8]], features=True), np.ones(2), ("a", "b"))
    assert [each["share"] for each in found] == pytest.approx([1 / 3] * 3)
    assert found[2]["loadings"] == {"a": 0.0, "b": 1.0}


def test_the_page_lists_directions_by_share():
    """Small shares and small loadings are only counted; a page without directions has no such section."""
    loadings = {f"feature {k}": 0.3 for k in range(NAMED + 3)}
    given = [Direction(0.2, {"age": -0.8, "height": 0.6}), Direction(0.796, loadings), Direction(0.004, {"age": 1.0})]
    read = check(page(facts(given)))
    for text in ("Directions", "79.6 %", "20 %", "0.80 age − 0.60 height", "and 3 more", "1 direction of less share"):
        assert text in read.text
    assert read.text.index("79.6 %") < read.text.index("20 %")
    assert "Directions" not in check(page(facts(()))).text
    assert directions_table(()) is None


def test_many_small_loadings_and_shares():
    """Of 500 equal loadings one is named, positive; of 300 equal shares one is shown."""
    loadings = dict.fromkeys((f"x{k}" for k in range(500)), -(500**-0.5))
    assert combination(loadings) == "0.04 x0"
    found = directions_table([Direction(1 / 300, {"a": 1.0})] * 300)
    assert len(found["table"].rows) == 1
    assert found["notes"] == ["299 directions of less share"]


@browser
@pytest.mark.parametrize("width", [390, 1100])
def test_a_browser_finds_room_for_it(tmp_path, width):
    """Nothing cut off, nothing on something else, on a phone and on a screen."""
    given = [Direction(0.5, dict.fromkeys(FEATURES, 0.5)), Direction(0.5, {"a<b>&c": 1.0})]
    measured, _ = browse(tmp_path, page(facts(given)), width=width)
    assert measured["found"] == []
    assert measured["wide"] <= measured["seen"]


def test_a_kernel_of_directions_prints_itself():
    """Shape and family, not every entry."""
    kernel = Directions(Matern52((1.0,) * 8), np.eye(8))
    assert repr(kernel) == "Directions(matern52 along 8 directions of 8 features)"
