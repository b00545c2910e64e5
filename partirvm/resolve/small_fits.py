"""Small fits to samples of the rows before a fit is planned, which learn the kernel and measure its
sparseness."""

import math
import time
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from partirvm.core.moments import Moments
from partirvm.core.termination import Termination
from partirvm.data import Source
from partirvm.data.folds import folded
from partirvm.execution import Executor
from partirvm.kernels import kernel_from_spec
from partirvm.kernels.design import Design
from partirvm.learning.class_search import learn_classes
from partirvm.learning.embedding import FUNCTIONS, ROWS, SUMS, Embedding, embedded
from partirvm.learning.features import with_regressions
from partirvm.learning.forms import MEAN, kernel_text, learn
from partirvm.learning.level_variances import with_level_variances
from partirvm.learning.process_search import LAST_ROWS, evidence_of, learn_regression, searchable
from partirvm.learning.sample import STAGES, Entry, OnStep, SampledRows, Spent, gathered, line
from partirvm.learning.search import LearningOptions, learning_options
from partirvm.learning.target import with_target
from partirvm.likelihoods.base import PassFit, survivors
from partirvm.options import Request
from partirvm.planning.cost import tries_residuals
from partirvm.planning.memory import FLOAT, DataShape, judging_bytes, kept_bytes, sample_bytes
from partirvm.planning.plan import Machine, affordable
from partirvm.resolve.kernel import chooses, resolve_kernel
from partirvm.resolve.new_problem import Interrupted
from partirvm.strategies.fit_rows import posterior_rows
from partirvm.strategies.problem import Options, Problem, Record, Stopped
from partirvm.strategies.stages import INTERMEDIATE, final_rule
from partirvm.types import LEARNING_ROWS

AUTO_PARTITION = (32, 1000)
"""Minimum and maximum of the partition size that ``partition_size="auto"`` chooses."""

HEURISTIC_ROWS = 2000
"""Maximum number of rows of the basic RVM from which ``partition_size="auto"`` derives P."""

OVERLAP, DENSE = 0.1, 0.9
"""ρ up to which classes overlap; ρ above which the kernel is probably too narrow: nearly every row
becomes a vector."""

MANY_LEVELS = 8
"""A categorical feature with more levels becomes numbers: categorical kernels share nothing among
levels. Used cars: error .205 with a kernel on four categories, .165 if the one with 195 levels
becomes numbers."""

MOST_INDICATORS = 16
"""Maximum number of levels of a feature for which an indicator of each level is tried."""

QUICK_ROWS = 4500
"""Maximum number of rows from which the kernel of a quick fit is learned: on protein (93 vectors
with local residuals), the error is then 5 % larger, in two thirds of the time."""


class OutOfTime(Stopped):
    """The time limit has passed: a small fit ends early, which is not an error."""


