"""DATA, JOB, predictions, reports and models in a bucket equal those on a local disk."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from by_default import some
from click.testing import CliRunner
from numpy.random import default_rng
from waiting import wait_for

pytest.importorskip("moto")
pytest.importorskip("s3fs")

from partirvm import load_model, open_job, save_model
from partirvm.cli.commands import partirvm
from partirvm.errors import ExistsError, LeaseError
from partirvm.jobs import run_job
from partirvm.predict import predict
from partirvm.report.page import Report

# botocore and moto use deprecated functions
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")

CHOICES = ("--gamma", "0.5", "--partition-size", "40", "--max-rounds", "5", "--quiet")
CHOICES += ("--neighbours", "20")


def run(*arguments):
    """Run a command in this process, and return its output."""
    done = CliRunner().invoke(partirvm, arguments)
    assert done.exit_code == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def places(s3_server, tmp_path_factory):
    """Return a local folder and a bucket, both with DATA of the same table; the folder has a
    job."""
    import s3fs

    folder = str(tmp_path_factory.mktemp("local"))
    bucket = "s3://experiments/first"
    s3fs.S3FileSystem().mkdir("experiments")
    rng = default_rng(1)
    X = rng.uniform(-2, 2, (3000, 2))
    table = pd.DataFrame(
        {"a": X[:, 0], "b": X[:, 1], "y": np.sin(3 * X[:, 0]) * X[:, 1] + rng.normal(0, 0.1, 3000)}
    )
    table.to_csv(f"{folder}/table.csv", index=False)
    for place in (folder, bucket):
        run("ingest", f"{folder}/table.csv", f"{place}/table.zarr", "--target", "y", "--quiet")
    run("fit", f"{folder}/table.zarr", f"{folder}/job", *CHOICES)
    return folder, bucket


@pytest.mark.slow
def test_a_killed_fit_resumes_to_the_bits_of_a_local_one(places):
    """Before the kill, a second driver raises a ``LeaseError``; afterwards, it continues."""
    folder, bucket = places
    fit = subprocess.Popen(
        [sys.executable, "-m", "partirvm", "fit", f"{bucket}/table.zarr", f"{bucket}/job", *CHOICES]
    )
    job = open_job(wait_for(lambda: _there(f"{bucket}/job"), "the job"))
    wait_for(lambda: job.state().history, "a round", pause=0.05)
    with pytest.raises(LeaseError, match="is in use by process"):
        run_job(f"{bucket}/job", attempt=1, patience=0.0)
    fit.send_signal(signal.SIGKILL)
    fit.wait()
    assert wait_for(lambda: job.progress()["status"] == "interrupted", "the end of the process")
    run("resume", f"{bucket}/job", "--quiet")
    assert load_model(f"{bucket}/job").digest() == load_model(f"{folder}/job").digest()
    assert "table.zarr" not in run("jobs", bucket)


def _there(place):
    from partirvm.jobs import Job

    return place if Job(place).store.exists() else None


@pytest.mark.parametrize("ending", some(["parquet", "csv", "zarr"], {"parquet"}))
def test_predictions_from_a_bucket_equal_those_from_disk(places, ending, tmp_path):
    """Their bytes are equal, and no other object is left."""
    folder, bucket = places
    local = tmp_path / f"p.{ending}"
    remote = f"{bucket}/p.{ending}"
    predict(f"{folder}/job", f"{folder}/table.zarr", str(local))
    predict(f"{folder}/job", f"{bucket}/table.zarr", remote)
    assert _objects(remote) == _files(local)
    assert not [name for name in _objects(bucket) if "partial" in name]
    with pytest.raises(ExistsError):
        predict(f"{folder}/job", f"{bucket}/table.zarr", remote, interval=0.9)
    predict(f"{folder}/job", f"{bucket}/table.zarr", remote, interval=0.9, overwrite=True)
    assert _objects(remote) != _files(local)


@pytest.mark.slow
def test_report_and_model_are_written_to_a_bucket(places):
    folder, bucket = places
    assert "open it in a browser" in run("report", f"{folder}/job", f"{bucket}/report.html")
    assert _objects(f"{bucket}/report.html")[""].startswith(b"<!")
    report = Report({"status_advice": ""})
    report.save(f"{bucket}/report.json")
    with pytest.raises(ExistsError, match="already exists"):
        report.save(f"{bucket}/report.json")
    Report({}).save(f"{bucket}/foreign.json")
    with pytest.raises(ExistsError, match="not a report that partirvm wrote"):
        report.save(f"{bucket}/foreign.json", overwrite=True)
    model = load_model(f"{folder}/job")
    save_model(model, f"{bucket}/model.rvm")
    assert load_model(f"{bucket}/model.rvm").digest() == model.digest()


def _objects(place):
    import s3fs

    store = s3fs.S3FileSystem(skip_instance_cache=True)
    path = place.removeprefix("s3://")
    return {name[len(path) :]: store.cat_file(name) for name in store.find(path)}


def _files(place):
    if place.is_file():
        return {"": place.read_bytes()}
    files = (Path(folder, name) for folder, _, names in os.walk(place) for name in names)
    return {f"/{file.relative_to(place)}": file.read_bytes() for file in files}
