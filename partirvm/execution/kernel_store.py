"""Kernel blocks Φ[panel, :] kept between passes, in memory or as Zarr arrays, so that they are
evaluated only once.

Requested columns that have been kept are copied; the others are evaluated, and kept if the budget
allows. Columns not requested in the last run of passes over the panel are deleted.

A column should have the same bits whether it is evaluated alone or with others (``Design.origin``);
on machines where the bits differ, nothing is kept. A chunk on disk ends with a checksum; a damaged
chunk or a full disk ends the fit with an error.
"""

import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from partirvm.errors import StorageError
from partirvm.kernels.design import NONE, Design
from partirvm.planning.plan import Plan
from partirvm.storage.address import reading, storing
from partirvm.types import Float, Int

Key: TypeAlias = tuple[int, str, int, str]
"""Tile number, selected rows, panel number, and design hash."""

IDLE = 600.0  # seconds without use after which a fit's store is deleted
STALE = 8  # number of runs of passes after which unrequested panels are deleted
ADVICE = "make room on this disk, which all workers must share, or choose another kernel_store"


@dataclass(frozen=True)
class Keeping:
    """Store settings: the fit, the bytes per process, the run number, and the folder on disk, if
    any."""

    token: str
    budget: int
    run: int = 0
    folder: str | None = None


KeepBlocks: TypeAlias = Callable[[int], Keeping]
"""Returns the settings for the next run of passes, given its number of columns."""


@contextmanager
def keeping_blocks(
    plan: Plan, forget: Callable[[str], Any], job_folder: Path | None = None
) -> Iterator[KeepBlocks | None]:
    """Keep kernel blocks as planned until the end of the ``with`` block, when ``forget`` is called
    with their token.

    ``job_folder`` is the folder for blocks on disk, which is emptied first, or None for a temporary
    one. Raises ``StorageError``.
    """
    store = plan.kernel_store
    folder = None
    if job_folder is not None:
        shutil.rmtree(job_folder, ignore_errors=True)  # left by a killed process
    if store.where == "none":
        yield None
        return
    token = uuid.uuid4().hex
    runs = count(1)
    if store.where == "zarr":
        folder = str(job_folder or tempfile.mkdtemp(prefix="partirvm-kernel-"))
        with storing(folder, ADVICE):
            Path(folder).mkdir(exist_ok=True)

    def keep(columns: int) -> Keeping:
        return Keeping(
            token,
            store.bytes if folder else min(plan.room(columns), store.bytes),
            next(runs),
            folder,
        )

    try:
        yield keep
    finally:
        forget(token)
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


@dataclass(eq=False)
class _Panel:
    """A panel's kept columns: labels (k,) and values (k, n), or their path, and the last run that
    used them."""

    values: Float | Path
    labels: Int = field(default_factory=lambda: NONE)
    run: int = -1
    nbytes: int = 0


