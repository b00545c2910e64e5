"""From a table of text labels to probabilities by the command line: two classes and three, and what
is refused."""

import csv
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, brier_score_loss, log_loss, roc_auc_score

from partirvm import load_model, open_job
from partirvm.cli import main

LABELS = {2: ("ham", "spam"), 3: ("bronze", "gold", "silver")}
CUTS = {2: (0.0,), 3: (-0.5, 0.6)}
CHOICES = ("--gamma", "0.5", "--partition-size", "30", "--max-rounds", "2")


@dataclass(frozen=True)
class Classes:
    """A folder with train.csv, test.csv, both ingested, a fit of the first in ``job``, and the
    labels of test.csv."""

    folder: Path
    names: tuple[str, ...]
    truth: np.ndarray

    def at(self, name):
        """A place in the folder."""
        return str(self.folder / name)


def write(path, rows, seed, K):
    """Write a table of two inputs, the class, and the number behind it; return the labels."""
    rng = np.random.default_rng(seed)
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
def made(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("classes")
    K = request.param
    write(folder / "train.csv", 900, 1, K)
    found = Classes(folder, LABELS[K], write(folder / "test.csv", 500, 2, K))
    roles = ("--target", "kind", "--features", "a,b", "--classes", "--quiet")
    assert main(["ingest", found.at("train.csv"), found.at("train.zarr"), *roles]) == 0
    like = ("--like", found.at("train.zarr"), "--quiet")
    assert main(["ingest", found.at("test.csv"), found.at("test.zarr"), *like]) == 0
    fit = [
        "fit",
        found.at("train.zarr"),
        found.at("job"),
        "--validation",
        found.at("test.zarr"),
        *CHOICES,
        "--quiet",
    ]
    assert main([*fit, "--classify"]) == 0
    return found


def predictions(cli, made, output):
    """Labels and probabilities (n, K) of test.csv, from a CSV."""
    assert cli("predict", made.at("job"), made.at("test.zarr"), str(output), "--quiet")[::2] == (
        0,
        "",
    )
    with output.open() as file:
        header, *lines = csv.reader(file)
    assert header == ["label", *(f"p_{name}" for name in made.names)]
    return np.array([line[0] for line in lines]), np.array(
        [line[1:] for line in lines], dtype=float
    )


def test_evaluate_is_what_predictions_say(made, cli, cli_json, tmp_path):
    """scikit-learn's scores, of the CSV of predictions and the labels of the table."""
    scores = cli_json("evaluate", made.at("job"), made.at("test.zarr"))
    label, p = predictions(cli, made, tmp_path / "p.csv")
    two = len(made.names) == 2
    names = ["n_rows", "n_vectors", "accuracy", "log_loss", "brier", "ece", "roc_auc"]
    assert list(scores) == (names if two else names[:-1])
    np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-14)
    np.testing.assert_array_equal(label, np.array(made.names)[p.argmax(axis=1)])
    assert scores["n_rows"] == len(made.truth) == len(p)
    assert scores["accuracy"] == pytest.approx(accuracy_score(made.truth, label))
    assert scores["log_loss"] == pytest.approx(log_loss(made.truth, p))
    if two:
        assert scores["brier"] == pytest.approx(
            brier_score_loss(made.truth == made.names[1], p[:, 1])
        )
        assert scores["roc_auc"] == pytest.approx(
            roc_auc_score(made.truth == made.names[1], p[:, 1]), abs=1e-3
        )
    assert scores["accuracy"] > 0.75
    history = open_job(made.at("job")).state().history[-1]
    assert history["held_out_log_loss"] == pytest.approx(scores["log_loss"])
    assert history["held_out_error"] == pytest.approx(1 - scores["accuracy"])


