"""Plan a fit: threads, columns and rounds from the memory limit, and the expected work, time and
memory."""

from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, NoReturn, Self

from partirvm.errors import MemoryLimitError
from partirvm.options import Request
from partirvm.planning import memory
from partirvm.planning.cost import (
    CORRECTED,
    TREE_VALUES,
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

LEAST_SECONDS = 0.05
"""Time of boosted trees at the training rows from which it is stated."""

SKLEARN_TREES = 100
"""Maximum number of boosted trees, per class for classes, that scikit-learn fits by default."""

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
class Machine:
    """The processes that run tasks.

    Attributes:
        threads: the number of threads of a process.
        base: bytes that a process uses before the fit.
        limit: the memory limit of a process in bytes.
        workers: the number of processes.
        least_threads: a fit may use fewer threads if memory is short, but not fewer than these.
        libraries: the bytes of libraries that a comparison with boosted trees would load.
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
        comparison_bytes: the bytes of a comparison with boosted trees, including the one for a
            model without vectors.
        grown: the bytes by which the process has grown during kernel learning: libraries, and freed
            small blocks.
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


@dataclass(frozen=True)
class FitSize:
    """The largest fit that the memory limit allows.

    Attributes:
        candidates: the number of candidates.
        threads: the number of threads of a process.
        max_columns: the maximum number of columns with these threads.
        notes: notes on what was lowered and why.
    """

    candidates: int
    threads: int
    max_columns: int
    notes: tuple[str, ...]


@dataclass(frozen=True)
class FitMemory:
    """The memory that the steps of a fit take, and the fits that the memory limit allows.

    Attributes:
        shape: the sizes of the data.
        machine: the processes that run the tasks.
        pool: the number of trial columns of a pass that selects candidates.
        held_out: True if each pass reads validation rows.
        whole: True if no statistics are kept from an earlier round.
    """

    shape: DataShape
    machine: Machine
    pool: int = 0
    held_out: bool = False
    whole: bool = True

    @classmethod
    def of(
        cls,
        shape: DataShape,
        machine: Machine,
        schedule: Schedule,
        read: RowsRead,
        *,
        held_out: bool,
    ) -> Self:
        """Return the memory that the steps of a schedule take.

        Args:
            shape: the sizes of the data.
            machine: the processes that run the tasks.
            schedule: the way in which candidates join.
            read: the rows that intermediate fits read.
            held_out: True if each pass reads validation rows.
        """
        whole = not schedule.has_rounds or read.sampled or shape.newton
        return cls(shape, machine, read.pool, held_out, whole)

    def step(self, kept: int, candidates: int, threads: int, elements: int = 0) -> StepBytes:
        """Return the bytes of a step.

        Args:
            kept: the number of columns kept so far, including the leading ones.
            candidates: the number of new columns.
            threads: the number of threads of a process.
            elements: the number of elements of all Gram matrices that run in parallel.
        """
        return step_bytes(
            self.shape,
            kept,
            candidates,
            threads,
            pool=self.pool,
            held_out=self.held_out,
            elements=elements,
            whole=self.whole,
        )

    def fitting(self, candidates: int, columns: int) -> tuple[int, int]:
        """Return the largest number of threads with which ``columns`` columns fit in memory,
        including ``candidates`` new ones, and the number of columns that fit with these threads."""
        machine = self.machine
        for threads in range(machine.threads, machine.least_threads - 1, -1):
            max_columns = memory.max_columns_within(
                self.shape,
                candidates,
                threads,
                machine.budget,
                pool=self.pool,
                held_out=self.held_out,
                whole=self.whole,
            )
            if max_columns >= columns:
                break
        return threads, max_columns

    def fit_size(self, request: Request, schedule: Schedule, *, shrink: bool) -> FitSize:
        """Choose the numbers of candidates and threads: try fewer threads first, then, if
        ``shrink``, half as many candidates.

        Raises ``MemoryLimitError`` if the candidates do not fit.
        """
        shape = self.shape
        partition_size = int(request.partition_size)
        candidates = schedule.candidates(partition_size, request.max_vectors, shape.n_candidates)
        cause = "max_vectors"
        while True:
            # new candidates, as many kept columns, and the leading columns
            columns = min(2 * candidates, shape.n_candidates) + shape.n_leading
            threads, max_columns = self.fitting(candidates, columns)
            if max_columns >= columns or not shrink or candidates <= LEAST_PARTITION:
                break
            candidates = max(candidates // 2, LEAST_PARTITION)
            cause = "the memory limit"
        if not max_columns:
            self._refuse(candidates, one_fit=schedule.one_fit)
        notes = []
        if candidates < min(partition_size, shape.n_candidates):
            notes.append(f"partition size lowered to {candidates} because of {cause}")
        if threads < self.machine.threads:
            notes.append(
                f"{threads} of {self.machine.threads} threads are used because of the memory limit"
            )
        return FitSize(candidates, threads, max_columns, tuple(notes))

    def _refuse(self, candidates: int, *, one_fit: bool) -> NoReturn:
        """Raise the error for a round that does not fit in memory with the fewest threads."""
        shape = self.shape
        machine = self.machine
        round_memory = replace(self, whole=False)
        step = round_memory.step(shape.n_leading, candidates, machine.least_threads)
        need = machine.base + ALLOWANCE + step.peak
        advice = "choose a strategy other than 'basic'" if one_fit else "lower partition_size"
        raise MemoryLimitError(
            f"one round of {candidates + shape.n_leading:,} columns over tiles of "
            f"{shape.tile_rows:,} rows needs {format_bytes(need)} per process (including "
            f"{format_bytes(machine.base)} before the fit), but the memory limit is "
            f"{format_bytes(machine.limit)}: raise memory_limit or {advice}"
        )

    def largest_step(
        self, size: FitSize, columns: int, joining: int, *, parallel: bool
    ) -> tuple[StepBytes, int]:
        """Return the bytes of a fit's largest step, and the number of elements of all Gram matrices
        that run in parallel.

        Parallel fits get half of the bytes that a step of a single fit leaves free.

        Args:
            size: the size of a fit.
            columns: the maximum number of columns of a fit.
            joining: the number of rows that are split into partitions.
            parallel: True if partitions are fitted in parallel.
        """
        candidates = size.candidates
        threads = size.threads
        step = self.step(columns - candidates, candidates, threads)
        if not parallel:
            return step, 0
        leading = self.shape.n_leading
        spare = self.machine.budget - self.step(leading, candidates, threads).peak
        fits = n_partitions(joining, candidates, self.shape.n_kernels)
        elements = memory.batch_elements(self.shape, candidates, threads, spare // 2, fits)
        batch = self.step(leading, candidates, threads, elements)
        return max(step, batch, key=attrgetter("peak")), elements

    def learning_columns(self) -> int:
        """Return the maximum number of columns for kernel learning.

        The slopes of a kernel block take as much memory as the block itself, and the sample of rows
        is also in memory.
        """
        spare = self.machine.budget - memory.sample_bytes(self.shape, LEARNING_ROWS)
        columns = memory.max_columns_within(
            self.shape, 1, 1, spare, held_out=self.held_out, whole=True
        )
        return columns // 2


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
    """
    limits = FitMemory.of(shape, machine, schedule, read, held_out=held_out)
    size = limits.fit_size(request, schedule, shrink=shrink_partition)
    require_memory_for_residuals(request, shape, machine)
    tried = _tries_residuals(request, shape)
    compared = _compares(request, shape, machine, learned)
    work = Work(shape, read, rates, size.threads * machine.workers, tried, compared, settled)
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
        residuals=residuals_text(request, work, machine, columns),
        comparison=comparison_text(work),
        residual_bytes=_bytes_of_residuals(request, work, machine),
        comparison_bytes=_bytes_of_comparison(request, work, machine),
        grown=grown,
    )
    return plan.with_kernel_store(columns)


