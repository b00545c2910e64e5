"""Clusters that close, restart, kill or are of unlike machines: one sentence and an advice per cause."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
import time
import warnings

import pytest
from backend_cases import PASSES, HeldSource, bits
from clusters import cluster
from distributed import Client
from waiting import stopped, wait_for

from partirvm import RVMRegressor, submit
from partirvm.data import ZarrSource
from partirvm.errors import ClusterError, PartirvmWarning
from partirvm.execution import cluster as cluster_module
from partirvm.execution.dask import DaskExecutor
from partirvm.execution.detached import start


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
