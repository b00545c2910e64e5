"""Full disks, forbidden folders, damaged files: a clear error, and nothing lost that was whole."""

from __future__ import annotations

import shutil

from processes import running
from reference import model, written

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


def test_a_folder_that_may_only_be_read(open_to_all):
    """StorageError with the place and the reason; watching and predicting still work."""
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
            said = [child.stdout.readline() for _ in range(5)]
            assert all("cannot be written: Permission denied" in line for line in said[:4]), (said, child.stderr.read())
            assert all(str(top / "job") in line for line in said[:4])
            assert said[4] == "1 1 queued 3\n"
    finally:
        for path in folders:
            path.chmod(0o755)
    assert {path: path.read_bytes() for path in top.rglob("*") if path.is_file()} == files


def test_remains_of_killed_writers_harm_nobody(tmp_path):
    """A group without its head, or with nothing else, hidden parts: passed over, and cleared by the next one."""
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
