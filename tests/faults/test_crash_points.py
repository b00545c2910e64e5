"""kill −9 at every file operation of a job: what is left behind is resumed to the bits of the undisturbed job.

    python -m pytest -m slow -s tests/faults/test_crash_points.py     # prints the number of points

``EVERY`` (environment, 1 if not given) tries each n-th operation only: an opening for writing, a rename, a link, a
removal or a new folder, below the folder of the job.
"""

from __future__ import annotations

import os

import pytest
from fault_cases import assert_same_end, carry, carry_learning_again, crash, queued, rows, wait_for

from partirvm import ingest
from partirvm.options import Request

pytestmark = [pytest.mark.slow, pytest.mark.bits, pytest.mark.timeout(3600)]

EVERY = int(os.environ.get("EVERY", "1"))

KINDS = {
    "incremental": (carry, Request(gamma=2.0, strategy="incremental", partition_size=150, max_rounds=2)),
    "split-merge": (carry, Request(gamma=2.0, strategy="split-merge", partition_size=150)),
    "learned again": (
        carry_learning_again,
        Request(gamma="learn-per-feature", strategy="working-set", partition_size=30, max_rounds=2),
    ),
}


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """DATA to train on and to look at meanwhile."""
    folder = tmp_path_factory.mktemp("small")
    ingest(rows(500, 0), folder / "train.zarr", tile_rows=128)
    ingest(rows(100, 1), folder / "test.zarr", tile_rows=32)
    return str(folder / "train.zarr"), str(folder / "test.zarr")


@pytest.mark.parametrize("kind", KINDS)
def test_a_job_killed_at_every_file_operation(breeder, small, tmp_path, capsys, kind):
    """Resumed at once, to the model, history and reason of the undisturbed job."""
    work, parameters = KINDS[kind]
    whole = queued(small, tmp_path / "whole", parameters)
    arguments = {"work": work.__name__, "folder": whole.location}
    total = breeder.call(crash, point=0, job=whole.location, **arguments).end()
    kernels = [line["kind"] for line in whole.state().history].count("kernel")
    assert kernels > 1 if work is carry_learning_again else kernels == 0
    killed = 0
    for point in range(1, total + 1, EVERY):
        store = queued(small, tmp_path / f"job{point}", parameters)
        arguments["folder"] = store.location
        child = breeder.call(crash, point=point, job=store.location, **arguments)
        wait_for(lambda child=child: child.gone, "the end of a process")
        killed += not child.out.exists()
        store.state()
        breeder.call(work, job=store.location, patience=0.0).end()
        assert_same_end(store, whole)
        store.folder.remove()
    assert killed > 0.9 * total / EVERY
    with capsys.disabled():
        print(f"\n{kind}: {killed} kills among {total} file operations, same bits after each")
