"""Plan a fit: threads, columns and rounds from the memory limit, and the expected work, time and
memory."""

from dataclasses import dataclass, replace
from typing import Any

from partirvm.errors import MemoryLimitError
from partirvm.options import Request
from partirvm.planning import memory
from partirvm.planning.cost import (
    CORRECTED,
    Rates,
    RoundCost,
    RowsRead,
    Schedule,
    Work,
    comparison_operations,
    n_partitions,
    tries_residuals,
)
from partirvm.planning.memory import (
    ALLOWANCE,
    FLOAT,
    KEPT_AFTER,
    KEPT_BEFORE,
    RESIDUAL_SHARE,
    DataShape,
    StepBytes,
    residual_bytes,
    step_bytes,
)
from partirvm.quoting import counted, format_bytes, format_duration, html_table
from partirvm.types import (
    COMPARED_MEMORY,
    COMPARED_ROWS,
    JUDGED_ROWS,
    LEARNING_ROWS,
    LEFT_OUT_ROWS,
    TREES_OF_CLASSES,
)

LEAST_PARTITION = 50
"""Minimum to which the memory limit may lower an automatic partition size."""

SKLEARN_TREES = 100
"""Number of boosted trees, per class if there are more than two, that scikit-learn fits by
default."""

STORE_FRACTION = 0.25
"""Maximum fraction of the memory limit for kernel blocks if both ``memory_limit`` and
``kernel_store`` are "auto"."""


@dataclass(frozen=True)
class Machine:
    """The processes that run tasks: threads, bytes used before the fit, and memory limit in bytes,
    each per process.

    A fit may use fewer threads if memory is short, but not fewer than ``least_threads``.
    ``libraries`` is the number of bytes of libraries that a comparison with boosted trees would
    load.
    """

    threads: int
    base: int
    limit: int
    workers: int = 1
    least_threads: int = 1
    libraries: int = 0

    @property
    def budget(self) -> int:
        """Bytes available to the fit in a process."""
        return self.limit - self.base - ALLOWANCE


@dataclass(frozen=True)
class KernelStore:
    """Where kernel blocks are kept ("memory", "zarr" or "none"), and the bytes of all blocks in a
    process."""

    where: str
    bytes: int

    def __str__(self) -> str:
        place = {"memory": "memory", "zarr": "files"}.get(self.where)
        return (
            f"kept in {place}, about {format_bytes(self.bytes)}"
            if place
            else "evaluated in every pass"
        )


