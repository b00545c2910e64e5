"""Additional, missing and exchanged files in a job: a named error at once, or no change.

Each kind of damage is tried with every reader of a finished job, which must return within 30 s.
"""

import shutil
from pathlib import Path

import numpy as np
import pytest
from journals import REQUEST
from reference import model

from partirvm.cli import main
from partirvm.errors import PartirvmError
from partirvm.jobs import JobStore
from partirvm.storage import Folder

pytestmark = pytest.mark.timeout(30)


def finished(place, seed=0):
    """Return a finished job of two epochs, with two models and a request to abort."""
    store = JobStore.create(place, REQUEST)
    with store.acquire():
        store.record({"event": "note"})
        store.record({"event": "running", "history": 0})
        store.save(model(seed))
        store.checkpoint({"n": seed})
    store.request("abort", 1, "enough")
    with store.acquire():
        store.record({"event": "note"})
        store.record({"event": "running", "history": 0})
        store.save(model(seed + 1))
        store.record({"event": "done", "reason": "converged"})
    return store


def observed(store):
    """Return what a job's readers see."""
    state = store.state()
    holder = store.holder()
    assert holder is not None
    return (
        state,
        store.spec(),
        holder.epoch,
        np.asarray(store.model().mean).tobytes(),
        store.restore(),
    )


def copy(source, target):
    return lambda job, other: shutil.copyfile(job / source, job / target)


def from_other(name):
    return lambda job, other: shutil.copyfile(other / name, job / name)


def write(name, data):
    return lambda job, other: (job / name).write_bytes(data)


def swap(one, two):
    def swapped(job, other):
        (job / one).rename(job / "aside")
        (job / two).rename(job / one)
        (job / "aside").rename(job / two)

    return swapped


LOUD = {
    "an event far behind": copy("events/000002.json", "events/999999999999.json"),
    "garbage far behind": write("events/999999999999.json", b"?"),
    "a claim far behind": write("lease/999999999999.json", b""),
    "a claim between is missing": lambda job, other: (job / "lease" / "000002.json").rename(
        job / "lease/000004.json"
    ),
    "garbage as the last event": write("events/000005.json", b"\x00\x01 garbage"),
    "garbage behind the last event": write("events/000006.json", b"garbage"),
    "zeros behind the last event": write("events/000006.json", bytes(300)),
    "a claim as an event": copy("lease/000001.json", "events/000006.json"),
    "an event again": copy("events/000005.json", "events/000006.json"),
    "two events swapped": swap("events/000002.json", "events/000004.json"),
    "two claims swapped": swap("lease/000001.json", "lease/000002.json"),
    "an event as a claim": copy("events/000001.json", "lease/000003.json"),
    "garbage as a claim": write("lease/000003.json", b"garbage"),
    "an event as the request": copy("events/000001.json", "spec.json"),
    "the first event of another job": from_other("events/000001.json"),
    "an event of another job": from_other("events/000002.json"),
    "a claim of another job": from_other("lease/000001.json"),
    "the last claim of another job": from_other("lease/000002.json"),
    "an event between is missing": lambda job, other: (job / "events" / "000002.json").unlink(),
    **{
        f"an event between is {data!r}": write("events/000002.json", data)
        for data in (b"", b"{", b"3", b"{}")
    },
    "the last claim is cut": lambda job, other: cut(job / "lease" / "000002.json"),
}

QUIET = {
    "an event of no kind of name": copy("events/000002.json", "events/000006.json.bak"),
    "a number with one zero more": copy("events/000002.json", "events/0000006.json"),
    "a model as a request to abort": copy(
        "models/000002-000002/group.json", "control/abort-000001.json"
    ),
    "a hidden file of NFS": write("events/.nfs00000000001", b"removed, but open elsewhere"),
    "a heartbeat that is an event": copy("events/000002.json", "lease/000002.beat.json"),
}


def cut(path):
    path.write_bytes(path.read_bytes()[:-3])


@pytest.fixture(scope="module")
def two_jobs(tmp_path_factory):
    """Return two finished jobs."""
    folder = tmp_path_factory.mktemp("two_jobs")
    finished(folder / "other", 5)
    finished(folder / "job")
    return folder


@pytest.fixture
def job(two_jobs, tmp_path):
    """Return copies of both jobs."""
    shutil.copytree(two_jobs, tmp_path, dirs_exist_ok=True)
    return JobStore(tmp_path / "job")


@pytest.mark.parametrize("damage", LOUD)
def test_a_damaged_job_is_named_in_an_error(job, tmp_path, damage):
    """Commands that read the job end with status 2."""
    LOUD[damage](tmp_path / "job", tmp_path / "other")
    with pytest.raises(PartirvmError, match=str(tmp_path / "job")):
        observed(JobStore(job.location))
    assert main(["status", job.location]) == 2
    assert main(["jobs", str(tmp_path)]) == 0


@pytest.mark.parametrize("damage", QUIET)
def test_files_with_other_names_change_nothing(job, tmp_path, damage):
    before = observed(job)
    QUIET[damage](tmp_path / "job", tmp_path / "other")
    assert repr(observed(JobStore(job.location))) == repr(before)


def test_a_writer_continues_after_events_missing_from_a_listing(job):
    one = job
    two = JobStore(job.location)
    with one.acquire() as held:
        one.record({"event": "note", "n": 1})
        hidden = sorted((Path(job.location) / "events").iterdir())[-1].name

        class Lagging(Folder):
            def list(self, name="", **options):
                return [entry for entry in super().list(name, **options) if entry != hidden]

        complete = two.folder
        two.folder = Lagging(two.location, two.location)
        assert [event["event"] for event in two.events()][-1] == "done"
        two.lease = held
        two.record({"event": "note", "n": 2})
        two.folder = complete
        assert [event["n"] for event in two.events()[-2:]] == [1, 2]
