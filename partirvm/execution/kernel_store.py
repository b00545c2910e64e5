"""Kernel blocks Φ[panel, :] that are kept in memory between passes, to be evaluated only once.

A request lists the columns that a pass needs over a panel. Kept columns are copied. The others are evaluated, and kept
if the budget allows. Columns that were not requested in the current or the previous run of passes over the panel are
deleted.

A column has the same bits whether it is evaluated alone or among other columns (``Design.origin``). On a machine where
the bits differ, nothing is kept. So results do not depend on this store.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from partirvm.kernels.design import NONE, Design
from partirvm.planning.plan import Plan
from partirvm.types import Float, Int

Key: TypeAlias = tuple[int, str, int, str]
"""Tile, selected rows, number of the panel, and identity of the design."""

IDLE = 600.0  # seconds without use after which the store of a fit is deleted
STALE = 8  # number of runs of passes after which panels that were not requested are deleted


@dataclass(frozen=True)
class Keeping:
    """Settings of a store: the fit, the bytes per process, and the number of the run."""

    token: str
    budget: int
    run: int = 0


@dataclass(frozen=True)
class Fetched:
    """Numbers of evaluated elements of Φ, and of kept elements that were used."""

    evaluated: int = 0
    kept: int = 0

    def __add__(self, other: Fetched) -> Fetched:
        return Fetched(self.evaluated + other.evaluated, self.kept + other.kept)


@dataclass
class Blocks:
    """Kept kernel blocks of a fit: the settings of the current run of passes, and the counts of all elements.

    ``room`` returns the bytes that each process may use, given a number of columns.
    """

    keeping: Keeping
    room: Callable[[int], int]
    fetched: Fetched = field(default_factory=Fetched)

    def begin(self, columns: int) -> None:
        """Start a run of passes with this many columns."""
        self.keeping = replace(self.keeping, run=self.keeping.run + 1, budget=self.room(columns))


@contextmanager
def keeping_blocks(plan: Plan, forget: Callable[[str], None]) -> Iterator[Blocks | None]:
    """Keep kernel blocks as planned until the end of the ``with`` statement; ``forget`` then gets their token."""
    store = plan.kernel_store
    if store is None or store.where == "none":
        yield None
        return
    most = store.bytes
    blocks = Blocks(Keeping(uuid.uuid4().hex, 0), lambda columns: min(plan.room(columns), most))
    try:
        yield blocks
    finally:
        forget(blocks.keeping.token)


@dataclass(eq=False)
class _Panel:
    """The kept columns of a panel of n rows: labels (k,) and values (k, n).

    ``requested`` are the labels requested in the last ``run`` that used the panel.
    """

    values: Float
    labels: Int = field(default_factory=lambda: NONE)
    requested: Int = field(default_factory=lambda: NONE)
    run: int = -1


class BlockStore:
    """Kept blocks of one fit in this process; thread-safe. ``used`` is the number of kept bytes, within the budget."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._panels: dict[Key, _Panel] = {}
        self._run, self._budget, self.used = -1, 0, 0
        self.touched = time.monotonic()

    def begin(self, keeping: Keeping) -> None:
        """Start a run of passes: delete outdated panels, and others until the rest has the bytes of the new budget."""
        self.touched = time.monotonic()
        with self._lock:
            if keeping.run == self._run:
                return
            self._run, self._budget = keeping.run, keeping.budget
            outdated = [key for key, panel in self._panels.items() if panel.run < keeping.run - STALE]
            while self._panels and (outdated or self.used > self._budget):
                panel = self._panels.pop(outdated.pop()) if outdated else self._panels.popitem()[1]
                self.used -= panel.values.nbytes

    def fill(self, key: Key, design: Design, X: Float, out: Float) -> Fetched:
        """Write Φ of the rows X into ``out`` (n, M), stored column by column; ``key`` identifies panel and design."""
        design.lead(X, out)
        rows, labels = out.T[design.n_leading :], design.labels
        with self._lock:
            panel = self._panels.pop(key, None) or _Panel(np.empty((0, len(X))))
        kept, order = np.isin(labels, panel.labels), np.argsort(panel.labels)
        rows[kept] = panel.values[order[np.searchsorted(panel.labels, labels[kept], sorter=order)]]
        missing = np.flatnonzero(~kept)
        new = np.empty((len(missing), len(X)))
        if missing.size:
            design.take(missing, leading=NONE).block(X, new.T)
            rows[missing] = new
        self._keep(panel, labels, labels[missing], new)
        with self._lock:
            if self._panels.setdefault(key, panel) is not panel:
                self.used -= panel.values.nbytes  # two runs of one task overlapped
        return Fetched(new.size, int(kept.sum()) * len(X))

    def _keep(self, panel: _Panel, requested: Int, labels: Int, values: Float) -> None:
        """Delete the columns that are no longer requested, and keep as many of the new ones as fit."""
        alive, size = np.union1d(panel.requested, requested), 8 * values.shape[1]
        panel.requested, panel.run = (alive if panel.run == self._run else requested), self._run
        stay = np.isin(panel.labels, alive)
        with self._lock:
            self.used -= size * int((~stay).sum())
            count = min(len(labels), max(self._budget - self.used, 0) // size)
            self.used += size * count
        if count or not stay.all():
            panel.labels = np.concatenate([panel.labels[stay], labels[:count]])
            panel.values = np.concatenate([panel.values[stay], values[:count]])


_stores: dict[str, BlockStore] = {}
_stores_lock = threading.RLock()
"""Reentrant: the garbage collector may run finalizers, which call ``forget``, while ``store_of`` holds the lock."""


def store_of(keeping: Keeping) -> BlockStore:
    """Return this process's store of a fit, created if necessary, and register the run."""
    with _stores_lock:
        for token in [token for token, other in _stores.items() if time.monotonic() - other.touched > IDLE]:
            forget(token)
        store = _stores.setdefault(keeping.token, BlockStore())
    store.begin(keeping)
    return store


def forget(token: str) -> None:
    """Delete this process's kept blocks of a fit."""
    with _stores_lock:
        _stores.pop(token, None)


def fill_block(
    keeping: Keeping | None, tile: int, rows: str, panel: int, design: Design, X: Float, out: Float
) -> Fetched:
    """Write Φ of a panel's rows X (n, d) to ``out`` (n, M), stored column by column, from kept columns if possible.

    ``rows`` identifies the selected rows of the tile; empty for all rows.
    """
    kept = keeping is not None and design.origin is not None and len(design.centres) > 0
    if keeping is not None and kept and all(independent(each, X.shape[1], len(X)) for each in design.kernels):
        return store_of(keeping).fill((tile, rows, panel, design.identity), design, X, out)
    design.block(X, out)
    return Fetched(evaluated=len(X) * len(design.centres))


@lru_cache(maxsize=256)
def independent(kernel: Any, d: int, n: int) -> bool:
    """Return True if on this machine a column of n rows has the same bits at every position among other columns."""
    rng = np.random.default_rng(0)
    points, centre, origin = rng.normal(size=(n, d)), rng.normal(size=(1, d)), np.zeros(d)
    columns: list[Float] = []
    for copies in (1, 17, 64):
        block = np.empty((copies, n)).T
        kernel.prepare(np.repeat(centre, copies, axis=0), origin)(points, block)
        columns.extend(block.T)
    return all((column == columns[0]).all() for column in columns)
