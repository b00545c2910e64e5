"""Kernel blocks Φ[panel, :] that are kept between passes, in memory or as Zarr arrays, to be evaluated only once.

A request lists the columns that a pass needs over a panel. Kept columns are copied. The others are evaluated, and kept
as one more block if the budget allows. Columns that were not requested in the current or the previous run of passes
over the panel are deleted. Rows of a sample are kept from their second pass on, since most samples are used once.

A column has the same bits whether it is evaluated alone or among other columns (``Design.origin``). On a machine where
the bits differ, nothing is kept. So results do not depend on this store. A checksum in memory detects damaged chunks on
disk, and their columns are evaluated again.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from partirvm.errors import PartirvmWarning
from partirvm.kernels.design import NONE, Design
from partirvm.planning.plan import Plan
from partirvm.storage.records import checksum

Float = NDArray[np.float64]
Int = NDArray[np.int64]

IDLE = 600.0
"""Seconds without use after which the store of a fit is deleted."""

STALE = 8
"""Number of runs of passes after which panels that were not requested are deleted."""

COPIES = (1, 17, 64)
"""Numbers of equal columns that are evaluated together to compare their bits."""


@dataclass(frozen=True)
class Keeping:
    """Settings of a store: the fit, the bytes per process, the number of the run, and the folder of Zarr arrays.

    Without ``folder`` blocks are kept in memory.
    """

    token: str
    budget: int
    run: int = 0
    folder: str | None = None


@dataclass(frozen=True)
class Fetched:
    """Numbers of evaluated elements of Φ, of kept elements that were used, and of failed reads and writes."""

    evaluated: int = 0
    kept: int = 0
    failures: int = 0

    def __add__(self, other: Fetched) -> Fetched:
        return Fetched(self.evaluated + other.evaluated, self.kept + other.kept, self.failures + other.failures)


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

    def count_fetched(self, fetched: Iterable[Fetched]) -> None:
        """Add the counts of a run of passes."""
        self.fetched = sum(fetched, self.fetched)


@contextmanager
def keeping_blocks(plan: Plan, forget: Callable[[str], None], beside: Path | None = None) -> Iterator[Blocks | None]:
    """Keep kernel blocks as planned until the end of the ``with`` statement, which calls ``forget`` with their token.

    ``beside`` is the folder for blocks on disk, which is emptied first; None for a temporary folder. A failed read or
    write of a block costs time but does not change the result; one warning reports all failures.
    """
    store, folder = plan.kernel_store, None
    if beside is not None:
        shutil.rmtree(beside, ignore_errors=True)  # left by a killed process
    if store is None or store.where == "none":
        yield None
        return
    if store.where == "zarr" and beside is None:
        folder = tempfile.mkdtemp(prefix="partirvm-kernel-")
    elif store.where == "zarr":
        folder = str(beside)
        with suppress(OSError):  # then each block that cannot be written is counted
            Path(folder).mkdir(parents=True)

    def room(columns: int) -> int:
        """Return the planned bytes; twice as many on disk, where a chunk is kept whole while any column is needed."""
        return min(plan.room(columns), store.bytes) if folder is None else 2 * store.bytes

    blocks = Blocks(Keeping(uuid.uuid4().hex, 0, folder=folder), room)
    try:
        yield blocks
    finally:
        forget(blocks.keeping.token)
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
    if blocks.fetched.failures:
        warnings.warn(
            f"kernel blocks could not be written or read {blocks.fetched.failures:,} times and were evaluated again: "
            "the result is the same, but the fit was slower; check that the disk has space and that all workers can "
            "access it",
            PartirvmWarning,
            stacklevel=3,
        )


@dataclass(eq=False)
class _Block:
    """Kept columns of a panel: labels (k,) and values (k, n), in memory or at ``place`` as a Zarr array."""

    labels: Int
    values: Any
    nbytes: int
    place: Path | None = None
    checksum: str = ""

    def read(self) -> Float | None:
        """Return the values; None if the chunk on disk is missing, damaged or exchanged."""
        if self.place is None:
            return np.asarray(self.values)
        try:
            values = np.asarray(self.values[:])
        except Exception:  # no error of a store or codec may end the fit
            return None
        return values if checksum(values) == self.checksum else None


@dataclass(eq=False)
class _Panel:
    """The kept blocks of one panel. ``requested`` are the labels requested in the last run that used the panel."""

    run: int = -1
    requested: Int = field(default_factory=lambda: NONE)
    blocks: list[_Block] = field(default_factory=list)

    def turn(self, run: int, labels: Int) -> Int:
        """Register a request of a run for these labels, and return the labels to keep during this run."""
        alive = np.union1d(self.requested, labels)
        self.run, self.requested = run, labels if run != self.run else alive
        return alive


class BlockStore:
    """Kept blocks of one fit in this process, limited to a number of bytes; thread-safe.

    ``used`` is the number of kept bytes.
    """

    def __init__(self, folder: str | None) -> None:
        self._folder = None if folder is None else Path(folder)
        self._lock = threading.Lock()
        self._panels: dict[tuple[int, str, int, str], _Panel] = {}
        self._first_requests: dict[tuple[int, str], int] = {}
        self._run, self._budget, self.used = -1, 0, 0
        self.touched = time.monotonic()

    def begin(self, keeping: Keeping) -> None:
        """Start a run of passes: delete outdated blocks and blocks that exceed the new budget."""
        self.touched = time.monotonic()
        with self._lock:
            if keeping.run == self._run:
                return
            self._run, self._budget = keeping.run, keeping.budget
            oldest = keeping.run - STALE
            for key in [key for key, panel in self._panels.items() if panel.run < oldest]:
                self._delete(self._panels.pop(key).blocks)
            while self.used > self._budget and self._panels:
                self._delete(self._panels.popitem()[1].blocks)
            self._first_requests = {rows: run for rows, run in self._first_requests.items() if run >= oldest}

    def again(self, tile: int, rows: str) -> bool:
        """Return True if an earlier run requested these rows of a tile."""
        with self._lock:
            return self._first_requests.setdefault((tile, rows), self._run) < self._run

    def fill(self, key: tuple[int, str, int, str], design: Design, X: Float, out: Float) -> Fetched:
        """Write Φ of the rows X into ``out`` (n, M), stored column by column; ``key`` identifies panel and design."""
        design.lead(X, out)
        with self._lock:
            panel = self._panels.pop(key, None) or _Panel()
        try:
            missing, failures = self._copy(panel, design.labels, out.T[design.n_leading :])
            if missing.any():
                failures += self._evaluate(panel, design, missing, X, out.T[design.n_leading :])
            evaluated = int(missing.sum()) * len(X)
            return Fetched(evaluated, missing.size * len(X) - evaluated, failures)
        finally:
            with self._lock:
                if panel.blocks and self._panels.setdefault(key, panel) is not panel:
                    self._delete(panel.blocks)  # two runs of one task overlapped

    def clear(self) -> None:
        """Delete all kept blocks."""
        with self._lock:
            while self._panels:
                self._delete(self._panels.popitem()[1].blocks)

    def _copy(self, panel: _Panel, labels: Int, rows: Float) -> tuple[NDArray[np.bool_], int]:
        """Copy kept columns to ``rows``, and delete unneeded ones. Returns a mask of the others, and failed reads."""
        alive = panel.turn(self._run, labels)
        missing, failures, blocks = np.ones(len(labels), dtype=np.bool_), 0, panel.blocks
        panel.blocks = []
        for block in blocks:
            needed, wanted = np.isin(block.labels, alive), np.isin(labels, block.labels)
            values = block.read() if wanted.any() else block.values
            if values is None or not needed.any():
                failures += values is None
                with self._lock:
                    self._delete([block])
                continue
            if wanted.any():
                order = np.argsort(block.labels)
                rows[wanted] = values[order[np.searchsorted(block.labels, labels[wanted], sorter=order)]]
                missing &= ~wanted
            if block.place is None and not needed.all():
                block.labels, block.values = block.labels[needed], values[needed]
                with self._lock:
                    self.used -= block.nbytes - block.values.nbytes
                block.nbytes = block.values.nbytes
            panel.blocks.append(block)
        return missing, failures

    def _evaluate(self, panel: _Panel, design: Design, missing: NDArray[np.bool_], X: Float, rows: Float) -> int:
        """Evaluate the missing columns and keep as many as fit. Returns the number of failed writes."""
        sub, n = design.take(np.flatnonzero(missing), leading=NONE), len(X)
        with self._lock:
            count = min(len(sub.labels), max(self._budget - self.used, 0) // (8 * n))
            self.used += 8 * count * n
        values = rows if missing.all() and not count else np.empty((len(sub.labels), n))
        sub.block(X, values.T)
        if values is not rows:
            rows[missing] = values
        if not count:
            return 0
        block = _Block(sub.labels[:count], values if count == len(values) else values[:count].copy(), 8 * count * n)
        if self._folder is not None and not _written(block, self._folder):
            with self._lock:
                self.used -= block.nbytes
                self._budget = 0  # the disk is full or missing
            return 1
        panel.blocks.append(block)
        return 0

    def _delete(self, blocks: list[_Block]) -> None:
        for block in blocks:
            self.used -= block.nbytes
            if block.place is not None:
                shutil.rmtree(block.place, ignore_errors=True)


def _written(block: _Block, folder: Path) -> bool:
    """Move the values of a block to a Zarr array in an existing folder. Returns False on any failure."""
    import zarr

    place, values = folder / f"block-{uuid.uuid4().hex}", block.values
    try:
        if not folder.is_dir():  # Zarr would create it, even after the end of the fit
            raise FileNotFoundError(folder)
        array = zarr.create_array(
            str(place), shape=values.shape, chunks=values.shape, dtype="f8", compressors=None, fill_value=np.nan
        )
        array[:] = values
    except Exception:  # no error of a store or codec may end the fit
        shutil.rmtree(place, ignore_errors=True)
        return False
    block.values, block.place, block.checksum = array, place, checksum(values)
    return True


_stores: dict[str, BlockStore] = {}
_stores_lock = threading.RLock()
"""Reentrant: the garbage collector may run finalizers, which call ``forget``, while ``store_of`` holds the lock."""


def store_of(keeping: Keeping) -> BlockStore:
    """Return this process's store of a fit, created if necessary, and register the run."""
    with _stores_lock:
        store = _stores.get(keeping.token)
        if store is None:
            for token in list(_stores):
                other = _stores.get(token)
                if other is not None and time.monotonic() - other.touched > IDLE:
                    _stores.pop(token, None)
                    other.clear()
            store = _stores[keeping.token] = BlockStore(keeping.folder)
    store.begin(keeping)
    return store


