"""Jobs run by a cluster of one worker with one thread, over TCP."""

import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from clusters import Processes, free_port
from numpy.random import default_rng
from waiting import PATIENCE, wait_for

from partirvm import RVMRegressor, WorkingSet, ingest, load_model, open_job, submit
from partirvm.errors import ExistsError, MissingDataError
from partirvm.jobs import Status

CHAPTER = Path(__file__).parents[2] / "docs" / "guide" / "jobs.md"
BIN = Path(sys.executable).parent


@pytest.fixture(scope="module")
def scheduler(processes, tmp_path_factory):
    """Yield the address of a cluster of one worker with one thread."""
    from distributed import Client

    started = Processes(tmp_path_factory.mktemp("cluster"), 1)
    try:
        with Client(started.address, timeout=PATIENCE, set_as_default=False) as client:
            client.wait_for_workers(1, timeout=PATIENCE)
        yield started.address
    finally:
        started.close()


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Return a folder with rough.zarr, small.zarr and held-out.zarr."""
    folder = tmp_path_factory.mktemp("rough")
    rng = default_rng(0)
    for name, rows in (("rough", 12_000), ("small", 1500), ("held-out", 1000)):
        X = rng.uniform(-2, 2, (rows, 2))
        y = np.sin(5 * X[:, 0]) * np.cos(5 * X[:, 1]) + 0.1 * rng.normal(size=rows)
        ingest((X, y), folder / f"{name}.zarr", tile_rows=1024)
    return folder


QUICK = {"gamma": 20.0, "partition_size": 60, "noise": "constant", "residual": "none"}
QUICK["random_state"] = 0

SUBMIT = f"""
import sys, time
from distributed import Client
from partirvm import RVMRegressor, WorkingSet, submit
client = Client(sys.argv[1])
estimator = RVMRegressor(**{QUICK}, max_rounds=3, strategy=WorkingSet(selection="random"))
job = submit(estimator, sys.argv[2], sys.argv[3], client=client)
print("submitted", flush=True)
time.sleep(600)
"""


@pytest.mark.slow
def test_a_job_continues_after_its_submitter_is_killed(scheduler, data, tmp_path):
    """kill -9 as soon as submit has returned; the model has the bits of a local fit."""
    arguments = (scheduler, str(data / "small.zarr"), str(tmp_path / "job"))
    process = subprocess.Popen([sys.executable, "-c", SUBMIT, *arguments], stdout=subprocess.PIPE)
    try:
        assert process.stdout.readline() == b"submitted\n"
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    job = open_job(tmp_path / "job")
    assert job.wait(timeout=PATIENCE) is Status.DONE
    estimator = RVMRegressor(**QUICK, max_rounds=3, strategy=WorkingSet(selection="random"))
    local = submit(estimator, data / "small.zarr", tmp_path / "local")
    assert local.wait(timeout=PATIENCE) is Status.DONE
    assert load_model(tmp_path / "job").digest() == load_model(tmp_path / "local").digest()


def test_submit_runs_a_job_on_a_client(scheduler, data, tmp_path, monkeypatch):
    """Paths are relative, refusals are immediate, and the job is resumed and overwritten."""
    from distributed import Client

    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.zarr").symlink_to(data / "small.zarr")
    with Client(scheduler, set_as_default=False) as client:
        estimator = RVMRegressor(**QUICK, max_rounds=1, client=client)
        first = submit(estimator, "small.zarr", "job", validation=data / "held-out.zarr")
        assert first.wait(timeout=PATIENCE) is Status.DONE
        with pytest.raises(ExistsError):
            submit(estimator, "small.zarr", "job")
        with pytest.raises(MissingDataError):
            submit(estimator, "gone.zarr", "new")
        assert first.resume(client=client, max_rounds=2).wait(timeout=PATIENCE) is Status.DONE
        again = submit(estimator, "small.zarr", "job", overwrite=True)
        assert again.wait(timeout=PATIENCE) is Status.DONE
        assert again.progress()["attempt"] == 1
    assert not (tmp_path / "new").exists()


def tour_commands():
    """Return the guide's commands for a detached job."""
    block = re.search(r"## On a cluster.*?```sh\n(.*?)```", CHAPTER.read_text(), re.DOTALL)
    return [line for line in block[1].splitlines() if line.strip()]


@pytest.mark.usefixtures("processes")
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_commands_of_the_guide_run_a_detached_job(data, tmp_path):
    """The port differs; the follower runs at the same time, until it has seen a round."""
    for name, source in (("trips", "rough"), ("held-out", "held-out"), ("test", "held-out")):
        (tmp_path / f"{name}.zarr").symlink_to(data / f"{source}.zarr")
    script = [f"export PATH={BIN}:$PATH DASK_DISTRIBUTED__DASHBOARD__LINK=", "exec 2>&1"]
    port = free_port()
    background = 0
    for line in tour_commands():
        command = re.sub(r"\s+#.*", "", line).replace("8786", port)
        if command.endswith("--follow"):
            script += [f"{command} > follow.txt &", "FOLLOWER=$!", "for i in $(seq 1200); do"]
            script += ["grep -qE '^ +1 ' follow.txt && break; sleep 0.1; done"]
        elif command.endswith("&"):
            background += 1
            script += [f"{command[:-1]} > {background}.log 2>&1 &", "for i in $(seq 1200); do"]
            script += [
                f"grep -qE 'Scheduler at:|Registered to:' {background}.log && break; sleep 0.1; "
                "done"
            ]
        else:
            script += [command, f"echo STATUS {command.split()[1]} $?"]
    script += ["wait $FOLLOWER; echo STATUS follow $?"]
    options = {"cwd": tmp_path, "capture_output": True, "text": True, "timeout": 500}
    out = subprocess.run(["bash", "-m"], input="\n".join(script), **options).stdout
    statuses = re.findall(r"^STATUS (\S+) (\d+)$", out, re.MULTILINE)
    statuses = [" ".join(status) for status in statuses]
    expected = ["fit 0", "abort 0", "wait 3", "evaluate 0", "resume 0", "wait 0"]
    assert statuses == [*expected, "%1 0", "follow 3"], out
    wait_for(lambda: not answers(port), "the end of the tour's cluster")


def answers(port):
    with socket.socket() as probe:
        return not probe.connect_ex(("127.0.0.1", int(port)))