def _tries_residuals(request: Request, shape: DataShape) -> bool:
    """Return whether local residuals are tried: never with a given noise variance."""
    tried = tries_residuals(request.residual, shape.n_rows, shape.n_targets)
    return tried and shape.measured and request.estimates_noise


def _compares(request: Request, shape: DataShape, machine: Machine, learned: str | None) -> bool:
    """Return whether the fit is compared with boosted trees.

    Args:
        request: the resolved options.
        shape: the sizes of the data.
        machine: the processes that run the tasks.
        learned: a description of the learned kernel; without one, nothing is compared.
    """
    return (
        bool(learned)
        and request.reference != "none"
        and shape.n_rows >= COMPARED_ROWS[0]
        and machine.limit >= COMPARED_MEMORY
        and shape.n_targets == 1
        and request.class_weight is None
    )


def _bytes_of_residuals(request: Request, work: Work, machine: Machine) -> int:
    """Return the bytes of the stage of local residuals, or 0 for a fit without them."""
    shape = work.shape
    neighbours = request.neighbours
    left_out = min(shape.n_rows, LEFT_OUT_ROWS)
    if not work.residuals or _residual_need(shape, left_out, neighbours) > machine.limit:
        return 0
    in_memory = _residual_need(shape, shape.n_rows, neighbours) <= machine.limit
    return memory.residual_stage_bytes(shape, left_out, neighbours, in_memory=in_memory)


