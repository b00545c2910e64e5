"""Plan a fit: threads, columns and rounds from the memory limit, and the expected work, time and
memory."""

from dataclasses import dataclass, replace
from typing import Any, Self

from partirvm.options import Request
from partirvm.planning import memory
from partirvm.planning.additions import (
    BesideRounds,
    require_memory_for_residuals,
    trees_text,
    with_additions,
)
from partirvm.planning.cost import (
    Rates,
    RoundCost,
    RowsRead,
    Schedule,
    Work,
    n_partitions,
)
from partirvm.planning.fit_memory import FitMemory
from partirvm.planning.machine import Machine
from partirvm.planning.memory import (
    ALLOWANCE,
    FLOAT,
    KEPT_AFTER,
    KEPT_BEFORE,
    DataShape,
    StepBytes,
)
from partirvm.quoting import counted, format_bytes, format_duration, html_table

CANDIDATES = {
    "error": "rows with large errors",
    "largest-error": "the rows with the largest errors",
    "random": "random rows",
    "gain": "rows that improve the fit most",
}
"""Descriptions of the candidates by the word of ``selection``."""

STORE_FRACTION = 0.25
"""Maximum fraction of the memory limit for kernel blocks if both ``memory_limit`` and
``kernel_store`` are "auto"."""


@dataclass(frozen=True)
class KernelStore:
    """Where kernel blocks are kept ("memory", "zarr" or "none"), and the bytes of all blocks in a
    process."""

    where: str
    bytes: int

    def __str__(self) -> str:
        place = {"memory": "memory", "zarr": "files"}.get(self.where)
        if place is None:
            return "evaluated in every pass"
        return f"kept in {place}, about {format_bytes(self.bytes)}"


