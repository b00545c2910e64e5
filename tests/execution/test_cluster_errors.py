"""Clusters that close, restart, kill or are of unlike machines: one sentence and an advice per cause."""

from __future__ import annotations

import os
import platform
import re
import signal
import subprocess
import sys
import time
import warnings

import numpy as np
import pytest
from backend_cases import PASSES, HeldSource, bits
from by_default import some
from clusters import cluster
from distributed import Client
from waiting import stopped, wait_for

from partirvm import RVMRegressor, ingest, jobs, submit
from partirvm.data import ZarrSource
from partirvm.errors import ClusterError, PartirvmWarning
from partirvm.execution import cluster as cluster_module
from partirvm.execution.dask import DaskExecutor
from partirvm.execution.detached import start
from partirvm.jobs.state import Status, fold
from partirvm.options import Request


class SlowSource(HeldSource):
    """DATA whose tiles take a moment, so that a worker is never between two passes for long."""

    def tile(self, number):
        time.sleep(0.02)
        return ZarrSource.tile(self, number)


@pytest.fixture
def growing(tmp_path):
    """A job on DATA of 20,000 rows whose fit takes minutes, submitted to a cluster by a function."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 3))
    ingest((X, np.sin(3 * X[:, 0]) + 0.3 * rng.normal(size=20_000)), tmp_path / "d.zarr", tile_rows=1000)
    asked = Request(gamma=2.0, strategy="incremental", partition_size=20, max_rounds=900, seed=1)

    def begin(client):
        job = jobs.submit(str(tmp_path / "d.zarr"), str(tmp_path / "job"), asked, client=client)
        wait_for(lambda: [event["event"] for event in job.store.events()].count("fit") > 1, "two rounds")
        return job

    return begin


ENDS = {
    "scaled down": (lambda client: client.cluster.scale(0), "the worker that ran the fit was stopped"),
    "restarted": (Client.restart, "the worker that ran the fit was stopped"),
}


@pytest.mark.parametrize("repeat", range(8))
@pytest.mark.parametrize("how", some(ENDS, set()))
def test_a_driver_whose_worker_is_taken_away_says_why(growing, how, repeat):
    """All workers stopped, or ``client.restart()``, while the scheduler responds: the job records the cause.

    ``retire_workers`` alone stops no worker that has the only copy of a result, so that the fit continues there.
    """
    end, said = ENDS[how]
    with cluster(2) as client:
        job = growing(client)
        end(client)
        wait_for(lambda: job.status() is not Status.RUNNING, "the end")
        state = fold(job.store.events())
    assert state.status is Status.INTERRUPTED
    assert re.search(f"{said}.*partirvm resume JOB", state.reason)


def slow_to_record(url, folder, client):
    """Run passes without end; record the error that ends them as a slow store does."""
    try:
        runner = DaskExecutor(client)
        while True:
            runner.run([PASSES["gram"]], ZarrSource(url))
            (folder / "begun").touch()
    except ClusterError as error:
        time.sleep(1.0)
        (folder / "part").write_text(str(error))
        (folder / "part").rename(folder / "said")


@pytest.mark.slow
def test_a_worker_waits_until_its_driver_has_recorded_the_end(data, tmp_path):
    """Stopped while the store takes a second: the process ends after the record."""
    with cluster(2) as client:
        start(client, "driver", slow_to_record, data.url, tmp_path)
        wait_for((tmp_path / "begun").exists, "the driver")
        client.cluster.scale(0)
        wait_for(lambda: not client.scheduler_info()["workers"], "the end of the workers")
        wait_for((tmp_path / "said").exists, "the record", seconds=20.0)
    assert "the worker that ran the fit was stopped" in (tmp_path / "said").read_text()


def test_a_worker_that_stands_still_before_a_fit_is_named(one_worker, monkeypatch):
    """SIGSTOP: ClusterError after the time for an answer, not a wait until the scheduler gives the worker up."""
    (pid,) = one_worker.run(os.getpid).values()
    monkeypatch.setattr(cluster_module, "ANSWER", 1.0)
    os.kill(pid, signal.SIGSTOP)
    try:
        wait_for(lambda: stopped(pid), "the stop")
        with pytest.raises(ClusterError, match=f"{one_worker.scheduler.address} has not responded for 1 s"):
            DaskExecutor(one_worker)
    finally:
        os.kill(pid, signal.SIGCONT)


LOOP = """
import os, sys
from pathlib import Path
sys.path[:0] = sys.argv[4:]
from backend_cases import PASSES, HeldSource
from distributed import Client
from partirvm.execution import cluster
from partirvm.execution.dask import DaskExecutor
client = Client(sys.argv[1], set_as_default=False)
runner, loop = DaskExecutor(client), client.loop.asyncio_loop
cluster.SILENCE, cluster.QUESTION = 1.0, 0.5
stop = lambda done, total: loop.call_soon_threadsafe(loop.stop)
try:
    runner.run([PASSES["gram"]], HeldSource(sys.argv[2], Path(sys.argv[3])), stop)
