"""A driver on a cluster of two worker processes: kill −9 of one, of its own, of all, of the
scheduler; aborts."""

import contextlib
from pathlib import Path

import pytest
from clusters import Processes
from fault_cases import (
    CASES,
    aborted,
    assert_one_round_repeated,
    assert_same_end,
    assert_usable,
    begun_later,
    count,
)
from fault_processes import carry
from fault_watchers import arm
from waiting import PATIENCE, wait_for

from partirvm.execution.cluster import connect
from partirvm.jobs import open_job, submit
from partirvm.jobs.state import Status

CASE = "incremental"
"""The case with the most passes over all rows, a second's work or two for these workers."""

WORKERS = 2

PRELOAD = str(Path(__file__).with_name("preload.py"))


class Watched(Processes):
    """Two workers whose drivers and tiles wait where a test says, and a client."""

    def __init__(self, folder):
        self.asked = folder / "asked"
        self.asked.mkdir()
        super().__init__(folder, WORKERS, "--preload", PRELOAD, LISTEN_IN=str(self.asked))
        self.client = connect(self.address)
        self.client.wait_for_workers(WORKERS, timeout=PATIENCE)

    def kill(self, pid):
        """kill −9 of the worker with this number."""
        (worker,) = [each for each in self.workers if each.pid == pid]
        worker.kill()
        worker.wait()
        self.workers.remove(worker)

    def submit(self, data, place, case, where, after):
        """Submit a job that is held there (``Asking``), and wait until it is."""
        arm(self.asked, place, where, after)
        made = submit(CASES[case], data[0], str(place), validation=data[1], client=self.client)
        wait_for((self.asked / "here").exists, "the middle of the work")
        return made

    def go_on(self):
        """Let tiles be read again."""
        (self.asked / "hold").unlink()

    def close(self):
        """Let nothing live on."""
        with contextlib.suppress(Exception):
            self.client.close(timeout=5)
        super().close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Two workers; who kills some starts others."""
    made = Watched(tmp_path_factory.mktemp("cluster"))
    yield made
    made.close()


@pytest.fixture
def job(cluster, data, undisturbed, tmp_path):
    """A job whose driver runs on the cluster, in a pass after its second line of history: no tile
    of it can be read."""
    cluster.client.wait_for_workers(WORKERS, timeout=PATIENCE)
    made = cluster.submit(data, tmp_path / "job", CASE, "hold", 2)
    wait_for(lambda: count(cluster.asked / "tiles"), "a tile")
    return made


def to_be_begun(dask_scheduler):
    """Tasks that no worker is at work on yet."""
    return [
        task.key
        for task in dask_scheduler.tasks.values()
        if task.state in ("queued", "waiting", "no-worker")
    ]


def driver(job):
    """The number of the process that holds the job's lease."""
    return job.store.holder().process.pid


def assert_done(job, whole):
    """It comes to the end of the undisturbed job, whoever brings it there."""
    wait_for(lambda: job.status() in (Status.DONE, Status.FAILED), what="the end of the job")
    assert_same_end(job.store, whole)
    assert_one_round_repeated(job.store.events())


@pytest.mark.slow
def test_a_killed_worker(cluster, job, undisturbed):
    """One that only does tasks: the driver goes on as if nothing had been."""
    victim = next(worker.pid for worker in cluster.workers if worker.pid != driver(job))
    cluster.kill(victim)
    cluster.go_on()
    cluster.add(1)
    assert_done(job, undisturbed[CASE])
    assert [event["event"] for event in job.store.events()].count("running") == 1


@pytest.mark.slow
def test_the_worker_that_holds_the_driver(cluster, job, undisturbed):
    """The scheduler begins the driver elsewhere, which goes on from the last checkpoint."""
    first = driver(job)
    cluster.kill(first)
    cluster.go_on()
    cluster.add(1)
    assert_done(job, undisturbed[CASE])
    assert driver(job) != first
    kinds = [event["event"] for event in job.store.events()]
    assert kinds.count("running") == 2


def test_an_abort_there(cluster, data, tmp_path):
    """As in one process: the next look ends the work, with tiles still under way; nothing of the
    pass is begun then."""
    cluster.client.wait_for_workers(WORKERS, timeout=PATIENCE)
    made = cluster.submit(data, tmp_path / "job", CASE, "pass", 1)
    aborted(made.location, "flat enough", cluster.asked)
    assert_usable(made.store, "flat enough")
    wait_for(lambda: made.store.holder().gone, "the end of the driver")
    wait_for(
        lambda: not cluster.client.run_on_scheduler(to_be_begun), "the end of what was given up"
    )
    tiles, heard = begun_later(cluster.asked)
    assert heard == 0
    assert tiles <= len(cluster.workers), "a task has one of these tiles"


def test_the_scheduler(breeder, cluster, job, undisturbed):
    """The job is interrupted, with a reason; resumed in one process it comes to the same end."""
    cluster.scheduler.kill()
    cluster.go_on()
    wait_for(lambda: job.status() not in (Status.RUNNING, Status.ABORTING), "the end of the driver")
    state = job.state()
    assert state.status is Status.INTERRUPTED, state.reason
    assert state.reason
    assert job.model().n_vectors > 0
    wait_for(lambda: job.store.holder().gone, "the end of the driver")
    open_job(job.location).requeue()
    breeder.call(carry, job=job.location).end()
    assert_done(job, undisturbed[CASE])
