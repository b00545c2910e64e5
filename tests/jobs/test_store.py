"""Behaviour common to all job stores, on a local disk and in ``memory://``."""

import errno
import os
import shutil
import stat
from contextlib import nullcontext
from pathlib import Path

import fsspec
import numpy as np
import pytest
from journals import REQUEST
from processes import running
from reference import model, written

from partirvm import allow_protocols
from partirvm.errors import ExistsError, LeaseError, LeaseLostError, MissingDataError, StorageError
from partirvm.jobs import JobStore
from partirvm.storage import Folder, Lease, open_folder, to_json
from partirvm.storage.folder import flush


def kinds(events):
    """Return the kind of each event."""
    return [event["event"] for event in events]


@pytest.mark.parametrize("how", ["a part", "the head", "a part is gone"])
def test_a_damaged_last_checkpoint_is_replaced_by_the_previous_one(tmp_path, how):
    """If all are damaged, an error reports it."""
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


@pytest.mark.parametrize("number", [1, 2])
def test_a_missing_event_is_noticed_even_if_it_is_the_first(place, number):
    """Events are numbered from 1; leases of a job that overwrites another one are not."""
    store = written(place)
    for _ in range(3):
        store.record({"event": "workers", "lost": 1, "last": 0.0})
    events = store.folder.list("events")
    assert events[0] == "000001.json"
    store.folder.remove(f"events/{number:06d}.json")
    with pytest.raises(MissingDataError, match=rf"events/{number:06d}\.json is missing"):
        store.events()


def test_cells_that_belong_to_no_model_are_removed(tmp_path):
    """This happens after an error, and when a model is saved without them."""
    store = written(tmp_path / "job")
    with pytest.raises(ZeroDivisionError):
        store.keep_cells(lambda place: store.folder.write("cells/000001-000001/a", b"") or 1 / 0)
    store.keep_cells(lambda place: store.folder.write("cells/000001-000002/a", b""))
    assert store.folder.list("cells") == ["000001-000002"]
    store.save(model(1))
    assert store.folder.list("cells") == []


@pytest.mark.usefixtures("separate_addresses")
def test_a_store_without_exclusive_create_is_refused(tmp_path, monkeypatch):
    """No claim is left; fsspec's default, which first checks for existence, is refused without a
    trial."""
    from fsspec.implementations.local import LocalFileSystem
    from fsspec.implementations.memory import MemoryFileSystem

    class Imitation(LocalFileSystem):
        protocol = "imitation"

    fsspec.register_implementation("imitation", Imitation, clobber=True)
    folder = Folder("imitation://job", str(tmp_path / "job"), Imitation())
    (tmp_path / "job").mkdir()
    folder.create("one", b"1")
    with pytest.raises(
        StorageError, match=r"Imitation cannot create an object exclusively.*local disk"
    ):
        folder.require_exclusive("one")

    class Careless(MemoryFileSystem):
        """A store that ignores the mode."""

        protocol = "careless"
        store: dict = {}  # noqa: RUF012

        def pipe_file(self, path, value, mode="overwrite", **kwargs):
            super().pipe_file(path, value, mode="overwrite")

    fsspec.register_implementation("careless", Careless, clobber=True)
    allow_protocols("careless")
    with pytest.raises(StorageError, match="Careless cannot create"):
        JobStore.create("careless://job", REQUEST).acquire()
    assert not Careless().exists("/job/lease/000001.json")


def test_only_the_holder_of_the_lease_may_write(place):
    """It may write until another process has the lease; nobody creates a job over a leased one."""
    one = JobStore.create(place, REQUEST | {"run": 1})
    two = JobStore(place)
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
    for write in writes.values():  # nor after the other one has finished
        with pytest.raises(LeaseLostError, match="was taken over"):
            write(one)
    for attempt, what in ((1, "abort"), (1, "cancel"), (2, "abort")):
        assert one.requested(attempt) != (what, "why")
        two.request(what, attempt, "why")
        assert one.requested(attempt) == (what, "why")
    assert kinds(two.events()) == ["note", "checkpoint"] * 2
    assert (two.spec()["run"], two.restore()) == (1, {"n": 1})


def test_a_folder_of_hidden_names_is_not_empty(tmp_path):
    """For example, a job is never created over a .git folder."""
    (tmp_path / "project" / ".git").mkdir(parents=True)
    (tmp_path / "project" / ".git" / "HEAD").write_text("ref")
    for overwrite in (False, True):
        with pytest.raises(ExistsError):
            JobStore.create(str(tmp_path / "project"), REQUEST, overwrite=overwrite)
    assert (tmp_path / "project" / ".git" / "HEAD").read_text() == "ref"


