"""Wrong commands and inputs give exit status 2 and one helpful paragraph, and leave no files."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from numpy.random import default_rng

from partirvm import open_job
from partirvm.storage import to_json

INGEST = ("--target", "y", "--quiet")

WRONG = {
    "no argument": (("fit", "{train}"), r"Missing argument 'JOB'.*partirvm fit --help"),
    "no option": (("fit", "{train}", "{new}", "--wdith", "3"), r"No such option.*--wdith"),
    "evaluation without a target": (
        ("evaluate", "{job}", "{bare}"),
        r"bare\.zarr: the data have no target.*'fare'",
    ),
    "data in the way": (
        ("ingest", "good.csv", "{train}", *INGEST),
        r"train\.zarr already exists.*--overwrite",
    ),
    "no data": (
        ("fit", "gone.zarr", "{new}"),
        r"gone\.zarr: this is not a dataset, and nothing has this name.*ingest",
    ),
    "no table": (
        ("evaluate", "{job}", "gone.csv"),
        r"gone\.csv: there is no such file or folder.*check the path",
    ),
    "a job for data": (("plan", "{job}"), r"job: this is not a dataset, but another folder"),
    "a file for a job": (
        ("compare", "{job}", "good.csv"),
        r"good\.csv: no job here: this is a file",
    ),
    "job in the way": (("fit", "{train}", "{job}"), r"job already exists.*--overwrite"),
    "not a job": (
        ("fit", "{train}", "{test}", "--overwrite"),
        r"exists and is not a job, so it is not overwritten",
    ),
    "two orders": (
        ("ingest", "good.csv", "{new}", "--target", "y", "--shuffle", "1", "--no-shuffle"),
        r"exclude each other.*partirvm ingest --help",
    ),
    "status of no job": (("status", "{folder}"), r"no job here"),
    "partition": (
        ("plan", "{train}", "--partition-size", "x"),
        r"'--partition-size'.*whole number ≥ 1 or 'auto'",
    ),
    "size": (
        ("fit", "{train}", "{new}", "--memory-limit", "lots"),
        r"'--memory-limit'.*'lots'.*512MiB",
    ),
    "too little memory": (
        ("fit", "{train}", "{new}", "--memory-limit", "20MiB"),
        r"needs .*MiB.*limit is 20 MiB.*raise",
    ),
    "prediction of others": (
        ("predict", "{job}", "{wide}", "p.csv"),
        r"the features of the data are \(.*\), those of the training",
    ),
    "augmenting with others": (
        ("predict", "{job}", "{test}", "p.csv", "--augment", "{test}"),
        r"test\.zarr is not the dataset that .*job was fitted to \(3,000 rows at the start, 700 now.*train\.zarr",
    ),
    "no job": (("evaluate", "gone", "{test}"), r"gone: no job here"),
    "ending": (("predict", "{job}", "{test}", "p.txt"), r"p\.txt.*\.zarr, \.parquet or \.csv"),
    "output in the way": (
        ("predict", "{job}", "{test}", "old.csv"),
        r"old\.csv already exists.*--overwrite",
    ),
    "damaged chunk": (
        ("fit", "{damaged}", "{new}"),
        r"damaged\.zarr: chunk 0 of the array 'X'.*cannot be read",
    ),
    "changed data": (
        ("fit", "{changed}", "{new}", "--verify"),
        r"changed\.zarr: chunk 0 of .* has values that differ",
    ),
    "newer job": (
        ("evaluate", "{newjob}", "{test}"),
        r"newjob: the job has format 99.*use the version",
    ),
    "no scheduler": (
        ("fit", "{train}", "{new}", "--scheduler", "tcp://127.0.0.1:9"),
        r"no Dask scheduler.*:9",
    ),
}


@pytest.fixture(scope="module")
def places(tour, tmp_path_factory):
    """Return DATA and jobs that are wrong in some way, by name."""
    from partirvm.data import ingest

    folder = tmp_path_factory.mktemp("wrong")
    X = default_rng(0).normal(size=(50, 3))
    y = np.arange(50.0)
    ingest((X, y), folder / "wide.zarr")
    (folder / "bare.csv").write_text("a,b\n1,2\n3,4\n")
    ingest(str(folder / "bare.csv"), folder / "bare.zarr", like=tour.train)
    for name in ("damaged", "changed"):
        shutil.copytree(tour.train, folder / f"{name}.zarr")
    group = next(Path(tour.train).glob("rows-*")).name
    chunk = Path(group, "X", "c", "0", "0")
    (folder / "damaged.zarr" / chunk).write_bytes(b"\0" * 100)
    shutil.copy(
        folder / "changed.zarr" / group / "X" / "c" / "1" / "0", folder / "changed.zarr" / chunk
    )
    shutil.copytree(tour.job, folder / "newjob")
    (folder / "newjob" / "spec.json").write_bytes(to_json("spec.json", {"format": 99}))
    places = {path.name.removesuffix(".zarr"): str(path) for path in folder.iterdir()}
    (folder / "empty").mkdir()
    places |= {"train": tour.train, "test": tour.test, "job": tour.job}
    return places | {"folder": str(folder / "empty")}


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """Return the current folder, with two tables."""
    (tmp_path / "good.csv").write_text("a,b,y\n1,2,3\n4,5,6\n7,8,10\n")
    (tmp_path / "old.csv").write_text("mean,std\n1,2\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def listing(folder):
    """Return every file below a folder, with its modification time."""
    return {path: path.stat().st_mtime_ns for path in Path(folder).rglob("*") if path.is_file()}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_input_gives_one_helpful_paragraph(case, places, desk, tour, cli, monkeypatch):
    monkeypatch.setattr("partirvm.execution.cluster.CONNECT", 1.0)
    arguments, pattern = WRONG[case]
    before = listing(desk), listing(tour.folder)
    status, out, err = cli(*(argument.format(new="new", **places) for argument in arguments))
    problem = err[err.index("partirvm: error: ") :]
    assert status == 2
    assert out == ""
    assert "Traceback" not in err
    assert problem.count("\n") == 1
    assert re.search(pattern, problem), problem
    assert (listing(desk), listing(tour.folder)) == before
    assert not Path("new").exists()


def test_an_unwritable_place_is_named(tour, desk, cli):
    """A file in the place of a folder: with the message of the operating system."""
    (desk / "file").write_text("")
    status, _, err = cli("ingest", "good.csv", "file/d.zarr", *INGEST)
    assert status == 2
    assert "file/d.zarr: cannot be written" in err
    options = ("--gamma", "1", "--partition-size", "9", "--quiet")
    status, _, err = cli("fit", tour.train, "file/job", *options)
    assert status == 2
    assert "file/job" in err


def test_unusual_data_cause_warnings_and_are_fitted(desk, cli, cli_json):
    """The warnings go to stderr, each of them once."""
    (desk / "odd.csv").write_text("a,b,y\n" + "".join(f"{i},1,4\n" for i in range(30)))
    assert cli("ingest", "odd.csv", "odd.zarr", *INGEST)[0] == 0
    status, out, err = cli("fit", "odd.zarr", "job", "--quiet", "--max-rounds", "2")
    assert (status, out) == (0, "")
    warnings = err.splitlines()
    assert all(line.startswith("partirvm: warning: ") for line in warnings)
    assert len(warnings) == len(set(warnings))
    for pattern in ("constant feature.*b", "the target 'y' is constant"):
        assert re.search(pattern, err)
    assert cli_json("evaluate", "job", "odd.zarr", "--quiet")["rmse"] == pytest.approx(0, abs=1e-12)


@pytest.mark.usefixtures("without_charts")
def test_a_report_names_unreadable_parts(tour, cli, tmp_path):
    """All other parts are present; page, JSON and error name the damaged part once."""
    job = tmp_path / "job"
    page = tmp_path / "page.html"
    shutil.copytree(tour.job, job)
    damaged = max(job.glob("models/0*/000000"))
    damaged.write_bytes(b"\0" * 9)
    status, _, err = cli("report", str(job), str(page))
    assert status == 2
    assert err.count(damaged.parent.name) == 1
    assert f"{page} was written" in err
    text = page.read_text()
    assert "What is missing" in text
    assert text.count(str(job / "models")) == 1
    assert cli("report", str(job), str(tmp_path / "page.json"))[0] == 2
    values = json.loads((tmp_path / "page.json").read_text())
    (message,) = values["damaged"]
    assert str(job) in message
    assert values["history"] == json.loads(json.dumps(open_job(job).state().history))
