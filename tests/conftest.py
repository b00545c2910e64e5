"""Settings for hypothesis, and fixtures that several folders share."""

import os
import shutil
import uuid
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
from _pytest.doctest import DoctestModule
from clusters import cluster
from hypothesis import HealthCheck, settings
from threadpoolctl import threadpool_limits

collect_ignore_glob = ["*conftest.py"]
"""Several folders have a file of this name, and doctests cannot be collected from all of them."""

settings.register_profile(
    "partirvm",
    derandomize=True,
    deadline=None,
    database=None,
    max_examples=12,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.register_profile(
    "thorough", settings.get_profile("partirvm"), derandomize=False, max_examples=300
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "partirvm"))


QUIET = {
    "WORKER__PROFILE__ENABLED": "False",
    "ADMIN__TICK__INTERVAL": "1s",
    "ADMIN__SYSTEM_MONITOR__INTERVAL": "5s",
}
QUIET["WORKER__MULTIPROCESSING_METHOD"] = "forkserver"
"""Settings for Dask: profilers and monitors take most of the time of an idle cluster and are off;
each worker imports Dask once."""

os.environ.setdefault(
    "OMP_WAIT_POLICY", "PASSIVE"
)  # boosting in several processes would waste time on busy waiting

for name, value in QUIET.items():
    os.environ.setdefault(f"DASK_DISTRIBUTED__{name}", value)

FREE_BYTES = 4 << 30
"""Bytes that must be free in an in-memory file system to hold the test files."""


def pytest_configure(config: pytest.Config) -> None:
    """Keep test files in memory if enough is free, so that processes do not wait for a disk."""
    memory = Path("/dev/shm")
    if (
        config.option.basetemp is None
        and os.access(memory, os.W_OK)
        and shutil.disk_usage(memory).free > FREE_BYTES
    ):
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(memory))


TOGETHER = ("tests/execution", "tests/faults", "tests/objects")
"""Folders that are each one unit for xdist: their tests share clusters, servers and undisturbed
jobs."""

FIRST = (
    *TOGETHER,
    "tests/docs/test_guide",
    "tests/cli",
    "tests/bits",
    "tests/jobs",
    "tests/learning",
    "tests/report",
)
"""The longest units: they run first, so that processes end at about the same time."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With ``--dist loadfile``, distribute units of ``TOGETHER`` and files in the tests' order."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Units(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return next(filter(nodeid.startswith, TOGETHER), nodeid.partition("::")[0])

    config.option.loadscopereorder = False
    return Units(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order tests by the position of their unit in ``FIRST``."""
    items.sort(
        key=lambda item: next(
            (k for k, unit in enumerate(FIRST) if item.nodeid.startswith(unit)), len(FIRST)
        )
    )


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path) -> Generator[None, list[Any], list[Any]]:
    """Do not collect doctests from test modules: each module would be collected twice."""
    found = yield
    return [
        each
        for each in found
        if not (file_path.match("test_*.py") and isinstance(each, DoctestModule))
    ]


@pytest.fixture(scope="session", autouse=True)
def no_waiting_for_the_disk():
    """Skip waiting for flushes: no test simulates a power failure."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "fsync", lambda handle: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread, so that test processes do not wait for each other."""
    with threadpool_limits(1, user_api="blas"):
        yield


@pytest.fixture(autouse=True)
def numbers_of_every_run() -> None:
    """Seed NumPy's global generator, which estimators without ``random_state`` use."""
    np.random.seed(0)  # noqa: NPY002


@pytest.fixture(scope="session")
def one_worker() -> Iterator[Any]:
    """Yield a client of a cluster of one worker with one thread, which tests leave unchanged."""
    with cluster(1) as client:
        yield client


@pytest.fixture(scope="session")
def three_workers() -> Iterator[Any]:
    """Yield a client of a cluster of three workers with one thread, which tests leave unchanged."""
    with cluster(3) as client:
        yield client


@pytest.fixture(params=["folder", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Return a location for a job or a model, in each kind of store."""
    if request.param == "folder":
        yield str(tmp_path / "deep" / "job")
    else:
        name = f"places-{uuid.uuid4().hex}"
        yield f"memory://{name}/one"
        fs = fsspec.filesystem("memory")
        if fs.exists(f"/{name}"):
            fs.rm(f"/{name}", recursive=True)


@pytest.fixture
def open_to_all(tmp_path: Path) -> Path:
    """Return ``tmp_path``, made accessible, like its parents, to an unprivileged process."""
    for folder in (tmp_path, *tmp_path.parents):
        mode = folder.stat().st_mode
        if mode & 0o005 != 0o005:
            folder.chmod(mode | 0o055)
    return tmp_path


@pytest.fixture
def quick_learning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Learn default kernels in fewer steps and from fewer rows: hundreds of fits learn one."""
    from partirvm.learning import SearchEffort

    quick = SearchEffort(evaluations=3, starts=(1.0,), judged=10**9, class_rows=60)
    monkeypatch.setattr("partirvm.resolve.samples.EFFORT", quick)


@pytest.fixture
def separate_addresses() -> Iterator[None]:
    """Begin without logins; restore the logins and the allowed protocols of this process later."""
    from partirvm.storage import address

    protocols = set(address.allowed)
    logins = dict(address._logins)
    address._logins.clear()
    yield
    address.allowed.intersection_update(protocols)
    address._logins.clear()
    address._logins.update(logins)


@pytest.fixture
def without_charts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Build pages as without matplotlib, because charts take most of the time."""
    monkeypatch.setattr("partirvm.report.page.find_spec", lambda name: None)


@pytest.fixture
def rng() -> np.random.Generator:
    """Return a generator with a fixed seed."""
    return np.random.default_rng(20260801)
