"""Foreign files are never replaced, and no message advises deleting them; tables are read."""

import gzip
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
from by_default import some

from partirvm.cli import main

DELETES = re.compile(r"\b(delete|remove|--overwrite)\b")


@pytest.fixture
def desk(tour, tmp_path, monkeypatch):
    """Return the current folder with the test table in several formats, and foreign files."""
    import pyarrow.csv
    import pyarrow.parquet

    text = (tour.folder / "test.csv").read_bytes()
    lines = text.splitlines(keepends=True)
    (tmp_path / "rows.csv").write_bytes(text)
    (tmp_path / "rows.csv.gz").write_bytes(gzip.compress(text))
    table = pyarrow.csv.read_csv(tmp_path / "rows.csv")
    pyarrow.parquet.write_table(table, tmp_path / "rows.parquet")
    (tmp_path / "years" / "y=1").mkdir(parents=True)
    (tmp_path / "years" / "y=1" / "part.csv").write_bytes(b"".join(lines[:301]))
    later = gzip.compress(lines[0] + b"".join(lines[301:]))
    (tmp_path / "years" / "part.csv.gz").write_bytes(later)
    arrays = {"X": tour.test_table[:, :2], "y": tour.test_table[:, 2], "columns": ["a", "b"]}
    np.savez(tmp_path / "rows.npz", **arrays)
    shutil.copy(tmp_path / "rows.csv", tmp_path / "my rows (2).csv")
    monkeypatch.chdir(tmp_path)
    return tmp_path


TABLES = ("rows.csv", "rows.csv.gz", "rows.parquet", "years", "years/*.gz", "rows.npz")
TABLES += ("my rows (2).csv",)


@pytest.mark.parametrize("table", some(TABLES, {"years/*.gz", "my rows (2).csv"}))
def test_a_fit_to_a_table_prints_the_command_to_ingest_it(tour, desk, capsys, table):
    """The command creates DATA once the target is named."""
    validated = ["fit", tour.train, "new", "--validation", table]
    for words in (["plan", table], ["fit", table, "new"], validated):
        assert main(words) == 2
        message = capsys.readouterr().err
        assert not DELETES.search(message)
        command = re.search("`partirvm (ingest .*?)`", message)
        assert command is not None
        assert table.endswith(".npz") or "COLUMN is one of: a, b, fare" in message
    arguments = shlex.split(command[1].replace("COLUMN", "fare"))
    assert main([*arguments, "--quiet"]) == 0
    assert main(["plan", arguments[2], "--gamma", "1", "--partition-size", "20"]) == 0
    assert not Path("new").exists()


@pytest.mark.parametrize("table", some(TABLES, {"rows.csv", "rows.parquet", "years"}))
def test_tables_are_predicted_and_scored(tour, desk, capsys, table):
    """There is one prediction for each row of the table; the scores agree with the predictions."""
    rows = tour.test_table[300:] if table == "years/*.gz" else tour.test_table
    if table == "years":
        rows = np.concatenate([tour.test_table[300:], tour.test_table[:300]])
    if table == "rows.npz":
        main(["ingest", table, "rows.zarr", "--like", tour.train, "--quiet"])
    assert main(["predict", tour.job, table, "found.csv", "--quiet"]) == 0
    mean = np.loadtxt("found.csv", delimiter=",", skiprows=1)[:, 0]
    assert len(mean) == len(rows)
    capsys.readouterr()
    if table != "rows.npz":  # its target is called y
        assert main(["evaluate", tour.job, table, "--quiet"]) == 0
        rmse = float(re.search(r'"rmse": ([\d.e-]+)', capsys.readouterr().out)[1])
        assert rmse == pytest.approx(np.sqrt(np.mean((mean - rows[:, 2]) ** 2)), rel=1e-6)


def foreign(folder):
    """Write foreign files and folders, some with names used by partirvm; return their bytes."""
    contents = {
        "table.csv": b"mean_price,mean_size\n1,2\n",
        "labels.csv": b"label,text\n1,2\n",
        "table.parquet": Path("rows.parquet").read_bytes(),
        "page.html": b"<title>partirvm</title>",
        "values.json": b"{}",
        "model.h": b"int x;",
        "model.npz": b"PK",
        "model.onnx": b"",
        "project/spec.json": b'{"openapi": "3.1"}',
        "project/models/mine.bin": b"1",
        "project/events/000001.json": b"{}",
        "project/lease/000001.json": b"{}",
        "store.zarr/zarr.json": b'{"zarr_format": 3}',
        "versions.zarr/versions/mine.json": b"{}",
        "house.csv.gz": b"not even a table",
    }
    for name, data in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return contents


@pytest.mark.parametrize("overwrite", [pytest.param((), marks=pytest.mark.slow), ("--overwrite",)])
def test_foreign_files_are_not_replaced(tour, desk, capsys, overwrite):
    contents = foreign(desk)
    outputs = {
        "predict": ("table.csv", "labels.csv", "table.parquet", "store.zarr", "versions.zarr"),
        "report": ("page.html", "values.json"),
        "export": ("model.h", "model.npz", "model.onnx"),
        "fit": ("house.csv.gz", "table.csv", "project", "store.zarr", "versions.zarr"),
        "ingest": ("house.csv.gz", "table.csv", "project", "store.zarr", "versions.zarr", tour.job),
    }
    inputs = {"predict": [tour.job, tour.test], "report": [tour.job], "export": [tour.job]}
    inputs |= {"fit": [tour.train], "ingest": ["rows.csv"]}
    for verb, places in outputs.items():
        options = ["--target", "fare"] if verb == "ingest" else []
        for place in places:
            words = [verb, *inputs[verb], place, *options, *overwrite]
            assert main(words) == 2, words
            message = capsys.readouterr().err
            assert re.search("(choose|use) another (name|folder)", message, re.IGNORECASE), message
            assert not DELETES.search(message), message
    for verb in ("status", "resume", "update", "abort", "cancel", "wait", "report"):
        for place in ("project", "house.csv.gz", "gone"):
            assert main([verb, place, *["new.html"] * (verb == "report")]) == 2
            assert not DELETES.search(capsys.readouterr().err)
    assert {name: (desk / name).read_bytes() for name in contents} == contents


@pytest.mark.usefixtures("without_charts")
def test_outputs_of_partirvm_are_replaced_on_request(tour, desk, capsys):
    for output in ("p.csv", "p.parquet", "p.zarr", "r.html", "r.json"):
        predict = ["predict", tour.job, tour.test, output, "--interval", "0.9", "--quiet"]
        words = predict if output.startswith("p") else ["report", tour.job, output]
        assert [main(words), main(words), main([*words, "--overwrite"])] == [0, 2, 0]
    assert "--overwrite" in capsys.readouterr().err
