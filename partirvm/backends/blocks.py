"""Kernel blocks Φ[tile, :] that are stored between passes, so that each element is evaluated only once.

A *shelf* holds columns of Φ for the panels of one fit in one process, in memory or on disk (``backends.segments``).
Each request lists the columns that a pass needs. Stored columns are copied. The other columns are evaluated, and stored
if the memory budget allows. Columns that were not requested in the current or the previous run of passes are deleted.

A column has the same bits whether it is evaluated alone or among other columns (``Design.origin``). On a machine where
the bits differ, nothing is stored. So results do not depend on storage.

Rows of a sample are stored from their second pass on, since most samples are used once.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partirvm.backends.segments import Damaged, DiskSegments, MemorySegments, Segment, Segments
from partirvm.kernels.design import NONE, Design

Float = NDArray[np.float64]
Int = NDArray[np.int64]

STALE = 8
"""Number of runs of passes after which panels that were not requested are deleted."""

IDLE = 600.0
"""Seconds without use after which the shelf of a fit is deleted."""


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


@dataclass
class _Kept:
    """The stored columns of one panel. ``requested`` are the labels requested in the last run that used the panel."""

    run: int = -1
    requested: Int = field(default_factory=lambda: NONE)
    segments: list[Segment] = field(default_factory=list)

    def turn(self, run: int, labels: Int) -> Int:
        """Register a request of a run for these labels, and return the labels to keep during this run."""
        alive = np.union1d(self.requested, labels)
        self.run, self.requested = run, labels if run != self.run else alive
        return alive


class Shelf:
    """Stored blocks of one fit in this process, limited to a number of bytes; thread-safe."""

    def __init__(self, place: Segments) -> None:
        self._place = place
        self._lock = threading.Lock()
        self._kept: dict[Key, _Kept] = {}
        self._requested: dict[tuple[int, str], int] = {}
        self._run, self._budget, self._used = -1, 0, 0
        self.touched = time.monotonic()

    @property
    def used(self) -> int:
        """Number of stored bytes."""
        return self._used

    @property
    def n_panels(self) -> int:
        """Number of panels with stored columns."""
        return len(self._kept)

    def begin(self, keeping: Keeping) -> None:
        """Start a run of passes: delete outdated blocks and blocks that exceed the new budget."""
        self.touched = time.monotonic()
        with self._lock:
            if keeping.run == self._run:
                return
            self._run, self._budget = keeping.run, keeping.budget
            for key in [key for key, kept in self._kept.items() if kept.run < keeping.run - STALE]:
                self._drop(key)
            while self._used > self._budget and self._kept:
                self._drop(next(reversed(self._kept)))
            self._requested = {rows: run for rows, run in self._requested.items() if run >= keeping.run - STALE}

    def again(self, tile: int, digest: str, run: int) -> bool:
        """Return True if an earlier run requested these rows of a tile."""
        with self._lock:
            return self._requested.setdefault((tile, digest), run) < run

    def fill(self, key: Key, run: int, design: Design, X: Float, out: Float) -> Fetched:
        """Write Φ of the rows X into ``out`` (n, M), stored column by column."""
        design.lead(X, out)
        with self._lock:
            kept = self._kept.pop(key, None) or _Kept()
        try:
            return self._fill(kept, run, design, X, out.T[design.n_leading :])
        finally:
            if kept.segments:  # a panel without stored columns is not registered
                with self._lock:
                    twin = self._kept.setdefault(key, kept)
                    if twin is not kept:  # two runs of one task overlapped
                        self._release(kept.segments)

    def clear(self) -> None:
        """Delete all stored blocks."""
        with self._lock:
            for key in list(self._kept):
                self._drop(key)
            self._place.close()

    def _fill(self, kept: _Kept, run: int, design: Design, X: Float, rows: Float) -> Fetched:
        labels, failures = design.labels, 0
        self._prune(kept, kept.turn(run, labels))
        missing = np.ones(len(labels), dtype=np.bool_)
        for segment in list(kept.segments):
            there, places = _lookup(segment.labels, labels)
            there &= missing
            if there.any():
                try:
                    segment.read(places[there], rows, np.flatnonzero(there))
                except Damaged:
                    kept.segments.remove(segment)
                    failures += 1
                    with self._lock:
                        self._release([segment])
                    continue
                missing &= ~there
        new = np.flatnonzero(missing)
        if len(new):
            failures += self._evaluate(kept, design, new, X, rows)
        return Fetched(len(new) * len(X), (len(labels) - len(new)) * len(X), failures)

    def _evaluate(self, kept: _Kept, design: Design, new: Int, X: Float, rows: Float) -> int:
        """Evaluate the columns ``new`` and store as many as fit. Returns the number of failed writes."""
        sub = design.take(new, leading=NONE)
        count, nbytes = self._reserve(len(new), rows.shape[1])
        if not count and len(new) == len(rows):
            sub.block(X, rows.T)
            return 0
        values = np.empty((len(new), rows.shape[1]))
        sub.block(X, values.T)
        rows[_run(new)] = values
        if not count:
            return 0
        try:
            kept.segments.append(self._place.make(sub.labels[:count], values[:count]))
        except Damaged:
            with self._lock:
                self._used -= nbytes
                self._budget = 0  # the disk is full or missing
            return 1
        return 0

    def _reserve(self, columns: int, height: int) -> tuple[int, int]:
        with self._lock:
            count, nbytes = self._place.affordable(columns, height, self._budget - self._used)
            self._used += nbytes
        return count, nbytes

    def _prune(self, kept: _Kept, alive: Int) -> None:
        segments = []
        for segment in kept.segments:
            stays = np.isin(segment.labels, alive)
            if stays.any():
                before = segment.nbytes
                segment.compact(np.flatnonzero(stays))
                with self._lock:
                    self._used -= before - segment.nbytes
                segments.append(segment)
            else:
                with self._lock:
                    self._release([segment])
        kept.segments = segments

    def _drop(self, key: Key) -> None:
        self._release(self._kept.pop(key).segments)

    def _release(self, segments: list[Segment]) -> None:
        for segment in segments:
            self._used -= segment.nbytes
            segment.release()


def _lookup(labels: Int, requested: Int) -> tuple[NDArray[np.bool_], Int]:
    """Return a mask of the requested labels that are in ``labels``, and their positions (arbitrary if missing)."""
    order = np.argsort(labels, kind="stable")
    places = order[np.minimum(np.searchsorted(labels, requested, sorter=order), len(labels) - 1)]
    return labels[places] == requested, places


def _run(positions: Int) -> Any:
    """Return positions as a slice if they are consecutive, and otherwise unchanged."""
    first, last = int(positions[0]), int(positions[-1])
    return slice(first, last + 1) if last - first + 1 == len(positions) else positions


class OneDesign:
    """Stored blocks of one design over rows in memory, for repeated passes.

    ``room`` is in bytes. If all blocks together need more, no block is stored.
    """

    def __init__(self, n_rows: int, room: int) -> None:
        self._n_rows, self._room = n_rows, room
        self._design: Design | None = None
        self._blocks: dict[tuple[int, int], Float] = {}
        self.fetched = Fetched()

    @property
    def keeping(self) -> OneDesign:
        """The settings for the tasks of a run, which are the object itself."""
        return self

    def count_fetched(self, fetched: Iterable[Fetched]) -> None:
        """Add the counts of a run."""
        self.fetched = sum(fetched, self.fetched)

    def turn(self, design: Design) -> None:
        """Store the blocks of this design from now on, and delete the blocks of another design."""
        if design is not self._design:
            self._blocks.clear()
            self._design = design if 8 * self._n_rows * design.n_columns <= self._room else None

    def block(self, tile: int, panel: int, design: Design, X: Float, out: Float) -> tuple[Float, bool]:
        """Return Φ of a panel's rows (n, M), read-only, and True if Φ was stored; otherwise Φ is in ``out``."""
        if design is not self._design:
            return design.block(X, out), False
        found = self._blocks.get((tile, panel))
        if found is not None:
            return found, True
        found = design.block(X)
        found.flags.writeable = False
        self._blocks[tile, panel] = found
        return found, False


