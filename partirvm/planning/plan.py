"""``Plan``: the expected work, time and memory of a fit, with its text and its JSON."""

from __future__ import annotations

from dataclasses import dataclass

from partirvm.planning.cost import Rates, RoundCost, Schedule, n_partitions
from partirvm.planning.memory import (
    ALLOWANCE,
    FLOAT,
    DataShape,
    StepBytes,
    kept_bytes,
    max_columns_within,
    sample_bytes,
)
from partirvm.planning.units import counted, format_bytes, format_duration
from partirvm.quoting import html_table
from partirvm.types import LEARNING_ROWS


@dataclass(frozen=True)
class Machine:
    """The processes that run tasks: threads, bytes before the fit, and memory limit in bytes, each per process."""

    threads: int
    base: int
    limit: int
    workers: int = 1


@dataclass(frozen=True)
class Sparseness:
    """The result of the heuristic: a basic RVM of ``rows`` random rows kept ``vectors``; the derived partition size."""

    rows: int
    vectors: int
    partition_size: int

    @property
    def rho(self) -> float:
        """Fraction ρ of rows that became vectors."""
        return self.vectors / self.rows

    def __str__(self) -> str:
        return (
            f"P = {self.partition_size:,} by sparseness: {self.vectors:,} of {self.rows:,} random rows became vectors "
            f"(ρ = {self.rho:.3f})"
        )


