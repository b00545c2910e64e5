"""kill −9 while rows of local residuals are sorted, written as cells, and named by a model of a job."""

from __future__ import annotations

from pathlib import Path

import pytest
from fault_cases import bits, lines, queued
from fault_processes import PHASES, carry_to_cells
from local.on_disk import LONG, make_data, make_small, request, rows
from waiting import wait_for

from partirvm import jobs

NEW = rows(100, 1)[0]


@pytest.fixture
def killed(breeder, whole, tmp_path, monkeypatch):
    """Return a job that was killed in a phase."""
    make_small(monkeypatch.setattr)

    def made(phase):
        store = queued(whole[0], tmp_path / "job", request())
        child = breeder.call(carry_to_cells, job=store.location, phase=phase)
        wait_for(lambda: child.gone, "the end of a process")
        assert not child.out.exists(), child.out.read_text()
        assert len(there(store, "cells")) == 1
        return store

    return made


@pytest.fixture(scope="module")
def whole(breeder, tmp_path_factory):
    """DATA, and a job that nobody disturbed."""
    folder = tmp_path_factory.mktemp("whole")
    data = make_data(folder), None
    store = queued(data, folder / "job", request())
    breeder.call(carry_to_cells, job=store.location).end()
    return data, store


def there(store, series):
    return sorted(f"{series}/{path.name}" for path in Path(store.location, series).glob("*"))


@pytest.mark.bits
@pytest.mark.parametrize("phase", PHASES)
def test_a_kill_when(phase, breeder, whole, killed):
    """Resumed to the bits of the undisturbed job; readers always have a model; nothing stays that no event names."""
    store, reads = killed(phase), 0
    child = breeder.call(carry_to_cells, job=store.location)
    while not child.gone:
        store.model().predict(NEW)
        reads += 1
    child.end()
    assert reads
    found, expected = (each.model() for each in (store, whole[1]))
    assert bits(found.predictive.moments(NEW)) == bits(expected.predictive.moments(NEW))
    assert bits(found.with_cells_at("x")) == bits(expected.with_cells_at("x"))
    assert lines(store.state()) == lines(whole[1].state())
    named = [event["cell"] for event in store.events() if "cell" in event]
    assert there(store, "cells") == named
    assert len(named) == 1 + (phase == "no checkpoint has the end")
    models = [event["model"] for event in store.events() if "model" in event]
    assert there(store, "models") == models[-2:]


@pytest.mark.parametrize("phase", ["rows are sorted", "no event has the model"])
def test_cells_of_the_dead_go_although_the_next_attempt_writes_none(phase, killed):
    """It has room in memory."""
    store = killed(phase)
    again = jobs.Job(store.location).requeue(memory_limit=LONG)
    jobs.run_job(store.location, attempt=again.attempt, patience=0.0)
    assert store.model().residuals.cells.records is not None
    assert there(store, "cells") == []
