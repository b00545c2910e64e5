"""Several drivers of one job: SIGSTOP beyond a lease, whose owner cannot publish when it wakes, and
many at once."""

import signal
from pathlib import Path

import pytest
from fault_cases import assert_one_round_repeated, assert_same_end, queued
from fault_processes import carry, compete_once
from journals import REQUEST
from waiting import stopped, wait_for

from partirvm.errors import LeaseLostError
from partirvm.jobs.store import JobStore


def freeze(breeder, store, after, things):
    """A process that stopped itself at work on a job, so many things (``Halting``) after as many
    lines of history."""
    child = breeder.call(
        carry, job=store.location, quick=True, halt=[after, things, signal.SIGSTOP]
    )
    wait_for(lambda: child.gone or stopped(child.pid), "the stop")
    assert not child.gone, "the run ended before it was stopped"
    return child


def wake(child, gate=None):
    """Let it go on, and another one with it that waits at a gate; what it ended with."""
    child.kill(signal.SIGCONT)
    if gate is not None:
        gate.touch()
    error, message = child.error()
    assert error == "LeaseLostError", message
    # the second where the process looks while the folder is being made anew
    assert "was taken over or replaced" in message


@pytest.mark.slow
def test_who_wakes_while_another_is_at_work(breeder, data, undisturbed, tmp_path):
    """The two run side by side for a moment: what the old one writes does not count, and nobody is
    disturbed by it."""
    store = queued(data, tmp_path / "job", "incremental")
    frozen = freeze(breeder, store, 2, 40)
    gate = tmp_path / "gate"
    other = breeder.call(carry, job=store.location, quick=True, wait=[3, str(gate)])
    wait_for(lambda: Path(f"{gate}.here").exists() or other.gone)
    assert not other.gone
    wake(frozen, gate)
    other.end()
    assert_same_end(store, undisturbed["incremental"])
    assert [event["event"] for event in store.events()].count("failed") == 0
    assert_one_round_repeated(store.events())


def test_who_loses_the_lease_in_the_middle_of_a_model_is_told_so(tmp_path, monkeypatch):
    """Another process clears away what is half written: LeaseLostError, not that there is no such
    file."""
    place = tmp_path / "job"
    one = JobStore.create(place, REQUEST)
    other = JobStore(place)
    monkeypatch.setattr("partirvm.storage.lease.BEAT", 60)
    monkeypatch.setattr("partirvm.storage.lease.EXPIRY", 0.3)
    lease = one.acquire()

    def write(group, about):
        other.acquire(patience=2)
        raise FileNotFoundError(2, "No such file or directory", group)

    with pytest.raises(LeaseLostError, match="was taken over"):
        one._write("model", write)
    other.lease.release()
    lease.release()


@pytest.mark.slow
def test_one_of_many_drivers_wins(breeder, data, undisturbed, tmp_path):
    """Four start at the same moment: one carries the job out, the others hear LeaseError; nothing
    is written twice."""
    store = queued(data, tmp_path / "job", "working-set")
    children = [
        breeder.call(compete_once, job=store.location, folder=str(tmp_path), others=3)
        for _ in range(4)
    ]
    ends = [child.said() for child in children]
    assert [end["value"] for end in ends if "value" in end] == [
        undisturbed["working-set"].state().reason
    ]
    assert [end["error"] for end in ends if "error" in end] == ["LeaseError"] * 3
    assert_same_end(store, undisturbed["working-set"])
    assert [event["event"] for event in store.events()].count("running") == 1
