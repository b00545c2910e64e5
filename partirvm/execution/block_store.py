"""Kernel blocks Φ[panel, :] that are stored between passes, so that each element is evaluated only once.

A ``BlockStore`` holds columns of Φ for the panels of one fit in one process. The columns of a panel are stored as
*blocks*, some columns each, as arrays in memory or as Zarr arrays of one chunk on disk. Each request lists the columns
that a pass needs. Stored columns are copied. The other columns are evaluated, and stored as one more block if the
memory budget allows. Columns that were not requested in the current or the previous run of passes are deleted.

Chunks on disk are not compressed, since kernel values do not compress well. The process keeps a checksum of each chunk,
so that damaged, incomplete or exchanged chunks are detected; their columns are evaluated again.

A column has the same bits whether it is evaluated alone or among other columns (``Design.origin``). So results do not
depend on storage.
"""

from __future__ import annotations

import shutil
import threading
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partirvm.kernels.design import NONE, Design
from partirvm.storage.chunks import checksum

Float = NDArray[np.float64]
Int = NDArray[np.int64]

IDLE = 600.0
"""Seconds without use after which the store of a fit is deleted."""

STALE = 8
"""Number of runs of passes after which panels that were not requested are deleted."""

WASTE = 0.25
"""Maximum fraction of unneeded columns in a block in memory. A block on disk is kept while any column is needed."""


class DamagedError(Exception):
    """Error for a block that cannot be stored, and for a stored block that cannot be read."""


@dataclass(frozen=True)
class Keeping:
    """Settings for stored blocks: the fit, the place, the bytes per process, and the number of the run of passes.

    ``where`` is "memory" or "zarr". ``folder`` is the folder for Zarr arrays; without this folder nothing is stored.
    """

    token: str
    where: str
    budget: int
    run: int = 0
    folder: str | None = None


@dataclass(frozen=True)
class Fetched:
    """Numbers of evaluated elements of Φ, of stored elements that were used, and of failed writes."""

    evaluated: int = 0
    kept: int = 0
    failures: int = 0

    def __add__(self, other: Fetched) -> Fetched:
        return Fetched(self.evaluated + other.evaluated, self.kept + other.kept, self.failures + other.failures)


Key = tuple[int, str, int, str]
"""Type of the key of a panel: tile, digest of the selected rows (empty for all), panel number, column identity."""


@dataclass(frozen=True)
class DiskBlock:
    """A block of values (k, n) in a Zarr array of one chunk."""

    place: Path
    array: Any
    checksum: str

    @classmethod
    def write(cls, folder: Path, values: Float) -> DiskBlock:
        """Write the values to a new array in an existing folder. Raises ``DamagedError`` on any failure."""
        import zarr

        place = folder / f"block-{uuid.uuid4().hex}"
        try:
            if not folder.is_dir():
                raise FileNotFoundError(folder)
            array = zarr.create_array(
                str(place),
                shape=values.shape,
                chunks=values.shape,
                dtype="f8",
                compressors=None,
                fill_value=np.nan,
                config={"write_empty_chunks": True},
            )
            array[:] = values
        except Exception as error:  # no error of a store or codec may end the fit
            shutil.rmtree(place, ignore_errors=True)
            raise DamagedError(str(error)) from error
        return cls(place, array, checksum(values))

    def read(self) -> Float:
        """Return the values. Raises ``DamagedError`` if the chunk is missing, damaged or exchanged."""
        try:
            values: Float = np.asarray(self.array[:])
        except Exception as error:
            raise DamagedError(str(error)) from error
        if checksum(values) != self.checksum:
            raise DamagedError(f"{self.place}: the chunk is missing, damaged or exchanged")
        return values

    def delete(self) -> None:
        """Remove the array."""
        shutil.rmtree(self.place, ignore_errors=True)


@dataclass(eq=False)
class _Block:
    """Some stored columns of a panel: their labels (k,), values (k, n), and the number of bytes."""

    labels: Int
    values: Float | DiskBlock
    nbytes: int

    def lookup(self, requested: Int) -> tuple[NDArray[np.bool_], Int]:
        """Return a mask of the requested labels that are stored, and their positions (arbitrary if missing)."""
        order = np.argsort(self.labels, kind="stable")
        last = len(self.labels) - 1
        places = order[np.minimum(np.searchsorted(self.labels, requested, sorter=order), last)]
        return self.labels[places] == requested, places


@dataclass(eq=False)
class _Panel:
    """The stored blocks of one panel. ``requested`` are the labels requested in the last run that used the panel."""

    run: int = -1
    requested: Int = field(default_factory=lambda: NONE)
    blocks: list[_Block] = field(default_factory=list)

    def turn(self, run: int, labels: Int) -> Int:
        """Register a request of a run for these labels, and return the labels to keep during this run."""
        alive = np.union1d(self.requested, labels)
        self.run, self.requested = run, labels if run != self.run else alive
        return alive


