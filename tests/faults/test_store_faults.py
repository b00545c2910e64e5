"""Full disks, forbidden folders, lost and damaged files while a job runs: a clear error, nothing lost, a way on."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from by_default import some
from fault_cases import (
    assert_one_round_repeated,
    assert_same_end,
    bits,
    carry,
    carry_in_little_room,
    carry_until_forbidden,
    count_lines,
    queued,
    wait_for,
)

from partirvm.jobs.job import open_job
from partirvm.jobs.state import Status

CASE = "working-set"


@pytest.fixture
def whole(undisturbed):
    """The job that nobody disturbed."""
    return undisturbed[CASE]


def halfway(breeder, store, after=3):
    """Carry a job out until there are so many lines of history, and kill who did."""
    child = breeder.call(carry, job=store.location)
    wait_for(lambda: count_lines(store.location) > after or child.gone)
    assert child.kill(), "the run ended before it was killed"
    return store


def go_on(breeder, store):
    """Resume a job, whatever ended it, in a process of its own."""
    open_job(store.location).requeue()
    breeder.call(carry, job=store.location).end()


@pytest.mark.parametrize("limit", [10, 2500])
def test_a_disk_that_fills_up(breeder, data, whole, tmp_path, limit):
    """StorageError with the place; the model before stays in use; "failed" where there is room for it; with room again
    the job goes on."""
    store = queued(data, tmp_path / "job", CASE)
    child = breeder.call(carry_in_little_room, job=store.location, after=2, limit=limit)
    error, message = child.error()
    assert error == "StorageError"
    assert str(tmp_path / "job") in message
    assert "a file would exceed" in message
    state = store.state()
    if limit == 10:
        assert state.status is Status.INTERRUPTED
    else:
        assert state.status is Status.FAILED
        assert message in state.reason
    assert len(state.history) >= 2
    assert store.model().n_vectors > 0
    assert not store.restore().damaged
    assert not list((tmp_path / "job").rglob("*.part"))
    go_on(breeder, store)
    assert_same_end(store, whole)
    assert_one_round_repeated(store.events())


def test_a_store_that_becomes_read_only(breeder, data, whole, open_to_all):
    """StorageError with the place, what was whole stays, who comes too late leaves no trace; writable again, it goes
    on."""
    Path(data[0]).parent.chmod(0o755)
    job = open_to_all / "job"
    store = queued(data, job, CASE)
    error, message = breeder.call(carry_until_forbidden, job=store.location, after=2).error()
    assert error == "StorageError"
    assert str(job) in message
    assert "Permission denied" in message
    state, events, model = store.state(), store.events(), bits(store.model())
    assert state.status is Status.INTERRUPTED, "nothing could be written down"
    assert len(state.history) >= 2
    error, message = breeder.call(carry_until_forbidden, job=store.location, after=0).error()
    assert error == "StorageError"
    assert str(job) in message
    assert store.events() == events
    assert bits(store.model()) == model
    for path in [job, *job.rglob("*")]:
        if path.is_dir():
            path.chmod(0o755)
    go_on(breeder, store)
    assert_same_end(store, whole)
    assert_one_round_repeated(store.events())


def chunk(group):
    """A file with numbers of a Zarr group."""
    return next(path for path in sorted(group.rglob("*")) if path.is_file() and "c" in path.relative_to(group).parts)


@pytest.mark.parametrize("damage", some(["bits", "cut", "gone", "attributes"], {"bits", "gone"}))
def test_a_damaged_last_checkpoint(breeder, data, whole, tmp_path, damage):
    """The one before it is used: one round more is done again, and the end is the same."""
    store = halfway(breeder, queued(data, tmp_path / "job", CASE))
    group = sorted(path for path in (tmp_path / "job" / "checkpoints").iterdir() if path.with_suffix(".json").exists())
    last = [path for path in group if path.is_dir()][-1]
    known = store.restore().about["history"]
    if damage == "attributes":
        (last / "zarr.json").write_bytes((last / "zarr.json").read_bytes()[:-40])
    else:
        file = chunk(last)
        content = file.read_bytes()
        {
            "bits": lambda: file.write_bytes(bytes([content[0] ^ 1]) + content[1:]),
            "cut": lambda: file.write_bytes(content[: len(content) // 2]),
            "gone": file.unlink,
        }[damage]()
    assert last.name in store.restore().damaged[0]
    assert store.restore().about["history"] == known - 1
    breeder.call(carry, job=store.location).end()
    assert_same_end(store, whole)


def test_a_missing_chunk_of_the_data(breeder, data, whole, tmp_path):
    """In the middle of a fit: MissingDataError that names it, the job is interrupted, its model stays; with the chunk
    back it goes on."""
    own = tmp_path / "own.zarr"
    shutil.copytree(data[0], own)
    store = queued((str(own), data[1]), tmp_path / "job", CASE)
    child = breeder.call(carry, job=store.location)
    wait_for(lambda: count_lines(store.location) >= 2 or child.gone)
    lost = chunk(own / "X")
    shutil.move(lost, tmp_path / "kept")
    error, message = child.error()
    assert error == "MissingDataError"
    assert str(own) in message
    state = store.state()
    assert state.status is Status.INTERRUPTED
    assert message in state.reason
    assert len(state.history) >= 2
    before = bits(store.model())
    open_job(store.location).requeue()
    error, message = breeder.call(carry, job=store.location).error()
    assert error == "MissingDataError"
    assert store.state().status is Status.INTERRUPTED
    assert bits(store.model()) == before
    shutil.move(tmp_path / "kept", lost)
    go_on(breeder, store)
    assert_same_end(store, whole)
    assert_one_round_repeated(store.events())