except cluster.ClusterError as error:
    print(error, flush=True)
os._exit(0)
"""


def test_a_client_whose_event_loop_has_stopped_is_named(one_worker, data, tmp_path):
    """Stopped in the middle of a pass, of which Dask says nothing: ClusterError after the silence, not a wait."""
    address = one_worker.scheduler.address
    command = [sys.executable, "-c", LOOP, address, data.url, str(tmp_path / "never"), *sys.path]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert address in ended.stdout, ended.stderr


def test_a_closed_client_is_named(one_worker, data, tmp_path):
    """Closed before a fit is submitted, before an executor is made, or in a pass: ClusterError, no AttributeError."""
    address = one_worker.scheduler.address
    client = Client(address, set_as_default=False)
    runner = DaskExecutor(client)
    with pytest.raises(ClusterError, match=f"{address} ended: its client was closed"):
        runner.run([PASSES["gram"]], HeldSource(data.url, tmp_path / "never"), lambda done, total: client.close())
    for call in (
        lambda: DaskExecutor(client),
        lambda: submit(RVMRegressor(), data.url, str(tmp_path / "job"), client=client),
        lambda: start(client, "driver", print),
    ):
        with pytest.raises(ClusterError, match=r"Dask client.* closed"):
            call()
    assert not (tmp_path / "job").exists()


def test_workers_that_die_in_the_check_of_packages_are_waited_for(data, reference):
    """kill -9 of the only worker when it is asked for its packages: its successor is asked, and does the work."""
    with cluster(1) as client:
        asked = client.run

        def run(*args, **options):
            (pid,) = asked(os.getpid).values()
            client.run = asked
            os.kill(pid, signal.SIGKILL)
            return asked(*args, **options)

        client.run = run
        runner = DaskExecutor(client)
        assert client.run is asked
        assert bits(runner.run([PASSES["gram"]], data)[0]) == bits(reference["gram"])
        runner.close()


class DeadlySource(HeldSource):
    """DATA that kills each process that reads it."""

    def tile(self, number):
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
def test_a_task_that_kills_each_worker_is_named(data, tmp_path):
    """Each worker dies of the same task: ClusterError with the usual cause, not the words of Dask."""
    with cluster(1) as client:
        runner = DaskExecutor(client)
        with pytest.raises(ClusterError, match=r"died, left or were restarted .* memory_limit"):
            runner.run([PASSES["gram"]], DeadlySource(data.url, tmp_path / "gate"))
        runner.close()


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="names kernels of x86")
def test_unlike_processors_are_warned_of(one_worker):
    """A second worker with other kernels of OpenBLAS than the first one: the warning names worker and both kinds."""
    address = one_worker.scheduler.address
    from partirvm.blas_threads import kernels

    (usual,) = one_worker.run(kernels).values()
    other = "Sandybridge" if "haswell" in usual.lower() else "Haswell"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OPENBLAS_CORETYPE": other}
    command = [sys.executable, "-m", "dask", "worker", address, "--nthreads", "1", "--no-nanny", "--no-dashboard"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        DaskExecutor(one_worker).close()
    process = subprocess.Popen([*command, "--name", "unlike"], env=environment, stderr=subprocess.DEVNULL)
    try:
        one_worker.wait_for_workers(2, timeout=60)
        with pytest.warns(PartirvmWarning, match=f"(?i){other}.*last bits"):
            DaskExecutor(one_worker).close()
    finally:
        process.terminate()
        process.wait()
        wait_for(lambda: len(one_worker.scheduler_info()["workers"]) == 1, "the end of the worker")
