"""What every job store does: on a local disk, and in ``memory://``."""

from __future__ import annotations

import fsspec
import numpy as np
import pytest
from journals import REQUEST
from reference import model, written

from partirvm.errors import ExistsError, LeaseError, LeaseLostError, MissingDataError, StorageError
from partirvm.jobs.store import JobStore
from partirvm.storage import address, open_folder
from partirvm.storage.lease import Lease
from partirvm.storage.records import to_json


def kinds(events):
    """What happened, in a word each."""
    return [event["event"] for event in events]


@pytest.mark.parametrize("how", ["a part", "the head", "a part is gone"])
def test_a_damaged_last_checkpoint_gives_way_to_the_one_before(tmp_path, how):
    """And says so; if that is damaged too, MissingDataError."""
    store = written(tmp_path / "job")
    for number in range(4):
        store.checkpoint({"big": np.full(20_000, float(number)), "small": np.arange(3)})
    groups = sorted(path for path in (tmp_path / "job" / "checkpoints").iterdir() if path.is_dir())
    assert len(groups) == 3

    def harm(group):
        if how == "a part is gone":
            (group / "000000").unlink()
            return
        path = group / {"a part": "000000", "the head": "group.json"}[how]
        data = bytearray(path.read_bytes())
        data[100] ^= 1
        path.write_bytes(bytes(data))

    harm(groups[2])
    assert store.restore()["big"][0] == 2.0
    assert store.restore(lambda value: value["big"][0] < 2)["big"][0] == 1.0
    harm(groups[0])
    harm(groups[1])
    with pytest.raises(MissingDataError, match="no checkpoint can be read"):
        store.restore()


def test_cells_that_no_model_has_are_removed(tmp_path):
    """After an error, and by a model that was saved without them."""
    store = written(tmp_path / "job")
    with pytest.raises(ZeroDivisionError):
        store.keep_cells(lambda place: store.folder.write("cells/000001-000001/a", b"") or 1 / 0)
    store.keep_cells(lambda place: store.folder.write("cells/000001-000002/a", b""))
    assert store.folder.list("cells") == ["000001-000002"]
    store.save(model(1))
    assert store.folder.list("cells") == []


def test_a_store_without_exclusive_create_is_refused(tmp_path, monkeypatch):
    """StorageError, and no claim is left; fsspec's own way, which looks first, is refused without a trial."""
    from fsspec.implementations.local import LocalFileSystem
    from fsspec.implementations.memory import MemoryFileSystem

    class Imitation(LocalFileSystem):
        protocol = "imitation"

    fsspec.register_implementation("imitation", Imitation, clobber=True)
    from partirvm.storage import Folder

    folder = Folder("imitation://job", str(tmp_path / "job"), Imitation())
    (tmp_path / "job").mkdir()
    folder.create("one", b"1")
    with pytest.raises(StorageError, match=r"Imitation cannot create an object exclusively.*local disk"):
        folder.require_exclusive("one")

    class Careless(MemoryFileSystem):
        """Takes the mode and does not care."""

        protocol = "careless"
        store: dict = {}  # noqa: RUF012

        def pipe_file(self, path, value, mode="overwrite", **kwargs):
            super().pipe_file(path, value, mode="overwrite")

    fsspec.register_implementation("careless", Careless, clobber=True)
    monkeypatch.setattr(address, "allowed", {"file", "careless"})
    with pytest.raises(StorageError, match="Careless cannot create"):
        JobStore.create("careless://job", REQUEST).acquire()
    assert not Careless().exists("/job/lease/000001.json")


