"""RVMRegressor: strategies, selection of fit rows, heuristic partition sizes, and limits."""

import warnings
from itertools import product
from math import ceil, sqrt

import numpy as np
import pytest
from by_default import some
from regressions import plane

from partirvm import Incremental, RVMRegressor, SplitMerge, WorkingSet
from partirvm.core import Termination
from partirvm.errors import DataWarning, LimitWarning

KINDS = {kind.name: kind for kind in (SplitMerge, Incremental, WorkingSet)}
PARTITIONED = tuple(KINDS)
LIKELIHOODS = ("full", "sample")
NOISE = 0.1
SIMPLE = {
    "gamma": 0.1,
    "solver": "fixed-point",
    "residual": "none",
    "reference": "none",
    "random_state": 0,
}


def truth(X):
    """Return the function to which ``plane`` adds noise."""
    return 5 + np.sin(X[:, 0]) + 0.5 * X[:, -1]


def error(model):
    """Return the root mean square error against the noise-free function on new rows."""
    X, _ = plane(400, seed=8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        return np.sqrt(np.mean((model.predict(X) - truth(X)) ** 2))


@pytest.fixture(scope="module")
def basic():
    """Return a fit in which every row is a candidate."""
    return RVMRegressor(strategy="basic", **SIMPLE).fit(*plane(600))


@pytest.mark.parametrize(
    ("strategy", "likelihood"),
    some(
        product(PARTITIONED, LIKELIHOODS),
        {("split-merge", "sample"), ("incremental", "sample"), ("working-set", "full")},
    ),
)
def test_every_strategy_ends_near_basic(basic, strategy, likelihood):
    """Error, noise and vectors agree for ten partitions of 60 rows; the last fit uses all rows."""
    options = KINDS[strategy](fit_rows=likelihood, sample_rows=200)
    model = RVMRegressor(strategy=options, partition_size=60, **SIMPLE).fit(*plane(600))
    assert error(model) < 1.5 * error(basic) < 0.5 * NOISE
    assert model.model_.evidence_noise == pytest.approx(basic.model_.evidence_noise, rel=0.1)
    assert model.n_relevance_vectors_ < 1.5 * basic.n_relevance_vectors_
    *before, last = model.history_
    assert (last["kind"], last["fit_rows"], last["rows"]) == ("final", "full", 600)
    assert {entry["fit_rows"] for entry in before} == {likelihood}
    rows = {entry["rows"] for entry in before}
    assert rows == {600 if likelihood == "full" else 200}


@pytest.mark.slow
@pytest.mark.parametrize("strategy", some(PARTITIONED, {"incremental"}))
def test_the_heuristic_chooses_the_partition_size(strategy):
    """√(N·d) random rows, of which a fraction ρ become vectors, give P = ⌈f(ρ)·√(N·d)⌉."""
    N = 1200
    d = 12
    X, y = plane(N, d)
    model = RVMRegressor(strategy=strategy, gamma=0.1, residual="none", random_state=0).fit(X, y)
    first = model.history_[0]
    rho = model.plan_.rho
    assert (first["kind"], first["rows"]) == ("heuristic", ceil(sqrt(N * d)))
    assert rho == first["vectors"] / first["rows"]
    expected = ceil((0.2 if rho <= 0.25 else 0.6 if rho <= 0.75 else 1.0) * sqrt(N * d))
    assert (
        first["heuristic_size"] == first["partition_size"] == model.plan_.partition_size == expected
    )
    assert first["notes"] == []
    assert [entry["kind"] for entry in model.history_[1:]].count("heuristic") == 0
    assert f"{100 * rho:.3g} % of the rows of a small fit became relevance vectors" in str(
        model.plan_
    )


def dense():
    """Return rows of which nearly all become vectors in the first fits."""
    return plane(600, noise=0.02)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("strategy", "reason", "message"),
    [
        ("split-merge", Termination.CONVERGED, r"\d+ vectors were dropped at merges"),
        ("incremental", Termination.VECTORS, "max_vectors was reached"),
        ("working-set", Termination.VECTORS, None),
    ],
)
def test_max_vectors_holds_for_every_strategy(strategy, reason, message):
    """A warning is given if the limit dropped vectors or left candidates unread."""
    options = {
        "strategy": strategy,
        "gamma": 1.0,
        "partition_size": 100,
        "max_vectors": 60,
        "random_state": 0,
    }
    X, y = dense()
    if message is None:
        model = RVMRegressor(**options).fit(X, y)
    else:
        with pytest.warns(LimitWarning, match=message):
            model = RVMRegressor(**options).fit(X, y)
    assert model.termination_ is reason
    assert 0 < model.n_relevance_vectors_ <= 60
    assert all(
        entry["vectors"] <= 60 for entry in model.history_ if entry["kind"] in ("round", "final")
    )
    assert (model.history_[-1]["dropped"] > 0) == (strategy == "split-merge")
    assert model.score(X, y) > 0.9
