"""``kernel_store``: the plan's choice, the same model with it, and the memory limit."""

from dataclasses import replace

import numpy as np
import pytest

from partirvm import jobs
from partirvm.data import ArraySource, ingest
from partirvm.execution import LocalExecutor
from partirvm.fit.driver import Watcher
from partirvm.jobs.state import Status
from partirvm.options import Request
from partirvm.planning.memory import DataShape
from partirvm.planning.plan import Machine, kernel_store
from partirvm.process import resident_memory
from partirvm.resolve.resolve import resolve
from partirvm.types import Columns

pytestmark = pytest.mark.bits

ASKED = Request(gamma=0.5, partition_size=40, max_rounds=3)


def rows(n=3000):
    rng = np.random.default_rng(5)
    X = rng.uniform(-3, 3, size=(n, 2))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=n)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return ingest(rows(), tmp_path_factory.mktemp("store") / "rows.zarr", tile_rows=512).url


@pytest.mark.parametrize(
    ("asked", "spare", "classes", "where"),
    [
        ("auto", 1 << 30, True, "memory"),
        ("auto", 100_000, True, "memory"),
        ("memory", 0, True, "memory"),
        ("zarr", 0, True, "zarr"),
        ("none", 1 << 30, True, "none"),
        ("auto", 1 << 40, False, "none"),
        ("memory", 1 << 40, False, "memory"),
    ],
)
def test_the_choice_is_arithmetic(asked, spare, classes, where):
    """Kept where passes repeat their columns. Passes that bring new columns keep none unless
    asked."""
    shape = DataShape(10_000, 2, 1, 1000, newton=classes)
    machine = Machine(1, 100 << 20, 4 << 30)
    found = kernel_store(Request(kernel_store=asked), shape, machine, 100, spare)
    assert found.where == where
    assert found.bytes <= 8 * 10_000 * 100
    if where == "memory":
        assert found.bytes <= spare


def test_classes_keep_blocks_in_a_quarter_of_a_limit_that_nobody_set(monkeypatch):
    """Newton steps see the same columns again; a limit that was given may be filled."""
    X, y = rows(400_000)
    classes = Columns(("a", "b"), classes=("no", "yes"))
    source = ArraySource(X, (y > 0).astype(float), columns=classes)
    executor = LocalExecutor(1)
    limit = resident_memory() + (400 << 20)
    monkeypatch.setattr("partirvm.execution.local.available_memory", lambda: limit / 0.7)
    asked = replace(ASKED, fit_rows="full", partition_size=100, likelihood="multinomial")
    auto = resolve(source, asked, executor).plan
    given = resolve(source, replace(asked, memory_limit=limit), executor).plan
    executor.close()
    assert auto.kernel_store.where == given.kernel_store.where == "memory"
    assert auto.machine.limit == pytest.approx(limit, abs=1)
    assert auto.kernel_store.bytes <= limit / 4 < given.kernel_store.bytes
    assert given.peak <= limit


@pytest.mark.slow
def test_a_job_keeps_blocks_beside_it_only_while_it_runs(data, tmp_path):
    """Zarr goes to JOB/kernel; what a killed process left there is removed by the next one, which
    ends alike."""
    whole = jobs.fit(data, str(tmp_path / "whole"), replace(ASKED, kernel_store="none"))
    job = tmp_path / "job"
    seen = []

    class Listener(Watcher):
        def on_tiles(self, *_):
            seen.extend((job / "kernel").glob("block-*"))

    jobs.fit(data, str(job), replace(ASKED, max_rounds=2, kernel_store="zarr"), watcher=Listener())
    assert seen
    assert not (job / "kernel").exists()
    (job / "kernel" / "blocks-left").mkdir(parents=True)
    handle = jobs.open_job(str(job)).resume(max_rounds=3)
    assert handle.wait(60) is Status.DONE
    assert not (job / "kernel").exists()
    assert handle.model().digest() == whole.model.digest()
    assert handle.state().plan["kernel_store"] == "zarr"
