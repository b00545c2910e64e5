"""What planning measures by small fits of its own: how sparse the problem is, and the kernel where it is learned."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np

from partirvm.backends import Executor
from partirvm.core.rprop import groups, off
from partirvm.core.termination import Termination
from partirvm.data import Source
from partirvm.jobs.driver import Driver, Entry, MemoryJournal, Outcome
from partirvm.kernels import Kernel, Several, kernel_from_spec
from partirvm.options import Request
from partirvm.planning.memory import DataShape
from partirvm.planning.plan import Machine, affordable
from partirvm.setup.categories import described, parameter_names
from partirvm.setup.kernel import chooses
from partirvm.strategies.choosing import EACH, ONE, WIDTHS, Choosing
from partirvm.strategies.instructions import AnyStrategy, Record
from partirvm.strategies.learning import ROWS, Learning, asked
from partirvm.strategies.partition_size import PartitionSize, probe_rows
from partirvm.strategies.problem import Options, Problem

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


@dataclass(frozen=True)
class Measuring:
    """Small fits on some rows of a source, within what memory allows; raises ``StoppedError`` if one is interrupted."""

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
        wanted = probe_rows(n_rows, self.source.n_features, n_rows)
        most = min(wanted, parameters.heuristic_rows)
        rows = max(self._affordable(most * problem.n_kernels) // problem.n_kernels, 1)
        options = Options(partition_size=rows, selection="random", tol=parameters.tol, seed=parameters.seed)
        outcome, lines = self._run(PartitionSize(), problem, options)
        cap = "heuristic_rows" if rows == most else "the memory limit"
        notes = (f"ρ measured on {rows:,} rows instead of {wanted:,}: {cap}",) if rows < wanted else ()
        return None if outcome.reason is Termination.TIME else outcome.last, lines, notes

    def kernel(self, problem: Problem, *, all_rows: bool) -> Learned:
        """The kernel learned from that of the problem; ``all_rows`` says that all are to be candidates of one fit."""
        n_rows, parameters = self.source.n_rows, self.parameters
        ask = asked(n_rows, classes=problem.classifies, prior=parameters.gamma_prior)
        # the slopes of a block take as much memory as the block itself
        most = max(self._affordable(2 * ask.most) // 2, 1)
        notes = (f"kernel learned with {most:,} centres at most: the memory limit",) if most < ask.most else ()
        ask = replace(ask, centres=min(ask.centres, most), most=most)
        options = Options(
            partition_size=ask.most,
            selection="random",
            likelihood="sample",
            likelihood_rows=min(n_rows, ROWS),
            seed=parameters.seed,
        )
        strategy = Choosing(ask, rehearse=all_rows and self._rehearses()) if chooses(parameters) else Learning(ask)
        outcome, entries = self._run(strategy, problem, options)
        if outcome.reason is Termination.TIME:
            return Learned(outcome.state.kernel, 0, entries, "not finished: time_limit", notes)
        record = outcome.last
        assert record is not None
        assert record.kernel is not None
        return Learned(kernel_from_spec(record.kernel), record.candidates, entries, entries[-1]["text"], notes)

    def _rehearses(self) -> bool:
        """Whether fits of all rows as candidates, one for each kernel that is judged, go into memory side by side."""
        columns = math.ceil(math.sqrt(len(WIDTHS) + 1) * self.source.n_rows)
        return self._affordable(columns) >= columns

    def _affordable(self, columns: int) -> int:
        """How many of these columns fit in memory, with as many threads as they leave."""
        threads, most = affordable(self.shape, self.machine, columns, shrink_threads=self.executor.elastic)
        self.executor.use(threads)
        return most

    def _run(self, strategy: AnyStrategy, problem: Problem, options: Options) -> tuple[Outcome, tuple[Entry, ...]]:
        journal = MemoryJournal()
        told = telling(self.source.columns.features)
        driver = Driver(executor=self.executor, source=self.source, interrupted=self.interrupted, told=told)
        elapsed = time.perf_counter() - self.began
        outcome = driver.run(strategy, problem, options, journal, elapsed=elapsed, early=False)
        if outcome.reason is Termination.ABORTED:
            raise StoppedError
        return outcome, tuple(journal.history)


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