@dataclass(frozen=True)
class Plan:
    """The plan of a fit.

    In ``request``, no option that affects the model is "auto"; its partition size is the job's
    initial one. ``notes`` list what was capped, and why. ``learned`` describes the learned kernel,
    ``learning_seconds`` is the time taken by kernel learning and the heuristic, whose fit to random
    rows kept the fraction ``rho`` as vectors. ``joining`` is the number of rows that have yet to
    become candidates (None for all rows). ``learning_columns`` is the maximum number of columns for
    kernel learning between rounds. ``residuals`` says what local residuals cost, if the fit may use
    them, and ``comparison`` what the one with boosted trees costs; ``residual_bytes`` and
    ``comparison_bytes`` are the bytes that these two take, the latter also if a model without
    vectors is compared. ``grown`` is the number of bytes by which the process has grown during
    kernel learning: libraries, and freed small blocks.
    """

    request: Request
    shape: DataShape
    machine: Machine
    schedule: Schedule
    read: RowsRead
    partition_size: int
    max_columns: int
    learning_columns: int
    threads: int
    bytes: StepBytes
    rounds: tuple[RoundCost, ...]
    kernel_store: KernelStore = KernelStore("none", 0)
    batch_elements: int = 0
    held_out: bool = False
    rho: float | None = None
    notes: tuple[str, ...] = ()
    learned: str | None = None
    learning_seconds: float = 0.0
    joining: int | None = None
    residuals: str | None = None
    comparison: str | None = None
    residual_bytes: int = 0
    comparison_bytes: int = 0
    grown: int = 0

    @property
    def partitions(self) -> int:
        """Number of partitions (``cost.n_partitions``)."""
        return n_partitions(
            self.joining or self.shape.n_rows, self.partition_size, self.shape.n_kernels
        )

    @property
    def seconds(self) -> float:
        """Expected seconds of the whole fit, including the time taken by kernel learning and the
        heuristic."""
        return self.learning_seconds + sum(
            cost.pass_seconds + cost.solve_seconds for cost in self.rounds
        )

    @property
    def passes(self) -> int:
        """Expected number of passes over the rows."""
        return sum(cost.passes for cost in self.rounds)

    @property
    def peak(self) -> int:
        """Expected peak resident bytes of a process, including its memory before the fit."""
        peaks = [self.bytes.peak + self.kernel_store.bytes]
        if self.residual_bytes:
            peaks.append(self._kept(self.bytes.peak, KEPT_BEFORE) + self.residual_bytes)
        if self.comparison_bytes:
            peaks.append(self._kept(max(peaks), KEPT_AFTER) + self.comparison_bytes)
        return self.machine.base + self.grown + ALLOWANCE + max(peaks)

    def _kept(self, peak: int, most: int) -> int:
        """Return the bytes of freed small blocks, of which ``grown`` has some, that remain after a
        stage."""
        return max(min(peak, most) - self.grown, 0)

    def room(self, columns: int) -> int:
        """Return the bytes that a process may use for kernel blocks while the fit has ``columns``
        columns."""
        how = {"pool": self.read.pool, "held_out": self.held_out, "elements": self.batch_elements}
        return memory.kept_bytes(self.shape, columns, self.threads, self.machine.budget, **how)

    def to_json(self) -> dict[str, Any]:
        """Convert the plan to plain JSON."""
        own = ("partition_size", "partitions", "passes", "threads", "max_columns")
        asked = ("strategy", "fit_rows", "selection", "max_rounds", "max_vectors")
        shape = self.shape
        store = self.kernel_store
        sample_rows = self.request.sample_rows
        found: dict[str, Any] = {"rows": shape.n_rows, "features": shape.n_features}
        found |= {"tile_rows": shape.tile_rows, "tiles": shape.n_tiles}
        found |= {name: getattr(self, name) for name in own} | {
            name: getattr(self.request, name) for name in asked
        }
        found |= {"sample_rows": int(sample_rows) if self.read.sampled else None}
        found |= {"rho": None if self.rho is None else round(self.rho, 4)}
        found |= {"rounds": len(self.rounds), "workers": self.machine.workers}
        found |= {"classes": shape.n_classes} if shape.n_classes else {}
        found |= {
            "seconds": round(self.seconds, 2),
            "memory_limit": self.machine.limit,
            "memory_peak": self.peak,
        }
        found |= {"kernel_store": store.where, "kernel_store_bytes": store.bytes}
        found |= {} if self.learned is None else {"learned": self.learned}
        return found | {"notes": list(self.notes)}

    def __str__(self) -> str:
        return "\n".join(f"{name:<12}{text}" for name, text in self._lines())

    def _repr_html_(self) -> str:
        return html_table("Plan", self._lines())

    def _lines(self) -> list[tuple[str, str]]:
        """Return the names and text of the plan's lines."""
        shape = self.shape
        machine = self.machine
        plan = self.to_json()
        classes = f"{shape.n_classes:,} classes, " if shape.n_classes else ""
        rows = f" of {plan['sample_rows']:,} rows" if self.read.sampled else ""
        selection = f", selection {plan['selection']}" if self.schedule.selects else ""
        workers = f"{machine.workers} workers × " if machine.workers > 1 else ""
        dense = format_duration(sum(cost.solve_seconds for cost in self.rounds))
        used = {
            "process": machine.base + self.grown,
            "pass": self.bytes.passing,
            "dense fit": self.bytes.solving,
        }
        used |= {"neighbours": self.residual_bytes, "boosting": self.comparison_bytes}
        parts = ", ".join(f"{name} {format_bytes(size)}" for name, size in used.items() if size)
        lines = {
            "data": (
                f"{counted(shape.n_rows, 'row')} × {counted(shape.n_features, 'feature')}, "
                f"{classes}{counted(shape.n_tiles, 'tile')} of {shape.tile_rows:,} rows"
            ),
            "strategy": f"{self.schedule.name}, likelihood {plan['fit_rows']}{rows}{selection}",
            "candidates": self.schedule.text(plan),
            "heuristic": None
            if self.rho is None
            else f"ρ = {self.rho:.3f} of random rows became vectors",
            "columns": f"at most {self.max_columns:,} fit in memory",
            "work": f"{self.passes:,} passes over the rows, {shape.tile_rows:,} rows per task, "
            f"{workers}{counted(self.threads, 'thread')}",
            "time": f"about {format_duration(self.seconds)}, of which dense fits {dense}",
            "memory": f"about {format_bytes(self.peak)} of {format_bytes(machine.limit)} ({parts})",
            "kernel": self.kernel_store,
            "learned": self.learned,
            "neighbours": self.residuals,
            "comparison": self.comparison,
        }
        found = [(name, str(text)) for name, text in lines.items() if text is not None]
        return found + [("note", note) for note in self.notes]


