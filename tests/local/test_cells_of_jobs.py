"""Cells of jobs on disk: equal bits however they are made and read, updates, moves, damage and hostile files."""

from __future__ import annotations

import shutil
import tracemalloc
from dataclasses import replace
from pathlib import Path

import fsspec
import numpy as np
import pytest
from cli.commandline import measured
from local import on_disk
from local.on_disk import LONG, SHORT, make_data, make_small, rows
from threadpoolctl import threadpool_limits

from partirvm import ingest, jobs, load_model, open_job
from partirvm.errors import FormatError, MissingDataError, PartirvmError, UsageError
from partirvm.execution import local as threads_of
from partirvm.jobs.driver import Watcher
from partirvm.jobs.store import JobStore
from partirvm.local import cells
from partirvm.model.files import CODEC, FORMAT, KIND
from partirvm.options.constraints import MOST_NEIGHBOURS
from partirvm.predict import evaluate, predict

NEW = rows(200, 1)[0]


@pytest.fixture(scope="module", autouse=True)
def made(tmp_path_factory):
    """A folder with DATA and a job whose cells lie on disk; small data are large for all these tests."""
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patched:
        make_small(patched.setattr)
        jobs.fit(make_data(folder), str(folder / "job"), on_disk.request())
        yield folder


def told(model):
    """Means, deviations and ends of intervals, to the bit."""
    mean, variance, _ = model.predictive.moments(NEW)
    return mean.tobytes() + variance.tobytes() + model.interval(0.9)(NEW)[0].tobytes()


def cells_in(job):
    return sorted(path.name for path in Path(job, "cells").glob("*"))


@pytest.mark.bits
@pytest.mark.parametrize("how", ["in memory", "1 thread", "2 threads", "BLAS threads", "cluster"])
def test_bits_do_not_depend_on_where_cells_are_made(how, made, tmp_path, monkeypatch, request):
    """Those of predictions."""
    expected, client = load_model(made / "job"), None
    if how == "cluster":
        client = request.getfixturevalue("three_workers")
    elif how[0] in "12":
        monkeypatch.setattr(threads_of, "usable_cores", lambda: int(how[0]))
    asked = on_disk.request(LONG if how == "in memory" else SHORT)
    with threadpool_limits(2 if how == "BLAS threads" else 1, user_api="blas"):
        jobs.fit(str(made / "d.zarr"), str(tmp_path / "job"), asked, client=client)
    found = load_model(tmp_path / "job")
    assert (len(expected.residuals.cells.hashes), len(expected.residuals.cells.boxes)) == (7, 7)
    assert (found.residuals.cells.records is None) is (how != "in memory")
    assert told(found) == told(expected)


def test_workers_predict_from_cells_of_a_relative_path(made, three_workers, tmp_path, monkeypatch):
    """Their working folder is another one."""
    three_workers.run(setattr, cells, "CELL_ROWS", 300)
    monkeypatch.chdir(made)
    for name, client in (("here", None), ("workers", three_workers)):
        predict("job", "d.zarr", str(tmp_path / f"{name}.csv"), client=client)
    three_workers.run(setattr, cells, "CELL_ROWS", 1 << 16)
    assert (tmp_path / "workers.csv").read_text() == (tmp_path / "here.csv").read_text()


def test_moved_jobs(made, tmp_path):
    """To another folder, and to another store."""
    expected = told(load_model(made / "job"))
    moved = shutil.move(shutil.copytree(made / "job", tmp_path / "job"), tmp_path / "moved")
    assert told(load_model(moved)) == expected
    fsspec.filesystem("memory").put(str(moved), "/cells-of-jobs", recursive=True)
    try:
        assert told(load_model("memory://cells-of-jobs")) == expected
    finally:
        fsspec.filesystem("memory").rm("/cells-of-jobs", recursive=True)


def test_updates_and_overwriting(tmp_path):
    """Cells have the appended rows; those of the model before stay for its readers; the next fit has none."""
    data, job = make_data(tmp_path), str(tmp_path / "job")
    jobs.fit(data, job, on_disk.request())
    for number in (1, 2):
        before = load_model(job)
        ingest(rows(100, 6 + number), data, append=True)
        again = jobs.Job(job).requeue(grown=True, max_rounds=1)
        jobs.run_job(job, attempt=again.attempt)
        assert load_model(job).residuals.cells.n_rows == 2000 + 100 * number
        assert cells_in(job) == [f"{each:06d}-000001" for each in (2 * number - 1, 2 * number + 1)]
        assert np.isfinite(before.predict(NEW)).all()
    jobs.fit(data, job, on_disk.request(residual="none"), overwrite=True)
    assert cells_in(job) == []


