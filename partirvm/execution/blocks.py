"""Sources of kernel blocks Φ[tile, :] for the passes over a tile: evaluated, or stored between passes.

A column has the same bits whether it is evaluated alone or among other columns (``Design.origin``). On a machine where
the bits differ, nothing is stored. So results do not depend on storage. Rows of a sample are stored from their second
pass on, since most samples are used once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from partirvm.execution.block_store import BlockStore, Fetched, Float, Int, Keeping, store_of
from partirvm.kernels.design import Design


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
        store = self._store(design, X, digest)
        if store is None:
            self.fetched += Fetched(evaluated=len(X) * len(design.centres))
            return design.block(X, out)
        assert isinstance(self.keeping, Keeping)
        key = (self.number, digest, panel, design.identity)
        self.fetched += store.fill(key, self.keeping.run, design, X, out)
        return out

    def _store(self, design: Design, X: Float, digest: str) -> BlockStore | None:
        keeping = self.keeping
        if not isinstance(keeping, Keeping) or design.origin is None or not len(design.centres):
            return None
        store = store_of(keeping)
        if digest and not store.again(self.number, digest, keeping.run):
            return None
        kernels: Any = design.kernels  # frozen, and hashed by their parameters
        return store if all(independent(kernel, X.shape[1], len(X)) for kernel in kernels) else None


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
