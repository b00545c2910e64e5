"""``kernel_store``: the plan's choice, equal models, and the memory limit."""

from dataclasses import replace

import pytest
from surfaces import bent_plane

from partirvm import jobs
from partirvm.data import ArraySource, ingest
from partirvm.execution import LocalExecutor
from partirvm.fit import Watcher
from partirvm.jobs import Status
from partirvm.options import Request
from partirvm.planning import DataShape, Machine, kernel_store
from partirvm.process import resident_memory
from partirvm.resolve.resolve import resolve
from partirvm.types import Columns

pytestmark = pytest.mark.bits

REQUEST = Request(gamma=0.5, partition_size=40, max_rounds=3)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return ingest(
        bent_plane(3000, seed=5, noise=0.1),
        tmp_path_factory.mktemp("store") / "rows.zarr",
        tile_rows=512,
    ).url


@pytest.mark.parametrize(
    ("option", "spare", "classes", "where"),
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
def test_blocks_are_kept_if_passes_repeat_columns(option, spare, classes, where):
    """Other fits keep no blocks unless the option is given."""
    shape = DataShape(10_000, 2, 1, 1000, newton=classes)
    machine = Machine(1, 100 << 20, 4 << 30)
    store = kernel_store(Request(kernel_store=option), shape, machine, 100, spare)
    assert store.where == where
    assert store.bytes <= 8 * 10_000 * 100
    if where == "memory":
        assert store.bytes <= spare


def test_blocks_for_classes_take_a_quarter_of_the_default_limit():
    """A given limit may be used completely."""
    X, y = bent_plane(400_000, seed=5, noise=0.1)
    classes = Columns(("a", "b"), classes=("no", "yes"))
    source = ArraySource(X, (y > 0).astype(float), columns=classes)
    default = resident_memory() + (400 << 20)

    class Limited(LocalExecutor):
        def machine(self, limit):
            return super().machine(limit or default)

    executor = Limited(1)
    request = replace(REQUEST, fit_rows="full", partition_size=100, likelihood="multinomial")
    auto = resolve(source, request, executor).plan
    limited = resolve(source, replace(request, memory_limit=default), executor).plan
    executor.close()
    assert auto.kernel_store.where == limited.kernel_store.where == "memory"
    assert auto.machine.limit == default
    assert auto.kernel_store.bytes <= default / 4 < limited.kernel_store.bytes
    assert limited.peak <= default


@pytest.mark.slow
def test_a_job_stores_blocks_only_while_it_runs(data, tmp_path):
    """Blocks are in JOB/kernel; the next process removes those of a killed one."""
    complete = jobs.fit(data, str(tmp_path / "whole"), replace(REQUEST, kernel_store="none"))
    job = tmp_path / "job"
    blocks = []

    class Listener(Watcher):
        def on_tiles(self, *_):
            blocks.extend((job / "kernel").glob("block-*"))

    jobs.fit(
        data, str(job), replace(REQUEST, max_rounds=2, kernel_store="zarr"), watcher=Listener()
    )
    assert blocks
    assert not (job / "kernel").exists()
    (job / "kernel" / "blocks-left").mkdir(parents=True)
    handle = jobs.open_job(str(job)).resume(max_rounds=3)
    assert handle.wait(60) is Status.DONE
    assert not (job / "kernel").exists()
    assert handle.model().digest() == complete.model.digest()
    assert handle.state().plan["kernel_store"] == "zarr"
