"""The driver continues from any checkpoint with the same bits as an uninterrupted run."""

import pickle
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
from by_default import some
from journals import Recorder, left
from same import assert_same, reread
from surfaces import bent_plane

from partirvm.core import Termination
from partirvm.data import ArraySource
from partirvm.execution import LocalExecutor
from partirvm.fit import Driver, MemoryJournal
from partirvm.options import Request
from partirvm.resolve.resolve import resolve
from partirvm.strategies import STRATEGIES
from partirvm.types import Columns

RUNS = [
    ("working-set", "growing", False, {}),
    ("working-set", "growing", True, {}),
    ("working-set", "sample", True, {}),
    ("working-set", "full", False, {}),
    ("incremental", "growing", False, {}),
    ("incremental", "sample", True, {}),
    ("split-merge", "full", True, {}),
    ("split-merge", "sample", False, {}),
    ("working-set", "full", False, {"classes": 2}),
    ("incremental", "full", True, {"classes": 2}),
    ("working-set", "full", True, {"classes": 3, "likelihood": "multinomial"}),
    ("split-merge", "full", False, {"classes": 3}),
]
"""Strategy, rows of the likelihood, whether rows are left out, and other options."""

BY_DEFAULT = [RUNS[k] for k in (3, 7, 10, 11)]


def rows_of(classes=0, n=700):
    """Return inputs, and targets or the codes of this many classes."""
    X, y = bent_plane(n)
    return X, np.digitize(y, [0.0, 1.0][: classes - 1]) if classes else y


@pytest.mark.usefixtures("interruptions")
@pytest.mark.parametrize(("strategy", "likelihood", "validated", "options"), some(RUNS, BY_DEFAULT))
def test_a_run_continues_from_every_checkpoint_to_the_bit(strategy, likelihood, validated, options):
    """Model and history equal those of the uninterrupted run; at most one round is repeated."""
    options = dict(options)
    classes = options.pop("classes", 0)
    X, y = rows_of(classes, 340 if classes else 700)
    columns = Columns(("a", "b"), "kind", {}, tuple(range(classes))) if classes else None
    held_out = ArraySource(X[:100], y[:100], columns=columns) if validated else None
    source = ArraySource(X[100:], y[100:], tile_rows=128, columns=columns)
    limit = None if strategy == "split-merge" else 5
    options |= {"fit_rows": likelihood, "sample_rows": 300, "max_rounds": limit}
    request = Request(gamma=0.4, strategy=strategy, partition_size=60, **options)
    executor = LocalExecutor(2)
    spec = resolve(source, request, executor, held_out)
    driver = Driver(executor, source, held_out)
    complete = Recorder()
    machine = type("FewRows", (STRATEGIES[strategy],), {"rows_per_column": 4})
    end = driver.run(machine(), spec.problem, spec.options, complete)
    assert len(complete.checkpoints) >= 2
    for lines, stored, model in complete.checkpoints:
        checkpoint = pickle.loads(stored)
        journal = MemoryJournal(model, complete.history[:lines])
        stored_checkpoint = reread(checkpoint, spec.problem, spec.options)
        for one, two in (
            (checkpoint, stored_checkpoint),
            (getattr(checkpoint, "best", None), getattr(stored_checkpoint, "best", None)),
        ):
            for name in ("fit", "parts", "below", "used"):
                assert_same(getattr(one, name, None), getattr(two, name, None))
        later = replace(driver, elapsed=100.0, usable=model is not None)
        resumed = later.run(machine(), spec.problem, spec.options, journal, stored_checkpoint)
        assert resumed.reason is end.reason
        assert left(journal) == left(complete)
        assert journal.history[-1]["seconds"] > 100
    executor.close()


@contextmanager
def recorded(max_rounds):
    """Return driver, spec and journal of a complete working-set run."""
    executor = LocalExecutor(1)
    driver = Driver(executor, ArraySource(*rows_of()))
    spec = resolve(
        driver.source, Request(gamma=0.4, partition_size=60, max_rounds=max_rounds), executor
    )
    journal = Recorder()
    driver.run(STRATEGIES["working-set"](), spec.problem, spec.options, journal)
    yield driver, spec, journal
    executor.close()


def test_the_last_checkpoint_contains_the_reason_of_the_end():
    """With a raised limit, the run continues from the round before the last fit."""
    with recorded(3) as (_, _, journal):
        assert [lines for lines, *_ in journal.checkpoints] == [1, 2]
        assert [line["kind"] for line in journal.history] == ["round", "round", "final"]
        assert (journal.final.round, journal.final.end) == (3, Termination.ROUNDS)


def test_an_earlier_model_can_end_a_resumed_run_at_once():
    """``usable``: an interruption in the first round ends the run with that model."""
    with recorded(4) as (driver, spec, journal):
        at = pickle.loads(journal.checkpoints[0][1])
        late = replace(driver, interrupted=lambda: Termination.TIME, usable=True)
        again = MemoryJournal()
        machine = STRATEGIES["working-set"]()
        end = late.run(machine, spec.problem, spec.options, again, at)
        assert end.reason is Termination.TIME
        assert again.history == []
