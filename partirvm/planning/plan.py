"""A plan: what a fit would do, decided by arithmetic, printed before it runs, and refused if it cannot fit."""

from __future__ import annotations

from dataclasses import dataclass

from partirvm.errors import MemoryLimitError
from partirvm.planning.cost import NOT_LOOKING, UNLIMITED_ROUNDS, Looking, Rates, RoundCost, working_set_cost
from partirvm.planning.memory import ALLOWANCE, DataShape, StepBytes, most_columns, step_bytes
from partirvm.planning.units import format_bytes, format_duration

LEAST_PARTITION = 50
"""Fewest candidates to which memory lowers a partition size that was left to the plan."""


@dataclass(frozen=True)
class Machine:
    """Where tasks run: threads of a process, its bytes before the fit, and its limit in bytes."""

    threads: int
    base: int
    limit: int
    workers: int = 1


@dataclass(frozen=True)
class Plan:
    """What would be done. ``notes`` say where a number was capped, and by what."""

    shape: DataShape
    machine: Machine
    strategy: str
    selection: str
    likelihood: str
    partition_size: int
    max_rounds: int | None
    max_vectors: int | None
    max_columns: int
    threads: int
    bytes: StepBytes
    rounds: tuple[RoundCost, ...]
    notes: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        """Expected seconds of the whole fit."""
        return sum(cost.pass_seconds + cost.solve_seconds for cost in self.rounds)

    @property
    def passes(self) -> int:
        """Expected passes over the rows."""
        return sum(cost.passes for cost in self.rounds)

    @property
    def peak(self) -> int:
        """Expected peak resident bytes of a process, itself included."""
        return self.machine.base + ALLOWANCE + self.bytes.peak

    def to_json(self) -> dict[str, object]:
        """The plan as plain JSON."""
        return {
            "rows": self.shape.n_rows,
            "features": self.shape.n_features,
            "tile_rows": self.shape.tile_rows,
            "tiles": self.shape.n_tiles,
            "strategy": self.strategy,
            "likelihood": self.likelihood,
            "selection": self.selection,
            "partition_size": self.partition_size,
            "rounds": len(self.rounds),
            "max_rounds": self.max_rounds,
            "max_vectors": self.max_vectors,
            "max_columns": self.max_columns,
            "passes": self.passes,
            "rows_per_task": self.shape.tile_rows,
            "threads": self.threads,
            "workers": self.machine.workers,
            "seconds": round(self.seconds, 2),
            "memory_limit": self.machine.limit,
            "memory_peak": self.peak,
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        shape, machine = self.shape, self.machine
        known = "" if self.max_rounds is not None else f" (no limit set; {len(self.rounds)} assumed)"
        place = f"{machine.workers} workers × {self.threads}" if machine.workers > 1 else f"{self.threads}"
        lines = [
            f"data        {shape.n_rows:,} rows × {shape.n_features} features, "
            f"{shape.n_tiles:,} tiles of {shape.tile_rows:,} rows",
            f"strategy    {self.strategy}, likelihood {self.likelihood}, selection {self.selection}",
            f"candidates  P = {self.partition_size} per round, {len(self.rounds)} rounds{known}",
            f"columns     at most {self.max_columns:,} fit in memory"
            + (f", max_vectors {self.max_vectors:,}" if self.max_vectors is not None else ""),
            f"work        {self.passes} passes over the rows, {shape.tile_rows:,} rows per task, {place} threads",
            f"time        about {format_duration(self.seconds)}, of which dense fits "
            f"{format_duration(sum(cost.solve_seconds for cost in self.rounds))}",
            f"memory      about {format_bytes(self.peak)} of {format_bytes(machine.limit)} "
            f"(process {format_bytes(machine.base)}, pass {format_bytes(self.bytes.passing)}, "
            f"dense fit {format_bytes(self.bytes.solving)})",
        ]
        return "\n".join(lines + [f"note        {note}" for note in self.notes])


def make_plan(
    shape: DataShape,
    machine: Machine,
    rates: Rates,
    *,
    strategy: str,
    selection: str,
    likelihood: str,
    partition_size: int,
    stop_fraction: float,
    max_rounds: int | None,
    max_vectors: int | None,
    looking: Looking = NOT_LOOKING,
    held_out: bool,
    shrink_threads: bool = True,
    shrink_partition: bool = False,
    notes: tuple[str, ...] = (),
) -> Plan:
    """Decide threads and the most columns from memory, and estimate passes, seconds and the peak.

    With ``shrink_threads`` fewer threads are used where all of them would not fit, and with ``shrink_partition`` fewer
    candidates; ``max_vectors`` bounds the candidates in any case. Raises ``MemoryLimitError`` if not even one round
    fits, with what it needs, what it has and what to change.
    """
    candidates = min(shape.n_rows, partition_size, max_vectors or partition_size)
    if candidates < min(partition_size, shape.n_rows):
        notes += (f"P held to {candidates} by max_vectors",)
    budget = machine.limit - machine.base - ALLOWANCE
    least = 1 if shrink_threads else machine.threads

    def fitting(candidates: int) -> tuple[int, int]:
        for threads in range(machine.threads, least - 1, -1):
            columns = most_columns(shape, candidates, threads, budget, pool=looking.pool, held_out=held_out)
            if columns >= min(2 * candidates, shape.n_rows) + 1:
                break
        return threads, columns

    threads, columns = fitting(candidates)
    while shrink_partition and columns < 2 * candidates + 1 and candidates > LEAST_PARTITION:
        candidates = max(candidates // 2, LEAST_PARTITION)
        threads, columns = fitting(candidates)
        capped = (f"P held to {candidates} by the memory limit",)
        notes = tuple(note for note in notes if not note.endswith("by the memory limit")) + capped
    if not columns:
        need = (
            machine.base
            + ALLOWANCE
            + step_bytes(shape, 1, candidates, least, pool=looking.pool, held_out=held_out).peak
        )
        raise MemoryLimitError(
            f"one round of {candidates} candidates over tiles of {shape.tile_rows:,} rows needs {format_bytes(need)} "
            f"per process ({format_bytes(machine.base)} of it the process itself), the memory limit is "
            f"{format_bytes(machine.limit)}: raise memory_limit or lower partition_size"
        )
    rounds = 1 if strategy == "basic" else max_rounds if max_rounds is not None else UNLIMITED_ROUNDS
    rounds = max(min(rounds, -(-shape.n_rows // candidates)), 1)
    costs = working_set_cost(
        shape.n_rows,
        candidates,
        rounds,
        stop_fraction,
        looking=looking,
        rates=rates,
        threads=threads * machine.workers,
    )
    expected = min(max(cost.kept + cost.candidates for cost in costs), columns)
    if threads < machine.threads:
        notes += (f"{threads} of {machine.threads} threads, so that a round fits under the memory limit",)
    return Plan(
        shape=shape,
        machine=machine,
        strategy=strategy,
        selection=selection,
        likelihood=likelihood,
        partition_size=candidates,
        max_rounds=max_rounds,
        max_vectors=max_vectors,
        max_columns=columns,
        threads=threads,
        bytes=step_bytes(shape, expected - candidates, candidates, threads, pool=looking.pool, held_out=held_out),
        rounds=tuple(costs),
        notes=notes,
    )
