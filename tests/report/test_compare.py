"""Jobs beside each other, and the values of a report as JSON and CSV."""

from __future__ import annotations

import csv
import json

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import partirvm
from partirvm.cli.commands import partirvm as group
from partirvm.jobs import fit, open_job
from partirvm.options import Request
from partirvm.report.compare import compare_text, facts


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two jobs of the same DATA with other widths; the second has held-out rows."""
    place = tmp_path_factory.mktemp("jobs")
    rng = np.random.default_rng(5)
    X = rng.uniform(-3, 3, (600, 1))
    partirvm.ingest((X, np.sin(X[:, 0]) + rng.normal(0, 0.1, 600)), place / "d.zarr")
    for name, gamma, held_out in (("wide", 0.5, None), ("narrow", 4.0, str(place / "d.zarr"))):
        asked = Request(gamma=gamma, strategy="working-set", partition_size=20, max_rounds=2)
        fit(str(place / "d.zarr"), str(place / name), asked, validation=held_out)
    return place


def invoke(*arguments):
    done = CliRunner().invoke(group, [str(each) for each in arguments])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_table_has_a_column_for_each_job_and_the_parameters_that_differ(folder):
    text = invoke("compare", folder / "wide", folder / "narrow")
    lines = {line.split("  ")[0]: line.split()[-2:] for line in text.splitlines() if line}
    assert text.splitlines()[0].split() == ["wide", "narrow"]
    for name, key in (("vectors", "vectors"), ("training RMSE", "train_rmse")):
        found = [open_job(str(folder / job)).progress()[key] for job in ("wide", "narrow")]
        assert [float(cell) for cell in lines[name]] == pytest.approx(found, rel=1e-3)
    assert lines["--gamma"] == ["0.5", "4.0"]
    assert lines["held-out RMSE"][0] == "–"
    assert "--partition-size" not in text
    assert len({len(line) for line in text.splitlines() if line}) == 1  # columns are aligned


def test_one_job_and_python_names(folder):
    found = facts(open_job(str(folder / "wide")))
    assert compare_text([found]).splitlines()[0].strip() == "wide"
    assert "gamma" in compare_text([found, {**found, "parameters": {**found["parameters"], "gamma": 3.0}}])


def test_json_and_csv_hold_the_same_numbers(folder):
    jobs = [folder / "wide", folder / "narrow"]
    as_json = json.loads(invoke("compare", *jobs, "--json"))
    rows = list(csv.DictReader(invoke("compare", *jobs, "--csv").splitlines()))
    assert [float(row["train_rmse"]) for row in rows] == [job["train_rmse"] for job in as_json]
    assert rows[0]["held_out_rmse"] == ""
    assert as_json[0]["held_out_rmse"] is None
    assert as_json[1]["parameters"]["gamma"] == 4.0


def test_a_report_is_written_as_json_and_csv(folder, tmp_path):
    """The history of the events, line by line."""
    for ending in ("json", "csv"):
        invoke("report", folder / "wide", tmp_path / f"r.{ending}")
    history = open_job(str(folder / "wide")).state().history
    values = json.loads((tmp_path / "r.json").read_text())
    assert values["history"] == json.loads(json.dumps(history))
    assert values["status"] == "done"
    table = pd.read_csv(tmp_path / "r.csv")
    np.testing.assert_array_equal(table["log_evidence"], [line["log_evidence"] for line in history])


def test_completion_knows_the_commands(monkeypatch):
    for shell in ("bash", "zsh", "fish"):
        assert "_PARTIRVM_COMPLETE" in invoke("completion", shell)
    monkeypatch.setenv("COMP_WORDS", "partirvm comp")
    monkeypatch.setenv("COMP_CWORD", "1")
    done = CliRunner().invoke(group, prog_name="partirvm", env={"_PARTIRVM_COMPLETE": "bash_complete"})
    assert set(done.stdout.split()) == {"plain,compare", "plain,completion"}
