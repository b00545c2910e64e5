"""The driver goes on from any of its checkpoints, with the bits of a run that was never away."""

from __future__ import annotations

import pickle
from contextlib import contextmanager
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from by_default import some

from partirvm.core.termination import Termination
from partirvm.data import ArraySource
from partirvm.execution import LocalExecutor
from partirvm.jobs.driver import Driver, MemoryJournal
from partirvm.options import Request
from partirvm.setup.resolve import resolve
from partirvm.strategies import STRATEGIES, fit_rows

TIMES = {"seconds", "pass_seconds", "solve_seconds", "solve_began", "peak_memory", "kernel_evaluated", "kernel_kept"}


class Recorder(MemoryJournal):
    """Keeps every checkpoint as bytes, with the number of lines that were written before it."""

    def __init__(self):
        super().__init__()
        self.checkpoints, self.final = [], None

    def checkpoint(self, checkpoint):
        if checkpoint.end is not None:
            self.final = checkpoint
        else:
            self.checkpoints.append((len(self.history), pickle.dumps(checkpoint)))


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(3)
    X = rng.uniform(-3, 3, size=(700, 2))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] + 0.2 * rng.normal(size=700)


def left(journal):
    """The model's bits and the lines of history, but for times and bytes."""
    lines = [{k: repr(v) for k, v in line.items() if k not in TIMES} for line in journal.history]
    model = journal.model
    return model.mean.tobytes(), model.design.labels.tobytes(), model.root.tobytes(), lines


@pytest.mark.parametrize(
    ("strategy", "likelihood", "validated"),
    some(
        [
            *product(["split-merge", "incremental", "working-set"], ["full", "sample"], [False, True]),
            *product(["incremental", "working-set"], ["growing"], [False, True]),
        ],
        {
            *(("working-set", "growing", False), ("working-set", "growing", True), ("incremental", "growing", False)),
            *(("split-merge", "full", True), ("split-merge", "sample", False)),
            *(("incremental", "sample", True)),
            *(("working-set", "sample", True), ("working-set", "full", False)),
        },
    ),
)
def test_a_run_goes_on_from_every_checkpoint(rows, strategy, likelihood, validated, monkeypatch):
    """Model and history are those of the run that was never away; at most one round is done again."""
    monkeypatch.setattr(fit_rows, "ROWS_PER_COLUMN", 4)
    X, y = rows
    held_out = ArraySource(X[:100], y[:100]) if validated else None
    source = ArraySource(X[100:], y[100:], tile_rows=128)
    limit = None if strategy == "split-merge" else 5
    asked = Request(
        gamma=0.4, strategy=strategy, fit_rows=likelihood, sample_rows=300, partition_size=60, max_rounds=limit
    )
    executor = LocalExecutor(2)
    spec = resolve(source, asked, executor, held_out)
    driver = Driver(executor, source, held_out)
    whole = Recorder()
    machine = STRATEGIES[strategy]
    end = driver.run(machine(), spec.problem, spec.options, whole)
    assert len(whole.checkpoints) >= 3
    for lines, stored in whole.checkpoints:
        journal = MemoryJournal(history=whole.history[:lines])
        resumed = driver.run(machine(), spec.problem, spec.options, journal, resume=pickle.loads(stored), elapsed=100.0)
        assert resumed.reason is end.reason
        assert left(journal) == left(whole)
        assert journal.history[-1]["seconds"] > 100
    executor.close()


@contextmanager
def recorded(rows, max_rounds):
    """A run of the working set to its end: its driver, its spec, and what it left."""
    executor = LocalExecutor(1)
    driver = Driver(executor, ArraySource(*rows))
    spec = resolve(driver.source, Request(gamma=0.4, partition_size=60, max_rounds=max_rounds), executor)
    journal = Recorder()
    driver.run(STRATEGIES["working-set"](), spec.problem, spec.options, journal)
    yield driver, spec, journal
    executor.close()


def test_the_checkpoint_of_a_run_that_is_over_says_so(rows):
    """The last fit is none to go on from without new rows: a limit that is raised later finds the round before it."""
    with recorded(rows, 3) as (_, _, journal):
        assert [lines for lines, _ in journal.checkpoints] == [1, 2]
        assert [line["kind"] for line in journal.history] == ["round", "round", "final"]
        assert (journal.final.round, journal.final.end) == (3, Termination.ROUNDS)


def test_a_model_that_was_there_before_can_end_a_resumed_run_at_once(rows):
    """``usable``: an interruption in the first round after the resume ends it with the model that is there."""
    with recorded(rows, 4) as (driver, spec, journal):
        at = pickle.loads(journal.checkpoints[0][1])
        late = replace(driver, interrupted=lambda: Termination.TIME)
        again = MemoryJournal()
        machine = STRATEGIES["working-set"]()
        found = late.run(machine, spec.problem, spec.options, again, resume=at, usable=True)
        assert found.reason is Termination.TIME
        assert again.history == []
