"""Journals with checkpoints, results of runs, a job's request, and rows of DATA."""

import pickle
from typing import Any

import numpy as np

from partirvm.fit import MemoryJournal

TIMES = {"seconds", "pass_seconds", "solve_seconds", "peak_memory"}
"""Fields of a history line that depend on clocks, memory and stores, not on the fit."""

DATA = {"n_rows": 9, "n_features": 2, "hashes": [], "about": "", "moments": ""}
REQUEST = {
    "data": "d.zarr",
    "validation": None,
    "fingerprint": DATA,
    "validation_fingerprint": None,
    "versions": {},
}
REQUEST |= {"parameters": {"kernel": "gaussian", "basis": None}}
"""A job's request with default options."""


class Recorder(MemoryJournal):
    """Keeps each checkpoint as bytes, with the number of lines before it and the model at that
    time."""

    def __init__(self) -> None:
        super().__init__()
        self.checkpoints: list[tuple[int, bytes, Any]] = []
        self.final: Any = None

    def checkpoint(self, checkpoint: Any) -> None:
        if checkpoint.end is not None:
            self.final = checkpoint
        else:
            self.checkpoints.append((len(self.history), pickle.dumps(checkpoint), self.model))


def left(journal: Any) -> tuple[Any, ...]:
    """Return the bits of the model, and the history lines without times and bytes."""
    lines = [
        {name: repr(value) for name, value in line.items() if name not in TIMES}
        for line in journal.history
    ]
    model = journal.model
    return (
        model.mean.tobytes(),
        model.alpha.tobytes(),
        model.design.labels.tobytes(),
        model.root.tobytes(),
        lines,
    )


def contents(source: Any) -> np.ndarray:
    """Return inputs and targets (N, d + T) of DATA in table order; verify all tiles."""
    source.verify()
    tiles = [source.tile(number) for number in range(source.n_tiles)]
    order = np.concatenate([source.original_rows(number) for number in range(source.n_tiles)])
    assert sorted(order) == list(range(source.n_rows))
    return np.concatenate([np.column_stack([tile.X, tile.t]) for tile in tiles])[np.argsort(order)]