def _residual_need(shape: DataShape, rows: int, neighbours: int) -> int:
    """Return the lowest memory limit at which local residuals of ``rows`` rows are made in
    memory."""
    return RESIDUAL_SHARE * residual_bytes(shape, rows, neighbours)[1]


def _bytes_of_comparison(request: Request, work: Work, machine: Machine) -> int:
    """Return the bytes of a comparison with boosted trees, including the one for a model without
    vectors; 0 without a comparison."""
    shape = work.shape
    libraries = machine.libraries
    comparisons = [0]
    may_lack_vectors = (
        request.reference != "none"
        and machine.limit >= COMPARED_MEMORY
        and shape.n_rows >= JUDGED_ROWS[0]
    )
    if may_lack_vectors:
        rows = min(shape.n_rows, JUDGED_ROWS[1])
        trees = SKLEARN_TREES * max(shape.n_classes, 1)
        comparisons.append(memory.comparison_bytes(shape, rows, libraries, trees))
    if work.compared:
        rows = min(shape.n_rows, COMPARED_ROWS[1])
        trees = max(TREES_OF_CLASSES, 8 * shape.n_classes)
        comparisons.append(memory.comparison_bytes(shape, rows, libraries, trees))
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


def trees_text(shape: tuple[int, ...], n_rows: int, n_bytes: int) -> str:
    """Describe what boosted trees as basis functions cost.

    Args:
        shape: numbers of forests, outputs and rounds
        n_rows: number of rows of the data
        n_bytes: bytes of the trees and their tables
    """
    forests, outputs, rounds = shape
    seconds = n_rows * outputs * rounds / TREE_VALUES
    per_second = int(TREE_VALUES / max(outputs * rounds, 1))
    on_training_rows = ""
    if seconds >= LEAST_SECONDS:
        on_training_rows = f", {format_duration(seconds)} for the training rows"
    return (
        f"boosted trees take about {format_bytes(n_bytes)} ({counted(forests, 'forest')} of "
        f"{counted(outputs * rounds, 'tree')}){on_training_rows}; {per_second:,} predictions per "
        "second and core"
    )


def require_memory_for_residuals(request: Request, shape: DataShape, machine: Machine) -> None:
    """Raise ``MemoryLimitError`` if local residuals are requested but cannot even be learned from
    left-out rows."""
    if request.residual != "local":
        return
    need = _residual_need(shape, min(shape.n_rows, LEFT_OUT_ROWS), request.neighbours)
    if need > machine.limit:
        raise MemoryLimitError(
            f"residual='local' needs {format_bytes(need)}, but the memory limit is "
            f"{format_bytes(machine.limit)}: raise memory_limit, lower neighbours, or leave "
            "residual='auto'"
        )


def residuals_text(request: Request, work: Work, machine: Machine, columns: int) -> str | None:
    """Describe the bytes and seconds that local residuals take; None for a fit without them.

    Args:
        request: the resolved options.
        work: the inputs of all cost formulas.
        machine: the processes that run the tasks.
        columns: the maximum number of columns of the fit.
    """
    if not work.residuals:
        return None
    shape = work.shape
    n = shape.n_rows
    k = request.neighbours
    need = _residual_need(shape, min(n, LEFT_OUT_ROWS), k)
    if need > machine.limit:
        return f"not tried below a memory_limit of {format_bytes(need)}"
    size = format_bytes(residual_bytes(shape, n, k)[0])
    place = "in memory" if _residual_need(shape, n, k) <= machine.limit else "in files of a job"
    one_pass = ""
    if n > LEFT_OUT_ROWS:
        seconds = work.pass_seconds(n, n * columns, 2.0 * n * columns)
        one_pass = f", a pass of {format_duration(seconds)}"
    # targets share the search for neighbours
    rate = int(CORRECTED / k / (1.0 + (shape.n_targets - 1) / 4))
    return (
        f"the errors of the {k} nearest rows correct predictions if this helps left-out rows: "
        f"about {size} {place}{one_pass}, {rate:,} predictions per second and core"
    )


def affordable(shape: DataShape, machine: Machine, candidates: int) -> tuple[int, int]:
    """Return the numbers of threads and candidates (at least 2) for which one fit of all candidates
    is within the memory limit."""
    threads, columns = FitMemory(shape, machine).fitting(1, candidates + shape.n_leading)
    return threads, min(candidates, max(columns - shape.n_leading, 2))


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