@dataclass(frozen=True)
class Plan:
    """The plan of a fit.

    Attributes:
        request: the options; no option that affects the model is "auto", and the partition size is
            the job's initial one.
        shape: the sizes of the data.
        machine: the processes that run the tasks.
        schedule: the way in which candidates join.
        read: the rows that intermediate fits read.
        partition_size: the number of candidates of a fit.
        max_columns: the maximum number of columns for which a fit fits in memory.
        learning_columns: the maximum number of columns for kernel learning between rounds.
        threads: the number of threads of a process.
        bytes: the bytes of the largest step of a round.
        rounds: the expected cost of each round or level.
        kernel_store: where kernel blocks are kept.
        batch_elements: the number of elements of all Gram matrices that run in parallel.
        held_out: True if each pass reads validation rows.
        rho: the fraction of random rows that became vectors in the heuristic's fit.
        notes: notes on what was capped and why.
        learned: a description of the learned kernel.
        learning_seconds: the seconds taken by kernel learning and the heuristic.
        joining: the number of rows that have yet to become candidates; None for all rows.
        residuals: the cost of local residuals, if the fit may use them.
        comparison: the cost of the comparison with boosted trees, if there is one.
        residual_bytes: the bytes of the stage of local residuals.
        comparison_bytes: the bytes of boosted trees beside the fit, and of a comparison with such
            trees, including the one for a model without vectors.
        grown: the bytes by which the process has grown during kernel learning: libraries, and freed
            small blocks.
        tree_rows: the number of rows from which boosted trees learn; 0 without trees.
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
    tree_rows: int = 0

    @property
    def partitions(self) -> int:
        """Number of partitions (``cost.n_partitions``)."""
        return n_partitions(
            self.joining or self.shape.n_rows, self.partition_size, self.shape.n_kernels
        )

    @property
    def seconds(self) -> float:
        """Expected seconds of the fit, including the time taken by kernel learning and the
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
            peaks.append(self._freed(self.bytes.peak, KEPT_BEFORE) + self.residual_bytes)
        if self.comparison_bytes:
            peaks.append(self._freed(max(peaks), KEPT_AFTER) + self.comparison_bytes)
        return self.machine.base + self.grown + ALLOWANCE + max(peaks)

    def _freed(self, peak: int, bound: int) -> int:
        """Return the bytes of freed small blocks that remain after a stage and are not already in
        ``grown``."""
        return max(min(peak, bound) - self.grown, 0)

    def room(self, columns: int) -> int:
        """Return the bytes that a process may use for kernel blocks while the fit has ``columns``
        columns."""
        return memory.kept_bytes(
            self.shape,
            columns,
            self.threads,
            self.machine.budget,
            pool=self.read.pool,
            held_out=self.held_out,
            elements=self.batch_elements,
        )

    def with_kernel_store(self, columns: int) -> Self:
        """Return the plan with a store for kernel blocks of ``columns`` columns, in the memory that
        the fit leaves free."""
        bytes_left = self.room(columns)
        store = kernel_store(self.request, self.shape, self.machine, columns, bytes_left)
        return replace(self, kernel_store=store)

    def to_json(self) -> dict[str, Any]:
        """Convert the plan to plain JSON."""
        shape = self.shape
        request = self.request
        facts: dict[str, Any] = {
            "rows": shape.n_rows,
            "features": shape.n_features,
            "tile_rows": shape.tile_rows,
            "tiles": shape.n_tiles,
            "partition_size": self.partition_size,
            "partitions": self.partitions,
            "passes": self.passes,
            "threads": self.threads,
            "max_columns": self.max_columns,
            "strategy": request.strategy,
            "fit_rows": request.fit_rows,
            "selection": request.selection,
            "max_rounds": request.max_rounds,
            "max_vectors": request.max_vectors,
            "sample_rows": int(request.sample_rows) if self.read.sampled else None,
            "rho": None if self.rho is None else round(self.rho, 4),
            "rounds": len(self.rounds),
            "workers": self.machine.workers,
        }
        facts["classes"] = shape.n_classes
        facts["seconds"] = round(self.seconds, 2)
        facts["memory_limit"] = self.machine.limit
        facts["memory_peak"] = self.peak
        facts["kernel_store"] = self.kernel_store.where
        facts["kernel_store_bytes"] = self.kernel_store.bytes
        if self.learned is not None:
            facts["learned"] = self.learned
        facts["notes"] = list(self.notes)
        return facts

    def __str__(self) -> str:
        return "\n".join(f"{name:<12}{text}" for name, text in self._lines())

    def _repr_html_(self) -> str:
        return html_table("Plan", self._lines())

    @property
    def brief(self) -> str:
        """The lines of the plan that need no knowledge of the method, without the remarks in
        brackets."""
        return brief_plan(str(self))

    def _lines(self) -> list[tuple[str, str]]:
        """Return the names and texts of the plan's lines."""
        lines = {
            "data": self._data_text(),
            "strategy": self._strategy_text(),
            "rounds": self.schedule.text(self.to_json()),
            "sparseness": None,
            "columns": f"at most {self.max_columns:,} basis functions fit in memory",
            "work": self._work_text(),
            "time": self._time_text(),
            "memory": self._memory_text(),
            "blocks": f"kernel values are {self.kernel_store}",
            "kernel": self.learned,
            "neighbours": self.residuals,
            "comparison": self.comparison,
            "trees": trees_text(self.request, self.tree_rows),
        }
        if self.rho is not None:
            lines["sparseness"] = (
                f"{100 * self.rho:.3g} % of the rows of a small fit became relevance vectors; this "
                "determines the number of candidates"
            )
        shown = [(name, text) for name, text in lines.items() if text is not None]
        return shown + [("note", note) for note in self.notes]

    def _data_text(self) -> str:
        shape = self.shape
        counts = {"row": shape.n_rows, "feature": shape.n_features}
        table = " × ".join(counted(count, name) for name, count in counts.items())
        split = f", {counted(shape.n_classes, 'class')}" if shape.n_classes else ""
        return f"{table}{split} ({counted(shape.n_tiles, 'tile')} of {shape.tile_rows:,} rows)"

    def _strategy_text(self) -> str:
        request = self.request
        sample = int(request.sample_rows) if self.read.sampled else 0
        rows = {
            "growing": f"on a growing random sample from {sample:,} rows, the last on all rows",
            "sample": f"on a random sample of {sample:,} rows, the last on all rows",
        }.get(request.fit_rows, "on all rows")
        candidates = ""
        if self.schedule.selects:
            candidates = f"; candidates are {CANDIDATES[request.selection]}"
        return f"{self.schedule.name}: fits {rows}{candidates}"

    def _work_text(self) -> str:
        workers = f"{self.machine.workers} workers × " if self.machine.workers > 1 else ""
        return (
            f"{self.passes:,} passes over the rows, {self.shape.tile_rows:,} rows per task, "
            f"{workers}{counted(self.threads, 'thread')}"
        )

    def _time_text(self) -> str:
        dense = format_duration(sum(cost.solve_seconds for cost in self.rounds))
        return f"about {format_duration(self.seconds)} (of which linear algebra {dense})"

    def _memory_text(self) -> str:
        sizes = {
            "process": self.machine.base + self.grown,
            "pass": self.bytes.passing,
            "dense fit": self.bytes.solving,
            "neighbours": self.residual_bytes,
            "boosting": self.comparison_bytes,
        }
        parts = ", ".join(f"{name} {format_bytes(size)}" for name, size in sizes.items() if size)
        return f"about {format_bytes(self.peak)} of {format_bytes(self.machine.limit)} ({parts})"


