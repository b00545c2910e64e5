"""A sample of rows in memory for small fits before a fit or between its rounds, and the time that its passes take."""

from __future__ import annotations

import time
import uuid
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partirvm.blas_threads import one_blas_thread
from partirvm.core.updates import StepInfo
from partirvm.data.arrays import GatheredRows, rows_of_tile
from partirvm.data.source import Source
from partirvm.execution import Executor, LocalExecutor, in_this_process
from partirvm.execution.kernel_store import Blocks, Keeping, forget
from partirvm.execution.process import peak_memory
from partirvm.kernels import Kernel
from partirvm.kernels.design import Design
from partirvm.likelihoods.base import DenseFit, Pass
from partirvm.strategies.fit_rows import fresh
from partirvm.strategies.problem import Problem, Record

Int = NDArray[np.int64]

Entry = dict[str, Any]
"""A history entry: a record with seconds and bytes, as plain JSON."""

OnProgress = Callable[[Sequence[Pass], int, int], None]
"""Progress callback with the passes, the number of tiles done and the total; an exception from it ends the work."""


@dataclass
class Spent:
    """Time spent since the last history entry: seconds of passes, seconds of ``deciding``, and each dense fit's times.

    ``rows`` is the number of rows that all these passes read together.
    """

    passing: float = 0.0
    deciding: float = 0.0
    passes: int = 0
    rows: int = 0
    dense: deque[tuple[float, float]] = field(default_factory=deque)

    def solved(self, began: float, ended: float) -> None:
        """Record a dense fit that ran from ``began`` to ``ended``, in seconds since 1970."""
        self.dense.append((began, ended))

    def all(self) -> dict[str, float]:
        """Return all recorded time for one history entry, and start again from zero."""
        began = self.dense[0][0] if self.dense else time.time()
        seconds = self.deciding + sum(ended - began for began, ended in self.dense)
        spent = _times(self.passing, self.passes, self.rows, seconds, began)
        self.passing, self.deciding, self.passes, self.rows = 0.0, 0.0, 0, 0
        self.dense.clear()
        return spent

    def share(self, of: int) -> dict[str, float]:
        """Return the share of the next of ``of`` history entries, and subtract it; dense fits are in entry order."""
        count = len(self.dense)
        if of <= 1 or count <= 1:
            return self.all()
        passing, passes, rows = self.passing / count, self.passes // count, self.rows // count
        deciding, (began, ended) = self.deciding / count, self.dense.popleft()
        self.passing, self.deciding = self.passing - passing, self.deciding - deciding
        self.passes, self.rows = self.passes - passes, self.rows - rows
        return _times(passing, passes, rows, deciding + ended - began, began)


def _times(passing: float, passes: int, rows: int, solving: float, began: float) -> dict[str, float]:
    named = {"pass_seconds": passing, "passes": passes, "pass_rows": rows}
    return {**named, "solve_seconds": solving, "solve_began": began}


def line(record: Record, spent: dict[str, float], began: float, epoch: float, *, saved: bool) -> Entry:
    """Make a history entry of a record, its times from ``Spent``, and the seconds since ``began`` (``perf_counter``).

    ``epoch`` is the start of the run in seconds since 1970. ``saved`` is True if a model was saved.
    """
    seconds = time.perf_counter() - began
    entry = {**asdict(record), "termination": record.termination.value, "seconds": seconds, **spent}
    entry["solve_began"] -= epoch
    entry["peak_memory"], entry["saved"] = peak_memory(), saved
    return entry


@dataclass(frozen=True)
class SampledRows:
    """Rows held in memory, and the executor of passes over these rows.

    ``whole`` is True if the sample contains all rows of the source. ``room`` is the number of bytes for kernel blocks
    that are kept between passes. ``log`` is called with each history record, and ``best`` with each
    kernel that is the best so far.
    """

    rows: GatheredRows
    whole: bool
    executor: LocalExecutor
    on_progress: OnProgress
    spent: Spent
    room: int = 0
    log: Callable[[Record], None] = lambda record: None
    best: Callable[[Kernel], None] = lambda kernel: None

    @cached_property
    def _blocks(self) -> Blocks:
        token = uuid.uuid4().hex
        weakref.finalize(self, forget, token)
        return Blocks(Keeping(token, self.room), lambda columns: self.room)

    def run(self, *passes: Any) -> list[Any]:
        """Run passes over all rows of the sample with one reading; return their statistics."""
        self.on_progress(passes, 0, 0)
        self._blocks.begin(0)
        began, progress = time.perf_counter(), partial(self.on_progress, passes)
        found = self.executor.run(passes, self.rows, progress, self._blocks)
        self.spent.passing += time.perf_counter() - began
        self.spent.passes += len(passes)
        self.spent.rows += len(passes) * self.rows.n_rows
        return found

    def drop_blocks(self) -> None:
        """Delete the kept kernel blocks, which are those of another kernel."""
        forget(self._blocks.keeping.token)

    def solve(self, solve: DenseFit) -> Any:
        """Run a dense fit; return a ``execution.tasks.Solution``."""
        self.check_interrupted()
        (found,) = self.executor.solve([solve], lambda done, total: self.check_interrupted())
        self.spent.solved(found.began, found.ended)
        return found

    def check_interrupted(self, info: StepInfo | None = None) -> None:
        """Call the progress callback without a pass, so that it can interrupt dense computations."""
        self.on_progress((), 0, 0)

    def only(self, rows: Int) -> SampledRows:
        """Return a sample of some of the rows; ``rows`` are increasing row numbers of the source."""
        return replace(self, rows=self.rows.only(rows), whole=False)

    def candidates(self, problem: Problem, rows: Int) -> tuple[Design, Design]:
        """Make two designs of these rows: all their kernel columns, and the leading columns plus the distinct ones.

        Rows of zero weight have no columns. Of several equal columns, the first one is kept.
        """
        points, weights = self.rows.gather(rows), self.rows.weights_of(rows)
        there = slice(None) if weights is None else weights > 0
        offered = problem.empty.with_centres(points[there], rows[there])
        return offered, offered.take(fresh(offered, problem.empty), leading=problem.leading)


@contextmanager
def gathered(
    source: Source,
    rows: Int | None,
    executor: Executor,
    on_progress: OnProgress,
    spent: Spent,
    **options: Any,
) -> Iterator[SampledRows]:
    """Read rows of a source with its executor and hold them in this process; ``rows`` are increasing, None for all.

    ``options`` are ``room``, ``log`` and ``best`` of ``SampledRows``.
    """
    with in_this_process(executor) as local, one_blas_thread():
        on_progress((), 0, 0)
        began, numbers = time.perf_counter(), np.arange(source.n_rows) if rows is None else rows
        tiles = np.unique(numbers // source.tile_rows).tolist()
        found = executor.map(partial(rows_of_tile, numbers), source, tiles, partial(on_progress, ()))
        held = GatheredRows(source, numbers, (piece for _, piece in found))
        spent.passing += time.perf_counter() - began
        yield SampledRows(held, rows is None, local, on_progress, spent, **options)
