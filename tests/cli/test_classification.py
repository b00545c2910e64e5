"""Commands lead from a table with text labels to probabilities, for two and three classes."""

import csv
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from numpy.random import default_rng
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.metrics import accuracy_score, brier_score_loss, log_loss, roc_auc_score

from partirvm import load_model, open_job
from partirvm.cli import main

LABELS = {2: ("ham", "spam"), 3: ("bronze", "gold", "silver")}
CUTS = {2: (0.0,), 3: (-0.5, 0.6)}
CHOICES = ("--gamma", "0.5", "--partition-size", "30", "--max-rounds", "2")


@dataclass(frozen=True)
class Classes:
    """A folder with train.csv, test.csv, their DATA, a job, and the labels of test.csv."""

    folder: Path
    names: tuple[str, ...]
    truth: np.ndarray

    def at(self, name):
        """Return the path of a name in the folder."""
        return str(self.folder / name)


def write(path, rows, seed, K):
    """Write a table of two inputs, the class and its score; return the labels."""
    rng = default_rng(seed)
    X = rng.normal(size=(rows, 2))
    score = X[:, 0] + 0.7 * np.sin(2 * X[:, 1]) + rng.normal(0, 0.4, rows)
    labels = np.array(LABELS[K])[np.searchsorted(CUTS[K], score)]
    numbers = np.column_stack([X, score]).tolist()
    lines = [
        f"{a!r},{b!r},{label},{number!r}"
        for (a, b, number), label in zip(numbers, labels, strict=True)
    ]
    path.write_text("\n".join(["a,b,kind,score", *lines, ""]))
    return labels


