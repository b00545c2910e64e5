"""A job's whole life by its handle: every state, who may end or resume it, and that a resume
changes no bit."""

import os

import numpy as np
import pytest
from waiting import wait_for
from watchers import broken_off

from partirvm import RVMRegressor, WorkingSet, ingest, jobs, load_model, open_job, submit
from partirvm.core.termination import Termination
from partirvm.errors import (
    ChangedDataError,
    ClusterError,
    ExistsError,
    LeaseError,
    MissingDataError,
    StorageError,
    UsageError,
)
from partirvm.jobs.state import Status
from partirvm.jobs.store import JobStore
from partirvm.options import Request

WAY = {"selection": "random", "noise": "constant", "residual": "none"}
ASKED = Request(gamma=2.0, partition_size=30, max_rounds=3, **WAY, seed=4)
LONG = Request(**{**vars(ASKED), "gamma": 20.0, "max_rounds": 400, "effort": "thorough"})


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """DATA of a rough function, which takes many rounds to learn."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(3000, 2))
    y = np.sin(4 * X[:, 0]) * X[:, 1] + 0.1 * rng.normal(size=len(X))
    return ingest((X, y), tmp_path_factory.mktemp("jobs") / "rows.zarr", tile_rows=256).url


def kinds(job):
    """The events that are transitions."""
    names = {status.value for status in Status}
    return [event["event"] for event in job.store.events() if event["event"] in names]


def test_a_submitted_job_runs_by_itself(data, tmp_path, monkeypatch):
    """In a thread: queued, running, done; each transition with a time and a reason; relative
    places."""
    monkeypatch.chdir(tmp_path)
    place = os.path.relpath(data)
    how = {
        "partition_size": 30,
        "max_rounds": 3,
        "noise": "constant",
        "residual": "none",
        "random_state": 4,
    }
    estimator = RVMRegressor(gamma=2.0, strategy=WorkingSet(selection="random"), **how)
    job = submit(estimator, place, "job")
    monkeypatch.chdir("/")
    assert job.wait(timeout=120) is Status.DONE
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


def test_an_abort_is_heard_and_a_resume_changes_no_bit(data, tmp_path):
    """abort from another handle ends the thread's job with a usable model; the resumed one equals
    one never aborted."""
    job = jobs.submit(LONG, data, str(tmp_path / "job"))
    wait_for(lambda: len(job.state().history) >= 2)
    with pytest.raises(LeaseError, match="in use by"):
        job.resume()
    with pytest.raises(LeaseError, match="in use by"):
        jobs.submit(LONG, data, str(tmp_path / "job"), overwrite=True)
    with pytest.raises(TimeoutError, match="still running"):
        job.wait(timeout=0.1)
    assert open_job(tmp_path / "job").abort("flat enough") is Status.ABORTING
    assert job.wait(timeout=120) is Status.ABORTED
    assert kinds(job) == ["running", "aborted"]
    state = job.state()
    reached = len(job.state().history)
    assert state.reason == "flat enough"
    assert job.model().n_vectors == state.history[-1]["vectors"]
    assert job.abort() is Status.ABORTED
    limit = reached + 2
    assert job.resume(max_rounds=limit).wait(timeout=120) is Status.DONE
    whole = jobs.fit(data, str(tmp_path / "whole"), Request(**{**vars(LONG), "max_rounds": limit}))
    assert job.model().digest() == whole.model.digest()


def test_an_abort_of_a_job_that_nobody_has_begun(data, tmp_path):
    """Queued, then aborted at once, without a model; it can be resumed."""
    from partirvm.jobs.request import create

    create(data, str(tmp_path / "job"), ASKED, None, False)
    job = open_job(tmp_path / "job")
    assert job.status() is Status.QUEUED
    assert job.progress()["seconds"] is None
    assert job.abort() is Status.ABORTED
    assert jobs.run_job(str(tmp_path / "job")) is None, "whoever comes late finds it ended"
    with pytest.raises(MissingDataError, match="no model yet"):
        job.model()
    assert job.resume().wait(timeout=120) is Status.DONE


@pytest.mark.parametrize("what", ["abort", "cancel"])
def test_the_end_is_heard_while_a_job_is_planned(data, tmp_path, monkeypatch, what):
    """In the fit that measures the partition size: nothing is planned or fitted any more, and a
    resume begins anew."""
    from partirvm.jobs import attempt, request
    from partirvm.resolve import small_fits

    monkeypatch.setattr(attempt, "POLL_SECONDS", 0.0)
    request.create(
        data,
        str(tmp_path / "job"),
        Request(**{**vars(ASKED), "partition_size": "auto"}),
        None,
        False,
    )
    job = open_job(tmp_path / "job")

    sparseness = small_fits.sparseness

    def overheard(*arguments):
        job.store.request(what, 1, "too slow")
        return sparseness(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(small_fits, "sparseness", overheard)
        found = jobs.run_job(job.location)
    assert (found.model, found.plan, found.reason) == (None, None, Termination.ABORTED)
    end = {"abort": Status.ABORTED, "cancel": Status.CANCELLED}[what]
    assert kinds(job) == ["running", end.value]
    assert [event for event in job.store.events() if event["event"] in ("plan", "fit")] == []
    assert (job.status(), job.state().reason) == (end, "too slow")
    if what == "abort":
        assert job.resume().wait(timeout=120) is Status.DONE


def test_a_job_that_cannot_be_begun_says_so_at_once(data, tmp_path, monkeypatch):
    """Its lease is taken before ``submit`` returns; the job is queued."""

    def full(self, **options):
        raise StorageError("no space left")

    with monkeypatch.context() as patched:
        patched.setattr(JobStore, "acquire", full)
        with pytest.raises(StorageError, match="no space left"):
            submit(
                RVMRegressor(
                    gamma=2.0, partition_size=30, max_rounds=1, noise="constant", residual="none"
                ),
                data,
                tmp_path / "job",
            )
    job = open_job(tmp_path / "job")
    assert job.status() is Status.QUEUED
    assert job.resume().wait(timeout=120) is Status.DONE


def test_a_queued_job_keeps_what_a_resume_changes(data, tmp_path):
    """A driver that never came is replaced, and the new limit holds; the old one comes too late."""
    from partirvm.jobs.request import create

    create(data, str(tmp_path / "job"), ASKED, None, False)
    job = open_job(tmp_path / "job")
    state = job.requeue(max_rounds=2)
    assert state.attempt == 2
    assert jobs.run_job(str(tmp_path / "job"), attempt=1) is None
    assert len(jobs.run_job(str(tmp_path / "job"), attempt=2).history) == 2
    assert kinds(job) == ["queued", "running", "done"]


def test_a_cancelled_job_is_over_for_good(data, tmp_path):
    """Running or aborted: its models and checkpoints go, its events stay."""
    job = jobs.submit(LONG, data, str(tmp_path / "job"))
    wait_for(lambda: len(job.state().history) >= 2)
    assert job.cancel("wrong target") is Status.ABORTING
    assert job.wait(timeout=120) is Status.CANCELLED
    aborted = broken_off(data, str(tmp_path / "other"), LONG)
    aborted.abort()
    assert aborted.cancel() is Status.CANCELLED
    assert aborted.cancel() is Status.CANCELLED
    for each in (job, aborted):
        with pytest.raises(UsageError, match="cancelled"):
            each.resume()
        with pytest.raises(MissingDataError, match="its model discarded"):
            load_model(each.location)
        assert each.abort() is Status.CANCELLED
        assert len(each.state().history) >= 1
    assert job.state().reason == "wrong target"


@pytest.mark.filterwarnings("ignore::partirvm.errors.NoiseFloorWarning")
def test_a_done_job_cannot_be_cancelled_or_resumed_for_nothing(data, tmp_path):
    """UsageError that says what would have to change."""
    jobs.fit(data, str(tmp_path / "job"), ASKED)
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
    assert kinds(job) == ["running", "done"]
    few = ingest((X := np.linspace(-2, 2, 60)[:, None], np.sin(X[:, 0])), tmp_path / "few.zarr").url
    jobs.fit(
        few, str(tmp_path / "basic"), Request(gamma=1.0, strategy="basic", partition_size="auto")
    )
    with pytest.raises(UsageError, match="would change nothing"):
        open_job(tmp_path / "basic").resume(max_rounds=99)


def test_a_job_out_of_time_gets_more(data, tmp_path):
    """Done by its time limit: a resume counts it anew."""
    jobs.fit(data, str(tmp_path / "job"), Request(**{**vars(ASKED), "time_limit": 1e-6}))
    job = open_job(tmp_path / "job")
    assert job.state().reason == "time"
    assert job.resume(time_limit="1h").wait(timeout=120) is Status.DONE
    assert job.state().reason == "rounds"
    whole = jobs.fit(data, str(tmp_path / "whole"), ASKED)
    assert job.model().digest() == whole.model.digest()


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
def test_what_an_error_makes_of_a_job(data, tmp_path, monkeypatch, part, error, status, reason):
    """An error of the program fails it, a cluster that breaks down interrupts; the cause gone, a
    resume goes on."""
    job = broken_off(data, str(tmp_path / "job"), ASKED)

    def fault(*_):
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(f"partirvm.{part}", fault)
        assert job.resume().wait(timeout=120) is status
    assert job.state().reason == reason
    assert status is Status.INTERRUPTED or "in fault" in job.store.events()[-1]["traceback"]
    assert job.abort() in (Status.FAILED, Status.ABORTED)
    assert job.resume().wait(timeout=120) is Status.DONE


def own_job(tmp_path):
    """600 rows, and a job of them that broke off."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(600, 2))
    rows = X, np.sin(X[:, 0]) + 0.1 * rng.normal(size=600)
    data = ingest(rows, tmp_path / "rows.zarr", tile_rows=128, shuffle=None).url
    return rows, broken_off(data, str(tmp_path / "job"), ASKED)


