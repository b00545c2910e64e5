"""Where kernel blocks Φ[tile, :] are kept between passes, decided by measured rates: memory, Zarr, or nowhere.

Keeping the M columns of N rows takes f N M bytes of all workers together. In memory it gets only what the fit itself
leaves of the limit, so that it never makes a fit impossible or smaller; on disk at most ``DISK`` of what is free.

Blocks are kept by default only where passes repeat their columns, as the Newton steps of classes do. Each round of a
regression is one pass that brings new columns, and a store costs more than it saves: 1.4 million rows × 9, three
rounds, took 48.7 s and 167 MiB without one and 52.4 s and 8.0 GiB with it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from partirvm.planning.cost import Rates
from partirvm.planning.memory import FLOAT
from partirvm.planning.units import format_bytes

WORTH = 0.5
"""An element is kept where fetching it takes less than this part of evaluating it."""

ENOUGH = 0.25
"""Part of all blocks for which there must be memory before a disk is looked at."""

SHARE = 0.25
"""Most of a memory limit that nobody set which blocks take, where nobody asked for them either."""

DISK = 0.5
"""Most of the disk's free bytes that may be taken."""

USES = 4
"""How often what is written to disk is read, for an estimate."""


@dataclass(frozen=True)
class Disk:
    """What the first tile told of a disk: seconds to write and to read an element, free bytes."""

    write: float
    read: float
    free: int


@dataclass(frozen=True)
class KernelStore:
    """Where blocks are kept ("memory", "zarr" or "none"), bytes expected of a process, and why there."""

    where: str
    bytes: int
    reason: str

    @property
    def resident(self) -> int:
        """Bytes of it that are resident memory."""
        return self.bytes if self.where == "memory" else 0

    def __str__(self) -> str:
        if self.where == "none":
            return f"evaluated in every pass ({self.reason})"
        place = "in memory" if self.where == "memory" else "in Zarr"
        return f"kept {place}, about {format_bytes(self.bytes)} ({self.reason})"


def choose(
    asked: str,
    rates: Rates,
    rows: int,
    columns: int,
    workers: int,
    spare: int,
    disk: Callable[[], Disk | None],
    *,
    repeats: bool,
) -> KernelStore:
    """Where the blocks of so many rows and columns go, ``spare`` being bytes left in each process.

    ``repeats`` says whether passes see the same columns again; ``disk`` is asked where it matters, and answers None
    where there is none.
    """
    if asked == "auto" and not repeats:
        return KernelStore("none", 0, "the passes of a regression bring new columns")
    wanted = FLOAT * rows * columns // workers
    spare = min(max(spare, 0), wanted)
    if asked == "none":
        return KernelStore("none", 0, "as asked")
    if asked == "memory":
        return KernelStore("memory", spare, "as asked" if spare else "as asked, but the fit leaves no memory for it")
    if asked == "zarr":
        found = disk()
        free = 0 if found is None else int(DISK * found.free / workers)
        return KernelStore("zarr", min(wanted, free), "as asked")
    element, copy = rates.element, rates.copy
    costs = f"an element takes {1e9 * element:.2g} ns to evaluate, {1e9 * copy:.2g} ns to copy"
    worth = copy < WORTH * element
    if worth and spare >= ENOUGH * wanted:
        return KernelStore("memory", spare, costs)
    found = disk()
    if found is None:
        costs += ", and there is no disk for it"
    else:
        seconds = found.read + found.write / USES
        costs += f", {1e9 * seconds:.2g} ns from disk"
        if seconds < WORTH * element and DISK * found.free >= wanted * workers:
            return KernelStore("zarr", wanted, costs)
    if worth and spare:
        return KernelStore("memory", spare, costs)
    return KernelStore("none", 0, costs if spare else costs + ", and the fit leaves no memory for it")
