"""Making a plan: threads, columns and rounds decided by arithmetic from memory, and refused if they cannot fit."""

from __future__ import annotations

from dataclasses import replace

from partirvm.errors import MemoryLimitError
from partirvm.options import Request
from partirvm.planning.cost import (
    NOT_LOOKING,
    UNLIMITED_ROUNDS,
    Looking,
    Rates,
    RoundCost,
    Seen,
    Work,
    levels_cost,
    rounds_cost,
)
from partirvm.planning.memory import (
    ALLOWANCE,
    DataShape,
    batch_elements,
    most_columns,
    pool_columns,
    step_bytes,
)
from partirvm.planning.plan import Machine, Plan, n_partitions
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


def make_plan(
    shape: DataShape,
    machine: Machine,
    rates: Rates,
    request: Request,
    *,
    looking: Looking = NOT_LOOKING,
    held_out: bool = False,
    shrink_threads: bool = True,
    shrink_partition: bool = False,
    joining: int | None = None,
) -> Plan:
    """Decide threads and the most columns from memory, and estimate passes, seconds and the peak.

    Of ``request`` strategy, selection, likelihood and its rows, and the partition size must be resolved. ``joining``
    are the rows of which partitions are made, all unless given. With ``shrink_threads`` fewer threads are
    used where all of them would not fit, and with ``shrink_partition`` fewer candidates; ``max_vectors`` bounds the
    candidates of all but ``basic``: where partitions join whole, room is left for as many that were kept. Raises
    ``MemoryLimitError`` if not even one round fits, with what it needs, what it has and what to change.
    """
    strategy, max_vectors, partition_size = request.strategy, request.max_vectors, int(request.partition_size)
    notes: tuple[str, ...] = ()
    most = max_vectors or partition_size
    if max_vectors is not None and strategy in ("split-merge", "incremental"):
        most = max(max_vectors // 2, 1)
    candidates = shape.n_candidates if strategy == "basic" else min(shape.n_candidates, partition_size, most)
    if candidates < min(partition_size, shape.n_candidates):
        notes += (f"P held to {candidates} by max_vectors",)
    budget = machine.limit - machine.base - ALLOWANCE
    least = 1 if shrink_threads else machine.threads
    whole = strategy in ("basic", "split-merge") or request.likelihood != "full" or request.final_likelihood != "full"
    whole = whole or shape.classes

    def least_columns(candidates: int) -> int:
        return min(2 * candidates, shape.n_candidates) + shape.n_leading

    def fitting(candidates: int) -> tuple[int, int]:
        for threads in range(machine.threads, least - 1, -1):
            columns = most_columns(
                shape, candidates, threads, budget, pool=looking.pool, held_out=held_out, whole=whole
            )
            if columns >= least_columns(candidates):
                break
        return threads, columns

    held = notes
    threads, columns = fitting(candidates)
    while shrink_partition and columns < least_columns(candidates) and candidates > LEAST_PARTITION:
        candidates = max(candidates // 2, LEAST_PARTITION)
        threads, columns = fitting(candidates)
        notes = (*held, f"P held to {candidates} by the memory limit")
    if not columns:
        need = (
            machine.base
            + ALLOWANCE
            + step_bytes(shape, shape.n_leading, candidates, least, pool=looking.pool, held_out=held_out).peak
        )
        what, less = f"one round of {candidates:,} candidates", "lower partition_size"
        if strategy == "basic":
            less = "choose another strategy than 'basic', which takes all candidates at once"
        if shape.n_leading > 1:
            what += f" and {shape.n_leading:,} columns of the basis"
            less += " or take fewer basis functions"
        raise MemoryLimitError(
            f"{what} over tiles of {shape.tile_rows:,} rows needs {format_bytes(need)} "
            f"per process ({format_bytes(machine.base)} of it the process itself), the memory limit is "
            f"{format_bytes(machine.limit)}: raise memory_limit or {less}"
        )
    outputs = shape.n_outputs if shape.classes else 0
    work = Work(
        shape.n_rows,
        _seen(request, shape.n_rows),
        looking,
        rates,
        threads * machine.workers,
        outputs,
        shape.n_kernels,
        shape.n_leading,
    )
    costs = _costs(work, strategy, candidates, request.stop_fraction, request.max_rounds, joining or shape.n_rows)
    if strategy == "split-merge":
        expected = min(max(cost.kept + cost.candidates for cost in costs), columns)
    else:
        expected = _expected_columns(costs, request.stop_fraction, columns)
    kept = 0 if whole else expected - candidates
    pool = pool_columns(looking.pool, expected - candidates) if whole else looking.pool
    step = step_bytes(shape, kept, expected - kept, threads, pool=pool, held_out=held_out)
    elements = 0
    if strategy == "split-merge":
        together = n_partitions(joining or shape.n_rows, candidates, shape.n_kernels)
        elements = batch_elements(shape, candidates, threads, (budget - step.peak) // 2, together)
        step = replace(step, batch=step_bytes(shape, 0, 1, threads, elements=elements).batch)
    if threads < machine.threads:
        notes += (f"{threads} of {machine.threads} threads, so that a round fits under the memory limit",)
    return Plan(
        shape=shape,
        machine=machine,
        strategy=strategy,
        selection=request.selection,
        likelihood=request.likelihood,
        partition_size=candidates,
        max_rounds=request.max_rounds,
        max_vectors=max_vectors,
        max_columns=columns,
        threads=threads,
        bytes=step,
        rounds=tuple(costs),
        likelihood_rows=int(request.likelihood_rows) if request.likelihood == "sample" else None,
        batch_elements=elements,
        pool=looking.pool,
        outputs=outputs or None,
        notes=notes,
        joining=joining,
        columns=expected,
    )


def _seen(request: Request, n_rows: int) -> Seen:
    """The rows of intermediate fits."""
    if request.likelihood == "partition":
        return Seen(None, min(request.noise_rows or n_rows, n_rows))
    return Seen(int(request.likelihood_rows) if request.likelihood == "sample" else n_rows)


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


def _expected_columns(costs: list[RoundCost], stop_fraction: float, most: int) -> int:
    """The most columns M + P that the rounds are expected to have, of the ``most`` that fit.

    A fit ends once its vectors have fallen to ``stop_fraction`` of its candidates, or without that: halfway between
    this and all of them is assumed to stay, as it did on kin40k and etopo20. A round of more columns than fit is none.
    """
    kept, stays, columns = costs[0].kept, 0.5 * (1.0 + stop_fraction), 0
    for cost in costs:
        kept = max(kept, cost.kept)
        if columns and kept + cost.candidates > most:
            break
        columns = max(columns, kept + cost.candidates)
        kept = costs[0].kept + int(stays * (kept + cost.candidates - costs[0].kept))
    return min(columns, most)


def _costs(
    work: Work, strategy: str, candidates: int, stop_fraction: float, max_rounds: int | None, joining: int
) -> list[RoundCost]:
    """Rounds or levels that a strategy is expected to take."""
    if strategy == "split-merge":
        return levels_cost(work, candidates, stop_fraction)
    partitions = n_partitions(joining, candidates, work.n_kernels)
    assumed = partitions if strategy in ("basic", "incremental") else UNLIMITED_ROUNDS
    rounds = min(max_rounds if max_rounds is not None else assumed, partitions)
    return rounds_cost(work, candidates, max(rounds, 1), stop_fraction)
