"""A driver on a cluster of two worker processes: kill −9 of workers and scheduler, and aborts."""

import contextlib
from pathlib import Path

import pytest
from clusters import Processes
from fault_cases import (
    CASES,
    abort_in_pass,
    assert_one_round_repeated,
    assert_same_end,
    assert_usable,
    count,
    work_after_abort,
)
from fault_processes import carry
from fault_watchers import arm
from waiting import PATIENCE, wait_for

from partirvm.execution.cluster import connect
from partirvm.jobs import Status, open_job, submit

CASE = "incremental"
"""The case with the most passes over all rows."""

WORKERS = 2

PRELOAD = str(Path(__file__).with_name("preload.py"))


class Watched(Processes):
    """Two workers whose drivers and tiles wait where a test specifies, and a client."""

    def __init__(self, folder):
        self.folder = folder / "held"
        self.folder.mkdir()
        super().__init__(folder, WORKERS, "--preload", PRELOAD, LISTEN_IN=str(self.folder))
        self.client = connect(self.address)
        self.client.wait_for_workers(WORKERS, timeout=PATIENCE)

    def kill(self, pid):
        """Send kill −9 to the worker with this number."""
        (worker,) = [process for process in self.workers if process.pid == pid]
        worker.kill()
        worker.wait()
        self.workers.remove(worker)

    def submit(self, data, place, case, where, after):
        """Submit a job that is held at a given point (``UntilAbort``), and wait until it is
        held."""
        arm(self.folder, place, where, after)
        job = submit(CASES[case], data[0], str(place), validation=data[1], client=self.client)
        wait_for((self.folder / "here").exists, "the middle of the work")
        return job

    def resume(self):
        """Let tiles be read again."""
        (self.folder / "hold").unlink()

    def close(self):
        """End all processes."""
        with contextlib.suppress(Exception):
            self.client.close(timeout=5)
        super().close()


@pytest.fixture(scope="module")
def cluster(processes, tmp_path_factory):
    """Yield two workers; a test that kills some starts others."""
    watched = Watched(tmp_path_factory.mktemp("cluster"))
    yield watched
    watched.close()


@pytest.fixture
def job(cluster, data, undisturbed, tmp_path):
    """Return a job whose driver is held on the cluster in a pass after its second history line."""
    cluster.client.wait_for_workers(WORKERS, timeout=PATIENCE)
    held = cluster.submit(data, tmp_path / "job", CASE, "hold", 2)
    wait_for(lambda: count(cluster.folder / "tiles"), "a tile")
    return held


def pending_tasks(dask_scheduler):
    """Return tasks that no worker is running."""
    return [
        task.key
        for task in dask_scheduler.tasks.values()
        if task.state in ("queued", "waiting", "no-worker")
    ]


def driver(job):
    """Return the number of the process that holds the lease of the job."""
    return job.store.holder().process.pid


def assert_done(job, undisturbed):
    """Assert that the job ends like the undisturbed one."""
    wait_for(lambda: job.status() in (Status.DONE, Status.FAILED), what="the end of the job")
    assert_same_end(job.store, undisturbed)
    assert_one_round_repeated(job.store.events())


@pytest.mark.slow
def test_the_driver_survives_a_killed_worker(cluster, job, undisturbed):
    """The run continues."""
    victim = next(worker.pid for worker in cluster.workers if worker.pid != driver(job))
    cluster.kill(victim)
    cluster.resume()
    cluster.add(1)
    assert_done(job, undisturbed[CASE])
    assert [event["event"] for event in job.store.events()].count("running") == 1


@pytest.mark.slow
def test_the_driver_on_a_killed_worker_is_restarted(cluster, job, undisturbed):
    """It continues on another worker, from the last checkpoint."""
    first = driver(job)
    cluster.kill(first)
    cluster.resume()
    cluster.add(1)
    assert_done(job, undisturbed[CASE])
    assert driver(job) != first
    kinds = [event["event"] for event in job.store.events()]
    assert kinds.count("running") == 2


def test_an_abort_ends_a_driver_on_a_cluster(cluster, data, tmp_path):
    """The driver ends at its next poll; nothing more of the pass is begun."""
    cluster.client.wait_for_workers(WORKERS, timeout=PATIENCE)
    job = cluster.submit(data, tmp_path / "job", CASE, "pass", 1)
    abort_in_pass(job.location, "flat enough", cluster.folder)
    assert_usable(job.store, "flat enough")
    wait_for(lambda: job.store.holder().gone, "the end of the driver")
    wait_for(
        lambda: not cluster.client.run_on_scheduler(pending_tasks), "the end of what was given up"
    )
    tiles, heard = work_after_abort(cluster.folder)
    assert heard == 0
    assert tiles <= len(cluster.workers), "a task has one of these tiles"


def test_a_job_that_loses_its_scheduler_is_interrupted(forker, cluster, job, undisturbed):
    """Resumed in one process, the job ends as if the scheduler had not been lost."""
    cluster.scheduler.kill()
    cluster.resume()
    wait_for(lambda: job.status() not in (Status.RUNNING, Status.ABORTING), "the end of the driver")
    state = job.state()
    assert state.status is Status.INTERRUPTED, state.reason
    assert state.reason
    assert job.model().n_vectors > 0
    wait_for(lambda: job.store.holder().gone, "the end of the driver")
    open_job(job.location).requeue()
    forker.call(carry, job=job.location).end()
    assert_done(job, undisturbed[CASE])
