"""Rows with the wrong number of fields in a file to predict: the error offers a command."""

import csv
import json
import shlex

import pytest

from partirvm.cli import main

FIT = ("--gamma", "0.3", "--residual", "none", "--max-rounds", "1", "--max-vectors", "5")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a job and a file of 20 rows and a bad one."""
    folder = tmp_path_factory.mktemp("bad")
    lines = ["a,b,y", *(f"{k % 7},{k % 5},{k % 7 - k % 5}" for k in range(60))]
    (folder / "t.csv").write_text("\n".join(lines))
    (folder / "new.csv").write_text("\n".join([*lines[:11], "1,2,3,4", *lines[11:21]]))
    data, job = str(folder / "d.zarr"), str(folder / "job")
    assert main(["ingest", str(folder / "t.csv"), data, "--target", "y", "--quiet"]) == 0
    assert main(["fit", data, job, *FIT, "--quiet"]) == 0
    return folder


@pytest.mark.parametrize("options", [[], ["--interval", "0.9", "--overwrite"]])
def test_the_error_of_predict_offers_a_command(options, folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    command = ["predict", "job", "new.csv", "p.csv", *options]
    assert main(command) == 2
    error = capsys.readouterr().err
    assert "line 12 (4 fields)" in error
    pasted = shlex.split(error.splitlines()[-1])
    assert set(pasted) == {"partirvm", *command, "--skip-bad-rows"}
    assert main(pasted[1:]) == 0
    assert "line 12 (4 fields)" in capsys.readouterr().err
    with (folder / "p.csv").open() as file:
        assert len(list(csv.reader(file))) == 21


def test_evaluate_leaves_bad_rows_out_with_a_warning(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    assert main(["evaluate", "job", "new.csv"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["n_rows"] == 20
    assert "line 12 (4 fields)" in captured.err


@pytest.mark.parametrize("columns", [3, 2])
def test_the_error_of_ingest_offers_a_command(columns, folder, monkeypatch, capsys):
    """With and without a target in the new file."""
    monkeypatch.chdir(folder)
    text = (folder / "new.csv").read_text()
    lines = text.splitlines() if columns == 3 else [s.rpartition(",")[0] for s in text.split()]
    (folder / f"new{columns}.csv").write_text("\n".join(lines))
    ingest = ["ingest", f"new{columns}.csv", f"e{columns}.zarr", "--like", "d.zarr"]
    assert main(ingest) == 2
    pasted = shlex.split(capsys.readouterr().err.splitlines()[-1])
    assert main(pasted[1:]) == 0
