"""Cells of jobs on disk: equal bits however they are made, kills, updates, moves, damage and hostile files."""

from __future__ import annotations

import pickle
import shutil
import tracemalloc
from dataclasses import replace
from pathlib import Path

import fsspec
import numpy as np
import pytest
from cli.commandline import measured
from fault_cases import bits, queued
from fault_processes import PHASES, carry_to_cells, make_small
from threadpoolctl import threadpool_limits
from waiting import wait_for

from partirvm import ingest, jobs, load_model, open_job
from partirvm.errors import FormatError, MissingDataError, PartirvmError, UsageError
from partirvm.jobs.driver import Watcher
from partirvm.jobs.store import JobStore
from partirvm.local.kriging import learned
from partirvm.model.files import CODEC, FORMAT, KIND
from partirvm.options import Request
from partirvm.predict import evaluate, predict

ASKED = Request(gamma=0.5, strategy="working-set", partition_size=20, max_rounds=2, residual="local", neighbours=10)
ASKED = replace(ASKED, memory_limit=780 * 2_750_000, reference="none")
"""Of 600 rows left out, the records of 10 neighbours and of the rows take 2.68 MB, those of 2,000 rows 2.81 MB."""

IN_MEMORY = replace(ASKED, memory_limit=8 << 30)


def rows(n, seed=0, width=2):
    """A function with details that a few wide basis functions cannot describe, with noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, width))
    y = np.sin(3 * X[:, 0]) + 0.5 * np.sin(15 * X[:, 0]) * np.cos(15 * X[:, 1])
    return X, y + 0.05 * rng.standard_normal(n)


NEW = rows(200, 1)[0]


@pytest.fixture(scope="module", autouse=True)
def made(tmp_path_factory):
    """A folder with DATA and a job whose 7 cells lie on disk; small data are large for all these tests."""
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patched:
        make_small(patched.setattr)
        ingest(rows(2000), folder / "d.zarr", tile_rows=512)
        jobs.fit(str(folder / "d.zarr"), str(folder / "job"), ASKED)
        yield folder


def told(job):
    """Means, deviations and ends of intervals by the model of a job, to the bit."""
    model = load_model(job)
    return bits((*model.predictive.moments(NEW), *model.interval(0.9)(NEW)))


def there(job, series="cells"):
    return sorted(f"{series}/{path.name}" for path in Path(job, series).glob("*"))


@pytest.mark.bits
@pytest.mark.parametrize("how", ["in memory", "1 thread", "2 threads", "BLAS threads", "cluster"])
def test_bits_do_not_depend_on_where_cells_are_made(how, made, tmp_path, monkeypatch, request):
    client = request.getfixturevalue("three_workers") if how == "cluster" else None
    if how[0] in "12":
        monkeypatch.setattr("partirvm.execution.local.usable_cores", lambda: int(how[0]))
    asked = IN_MEMORY if how == "in memory" else ASKED
    with threadpool_limits(2 if how == "BLAS threads" else 1, user_api="blas"):
        jobs.fit(str(made / "d.zarr"), str(tmp_path / "job"), asked, client=client)
    assert len(there(tmp_path / "job")) == (how != "in memory")
    assert told(tmp_path / "job") == told(made / "job")


@pytest.mark.bits
@pytest.mark.parametrize("phase", PHASES)
def test_a_kill_when(phase, breeder, made, tmp_path):
    """Resumed to the bits of the undisturbed job; readers always have a model; nothing stays that no event names."""
    store, reads = queued((str(made / "d.zarr"), None), tmp_path / "job", ASKED), 0
    child = breeder.call(carry_to_cells, job=store.location, phase=phase)
    wait_for(lambda: child.gone, "the end of a process")
    assert not child.out.exists(), child.out.read_text()
    assert len(there(store.location)) == 1
    shutil.copytree(store.location, tmp_path / "copy")
    child = breeder.call(carry_to_cells, job=store.location)
    while not child.gone:
        store.model().predict(NEW)
        reads += 1
    child.end()
    assert reads
    assert told(store.location) == told(made / "job")
    named = [event["cell"] for event in store.events() if "cell" in event]
    assert there(store.location) == named
    assert len(named) == 1 + (phase == "no checkpoint has the end")
    assert there(store.location, "models") == [event["model"] for event in store.events() if "model" in event][-2:]
    again = jobs.Job(str(tmp_path / "copy")).requeue(memory_limit=IN_MEMORY.memory_limit)  # it writes no cells
    jobs.run_job(str(tmp_path / "copy"), attempt=again.attempt, patience=0.0)
    assert there(tmp_path / "copy") == named[:-1]


def test_moved_jobs(made, tmp_path, monkeypatch):
    """To another folder, to a process with another working folder, and to another store."""
    moved = shutil.move(shutil.copytree(made / "job", tmp_path / "job"), tmp_path / "moved")
    assert told(moved) == told(made / "job")
    monkeypatch.chdir(tmp_path)
    pickled, expected = pickle.dumps(load_model("moved")), load_model("moved").predict(NEW)
    monkeypatch.chdir("/")
    np.testing.assert_array_equal(pickle.loads(pickled).predict(NEW), expected)
    fsspec.filesystem("memory").put(str(moved), "/cells-of-jobs", recursive=True)
    assert told("memory://cells-of-jobs") == told(made / "job")
    fsspec.filesystem("memory").rm("/cells-of-jobs", recursive=True)


def test_updates_and_overwriting(made, tmp_path):
    """Cells have the appended rows; those of the model before stay for its readers; the next fit has none."""
    data, job = str(shutil.copytree(made / "d.zarr", tmp_path / "d.zarr")), str(tmp_path / "job")
    jobs.fit(data, job, ASKED)
    for number in (1, 2):
        before = load_model(job)
        ingest(rows(100, 6 + number), data, append=True)
        jobs.run_job(job, attempt=jobs.Job(job).requeue(grown=True, max_rounds=1).attempt)
        assert load_model(job).residuals.cells.n_rows == 2000 + 100 * number
        assert there(job) == [f"cells/{each:06d}-000001" for each in (2 * number - 1, 2 * number + 1)]
        assert np.isfinite(before.predict(NEW)).all()
    jobs.fit(data, job, replace(ASKED, residual="none"), overwrite=True)
    assert there(job) == []


@pytest.mark.parametrize(
    ("what", "where"), [("abort", "unsorted/*"), ("cancel", "unsorted/*"), ("abort", "records/c/6/0")]
)
def test_an_end_while_cells_are_made_leaves_none(what, where, made, tmp_path, monkeypatch):
    """An aborted job keeps its model without local residuals, a cancelled one has none; of several searches for the
    kernel of all rows at most those of one moment begin."""
    job, begun = tmp_path / "job", []

    def search(*given, **how):
        begun.append(any(job.glob("cells/*/records")))
        return learned(*given, **how)

    class Ending(Watcher):
        def aborted(self):
            if ended := any(job.glob(f"cells/*/{where}")):
                JobStore(job).request(what, 1)
            return ended

    monkeypatch.setattr("partirvm.learning.neighbours.learned", search)
    end = jobs.fit(str(made / "d.zarr"), str(job), ASKED, watcher=Ending())
    assert open_job(str(job)).status().value == {"abort": "aborted", "cancel": "cancelled"}[what]
    assert there(job) == []
    assert (end.model is None) is (what == "cancel")
    assert end.history[-1]["kind"] == "early"
    assert len(begun) > 0
    assert sum(begun) <= 2


@pytest.mark.parametrize("damage", ["changed", "swapped", "missing", "no folder"])
def test_damaged_cells(damage, made, tmp_path):
    """Predictions and scores name the place; the relevance vectors alone still predict."""
    copied = Path(shutil.copytree(made / "job", tmp_path / "job"))
    (folder,) = copied.glob("cells/*")
    chunk, other = (folder / "records" / "c" / number / "0" for number in "12")
    data = bytearray(chunk.read_bytes())
    data[40] ^= 1
    chunk.unlink() if damage != "no folder" else shutil.rmtree(folder)
    if damage in ("changed", "swapped"):
        chunk.write_bytes(data if damage == "changed" else other.read_bytes())
    said = f"{folder}/records: cell {0 if damage == 'no folder' else 1} of the local residuals"
    with pytest.raises(PartirvmError, match=said):
        predict(str(copied), str(made / "d.zarr"), str(tmp_path / "out.csv"))
    with pytest.raises(PartirvmError, match=said):
        evaluate(str(copied), str(made / "d.zarr"))
    assert not (tmp_path / "out.csv").exists()
    assert np.isfinite(load_model(copied).sparse().predict(NEW)).all()


HOSTILE = {
    "another store": ("cells", {"place": "https://example.org/cells"}),
    "a chain": ("cells", {"place": "simplecache::https://example.org/cells"}),
    "no place": ("cells", {"place": ""}),
    "boxes": ("cells", {"boxes": np.zeros((7, 2, 3))}),
    "hashes": ("cells", {"hashes": ("",)}),
    "records": ("cells", {"records": np.zeros((1999, 6)), "place": ""}),
    "many rows": ("cells", {"n_rows": 10**15}),
    "no rows": ("cells", {"n_rows": 0, "boxes": np.zeros((0, 2, 2)), "hashes": ()}),
    "no width": ("cells", {"width": 0}),
    "family": ("kernel", {"family": "posix"}),
    "level": ("metric", {"axes": np.ones((1, 2)), "levels": ((99, 0.0, 1.0),)}),
    "neighbours": ("", {"neighbours": 10**12}),
}
"""Fields of a part of the local residuals, or of themselves, that a file states."""


def stated(model, place, part, changed):
    """The model of a file that states other fields of this part of its local residuals."""
    changed = {part: replace(getattr(model.residuals, part), **changed)} if part else changed
    model = replace(model, residuals=replace(model.residuals, **changed))
    CODEC.write({"model": model, "estimator": None}, str(place), KIND, FORMAT)
    return load_model(place)


@pytest.mark.parametrize("lie", HOSTILE)
def test_hostile_files_are_refused(lie, made, tmp_path):
    with pytest.raises((FormatError, UsageError)):
        stated(load_model(made / "job"), tmp_path / "model", *HOSTILE[lie])


def test_nothing_is_allocated_for_rows_that_are_only_stated(made, tmp_path, monkeypatch):
    """Of 6 GB in as many cells as boxes say: an error before 16 MiB are allocated."""
    model, count = load_model(made / "job"), 2000
    monkeypatch.setattr("partirvm.local.cells.CELL_ROWS", 1 << 16)
    facts = {"n_rows": count << 16, "boxes": np.zeros((count, 2, 2)), "hashes": ("",) * count, "place": str(tmp_path)}
    hostile = stated(model, tmp_path / "model", "cells", facts)
    assert hostile.residuals.cells.nbytes > 6e9
    tracemalloc.start()
    with pytest.raises(MissingDataError, match="cell 0"):
        hostile.predict(NEW[:1])
    assert tracemalloc.get_traced_memory()[1] < 16 << 20
    tracemalloc.stop()


@pytest.mark.slow
def test_a_large_job_keeps_its_memory_limit(tmp_path):
    """VmHWM of a fit of 300,000 rows × 8 with cells on disk, and of its predictions of the same rows: 256 MiB."""
    data, job = ingest(rows(300_000, width=8), tmp_path / "d.zarr").url, str(tmp_path / "job")
    choices = "--gamma 0.5 --max-vectors 30 --residual local --neighbours 10 --memory-limit 256MiB --reference none"
    for words in (["fit", data, job, *choices.split()], ["predict", job, data, str(tmp_path / "out.zarr")]):
        status, peak, _, said = measured(*words, "--quiet")
        assert status == 0, said
        assert peak <= 256
        assert len(there(job)) == 1
