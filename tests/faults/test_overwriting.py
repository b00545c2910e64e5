"""kill −9 of a process that overwrites a job, before each of its actions on the folder."""

import sys
from pathlib import Path

from fault_processes import overwrite_until
from journals import REQUEST

from partirvm.jobs import JobStore, Status
from partirvm.storage import open_folder

sys.path.append(str(Path(__file__).parents[1] / "jobs"))

from reference import model, written


def old_job(place):
    store = written(place, REQUEST | {"run": 1})
    store.save(model(1))
    store.record({"event": "note"})
    store.lease.release()


def test_a_kill_leaves_the_old_job_or_the_new_one(forker, tmp_path):
    """There may also be only the old request, or no job; the folder can be overwritten again."""
    old_job(tmp_path / "all")
    things = forker.call(overwrite_until, job=str(tmp_path / "all"), things=0).end()
    assert things > 8
    outcomes = []
    for number in range(1, things + 1):
        place = tmp_path / f"job-{number}"
        old_job(place)
        child = forker.call(overwrite_until, job=str(place), things=number)
        child.wait()
        assert not child.out.exists(), child.out.read_text()
        store = JobStore(place)
        outcomes.append((store.spec()["run"] if store.exists() else 1.5, store.has_model()))
        if store.exists():
            assert store.state().status in {Status.QUEUED, Status.INTERRUPTED}
        if outcomes[-1] == (1, True):
            assert store.model().digest() == model(1).digest()
            assert [event["event"] for event in store.events()] == ["note"]
        elif outcomes[-1] == (2, True):
            assert store.model().digest() == model(2).digest()
        again = JobStore.create(place, REQUEST | {"run": 3}, overwrite=True)
        again.acquire()
        again.save(model(3))
        again.record({"event": "note"})
        again.lease.release()
        assert JobStore(place).model().digest() == model(3).digest()
        assert open_folder(str(place)).list() == ["events", "lease", "models", "spec.json"]
    assert [run for run, _ in outcomes] == sorted(run for run, _ in outcomes)
    assert set(outcomes) == {(1, True), (1, False), (1.5, False), (2, False), (2, True)}