def forget(token: str) -> None:
    """Delete this process's kept blocks of a fit."""
    with _stores_lock:
        store = _stores.pop(token, None)
    if store is not None:
        store.clear()


def fill_block(
    keeping: Keeping | None, tile: int, rows: str, panel: int, design: Design, X: Float, out: Float
) -> Fetched:
    """Write Φ of a panel's rows X (n, d) to ``out`` (n, M), stored column by column, from kept columns if possible.

    ``rows`` identifies the selected rows of the tile; empty for all rows.
    """
    if keeping is not None and design.origin is not None and len(design.centres):
        store, kernels = store_of(keeping), design.kernels
        repeated = not rows or store.again(tile, rows)
        if repeated and all(independent(cast(Any, each), X.shape[1], len(X)) for each in kernels):
            return store.fill((tile, rows, panel, design.identity), design, X, out)
    design.block(X, out)
    return Fetched(evaluated=len(X) * len(design.centres))


@lru_cache(maxsize=256)
def independent(kernel: Any, d: int, n: int) -> bool:
    """Return True if on this machine a column of n rows has the same bits at every position among other columns."""
    rng = np.random.default_rng(0)
    points, centre, origin = rng.normal(size=(n, d)), rng.normal(size=(1, d)), np.zeros(d)
    first: Float | None = None
    for copies in COPIES:
        block = np.empty((copies, n)).T
        kernel.prepare(np.repeat(centre, copies, axis=0), origin)(points, block)
        first = block[:, :1].copy() if first is None else first
        if not (block == first).all():
            return False
    return True
