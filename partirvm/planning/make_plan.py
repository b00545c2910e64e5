"""Make a plan: compute threads, columns and rounds from the memory limit, or raise ``MemoryLimitError``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, sqrt
from typing import Any

from partirvm.errors import MemoryLimitError
from partirvm.options import Request
from partirvm.planning.cost import RANDOM_SEARCH, CandidateSearch, Rates, RowsUsed, Schedule, Work, n_partitions
from partirvm.planning.memory import (
    ALLOWANCE,
    DataShape,
    StepBytes,
    batch_elements,
    max_columns_within,
    step_bytes,
    step_of_columns,
)
from partirvm.planning.plan import Machine, Plan
from partirvm.planning.units import format_bytes

LEAST_PARTITION = 50
"""Minimum to which an automatic partition size is lowered because of the memory limit."""


def affordable(shape: DataShape, machine: Machine, candidates: int, *, shrink_threads: bool = True) -> tuple[int, int]:
    """Return the number of threads and candidates for which one fit of all candidates stays within the memory limit.

    The result is at least 2 candidates. If memory does not suffice for these, ``make_plan`` raises an error later.
    """
    limit = _Limit(shape, machine, 0, False, True, 1 if shrink_threads else machine.threads)
    threads, columns = limit.fitting(1, candidates + shape.n_leading)
    return threads, min(candidates, max(columns - shape.n_leading, 2))


@dataclass(frozen=True)
class _Limit:
    """Computes what fits within the memory limit; ``whole`` is True if one pass computes all columns of a fit."""

    shape: DataShape
    machine: Machine
    pool: int
    held_out: bool
    whole: bool
    least_threads: int

    @property
    def budget(self) -> int:
        """Bytes for the fit: the memory limit without the base memory of the process."""
        return self.machine.limit - self.machine.base - ALLOWANCE

    @property
    def how(self) -> dict[str, Any]:
        """Arguments of ``step_of_columns``."""
        return {"pool": self.pool, "held_out": self.held_out, "whole": self.whole}

    def least_columns(self, candidates: int) -> int:
        """Return the columns that must fit: ``candidates`` new ones, as many kept ones, and the leading columns."""
        return min(2 * candidates, self.shape.n_candidates) + self.shape.n_leading

    def fitting(self, candidates: int, least: int) -> tuple[int, int]:
        """Return the largest number of threads for which ``least`` columns fit, and how many fit with these threads."""
        for threads in range(self.machine.threads, self.least_threads - 1, -1):
            columns = max_columns_within(self.shape, candidates, threads, self.budget, **self.how)
            if columns >= least:
                break
        return threads, columns

    def step(self, columns: int, candidates: int, threads: int) -> StepBytes:
        """Compute the bytes of a step with ``columns`` columns, of which ``candidates`` are new."""
        return step_of_columns(self.shape, columns, candidates, threads, **self.how)

    def refusal(self, candidates: int, schedule: Schedule) -> MemoryLimitError:
        """Make the error with the memory that one round needs, the limit, and the options to change."""
        shape, machine = self.shape, self.machine
        least = step_bytes(
            shape, shape.n_leading, candidates, self.least_threads, pool=self.pool, held_out=self.held_out
        )
        what, less = f"one round of {candidates:,} candidates", "lower partition_size"
        if schedule.one_fit:
            less = f"choose another strategy than {schedule.name!r}, which fits all candidates at once"
        if shape.n_leading > 1:
            what += f" and {shape.n_leading:,} columns of the basis"
            less += " or use fewer basis functions"
        return MemoryLimitError(
            f"{what} over tiles of {shape.tile_rows:,} rows needs "
            f"{format_bytes(machine.base + ALLOWANCE + least.peak)} "
            f"per process (including {format_bytes(machine.base)} before the fit), but the memory limit is "
            f"{format_bytes(machine.limit)}: raise memory_limit or {less}"
        )


def make_plan(
    shape: DataShape,
    machine: Machine,
    rates: Rates,
    request: Request,
    schedule: Schedule,
    rows_used: RowsUsed,
    candidate_search: CandidateSearch = RANDOM_SEARCH,
    *,
    held_out: bool = False,
    shrink_threads: bool = True,
    shrink_partition: bool = False,
    joining: int | None = None,
) -> Plan:
    """Compute threads and the maximum number of columns from memory; estimate passes, seconds and peak memory.

    ``request`` is resolved. ``rows_used`` are the rows of intermediate fits, ``candidate_search`` the selection of
    candidates. ``joining`` is the number of rows that are split into partitions, by default all rows.
    ``shrink_threads`` and ``shrink_partition`` permit fewer threads and candidates if memory is short. The schedule
    bounds the candidates by ``max_vectors``. Raises ``MemoryLimitError`` if one round needs more than the limit.
    """
    whole = not schedule.has_rounds or rows_used.sampled or shape.classes
    limit = _Limit(shape, machine, candidate_search.pool, held_out, whole, 1 if shrink_threads else machine.threads)
    candidates, threads, most, notes = _columns(limit, request, schedule, shrink=shrink_partition)
    rows, stop = joining or shape.n_rows, request.stop_fraction
    work = Work(shape, rows_used, candidate_search, rates, threads * machine.workers)
    costs = schedule.costs(work, candidates, stop, request.max_rounds, rows)
    columns = schedule.columns(costs, stop, most)
    step, elements = limit.step(columns, candidates, threads), 0
    if schedule.merges:  # the parallel fits get half of the bytes that a step of one of them leaves
        one = limit.step(candidates + shape.n_leading, candidates, threads)
        together = n_partitions(rows, candidates, shape.n_kernels)
        elements = batch_elements(shape, candidates, threads, (limit.budget - one.peak) // 2, together)
        batch = step_bytes(shape, 0, 1, threads, elements=elements).batch
        step = max(step, replace(one, batch=batch), key=lambda each: each.peak)
    return Plan(
        shape=shape,
        machine=machine,
        schedule=schedule,
        selection=request.selection,
        fit_rows=request.fit_rows,
        partition_size=candidates,
        max_rounds=request.max_rounds,
        max_vectors=request.max_vectors,
        max_columns=most,
        threads=threads,
        bytes=step,
        rounds=tuple(costs),
        sample_rows=int(request.sample_rows) if rows_used.sampled else None,
        batch_elements=elements,
        pool=candidate_search.pool,
        outputs=shape.n_outputs if shape.classes else None,
        notes=notes,
        joining=joining,
        columns=columns,
    )


def _columns(
    limit: _Limit, request: Request, schedule: Schedule, *, shrink: bool
) -> tuple[int, int, int, tuple[str, ...]]:
    """Compute candidates, threads and columns within the limit, and notes; ``shrink`` permits fewer candidates."""
    asked, n_candidates = int(request.partition_size), limit.shape.n_candidates
    candidates = schedule.candidates(asked, request.max_vectors, n_candidates)
    held: tuple[str, ...] = ()
    if candidates < min(asked, n_candidates):
        held = (f"partition size lowered to {candidates} because of max_vectors",)
    notes, (threads, columns) = held, limit.fitting(candidates, limit.least_columns(candidates))
    while shrink and columns < limit.least_columns(candidates) and candidates > LEAST_PARTITION:
        candidates = max(candidates // 2, LEAST_PARTITION)
        threads, columns = limit.fitting(candidates, limit.least_columns(candidates))
        notes = (*held, f"partition size lowered to {candidates} because of the memory limit")
    if not columns:
        raise limit.refusal(candidates, schedule)
    most = limit.machine.threads
    if threads < most:
        notes += (f"{threads} of {most} threads are used because of the memory limit",)
    return candidates, threads, columns, notes


def partition_size(n_rows: int, n_features: int, rho: float) -> int:
    """Compute the partition size ⌈f·√(N·d)⌉ with f = 0.2 for ρ ≤ 0.25, 0.6 for 0.25 < ρ ≤ 0.75, and 1 for larger ρ.

    ρ is the fraction of rows that a basic RVM on √(N·d) random rows keeps as vectors (Ben-Shimon & Shmilovici 2006,
    §3.1; the paper prints the middle line with a reversed sign).

    >>> [partition_size(6144, 8, rho) for rho in (0.1, 0.5, 0.9)]
    [45, 134, 222]
    >>> [partition_size(6144, 32, rho) for rho in (0.25, 0.75, 1.0)]
    [89, 267, 444]
    """
    return ceil(fraction(rho) * sqrt(n_rows * n_features))


def fraction(rho: float) -> float:
    """Return the factor f of ``partition_size`` for a sparseness ρ."""
    return 0.2 if rho <= 0.25 else 0.6 if rho <= 0.75 else 1.0


def probe_rows(n_rows: int, n_features: int, cap: int) -> int:
    """Return the number of rows on which ρ is measured: ⌈√(N·d)⌉, at most ``cap`` and at most all rows."""
    return min(ceil(sqrt(n_rows * n_features)), cap, n_rows)