@dataclass(frozen=True)
class Plan:
    """The plan of a fit by a strategy with this ``schedule``.

    ``pool`` is the number of columns on trial if candidates are chosen by gain. ``outputs`` is the number of linear
    predictors of a classification (1 for two classes), and None for regression. ``notes`` list the numbers that were
    capped, and the reasons. ``learned`` describes the learned kernel, if there is one, and ``learning_seconds`` is the
    time that kernel learning and the heuristic have taken. ``joining`` is the number of rows that have yet to become
    candidates (None for all rows). ``columns`` is the expected maximum number of columns M + P.
    """

    shape: DataShape
    machine: Machine
    schedule: Schedule
    selection: str
    fit_rows: str
    partition_size: int
    max_rounds: int | None
    max_vectors: int | None
    max_columns: int
    threads: int
    bytes: StepBytes
    rounds: tuple[RoundCost, ...]
    sample_rows: int | None = None
    batch_elements: int = 0
    pool: int = 0
    outputs: int | None = None
    sparseness: Sparseness | None = None
    notes: tuple[str, ...] = ()
    kernel_store: KernelStore | None = None
    learned: str | None = None
    learning_seconds: float = 0.0
    joining: int | None = None
    columns: int = 0

    @property
    def strategy(self) -> str:
        """Name of the strategy."""
        return self.schedule.name

    @property
    def partitions(self) -> int:
        """Number of partitions (``cost.n_partitions``)."""
        return n_partitions(self.joining or self.shape.n_rows, self.partition_size, self.shape.n_kernels)

    @property
    def seconds(self) -> float:
        """Expected seconds of the whole fit, including the time taken by kernel learning and the heuristic."""
        return self.learning_seconds + sum(cost.pass_seconds + cost.solve_seconds for cost in self.rounds)

    @property
    def passes(self) -> int:
        """Expected number of passes over the rows."""
        return sum(cost.passes for cost in self.rounds)

    @property
    def peak(self) -> int:
        """Expected peak of the resident bytes of a process, including its memory before the fit."""
        kept = 0 if self.kernel_store is None else self.kernel_store.resident
        return self.machine.base + ALLOWANCE + self.bytes.peak + kept

    def room(self, columns: int) -> int:
        """Return the bytes that a process may use for kernel blocks while the fit has ``columns`` columns."""
        budget = self.machine.limit - self.machine.base - ALLOWANCE
        return kept_bytes(
            self.shape,
            columns,
            self.threads,
            budget,
            pool=self.pool,
            held_out=self.bytes.best > 0,
            elements=self.batch_elements,
        )

    @property
    def learning_columns(self) -> int:
        """Maximum number of columns for kernel learning between rounds.

        The slopes of a kernel block take as much memory as the block itself, and the sample of rows is in memory too.
        """
        budget = self.machine.limit - self.machine.base - ALLOWANCE - sample_bytes(self.shape, LEARNING_ROWS)
        return max_columns_within(self.shape, 1, self.threads, budget, held_out=self.bytes.best > 0, whole=True) // 2

    def to_json(self) -> dict[str, object]:
        """Convert the plan to plain JSON."""
        own = "strategy fit_rows sample_rows selection partition_size partitions passes threads"
        limits = "max_rounds max_vectors max_columns"
        shape, heuristic, store = self.shape, self.sparseness, self.kernel_store
        return {
            "rows": shape.n_rows,
            "features": shape.n_features,
            "tile_rows": shape.tile_rows,
            "tiles": shape.n_tiles,
            **{name: getattr(self, name) for name in f"{own} {limits}".split()},
            "rho": None if heuristic is None else round(heuristic.rho, 4),
            "rho_rows": None if heuristic is None else heuristic.rows,
            "rounds": len(self.rounds),
            "rows_per_task": shape.tile_rows,
            "workers": self.machine.workers,
            **({} if self.outputs is None else {"outputs": self.outputs}),
            "seconds": round(self.seconds, 2),
            "memory_limit": self.machine.limit,
            "memory_peak": self.peak,
            "kernel_store": None if store is None else store.where,
            "kernel_store_bytes": None if store is None else store.bytes,
            "kernel_store_reason": None if store is None else store.reason,
            **({} if self.learned is None else {"learned": self.learned}),
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        shape, machine = self.shape, self.machine
        place = counted(self.threads, "thread")
        classes = "" if self.outputs is None else f"{max(self.outputs, 2):,} classes, "
        rows = "" if self.sample_rows is None else f" of {self.sample_rows:,} rows"
        if machine.workers > 1:
            place = f"{machine.workers} workers × {place}"
        lines = [
            f"data        {counted(shape.n_rows, 'row')} × {counted(shape.n_features, 'feature')}, {classes}"
            f"{counted(shape.n_tiles, 'tile')} of {shape.tile_rows:,} rows",
            f"strategy    {self.strategy}, likelihood {self.fit_rows}{rows}"
            + (f", selection {self.selection}" if self.schedule.selects else ""),
            f"candidates  {self._candidates()}",
            f"columns     at most {self.max_columns:,} fit in memory"
            + (f", max_vectors {self.max_vectors:,}" if self.max_vectors is not None else ""),
            f"work        {self.passes:,} passes over the rows, {shape.tile_rows:,} rows per task, {place}",
            f"time        about {format_duration(self.seconds)}, of which dense fits "
            f"{format_duration(sum(cost.solve_seconds for cost in self.rounds))}"
            + (f", kernel learning {format_duration(self.learning_seconds)}" if self.learned else ""),
            f"memory      about {format_bytes(self.peak)} of {format_bytes(machine.limit)} "
            f"(process {format_bytes(machine.base)}, pass {format_bytes(self.bytes.passing)}, "
            f"dense fit {format_bytes(self.bytes.solving)})",
        ]
        if self.kernel_store is not None:
            lines.append(f"kernel      {self.kernel_store}")
        if self.learned is not None:
            lines.append(f"learned     {self.learned}")
        if self.sparseness is not None:
            lines.insert(3, f"heuristic   {self.sparseness}")
        return "\n".join(lines + [f"note        {note}" for note in self.notes])

    def _repr_html_(self) -> str:
        return html_table("Plan", ((line[:12].strip(), line[12:]) for line in str(self).splitlines()))

    def _candidates(self) -> str:
        kernels = self.shape.n_kernels
        if not kernels:
            return f"none: there is no kernel, {self.shape.n_leading:,} columns at once"
        text = self.schedule.text(self.to_json())
        if kernels > 1:
            text += f"; a row has {kernels} candidates, one for each kernel"
        if self.schedule.open_ended(self.max_rounds):
            text += f"; the estimates assume {counted(len(self.rounds), 'round')}"
        return text


WORTH = 0.5
"""Blocks are kept if fetching an element takes less than this fraction of the time to evaluate the element."""

ENOUGH = 0.25
"""Fraction of all blocks that must fit in memory; with less memory, the disk is an alternative."""

STORE_FRACTION = 0.25
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
