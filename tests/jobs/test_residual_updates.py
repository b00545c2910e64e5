"""Updates of the local residuals alone: appended rows join a finished job without a fit."""

import pickle
import shutil
import signal
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from by_default import some
from processes import running

from partirvm import ingest, jobs, load_model, open_job, save_model
from partirvm.cli import main
from partirvm.errors import UsageError
from partirvm.jobs.state import Status
from partirvm.jobs.store import JobStore
from partirvm.local import cells
from partirvm.local.cells import NUMBER, Cells
from partirvm.options import Request
from partirvm.predict import prediction

ASKED = Request(gamma=0.5, strategy="working-set", max_rounds=1, partition_size=20, residual="local", neighbours=10)


def rows(n, seed):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, 2))
    return X, np.sin(3 * X[:, 0]) + 0.5 * np.sin(15 * X[:, 0]) * np.cos(15 * X[:, 1]) + 0.05 * rng.standard_normal(n)


def grown(folder, asked=ASKED):
    """A job of 300 rows, whose DATA have 100 rows more."""
    ingest(rows(300, 0), folder / "rows.zarr", tile_rows=64)
    jobs.fit(str(folder / "rows.zarr"), str(folder / "job"), asked)
    ingest(rows(100, 1), folder / "rows.zarr", append=True)
    return open_job(folder / "job")


@pytest.fixture
def job(tmp_path, monkeypatch):
    """This job; cells have 100 rows."""
    monkeypatch.setattr(cells, "CELL_ROWS", 100)
    return grown(tmp_path)


def records_of(model):
    own = model.residuals.cells
    found = np.concatenate([own.cell(number) for number in range(len(own.boxes))])
    return found[np.argsort(found[:, NUMBER])]


def test_rows_join_in_memory_and_then_on_disk(job, tmp_path, monkeypatch, capsys):
    """The vectors, the kernel and the old records stay; predictions are those of cells of all rows at once."""
    old, new = job.model(), rows(50, 9)[0]
    assert main(["update", job.location, "--residual-only", "--quiet"]) == 0
    assert "appended rows joined the local residuals" in capsys.readouterr().out
    second = job.model()
    ingest(rows(60, 2), tmp_path / "rows.zarr", append=True)
    with monkeypatch.context() as patch:
        patch.setattr(JobStore, "restore", lambda *args, **options: None)  # so that no room in memory is known
        assert job.update(residual_only=True).wait(60) is Status.DONE
    last, records = job.model(), records_of(job.model())
    assert last.cells_place.startswith(f"{job.location}/cells/")
    np.testing.assert_array_equal(records[:400], records_of(second))
    np.testing.assert_array_equal(records[:300], records_of(old))
    np.testing.assert_array_equal(records[:, NUMBER], np.arange(460))
    np.testing.assert_array_equal(last.mean, old.mean)
    assert last.residuals.kernels == old.residuals.kernels
    assert len(last.residuals.cells.boxes) == 5
    at_once = replace(last, residuals=replace(last.residuals, cells=Cells.of(records)))
    np.testing.assert_array_equal(last.predict(new, return_std=True), at_once.predict(new, return_std=True))
    monkeypatch.setattr(prediction, "TILES", 3)  # of eight
    X, y = (np.concatenate(parts) for parts in zip(rows(300, 0), rows(100, 1), rows(60, 2), strict=True))
    mean, std = last.predict(X, return_std=True)
    prediction.predict(job.location, str(tmp_path / "rows.zarr"), str(tmp_path / "out.parquet"))
    found = pd.read_parquet(tmp_path / "out.parquet")
    np.testing.assert_array_equal(found[["mean", "std"]].to_numpy().T, [mean, std])
    scores = prediction.evaluate(job.location, str(tmp_path / "rows.zarr"))
    assert scores["rmse"] == pytest.approx(np.sqrt(np.mean((y - mean) ** 2)), rel=1e-9)
    for how, words in (({}, "no rows that were appended"), ({"max_rounds": 2}, "fits nothing: omit max_rounds")):
        with pytest.raises(UsageError, match=words):
            job.update(residual_only=True, **how)
    assert job.update(max_rounds=1).wait(60) is Status.DONE  # the fit takes all rows
    assert job.model().n_rows == 460


