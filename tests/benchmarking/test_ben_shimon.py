"""The benchmark of Ben-Shimon & Shmilovici's tables runs, and its arithmetic is right."""

from __future__ import annotations

import json

import numpy as np
import pytest

pytest.importorskip("benchmarks", reason="benchmarks are run from a checkout")

from benchmarks.ben_shimon import __main__ as ben_shimon
from benchmarks.ben_shimon.data import DATASETS, PUMADYN, SMALL, friedman
from benchmarks.ben_shimon.paper import ERRORS, SECONDS, VECTORS, largest_rmse
from benchmarks.ben_shimon.tables import heuristic_quality, mean_and_spread, printed, ratios_to_basic


def test_table_2_on_a_small_generated_set(tmp_path):
    """One split of Sinc: text, figures as JSON, and an error far below the target's spread for every competitor."""
    folder = str(tmp_path)
    small = ["--table", "2", "--sets", "sinc", "--repeats", "1", "--rows", "150"]
    ben_shimon.main(["--data", folder, *small, "--output", folder])
    fits = json.loads((tmp_path / "ben_shimon_strategies.json").read_text())["fits"]
    assert [fit["competitor"] for fit in fits] == ["basic", "split-merge", "incremental", "working-set"]
    assert {fit["rows"] for fit in fits} == {150}
    assert all(fit["rmse"] < 0.3 * fit["deviation"] for fit in fits)
    text = (tmp_path / "ben_shimon_strategies.md").read_text()
    for number in (2, 3, 4):
        assert f"## Table {number}:" in text


def test_missing_sets_are_left_out(tmp_path, capsys):
    """A folder without the file: nothing is run, and it is said."""
    ben_shimon.main(["--data", str(tmp_path), "--table", "7", "--output", str(tmp_path)])
    assert "pumadyn_8nm" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_every_set_of_the_paper_is_known():
    """The paper's tables and the data sets have the same names."""
    assert list(ERRORS) == list(VECTORS) == list(SECONDS) == [*SMALL, *PUMADYN]
    assert {len(ERRORS[name]) for name in SMALL} == {4}
    assert {len(ERRORS[name]) for name in PUMADYN} == {3}
    assert largest_rmse("pumadyn_8fh", "incremental") == pytest.approx(3.20)
    assert largest_rmse("pumadyn_8fh", "basic") is None


def test_generated_splits_repeat():
    """The same seed gives the same rows, another one others; sizes are those stated; test targets have no noise."""
    dataset = DATASETS["friedman_1"]
    split, again, other = dataset.split("", 3), dataset.split("", 3), dataset.split("", 4)
    assert (len(split.y), len(split.y_test)) == (dataset.train, dataset.test)
    np.testing.assert_array_equal(split.X, again.X)
    assert not np.array_equal(split.X, other.X)
    X = split.X_test
    expected = 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2 + 10 * X[:, 3] + 5 * X[:, 4]
    np.testing.assert_allclose(split.y_test, expected)
    assert friedman(5, np.random.default_rng(0))[0].shape == (5, 10)


def test_numbers_in_tables():
    """Three digits, sample standard deviation, means with theirs."""
    assert mean_and_spread([1.0, 2.0, 3.0]) == "2.00 ± 1.00"
    assert mean_and_spread([0.0211]) == "0.0211"
    assert mean_and_spread([150.0, 152.0]) == "151 ± 1"
    assert [printed(None), printed((9.0, 11.0)), printed(0.034)] == ["", "9 ± 11", "0.034"]


def test_ratios_pair_splits_and_the_best_p_is_found():
    """Seconds are divided split by split, whatever the order of the fits."""
    fits = [
        {"data": "a", "split": split, "competitor": name, "seconds": seconds, "rmse": rmse, "partition_size": 1}
        for split, name, seconds, rmse in (
            (0, "basic", 2.0, 1.0), (0, "heuristic", 3.0, 1.0), (1, "heuristic", 4.0, 1.0), (1, "basic", 8.0, 1.0)
        )
    ]  # fmt: skip
    assert ratios_to_basic(fits, "a", "heuristic") == [1.5, 0.5]
    (line,) = heuristic_quality(fits)
    assert line["best P"] == "heuristic"
    assert line["time ÷ best"] == 1.0
