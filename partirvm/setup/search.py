"""Small fits during planning: measure the sparseness of the problem, and learn the kernel."""

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
from partirvm.planning.cost import learning_seconds
from partirvm.planning.make_plan import affordable
from partirvm.planning.memory import ALLOWANCE, DataShape, kept_bytes, sample_bytes
from partirvm.planning.plan import Machine
from partirvm.planning.units import counted, format_duration
from partirvm.setup.categories import described, parameter_names
from partirvm.setup.choosing import MANY, WIDTHS, choose, per_feature
from partirvm.setup.kernel import chooses, chooses_family, metric_of
from partirvm.setup.kernel_search import axes_of, learning_options, within_work
from partirvm.setup.metric import DIRECTIONS, MOST_TURNED, learn
from partirvm.setup.partition_size import probe_rows, sparseness
from partirvm.setup.process_search import Asked, learn_regression, searchable
from partirvm.setup.rates import product_rate
from partirvm.setup.sample import Sample, gathered
from partirvm.setup.spent import Entry, Spent, line
from partirvm.strategies.fit_rows import posterior_rows
from partirvm.strategies.instructions import Record
from partirvm.strategies.problem import Options, Problem
from partirvm.types import LEARNING_ROWS

Interrupted: TypeAlias = Callable[[], Termination | None]
"""Called repeatedly during a fit; returns the reason to end the fit, or None to continue."""

_VERDICTS = {
    None: "",
    True: " over all rows: kernel accepted",
    False: " over all rows: kernel rejected, the previous kernel is kept",
}
"""Result of the check of a kernel that was learned between rounds; None for a kernel learned before the fit."""

NAMED = 6
"""Maximum number of parameters named in a text; the others are only counted."""


class StoppedError(Exception):
    """Raised if an abort is requested while a fit is planned; the caller decides which files to keep."""


@dataclass(frozen=True)
class Learned:
    """The result of kernel learning: the kernel, the final number of centres, history entries and a text for the plan.

    If the time limit ended learning early, the kernel is the best so far and ``centres`` is 0. ``notes`` list the
    limits that reduced the number of centres.
    """

    kernel: Kernel | Several
    centres: int
    lines: tuple[Entry, ...]
    text: str
    notes: tuple[str, ...] = ()


class _TimeIsUp(Exception):
    """Raised if the time limit is over; the best result so far is then used."""


