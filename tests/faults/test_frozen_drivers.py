"""Several drivers of one job: some are frozen beyond their lease, many start at once."""

import signal
from pathlib import Path

import pytest
from fault_cases import assert_one_round_repeated, assert_same_end, queued
from fault_processes import carry, compete_once
from journals import REQUEST
from waiting import stopped, wait_for

from partirvm.errors import LeaseLostError
from partirvm.jobs import JobStore
from partirvm.storage import LeaseTimes


def freeze(forker, store, after, things):
    """Return a process that stopped itself at an action (``Halting``) after a number of history
    lines."""
    child = forker.call(carry, job=store.location, quick=True, halt=[after, things, signal.SIGSTOP])
    wait_for(lambda: child.gone or stopped(child.pid), "the stop")
    assert not child.gone, "the run ended before it was stopped"
    return child


def wake(child, gate=None):
    """Let the process continue, and another one that waits at a gate; check its error."""
    child.kill(signal.SIGCONT)
    if gate is not None:
        gate.touch()
    error, message = child.error()
    assert error == "LeaseLostError", message
    assert "was taken over or replaced" in message


@pytest.mark.slow
def test_writes_of_a_driver_that_lost_its_lease_are_ignored(forker, data, undisturbed, tmp_path):
    """It continues while another driver is working, without disturbing it."""
    store = queued(data, tmp_path / "job", "incremental")
    frozen = freeze(forker, store, 2, 40)
    gate = tmp_path / "gate"
    other = forker.call(carry, job=store.location, quick=True, wait=[3, str(gate)])
    wait_for(lambda: Path(f"{gate}.here").exists() or other.gone)
    assert not other.gone
    wake(frozen, gate)
    other.end()
    assert_same_end(store, undisturbed["incremental"])
    assert [event["event"] for event in store.events()].count("failed") == 0
    assert_one_round_repeated(store.events())


def test_losing_the_lease_during_a_save_raises_a_lease_error(tmp_path):
    """Another process removes the half-written files; there is no FileNotFoundError."""
    place = tmp_path / "job"
    times = LeaseTimes(beat=60, expiry=0.3)
    one = JobStore.create(place, REQUEST, times=times)
    other = JobStore(place, times)
    lease = one.acquire()

    def write(group, about):
        other.acquire(patience=2)
        raise FileNotFoundError(2, "No such file or directory", group)

    with pytest.raises(LeaseLostError, match="was taken over"):
        one._write("model", write)
    other.lease.release()
    lease.release()


@pytest.mark.slow
def test_only_one_of_many_drivers_runs_the_job(forker, data, undisturbed, tmp_path):
    """Four start at the same moment; the others raise a LeaseError, and nothing is written
    twice."""
    store = queued(data, tmp_path / "job", "working-set")
    children = [
        forker.call(compete_once, job=store.location, folder=str(tmp_path), others=3)
        for _ in range(4)
    ]
    ends = [child.result() for child in children]
    reasons = [end["value"] for end in ends if "value" in end]
    assert reasons == [undisturbed["working-set"].state().reason]
    assert [end["error"] for end in ends if "error" in end] == ["LeaseError"] * 3
    assert_same_end(store, undisturbed["working-set"])
    assert [event["event"] for event in store.events()].count("running") == 1