def test_who_may_write(place):
    """The holder of the lease alone, until another one has it; nobody makes a job over one."""
    one, two = JobStore.create(place, REQUEST | {"run": 1}), JobStore(place)
    writes = {
        "event": lambda store: store.record({"event": "note"}),
        "model": lambda store: store.save(model(1)),
        "checkpoint": lambda store: store.checkpoint({"n": 1}),
    }
    with pytest.raises(ExistsError, match="replace a job with --overwrite"):
        JobStore.create(place, REQUEST)
    with one.acquire():
        for write in writes.values():
            write(one)
            with pytest.raises(LeaseError, match="call acquire first"):
                write(two)
        for overwrite in (two.acquire, lambda: JobStore.create(place, REQUEST, overwrite=True)):
            with pytest.raises(LeaseError, match="in use by"):
                overwrite()
    with two.acquire():
        for write in writes.values():
            write(two)
            with pytest.raises(LeaseLostError, match="was taken over"):
                write(one)
    for attempt, what in ((1, "abort"), (1, "cancel"), (2, "abort")):
        assert one.requested(attempt) != (what, "why")
        two.request(what, attempt, "why")
        assert one.requested(attempt) == (what, "why")
    assert kinds(two.events()) == ["note", "checkpoint"] * 2
    assert (two.spec()["run"], two.restore()) == (1, {"n": 1})


def test_a_folder_of_hidden_names_is_not_empty(tmp_path):
    """A job is never made over somebody's .git; what is there stays."""
    (tmp_path / "project" / ".git").mkdir(parents=True)
    (tmp_path / "project" / ".git" / "HEAD").write_text("ref")
    for overwrite in (False, True):
        with pytest.raises(ExistsError):
            JobStore.create(str(tmp_path / "project"), REQUEST, overwrite=overwrite)
    assert (tmp_path / "project" / ".git" / "HEAD").read_text() == "ref"


@pytest.mark.parametrize("models", [0, 1])
def test_what_an_overwritten_jobs_driver_still_writes_is_void(place, models):
    """The new job goes on with the epochs: an object of the old driver, wherever it was stopped, does not count."""
    old = JobStore.create(place, REQUEST | {"run": 1})
    frozen = old.acquire()
    for number in range(models):
        old.save(model(number))
        old.record({"event": "note"})
    open_folder(place).write("lease/000001.over.json", b"{}")  # others take it for gone, itself it does not know
    new = JobStore.create(place, REQUEST | {"run": 2}, overwrite=True)
    new.acquire()
    assert (new.lease.epoch, new.events(), new.has_model()) == (3, [], False)
    folder = open_folder(place)
    event = {"event": "failed", "time": 0, "epoch": 1, "token": "t", "model": "models/1", "checkpoint": "checkpoints/1"}
    folder.create("events/000001.json", to_json("events/000001.json", event))
    new.record({"event": "queued"})
    assert kinds(JobStore(place).events()) == ["queued"]
    assert JobStore(place).spec()["run"] == 2
    assert not new.has_model()
    assert new.restore() is None
    for write in (lambda: old.record({"event": "done"}), lambda: old.save(model(5)), lambda: old.checkpoint({"n": 5})):
        with pytest.raises(LeaseLostError, match="was taken over"):
            write()
    new.lease.check()
    new.save(model(7))
    new.record({"event": "note"})
    assert (JobStore(place).model().mean == model(7).mean).all()
    new.lease.release()
    frozen.release()


@pytest.mark.parametrize("after", range(5))
def test_who_wakes_while_it_overwrites_removes_nothing_of_a_newer_job(place, monkeypatch, after):
    """Frozen before any of its removals: another process has overwritten the job too, with the same names."""
    old = written(place, REQUEST | {"run": 1})
    old.save(model(1))
    for _ in range(3):
        old.record({"event": "note"})
    old.lease.release()
    check, left, newer = Lease.check, iter(range(99)), []

    def frozen(lease):
        if not newer and lease.epoch == 2 and next(left) == after:
            open_folder(place).write("lease/000002.over.json", b"{}")  # others take it for gone
            newer.append(JobStore.create(place, REQUEST | {"run": 3}, overwrite=True))
            newer[0].acquire()
            newer[0].save(model(3))
            newer[0].record({"event": "queued"})
        check(lease)

    monkeypatch.setattr(Lease, "check", frozen)
    with pytest.raises(LeaseLostError, match="was taken over"):
        JobStore.create(place, REQUEST | {"run": 2}, overwrite=True)
    assert JobStore(place).spec()["run"] == 3
    assert kinds(JobStore(place).events()) == ["queued"]
    assert (JobStore(place).model().mean == model(3).mean).all()
    newer[0].lease.release()