def test_bands_of_probabilities_are_written_beside_them(made, cli, tmp_path):
    """--interval adds lower_CLASS and upper_CLASS of the model's credible bands; label and p_CLASS
    stay."""
    label, p = predictions(cli, made, tmp_path / "p.csv")
    output = tmp_path / "band.csv"
    arguments = (
        "predict",
        made.at("job"),
        made.at("test.zarr"),
        str(output),
        "--interval",
        "0.9",
        "--quiet",
    )
    assert cli(*arguments)[::2] == (0, "")
    with output.open() as file:
        header, *lines = csv.reader(file)
    assert header == [
        "label",
        *(f"{each}_{name}" for each in ("p", "lower", "upper") for name in made.names),
    ]
    found = np.array([line[1:] for line in lines], dtype=float)
    np.testing.assert_array_equal(np.array([line[0] for line in lines]), label)
    np.testing.assert_array_equal(found[:, : len(made.names)], p)
    X = np.loadtxt(made.at("test.csv"), delimiter=",", skiprows=1, usecols=(0, 1))
    bands, _ = load_model(made.at("job")).interval(0.9, "probability")(X)
    np.testing.assert_allclose(found[:, len(made.names) :], bands, rtol=1e-9)


def test_every_verb_speaks_of_classes(made, cli, cli_json, tmp_path):
    """Log loss and error instead of RMSE, no noise, no NaN; the names of the classes where data are
    described."""
    job = made.at("job")
    page = tmp_path / "job.html"
    status, plan, _ = cli("plan", made.at("train.zarr"), *CHOICES, "--class-weight", "balanced")
    assert status == 0
    assert f"{len(made.names)} classes" in plan
    assert cli_json("plan", made.at("train.zarr"), *CHOICES, "--json")["classes"] == len(made.names)
    _, ingested, _ = cli(
        "ingest", made.at("test.csv"), str(tmp_path / "d.zarr"), "--like", made.at("train.zarr")
    )
    assert f"({len(made.names)} classes: {', '.join(made.names)})" in ingested
    assert "partirvm evaluate JOB" in ingested
    shown = [cli(*verb) for verb in (("status", job), ("status", job, "--follow"), ("wait", job))]
    shown += [cli("jobs", str(made.folder)), cli("report", job, str(page))]
    assert [status for status, *_ in shown] == [0] * 5
    text = plan + "".join(out for _, out, _ in shown)
    assert not re.search(r"\b(RMSE|rmse|noise|nan|NaN|None)\b", text), text
    assert re.search(r"^held-out error +[\d.]+ % \(log loss [\d.]+\)$", text, re.MULTILINE)
    assert re.search(r"^job +2 .*held-out log loss|^round .*held-out log loss", text, re.MULTILINE)
    assert all(name in page.read_text() for name in ("log loss", made.at("job").rsplit("/", 1)[-1]))
    facts = cli_json("status", job, "--json")
    assert facts["train_rmse"] is None
    assert 0 < facts["held_out_log_loss"] < np.log(len(made.names))


WRONG = {
    "classify a number": (
        "fit number.zarr new --classify",
        r"number\.zarr: the target 'score' is a number.*--classes",
    ),
    "evaluation of one": (
        "evaluate {job} other.zarr",
        r"other\.zarr: the classes of the data are .*'tin'.*`--like`",
    ),
    "evaluation of a number": (
        "evaluate {job} number.zarr",
        r"number\.zarr: the classes of the data are None",
    ),
    "weight of an unknown label": (
        "fit {train} new --class-weight tin=2",
        r"names 'tin', but the classes are .*'",
    ),
}


@pytest.fixture
def desk(made, tmp_path, monkeypatch):
    """The current folder, with tables that have something wrong with them."""
    monkeypatch.chdir(tmp_path)
    table = Path(made.at("train.csv")).read_text()
    Path("other.csv").write_text(table.replace(made.names[0], "tin"))
    roles = ("--features", "a,b", "--quiet")
    assert main(["ingest", "other.csv", "other.zarr", "--target", "kind", "--classes", *roles]) == 0
    assert main(["ingest", made.at("train.csv"), "number.zarr", "--target", "score", *roles]) == 0
    return tmp_path


def test_what_is_refused(made, desk, cli):
    """Exit status 2, one paragraph with the place and what to do, nothing left behind."""
    names = {
        "csv": made.at("train.csv"),
        "train": made.at("train.zarr"),
        "job": made.at("job"),
        "name": made.names[0],
    }
    for case, (command, pattern) in WRONG.items():
        status, out, err = cli(
            *command.format(**names).split(), "--json" if command.startswith("plan") else "--quiet"
        )
        assert (status, out) == (2, ""), case
        problem = err[err.index("partirvm: error: ") :]
        assert problem.count("\n") == 1, case
        assert re.search(pattern, problem), problem
        assert not Path("new").exists(), case
