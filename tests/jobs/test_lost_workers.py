"""Workers lost by a cluster during a fit: events, status, and advice."""

from concurrent.futures import CancelledError
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
from reference import written
from waiting import Clock

from partirvm import RVMRegressor, ingest, open_job
from partirvm.errors import LeaseError
from partirvm.jobs import Status, advice_of, attempt, create, fold, observed, run_job
from partirvm.jobs.state import lost_workers_of
from partirvm.report.text import followed, status_text
from partirvm.storage import LeaseTimes

SCHEDULER = "tcp://10.0.0.5:8786"


def running(at):
    """Return the event of a driver that begins."""
    return {"event": "running", "time": at, "history": 0}


def losses(at, count):
    """Return the event of lost workers, of which the last was lost two seconds before."""
    return {"event": "workers", "time": at, "lost": count, "last": at - 2.0}


def queued(folder, client=None):
    """Return the place of a queued job of three rows."""
    data = ingest(([[0.0], [1.0], [2.0]], [0.0, 1.0, 2.0]), folder / "rows.zarr")
    create(data.url, str(folder / "job"), RVMRegressor(gamma=1.0).parameters(), None, False, client)
    return str(folder / "job")


@dataclass
class StoppingClient:
    """A client in a worker that is being stopped: its scheduler cannot be asked."""

    status: str
    error: BaseException

    @property
    def scheduler(self):
        raise self.error


def test_many_losses_give_few_events(tmp_path):
    """For 100 workers lost in 100 s, there are events after 1, 61 and 100 of them."""
    clock = Clock()
    store = written(tmp_path / "job", times=LeaseTimes(clock=clock))
    executor = SimpleNamespace(lost_workers=(0, 0.0))
    with attempt._recorded_losses(store, executor) as record:
        record()
        for number in range(1, 101):
            clock.sleep(1.0)
            executor.lost_workers = number, clock.now
            record()
    events = [event for event in store.events() if event["event"] == "workers"]
    assert [event["lost"] for event in events] == [1, 60, 39]
    assert [event["last"] for event in events] == [clock.now - 99.0, clock.now - 39.0, clock.now]
    store.lease.release()


def test_an_error_is_not_hidden_by_loss_events(tmp_path):
    """This holds even if the lease is lost when the block ends."""
    store = written(tmp_path / "job")
    executor = SimpleNamespace(lost_workers=(1, 0.0))
    store.lease.release()
    store.lease = None
    with pytest.raises(LeaseError):
        store.record({"event": "workers"})
    with pytest.raises(KeyError, match="cause"), attempt._recorded_losses(store, executor):
        raise KeyError("cause")


def test_the_state_counts_losses_and_restarts():
    """Losses in the last attempt are counted: a resume starts from zero."""
    request = {"time": 0.0, "parameters": {}, "scheduler": SCHEDULER}
    events = [running(1.0), losses(5.0, 2), running(6.0), losses(9.0, 3)]
    assert lost_workers_of(fold(events, request)) == {"workers": 5, "last": 7.0, "restarts": 1}
    events += [{"event": "queued", "time": 10.0, "scheduler": "tcp://other:1"}, running(11.0)]
    state = fold(events, request)
    assert lost_workers_of(state) == {"workers": 0, "last": None, "restarts": 0}
    assert state.request["scheduler"] == "tcp://other:1"


@pytest.mark.parametrize("scheduler", ["", SCHEDULER])
def test_the_command_to_resume_is_shown_after_too_many_driver_deaths(scheduler):
    """Dask allows four processes, and the reason gives this count."""
    events = [running(float(at)) for at in range(4)]
    state = observed(fold(events, {"time": 0.0, "scheduler": scheduler}), held=False)
    assert state.status is Status.INTERRUPTED
    assert "4 processes have run it" in state.reason
    command = "partirvm resume 'jobs/run 1'" + (f" --scheduler {scheduler}" if scheduler else "")
    assert f"`{command}`" in advice_of(state, "jobs/run 1")


def test_status_and_follow_have_a_line_about_losses():
    """Each change is shown once."""
    events = [running(0.0), losses(86_402.0, 1)]
    states = [fold(events[:count]) for count in (1, 2, 2)] + [fold([*events, running(86_500.0)])]
    lines = [line for line in followed(states) if "lost" in line]
    assert len(lines) == 2
    assert lines[0].startswith("1 worker lost, the last at 2 Jan 1970")
    assert lines[1] == f"{lines[0]}; the driver was started again 1 time"
    facts = {"job": "jobs/run1", "status": "running", "since": 0.0, "attempt": 1, "reason": ""}
    facts |= {"doing": "", "strategy": None, "advice": "", "n_vectors": None, "train_rmse": None}
    text = status_text({**facts, "lost_workers": lost_workers_of(states[1])})
    assert f"workers         {lines[0]}" in text.splitlines()
    assert "lost" not in status_text({**facts, "lost_workers": lost_workers_of(states[0])})


def test_a_worker_that_stops_early_interrupts_the_job(tmp_path):
    """Its calls are cancelled; the job's message is not empty."""
    job = queued(tmp_path)
    with pytest.raises(CancelledError):
        run_job(job, allow_code=True, client=StoppingClient("running", CancelledError()))
    state = open_job(job).state()
    assert state.status is Status.INTERRUPTED
    assert state.reason == "stopped at once (CancelledError)"


@pytest.mark.parametrize(
    "error", [AttributeError("no broadcast"), UnboundLocalError("result"), KeyError("x")]
)
@pytest.mark.parametrize(
    ("status", "expected"),
    [("closing", "interrupted"), ("closed", "interrupted"), ("running", "failed")],
)
def test_errors_from_a_stopping_worker_do_not_fail_the_job(tmp_path, error, status, expected):
    """Its client may close at any moment, and code that uses it may fail in any way."""
    job = queued(tmp_path)
    with pytest.raises(type(error)):
        run_job(job, allow_code=True, client=StoppingClient(status, error))
    state = open_job(job).state()
    assert state.status.value == expected
    if expected == "interrupted":
        assert state.reason == f"the worker that ran it was stopped ({type(error).__name__})"


def test_a_job_records_the_address_of_its_scheduler(tmp_path):
    """The address is recorded for the request and for each resume."""
    client = SimpleNamespace(scheduler=SimpleNamespace(address=SCHEDULER))
    job = queued(tmp_path, client)
    assert f"partirvm resume {job} --scheduler {SCHEDULER}" in open_job(job).progress()["advice"]
    open_job(job).requeue()
    assert f"`partirvm resume {job}`" in open_job(job).progress()["advice"]
    open_job(job).requeue(client=client)
    assert open_job(job).state().request["scheduler"] == SCHEDULER
