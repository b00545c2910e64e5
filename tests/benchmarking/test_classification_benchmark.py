"""The classification benchmark: its splits are what they say, its scores are right, and it runs."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from sklearn.svm import SVC

pytest.importorskip("benchmarks", reason="benchmarks are run from a checkout")

from benchmarks.classification import __main__ as classification
from benchmarks.classification.data import DATASETS, PENDIGITS_COUNTS
from benchmarks.classification.figures import pooled
from benchmarks.classification.goals import goal, log_loss_difference
from benchmarks.classification.methods import METHODS, POWERS, make_svc, method_of, widths, widths_and_costs
from benchmarks.classification.published import TIPPING
from benchmarks.classification.scores import aligned, binned, calibration_error, scores
from benchmarks.classification.tables import standard_error
from benchmarks.classification.tuning import tune

FOLDER = os.environ.get("PARTIRVM_BENCHMARK_DATA", "")
"""Folder of the .npz files; tests of the sets that need one are skipped without."""

SIZES = {
    "ripley_100": (100, 1000, 2, 2),
    "ripley_250": (250, 1000, 2, 2),
    "pima": (200, 332, 7, 2),
    "banana": (400, 4900, 2, 2),
    "titanic": (150, 2051, 3, 2),
    "german": (700, 300, 20, 2),
    "cancer": (398, 171, 30, 2),
    "digits": (1257, 540, 64, 10),
    "moons": (4000, 4000, 2, 2),
    "pendigits": (7494, 3498, 16, 10),
}
"""Training rows, test rows, features, classes."""

POSITIVE = {"ripley_250": (125, 500), "pima": (68, 109), "moons": (2000, 2000)}
"""Rows of class 1 in training and test, as published (MASS) or by construction."""


@pytest.mark.parametrize("name", SIZES)
def test_sizes_and_classes_of_every_split(name):
    """Rows, features, classes; every class in every part; standardised by training moments."""
    dataset = DATASETS[name]
    if not dataset.present(FOLDER):
        pytest.skip(f"{dataset.file}.npz is not in PARTIRVM_BENCHMARK_DATA")
    for number in range(dataset.n_splits):
        split = dataset.split(FOLDER, number)
        assert (len(split.y), len(split.y_test), split.X.shape[1], split.n_classes) == SIZES[name]
        assert split.X_test.shape == (len(split.y_test), split.X.shape[1])
        for y in (split.y, split.y_test):
            assert set(y.tolist()) == set(range(split.n_classes))
        if name in POSITIVE:
            assert (split.y.sum(), split.y_test.sum()) == POSITIVE[name]
    scaled = split.standardised()
    np.testing.assert_allclose(scaled.X.mean(axis=0), 0, atol=1e-10)
    np.testing.assert_allclose(scaled.X.std(axis=0)[np.ptp(split.X, axis=0) > 0], 1)
    varying = np.ptp(split.X, axis=0) > 0
    expected = (split.X_test - split.X.mean(axis=0))[:, varying] / split.X.std(axis=0)[varying]
    np.testing.assert_allclose(scaled.X_test[:, varying], expected, atol=1e-10)


def numbered(folder: Path, name: str, rows: int, train: int) -> None:
    """A file whose only input is the row's number, with two splits."""
    order = [np.random.default_rng(number).permutation(rows) for number in range(2)]
    np.savez(
        folder / f"{name}.npz", X=np.arange(rows)[:, None] * 1.0, y=np.where(np.arange(rows) % 3, 1.0, -1.0),
        train_idx=[one[:train] for one in order], test_idx=[one[train:] for one in order],
    )  # fmt: skip


def test_public_splits_are_those_in_the_file_and_disjoint(tmp_path):
    """No row trains and tests; together all rows; labels −1, 1 become 0, 1."""
    numbered(tmp_path, "banana", 30, 12)
    for number in range(2):
        split = DATASETS["banana"].split(tmp_path, number)
        assert len(split.y) == 12
        rows = np.concatenate([split.X, split.X_test]).ravel()
        np.testing.assert_array_equal(np.sort(rows), np.arange(30))
        np.testing.assert_array_equal(split.y, (split.X.ravel() % 3 != 0).astype(int))


