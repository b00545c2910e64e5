"""The memory that the steps of a fit take, and the largest fit that a memory limit allows."""

from dataclasses import dataclass, replace
from operator import attrgetter
from typing import NoReturn, Self

from partirvm.errors import MemoryLimitError
from partirvm.options import Request
from partirvm.planning import memory
from partirvm.planning.cost import (
    RowsRead,
    Schedule,
    n_partitions,
)
from partirvm.planning.machine import Machine
from partirvm.planning.memory import (
    ALLOWANCE,
    DataShape,
    StepBytes,
    step_bytes,
)
from partirvm.quoting import format_bytes
from partirvm.types import (
    LEARNING_ROWS,
)

LEAST_PARTITION = 50
"""Minimum to which the memory limit may lower an automatic partition size."""


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


def affordable(shape: DataShape, machine: Machine, candidates: int) -> tuple[int, int]:
    """Return the numbers of threads and candidates (at least 2) for which one fit of all candidates
    is within the memory limit."""
    threads, columns = FitMemory(shape, machine).fitting(1, candidates + shape.n_leading)
    return threads, min(candidates, max(columns - shape.n_leading, 2))
