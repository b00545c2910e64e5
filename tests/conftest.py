"""Settings for hypothesis, and fixtures that several folders share."""

import os
import shutil
import uuid
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
from _pytest.doctest import DoctestModule
from clusters import cluster
from hypothesis import HealthCheck, settings
from sharding import longest_first, record, seconds_of_units, shards, unit_of
from threadpoolctl import threadpool_limits
from tiers import Guard, tier_of
from waiting import LOAD

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
    """Keep test files in memory if enough is free, so that processes do not wait for a disk;
    measure the seconds of units on request."""
    config.option.timeout = LOAD * float(config.getini("timeout"))
    if config.getoption("--record-seconds") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Seconds())
    memory = Path("/dev/shm")
    if (
        config.option.basetemp is None
        and os.access(memory, os.W_OK)
        and shutil.disk_usage(memory).free > FREE_BYTES
    ):
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(memory))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of ``sharding``."""
    parser.addoption("--shard", metavar="K/N", help="run the K-th of N parts of equal duration")
    parser.addoption("--record-seconds", action="store_true", help="store the units' seconds")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With ``--dist loadfile``, distribute units in the tests' order."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Units(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return unit_of(nodeid)

    config.option.loadscopereorder = False
    return Units(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark system tests, and extend time limits by the load of the machine."""
    if limit := item.get_closest_marker("timeout"):
        item.add_marker(pytest.mark.timeout(LOAD * limit.args[0]), append=False)
    if tier_of(item) == "system":
        item.add_marker("system")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Select a shard of the tests that were selected by marker; run the longest units first."""
    tiers = {tier_of(item) for item in items}
    if len(tiers) != 1:
        return
    seconds = seconds_of_units(*tiers)
    units = longest_first((unit_of(item.nodeid) for item in items), seconds)
    if shard := config.getoption("--shard"):
        number, count = map(int, shard.split("/"))
        units = shards(units, seconds, count)[number - 1]
        others = [item for item in items if unit_of(item.nodeid) not in units]
        config.hook.pytest_deselected(items=others)
    order = {unit: place for place, unit in enumerate(units)}
    selected = [item for item in items if unit_of(item.nodeid) in order]
    items[:] = sorted(selected, key=lambda item: order[unit_of(item.nodeid)])


class Seconds:
    """Measures the seconds of each unit, and stores them at the end of a session."""

    def __init__(self) -> None:
        self._spent: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._spent[unit_of(report.nodeid)] += report.duration

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        tier = next(
            (name for name in ("slow", "system") if session.config.option.markexpr == name), "unit"
        )
        record(tier, self._spent)


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path) -> Generator[None, list[Any], list[Any]]:
    """Do not collect doctests from test modules: each module would be collected twice."""
    found = yield
    return [
        each
        for each in found
        if not (file_path.match("test_*.py") and isinstance(each, DoctestModule))
    ]


guard = Guard()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, bool, bool]:
    """Refuse starts of processes during unit tests."""
    with guard.watching(item):
        return (yield)


@pytest.fixture(scope="session")
def processes() -> None:
    """Allow a test to start processes, clusters and servers: it is a system test."""


@pytest.fixture(scope="session")
def interruptions() -> None:
    """Mark a system test that interrupts jobs at many places."""


@pytest.fixture(scope="session")
def forgeries() -> None:
    """Mark a system test that reads many forged or damaged files."""


@pytest.fixture(scope="session")
def default_fits() -> None:
    """Mark a system test that judges default fits on new rows."""


@pytest.fixture(scope="session")
def snippets() -> None:
    """Mark a system test that runs the code or commands of the documentation."""


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
def one_worker(processes: None) -> Iterator[Any]:
    """Yield a client of a cluster of one worker with one thread, which tests leave unchanged."""
    with cluster(1) as client:
        yield client


@pytest.fixture(scope="session")
def three_workers(processes: None) -> Iterator[Any]:
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
