"""What planning measures by small fits of its own: how sparse the problem is, and the kernel where it is learned."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from partirvm.backends import Executor
from partirvm.core.rprop import groups, off
from partirvm.core.termination import Termination
from partirvm.data import Source
from partirvm.kernels import Kernel, Several, kernel_from_spec
from partirvm.options import Request
from partirvm.planning.make_plan import affordable
from partirvm.planning.memory import ALLOWANCE, DataShape, kept_bytes, sample_bytes
from partirvm.planning.plan import Machine
from partirvm.setup.categories import described, parameter_names
from partirvm.setup.choosing import EACH, ONE, WIDTHS, choose
from partirvm.setup.kernel import chooses
from partirvm.setup.kernel_search import asked, learn
from partirvm.setup.partition_size import probe_rows, sparseness
from partirvm.setup.sample import Sample, gathered
from partirvm.setup.spent import Entry, Spent, line
from partirvm.strategies.fit_rows import posterior_rows
from partirvm.strategies.instructions import Record
from partirvm.strategies.problem import Options, Problem
from partirvm.types import LEARNING_ROWS

Interrupted: TypeAlias = Callable[[], Termination | None]
"""Asked again and again whether somebody wants the end, and why."""

_VERDICTS = {
    None: "",
    True: " over all rows: taken",
    False: " over all rows: not taken, the kernel stays as it was",
}
"""What came of a kernel that was learned again; None of one that was learned before the fit."""

NAMED = 6
"""Parameters that a line names; the others are counted."""

OTHER = {ONE: EACH, EACH: ONE}


class StoppedError(Exception):
    """Somebody wants the end of a fit that is still being planned. Caught by those who know what to leave behind."""


@dataclass(frozen=True)
class Learned:
    """A kernel that was learned: from how many centres in the end, with its lines of history and a text for the plan.

    Where time was up before it was, the best one so far, of no centres. ``notes`` say what it was held to.
    """

    kernel: Kernel | Several
    centres: int
    lines: tuple[Entry, ...]
    text: str
    notes: tuple[str, ...] = ()


class _TimeIsUp(Exception):
    """The time limit is over: what was found so far is the answer."""


@dataclass(frozen=True)
class Measuring:
    """Small fits to samples of a source, within what memory allows; raises ``StoppedError`` if one is interrupted.

    A sample is gathered once, and searched in this process, whoever reads the rows.
    """

    source: Source
    shape: DataShape
    machine: Machine
    parameters: Request
    executor: Executor
    interrupted: Interrupted
    began: float = field(default_factory=time.perf_counter)

    def sparseness(self, problem: Problem) -> tuple[Record | None, tuple[Entry, ...], tuple[str, ...]]:
        """The heuristic's fit: its record (None if time was up), its line of history, notes on what it was held to."""
        n_rows, parameters = self.source.n_rows, self.parameters
        problem = replace(problem, likelihood=problem.likelihood.measured_by)
        wanted = probe_rows(n_rows, self.source.n_features, n_rows)
        most = min(wanted, parameters.heuristic_rows)
        rows = max(self._affordable(most * problem.n_kernels, most)[0] // problem.n_kernels, 1)
        cap = "heuristic_rows" if rows == most else "the memory limit"
        notes = (f"ρ measured on {rows:,} rows instead of {wanted:,}: {cap}",) if rows < wanted else ()
        lines = _Lines(self, problem.empty.kernel)
        try:
            with self._sample(problem, rows, lines) as sample:
                found = sparseness(sample, problem, parameters.tol)
        except _TimeIsUp:
            return None, (), notes
        lines.add(found)
        return found, tuple(lines.entries), notes

    def kernel(self, problem: Problem, *, all_rows: bool) -> Learned:
        """The kernel learned from that of the problem; ``all_rows`` says that all are to be candidates of one fit."""
        n_rows, parameters = self.source.n_rows, self.parameters
        problem = replace(problem, likelihood=problem.likelihood.measured_by)
        ask = asked(n_rows, classes=problem.classifies, prior=parameters.gamma_prior)
        # the slopes of a block take as much memory as the block itself
        columns, room = self._affordable(2 * ask.most, LEARNING_ROWS)
        most = max(columns // 2, 1)
        notes = (f"kernel learned with {most:,} centres at most: the memory limit",) if most < ask.most else ()
        ask = replace(ask, centres=min(ask.centres, most), most=most)
        rehearse = chooses(parameters) and all_rows and self._rehearses()
        options, lines = Options(ask.most, "random", seed=parameters.seed), _Lines(self, problem.empty.kernel)
        try:
            with self._sample(problem, LEARNING_ROWS, lines, room) as sample:
                if chooses(parameters):
                    choose(sample, problem, ask, options, rehearse=rehearse)
                else:
                    learn(sample, problem, ask, parameters.seed)
        except _TimeIsUp:
            return Learned(lines.best, 0, tuple(lines.entries), "not finished: time_limit", notes)
        last = lines.entries[-1]
        return Learned(kernel_from_spec(last["kernel"]), last["candidates"], tuple(lines.entries), last["text"], notes)

    def _sample(self, problem: Problem, rows: int, lines: _Lines, room: int = 0) -> AbstractContextManager[Sample]:
        """So many random rows, all if there are no more; what passes over them take is counted for the lines."""
        options = Options(rows, "random", sample_rows=rows, seed=self.parameters.seed)
        numbers = posterior_rows(problem, options, "sample", problem.empty)
        return gathered(self.source, numbers, self.executor, self._look, lines.spent, room, lines.add, lines.is_best)

    def _look(self, *passes: Any) -> None:
        reason = self.interrupted()
        if reason is Termination.ABORTED:
            raise StoppedError
        if reason is not None:
            raise _TimeIsUp

    def _rehearses(self) -> bool:
        """Whether fits of all rows as candidates, one for each kernel that is judged, go into memory side by side."""
        columns = math.ceil(math.sqrt(len(WIDTHS) + 1) * self.source.n_rows)
        return self._affordable(columns, self.source.n_rows)[0] >= columns

    def _affordable(self, columns: int, rows: int) -> tuple[int, int]:
        """How many of these columns fit in memory beside a sample, with as many threads as they leave.

        And the bytes that are left for kernel blocks of the sample.
        """
        held = sample_bytes(self.shape, rows)
        machine = replace(self.machine, base=self.machine.base + held)
        threads, most = affordable(self.shape, machine, columns, shrink_threads=self.executor.elastic)
        self.executor.use(threads)
        return most, kept_bytes(self.shape, most, threads, machine.limit - machine.base - ALLOWANCE)


class _Lines:
    """Lines of history of small fits, with what was spent for each; and the best kernel so far."""

    def __init__(self, measuring: Measuring, kernel: Kernel | Several) -> None:
        self.best, self.spent = kernel, Spent()
        self.entries: list[Entry] = []
        self._measuring, self._epoch, self._since = measuring, time.time(), time.perf_counter()

    def is_best(self, kernel: Kernel | Several) -> None:
        """Hear of a kernel that is the best so far."""
        self.best = kernel

    def add(self, record: Record) -> None:
        """Add a line; all seconds since the last one that no pass and no dense fit took were spent on deciding."""
        spent, now = self.spent, time.perf_counter()
        dense = sum(ended - began for began, ended in spent.dense)
        spent.deciding = max(now - self._since - spent.passing - dense, 0.0)
        entry = line(record, spent.all(), self._measuring.began, self._epoch, saved=False)
        self.entries.append(entry | telling(self._measuring.source.columns.features)(entry))
        self._since = now


def telling(features: Sequence[str]) -> Callable[[Entry], Entry]:
    """What lines of history say beside their records: of a kernel that was learned, its text."""
    return lambda entry: {"text": learned_text(entry, features)} if entry["kind"] == "kernel" else {}


def learned_text(entry: Entry, features: Sequence[str]) -> str:
    """What a line of history says of a kernel that was learned; gamma per feature are named after ``features``."""
    kernel = kernel_from_spec(entry["kernel"])
    names, values = parameter_names(kernel, features), np.exp(kernel.logs)
    order = np.argsort(-values, kind="stable")
    dark = set(off(kernel.logs, groups(kernel.parameters)).tolist())
    alight = [k for k in order.tolist() if k not in dark]
    told = ", ".join(f"{names[k]} {values[k]:.3g}" for k in alight[:NAMED])
    more = f" and {len(alight) - NAMED:,} more" if len(alight) > NAMED else ""
    text = (
        f"{_reason(entry)}{described(kernel)}, {told}{more}: "
        f"from {entry['rows']:,} rows × {entry['candidates']:,} centres, "
        f"{entry['iterations']:,} evaluations, evidence {entry['gain']:+,.1f} nats{_VERDICTS[entry['taken']]}"
    )
    if not dark:
        return text
    gone = [names[k].removeprefix("gamma of ") for k in sorted(dark)]
    rest = f" and {len(gone) - NAMED:,} more" if len(gone) > NAMED else ""
    return f"{text}; features switched off: {', '.join(gone[:NAMED])}{rest}"


def _reason(entry: Entry) -> str:
    """What was decided before, and why."""
    choice = entry["choice"]
    if choice is None:
        return ""
    form, rows = choice["form"], choice["rows"]
    if "one" not in choice:
        return f"{form}, as there are {rows:,} rows: "
    error = "RMSE" if entry["train_rmse"] is not None else "log loss"
    best, other = (choice["one"], choice["each"])[:: 1 if form == ONE else -1]
    if other < best:
        what = f"{OTHER[form]} gains no more than chance may"
        return f"{form}, because {what}: {error} on {rows:,} rows held out {best:.3g} against {other:.3g}: "
    return f"{form}, because its {error} on {rows:,} rows held out is {best:.3g}, that of {OTHER[form]} {other:.3g}: "
