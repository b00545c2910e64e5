"""The benchmark of the literature's small examples: its data are what they are said to be, and its table is written."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.model_selection import KFold

pytest.importorskip("benchmarks", reason="benchmarks are run from a checkout")

from benchmarks.family.__main__ import main
from benchmarks.family.data import REPORT_SETS, ReportSet, cos, friedman, gaussian_noise, linear, sinc, uniform_noise
from benchmarks.family.goals import Fit, Goal
from benchmarks.family.kth import PRINTED, folds, rows, verdict


def test_the_generated_sets_follow_their_formulas():
    """sin|x|/|x| on a grid, noise of the sd that is told, Friedman's formulas, classes parted by x₁ + x₂ = 0."""
    X, y = sinc(100)
    assert (X[0, 0], X[-1, 0], X.shape) == (-10.0, 10.0, (100, 1))
    np.testing.assert_allclose(np.diff(X[:, 0]), 20 / 99)
    np.testing.assert_allclose(y, [math.sin(abs(x)) / abs(x) for x in X[:, 0]], rtol=1e-12)
    flat, normal = uniform_noise(40_000, 1), gaussian_noise(40_000, 1)
    assert np.abs(flat).max() <= 0.2
    np.testing.assert_allclose([flat.std(), normal.std()], [0.2 / math.sqrt(3), 0.2], rtol=0.02)
    X, y = cos(4000)
    np.testing.assert_allclose((y - np.cos(X[:, 0])).std(), 0.1, rtol=0.05)
    X, y = friedman(2, 2000)
    a, b, c, d = X.T
    np.testing.assert_allclose((y - np.sqrt(a**2 + (b * c - 1 / (b * d)) ** 2)).std(), 0.1, rtol=0.1)
    X, y = friedman(3, 2000)
    a, b, c, d = X.T
    np.testing.assert_allclose((y - np.arctan((b * c - 1 / (b * d)) / a)).std(), 0.1, rtol=0.1)
    X, y = linear(50)
    assert np.array_equal(y == 1, X[:, 0] > -X[:, 1])


def test_folds_have_the_sizes_of_scikit_learn():
    """And are of rows at random."""
    fold = folds(33)
    assert np.bincount(fold).tolist() == [len(test) for _, test in KFold(5).split(np.zeros(33))]
    assert np.count_nonzero(np.diff(fold)) > 15


def test_a_goal_is_judged_by_medians():
    """Vectors 3, 9, 4 and errors 1, 5, 2: medians 4 and 2."""
    fits = [Fit(3, 1.0, 0.1, 1.0), Fit(9, 5.0, 0.3, 3.0), Fit(4, 2.0, 0.2, 2.0)]
    for least, met in ((2.0, "yes"), (1.9, "NO")):
        goal = Goal("", lambda folder, draws: fits, "a goal", lambda row, least=least: row["error"] <= least, "", "")
        row = goal.row("", 3)
        assert (row["vectors"], row["most"], row["error"], row["noise"], row["met"]) == (4, 9, 2.0, 0.2, met)


def test_the_table_of_goals(tmp_path, capsys):
    """One draw of each noise, and a made-up mcycle of 40 rows: every line is there, and its reason below."""
    x = np.linspace(2, 58, 40)
    np.savez(tmp_path / "mcycle.npz", X=x[:, None], y=50 * np.sin(x / 8) - 25)
    main(["--data", str(tmp_path), "--tables", "goals", "--draws", "1", "--output", str(tmp_path)])
    text = (tmp_path / "family" / "goals.md").read_text()
    assert "| sinc, no noise, σ = 0.01 fixed | 1 | 9 | 9 |" in text
    assert text.count("\n- ") == text.count("| kernlab:") + text.count("| Tipping") + text.count("| KTH") == 6
    assert text in capsys.readouterr().out + "\n"


def test_each_method_of_the_report_has_a_row():
    """On 30 rows of a cosine: printed values of Table 1 beside ours, and the default without a printed one."""
    found = rows(ReportSet("cos", cos), "")
    assert [row["method"] for row in found] == ["rvm", "rvm*", "fast", "svm", "default"]
    assert [row.get("error_printed") for row in found] == [1.41, 1.42, 1.42, 0.084, None]
    assert all(row["error"] < 1.5 and row["vectors"] > 0 for row in found)
    assert found[0]["vectors"] == found[1]["vectors"]
    assert {one.name for one in REPORT_SETS} == set(PRINTED)
    assert [verdict(error, 1.0) for error in (0.9, 1.0, 1.1)] == ["better", "same", "worse"]