@pytest.mark.parametrize("models", [0, 1])
def test_writes_by_the_driver_of_an_overwritten_job_are_ignored(place, models):
    """The new job continues the epochs, so that objects of the old driver do not count."""
    old = JobStore.create(place, REQUEST | {"run": 1})
    frozen = old.acquire()
    for number in range(models):
        old.save(model(number))
        old.record({"event": "note"})
    open_folder(place).write(
        "lease/000001.over.json", b"{}"
    )  # others consider the driver dead; it does not know
    new = JobStore.create(place, REQUEST | {"run": 2}, overwrite=True)
    new.acquire()
    assert (new.lease.epoch, new.events(), new.has_model()) == (3, [], False)
    folder = open_folder(place)
    event = {"event": "failed", "time": 0, "epoch": 1, "token": "t"}
    event |= {"model": "models/1", "checkpoint": "checkpoints/1"}
    folder.create("events/000001.json", to_json("events/000001.json", event))
    new.record({"event": "queued"})
    assert kinds(JobStore(place).events()) == ["queued"]
    assert JobStore(place).spec()["run"] == 2
    assert not new.has_model()
    assert new.restore() is None
    for write in (
        lambda: old.record({"event": "done"}),
        lambda: old.save(model(5)),
        lambda: old.checkpoint({"n": 5}),
    ):
        with pytest.raises(LeaseLostError, match="was taken over"):
            write()
    new.lease.check()
    new.save(model(7))
    new.record({"event": "note"})
    assert (JobStore(place).model().mean == model(7).mean).all()
    new.lease.release()
    frozen.release()


@pytest.mark.parametrize("after", range(5))
def test_a_late_overwrite_removes_nothing_from_a_newer_job(place, monkeypatch, after):
    """It is frozen before one of its removals, after which another process overwrites the job."""
    old = written(place, REQUEST | {"run": 1})
    old.save(model(1))
    for _ in range(3):
        old.record({"event": "note"})
    old.lease.release()
    check, left, newer = Lease.check, iter(range(99)), []

    def frozen(lease):
        if not newer and lease.epoch == 2 and next(left) == after:
            open_folder(place).write("lease/000002.over.json", b"{}")  # others consider it dead
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


FORBIDDEN = """
import os
import fsspec.implementations.local, partirvm.jobs.checkpoint, partirvm.model.files, zarr
JobStore(sys.argv[1]).model()
if os.getuid() == 0:
    os.setuid(65534)
store = JobStore(sys.argv[1])
for write in (
    lambda: store.request("abort", 1),
    lambda: store.acquire(),
    lambda: JobStore.create(sys.argv[1], {}, overwrite=True),
    lambda: JobStore.create(sys.argv[1] + "-other", {}),
):
    try:
        write()
        say("written")
    except StorageError as error:
        say(error)
say(store.restore()["n"], store.events()[0]["n"], store.state().status, store.model().n_vectors)
"""


@pytest.mark.usefixtures("processes")
def test_a_read_only_job_can_be_watched_and_used(open_to_all):
    """Writing raises an error with the location and the reason."""
    top = open_to_all / "top"
    top.mkdir()
    store = written(top / "job")
    store.save(model(1))
    store.record({"event": "note", "n": 1})
    store.checkpoint({"n": 1})
    store.lease.release()
    files = {path: path.read_bytes() for path in top.rglob("*") if path.is_file()}
    folders = [top, *(path for path in top.rglob("*") if path.is_dir())]
    for path in [*folders, *files]:
        path.chmod(0o555)
    try:
        with running(FORBIDDEN, top / "job") as child:
            lines = [child.stdout.readline() for _ in range(5)]
            assert all("cannot be written: Permission denied" in line for line in lines[:4]), (
                lines,
                child.stderr.read(),
            )
            assert all(str(top / "job") in line for line in lines[:4])
            assert lines[4] == "1 1 queued 3\n"
    finally:
        for path in folders:
            path.chmod(0o755)
    assert {path: path.read_bytes() for path in top.rglob("*") if path.is_file()} == files


