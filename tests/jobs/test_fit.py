"""Fit, predict and evaluate on DATA and JOB: what is written, in which order, and what is
refused."""

import shutil
from dataclasses import replace

import numpy as np
import pytest

from partirvm import ingest, jobs
from partirvm.data import ZarrSource
from partirvm.errors import DataError, MemoryLimitError, MissingDataError, UsageError
from partirvm.fit.driver import Watcher
from partirvm.fit.run import table_rows
from partirvm.jobs.state import Status
from partirvm.jobs.store import JobStore
from partirvm.options import Request

PARAMETERS = Request(
    gamma=0.3, partition_size=30, max_rounds=3, strategy="working-set", selection="error"
)


def rows(n=600, seed=0, d=2):
    """A smooth function of two inputs plus noise, far from zero."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, 100 + 20 * np.sin(X[:, 0]) + 5 * X[:, 1] + rng.normal(size=n)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """DATA to train on and to test on, and a finished JOB."""
    place = tmp_path_factory.mktemp("service")
    ingest(rows(), place / "train.zarr", tile_rows=128)
    ingest(rows(300, seed=1), place / "test.zarr", tile_rows=64, shuffle=9)
    ingest(rows(50, d=3), place / "wide.zarr")
    jobs.fit(str(place / "train.zarr"), str(place / "job"), PARAMETERS)
    return place


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"gamma": -1.0}, UsageError),
        ({"gamma": [1.0, 2.0, 3.0]}, UsageError),
        ({"kernel": "laplace"}, UsageError),
        ({"memory_limit": "60MiB"}, MemoryLimitError),
        ({"time_limit": "soon"}, UsageError),
        ({"validation": "wide.zarr"}, DataError),
        ({"validation": "nothing.zarr"}, MissingDataError),
    ],
)
def test_what_can_be_refused_is_refused_before_the_job_is_touched(folder, tmp_path, changes, error):
    """No folder is left; one that is there stays as it was, even with ``overwrite``."""
    changes = dict(changes)
    validation = str(folder / changes.pop("validation")) if "validation" in changes else None
    asked = Request(**{**vars(PARAMETERS), **changes})
    with pytest.raises(error):
        jobs.fit(str(folder / "train.zarr"), str(tmp_path / "job"), asked, validation=validation)
    assert not (tmp_path / "job").exists()
    before = JobStore(str(folder / "job")).events()
    with pytest.raises(error):
        jobs.fit(
            str(folder / "train.zarr"),
            str(folder / "job"),
            asked,
            overwrite=True,
            validation=validation,
        )
    assert JobStore(str(folder / "job")).events() == before


class Listener(Watcher):
    """Remembers what it hears, and aborts as it is told."""

    def __init__(self, aborted=lambda: False):
        self.tiles = []
        self.steps = []
        self.records = []
        self.plans = []
        self.aborted = aborted

    def on_plan(self, plan):
        self.plans.append(plan)

    def on_tiles(self, name, done, total):
        self.tiles.append((name, done, total))

    def on_step(self, info):
        self.steps.append(info)

    def on_record(self, entry):
        self.records.append(entry)


def test_a_watcher_hears_every_tile_iteration_and_fit(folder, tmp_path):
    """And ``on_plan`` the plan, before anything else; the history keeps the diagnostics of the last
    model alone."""
    listener = Listener()
    found = jobs.fit(
        str(folder / "train.zarr"), str(tmp_path / "job"), replace(PARAMETERS, solver="fixed-point", residual="none"),
        watcher=listener,
        validation=str(folder / "test.zarr"),
    )  # fmt: skip
    assert listener.plans == [found.plan]
    assert {name for name, *_ in listener.tiles} == {"gram", "error", "residual", "held-out"}
    assert all(0 <= done <= total for _, done, total in listener.tiles)
    assert len(listener.steps) == sum(entry["iterations"] for entry in listener.records)
    with_diagnostics = [entry for entry in listener.records if entry["diagnostics"]]
    assert [{**entry, "diagnostics": []} for entry in listener.records] == [
        {**entry, "diagnostics": []} for entry in found.history
    ]
    assert [e["diagnostics"] for e in found.history if e["diagnostics"]] == [
        with_diagnostics[-1]["diagnostics"]
    ]
    read = sum(done == total for _, done, total in listener.tiles)
    assert (
        sum(entry["passes"] for entry in found.history) == read + 1
    )  # the last residuals and left-out rows are one


@pytest.mark.slow
def test_an_aborted_split_merge_keeps_its_best_part(folder, tmp_path):
    """A resume goes on from all parts: it ends with the bits of a fit that was never aborted."""
    listener = Listener()
    job = str(tmp_path / "job")
    listener.aborted = lambda: len(listener.records) > 5
    asked = Request(gamma=0.3, partition_size=30, strategy="split-merge")
    found = jobs.fit(str(folder / "train.zarr"), job, asked, watcher=listener)
    assert {entry["kind"] for entry in listener.records} == {"part"}
    best = [entry for entry in listener.records if entry["saved"]][-1]
    assert best["log_evidence"] == max(entry["log_evidence"] for entry in listener.records)
    assert found.model.n_vectors == best["vectors"]
    opened = jobs.open_job(job)
    assert opened.status() is Status.ABORTED
    assert opened.model().digest() == found.model.digest()
    opened.requeue()
    ended = jobs.run_job(job)
    whole = jobs.fit(str(folder / "train.zarr"), str(tmp_path / "whole"), asked)
    assert ended.model.mean.tobytes() == whole.model.mean.tobytes()
    assert [entry["vectors"] for entry in ended.history] == [
        entry["vectors"] for entry in whole.history
    ]


def test_a_job_tells_how_its_partition_size_was_measured(folder, tmp_path):
    """The heuristic's line comes first, in the events and to the watcher, with P and why; then the
    strategy's own."""
    listener = Listener()
    asked = Request(gamma=0.3, strategy="incremental")
    found = jobs.fit(str(folder / "train.zarr"), str(tmp_path / "job"), asked, watcher=listener)
    events = JobStore(str(tmp_path / "job")).events()
    life = [
        "running",
        "checkpoint",
        "plan",
        "fit",
        *["fit", "checkpoint"] * (len(found.history) - 1),
        "done",
    ]
    assert [event["event"] for event in events] == life
    assert [event["kind"] for event in events if "kind" in event] == [
        entry["kind"] for entry in listener.records
    ]
    first = listener.records[0]
    assert (first["kind"], first["rows"]) == ("heuristic", 35)
    assert first["partition_size"] == found.plan.partition_size == events[2]["partition_size"]
    assert first["notes"] == events[2]["notes"]
    assert found.history == listener.records
    assert JobStore(str(tmp_path / "job")).model().n_vectors == found.history[-1]["vectors"]


