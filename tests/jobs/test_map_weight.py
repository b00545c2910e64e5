"""``selection="map-weight"`` from the estimators: a working set of few of the rows that fits as all of them do."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.estimator_parameters import grouped
from partirvm import RVMRegressor, WorkingSet
from partirvm.errors import MemoryLimitError, UsageError


def rows(n=600):
    rng = np.random.default_rng(2)
    X = rng.uniform(-3, 3, (n, 2))
    return X, np.sin(2 * X[:, 0]) * X[:, 1] + 0.1 * rng.normal(size=n)


def test_few_rows_do_what_all_do():
    """Error near the noise, 0.1, from a part of the candidates; the first round has 20."""
    X, y = rows()
    asked = {"gamma": 1.0, "strategy": "working-set", "selection": "map-weight", "partition_size": 60}
    model = RVMRegressor(**grouped(asked), random_state=0).fit(X[:400], y[:400])
    assert model.termination_.value == "converged"
    rounds = [entry for entry in model.history_ if entry["kind"] == "round"]
    assert [entry["selection"] for entry in rounds] == ["map-weight"] * len(rounds)
    assert rounds[0]["candidates"] == 20
    assert np.sqrt(np.mean((model.predict(X[400:]) - y[400:]) ** 2)) < 0.13
    assert "selection map-weight" in str(model.plan_)


def test_what_is_refused():
    """Candidates' own rows alone; an N × N problem that does not fit."""
    X, y = rows()
    with pytest.raises(UsageError, match=r"'map-weight'.*'full' or 'sample'"):
        RVMRegressor(strategy=WorkingSet("map-weight", fit_rows="partition")).fit(X, y)
    many = np.random.default_rng(0).normal(size=(20_000, 2))
    asked = {"strategy": WorkingSet("map-weight"), "partition_size": 20, "memory_limit": "2GiB", "gamma": 1.0}
    with pytest.raises(MemoryLimitError, match="20,000 rows together"):
        RVMRegressor(**asked).fit(many, many[:, 0])
