"""Writes ``job``, a job of the present format, and ``expected.json``, what is in it.

    python tests/jobs/golden/make.py FOLDER            a target that is a number
    python tests/jobs/golden/make.py FOLDER classes    one of three classes

Run it when the format has a new number, into a folder of that number; what older versions wrote stays, and stays
readable. Times, hosts and processes are made up; the strategy is a real one, stopped in the middle of a round.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parents[1] / "strategies")]

from simulator import Simulator, wave  # noqa: E402

from partirvm.backends import LocalExecutor  # noqa: E402
from partirvm.core.termination import Termination  # noqa: E402
from partirvm.data import as_source  # noqa: E402
from partirvm.jobs.driver import Driver, MemoryJournal  # noqa: E402
from partirvm.jobs.store import JobStore  # noqa: E402
from partirvm.model import Model  # noqa: E402
from partirvm.service.preparing import Prepared, prepare  # noqa: E402
from partirvm.storage.process import Process  # noqa: E402
from partirvm.strategies import STRATEGIES  # noqa: E402
from partirvm.strategies.instructions import Save, Solve  # noqa: E402
from partirvm.strategies.problem import Options  # noqa: E402
from partirvm.types import Columns, FitParameters  # noqa: E402


def main(folder: Path) -> None:
    """Queue, run two rounds and a half, get aborted."""
    store = JobStore.create(str(folder / "job"), {
        "data": "trips.zarr", "validation": None, "fingerprint": {"n_rows": 40},
        "parameters": {"gamma": 0.5, "seed": 7}, "tile_rows": 16384, "versions": {"partirvm": "0.1.0"},
    })  # fmt: skip
    store.record({"event": "queued", "reason": "submitted"})
    lease = store.acquire()
    store.record({"event": "running", "reason": "started", "history": 0})
    store.record({"event": "plan", "strategy": "working-set", "partition_size": 8})
    X, y = wave(n=40)
    simulator = Simulator(X, y, held_out=wave(n=10, seed=1))
    strategy = STRATEGIES["working-set"]()
    state, instructions = strategy.start(simulator.problem, Options(partition_size=8, selection="error"))
    rounds = 0
    while not (rounds == 2 and isinstance(instructions[0], Solve)):
        if isinstance(instructions[0], Save):
            (save,) = instructions
            rounds += 1
            store.save(Model.from_fit(save.design, save.fit, Columns(("a", "b"), "fare")))
            store.record({"event": "fit", "number": rounds, "vectors": save.record.vectors})
        events = tuple(map(simulator.answer, instructions))
        state, instructions = strategy.next(state, *events)
    store.checkpoint({"state": state, "instructions": instructions}, history=rounds)
    store.request("abort", 1, "flat")
    store.record({"event": "aborting", "reason": "flat"})
    store.record({"event": "aborted", "reason": "flat"})
    lease.release()
    expected = {
        "state": type(state).__name__,
        "phase": state.phase.name,
        "round": state.round,
        "labels": state.fit.statistics.labels.tolist(),
        "alpha": [value.hex() for value in state.fit.alpha.tolist()],
        "instruction": type(instructions[0]).__name__,
        "mean": [value.hex() for value in store.model().mean.tolist()],
    }
    (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


def of_classes() -> Prepared:
    """A fit of 40 rows of three classes, in rounds of 8 candidates."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    codes = np.digitize(X[:, 0] + 0.3 * rng.normal(size=40), [-0.5, 0.5])
    columns = Columns(("a", "b"), "kind", {}, ("bronze", "gold", "silver"))
    source = as_source(X, codes, tile_rows=16, columns=columns)
    asked = FitParameters(gamma=0.5, strategy="working-set", partition_size=8, selection="gain", max_rounds=5, seed=7)
    return prepare(source, asked, LocalExecutor(1))


class Keeper(MemoryJournal):
    """A journal in a job's folder, without times."""

    store: JobStore

    def save(self, model):
        """As a job does."""
        super().save(model)
        self.store.save(model)

    def record(self, entry):
        """What the fit is."""
        super().record(entry)
        told = ("number", "vectors", "train_log_loss", "train_error")
        self.store.record({"event": "fit", **{name: entry[name] for name in told}})

    def checkpoint(self, checkpoint):
        """As a job does."""
        self.store.checkpoint({"state": checkpoint.state, "waiting": checkpoint.waiting}, history=len(self.history))
        self.state = checkpoint.state


def classes(folder: Path) -> None:
    """Queue, run two rounds, get aborted."""
    store = JobStore.create(str(folder / "job"), {
        "data": "medals.zarr", "validation": None, "fingerprint": {"n_rows": 40},
        "parameters": {"gamma": 0.5, "seed": 7, "class_weight": {"gold": 1.0}}, "tile_rows": 16,
        "versions": {"partirvm": "0.1.0"},
    })  # fmt: skip
    store.record({"event": "queued", "reason": "submitted"})
    lease = store.acquire()
    store.record({"event": "running", "reason": "started", "history": 0})
    fit, journal = of_classes(), Keeper()
    journal.store = store
    end = Termination.ABORTED
    driver = Driver(LocalExecutor(1), fit.source, interrupted=lambda: end if len(journal.history) == 2 else None)
    driver.run(STRATEGIES["working-set"](), fit.problem, fit.options, journal)
    store.record({"event": "aborted", "reason": "flat"})
    lease.release()
    state = journal.state
    expected = {
        "state": type(state).__name__,
        "codes": state.problem.codes.tolist(),
        "dtype": str(state.problem.codes.dtype),
        "labels": state.fit.labels.tolist(),
        "alpha": [value.hex() for value in state.fit.alpha.ravel().tolist()],
        "mean": [value.hex() for value in store.model().mean.ravel().tolist()],
        "log_loss": journal.history[-1]["train_log_loss"],
    }
    (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    time.time = lambda: 1785600000.0
    Process.this = classmethod(lambda cls: cls("laptop.example", 4711, "8150", "boot names"))
    (classes if "classes" in sys.argv[2:] else main)(Path(sys.argv[1]))