@pytest.mark.parametrize("what", ["values", "rows"])
def test_a_resume_on_other_data_says_what_differs(tmp_path, what):
    """ChangedDataError with what differs; the job stays as it was, whoever notices it."""
    (X, y), job = own_job(tmp_path)
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
def test_data_that_moved_are_given_again(tmp_path):
    """Held to the fingerprint; the job remembers the new place, and an update finds new rows
    there."""
    rows, job = own_job(tmp_path)
    before = tmp_path / "rows.zarr"
    now = tmp_path / "elsewhere" / "rows.zarr"
    now.parent.mkdir()
    before.rename(now)
    stood = job.state()
    events = len(job.store.events())
    with pytest.raises(MissingDataError, match=r"rows\.zarr"):
        job.resume()
    other = ingest((rows[0], rows[1] + 1), tmp_path / "other.zarr", tile_rows=128, shuffle=None).url
    with pytest.raises(ChangedDataError, match="values, names, categories"):
        job.resume(data=other)
    assert job.state() == stood, "the job is as it was"
    assert len(job.store.events()) == events
    assert job.resume(data=now).wait(timeout=60) is Status.DONE
    assert job.asked()["data"] == str(now)
    assert job.store.spec()["data"] == str(before)
    now.rename(before)
    ingest((rows[0][:50] + 0.1, rows[1][:50]), before, append=True)
    assert job.update(data=before, max_rounds=1).wait(timeout=60) is Status.DONE
    assert job.asked()["data"] == str(before)