class BlockStore:
    """Thread-safe cache of one fit's blocks in this process. ``used`` counts the kept bytes, within
    the budget."""

    def __init__(self, folder: str | None) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._panels: dict[Key, _Panel] = {}
        self._run = -1
        self._budget = 0
        self.used = 0
        self.touched = time.monotonic()

    def begin(self, keeping: Keeping) -> None:
        """Start a run of passes: delete outdated panels, then others until the remaining ones fit
        in the new budget."""
        self.touched = time.monotonic()
        with self._lock:
            if keeping.run == self._run:
                return
            self._run = keeping.run
            self._budget = keeping.budget
            outdated = [
                key for key, panel in self._panels.items() if panel.run < keeping.run - STALE
            ]
            while self._panels and (outdated or self.used > self._budget):
                self._delete(
                    self._panels.pop(outdated.pop()) if outdated else self._panels.popitem()[1]
                )

    def fill(self, key: Key, design: Design, X: Float, out: Float) -> None:
        """Write Φ at the rows X into ``out`` (n, M), stored column by column; ``key`` identifies
        panel and design.

        Args:
            key: the panel and the design.
            design: the design.
            X: rows (n, d).
            out: the block (n, M), stored column by column.
        """
        design.lead(X, out)
        rows = out.T[design.n_leading :]
        labels = design.labels
        with self._lock:
            panel = self._panels.pop(key, None) or _Panel(np.empty((0, len(X))))
        values = _read(panel.values)
        _, of_panel, places = np.intersect1d(
            labels, panel.labels, assume_unique=True, return_indices=True
        )
        rows[of_panel] = values[places]
        missing = np.setdiff1d(np.arange(len(labels)), of_panel)
        rows[missing] = new = design.take(missing, leading=NONE).block(X).T
        self._keep(panel, values, labels, labels[missing], new)
        with self._lock:
            if self._panels.setdefault(key, panel) is not panel:
                self._delete(panel)  # two runs of one task overlapped

    def _keep(
        self, panel: _Panel, of_panel: Float, requested: Int, labels: Int, values: Float
    ) -> None:
        """Keep the columns that this run has requested, and as many new columns as fit.

        Args:
            panel: the panel with k kept columns
            of_panel: (k, n), values of the kept columns
            requested: (M,), labels of the columns of the design
            labels: (m,), labels of the new columns
            values: (m, n), values of the new columns
        """
        stay = np.isin(panel.labels, requested) | (panel.run == self._run)
        size = 8 * values.shape[1]
        panel.run = self._run
        with self._lock:
            self.used += size * int(stay.sum()) - panel.nbytes
            count = min(len(labels), max(self._budget - self.used, 0) // size)
            self.used += size * count
        panel.nbytes = size * (int(stay.sum()) + count)
        if not count and stay.all():
            return
        _remove(panel.values)
        panel.labels = np.concatenate([panel.labels[stay], labels[:count]])
        panel.values = np.concatenate([of_panel[stay], values[:count]])
        if self._folder is not None:
            panel.values = _written(panel.values, self._folder)

    def _delete(self, panel: _Panel) -> None:
        self.used -= panel.nbytes
        _remove(panel.values)


def _read(values: Float | Path) -> Float:
    """Return values from memory or from a Zarr array. Raises ``StorageError`` if the array is
    damaged."""
    if isinstance(values, np.ndarray):
        return values
    import zarr

    with reading(str(values), ADVICE, StorageError):
        return np.asarray(zarr.open_array(str(values), mode="r")[:])


def _written(values: Float, folder: str) -> Path:
    """Write values to a single-chunk Zarr array with a checksum, and return its path."""
    import zarr
    from zarr.codecs import Crc32cCodec

    place = Path(folder) / f"block-{uuid.uuid4().hex}"
    configuration: Any = {"write_empty_chunks": True}
    with storing(folder, ADVICE):
        place.parent.stat()  # Zarr would create this folder, even after the end of the fit
        zarr.create_array(
            str(place),
            data=values,
            chunks=values.shape,
            compressors=[Crc32cCodec()],
            config=configuration,
        )
    return place


def _remove(values: Float | Path) -> None:
    if isinstance(values, Path):
        shutil.rmtree(values, ignore_errors=True)


_stores: dict[str, BlockStore] = {}
_stores_lock = threading.RLock()
"""Reentrant: the garbage collector may run finalizers, which call ``forget``, while ``store_of``
holds the lock."""


def store_of(keeping: Keeping) -> BlockStore:
    """Return this process's store for a fit, creating it if necessary, and register the run."""
    with _stores_lock:
        for token in [
            token for token, other in _stores.items() if time.monotonic() - other.touched > IDLE
        ]:
            forget(token)
        store = _stores.setdefault(keeping.token, BlockStore(keeping.folder))
    store.begin(keeping)
    return store


def forget(token: str) -> None:
    """Delete the blocks that this process has kept for a fit."""
    with _stores_lock:
        _stores.pop(token, None)


def fill_block(
    keeping: Keeping | None, key: tuple[int, str, int], design: Design, X: Float, out: Float
) -> None:
    """Write Φ at a panel's rows X (n, d) to ``out`` (n, M), from kept columns if possible; ``key``
    begins a ``Key``.

    Args:
        keeping: the settings for kept blocks; None if none are kept.
        key: the number of the tile, a digest of its selected rows, and the number of the panel.
        design: the design.
        X: the panel's rows (n, d).
        out: the block (n, M), stored column by column.
    """
    is_kept = design.origin is not None and len(design.centres) > 0
    d = design.scaling.n_inputs
    if (
        keeping is not None
        and is_kept
        and all(independent(kernel, d, len(X)) for kernel in design.kernels)
    ):
        store_of(keeping).fill((*key, design.basis), design, X, out)
    else:
        design.block(X, out)


@lru_cache(maxsize=256)
def independent(kernel: Any, d: int, n: int) -> bool:
    """Return True if, on this machine, a column of n rows has the same bits at any position among
    other columns."""
    rng = np.random.default_rng(0)
    points = rng.normal(size=(n, d))
    centre = rng.normal(size=(1, d))
    origin = np.zeros(d)
    columns: list[Float] = []
    for copies in (1, 17, 64):
        block = np.empty((copies, n)).T
        kernel.prepare(np.repeat(centre, copies, axis=0), origin)(points, block)
        columns.extend(block.T)
    return all((column == columns[0]).all() for column in columns)