class BlockStore:
    """Stored blocks of one fit in this process, limited to a number of bytes; thread-safe.

    ``folder`` is the folder for blocks on disk; None for blocks in memory. ``used`` is the number of stored bytes.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._panels: dict[Key, _Panel] = {}
        self._first_requests: dict[tuple[int, str], int] = {}
        self._run, self._budget, self.used = -1, 0, 0
        self.touched = time.monotonic()

    @property
    def n_panels(self) -> int:
        """Number of panels with stored columns."""
        return len(self._panels)

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

    def again(self, tile: int, digest: str, run: int) -> bool:
        """Return True if an earlier run requested these rows of a tile."""
        with self._lock:
            return self._first_requests.setdefault((tile, digest), run) < run

    def fill(self, key: Key, run: int, design: Design, X: Float, out: Float) -> Fetched:
        """Write Φ of the rows X into ``out`` (n, M), stored column by column."""
        design.lead(X, out)
        with self._lock:
            panel = self._panels.pop(key, None) or _Panel()
        try:
            return self._fill(panel, run, design, X, out.T[design.n_leading :])
        finally:
            with self._lock:
                if panel.blocks and self._panels.setdefault(key, panel) is not panel:
                    self._delete(panel.blocks)  # two runs of one task overlapped

    def clear(self) -> None:
        """Delete all stored blocks."""
        with self._lock:
            while self._panels:
                self._delete(self._panels.popitem()[1].blocks)

    def _fill(self, panel: _Panel, run: int, design: Design, X: Float, rows: Float) -> Fetched:
        labels, failures = design.labels, 0
        self._prune(panel, panel.turn(run, labels))
        missing = np.ones(len(labels), dtype=np.bool_)
        for block in list(panel.blocks):
            there, places = block.lookup(labels)
            there &= missing
            if not there.any():
                continue
            try:
                values = block.values.read() if isinstance(block.values, DiskBlock) else block.values
            except DamagedError:
                panel.blocks.remove(block)
                failures += 1
                with self._lock:
                    self._delete([block])
                continue
            _copy(values, places[there], rows, np.flatnonzero(there))
            missing &= ~there
        new = np.flatnonzero(missing)
        if len(new):
            failures += self._evaluate(panel, design, new, X, rows)
        return Fetched(len(new) * len(X), (len(labels) - len(new)) * len(X), failures)

    def _evaluate(self, panel: _Panel, design: Design, new: Int, X: Float, rows: Float) -> int:
        """Evaluate the columns ``new`` and store as many as fit. Returns the number of failed writes."""
        sub, height = design.take(new, leading=NONE), rows.shape[1]
        with self._lock:
            count = min(len(new), max(self._budget - self.used, 0) // (8 * height))
            self.used += 8 * count * height
        if not count and len(new) == len(rows):
            sub.block(X, rows.T)
            return 0
        values = np.empty((len(new), height))
        sub.block(X, values.T)
        rows[_run(new)] = values
        if not count:
            return 0
        kept = values if count == len(new) else values[:count].copy()
        try:
            stored = kept if self._folder is None else DiskBlock.write(self._folder, kept)
        except DamagedError:
            with self._lock:
                self.used -= kept.nbytes
                self._budget = 0  # the disk is full or missing
            return 1
        panel.blocks.append(_Block(sub.labels[:count], stored, kept.nbytes))
        return 0

    def _prune(self, panel: _Panel, alive: Int) -> None:
        """Delete blocks without a column in ``alive``, and shorten blocks in memory with few columns in ``alive``."""
        for block in list(panel.blocks):
            stays = np.isin(block.labels, alive)
            if not stays.any():
                panel.blocks.remove(block)
                with self._lock:
                    self._delete([block])
            elif not isinstance(block.values, DiskBlock) and stays.mean() < 1 - WASTE:
                block.labels, block.values = block.labels[stays], block.values[stays]
                with self._lock:
                    self.used -= block.nbytes - block.values.nbytes
                block.nbytes = block.values.nbytes

    def _delete(self, blocks: list[_Block]) -> None:
        for block in blocks:
            self.used -= block.nbytes
            if isinstance(block.values, DiskBlock):
                block.values.delete()


def _run(positions: Int) -> Any:
    """Return positions as a slice if they are consecutive, and otherwise unchanged."""
    first, last = int(positions[0]), int(positions[-1])
    return slice(first, last + 1) if last - first + 1 == len(positions) else positions


def _copy(values: Float, places: Int, rows: Float, where: Int) -> None:
    """Assign ``rows[where] = values[places]``, without a temporary array if ``where`` is consecutive."""
    run = _run(where)
    if isinstance(run, slice) and values.flags.c_contiguous:
        np.take(values, places, axis=0, out=rows[run], mode="clip")
    else:
        rows[run] = values[places]


_stores: dict[str, BlockStore] = {}
_stores_lock = threading.Lock()


def store_of(keeping: Keeping) -> BlockStore:
    """Return this process's store of a fit, created if necessary, and register the run."""
    with _stores_lock:
        store, idle = _stores.get(keeping.token), []
        if store is None:
            idle = [token for token, other in _stores.items() if time.monotonic() - other.touched > IDLE]
            assert keeping.where == "memory" or keeping.folder is not None
            folder = None if keeping.folder is None or keeping.where == "memory" else Path(keeping.folder)
            store = _stores[keeping.token] = BlockStore(folder)
    for token in idle:
        forget(token)
    store.begin(keeping)
    return store


def forget(token: str) -> None:
    """Delete this process's stored blocks of a fit."""
    with _stores_lock:
        store = _stores.pop(token, None)
    if store is not None:
        store.clear()
