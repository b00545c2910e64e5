"""Two drivers, three watchers and somebody who aborts, at once on one job."""

from __future__ import annotations

from fault_cases import assert_same_end, bits, compete, compete_once, disturb, lines, queued, wait_for, watch

from partirvm.jobs.state import Status, fold

DRIVERS, WATCHERS = 2, 3


def test_one_of_many_drivers_wins(breeder, data, undisturbed, tmp_path):
    """Four start at the same moment: one carries the job out, the others hear LeaseError; nothing is written twice."""
    store = queued(data, tmp_path / "job", "working-set")
    children = [breeder.call(compete_once, job=store.location, folder=str(tmp_path), others=3) for _ in range(4)]
    ends = [child.said() for child in children]
    assert [end["value"] for end in ends if "value" in end] == [undisturbed["working-set"].state().reason]
    assert [end["error"] for end in ends if "error" in end] == ["LeaseError"] * 3
    assert_same_end(store, undisturbed["working-set"])
    assert [event["event"] for event in store.events()].count("running") == 1


def test_no_torn_state_in_a_crowd(breeder, data, undisturbed, tmp_path):
    """Nobody sees an exception or half a state; no two drivers are at work at once; each abort is heard; the end is the
    undisturbed one."""
    store, stop = queued(data, tmp_path / "job", "incremental"), tmp_path / "stop"
    everybody = {"job": store.location, "stop": str(stop)}
    watchers = [breeder.call(watch, **everybody) for _ in range(WATCHERS)]
    others = WATCHERS + DRIVERS - 1 + 1  # who watch, who are refused, and who aborts
    drivers = [breeder.call(compete, **everybody, others=others) for _ in range(DRIVERS)]
    aborter = breeder.call(disturb, **everybody)
    try:
        wait_for(lambda: aborter.gone and store.state().status is Status.DONE)
    finally:
        stop.touch()
    disturbed = aborter.end()
    assert disturbed["asked"] >= 1
    for watcher in watchers:
        seen = watcher.end()
        assert seen[-1] == "done"
        assert "running" in seen
    ends = [end for driver in drivers for end in driver.end()]
    events = store.events()
    kinds = [event["event"] for event in events]
    assert kinds.count("aborted") == ends.count("aborted") >= 1
    assert kinds.count("running") == kinds.count("aborted") + 1
    assert kinds.count("done") == 1
    assert ends.count(undisturbed["incremental"].state().reason) == 1
    assert "LeaseError" in ends
    assert set(ends) <= {"aborted", "LeaseError", "LeaseLostError", undisturbed["incremental"].state().reason, None}
    epochs = [event["epoch"] for event in events if event["event"] in ("running", "fit", "done")]
    assert epochs == sorted(epochs), "who has lost the lease writes nothing more"
    assert len(lines(fold(events))) == len(store.state().history)
    assert bits(store.model()) == bits(undisturbed["incremental"].model())
    assert_same_end(store, undisturbed["incremental"])