@dataclass
class TileBlocks:
    """Source of kernel blocks for the passes over one tile, with counts of evaluated and stored elements."""

    number: int
    keeping: Keeping | OneDesign | None = None
    fetched: Fetched = field(default_factory=Fetched)

    def digest(self, rows: Int | None) -> str:
        """Return a digest of the selected rows of the tile; empty for all rows."""
        return "" if rows is None else hashlib.blake2b(rows.tobytes(), digest_size=16).hexdigest()

    def block(self, design: Design, X: Float, out: Float, digest: str, panel: int) -> Float:
        """Return Φ of a panel's rows (n, M), possibly in ``out``."""
        if isinstance(self.keeping, OneDesign):
            found, kept = self.keeping.block(self.number, panel, design, X, out)
            elements = len(X) * len(design.centres)
            self.fetched += Fetched(0, elements) if kept else Fetched(elements)
            return found
        shelf = self._shelf(design, X, digest)
        if shelf is None:
            self.fetched += Fetched(evaluated=len(X) * len(design.centres))
            return design.block(X, out)
        assert isinstance(self.keeping, Keeping)
        key = (self.number, digest, panel, design.identity)
        self.fetched += shelf.fill(key, self.keeping.run, design, X, out)
        return out

    def _shelf(self, design: Design, X: Float, digest: str) -> Shelf | None:
        keeping = self.keeping
        if not isinstance(keeping, Keeping) or design.origin is None or not len(design.centres):
            return None
        shelf = shelf_of(keeping)
        if digest and not shelf.again(self.number, digest, keeping.run):
            return None
        kernels: Any = design.kernels  # frozen, and hashed by their parameters
        return shelf if all(independent(kernel, X.shape[1], len(X)) for kernel in kernels) else None


COPIES = (1, 17, 64)
"""Numbers of equal columns that are evaluated together to compare their bits."""


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


_shelves: dict[str, Shelf] = {}
_shelves_lock = threading.Lock()


def shelf_of(keeping: Keeping) -> Shelf:
    """Return this process's shelf of a fit, created if necessary, and register the run."""
    with _shelves_lock:
        shelf = _shelves.get(keeping.token)
        if shelf is None:
            shelf = _shelves[keeping.token] = Shelf(_segments(keeping))
            now = time.monotonic()
            idle = [token for token, other in _shelves.items() if now - other.touched > IDLE]
        else:
            idle = []
    for token in idle:
        forget(token)
    shelf.begin(keeping)
    return shelf


def _segments(keeping: Keeping) -> Segments:
    if keeping.where == "memory":
        return MemorySegments()
    assert keeping.folder is not None
    return DiskSegments(keeping.folder, keeping.budget)


def forget(token: str) -> None:
    """Delete this process's stored blocks of a fit."""
    with _shelves_lock:
        shelf = _shelves.pop(token, None)
    if shelf is not None:
        shelf.clear()
