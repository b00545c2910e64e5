"""Full disks and lost files while a job runs: a clear error, nothing lost, a way on."""

import shutil

import pytest
from by_default import some
from fault_cases import assert_one_round_repeated, assert_same_end, count_lines, queued
from fault_processes import carry, carry_in_little_room
from waiting import wait_for

from partirvm.jobs.job import open_job
from partirvm.jobs.state import Status

CASE = "working-set"


@pytest.fixture
def whole(undisturbed):
    """The job that nobody disturbed."""
    return undisturbed[CASE]


def go_on(breeder, store):
    """Resume a job, whatever ended it, in a process of its own."""
    open_job(store.location).requeue()
    breeder.call(carry, job=store.location).end()


@pytest.mark.parametrize("limit", some([10, 4500], {10}))
def test_a_disk_that_fills_up(breeder, data, whole, tmp_path, limit):
    """StorageError with the place; the model before stays in use; "failed" where there is room for
    it; with room again the job goes on."""
    store = queued(data, tmp_path / "job", CASE)
    child = breeder.call(carry_in_little_room, job=store.location, after=2, limit=limit)
    error, message = child.error()
    assert error == "StorageError"
    assert str(tmp_path / "job") in message
    assert "File too large" in message
    state = store.state()
    if limit == 10:
        assert state.status is Status.INTERRUPTED
    else:
        assert state.status is Status.FAILED
        assert message in state.reason
    assert len(state.history) >= 2
    assert store.model().n_vectors > 0
    assert store.restore().history >= 1
    assert not list((tmp_path / "job").rglob("*.part"))
    go_on(breeder, store)
    assert_same_end(store, whole)
    assert_one_round_repeated(store.events())


def chunk(group):
    """A file with numbers of a Zarr group."""
    return next(
        path
        for path in sorted(group.rglob("*"))
        if path.is_file() and "c" in path.relative_to(group).parts
    )


def test_a_missing_chunk_of_the_data(breeder, data, whole, tmp_path):
    """In the middle of a fit: MissingDataError that names it, the job is interrupted, its model
    stays; with the chunk back it goes on."""
    own = tmp_path / "own.zarr"
    shutil.copytree(data[0], own)
    store = queued((str(own), data[1]), tmp_path / "job", CASE)
    child = breeder.call(carry, job=store.location)
    wait_for(lambda: count_lines(store.location) >= 2 or child.gone)
    lost = chunk(next(own.rglob("X")))
    shutil.move(lost, tmp_path / "kept")
    error, message = child.error()
    assert error == "MissingDataError"
    assert str(own) in message
    state = store.state()
    assert state.status is Status.INTERRUPTED
    assert message in state.reason
    assert len(state.history) >= 2
    before = store.model().digest()
    open_job(store.location).requeue()
    error, message = breeder.call(carry, job=store.location).error()
    assert error == "MissingDataError"
    assert store.state().status is Status.INTERRUPTED
    assert store.model().digest() == before
    shutil.move(tmp_path / "kept", lost)
    go_on(breeder, store)
    assert_same_end(store, whole)
    assert_one_round_repeated(store.events())