BRIEF = ("data", "rounds", "time", "memory", "note")
"""Names of the plan's lines that need no knowledge of the method."""


def brief_plan(text: str) -> str:
    """Return the lines of a plan's text named in ``BRIEF``, without what follows in brackets.

    >>> brief_plan("data        9 rows (1 tile)\\nwork        4 passes\\nnote        a (b)")
    'data        9 rows\\nnote        a (b)'
    """
    lines = []
    for line in text.splitlines():
        name = line.partition(" ")[0]
        if name in BRIEF:
            lines.append(line if name == "note" else line.partition(" (")[0])
    return "\n".join(lines)


def make_plan(
    shape: DataShape,
    machine: Machine,
    rates: Rates,
    request: Request,
    schedule: Schedule,
    read: RowsRead,
    *,
    held_out: bool = False,
    settled: bool = True,
    shrink_partition: bool = False,
    joining: int | None = None,
    notes: tuple[str, ...] = (),
    rho: float | None = None,
    learned: str | None = None,
    learning_seconds: float = 0.0,
    grown: int = 0,
    has_trees: bool = False,
) -> Plan:
    """Compute threads, columns and kept kernel blocks from the memory limit; estimate passes,
    seconds and peak memory.

    Raises ``MemoryLimitError`` if one round needs more than the limit.

    Args:
        shape: the sizes of the data.
        machine: the processes that run the tasks.
        rates: measured rates of one thread.
        request: the resolved options.
        schedule: the way in which candidates join.
        read: the rows that intermediate fits read.
        held_out: True if each pass reads validation rows.
        settled: True if a last fit ends with passes for its residuals and left-out errors.
        shrink_partition: True if the number of candidates may be reduced when memory is short.
        joining: the number of rows that are split into partitions; None for all rows.
        notes: notes that precede the plan's own.
        rho: the fraction of random rows that became vectors in the heuristic's fit.
        learned: a description of the learned kernel.
        learning_seconds: the seconds taken by kernel learning and the heuristic.
        grown: the bytes by which the process has grown during kernel learning.
        has_trees: True for boosted trees beside the fit.
    """
    limits = FitMemory.of(shape, machine, schedule, read, held_out=held_out)
    size = limits.fit_size(request, schedule, shrink=shrink_partition)
    require_memory_for_residuals(request, shape, machine)
    work = Work(shape, read, rates, size.threads * machine.workers, settled=settled)
    work = with_additions(work, request, machine, learned, has_trees=has_trees)
    rows = joining or shape.n_rows
    costs = schedule.costs(work, size.candidates, request.stop_fraction, request.max_rounds, rows)
    columns = min(max(cost.columns for cost in costs), size.max_columns)
    step, elements = limits.largest_step(size, columns, rows, parallel=schedule.merges)
    plan = Plan(
        request=replace(request, partition_size=size.candidates),
        shape=shape,
        machine=machine,
        schedule=schedule,
        read=read,
        partition_size=size.candidates,
        max_columns=size.max_columns,
        learning_columns=limits.learning_columns(),
        threads=size.threads,
        bytes=step,
        rounds=tuple(costs),
        batch_elements=elements,
        held_out=held_out,
        rho=rho,
        notes=notes + size.notes,
        learned=learned,
        learning_seconds=learning_seconds,
        joining=joining,
        grown=grown,
        **vars(BesideRounds.of(request, work, machine, columns, has_trees=has_trees)),
    )
    return plan.with_kernel_store(columns)


def kernel_store(
    request: Request, shape: DataShape, machine: Machine, columns: int, spare: int
) -> KernelStore:
    """Choose whether and where blocks of all rows × ``columns`` elements are kept.

    Args:
        request: the resolved options.
        shape: the sizes of the data.
        machine: the processes that run the tasks.
        columns: the maximum number of columns of the fit.
        spare: the bytes of a process that kernel blocks may take.
    """
    where = request.kernel_store
    wanted = FLOAT * shape.n_rows * columns // machine.workers
    if where == "auto":  # only Newton steps read the same columns repeatedly
        where = "memory" if shape.newton else "none"
        if request.memory_limit == "auto":
            spare = min(spare, int(STORE_FRACTION * machine.limit))
    if not shape.n_kernels:
        where = "none"
    return KernelStore(where, {"memory": min(spare, wanted), "zarr": wanted}.get(where, 0))
