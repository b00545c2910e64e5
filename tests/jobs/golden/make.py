"""Writes ``job``, a job of the present format, and ``expected.json``, what is in it.

    python tests/jobs/golden/make.py FOLDER

Run it when the format has a new number, into a folder of that number; what older versions wrote stays, and stays
readable. Times, hosts and processes are made up; the strategy is a real one, stopped in the middle of a round.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parents[1] / "strategies")]

from simulator import Simulator, wave  # noqa: E402

from partirvm.jobs.store import JobStore  # noqa: E402
from partirvm.model import Model  # noqa: E402
from partirvm.storage.process import Process  # noqa: E402
from partirvm.strategies import STRATEGIES  # noqa: E402
from partirvm.strategies.instructions import Options, Save, Solve  # noqa: E402
from partirvm.types import Columns  # noqa: E402


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


if __name__ == "__main__":
    time.time = lambda: 1785600000.0
    Process.this = classmethod(lambda cls: cls("laptop.example", 4711, "8150", "boot names"))
    main(Path(sys.argv[1]))
