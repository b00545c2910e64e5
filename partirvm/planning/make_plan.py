"""Making a plan: threads, columns and rounds decided by arithmetic from memory, and refused if they cannot fit."""

from __future__ import annotations

from dataclasses import dataclass, replace

from partirvm.errors import MemoryLimitError
from partirvm.options import Request
from partirvm.planning.cost import NOT_LOOKING, Looking, Rates, Seen, Work, n_partitions
from partirvm.planning.memory import (
    ALLOWANCE,
    DataShape,
    StepBytes,
    batch_elements,
    most_columns,
    pool_columns,
    step_bytes,
)
from partirvm.planning.plan import Machine, Plan
from partirvm.planning.schedule import Schedule
from partirvm.planning.units import format_bytes

LEAST_PARTITION = 50
"""Fewest candidates to which memory lowers a partition size that was left to the plan."""


def affordable(shape: DataShape, machine: Machine, candidates: int, *, shrink_threads: bool = True) -> tuple[int, int]:
    """Threads, and how many of the ``candidates``, for one fit of them all at once under the machine's limit.

    2 candidates are left in any case: what cannot do even that is refused with its plan.
    """
    budget = machine.limit - machine.base - ALLOWANCE
    for threads in range(machine.threads, 0 if shrink_threads else machine.threads - 1, -1):
        most = most_columns(shape, 1, threads, budget, whole=True) - shape.n_leading
        if most >= candidates:
            break
    return threads, min(candidates, max(most, 2))


@dataclass(frozen=True)
class Method:
    """How a fit goes, as far as its plan depends on it.

    ``seen`` are the rows of intermediate fits; ``all_rows`` says that these, and the last, see all of them; ``looking``
    is how candidates are found.
    """

    schedule: Schedule
    seen: Seen
    all_rows: bool
    looking: Looking = NOT_LOOKING


@dataclass(frozen=True)
class _Limit:
    """What the memory limit leaves to the steps of a fit; ``whole`` says that all columns of a fit come in one pass."""

    shape: DataShape
    machine: Machine
    pool: int
    held_out: bool
    whole: bool
    least_threads: int

    @property
    def budget(self) -> int:
        """Bytes beside the process itself."""
        return self.machine.limit - self.machine.base - ALLOWANCE

    def least_columns(self, candidates: int) -> int:
        """Columns that a fit of so many candidates must have room for: as many that were kept, if there are."""
        return min(2 * candidates, self.shape.n_candidates) + self.shape.n_leading

    def fitting(self, candidates: int) -> tuple[int, int]:
        """Threads, and the most columns that fit on these."""
        for threads in range(self.machine.threads, self.least_threads - 1, -1):
            columns = most_columns(
                self.shape,
                candidates,
                threads,
                self.budget,
                pool=self.pool,
                held_out=self.held_out,
                whole=self.whole,
            )
            if columns >= self.least_columns(candidates):
                break
        return threads, columns

    def step(self, columns: int, candidates: int, threads: int) -> StepBytes:
        """Bytes of a step of so many columns, ``candidates`` of them new."""
        kept = 0 if self.whole else columns - candidates
        pool = pool_columns(self.pool, columns - candidates) if self.whole else self.pool
        return step_bytes(self.shape, kept, columns - kept, threads, pool=pool, held_out=self.held_out)

    def refusal(self, candidates: int, schedule: Schedule) -> MemoryLimitError:
        """What one round needs, what there is, and what to change."""
        shape, machine = self.shape, self.machine
        least = step_bytes(
            shape, shape.n_leading, candidates, self.least_threads, pool=self.pool, held_out=self.held_out
        )
        what, less = f"one round of {candidates:,} candidates", "lower partition_size"
        if schedule.one_fit:
            less = f"choose another strategy than {schedule.name!r}, which takes all candidates at once"
        if shape.n_leading > 1:
            what += f" and {shape.n_leading:,} columns of the basis"
            less += " or take fewer basis functions"
        return MemoryLimitError(
            f"{what} over tiles of {shape.tile_rows:,} rows needs "
            f"{format_bytes(machine.base + ALLOWANCE + least.peak)} "
            f"per process ({format_bytes(machine.base)} of it the process itself), the memory limit is "
            f"{format_bytes(machine.limit)}: raise memory_limit or {less}"
        )


@dataclass(frozen=True)
class _Columns:
    """Candidates of a fit, threads, the most columns that fit on these, and notes on what held them."""

    candidates: int
    threads: int
    most: int
    notes: tuple[str, ...]