def test_remains_of_killed_writers_are_ignored_and_removed(tmp_path):
    """These are groups without a head or with only a head, and hidden parts."""
    store = written(tmp_path / "job")
    store.checkpoint({"n": 1})
    checkpoints = tmp_path / "job" / "checkpoints"
    shutil.copytree(checkpoints / "000001-000001", checkpoints / "000000-000002")
    (checkpoints / "000000-000002/group.json").unlink()
    (checkpoints / ".000000-000003.abc.part").write_text("{")
    assert store.restore() == {"n": 1}
    for n in (3, 4, 5):
        store.checkpoint({"n": n})
    assert store.restore() == {"n": 5}
    names = sorted(path.name for path in checkpoints.iterdir() if not path.name.startswith("."))
    assert names == [f"000001-00000{n}" for n in (2, 3, 4)]
    (checkpoints / "000001-000004/000000").unlink()
    assert store.restore() == {"n": 4}


def test_a_writer_leaves_the_groups_of_a_later_one(tmp_path):
    """After its last check, another process has taken over and is writing a checkpoint."""
    store = written(tmp_path / "job")
    store.checkpoint({"n": 1})
    checkpoints = tmp_path / "job" / "checkpoints"
    for unnamed in ("000001-000009", "000002-000001"):
        shutil.copytree(checkpoints / "000001-000001", checkpoints / unnamed)
    for n in (2, 3, 4):
        store.checkpoint({"n": n})
    names = sorted(path.name for path in checkpoints.iterdir())
    assert names == [*(f"000001-00000{n}" for n in (2, 3, 4)), "000002-000001"]


# A disk keeps a file's bytes once the file is flushed, and its name once the folder is flushed
# afterwards: so bytes are flushed before the file gets its name, then the folder, and a tree
# is flushed from its leaves.


@pytest.fixture
def disk_requests(monkeypatch):
    """Return the disk requests in order: ("flush", inode), and ("name", inode) for a new file
    name."""
    requests = []
    give = {"link": os.link, "replace": os.replace}

    def named(how):
        def ask(source, target, **options):
            give[how](source, target, **options)
            requests.append(("name", Path(target).stat().st_ino))

        return ask

    monkeypatch.setattr(
        os, "fsync", lambda handle: requests.append(("flush", os.fstat(handle).st_ino))
    )
    for how in give:
        monkeypatch.setattr(os, how, named(how))
    return requests


def inode(path):
    """Return the inode number of a file or folder."""
    return path.stat().st_ino


@pytest.mark.parametrize("verb", ["write", "create", "create without links"])
def test_bytes_are_flushed_before_the_name_and_the_folder_after_it(
    tmp_path, disk_requests, verb, monkeypatch
):
    """A name that survives a crash has its bytes; after the call has returned, it survives."""

    def no_links(*_, **__):
        raise OSError(errno.EPERM, "no links here")

    folder = Folder("here", tmp_path)
    file = tmp_path / "deep" / "object"
    if verb == "create without links":
        monkeypatch.setattr(os, "link", no_links)
    getattr(folder, verb.split()[0])("deep/object", b"1")
    assert file.read_bytes() == b"1"
    named = [] if "without" in verb else [("name", inode(file))]
    expected = [("flush", inode(file)), *named, ("flush", inode(file.parent))]
    assert disk_requests[0] == ("flush", inode(tmp_path))
    assert disk_requests[-len(expected) :] == expected
    assert len(disk_requests) == 1 + len(expected) + ("without" in verb)


@pytest.mark.parametrize(
    ("number", "fails"),
    [(errno.EINVAL, False), (errno.ENOTSUP, False), (errno.ENOSPC, True), (errno.EIO, True)],
)
@pytest.mark.parametrize("is_name", [False, True])
def test_only_a_disk_that_cannot_flush_is_tolerated(tmp_path, monkeypatch, number, fails, is_name):
    """An error of the disk is reported, for bytes and for names: they may be lost."""

    def failing(handle):
        if stat.S_ISDIR(os.fstat(handle).st_mode) == is_name:
            raise OSError(number, os.strerror(number))

    folder = Folder("here", tmp_path)
    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(OSError, match=os.strerror(number)) if fails else nullcontext():
        folder.write("object", b"1")


def test_flushing_a_tree_begins_at_its_leaves(tmp_path, disk_requests):
    """Every file and folder is flushed once, before the folder that contains its name."""
    for name in ("group/a/1", "group/a/2", "group/b/c/3", "group/4"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"1")
    flush(tmp_path / "group")
    below = [tmp_path / "group", *(tmp_path / "group").rglob("*")]
    flushed = [which for _, which in disk_requests]
    assert sorted(flushed) == sorted(inode(path) for path in [tmp_path, *below])
    for path in below:
        assert flushed.index(inode(path)) < flushed.index(inode(path.parent))
