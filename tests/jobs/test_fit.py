"""Fits to DATA as jobs: what is written, in which order, and what is refused."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
from numpy.random import default_rng
from numpy.testing import assert_allclose

from partirvm import ingest, jobs
from partirvm.data import ZarrSource
from partirvm.errors import DataError, MemoryLimitError, MissingDataError, UsageError
from partirvm.fit import Watcher
from partirvm.fit.run import table_rows
from partirvm.jobs import JobStore, Status
from partirvm.options import Request

ASKED = {"strategy": "working-set", "selection": "error", "residual": "none"}
PARAMETERS = Request(gamma=0.3, partition_size=30, max_rounds=3, **ASKED)


def rows(n=600, seed=0, d=2):
    """Return a smooth function of two inputs plus noise, with a large offset."""
    rng = default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, 100 + 20 * np.sin(X[:, 0]) + 5 * X[:, 1] + rng.normal(size=n)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return DATA for training and testing, and a finished JOB."""
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
def test_refusals_happen_before_the_job_is_changed(folder, tmp_path, changes, error):
    """No folder is left; an existing one is unchanged, even with ``overwrite``."""
    changes = dict(changes)
    validation = str(folder / changes.pop("validation")) if "validation" in changes else None
    request = Request(**{**vars(PARAMETERS), **changes})
    before = JobStore(str(folder / "job")).events()
    for job in (tmp_path / "job", folder / "job"):
        options = {"overwrite": job.exists(), "validation": validation}
        with pytest.raises(error):
            jobs.fit(str(folder / "train.zarr"), str(job), request, **options)
    assert not (tmp_path / "job").exists()
    assert JobStore(str(folder / "job")).events() == before


class Listener(Watcher):
    """Records the calls it receives, and aborts when ``aborted`` holds."""

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


def test_a_watcher_is_called_for_every_tile_iteration_and_fit(folder, tmp_path):
    """The plan comes first; the history keeps only the diagnostics of the last model."""
    listener = Listener()
    fit = jobs.fit(
        str(folder / "train.zarr"), str(tmp_path / "job"), replace(PARAMETERS, solver="fixed-point"),
        watcher=listener,
        validation=str(folder / "test.zarr"),
    )  # fmt: skip
    assert listener.plans == [fit.plan]
    assert {name for name, *_ in listener.tiles} == {"gram", "error", "residual", "held-out"}
    assert all(0 <= done <= total for _, done, total in listener.tiles)
    assert len(listener.steps) == sum(entry["iterations"] for entry in listener.records)
    with_diagnostics = [entry for entry in listener.records if entry["diagnostics"]]
    assert [{**entry, "diagnostics": []} for entry in listener.records] == [
        {**entry, "diagnostics": []} for entry in fit.history
    ]
    assert [e["diagnostics"] for e in fit.history if e["diagnostics"]] == [
        with_diagnostics[-1]["diagnostics"]
    ]
    n_passes = sum(done == total for _, done, total in listener.tiles)
    assert (
        sum(entry["passes"] for entry in fit.history) == n_passes + 1
    )  # the last residuals and left-out rows are one pass


@pytest.mark.slow
def test_an_aborted_split_merge_keeps_its_best_part(folder, tmp_path):
    """A resume continues from all parts, with the same bits as an uninterrupted fit."""
    listener = Listener()
    job = str(tmp_path / "job")
    listener.aborted = lambda: len(listener.records) > 5
    request = Request(gamma=0.3, partition_size=30, strategy="split-merge")
    aborted = jobs.fit(str(folder / "train.zarr"), job, request, watcher=listener)
    assert {entry["kind"] for entry in listener.records} == {"part"}
    best = [entry for entry in listener.records if entry["saved"]][-1]
    assert best["log_evidence"] == max(entry["log_evidence"] for entry in listener.records)
    assert aborted.model.n_vectors == best["vectors"]
    opened = jobs.open_job(job)
    assert opened.status() is Status.ABORTED
    assert opened.model().digest() == aborted.model.digest()
    opened.requeue()
    ended = jobs.run_job(job)
    complete = jobs.fit(str(folder / "train.zarr"), str(tmp_path / "whole"), request)
    assert ended.model.mean.tobytes() == complete.model.mean.tobytes()
    assert [entry["vectors"] for entry in ended.history] == [
        entry["vectors"] for entry in complete.history
    ]


def test_the_measured_partition_size_is_the_first_event(folder, tmp_path):
    """It comes with P and the reason, before the events of the strategy."""
    listener = Listener()
    request = Request(gamma=0.3, strategy="incremental", residual="none")
    fit = jobs.fit(str(folder / "train.zarr"), str(tmp_path / "job"), request, watcher=listener)
    events = JobStore(str(tmp_path / "job")).events()
    rounds = ["fit", "checkpoint"] * (len(fit.history) - 1)
    names = ["running", "checkpoint", "plan", "fit", *rounds, "done"]
    assert [event["event"] for event in events] == names
    assert [event["kind"] for event in events if "kind" in event] == [
        entry["kind"] for entry in listener.records
    ]
    first = listener.records[0]
    assert (first["kind"], first["rows"]) == ("heuristic", 35)
    assert first["partition_size"] == fit.plan.partition_size == events[2]["partition_size"]
    assert first["notes"] == events[2]["notes"]
    assert fit.history == listener.records
    assert JobStore(str(tmp_path / "job")).model().n_vectors == fit.history[-1]["vectors"]


def table(n, seed):
    """Return inputs, and targets that are all different."""
    rng = default_rng(seed)
    X = rng.uniform(-3, 3, (n, 1))
    return X, np.sin(X[:, 0]) + 0.3 * rng.normal(size=n)


@pytest.mark.parametrize("held_out", [False, True])
def test_diagnostics_contain_the_targets_of_their_rows(held_out, tmp_path):
    """The row's target in the table agrees to the digits that a history line has."""
    tables = {"train": table(300, 0), "held-out": table(100, 1)}
    for name, rows in tables.items():
        ingest(rows, str(tmp_path / name), shuffle=3)
    validation = str(tmp_path / "held-out") if held_out else None
    request = Request(gamma=0.5, max_rounds=1, residual="none")
    jobs.fit(str(tmp_path / "train"), str(tmp_path / "job"), request, validation=validation)
    (diagnostics,) = jobs.open_job(str(tmp_path / "job")).state().history[-1]["diagnostics"]
    rows, t, mean, std = np.array(diagnostics["largest"]).T
    assert_allclose(t, tables["held-out" if held_out else "train"][1][rows.astype(int)], rtol=1e-4)
    assert (np.diff(np.abs(t - mean)) <= 0).all()
    assert (std > 0).all()


def test_diagnostics_without_row_numbers_are_left_out(tmp_path):
    """The file of the row numbers was deleted."""
    data = ingest(table(100, 0), str(tmp_path / "train"), shuffle=3)
    diagnostics = [{"largest": [[3, 1.0]]}]
    assert table_rows(diagnostics, data, None) == [{"largest": [[data.original_rows(0)[3], 1.0]]}]
    shutil.rmtree(next((tmp_path / "train").glob("rows-*/row/c")))
    with pytest.raises(MissingDataError):
        ZarrSource(str(tmp_path / "train")).original_rows(0)
    assert table_rows(diagnostics, ZarrSource(str(tmp_path / "train")), None) == [{"largest": []}]