@dataclass(frozen=True)
class Measuring:
    """Small fits to samples of a source within the memory limit; an abort raises ``StoppedError``.

    The executor gathers each sample once. The small fits then run in this process. ``announce`` is called with the
    expected seconds of kernel learning before it begins.
    """

    source: Source
    shape: DataShape
    machine: Machine
    parameters: Request
    executor: Executor
    interrupted: Interrupted
    announce: Callable[[str], None] = lambda text: None
    began: float = field(default_factory=time.perf_counter)

    def sparseness(self, problem: Problem) -> tuple[Record | None, tuple[Entry, ...], tuple[str, ...]]:
        """Run the heuristic's fit; return its record (None after a timeout), its history entries and its notes."""
        n_rows, parameters = self.source.n_rows, self.parameters
        problem = replace(problem, likelihood=problem.likelihood.measured_by)
        wanted = probe_rows(n_rows, self.source.n_features, n_rows)
        most = min(wanted, parameters.heuristic_rows)
        rows = max(self._affordable(most * problem.n_kernels, most)[0] // problem.n_kernels, 1)
        cap = "heuristic_rows" if rows == most else "the memory limit"
        notes = (f"ρ measured on {rows:,} rows instead of {wanted:,} because of {cap}",) if rows < wanted else ()
        lines = _Lines(self, problem.empty.kernel)
        try:
            with self._sample(problem, rows, lines) as sample:
                found = sparseness(sample, problem, parameters.tol)
        except _TimeIsUp:
            return None, (), notes
        lines.add(found)
        return found, tuple(lines.entries), notes

    def kernel(self, problem: Problem, *, all_rows: bool) -> Learned:
        """Learn a kernel from an initial kernel; ``all_rows`` is True if all rows are candidates of a single fit."""
        n_rows, parameters = self.source.n_rows, self.parameters
        problem = replace(problem, likelihood=problem.likelihood.measured_by)
        learning = learning_options(
            n_rows,
            classes=problem.classifies,
            several=problem.n_classes > 2,
            prior=parameters.gamma_prior,
            metric=metric_of(parameters),
        )
        # the slopes of a block take as much memory as the block itself
        d, wanted = self.source.n_features, learning.max_centres
        rows, worth, evaluations = within_work(min(n_rows, LEARNING_ROWS), wanted, d)
        columns, room = self._affordable(2 * worth, LEARNING_ROWS)
        most = max(columns // 2, 1)
        notes = (
            (f"kernel learned with at most {most:,} centres because of the memory limit",) if most < worth else ()
        ) + (
            (
                f"kernel learned from {rows:,} rows and at most {worth:,} centres, of one family, in searches of at "
                f"most {evaluations:,} evaluations, because of {d:,} features",
            )
            if worth < wanted
            else ()
        )
        metric = "widths" if learning.metric == "auto" and d > MOST_TURNED else learning.metric
        learning = replace(
            learning, centres=min(learning.centres, most), max_centres=most, evaluations=evaluations, metric=metric
        )
        seconds = learning_seconds(
            product_rate(),
            rows,
            learning.centres,
            d,
            evaluations,
            directions=learning.metric != "widths",
            folds=chooses(parameters) and n_rows <= MANY,
        )
        what = f"{rows:,} rows × {learning.centres:,} centres × {counted(d, 'feature')}"
        self.announce(f"kernel learning ({what}): about {format_duration(seconds)} of one thread")
        all_candidates = chooses(parameters) and all_rows and worth == wanted and self._memory_allows_all_candidates()
        options = Options(learning.max_centres, "random", seed=parameters.seed)
        lines = _Lines(self, problem.empty.kernel)
        try:
            with self._sample(problem, LEARNING_ROWS if worth == wanted else rows, lines, room) as sample:
                if searchable(problem):
                    asked = Asked(chooses_family(parameters), columns)
                    start = per_feature(problem) if chooses(parameters) else problem
                    learn_regression(sample, start, learning, asked, parameters.seed)
                elif chooses(parameters):
                    choose(sample, problem, learning, options, all_candidates=all_candidates)
                else:
                    learn(sample, problem, learning, parameters.seed)
        except _TimeIsUp:
            return Learned(lines.best, 0, tuple(lines.entries), "not finished because of time_limit", notes)
        last = lines.entries[-1]
        return Learned(kernel_from_spec(last["kernel"]), last["candidates"], tuple(lines.entries), last["text"], notes)

    def _sample(self, problem: Problem, rows: int, lines: _Lines, room: int = 0) -> AbstractContextManager[Sample]:
        """Gather up to ``rows`` random rows; the time of passes over them is recorded in ``lines``."""
        options = Options(rows, "random", sample_rows=rows, seed=self.parameters.seed)
        numbers = posterior_rows(problem, options, "sample", problem.empty)
        return gathered(
            self.source, numbers, self.executor, self._check_interrupted, lines.spent, room, lines.add, lines.is_best
        )

    def _check_interrupted(self, *passes: Any) -> None:
        reason = self.interrupted()
        if reason is Termination.ABORTED:
            raise StoppedError
        if reason is not None:
            raise _TimeIsUp

    def _memory_allows_all_candidates(self) -> bool:
        """True if memory allows a basic RVM of all rows for each compared kernel at the same time."""
        columns = math.ceil(math.sqrt(len(WIDTHS) + 1) * self.source.n_rows)
        return self._affordable(columns, self.source.n_rows)[0] >= columns

    def _affordable(self, columns: int, rows: int) -> tuple[int, int]:
        """Return the number of columns that fit in memory with a sample, and the bytes left for kernel blocks.

        The executor then uses as many threads as these columns allow.
        """
        held = sample_bytes(self.shape, rows)
        machine = replace(self.machine, base=self.machine.base + held)
        threads, most = affordable(self.shape, machine, columns, shrink_threads=self.executor.elastic)
        self.executor.use(threads)
        return most, kept_bytes(self.shape, most, threads, machine.limit - machine.base - ALLOWANCE)


class _Lines:
    """History entries of small fits with their run times, and the best kernel so far."""

    def __init__(self, measuring: Measuring, kernel: Kernel | Several) -> None:
        self.best, self.spent = kernel, Spent()
        self.entries: list[Entry] = []
        self._measuring, self._epoch, self._since = measuring, time.time(), time.perf_counter()

    def is_best(self, kernel: Kernel | Several) -> None:
        """Store the best kernel so far."""
        self.best = kernel

    def add(self, record: Record) -> None:
        """Add an entry; time since the previous entry outside passes and dense fits is counted as ``deciding``."""
        spent, now = self.spent, time.perf_counter()
        dense = sum(ended - began for began, ended in spent.dense)
        spent.deciding = max(now - self._since - spent.passing - dense, 0.0)
        entry = line(record, spent.all(), self._measuring.began, self._epoch, saved=False)
        self.entries.append(entry | kernel_texts(self._measuring.source.columns.features)(entry))
        self._since = now


def kernel_texts(features: Sequence[str]) -> Callable[[Entry], Entry]:
    """Return a function that gives the extra fields of a history entry: the text of a learned kernel."""
    return lambda entry: {"text": learned_text(entry, features)} if entry["kind"] == "kernel" else {}


def learned_text(entry: Entry, features: Sequence[str]) -> str:
    """Describe the learned kernel of a history entry in words, with the names of the features."""
    kernel = kernel_from_spec(entry["kernel"])
    names, values = parameter_names(kernel, features), np.exp(kernel.logs)
    entries = axes_of(kernel.parameters)
    order = np.argsort(-values, kind="stable")
    switched_off = set(off(kernel.logs, groups(kernel.parameters)).tolist())
    active = [k for k in order.tolist() if k not in switched_off and not entries[k]]
    parameters = ", ".join(f"{names[k]} {values[k]:.3g}" for k in active[:NAMED])
    more = f" and {len(active) - NAMED:,} more" if len(active) > NAMED else ""
    text = (
        f"{_reason(entry)}{described(kernel)}, {parameters}{more}: "
        f"from {entry['rows']:,} rows × {entry['candidates']:,} centres, "
        f"{entry['iterations']:,} evaluations, evidence {entry['gain']:+,.1f} nats{_VERDICTS[entry['taken']]}"
    )
    if not switched_off:
        return text
    switched = [names[k].removeprefix("gamma of ") for k in sorted(switched_off)]
    rest = f" and {len(switched) - NAMED:,} more" if len(switched) > NAMED else ""
    return f"{text}; {'directions' if entries.any() else 'features'} switched off: {', '.join(switched[:NAMED])}{rest}"


def _reason(entry: Entry) -> str:
    """State the chosen family and form of the kernel and the reason for them; empty if nothing was compared."""
    choice = entry["choice"]
    return "" if choice is None else _reason_of_family(choice) + _reason_of_form(entry, choice)


def _reason_of_family(choice: dict[str, Any]) -> str:
    """State the evidence of the chosen family against the best other one."""
    tried, chosen = choice.get("families", {}), choice.get("family")
    if len(tried) < 2:
        return ""
    other = max((name for name in tried if name != chosen), key=tried.__getitem__)
    return f"{chosen}, evidence {tried[chosen] - tried[other]:+,.1f} nats against {other}; "


def _reason_of_form(entry: Entry, choice: dict[str, Any]) -> str:
    """State the chosen form of the kernel and the reason for it."""
    if "form" not in choice:
        return ""
    form = choice["form"]
    if "errors" in choice:
        error = "RMSE" if entry["train_rmse"] is not None else "log loss"
        errors, rows = choice["errors"], choice["rows"]
        other = min((name for name in errors if name != form), key=errors.__getitem__)
        if errors[other] < errors[form]:
            why = f"the gain of {other} is not significant"
            found = f"{errors[form]:.3g} against {errors[other]:.3g}"
            return f"{form}, because {why}: {error} on {rows:,} held-out rows {found}: "
        return f"{form}: {error} on {rows:,} held-out rows {errors[form]:.3g}, with {other} {errors[other]:.3g}: "
    if "directions" in choice:
        enough = "" if form == DIRECTIONS else ", too few for their number"
        return f"{form}, because directions change the evidence by {choice['directions']:+,.1f} nats{enough}: "
    return f"{form}, because there are {choice['rows']:,} rows: " if "rows" in choice else f"{form}: "
