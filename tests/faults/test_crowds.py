"""Several drivers at once on one job."""

from __future__ import annotations

from fault_cases import assert_same_end, queued
from fault_processes import compete_once


def test_one_of_many_drivers_wins(breeder, data, undisturbed, tmp_path):
    """Four start at the same moment: one carries the job out, the others hear LeaseError; nothing is written twice."""
    store = queued(data, tmp_path / "job", "working-set")
    children = [breeder.call(compete_once, job=store.location, folder=str(tmp_path), others=3) for _ in range(4)]
    ends = [child.said() for child in children]
    assert [end["value"] for end in ends if "value" in end] == [undisturbed["working-set"].state().reason]
    assert [end["error"] for end in ends if "error" in end] == ["LeaseError"] * 3
    assert_same_end(store, undisturbed["working-set"])
    assert [event["event"] for event in store.events()].count("running") == 1
