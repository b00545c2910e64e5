"""The benchmark beside other libraries: one formula for all evidences, scores, sizes, and what is not run again."""

from __future__ import annotations

import json

import naive
import numpy as np
import pytest

pytest.importorskip("benchmarks", reason="benchmarks are run from a checkout")

from benchmarks.datasets import Split
from benchmarks.peers import runs
from benchmarks.peers.data import DATASETS, standardised
from benchmarks.peers.evidence import best_alpha, log_evidence
from benchmarks.peers.methods import METHODS
from benchmarks.peers.runs import Settings, kept, run, run_sizes, scores
from partirvm import RVMRegressor


@pytest.mark.parametrize("beta", [1e-2, 10.0, 1e6])
def test_the_evidence_is_that_of_the_covariance(beta):
    """log N(t | 0, β⁻¹I + ΦA⁻¹Φᵀ) by the N × N matrix; without a column it is white noise."""
    rng = np.random.default_rng(0)
    X, t = rng.uniform(-2, 2, (40, 2)), rng.standard_normal(40)
    Phi, alpha = naive.gaussian(X, X[:12], 0.3), rng.uniform(0.1, 10, 12)
    np.testing.assert_allclose(log_evidence(Phi, t, alpha, beta), naive.log_evidence(Phi, t, alpha, beta), rtol=1e-9)
    white = 0.5 * (40 * np.log(beta / (2 * np.pi)) - beta * t @ t)
    np.testing.assert_allclose(log_evidence(Phi[:, :0], t, alpha[:0], beta), white, rtol=1e-12)


def test_a_precision_that_is_not_told_is_the_best():
    """What the column adds is the largest gain over all of its α (Tipping & Faul 2003, eq. 18); infinite where none."""
    rng = np.random.default_rng(1)
    X = rng.uniform(-2, 2, (30, 1))
    Phi, alpha, ones = naive.gaussian(X, X[:5], 1.0), rng.uniform(0.5, 2, 5), np.ones(30)
    for t, gains in ((rng.standard_normal(30) + 3, True), (np.zeros(30), False)):
        best = best_alpha(Phi, t, alpha, 4.0, ones)
        gain = naive.best_gain(*naive.sparsity_quality(ones, Phi, t, alpha, 4.0))
        assert np.isfinite(best) == (gain > 0) == gains
        if gains:
            whole = log_evidence(np.column_stack([Phi, ones]), t, np.append(alpha, best), 4.0)
            np.testing.assert_allclose(whole - log_evidence(Phi, t, alpha, 4.0), gain, rtol=1e-5)


@pytest.fixture(scope="module")
def small():
    """60 rows of sinc, standardised, and our own fit to them."""
    split = DATASETS["sinc"].split("", 60)
    return split, RVMRegressor(gamma=4.0, standardize=False, random_state=0).fit(split.X, split.y)


@pytest.mark.parametrize("method", ["partirvm", "fastrvm", "sklearn-rvm", "ard"])
def test_evidence_of_a_library(small, method):
    """Ours is what the estimator says; other RVMs of the same model end nearby, far above white noise."""
    if METHODS[method].missing():
        pytest.skip(f"{METHODS[method].needs} is not installed")
    split, model = small
    fitted = METHODS[method].fit(split.X, split.y, 4.0)
    white = -0.5 * 60 * (np.log(2 * np.pi) + 1)
    assert model.log_evidence_ > white + 30
    np.testing.assert_allclose(fitted.evidence(), model.log_evidence_, atol=1e-6 if method == "partirvm" else 2.0)
    assert scores(*fitted.predict(split.X_test), split.y_test)["rmse"] < 0.6


def test_scores_of_normal_predictions():
    """Errors 0 and 2 at sd 1: RMSE √2, NLPD ½ log 2π + 1, one of two within 1.96 sd."""
    found = scores(np.array([1.0, 1.0]), np.ones(2), np.array([1.0, 3.0]))
    np.testing.assert_allclose([found["rmse"], found["nlpd"]], [2**0.5, 0.5 * np.log(2 * np.pi) + 1])
    assert found["coverage"] == 0.5


def test_rows_are_standardised_and_small_sets_are_parts_of_larger_ones(tmp_path):
    """Moments of the training rows, for test rows too; the tenth that tests is the same."""
    raw = Split("", np.array([[1.0, 5.0], [3.0, 5.0]]), np.array([0.0, 4.0]), np.array([[5.0, 6.0]]), np.array([6.0]))
    made = standardised(raw)
    assert (made.X.tolist(), made.X_test.tolist()) == ([[-1, 0], [1, 0]], [[3, 1]])
    assert (made.y.tolist(), made.y_test.tolist()) == ([-1, 1], [2])
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "boston.npz", X=rng.uniform(size=(200, 3)), y=rng.uniform(size=200))
    few, more = (DATASETS["boston"]._raw(tmp_path, rows) for rows in (50, 100))
    assert np.array_equal(more.X[:50], few.X)
    assert np.array_equal(more.X_test, few.X_test)
    there = len(DATASETS["boston"]._raw(tmp_path, 1000).y)
    assert 150 < there < 200
    assert DATASETS["boston"].sizes(tmp_path, [100, 500, 1000]) == [100, there]


def test_sizes_end_where_time_does_and_nothing_is_run_twice(tmp_path, monkeypatch):
    """1 s at 100 rows makes 4 s at 200, and would make 16 s at 400; a run that is kept is read."""
    asked = []

    def within(seconds, function, folder, name, rows, method):
        asked.append(rows)
        if method == "gp":
            raise TimeoutError
        if method == "fastrvm":
            raise ChildProcessError
        return {"seconds": (rows / 100) ** 2, "rmse": 0.1, "nlpd": 0.0, "vectors": 3}

    monkeypatch.setattr(runs, "within", within)
    settings = Settings("", tmp_path, 10.0)
    for _ in range(2):
        found = run_sizes("sinc", [100, 200, 400], "ard", settings)
        assert [one["rows"] for one in found] == asked == [100, 200]
    assert [one["note"] for one in run_sizes("sinc", [100, 200], "gp", settings)] == ["more than 10 s"]
    for _ in range(2):
        assert run("sinc", 100, "fastrvm", settings)["note"] == "died"
    assert asked == [100, 200, 100, 100, 100]
    assert [(one["method"], one["rows"]) for one in kept(tmp_path)] == [("ard", 100), ("gp", 100), ("ard", 200)]
    assert json.loads((tmp_path / "runs" / "sinc--200--ard.json").read_text())["seconds"] == 4.0
