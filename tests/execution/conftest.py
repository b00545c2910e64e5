"""Rows on disk and in memory, and executors."""

import pytest
from backend_cases import EXECUTORS, PASSES, TILE, rows

from partirvm.data import ArraySource, ingest
from partirvm.execution import LocalExecutor, executor_for


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Return the rows as DATA on disk, not shuffled."""
    folder = tmp_path_factory.mktemp("data")
    return ingest(rows(), folder / "rows.zarr", tile_rows=TILE, shuffle=None)


@pytest.fixture(scope="module")
def memory():
    """Return the rows as arrays in this process."""
    return ArraySource(*rows(), tile_rows=TILE)


CASES = [
    pytest.param("one thread", marks=pytest.mark.slow),  # the reference has one thread, too
    "three threads",
    pytest.param("one worker", marks=pytest.mark.slow),  # test_executor_fits compares whole fits
    pytest.param("three workers", marks=pytest.mark.system),
]
assert len(CASES) == len(EXECUTORS)


@pytest.fixture(scope="module", params=CASES)
def executor(request):
    """Yield each kind of executor in turn."""
    if "thread" in request.param:
        runner = LocalExecutor(1 if request.param == "one thread" else 3)
    else:
        runner = executor_for(request.getfixturevalue(request.param.replace(" ", "_")))
    yield runner
    runner.close()


@pytest.fixture(scope="module")
def reference(data):
    """Return statistics of one thread over DATA, from each pass on its own."""
    single = LocalExecutor(1)
    yield {name: single.run([pass_], data)[0] for name, pass_ in PASSES.items()}
    single.close()