def test_a_hundred_of_ripleys_rows(tmp_path):
    """100 different ones of the training rows, others for another draw, the same test rows."""
    numbered(tmp_path, "ripley_synth", 300, 250)
    first, again, other = (DATASETS["ripley_100"].split(tmp_path, number) for number in (0, 0, 1))
    whole = DATASETS["ripley_250"].split(tmp_path, 0)
    assert len(np.unique(first.X)) == 100
    assert np.isin(first.X, whole.X).all()
    np.testing.assert_array_equal(first.X, again.X)
    assert not np.array_equal(first.X, other.X)
    np.testing.assert_array_equal(other.X_test, whole.X_test)


def test_no_colour_of_skin_trains_and_tests(tmp_path):
    """A tenth of the colours tests, with all their rows; no row is lost."""
    rng = np.random.default_rng(0)
    colours = rng.integers(0, 6, size=(3000, 3)).astype(float)
    np.savez(tmp_path / "skin_nonskin.npz", X=colours, y=(colours.sum(axis=1) > 7).astype(float))
    split = DATASETS["skin_nonskin"].split(tmp_path, 0)
    train, test = ({tuple(row) for row in X.tolist()} for X in (split.X, split.X_test))
    assert not train & test
    assert len(test) == round(0.1 * len(train | test))
    assert len(split.y) + len(split.y_test) == 3000


def test_pendigits_in_another_order_are_refused(tmp_path):
    """UCI's order is known by the class counts of its training file."""
    y = np.concatenate([np.repeat(np.arange(10.0), PENDIGITS_COUNTS), np.arange(10.0)])
    np.savez(tmp_path / "pendigits.npz", X=np.zeros((len(y), 2)), y=y)
    assert len(DATASETS["pendigits"].split(tmp_path, 0).y) == 7494
    np.savez(tmp_path / "pendigits.npz", X=np.zeros((len(y), 2)), y=y[::-1])
    with pytest.raises(ValueError, match="UCI"):
        DATASETS["pendigits"].split(tmp_path, 0)


def test_scores_from_their_definitions():
    """Two classes, four rows: error 1/4, log loss −mean log p(y), ECE by hand."""
    probabilities = np.array([[0.9, 0.1], [0.2, 0.8], [0.4, 0.6], [0.35, 0.65]])
    y = np.array([0, 1, 0, 1])
    found = scores(probabilities, y)
    assert found["error"] == pytest.approx(0.25)
    assert found["log_loss"] == pytest.approx(-np.log([0.9, 0.8, 0.4, 0.65]).mean())
    # Confidences .9, .8, .6, .65 fall into bins 13, 12, 9, 9 of fifteen; the third row is wrong.
    assert found["ece"] == pytest.approx((0.1 + 0.2 + 2 * abs(0.5 - 0.625)) / 4)


def test_bins_and_missing_classes():
    """A probability of 1 belongs to the last bin; classes that training lacked get 0; a perfect forecast has no ECE."""
    assert [line[0] for line in binned(np.array([0.0, 1.0, 0.99]), np.array([False, True, True]))] == [1, 2]
    assert calibration_error(binned(np.array([0.0, 1.0]), np.array([False, True]))) == 0.0
    np.testing.assert_array_equal(aligned(np.array([[0.3, 0.7]]), np.array([0, 2]), 3), [[0.3, 0.0, 0.7]])


def test_one_grid_of_widths():
    """gamma·d goes through powers of 2 around 1, with C beside it where there is one."""
    assert [width["gamma"] * 7 for width in widths(7)] == pytest.approx([2.0**power for power in POWERS])
    assert {line["gamma"] for line in widths_and_costs(7)} == {line["gamma"] for line in widths(7)}


def test_options_in_the_name_of_ours():
    """They borrow the widths of ``partirvm``; anything else is refused."""
    assert method_of("partirvm strategy=basic moderate=True").borrows == "partirvm"
    for unknown in ("nothing", "svc C=1", "partirvm fast"):
        with pytest.raises(KeyError):
            method_of(unknown)
    with pytest.raises(SystemExit):
        classification.main(["--data", "", "--methods", "nothing"])


