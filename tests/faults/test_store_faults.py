"""Full disks and lost files during a job give a clear error, lose nothing, and allow a resume."""

import shutil

import pytest
from by_default import some
from fault_cases import assert_one_round_repeated, assert_same_end, count_lines, queued
from fault_processes import carry, carry_with_full_disk
from waiting import wait_for

from partirvm.jobs import Status, open_job

CASE = "working-set"


@pytest.fixture
def complete(undisturbed):
    """Return the undisturbed job."""
    return undisturbed[CASE]


def resume(forker, store):
    """Resume a job in another process."""
    open_job(store.location).requeue()
    forker.call(carry, job=store.location).end()


@pytest.mark.parametrize("limit", some([10, 4500], {10}))
def test_a_full_disk_fails_a_job_that_can_be_resumed(forker, data, complete, tmp_path, limit):
    """The error names the location, and the last model can be used."""
    store = queued(data, tmp_path / "job", CASE)
    child = forker.call(carry_with_full_disk, job=store.location, after=2, limit=limit)
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
    resume(forker, store)
    assert_same_end(store, complete)
    assert_one_round_repeated(store.events())


def chunk(group):
    """Return a file with numbers of a Zarr group."""
    return next(
        path
        for path in sorted(group.rglob("*"))
        if path.is_file() and "c" in path.relative_to(group).parts
    )


def test_a_missing_chunk_of_data_interrupts_a_job(forker, data, complete, tmp_path):
    """The error names the chunk, the model is kept, and the job can be resumed when the chunk is
    back."""
    copy = tmp_path / "copy.zarr"
    shutil.copytree(data[0], copy)
    store = queued((str(copy), data[1]), tmp_path / "job", CASE)
    child = forker.call(carry, job=store.location)
    wait_for(lambda: count_lines(store.location) >= 2 or child.gone)
    missing = chunk(next(copy.rglob("X")))
    shutil.move(missing, tmp_path / "kept")
    error, message = child.error()
    assert error == "MissingDataError"
    assert str(copy) in message
    state = store.state()
    assert state.status is Status.INTERRUPTED
    assert message in state.reason
    assert len(state.history) >= 2
    before = store.model().digest()
    open_job(store.location).requeue()
    error, message = forker.call(carry, job=store.location).error()
    assert error == "MissingDataError"
    assert store.state().status is Status.INTERRUPTED
    assert store.model().digest() == before
    shutil.move(tmp_path / "kept", missing)
    resume(forker, store)
    assert_same_end(store, complete)
    assert_one_round_repeated(store.events())