@dataclass
class SmallFits:
    """Fits, in this process, to samples of a source within the memory limit; an abort raises
    ``Stopped``.

    ``entries`` are their history entries, ``notes`` the limits that reduced them, ``learned``
    describes the learned kernel, ``best`` a design of the best kernel so far, and ``centres`` the
    number of its centres, or 0 if the time limit ended learning early. ``level_noise`` is the noise
    variance beside the effects of levels. ``on_step`` is called with the progress of kernel
    learning.
    """

    source: Source
    shape: DataShape
    machine: Machine
    request: Request
    executor: Executor
    interrupted: Interrupted
    best: Design
    on_step: OnStep = lambda number, total, text: None
    entries: list[Entry] = field(default_factory=list)
    notes: tuple[str, ...] = ()
    learned: str | None = None
    centres: int = 0
    level_noise: float = 0.0
    _spent: Spent = field(default_factory=Spent)
    _began: float = field(default_factory=time.perf_counter)
    _step: tuple[str, int, float] = STAGES[0], 0, 0.0

    def embed(self, problem: Problem, moments: Moments) -> Problem:
        """Return the problem in which levels of categories are numbers, if the form of the kernel
        is chosen.

        Features with many levels always are; whether others are, too, and how, is decided by
        evidence. The rows then have folds, and each embedded problem its own.
        """
        forms = self._level_forms(problem)
        if not forms:
            return problem
        room = self.machine.budget // (4 * FLOAT)
        request = self.request
        rows = min(ROWS, self.source.n_rows, room // (4 * FUNCTIONS * self.shape.n_features))
        found = list[tuple[Problem, Embedding]]()
        with suppress(OutOfTime), self._sample(problem, rows) as sample:
            for levels, indicators in forms:
                columns = self.source.columns
                sums = min(SUMS, room // 3)
                form = embedded(sample, problem, columns, levels, request.seed, sums, indicators)
                scaling = with_level_variances(sample, problem, columns, form.scaling, sums)
                kernel = resolve_kernel(request, moments, columns, scaling)
                found.append((problem.with_scaling(scaling).with_kernel(kernel), form))
            if len(found) > 1:
                gains = [self._evidence_of_levels(candidate) for candidate, _ in found]
                found = [found[int(np.argmax(gains))]]
            problem, form = found[0]
            self.notes += form.notes
            self.level_noise = form.noise
        self.source = folded(self.source, problem.empty.scaling)
        return problem

    def _level_forms(self, problem: Problem) -> list[tuple[dict[int, int], dict[int, int]]]:
        """Return the features that may be embedded, and those that may be indicators, with their
        numbers of levels.

        Of several such pairs, the evidence decides.
        """
        request = self.request
        columns = self.source.columns
        if not (chooses(request) and request.standardize and request.basis is None):
            return []
        counts = {
            j: len(columns.categories.get(name, ())) for j, name in enumerate(columns.features)
        }
        several = {j: count for j, count in counts.items() if count > 2}
        many = {j: count for j, count in several.items() if count > MANY_LEVELS}
        few = {j: count for j, count in several.items() if count <= MOST_INDICATORS}
        searched = searchable(problem) and request.metric != "directions"
        if not (few and searched):
            return [(many, {})] if columns.categories else []
        rest = {j: count for j, count in many.items() if j not in few}
        return [(many, {}), (rest, few), *([(several, {})] if several != many else [])]

    def _evidence_of_levels(self, problem: Problem) -> float:
        """Return the evidence of an exact process for a problem, on rows that have its folds."""
        own = replace(self, source=folded(self.source, problem.empty.scaling))
        with own._sample(problem, min(LEARNING_ROWS, self.source.n_rows)) as sample:
            return evidence_of(sample, problem, self.request.seed)

    def warp_target(self, problem: Problem, least: float) -> Problem:
        """Return the problem with the target warped as requested, whatever the time; ``least`` is
        the lowest target."""
        if self.request.warp_target == "none" or not problem.target_variance:
            return problem
        untimed = replace(
            self, interrupted=lambda: None
        )  # a limit must not change the target that errors refer to
        with untimed._sample(problem, min(LEARNING_ROWS, self.source.n_rows)) as sample:
            problem = with_target(sample, problem, self.request.warp_target, least)
        column = self.source.columns.target
        if (name := problem.empty.scaling.target.name(column)) != column:
            self.notes += (
                f"the target is fitted as {name}: training errors and noise refer to it",
            )
        return problem

    def learn(self, problem: Problem) -> Problem:
        """Return the problem with a learned kernel or, after the time limit, with the best one so
        far."""
        learning, columns, room = self._learning(problem)
        self.best = problem.empty
        self.learned = "not finished because of time_limit"
        with suppress(OutOfTime), self._sample(problem, learning.rows, room) as sample:
            small = self._searched(sample, problem, learning, columns)
            last = self.entries[-1]
            self.learned, self.centres = last["text"], min(last["candidates"], learning.max_centres)
            square = ((last["choice"] or {}).get("left_out_rmse", 0.0) / problem.target_scale) ** 2
            likelihood = (
                small.likelihood if self.request.multi_class == "auto" else problem.likelihood
            )
            problem = problem.with_scaling(small.empty.scaling).with_kernel(
                kernel_from_spec(last["kernel"])
            )
            features = problem.empty.scaling.features
            if features is not None and features.doubts and last["noise_variance"]:
                noise = features.share * last["noise_variance"] / problem.target_scale**2
                problem = problem.with_doubts(max(self.level_noise / noise, 1.0))
            if mean_only := (last["choice"] or {}).get("form") == MEAN:
                self.notes += (
                    "the mean alone predicts left-out rows as well as any kernel: no row joins "
                    "the model",
                )
            return replace(
                problem, left_out_square=square, likelihood=likelihood, mean_only=mean_only
            )
        return problem.with_scaling(self.best.scaling).with_kernel(self.best.kernel)

    def _learning(self, problem: Problem) -> tuple[LearningOptions, int, int]:
        """Return the options of kernel learning, the columns that fit in memory, and bytes for
        kernel blocks."""
        request = self.request
        n_rows = self.source.n_rows
        d = self.shape.n_features
        K = problem.n_classes
        metric = "widths" if request.metric == "auto" and not chooses(request) else request.metric
        rows = min(n_rows, QUICK_ROWS if request.effort == "quick" else LEARNING_ROWS)
        learning = learning_options(n_rows, d, n_classes=K, metric=metric, most=rows)
        columns, room = self._affordable(
            max(2 * learning.max_centres, min(LAST_ROWS, n_rows)), LEARNING_ROWS
        )
        most = min(
            max(columns // 2, 1), learning.max_centres
        )  # a block's slopes take as much memory as the block
        if most < learning.max_centres or learning.rows < rows:
            self.notes += (
                f"kernel learned from {learning.rows:,} rows and at most {most:,} centres because "
                "of the memory limit or the number of features",
            )
        return (
            replace(learning, centres=min(learning.centres, most), max_centres=most),
            columns,
            room,
        )

    def _searched(
        self, sample: SampledRows, problem: Problem, learning: LearningOptions, columns: int
    ) -> Problem:
        """Search for the kernel, which the last entry holds. Return the problem with the scaling
        that it sees."""
        request = self.request
        chosen = chooses(self.request)
        kernel = problem.empty.kernel
        if request.standardize and problem.empty.scaling.features is not None:
            X = sample.rows.gather(sample.rows.rows).X
            problem = problem.with_scaling(with_regressions(problem.empty.scaling, X))
        first = (
            problem.with_kernel(kernel.per_feature(problem.empty.scaling.n_inputs))
            if chosen
            else problem
        )
        warp = chosen and request.warp == "auto" and request.standardize and request.basis is None
        if not searchable(problem) or (
            problem.n_classes and (not chosen or learning.metric == "directions")
        ):
            learn(sample, first, learning, request.seed)
            return problem
        if problem.n_classes:
            return learn_classes(sample, first, learning, request.seed, warp=warp, columns=columns)
        judged = judging_bytes(self.source.n_rows, self.machine.libraries) <= self.machine.budget
        if not judged:
            self.notes += (
                "the memory limit does not allow for judging the kernel beside boosted trees",
            )
        return learn_regression(
            sample,
            first,
            learning,
            request.seed,
            family=request.kernel == "auto",
            warp=warp,
            columns=columns,
            judged=judged,
            residuals=tries_residuals(request.residual, problem.n_rows, problem.n_targets),
        )

    def partition_size(self, problem: Problem) -> tuple[float | None, int]:
        """Measure the sparseness ρ of the problem, and return it and the partition size.

        If the target is constant or time is up, these are None and the minimum. Dense classes get
        the size of a sparse problem: small rounds need fewer vectors for the same log loss. Where
        hardly any row remains, classes overlap, and larger rounds are better (protein in 4 classes:
        log loss 1.044 instead of 1.065).
        """
        n_rows = self.source.n_rows
        d = self.source.n_features
        K = problem.n_kernels
        most = min(math.ceil(math.sqrt(n_rows * d)), n_rows, HEURISTIC_ROWS)
        if problem.target_variance:
            rows = max(self._affordable(most * K, most)[0] // K, 1)
            with suppress(OutOfTime), self._sample(problem, rows) as sample:
                record = sparseness(sample, problem, self.request.tol)
                self._log(record)
                rho = record.vectors / record.rows
                dense = problem.n_classes > 0 and problem.likelihood.dense
                how = (0.5 if rho <= OVERLAP else 0.0, 0) if dense else (rho, self.centres)
                self.entries[-1]["heuristic_size"], size = partition_size(n_rows, d, *how)
                if rho > DENSE:
                    self.notes += (
                        "nearly every row became a vector: the kernel is probably too narrow "
                        "(lower gamma)",
                    )
                return rho, size
        return None, min(AUTO_PARTITION[0], self.shape.n_candidates)

    def _sample(
        self, problem: Problem, rows: int, room: int = 0
    ) -> AbstractContextManager[SampledRows]:
        """Gather up to ``rows`` random rows; ``room`` is the number of bytes for kernel blocks."""
        self._spent.since = time.perf_counter()
        options = Options(rows, "random", sample_rows=rows, seed=self.request.seed)
        numbers = posterior_rows(problem, options, "sample")

        def check(*passes: Any) -> None:
            if (reason := self.interrupted()) is not None:
                raise OutOfTime(reason) if reason is Termination.TIME else Stopped(reason)

        how: dict[str, Any] = {
            "on_best": partial(setattr, self, "best"),
            "on_step": self._on_step,
            "log": self._log,
        }
        return gathered(self.source, numbers, self.executor, check, self._spent, room=room, **how)

    def _on_step(self, stage: str) -> None:
        """Report that a stage of kernel learning begins or, with "", another evaluation in the
        current one."""
        now = time.perf_counter()
        (present, evaluations, began) = self._step
        self._step = present, evaluations, began = (
            (stage, 0, now) if stage else (present, evaluations + 1, began)
        )
        rate = f", {evaluations / (now - began):,.1f} evaluations/s" if now - began > 0.5 else ""
        self.on_step(1 + STAGES.index(present), len(STAGES), present + rate)

    def _log(self, record: Record) -> None:
        """Add an entry with the time since the previous one."""
        entry = line(record, self._spent.share(), self._began, saved=False)
        self.entries.append(
            entry | kernel_text(entry, self.best.scaling.names(self.source.columns.features))
        )

    def _affordable(self, columns: int, rows: int) -> tuple[int, int]:
        """Return how many columns fit in memory with a sample, and the bytes for kernel blocks; set
        the threads."""
        machine = replace(self.machine, base=self.machine.base + sample_bytes(self.shape, rows))
        threads, most = affordable(self.shape, machine, columns)
        self.executor.use(threads)
        return most, kept_bytes(self.shape, most, threads, machine.budget)


def partition_size(n_rows: int, d: int, rho: float, centres: int = 0) -> tuple[int, int]:
    """Return the heuristic size, and that of ``partition_size="auto"``, which is bounded.

    The heuristic is ⌈f·√(N·d)⌉ with f = 0.2 for ρ ≤ 0.25, 0.6 for 0.25 < ρ ≤ 0.75, and 1 for larger
    ρ, the fraction of rows that a basic RVM on √(N·d) random rows keeps as vectors (Ben-Shimon &
    Shmilovici 2006, §3.1; the paper prints the middle line with a reversed sign). The partition
    size is at least the number of ``centres`` of kernel learning: learned kernels are wide, so the
    heuristic finds few vectors, and rounds of so few candidates would end the fit too early.
    """
    least, most = AUTO_PARTITION
    heuristic = math.ceil(
        (0.2 if rho <= 0.25 else 0.6 if rho <= 0.75 else 1.0) * math.sqrt(n_rows * d)
    )
    return heuristic, min(max(heuristic, least, centres), most, n_rows)


def sparseness(sample: SampledRows, problem: Problem, tol: float) -> Record:
    """Fit a basic RVM to the sample; return its history record, with the numbers of candidates and
    vectors."""
    design = sample.candidates(problem, sample.rows.rows)
    likelihood = problem.likelihood
    options = Options(sample.rows.n_rows * problem.n_kernels, "random", tol=INTERMEDIATE * tol)
    rule = replace(final_rule(options), guard=False)
    start = likelihood.start(problem)
    statistics = sample.run(*likelihood.measure(start, problem.empty, design, None))
    begun = likelihood.join(problem, start, problem.empty, design, *statistics)
    found: Any = likelihood.fit(problem, options, design, begun, rule, None, None)
    if isinstance(found, PassFit):
        while found.reason is None:
            (block,) = sample.run(found.next_pass)
            found = found.advance(block, sample.check_interrupted)
    else:
        (found,) = sample.executor.solve([found], lambda done, total: sample.check_interrupted())
    kept = survivors(design, found.fit)
    small = replace(problem, n_rows=sample.rows.n_rows)
    passes = likelihood.settling(
        small, kept, found.fit, None, last=False, left_out=problem.n_classes > 0
    )
    fit = likelihood.settle(found.fit, *sample.run(*passes), last=True)
    facts: dict[str, Any] = {
        "number": 1,
        "candidates": len(design.labels),
        "selection": "random",
        "fit_rows": "sample",
    }
    return Record(
        **likelihood.record(problem, fit, None), kind="heuristic", termination=found.reason, **facts
    )
