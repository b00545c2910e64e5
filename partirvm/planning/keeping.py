"""Choose where kernel blocks Φ[tile, :] are kept between passes: in memory, in Zarr on disk, or nowhere.

Keeping M columns of N rows takes f N M bytes (f = 8) over all workers together. In memory the blocks get only the bytes
that the fit itself does not need, so keeping them never makes a fit impossible or smaller. On disk the blocks take at
most the fraction ``DISK`` of the free bytes.

By default blocks are kept only if passes repeat their columns, as the Newton steps of a classification do. Each round
of a regression is one pass with new columns, and a store then costs more than it saves: with 1.4 million rows × 9
features, three rounds took 48.7 s and 167 MiB without a store, and 52.4 s and 8.0 GiB with a store.
"""

from __future__ import annotations

from dataclasses import dataclass

from partirvm.planning.cost import Rates
from partirvm.planning.memory import FLOAT
from partirvm.planning.units import format_bytes

WORTH = 0.5
"""Blocks are kept if fetching an element takes less than this fraction of the time to evaluate the element."""

ENOUGH = 0.25
"""Fraction of all blocks that must fit in memory; with less memory, the disk is an alternative."""

SHARE = 0.25
"""Maximum fraction of the memory limit for kernel blocks if both ``memory_limit`` and ``kernel_store`` are "auto"."""

DISK = 0.5
"""Maximum fraction of the free bytes on disk that blocks may take."""

DISK_SECONDS = 5e-9
"""Assumed seconds to fetch an element from disk, its share of the writing included: about 2 GB/s."""


@dataclass(frozen=True)
class KernelStore:
    """The chosen place of kernel blocks ("memory", "zarr" or "none"), the bytes per process, and the reason."""

    where: str
    bytes: int
    reason: str

    @property
    def resident(self) -> int:
        """Bytes of the store that are resident memory."""
        return self.bytes if self.where == "memory" else 0

    def __str__(self) -> str:
        if self.where == "none":
            return f"evaluated in every pass ({self.reason})"
        place = "in memory" if self.where == "memory" else "in Zarr"
        return f"kept {place}, about {format_bytes(self.bytes)} ({self.reason})"


def choose(
    asked: str, rates: Rates, rows: int, columns: int, workers: int, spare: int, free: int, *, repeats: bool
) -> KernelStore:
    """Choose where the blocks of ``rows`` × ``columns`` elements are kept; ``asked`` is the option ``kernel_store``.

    ``spare`` is the number of free bytes in each process, and ``free`` that of the disk. ``repeats`` is True if passes
    repeat their columns.
    """
    wanted, disk = FLOAT * rows * columns // workers, int(DISK * free / workers)
    spare = min(max(spare, 0), wanted)
    if asked == "auto" and not repeats:
        return KernelStore("none", 0, "each pass of a regression has new columns")
    if asked == "memory":
        return KernelStore("memory", spare, "as requested" if spare else "as requested, but the fit leaves no memory")
    if asked != "auto":
        return KernelStore(asked, min(wanted, disk) if asked == "zarr" else 0, "as requested")
    element, copy = rates.element, rates.copy
    costs = f"an element takes {1e9 * element:.2g} ns to evaluate, {1e9 * copy:.2g} ns to copy"
    worth = copy < WORTH * element
    if worth and spare >= ENOUGH * wanted:
        return KernelStore("memory", spare, costs)
    if WORTH * element > DISK_SECONDS and disk >= wanted:
        return KernelStore("zarr", wanted, f"{costs}, {1e9 * DISK_SECONDS:.2g} ns from disk")
    if worth and spare:
        return KernelStore("memory", spare, costs)
    return KernelStore("none", 0, costs if spare else costs + ", and the fit leaves no memory")
