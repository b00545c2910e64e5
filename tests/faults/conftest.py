"""Data, undisturbed jobs, and a process that forks others."""

from functools import cache

import pytest
from fault_cases import make_class_data, make_data, queued
from fault_processes import carry_counting, forking

from partirvm.jobs import Status


@pytest.fixture(scope="session")
def forker(processes, tmp_path_factory):
    """Yield a process that forks others in which all modules are imported."""
    folder = tmp_path_factory.mktemp("said")
    folder.parent.parent.chmod(0o755)
    folder.parent.chmod(0o755)
    folder.chmod(0o777)  # some child processes run as nobody
    with forking(folder) as process:
        yield process


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """Return DATA of training rows and of held-out rows."""
    return make_data(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="session")
def data_of(data, tmp_path_factory):
    """Return a function that maps the name of a case to its DATA."""
    classes = cache(lambda: make_class_data(tmp_path_factory.mktemp("classes")))
    return lambda case: classes() if case in ("classes", "pooled") else data


@pytest.fixture(scope="session")
def undisturbed(forker, data_of, tmp_path_factory):
    """Return the finished jobs without faults by case, each fitted at its first use."""
    folder = tmp_path_factory.mktemp("undisturbed")

    class Undisturbed(dict):
        def __missing__(self, case):
            store = self[case] = queued(data_of(case), folder / case, case)
            _, store.things = forker.call(carry_counting, job=store.location).end()
            assert store.state().status is Status.DONE
            assert [event["event"] for event in store.events()].count("running") == 1
            return store

    return Undisturbed()
