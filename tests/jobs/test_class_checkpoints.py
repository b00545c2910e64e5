"""Checkpoints of fits of classes: the bits of every state come back, and a run goes on from any of them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from same import assert_same

from partirvm.backends import LocalExecutor
from partirvm.data import as_source
from partirvm.jobs.checkpoint import CODEC, load_checkpoint, save_checkpoint
from partirvm.jobs.driver import Checkpoint, Driver, MemoryJournal
from partirvm.options import Request
from partirvm.setup.resolve import prepare
from partirvm.strategies import STRATEGIES
from partirvm.types import Columns

FITS = [
    *((name, 2, "auto", "auto") for name in ("working-set", "incremental", "split-merge")),
    *(("working-set", 3, multi_class, "auto") for multi_class in ("multinomial", "ovr")),
    ("split-merge", 3, "ovr", "fast"),
]


@dataclass
class Keeping(MemoryJournal):
    """Checkpoints too, with the lines of history and the model that stood when they were handed over."""

    checkpoints: list = field(default_factory=list)

    def checkpoint(self, checkpoint):
        """Keep it."""
        self.checkpoints.append((checkpoint, list(self.history), self.model))


def prepared(name, K, multi_class, solver="auto"):
    """A fit of 240 rows of K classes, in partitions of 60."""
    rng = np.random.default_rng(K)
    X = rng.normal(size=(240, 2))
    codes = np.digitize(X[:, 0] + np.sin(2 * X[:, 1]) + 0.4 * rng.normal(size=240), [0.0, 1.0][: K - 1])
    source = as_source(X, codes, tile_rows=64, columns=Columns(("a", "b"), "kind", {}, tuple(range(K))))
    asked = Request(gamma=0.5, strategy=name, partition_size=60, multi_class=multi_class, solver=solver)
    executor = LocalExecutor(1)
    return prepare(source, replace(asked, max_rounds=None if name == "split-merge" else 4), executor), executor


def run(name, fit, executor, journal, **resumed):
    """Drive a strategy; the bits of the model that it leaves."""
    outcome = Driver(executor=executor, source=fit.source).run(
        STRATEGIES[name](), fit.problem, fit.options, journal, **resumed
    )
    model = journal.model
    return outcome.reason, model.mean.tobytes(), model.root.tobytes(), model.alpha.tobytes(), model.log_evidence


@pytest.mark.parametrize(("name", "K", "multi_class", "solver"), FITS)
def test_every_state_comes_back_and_goes_on(name, K, multi_class, solver, tmp_path):
    """Through the codec each, through the disk one in the middle, from which the run ends in the same bits."""
    fit, executor = prepared(name, K, multi_class, solver)
    journal = Keeping()
    whole = run(name, fit, executor, journal)
    assert len(journal.checkpoints) >= 2
    for checkpoint, _, _ in journal.checkpoints:
        tree, arrays = CODEC.encode(checkpoint.state)
        assert_same(checkpoint.state, CODEC.decode(tree, [array.copy(order="K") for array in arrays]))
    middle, history, model = journal.checkpoints[len(journal.checkpoints) // 2]
    save_checkpoint({"state": middle.state, "waiting": middle.waiting}, str(tmp_path / "one"))
    found = load_checkpoint(str(tmp_path / "one"))
    assert_same(middle.state, found["state"])
    later = MemoryJournal(model, history)
    resumed = {"resume": Checkpoint(found["state"], found["waiting"]), "usable": model is not None}
    assert run(name, fit, executor, later, **resumed) == whole
    assert [line["vectors"] for line in later.history] == [line["vectors"] for line in journal.history]
    executor.close()


@pytest.mark.parametrize("dtype", [np.int8, np.int16])
def test_codes_come_back_in_their_own_bytes(dtype, tmp_path):
    """One byte a row, two for many classes."""
    fit, executor = prepared("working-set", 3, "auto")
    executor.close()
    assert fit.problem.codes.dtype == np.int8
    problem = replace(fit.problem, codes=fit.problem.codes.astype(dtype))
    save_checkpoint(problem, str(tmp_path / "one"))
    found = load_checkpoint(str(tmp_path / "one"))
    assert found.codes.dtype == dtype
    assert_same(problem, found)