@pytest.fixture(scope="module", params=[2, 3], ids=["two classes", "three classes"])
def classes(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("labels")
    K = request.param
    write(folder / "train.csv", 400, 1, K)
    files = Classes(folder, LABELS[K], write(folder / "test.csv", 300, 2, K))
    roles = ("--target", "kind", "--features", "a,b", "--classes", "--quiet")
    assert main(["ingest", files.at("train.csv"), files.at("train.zarr"), *roles]) == 0
    like = ("--like", files.at("train.zarr"), "--quiet")
    assert main(["ingest", files.at("test.csv"), files.at("test.zarr"), *like]) == 0
    fit = ["fit", files.at("train.zarr"), files.at("job"), "--validation", files.at("test.zarr")]
    assert main([*fit, *CHOICES, "--quiet", "--classify"]) == 0
    return files


def predictions(cli, classes, output, *options):
    """Return header, labels and numbers (n, …) of the predictions for test.csv, from a CSV."""
    command = ("predict", classes.at("job"), classes.at("test.zarr"), str(output))
    assert cli(*command, *options, "--quiet")[::2] == (0, "")
    with output.open() as file:
        header, *lines = csv.reader(file)
    numbers = np.array([line[1:] for line in lines], dtype=float)
    return header, np.array([line[0] for line in lines]), numbers


def test_class_scores_equal_those_of_predictions(classes, cli, cli_json, tmp_path):
    """By scikit-learn, from the CSV of predictions and the labels of the table."""
    scores = cli_json("evaluate", classes.at("job"), classes.at("test.zarr"))
    header, label, p = predictions(cli, classes, tmp_path / "p.csv")
    assert header == ["label", *(f"p_{name}" for name in classes.names)]
    two = len(classes.names) == 2
    names = ["n_rows", "n_vectors", "accuracy", "log_loss", "brier", "ece", "roc_auc"]
    assert list(scores) == (names if two else names[:-1])
    assert_allclose(p.sum(axis=1), 1, atol=1e-14)
    assert_array_equal(label, np.array(classes.names)[p.argmax(axis=1)])
    assert scores["n_rows"] == len(classes.truth) == len(p)
    assert scores["accuracy"] == pytest.approx(accuracy_score(classes.truth, label))
    assert scores["log_loss"] == pytest.approx(log_loss(classes.truth, p))
    if two:
        positive = classes.truth == classes.names[1]
        assert scores["brier"] == pytest.approx(brier_score_loss(positive, p[:, 1]))
        assert scores["roc_auc"] == pytest.approx(roc_auc_score(positive, p[:, 1]), abs=1e-3)
    assert scores["accuracy"] > 0.75
    history = open_job(classes.at("job")).state().history[-1]
    assert history["held_out_log_loss"] == pytest.approx(scores["log_loss"])
    assert history["held_out_error"] == pytest.approx(1 - scores["accuracy"])


def test_interval_adds_probability_bands(classes, cli, tmp_path):
    """Columns lower_CLASS and upper_CLASS of the model's bands, after label and p_CLASS."""
    _, label, p = predictions(cli, classes, tmp_path / "p.csv")
    header, same, numbers = predictions(cli, classes, tmp_path / "b.csv", "--interval", "0.9")
    kinds = ("p", "lower", "upper")
    assert header == ["label", *(f"{kind}_{name}" for kind in kinds for name in classes.names)]
    assert_array_equal(same, label)
    assert_array_equal(numbers[:, : len(classes.names)], p)
    X = np.loadtxt(classes.at("test.csv"), delimiter=",", skiprows=1, usecols=(0, 1))
    bands, _ = load_model(classes.at("job")).interval(0.9, "probability")(X)
    assert_allclose(numbers[:, len(classes.names) :], bands, rtol=1e-9)


@pytest.mark.usefixtures("without_charts")
def test_commands_report_log_loss_and_error_of_classes(classes, cli, cli_json, tmp_path):
    """There is no RMSE, noise or NaN; descriptions of the data include the class names."""
    job = classes.at("job")
    page = tmp_path / "job.html"
    status, plan, _ = cli("plan", classes.at("train.zarr"), *CHOICES, "--class-weight", "balanced")
    assert status == 0
    assert f"{len(classes.names)} classes" in plan
    assert cli_json("plan", classes.at("train.zarr"), *CHOICES, "--json")["classes"] == len(
        classes.names
    )
    _, ingested, _ = cli(
        "ingest",
        classes.at("test.csv"),
        str(tmp_path / "d.zarr"),
        "--like",
        classes.at("train.zarr"),
    )
    assert f"({len(classes.names)} classes: {', '.join(classes.names)})" in ingested
    assert "partirvm evaluate JOB" in ingested
    shown = [
        cli(*verb)
        for verb in (("status", job, "--details"), ("status", job, "--follow"), ("wait", job))
    ]
    shown += [cli("jobs", str(classes.folder)), cli("report", job, str(page))]
    assert [status for status, *_ in shown] == [0] * 5
    text = plan + "".join(out for _, out, _ in shown)
    assert not re.search(r"\b(RMSE|rmse|noise|nan|NaN|None)\b", text), text
    assert re.search(r"^held-out error +[\d.]+ % \(log loss [\d.]+\)$", text, re.MULTILINE)
    assert re.search(r"^job +2 .*held-out log loss|^round .*held-out log loss", text, re.MULTILINE)
    assert all(
        name in page.read_text() for name in ("log loss", classes.at("job").rsplit("/", 1)[-1])
    )
    facts = cli_json("status", job, "--json")
    assert facts["train_rmse"] is None
    assert 0 < facts["held_out_log_loss"] < np.log(len(classes.names))


WRONG = {
    "fit number.zarr new --classify": r"number\.zarr: the target 'score' is a number.*--classes",
    "evaluate {job} other.zarr": r"other\.zarr: the classes of the data are .*'tin'.*`--like`",
    "evaluate {job} number.zarr": r"number\.zarr: the classes of the data are None",
    "fit {train} new --class-weight tin=2": r"names 'tin', but the classes are .*'",
}
"""Commands, and patterns of their errors."""


@pytest.fixture
def desk(classes, tmp_path, monkeypatch):
    """Return the current folder, with DATA with other labels and DATA with a numeric target."""
    monkeypatch.chdir(tmp_path)
    table = Path(classes.at("train.csv")).read_text()
    Path("other.csv").write_text(table.replace(classes.names[0], "tin"))
    roles = ("--features", "a,b", "--quiet")
    assert main(["ingest", "other.csv", "other.zarr", "--target", "kind", "--classes", *roles]) == 0
    assert (
        main(["ingest", classes.at("train.csv"), "number.zarr", "--target", "score", *roles]) == 0
    )
    return tmp_path


def test_wrong_classes_are_refused(classes, desk, cli):
    """The exit status is 2, a paragraph gives location and advice, and nothing is left behind."""
    places = {"train": classes.at("train.zarr"), "job": classes.at("job")}
    for command, pattern in WRONG.items():
        status, out, err = cli(*command.format(**places).split(), "--quiet")
        assert (status, out) == (2, ""), command
        problem = err[err.index("partirvm: error: ") :]
        assert problem.count("\n") == 1, command
        assert re.search(pattern, problem), problem
        assert not Path("new").exists(), command
