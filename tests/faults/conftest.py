"""Data, jobs that nobody disturbed, and a process that forks others."""

from functools import cache

import pytest
from fault_cases import make_class_data, make_data, queued
from fault_processes import carry_counting, mother

from partirvm.jobs.state import Status


@pytest.fixture(scope="session")
def breeder(tmp_path_factory):
    """Forks processes that have imported everything already."""
    folder = tmp_path_factory.mktemp("said")
    folder.parent.parent.chmod(0o755)
    folder.parent.chmod(0o755)
    folder.chmod(0o777)  # some of them are nobody
    with mother(folder) as made:
        yield made


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """DATA to train on, DATA to look at meanwhile."""
    return make_data(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="session")
def data_of(data, tmp_path_factory):
    """A function of the name of a case: its DATA."""
    classes = cache(lambda: make_class_data(tmp_path_factory.mktemp("classes")))
    return lambda case: classes() if case in ("classes", "pooled") else data


@pytest.fixture(scope="session")
def undisturbed(breeder, data_of, tmp_path_factory):
    """A job of each case, done without a fault when it is first asked for."""
    folder = tmp_path_factory.mktemp("undisturbed")

    class Undisturbed(dict):
        def __missing__(self, case):
            store = self[case] = queued(data_of(case), folder / case, case)
            _, store.things = breeder.call(carry_counting, job=store.location).end()
            assert store.state().status is Status.DONE
            assert [event["event"] for event in store.events()].count("running") == 1
            return store

    return Undisturbed()
