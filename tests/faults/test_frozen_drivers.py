"""SIGSTOP of the process that carries a job out, beyond its lease: who wakes up late cannot publish any more."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
from fault_cases import (
    QUICK,
    assert_one_round_repeated,
    assert_same_end,
    bits,
    carry,
    count_lines,
    overwrite,
    queued,
    wait_for,
)

from partirvm.errors import LeaseLostError
from partirvm.jobs.state import Status
from partirvm.jobs.store import JobStore
from partirvm.storage import open_folder
from partirvm.storage.lease import EXPIRY, Timing
from partirvm.storage.snapshots import Snapshots


def freeze(breeder, store, after, later, quick=True):
    """A process that was at work on a job, stopped some seconds after so many lines of history."""
    child = breeder.call(carry, job=store.location, quick=quick)
    wait_for(lambda: (store.holder() is not None and count_lines(store.location) >= after) or child.gone)
    time.sleep(later)
    assert child.kill(signal.SIGSTOP), "the run ended before it was stopped"
    return child


def wake(child):
    """Let it go on; what it ended with."""
    child.kill(signal.SIGCONT)
    error, message = child.error()
    assert error == "LeaseLostError", message
    # the second where the process looks while the folder is being made anew
    assert "was taken over" in message or "was replaced" in message


@pytest.mark.parametrize(("after", "later"), [(0, 0.05), (1, 0.0), (2, 0.1), (4, 0.02)])
def test_who_wakes_after_the_job_is_done_changes_nothing(breeder, data, undisturbed, tmp_path, after, later):
    """Stopped, its lease expired, done elsewhere, woken: LeaseLostError there, and the end is the undisturbed one."""
    store = queued(data, tmp_path / "job", "working-set")
    frozen = freeze(breeder, store, after, later)
    time.sleep(QUICK.expiry + 0.2)
    assert not frozen.gone
    breeder.call(carry, job=store.location, quick=True).end()
    assert_same_end(store, undisturbed["working-set"])
    events, model = store.events(), bits(store.model())
    wake(frozen)
    assert store.events() == events
    assert bits(store.model()) == model
    assert_same_end(store, undisturbed["working-set"])
    assert_one_round_repeated(events)


def test_who_wakes_while_another_is_at_work(breeder, data, undisturbed, tmp_path):
    """The two run side by side for a moment: what the old one writes does not count, and nobody is disturbed by it."""
    store = queued(data, tmp_path / "job", "incremental")
    frozen = freeze(breeder, store, 2, 0.1)
    had = count_lines(store.location)
    other = breeder.call(carry, job=store.location, quick=True)
    wait_for(lambda: count_lines(store.location) > had or other.gone)
    assert not other.gone, "it ended before the old one woke"
    wake(frozen)
    other.end()
    assert_same_end(store, undisturbed["incremental"])
    assert [event["event"] for event in store.events()].count("failed") == 0
    assert_one_round_repeated(store.events())


def everything(place):
    """Every file below a folder, with its bytes, but for the signs of life."""
    files = (path for path in Path(place).rglob("*") if path.is_file() and ".beat" not in path.name)
    return {str(path): path.read_bytes() for path in files}


@pytest.mark.parametrize(
    ("after", "later"),
    [
        pytest.param(0, 0.05, marks=pytest.mark.slow),
        pytest.param(1, 0.0, marks=pytest.mark.slow),
        (2, 0.1),
    ],
)
def test_who_wakes_after_the_job_was_overwritten_writes_nothing(breeder, data, undisturbed, tmp_path, after, later):
    """Another fit stands in the place of the frozen one: LeaseLostError there, and all files are those of the new."""
    store = queued(data, tmp_path / "job", "incremental")
    frozen = freeze(breeder, store, after, later)
    time.sleep(QUICK.expiry + 0.2)
    old = {path.name for path in (tmp_path / "job" / "lease").iterdir()}
    breeder.call(overwrite, data=data, job=store.location, case="working-set").end()
    files = everything(tmp_path)
    assert not frozen.gone
    wake(frozen)
    assert everything(tmp_path) == files
    assert not old & {path.name for path in (tmp_path / "job" / "lease").iterdir()}, "epochs go on"
    assert_same_end(JobStore(store.location), undisturbed["working-set"])
    assert {event["epoch"] for event in store.events()} == {store.holder().epoch}


def test_who_wakes_while_the_job_is_overwritten(breeder, data, undisturbed, tmp_path):
    """The two run side by side for a moment: model, events and checkpoints of the new job are its own."""
    store = queued(data, tmp_path / "job", "incremental")
    frozen = freeze(breeder, store, 2, 0.1)
    time.sleep(QUICK.expiry + 0.2)
    other = breeder.call(overwrite, data=data, job=store.location, case="working-set")
    wait_for(lambda: (store.holder() and store.holder().process.pid == other.pid and store.has_model()) or other.gone)
    assert not other.gone, "it ended before the old one woke"
    wake(frozen)
    other.end()
    assert_same_end(JobStore(store.location), undisturbed["working-set"])
    epoch = store.holder().epoch
    assert {event["epoch"] for event in store.events()} == {epoch}
    for row in ("models", "checkpoints"):
        assert {name[:6] for name in open_folder(store.location).list(row)} == {f"{epoch:06d}"}


def test_who_loses_the_lease_in_the_middle_of_a_model_is_told_so(tmp_path):
    """Another process clears away what is half written: LeaseLostError, not that there is no such file."""
    place = tmp_path / "job"
    one, other = JobStore.create(place, {}), JobStore(place)
    lease = one.acquire(timing=Timing(beat=60, expiry=0.3))

    def write(group):
        other.acquire(timing=Timing(beat=0.1, expiry=0.3), patience=2)
        raise FileNotFoundError(2, "No such file or directory", group)

    with pytest.raises(LeaseLostError, match="was taken over"):
        Snapshots(open_folder(str(place)), "models").publish(write, lease=lease)
    other.lease.release()
    lease.release()


@pytest.mark.slow
def test_the_real_lease_expires(breeder, data, undisturbed, tmp_path):
    """With the timing that users have: taken over after 15 s of silence, not before."""
    store = queued(data, tmp_path / "job", "working-set")
    frozen = freeze(breeder, store, 2, 0.0, quick=False)
    silent = time.time() - store.holder().seen
    began = time.monotonic()
    assert store.state().status is Status.RUNNING
    other = breeder.call(carry, job=store.location)
    wait_for(lambda: store.holder().process.pid == other.pid)
    waited = time.monotonic() - began
    assert EXPIRY - silent - 1 < waited < 2 * EXPIRY
    other.end()
    wake(frozen)
    assert_same_end(store, undisturbed["working-set"])