def make_plan(
    shape: DataShape,
    machine: Machine,
    rates: Rates,
    request: Request,
    method: Method,
    *,
    held_out: bool = False,
    shrink_threads: bool = True,
    shrink_partition: bool = False,
    joining: int | None = None,
) -> Plan:
    """Decide threads and the most columns from memory, and estimate passes, seconds and the peak.

    ``request`` is resolved, ``method`` follows from it. ``joining`` are the rows of which partitions are made, all
    unless given. With ``shrink_threads`` fewer threads are used where all of them would not fit, and with
    ``shrink_partition`` fewer candidates; ``max_vectors`` bounds the candidates as the schedule has it. Raises
    ``MemoryLimitError`` if not even one round fits, with what it needs, what it has and what to change.
    """
    schedule, looking = method.schedule, method.looking
    whole = not (schedule.has_rounds and method.all_rows) or shape.classes
    limit = _Limit(shape, machine, looking.pool, held_out, whole, 1 if shrink_threads else machine.threads)
    found = _columns(limit, request, schedule, shrink=shrink_partition)
    work = _work(shape, machine, rates, method, found.threads)
    costs = schedule.costs(work, found.candidates, request.stop_fraction, request.max_rounds, joining or shape.n_rows)
    columns = schedule.columns(costs, request.stop_fraction, found.most)
    step, elements = limit.step(columns, found.candidates, found.threads), 0
    if schedule.merges:
        step, elements = _side_by_side(limit, found, step, joining or shape.n_rows)
    return Plan(
        shape=shape,
        machine=machine,
        schedule=schedule,
        selection=request.selection,
        fit_rows=request.fit_rows,
        partition_size=found.candidates,
        max_rounds=request.max_rounds,
        max_vectors=request.max_vectors,
        max_columns=found.most,
        threads=found.threads,
        bytes=step,
        rounds=tuple(costs),
        sample_rows=int(request.sample_rows) if method.seen.sampled else None,
        batch_elements=elements,
        pool=looking.pool,
        outputs=work.outputs or None,
        notes=found.notes,
        joining=joining,
        columns=columns,
    )


def _columns(limit: _Limit, request: Request, schedule: Schedule, *, shrink: bool) -> _Columns:
    """Candidates, threads and columns under the limit; with ``shrink`` fewer candidates where not all have room."""
    asked, n_candidates = int(request.partition_size), limit.shape.n_candidates
    candidates = schedule.candidates(asked, request.max_vectors, n_candidates)
    held: tuple[str, ...] = ()
    if candidates < min(asked, n_candidates):
        held = (f"P held to {candidates} by max_vectors",)
    notes, (threads, columns) = held, limit.fitting(candidates)
    while shrink and columns < limit.least_columns(candidates) and candidates > LEAST_PARTITION:
        candidates = max(candidates // 2, LEAST_PARTITION)
        threads, columns = limit.fitting(candidates)
        notes = (*held, f"P held to {candidates} by the memory limit")
    if not columns:
        raise limit.refusal(candidates, schedule)
    most = limit.machine.threads
    if threads < most:
        notes += (f"{threads} of {most} threads, so that a round fits under the memory limit",)
    return _Columns(candidates, threads, columns, notes)


def _side_by_side(limit: _Limit, found: _Columns, step: StepBytes, joining: int) -> tuple[StepBytes, int]:
    """The step with the bytes of fits side by side, and the sum of their squared columns: half of what is spare."""
    together = n_partitions(joining, found.candidates, limit.shape.n_kernels)
    elements = batch_elements(limit.shape, found.candidates, found.threads, (limit.budget - step.peak) // 2, together)
    batch = step_bytes(limit.shape, 0, 1, found.threads, elements=elements).batch
    return replace(step, batch=batch), elements


def _work(shape: DataShape, machine: Machine, rates: Rates, method: Method, threads: int) -> Work:
    """What all costs of the fit depend on."""
    return Work(
        shape.n_rows,
        method.seen,
        method.looking,
        rates,
        threads * machine.workers,
        shape.n_outputs if shape.classes else 0,
        shape.n_kernels,
        shape.n_leading,
    )


def weighing_all(plan: Plan, rates: Rates, *, held_out: bool, shrink_threads: bool = True) -> Plan:
    """The plan of a working set that weighs all N rows together before each round but the first.

    Each time takes a pass that brings N columns at once and a dense solve of them, in memory as a fit of all. Raises
    ``MemoryLimitError`` where that does not fit, with what it needs, what it has and what to do instead.
    """
    shape, machine = plan.shape, plan.machine
    budget, columns = machine.limit - machine.base - ALLOWANCE, shape.n_rows + shape.n_leading
    for threads in range(plan.threads, 0 if shrink_threads else plan.threads - 1, -1):
        step = step_bytes(shape, 0, columns, threads, held_out=held_out)
        if step.peak <= budget:
            break
    else:
        raise MemoryLimitError(
            f"selection 'map-weight' weighs all {shape.n_rows:,} rows together and needs "
            f"{format_bytes(machine.base + ALLOWANCE + step.peak)} per process, the memory limit is "
            f"{format_bytes(machine.limit)}: raise memory_limit, or choose selection 'gain', which asks a pool of rows"
        )
    seconds = rates.read + columns * (rates.element + columns / rates.product)
    look, solve = shape.n_rows * seconds / (threads * machine.workers), columns**3 / rates.product
    rounds = [
        replace(
            one, passes=one.passes + 1, pass_seconds=one.pass_seconds + look, solve_seconds=one.solve_seconds + solve
        )
        for one in plan.rounds[1:]
    ]
    return replace(plan, threads=threads, bytes=replace(step, batch=plan.bytes.batch), rounds=(plan.rounds[0], *rounds))