def test_vectors_of_the_svc_are_support_vectors():
    """Those of one SVC on all rows."""
    split = DATASETS["moons"].split("", 0).part(np.arange(200), np.arange(1))
    fitted = make_svc({"gamma": 1.0, "C": 1.0}, 0).fit(split.X, split.y)
    alone = SVC(gamma=1.0, C=1.0).fit(split.X, split.y)
    np.testing.assert_array_equal(METHODS["svc"].vectors(fitted, split.X), alone.support_vectors_)


def test_cross_validation_sees_training_rows_only(monkeypatch):
    """Other test rows, the same choice; the least loss wins."""
    monkeypatch.setattr("benchmarks.classification.tuning.ROWS", 60)
    first = tune("", "moons", "gp", 1, 60.0)
    dataset = DATASETS["moons"]
    spoilt = {"moons": type(dataset)("moons", 1, lambda folder, number: without_test(dataset.split("", number)))}
    monkeypatch.setattr("benchmarks.classification.tuning.DATASETS", spoilt)
    assert tune("", "moons", "gp", 1, 60.0) == first
    (chosen,) = first["chosen"]
    assert chosen["log_loss"] == min(chosen["losses"])


def without_test(split):
    """The same training rows, test rows that say nothing."""
    return type(split)(split.X, split.y, 0 * split.X_test, 0 * split.y_test, split.n_classes)


def test_standard_errors_and_goals():
    """sd/√k over splits; √(p(1 − p)/n) for one; splits are paired; bounds from above and below."""
    several = {"fits": [{"error": 0.1}, {"error": 0.3}], "test_rows": 10}
    assert standard_error(several) == pytest.approx(np.sqrt(0.02) / np.sqrt(2))
    assert standard_error({"fits": [{"error": 0.2}], "test_rows": 100}) == pytest.approx(0.04)
    runs = [
        {"data": "moons", "method": name, "fits": [{"log_loss": loss} for loss in losses]}
        for name, losses in (("partirvm", [0.2]), ("svc", [0.3, 9.0]))
    ]
    assert log_loss_difference(runs, "moons") == pytest.approx(-0.1)
    assert goal("", "", 3, 2)["met"] == "NO"
    assert goal("", "", 3, 2, least=True)["met"] == "yes"
    assert set(TIPPING) <= set(DATASETS)


def test_pooled_reliability_weighs_by_rows():
    """Two splits in one bin: means by rows; bins of few rows are left out."""
    fits = [{"reliability": [[30, 0.5, 0.4], [1, 0.9, 1.0]]}, {"reliability": [[10, 0.52, 0.8]]}]
    np.testing.assert_allclose(pooled({"fits": fits}), [[0.505, 0.5]])


@pytest.mark.slow
def test_a_small_run_from_the_command_line(tmp_path, capsys):
    """A Gaussian process on a few rows: tables, JSON, pictures; a set without a file is left out, and it is said."""
    split = DATASETS["moons"].split("", 0)
    rows = np.arange(160)[None]
    np.savez(
        tmp_path / "ripley_synth.npz", X=split.X[:160], y=split.y[:160], train_idx=rows[:, :60], test_idx=rows[:, 60:]
    )
    small = ["--sets", "ripley_250", "banana", "--methods", "gp"]
    classification.main(["--data", str(tmp_path), *small, "--output", str(tmp_path)])
    assert "banana" in capsys.readouterr().err
    output = tmp_path / "classification"
    (run,) = json.loads((output / "classification.json").read_text())["runs"]
    assert (run["rows"], run["test_rows"], len(run["fits"])) == (60, 100, 1)
    assert run["fits"][0]["error"] < 0.2
    assert run["peak_mib"] > 50
    assert "| gp |" in (output / "classification.md").read_text()
    for picture in ("reliability.png", "boundaries.png"):
        assert (output / picture).stat().st_size > 1000