@pytest.mark.parametrize(
    ("what", "where"), [("abort", "unsorted/*"), ("cancel", "unsorted/*"), ("abort", "records/c/6/0")]
)
def test_an_end_while_cells_are_made_leaves_none(what, where, made, tmp_path):
    """An aborted job keeps its model without local residuals, a cancelled one has none."""
    job = tmp_path / "job"

    class Ending(Watcher):
        def aborted(self):
            if any(job.glob(f"cells/*/{where}")):
                JobStore(job).request(what, 1)
                return True
            return False

    end = jobs.fit(str(made / "d.zarr"), str(job), on_disk.request(), watcher=Ending())
    assert open_job(str(job)).status().value == {"abort": "aborted", "cancel": "cancelled"}[what]
    assert cells_in(job) == []
    assert (end.model is None) is (what == "cancel")


@pytest.mark.parametrize("damage", ["changed", "swapped", "missing", "no folder"])
def test_damaged_cells(damage, made, tmp_path):
    """A changed byte, a valid chunk in the place of another one, a missing chunk, none: predictions and scores name the
    place; the relevance vectors alone still predict."""
    copied = Path(shutil.copytree(made / "job", tmp_path / "job"))
    (folder,) = copied.glob("cells/*")
    chunk, other = (folder / "records" / "c" / number / "0" for number in "12")
    if damage == "changed":
        data = bytearray(chunk.read_bytes())
        data[40] ^= 1
        chunk.write_bytes(data)
    elif damage == "swapped":
        chunk.write_bytes(other.read_bytes())
    else:
        chunk.unlink() if damage == "missing" else shutil.rmtree(folder)
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


def written(model, part, changed, place):
    """A file of the model with other fields of this part of its local residuals."""
    residuals = model.residuals
    changed = {part: replace(getattr(residuals, part), **changed)} if part else changed
    model = replace(model, residuals=replace(residuals, **changed))
    CODEC.write({"model": model, "estimator": None}, str(place), KIND, FORMAT)
    return place


@pytest.mark.parametrize("lie", HOSTILE)
def test_hostile_files_are_refused(lie, made, tmp_path):
    place = written(load_model(made / "job"), *HOSTILE[lie], tmp_path / "model")
    with pytest.raises((FormatError, UsageError)):
        load_model(place)


def test_nothing_is_allocated_for_rows_that_are_only_stated(made, tmp_path, monkeypatch):
    """Of 6 GB in as many cells as boxes say: an error before 16 MiB are allocated."""
    model, count = load_model(made / "job"), 2000
    monkeypatch.setattr(cells, "CELL_ROWS", 1 << 16)
    facts = {"n_rows": count << 16, "boxes": np.zeros((count, 2, 2)), "hashes": ("",) * count}
    hostile = load_model(written(model, "cells", {**facts, "place": str(tmp_path)}, tmp_path / "model"))
    hostile = replace(hostile, residuals=replace(hostile.residuals, neighbours=MOST_NEIGHBOURS))
    assert hostile.residuals.cells.nbytes > 6e9
    tracemalloc.start()
    try:
        with pytest.raises(MissingDataError, match="cell 0"):
            hostile.predict(NEW[:1])
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_a_large_job_keeps_its_memory_limit(tmp_path):
    """VmHWM of a fit of 300,000 rows × 8 with cells on disk, and of its predictions of the same rows: 256 MiB."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (300_000, 8))
    y = np.sin(3 * X[:, 0]) + 0.5 * np.sin(9 * X[:, 0]) * np.cos(9 * X[:, 1]) + 0.05 * rng.normal(size=len(X))
    data, job = ingest((X, y), tmp_path / "d.zarr").url, str(tmp_path / "job")
    choices = "--gamma 0.5 --max-vectors 30 --residual local --neighbours 10 --memory-limit 256MiB --reference none"
    status, peak, _, said = measured("fit", data, job, *choices.split(), "--quiet")
    assert status == 0, said
    assert len(cells_in(job)) == 1
    assert peak <= 256
    status, peak, _, said = measured("predict", job, data, str(tmp_path / "out.zarr"), "--quiet")
    assert status == 0, said
    assert peak <= 256