KILLED = """
import os, signal
from partirvm import open_job
from partirvm.jobs import attempt
from partirvm.local import cells
cells.CELL_ROWS = 100
place, when = sys.argv[1:]
def killed(function, after):
    def call(*args, **options):
        found = function(*args, **options) if after else None
        os.kill(os.getpid(), signal.SIGKILL)
    return call
if when == "end":
    attempt._end = killed(attempt._end, False)
else:
    JobStore.save = killed(JobStore.save, when == "saved")
open_job(place).update(residual_only=True).wait()
"""


@pytest.mark.parametrize("when", some(["unsaved", "saved", "end"], {"saved", "end"}))
def test_a_killed_update_leaves_the_old_model(job, when):
    """Before and after the new model is written, and before the event that names it; then it is repeated or resumed."""
    old = job.model().digest()
    with running(KILLED, job.location, when) as process:
        assert process.wait(60) == -signal.SIGKILL, process.stderr.read()
    assert job.status() is Status.INTERRUPTED
    assert job.model().digest() == old
    again = job.resume() if when == "end" else job.update(residual_only=True)
    assert again.wait(60) is Status.DONE
    np.testing.assert_array_equal(records_of(job.model())[:, NUMBER], np.arange(400))


def test_a_job_without_local_residuals_is_refused(tmp_path):
    with pytest.raises(UsageError, match="its model has no local residuals"):
        grown(tmp_path, replace(ASKED, residual="none")).update(residual_only=True)


def test_a_job_of_two_targets(tmp_path, monkeypatch):
    """The second target is −2 times the first one, and so are its predictions, to the bit, in a fit and an update.

    300 of 600 rows are left out; memory holds the records of seven numbers of these, but not of all.
    """
    room = 8 * (4096 * 10 * (10 + 7) + 2 * 7 * 500)
    monkeypatch.setattr(cells, "CELL_ROWS", 100)
    monkeypatch.setattr("partirvm.core.left_out.LEFT_OUT_ROWS", 300)
    monkeypatch.setattr("partirvm.resolve.resolve.RESIDUAL_SHARE", 200)
    (X, y), (more, z), place, new = rows(600, 0), rows(100, 1), str(tmp_path / "rows.zarr"), rows(50, 9)[0]
    ingest((X, np.column_stack([y, -2 * y])), place, tile_rows=64)
    jobs.fit(place, str(tmp_path / "job"), replace(ASKED, memory_limit=200 * room))
    ingest((more, np.column_stack([z, -2 * z])), place, append=True)
    job = open_job(tmp_path / "job")
    old, shown = job.model(), job.state().history[-1]["diagnostics"]
    near = [np.array(each["neighbours"])[:, :, 3] for each in shown]
    np.testing.assert_array_equal(near[1], -2 * near[0])
    assert job.report().html.count("<caption>Their nearest training rows") == 2
    assert job.update(residual_only=True).wait(60) is Status.DONE
    updated = job.model()
    for model, n in ((old, 600), (updated, 700)):
        assert model.cells_place.startswith(f"{job.location}/cells/")
        np.testing.assert_array_equal(records_of(model)[:, NUMBER], np.arange(n))
        mean, std = model.predict(new, return_std=True)
        np.testing.assert_array_equal(mean[:, 1], -2 * mean[:, 0])
        np.testing.assert_array_equal(std[:, 1], 2 * std[:, 0])
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(new), mean)
    prediction.predict(job.location, place, str(tmp_path / "out.parquet"), interval=0.9)
    *_, lower, upper, _ = pd.read_parquet(tmp_path / "out.parquet").to_numpy().T
    np.testing.assert_array_equal(lower, -2 * upper)  # of the second and of the first target
    save_model(updated, tmp_path / "copy", copy=True)
    shutil.rmtree(tmp_path / "job" / "cells")
    np.testing.assert_array_equal(load_model(tmp_path / "copy").predict(new), mean)
