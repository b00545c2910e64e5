"""The life cycle of a job: statuses, who may end or resume it, and bits of resumed jobs."""

import os

import numpy as np
import pytest
from numpy.random import default_rng
from waiting import PATIENCE, wait_for
from watchers import broken_off

from partirvm import RVMRegressor, WorkingSet, ingest, jobs, load_model, open_job, submit
from partirvm.core import Termination
from partirvm.errors import (
    ChangedDataError,
    ClusterError,
    ExistsError,
    LeaseError,
    MissingDataError,
    StorageError,
    UsageError,
)
from partirvm.fit import Watcher
from partirvm.jobs import JobStore, Status, create
from partirvm.options import Request
from partirvm.storage import LeaseTimes

OPTIONS = {"selection": "random", "noise": "constant", "residual": "none"}
REQUEST = Request(gamma=2.0, partition_size=30, max_rounds=3, **OPTIONS, seed=4)
LONG = Request(**{**vars(REQUEST), "gamma": 20.0, "max_rounds": 400, "effort": "thorough"})


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Return DATA of a rough function, which takes many rounds to learn."""
    rng = default_rng(0)
    X = rng.uniform(-2, 2, size=(2000, 2))
    y = np.sin(4 * X[:, 0]) * X[:, 1] + 0.1 * rng.normal(size=len(X))
    return ingest((X, y), tmp_path_factory.mktemp("jobs") / "rows.zarr", tile_rows=256).url


def transitions(job):
    """Return the events that change the status."""
    names = {status.value for status in Status}
    return [event["event"] for event in job.store.events() if event["event"] in names]


def test_a_submitted_job_runs_in_a_thread(data, tmp_path, monkeypatch):
    """Each transition has a time and a reason; places may be relative."""
    monkeypatch.chdir(tmp_path)
    place = os.path.relpath(data)
    options = {"partition_size": 30, "max_rounds": 3, "noise": "constant", "random_state": 4}
    strategy = WorkingSet(selection="random")
    estimator = RVMRegressor(gamma=2.0, strategy=strategy, residual="none", **options)
    job = submit(estimator, place, "job")
    monkeypatch.chdir("/")
    assert job.wait(timeout=PATIENCE) is Status.DONE
    assert str(job.status()) == "done"
    events = [event for event in job.store.events() if event["event"] in {"running", "done"}]
    assert [event["event"] for event in events] == ["running", "done"]
    assert all(event["time"] and event["reason"] for event in events)
    assert job.progress()["advice"] == Termination.ROUNDS.advice
    fitted = estimator.fit(data)
    assert job.model().mean.tobytes() == fitted.model_.mean.tobytes()
    assert load_model(tmp_path / "job").digest() == open_job(tmp_path / "job").model().digest()
    with pytest.raises(ExistsError, match="resume"):
        submit(estimator, data, tmp_path / "job")


def test_an_aborted_job_resumes_to_the_bits_of_an_uninterrupted_one(data, tmp_path):
    """Another handle aborts it; the job leaves a usable model."""
    job = jobs.submit(LONG, data, str(tmp_path / "job"))
    wait_for(lambda: len(job.state().history) >= 2)
    with pytest.raises(LeaseError, match="in use by"):
        job.resume()
    with pytest.raises(LeaseError, match="in use by"):
        jobs.submit(LONG, data, str(tmp_path / "job"), overwrite=True)
    with pytest.raises(TimeoutError, match="still running"):
        job.wait(timeout=0.1)
    assert open_job(tmp_path / "job").abort("flat enough") is Status.ABORTING
    assert job.wait(timeout=PATIENCE) is Status.ABORTED
    assert transitions(job) == ["running", "aborted"]
    state = job.state()
    reached = len(job.state().history)
    assert state.reason == "flat enough"
    assert job.model().n_vectors == state.history[-1]["vectors"]
    assert job.abort() is Status.ABORTED
    limit = reached + 2
    assert job.resume(max_rounds=limit).wait(timeout=PATIENCE) is Status.DONE
    complete = jobs.fit(
        data, str(tmp_path / "whole"), Request(**{**vars(LONG), "max_rounds": limit})
    )
    assert job.model().digest() == complete.model.digest()


def test_a_queued_job_can_be_aborted_and_resumed(data, tmp_path):
    """It is aborted at once, without a model."""
    from partirvm.jobs import create

    create(data, str(tmp_path / "job"), REQUEST, None, False)
    job = open_job(tmp_path / "job")
    assert job.status() is Status.QUEUED
    assert job.progress()["seconds"] is None
    assert job.abort() is Status.ABORTED
    assert jobs.run_job(str(tmp_path / "job")) is None, "whoever comes late finds it ended"
    with pytest.raises(MissingDataError, match="no model yet"):
        job.model()
    assert job.resume().wait(timeout=PATIENCE) is Status.DONE


@pytest.mark.parametrize("what", ["abort", "cancel"])
def test_an_abort_during_planning_ends_the_job(data, tmp_path, what):
    """Nothing is planned or fitted any more, and a resume starts from the beginning."""
    measured = Request(**{**vars(REQUEST), "partition_size": "auto"})
    create(data, str(tmp_path / "job"), measured, None, False)
    job = open_job(tmp_path / "job")

    class Asking(Watcher):
        def aborted(self):
            job.store.request(what, 1, "too slow")
            return False

    outcome = jobs.run_job(job.location, times=LeaseTimes(poll=0.0), watcher=Asking())
    assert (outcome.model, outcome.plan, outcome.reason) == (None, None, Termination.ABORTED)
    end = {"abort": Status.ABORTED, "cancel": Status.CANCELLED}[what]
    assert transitions(job) == ["running", end.value]
    assert [event for event in job.store.events() if event["event"] in ("plan", "fit")] == []
    assert (job.status(), job.state().reason) == (end, "too slow")
    if what == "abort":
        assert job.resume().wait(timeout=PATIENCE) is Status.DONE


def test_submit_raises_if_the_lease_cannot_be_taken(data, tmp_path, monkeypatch):
    """The job is then queued."""

    def full(self, **options):
        raise StorageError("no space left")

    options = {"partition_size": 30, "max_rounds": 1, "noise": "constant", "residual": "none"}
    with monkeypatch.context() as patched:
        patched.setattr(JobStore, "acquire", full)
        with pytest.raises(StorageError, match="no space left"):
            submit(RVMRegressor(gamma=2.0, **options), data, tmp_path / "job")
    job = open_job(tmp_path / "job")
    assert job.status() is Status.QUEUED
    assert job.resume().wait(timeout=PATIENCE) is Status.DONE


def test_a_queued_job_is_resumed_with_changed_limits(data, tmp_path):
    """Another driver takes it over; the first one comes too late."""
    from partirvm.jobs import create

    create(data, str(tmp_path / "job"), REQUEST, None, False)
    job = open_job(tmp_path / "job")
    state = job.requeue(max_rounds=2)
    assert state.attempt == 2
    assert jobs.run_job(str(tmp_path / "job"), attempt=1) is None
    assert len(jobs.run_job(str(tmp_path / "job"), attempt=2).history) == 2
    assert transitions(job) == ["queued", "running", "done"]


def test_a_cancelled_job_cannot_be_resumed(data, tmp_path):
    """It is running or aborted; its models and checkpoints are deleted, its events are kept."""
    job = jobs.submit(LONG, data, str(tmp_path / "job"))
    wait_for(lambda: len(job.state().history) >= 2)
    assert job.cancel("wrong target") is Status.ABORTING
    assert job.wait(timeout=PATIENCE) is Status.CANCELLED
    aborted = broken_off(data, str(tmp_path / "other"), LONG)
    aborted.abort()
    assert aborted.cancel() is Status.CANCELLED
    assert aborted.cancel() is Status.CANCELLED
    for cancelled in (job, aborted):
        with pytest.raises(UsageError, match="cancelled"):
            cancelled.resume()
        with pytest.raises(MissingDataError, match="its model discarded"):
            load_model(cancelled.location)
        assert cancelled.abort() is Status.CANCELLED
        assert len(cancelled.state().history) >= 1
    assert job.state().reason == "wrong target"


@pytest.mark.filterwarnings("ignore::partirvm.errors.NoiseFloorWarning")
def test_a_finished_job_cannot_be_cancelled_or_resumed_unchanged(data, tmp_path):
    """The error names what would have to change."""
    jobs.fit(data, str(tmp_path / "job"), REQUEST)
    job = open_job(tmp_path / "job")
    assert job.abort() is Status.DONE
    with pytest.raises(UsageError, match="delete the folder"):
        job.cancel()
    for changed in ({}, {"max_rounds": 3}, {"max_rounds": 2}, {"max_vectors": 500}):
        with pytest.raises(UsageError, match="reached max_rounds = 3"):
            job.resume(**changed)
    with pytest.raises(UsageError, match="cannot change gamma, seed"):
        job.resume(gamma=1.0, seed=3, max_rounds=9)
    with pytest.raises(UsageError, match="max_rounds is 0"):
        job.resume(max_rounds=0)
    with pytest.raises(UsageError, match="began without a held-out dataset"):
        job.resume(max_rounds=9, validation=data)
    assert transitions(job) == ["running", "done"]
    X = np.linspace(-2, 2, 60)[:, None]
    few = ingest((X, np.sin(X[:, 0])), tmp_path / "few.zarr").url
    request = Request(gamma=1.0, strategy="basic", partition_size="auto")
    jobs.fit(few, str(tmp_path / "basic"), request)
    with pytest.raises(UsageError, match="would change nothing"):
        open_job(tmp_path / "basic").resume(max_rounds=99)


def test_a_job_that_reached_its_time_limit_resumes_with_a_new_limit(data, tmp_path):
    jobs.fit(data, str(tmp_path / "job"), Request(**{**vars(REQUEST), "time_limit": 1e-6}))
    job = open_job(tmp_path / "job")
    assert job.state().reason == "time"
    assert job.resume(time_limit="1h").wait(timeout=PATIENCE) is Status.DONE
    assert job.state().reason == "rounds"
    complete = jobs.fit(data, str(tmp_path / "whole"), REQUEST)
    assert job.model().digest() == complete.model.digest()


@pytest.mark.parametrize(
    ("part", "error", "status", "reason"),
    [
        (
            "data.ZarrSource.tile",
            ZeroDivisionError("a fault"),
            Status.FAILED,
            "ZeroDivisionError: a fault",
        ),
        ("jobs.attempt.executor_for", ClusterError("it is gone"), Status.INTERRUPTED, "it is gone"),
    ],
)
def test_an_error_fails_a_job_and_a_lost_cluster_interrupts_it(
    data, tmp_path, monkeypatch, part, error, status, reason
):
    """A resume continues once the cause is removed."""
    job = broken_off(data, str(tmp_path / "job"), REQUEST)

    def fault(*_):
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(f"partirvm.{part}", fault)
        assert job.resume().wait(timeout=PATIENCE) is status
    assert job.state().reason == reason
    assert status is Status.INTERRUPTED or "in fault" in job.store.events()[-1]["traceback"]
    assert job.abort() in (Status.FAILED, Status.ABORTED)
    assert job.resume().wait(timeout=PATIENCE) is Status.DONE


def interrupted_job(tmp_path):
    """Return 600 rows and an interrupted job fitted to them."""
    rng = default_rng(0)
    X = rng.uniform(-2, 2, size=(600, 2))
    rows = X, np.sin(X[:, 0]) + 0.1 * rng.normal(size=600)
    data = ingest(rows, tmp_path / "rows.zarr", tile_rows=128, shuffle=None).url
    return rows, broken_off(data, str(tmp_path / "job"), REQUEST)


@pytest.mark.parametrize("what", ["values", "rows"])
def test_a_resume_on_other_data_reports_the_difference(tmp_path, what):
    """The job is unchanged, whoever detects the difference."""
    (X, y), job = interrupted_job(tmp_path)
    if what == "values":
        y[300] += 1
    else:
        X = X[:-1]
        y = y[:-1]
    job.requeue()
    ingest((X, y), tmp_path / "rows.zarr", tile_rows=128, shuffle=None, overwrite=True)
    expected = f"600 rows at the start, {600 if what == 'values' else 599} now; values, names"
    with pytest.raises(ChangedDataError, match=expected):
        jobs.run_job(job.location)
    assert job.status() is Status.INTERRUPTED
    with pytest.raises(ChangedDataError, match=expected):
        job.resume()
    assert job.status() is Status.INTERRUPTED
    assert job.model().n_vectors > 0


@pytest.mark.slow
def test_a_resume_may_use_a_new_place_for_its_data(tmp_path):
    """The fingerprint must agree; an update finds new rows there."""
    rows, job = interrupted_job(tmp_path)
    before = tmp_path / "rows.zarr"
    now = tmp_path / "elsewhere" / "rows.zarr"
    now.parent.mkdir()
    before.rename(now)
    unchanged = job.state()
    events = len(job.store.events())
    with pytest.raises(MissingDataError, match=r"rows\.zarr"):
        job.resume()
    other = ingest((rows[0], rows[1] + 1), tmp_path / "other.zarr", tile_rows=128, shuffle=None).url
    with pytest.raises(ChangedDataError, match="values, names, categories"):
        job.resume(data=other)
    assert job.state() == unchanged
    assert len(job.store.events()) == events
    assert job.resume(data=now).wait(timeout=PATIENCE) is Status.DONE
    assert job.asked()["data"] == str(now)
    assert job.store.spec()["data"] == str(before)
    now.rename(before)
    ingest((rows[0][:50] + 0.1, rows[1][:50]), before, append=True)
    assert job.update(data=before, max_rounds=1).wait(timeout=PATIENCE) is Status.DONE
    assert job.asked()["data"] == str(before)
