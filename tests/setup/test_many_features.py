"""Kernel learning with many features: fewer rows and centres, stated by the plan."""

from __future__ import annotations

import numpy as np
import pytest

from partirvm import RVMRegressor
from partirvm.setup.kernel_search import WORK, within_work


@pytest.mark.parametrize("n_features", [1, 50, 51, 2_000, 100_000])
def test_an_evaluation_costs_at_most_the_allowed_work(n_features):
    """Up to 50 features the numbers stay as they are."""
    rows, centres = within_work(8_000, 500, n_features)
    assert rows * centres * n_features <= WORK
    assert ((rows, centres) == (8_000, 500)) == (n_features <= 50)


@pytest.mark.slow
def test_the_note_of_a_plan_states_rows_and_centres():
    """2,000 features, of which two matter: the history's search has the rows that the note of the plan states."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2_000, 2_000))
    found = RVMRegressor(random_state=0).fit(X, X[:, 0] + 0.1 * rng.normal(size=2_000))
    (search,) = [entry for entry in found.history_ if entry["kind"] == "kernel"][:1]
    assert (search["rows"], search["candidates"] <= 158) == (632, True)
    assert (
        "kernel learned from 632 rows and at most 158 centres, of one family, because of 2,000 features"
        in found.plan_.notes
    )