def table(n, seed):
    """Inputs and targets that are all different."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, (n, 1))
    return X, np.sin(X[:, 0]) + 0.3 * rng.normal(size=n)


@pytest.mark.parametrize("held_out", [False, True])
def test_numbers_of_a_regression(held_out, tmp_path):
    """The stored target is the target of that row of the table (to the digits of a line of
    history)."""
    tables = {"train": table(300, 0), "held-out": table(100, 1)}
    for name, rows in tables.items():
        ingest(rows, str(tmp_path / name), shuffle=3)
    validation = str(tmp_path / "held-out") if held_out else None
    jobs.fit(
        str(tmp_path / "train"),
        str(tmp_path / "job"),
        Request(gamma=0.5, max_rounds=2),
        validation=validation,
    )
    (found,) = jobs.open_job(str(tmp_path / "job")).state().history[-1]["diagnostics"]
    rows, t, mean, std = np.array(found["largest"]).T
    np.testing.assert_allclose(
        t, tables["held-out" if held_out else "train"][1][rows.astype(int)], rtol=1e-4
    )
    assert (np.diff(np.abs(t - mean)) <= 0).all()
    assert (std > 0).all()


def test_numbers_that_cannot_be_read_are_left_out(tmp_path):
    """The file of the row numbers has been deleted."""
    data = ingest(table(100, 0), str(tmp_path / "train"), shuffle=3)
    found = [{"largest": [[3, 1.0]]}]
    assert table_rows(found, data, None) == [{"largest": [[data.original_rows(0)[3], 1.0]]}]
    shutil.rmtree(next((tmp_path / "train").glob("rows-*/row/c")))
    with pytest.raises(MissingDataError):
        ZarrSource(str(tmp_path / "train")).original_rows(0)
    assert table_rows(found, ZarrSource(str(tmp_path / "train")), None) == [{"largest": []}]