def make_plan(
    shape: DataShape,
    machine: Machine,
    rates: Rates,
    request: Request,
    schedule: Schedule,
    read: RowsRead,
    *,
    held_out: bool = False,
    shrink_partition: bool = False,
    joining: int | None = None,
    notes: tuple[str, ...] = (),
    **facts: Any,
) -> Plan:
    """Compute threads, columns and kept kernel blocks from memory; estimate passes, seconds and
    peak memory.

    ``request`` is resolved. ``joining`` is the number of rows that are split into partitions, by
    default all rows. ``shrink_partition`` permits fewer candidates if memory is short. ``notes``
    precede the plan's own, and ``facts`` are further fields of the plan. Raises
    ``MemoryLimitError`` if one round needs more than the limit.
    """
    how: dict[str, Any] = {"pool": read.pool, "held_out": held_out}
    how["whole"] = not schedule.has_rounds or read.sampled or shape.newton
    asked = int(request.partition_size)
    candidates = schedule.candidates(asked, request.max_vectors, shape.n_candidates)
    cause = "max_vectors"
    while True:
        # new candidates, as many kept ones, and the leading columns
        least = min(2 * candidates, shape.n_candidates) + shape.n_leading
        threads, most = _fitting(shape, machine, candidates, least, how)
        if most >= least or not shrink_partition or candidates <= LEAST_PARTITION:
            break
        candidates = max(candidates // 2, LEAST_PARTITION)
        cause = "the memory limit"
    if not most:
        fewest = machine.least_threads
        need = step_bytes(
            shape, shape.n_leading, candidates, fewest, pool=read.pool, held_out=held_out
        ).peak
        less = (
            "choose a strategy other than 'basic'" if schedule.one_fit else "lower partition_size"
        )
        raise MemoryLimitError(
            f"one round of {candidates + shape.n_leading:,} columns over tiles of "
            f"{shape.tile_rows:,} rows needs {format_bytes(machine.base + ALLOWANCE + need)} per "
            f"process (including {format_bytes(machine.base)} before the fit), but the memory "
            f"limit is {format_bytes(machine.limit)}: raise memory_limit or {less}"
        )
    if candidates < min(asked, shape.n_candidates):
        notes += (f"partition size lowered to {candidates} because of {cause}",)
    if threads < machine.threads:
        notes += (f"{threads} of {machine.threads} threads are used because of the memory limit",)
    rows = joining or shape.n_rows
    tried = tries_residuals(request.residual, shape.n_rows, shape.n_targets)
    tried = (
        tried and shape.measured and not shape.n_classes and request.noise_variance == "estimate"
    )
    require_memory_for_residuals(request, shape, machine)
    compared = request.reference != "none" and bool(facts.get("learned"))
    compared = compared and shape.n_rows >= COMPARED_ROWS[0] and machine.limit >= COMPARED_MEMORY
    compared = compared and shape.n_targets == 1 and request.class_weight is None
    work = Work(shape, read, rates, threads * machine.workers, tried, compared)
    costs = schedule.costs(work, candidates, request.stop_fraction, request.max_rounds, rows)
    columns = min(max(cost.columns for cost in costs), most)
    step = step_bytes(shape, columns - candidates, candidates, threads, **how)
    elements = 0
    if schedule.merges:  # the parallel fits get half of the bytes that a step of one of them leaves
        spare = machine.budget - step_bytes(shape, shape.n_leading, candidates, threads, **how).peak
        fits = n_partitions(rows, candidates, shape.n_kernels)
        elements = memory.batch_elements(shape, candidates, threads, spare // 2, fits)
        batch = step_bytes(shape, shape.n_leading, candidates, threads, **how, elements=elements)
        step = max(step, batch, key=lambda each: each.peak)
    # the slopes of a kernel block take as much memory as the block itself, and the sample of rows
    # is in memory too
    spare = machine.budget - memory.sample_bytes(shape, LEARNING_ROWS)
    learning = (
        memory.max_columns_within(shape, 1, threads, spare, held_out=held_out, whole=True) // 2
    )
    facts |= {
        "partition_size": candidates,
        "max_columns": most,
        "learning_columns": learning,
        "threads": threads,
    }
    facts |= {
        "bytes": step,
        "rounds": tuple(costs),
        "batch_elements": elements,
        "held_out": held_out,
    }
    facts |= {
        "notes": notes,
        "joining": joining,
        "residuals": residuals_text(request, work, machine, columns),
    }
    facts |= {"comparison": comparison_text(work)}
    facts |= {"residual_bytes": _bytes_of_residuals(request, work, machine)}
    facts |= {"comparison_bytes": _bytes_of_comparison(request, work, machine)}
    plan = Plan(
        replace(request, partition_size=candidates), shape, machine, schedule, read, **facts
    )
    return replace(
        plan, kernel_store=kernel_store(request, shape, machine, columns, plan.room(columns))
    )


def _bytes_of_residuals(request: Request, work: Work, machine: Machine) -> int:
    """Return the bytes of the stage of local residuals, or 0 for a fit without them."""
    shape = work.shape
    neighbours = request.neighbours
    left_out = min(shape.n_rows, LEFT_OUT_ROWS)
    if (
        not work.residuals
        or RESIDUAL_SHARE * residual_bytes(shape, left_out, neighbours)[1] > machine.limit
    ):
        return 0
    in_memory = RESIDUAL_SHARE * residual_bytes(shape, shape.n_rows, neighbours)[1] <= machine.limit
    return memory.residual_stage_bytes(shape, left_out, neighbours, in_memory=in_memory)


def _bytes_of_comparison(request: Request, work: Work, machine: Machine) -> int:
    """Return the bytes of a comparison with boosted trees, also that of a model without vectors; 0
    without any."""
    shape = work.shape
    libraries = machine.libraries
    comparisons = [0]
    if (
        request.reference != "none"
        and machine.limit >= COMPARED_MEMORY
        and shape.n_rows >= JUDGED_ROWS[0]
    ):
        trees = SKLEARN_TREES * (shape.n_classes if shape.n_classes > 2 else 1)
        comparisons.append(
            memory.comparison_bytes(shape, min(shape.n_rows, JUDGED_ROWS[1]), libraries, trees)
        )
    if work.compared:
        rows = min(shape.n_rows, COMPARED_ROWS[1])
        comparisons.append(
            memory.comparison_bytes(
                shape, rows, libraries, max(TREES_OF_CLASSES, 8 * shape.n_classes)
            )
        )
    return max(comparisons)


def comparison_text(work: Work) -> str | None:
    """Describe the comparison with boosted trees; None for a fit without it."""
    if not work.compared:
        return None
    rows = min(work.shape.n_rows, COMPARED_ROWS[1])
    seconds = comparison_operations(work.shape.n_rows) / work.rates.product
    return (
        f"with boosted trees on {rows // 5:,} left-out rows, about {format_duration(seconds)} "
        "(reference='none': skip)"
    )


def require_memory_for_residuals(request: Request, shape: DataShape, machine: Machine) -> None:
    """Raise ``MemoryLimitError`` if local residuals are requested and cannot even be learned from
    left-out rows."""
    if request.residual != "local":
        return
    least = (
        RESIDUAL_SHARE
        * residual_bytes(shape, min(shape.n_rows, LEFT_OUT_ROWS), request.neighbours)[1]
    )
    if least > machine.limit:
        raise MemoryLimitError(
            f"residual='local' needs {format_bytes(least)}, but the memory limit is "
            f"{format_bytes(machine.limit)}: raise memory_limit, lower neighbours, or leave "
            "residual='auto'"
        )


def residuals_text(request: Request, work: Work, machine: Machine, columns: int) -> str | None:
    """Describe the bytes and seconds local residuals take; None for a fit without them. It has at
    most ``columns``."""
    shape = work.shape
    n = work.shape.n_rows
    k = request.neighbours
    if not work.residuals:
        return None
    (size, whole), (_, least) = (
        residual_bytes(shape, rows, k) for rows in (n, min(n, LEFT_OUT_ROWS))
    )
    if RESIDUAL_SHARE * least > machine.limit:
        return f"not tried below a memory_limit of {format_bytes(RESIDUAL_SHARE * least)}"
    place = "in memory" if RESIDUAL_SHARE * whole <= machine.limit else "in files of a job"
    seconds = work.pass_seconds(n, n * columns, 2.0 * n * columns)
    one_pass = f", a pass of {format_duration(seconds)}" if n > LEFT_OUT_ROWS else ""
    rate = int(
        CORRECTED / k / (1.0 + (shape.n_targets - 1) / 4)
    )  # targets share the search for neighbours
    needs = f"if left-out rows gain: about {format_bytes(size)} {place}{one_pass}"
    return f"{needs}; {rate:,} predictions per second and core with {k}"


def affordable(shape: DataShape, machine: Machine, candidates: int) -> tuple[int, int]:
    """Return the threads and candidates (at least 2) with which one fit of all candidates stays
    within the memory limit."""
    threads, columns = _fitting(shape, machine, 1, candidates + shape.n_leading, {"whole": True})
    return threads, min(candidates, max(columns - shape.n_leading, 2))


def _fitting(
    shape: DataShape, machine: Machine, candidates: int, least: int, how: dict[str, Any]
) -> tuple[int, int]:
    """Return the largest number of threads with which ``least`` columns fit, and how many fit with
    these threads."""
    for threads in range(machine.threads, machine.least_threads - 1, -1):
        columns = memory.max_columns_within(shape, candidates, threads, machine.budget, **how)
        if columns >= least:
            break
    return threads, columns


def kernel_store(
    request: Request, shape: DataShape, machine: Machine, columns: int, spare: int
) -> KernelStore:
    """Choose whether blocks of all rows × ``columns`` elements are kept in each process's ``spare``
    bytes."""
    where = request.kernel_store
    wanted = FLOAT * shape.n_rows * columns // machine.workers
    if where == "auto":  # only Newton steps read the same columns repeatedly
        where = "memory" if shape.newton else "none"
        if request.memory_limit == "auto":
            spare = min(spare, int(STORE_FRACTION * machine.limit))
    if not shape.n_kernels:
        where = "none"
    return KernelStore(where, {"memory": min(spare, wanted), "zarr": wanted}.get(where, 0))
