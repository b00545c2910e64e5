"""Checkpoints of fits of classes: the bits of every state come back, and a run goes on from any of them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from same import assert_same, reread

from partirvm.data import as_source
from partirvm.execution import LocalExecutor
from partirvm.jobs.checkpoint import attached, load_checkpoint, load_spec, save_checkpoint, save_spec
from partirvm.jobs.driver import Driver, MemoryJournal
from partirvm.options import Request
from partirvm.setup.resolve import resolve
from partirvm.strategies import STRATEGIES
from partirvm.types import Columns

FITS = [
    *((name, 2, "auto", "auto") for name in ("working-set", "incremental", "split-merge")),
    *(("working-set", 3, multi_class, "auto") for multi_class in ("multinomial", "ovr")),
    ("split-merge", 3, "ovr", "fixed-point"),
]


@dataclass
class Keeping(MemoryJournal):
    """Checkpoints too, with the lines of history and the model that stood when they were handed over."""

    checkpoints: list = field(default_factory=list)

    def checkpoint(self, checkpoint):
        """Keep it."""
        self.checkpoints.append((checkpoint, list(self.history), self.model))


def resolved(name, K, multi_class, solver="auto"):
    """A fit of 240 rows of K classes, in partitions of 60."""
    rng = np.random.default_rng(K)
    X = rng.normal(size=(240, 2))
    codes = np.digitize(X[:, 0] + np.sin(2 * X[:, 1]) + 0.4 * rng.normal(size=240), [0.0, 1.0][: K - 1])
    source = as_source(X, codes, tile_rows=64, columns=Columns(("a", "b"), "kind", {}, tuple(range(K))))
    asked = Request(gamma=0.5, strategy=name, partition_size=60, multi_class=multi_class, solver=solver)
    executor = LocalExecutor(1)
    asked = replace(asked, max_rounds=None if name == "split-merge" else 4)
    return resolve(source, asked, executor), source, executor


def run(name, fit, source, executor, journal, **resumed):
    """Drive a strategy; the bits of the model that it leaves."""
    outcome = Driver(executor=executor, source=source).run(
        STRATEGIES[name](), fit.problem, fit.options, journal, **resumed
    )
    model = journal.model
    return outcome.reason, model.mean.tobytes(), model.root.tobytes(), model.alpha.tobytes(), model.log_evidence


@pytest.mark.parametrize(("name", "K", "multi_class", "solver"), FITS)
def test_every_state_comes_back_and_goes_on(name, K, multi_class, solver, tmp_path):
    """Through the codec each, through the disk one in the middle, from which the run ends in the same bits."""
    fit, source, executor = resolved(name, K, multi_class, solver)
    journal = Keeping()
    whole = run(name, fit, source, executor, journal)
    assert len(journal.checkpoints) >= 2
    for checkpoint, _, _ in journal.checkpoints:
        found = reread(checkpoint, fit.problem, fit.options)
        for each in ("fit", "parts", "below", "best", "used"):
            assert_same(getattr(checkpoint, each, None), getattr(found, each, None))
    middle, history, model = journal.checkpoints[len(journal.checkpoints) // 2]
    save_checkpoint(middle, str(tmp_path / "one"))
    found = attached(load_checkpoint(str(tmp_path / "one")), fit.problem, fit.options)
    later = MemoryJournal(model, history)
    resumed = {"resume": found, "usable": model is not None}
    assert run(name, fit, source, executor, later, **resumed) == whole
    assert [line["vectors"] for line in later.history] == [line["vectors"] for line in journal.history]
    executor.close()


def test_no_file_holds_the_codes_of_all_rows(tmp_path):
    """They are read from the source; neither the checkpoint nor the spec has an array of N of them."""
    fit, source, executor = resolved("working-set", 3, "auto")
    journal = Keeping()
    run("working-set", fit, source, executor, journal)
    executor.close()
    assert fit.problem.codes.dtype == np.int8
    save_checkpoint(journal.checkpoints[0][0], str(tmp_path / "c"))
    save_spec(fit, str(tmp_path / "s"))
    assert load_checkpoint(str(tmp_path / "c")).problem.codes is None
    assert load_spec(str(tmp_path / "s")).problem.codes is None
    for path in (tmp_path / "c", tmp_path / "s"):
        assert b'"|i1"' not in (path / "packed" / "c" / "0").read_bytes()
    assert_same(fit, load_spec(str(tmp_path / "s")).with_codes(fit.problem.codes))
