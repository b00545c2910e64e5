"""Small fits to row samples before planning, which learn the kernel and measure its sparseness."""

import math
from contextlib import suppress
from dataclasses import dataclass, replace

from partirvm.core.moments import Moments
from partirvm.data import Source
from partirvm.kernels import kernel_from_spec
from partirvm.learning import SEARCHES, TargetSearch
from partirvm.learning.basic_fit import basic_fit
from partirvm.learning.features import with_regressions
from partirvm.learning.forms import MEAN, learn
from partirvm.learning.process_steps import searchable
from partirvm.learning.regression_search import LAST_ROWS
from partirvm.learning.sample import SampledRows
from partirvm.learning.search import LearningOptions, SearchSettings, learning_options
from partirvm.learning.target import with_target
from partirvm.planning.cost import tries_residuals
from partirvm.planning.memory import judging_bytes
from partirvm.resolve.categories import EmbeddedLevels, with_levels
from partirvm.resolve.kernel import chooses, has_plain_inputs
from partirvm.resolve.samples import OutOfTime, Samples, SmallFitLog
from partirvm.spec.entries import Entry, Record
from partirvm.spec.problem import Options, Problem, survivors
from partirvm.types import LEARNING_ROWS

AUTO_PARTITION = (32, 1000)
"""Minimum and maximum of the partition size that ``partition_size="auto"`` chooses."""

HEURISTIC_ROWS = 2000
"""Maximum number of rows of the basic RVM from which ``partition_size="auto"`` derives P."""

OVERLAP = 0.1
"""Maximum ρ at which classes are taken to overlap."""

DENSE = 0.9
"""Value of ρ above which the kernel is probably too narrow: nearly every row becomes a vector."""

QUICK_ROWS = 4500
"""Maximum number of rows from which a quick fit's kernel is learned: on protein (93 vectors with
local residuals), this limit increases the error by 5 % and reduces the time by a third."""


@dataclass(frozen=True)
class WarpedTarget:
    """A problem whose target is warped as requested, and a note if it has been warped."""

    problem: Problem
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class LearnedKernel:
    """A problem with its kernel, and the record of kernel learning.

    Attributes:
        problem: the problem.
        source: the rows, with folds if levels became numbers.
        entries: history entries of kernel learning.
        notes: notes on limits that reduced learning, and on the conversion of levels.
        text: description of the learned kernel; None if none was learned.
        centres: number of centres in kernel learning, or 0 if the time limit ended it early.
    """

    problem: Problem
    source: Source
    entries: tuple[Entry, ...] = ()
    notes: tuple[str, ...] = ()
    text: str | None = None
    centres: int = 0


@dataclass(frozen=True)
class MeasuredSize:
    """The partition size chosen for a problem.

    Attributes:
        size: number of candidates.
        rho: the fraction ρ of rows that became vectors; None if it was not measured.
        entries: the history entry of the fit.
        notes: a warning about the kernel.
    """

    size: int
    rho: float | None = None
    entries: tuple[Entry, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class LearningPlan:
    """A plan of kernel learning.

    Attributes:
        options: options of kernel learning.
        columns: maximum number of columns of a fit.
        room: bytes for kernel blocks.
        notes: limits that reduced the options.
    """

    options: LearningOptions
    columns: int
    room: int
    notes: tuple[str, ...] = ()


def with_warped_target(samples: Samples, problem: Problem, least: float) -> WarpedTarget:
    """Warp the target as requested, regardless of the time limit; ``least`` is the smallest
    target."""
    warp = samples.request.warp_target
    if warp == "none" or not problem.target_variance:
        return WarpedTarget(problem)
    # a time limit must not change the target to which errors refer
    untimed = replace(samples, interrupted=lambda: None)
    with untimed.take(problem, min(LEARNING_ROWS, samples.source.n_rows)) as sample:
        problem = with_target(sample, problem, warp, least)
    column = samples.source.columns.target
    name = problem.empty.scaling.target.name(column)
    if name == column:
        return WarpedTarget(problem)
    notes = (f"the target is fitted as {name}: training errors and noise refer to it",)
    return WarpedTarget(problem, notes)


def with_learned_kernel(samples: Samples, problem: Problem, moments: Moments) -> LearnedKernel:
    """Learn the kernel; at the time limit, the best one so far is used.

    Args:
        samples: supplies random rows
        problem: the problem with the initial kernel
        moments: moments of the features
    """
    levels = with_levels(samples, problem, moments)
    samples = replace(samples, source=levels.source)
    problem = levels.problem
    plan = learning_plan(samples, problem)
    notes = levels.notes + plan.notes
    judged = judging_bytes(samples.source.n_rows, samples.machine.libraries)
    judges = judged <= samples.machine.budget
    if not judges and is_judged(samples, problem, plan.options):
        notes += ("the memory limit does not allow for judging the kernel beside boosted trees",)
    log = SmallFitLog(samples, problem.empty)
    with suppress(OutOfTime), samples.take(problem, plan.options.rows, log, plan.room) as sample:
        searched = search(samples, sample, problem, plan, judges=judges)
        entry = log.entries[-1]
        problem = as_searched(samples, levels, searched, entry)
        if problem.mean_only:
            notes += (
                "the mean alone predicts left-out rows as well as any kernel: no row joins the "
                "model",
            )
        centres = min(entry["candidates"], plan.options.max_centres)
        entries = tuple(log.entries)
        return LearnedKernel(problem, samples.source, entries, notes, entry["text"], centres)
    problem = problem.with_scaling(log.best.scaling).with_kernel(log.best.kernel)
    problem = problem.with_functions(log.best.functions)
    text = "not finished because of time_limit"
    return LearnedKernel(problem, samples.source, tuple(log.entries), notes, text)


def learning_plan(samples: Samples, problem: Problem) -> LearningPlan:
    """Return the options of kernel learning within the memory limit."""
    request = samples.request
    n_rows = samples.source.n_rows
    metric = "widths" if request.metric == "auto" and not chooses(request) else request.metric
    rows = min(n_rows, QUICK_ROWS if request.effort == "quick" else LEARNING_ROWS)
    d = samples.shape.n_features
    limits = search_of(problem).centres(problem.n_classes)
    options = learning_options(
        n_rows, d, limits=limits, metric=metric, most=rows, effort=samples.effort
    )
    wanted = max(2 * options.max_centres, min(LAST_ROWS, n_rows))
    columns, room = samples.affordable(wanted, LEARNING_ROWS)
    # a block's derivatives take as much memory as the block
    most = min(max(columns // 2, 1), options.max_centres)
    notes: tuple[str, ...] = ()
    if most < options.max_centres or options.rows < rows:
        notes = (
            f"kernel learned from {options.rows:,} rows and at most {most:,} centres because of "
            "the memory limit or the number of features",
        )
    options = replace(options, centres=min(options.centres, most), max_centres=most)
    return LearningPlan(options, columns, room, notes)


def search_of(problem: Problem) -> TargetSearch:
    """Return the kernel search for the problem's target."""
    return SEARCHES[problem.likelihood.working.search]


def is_tied(samples: Samples, problem: Problem, options: LearningOptions) -> bool:
    """Return whether the kernel is learned by the tied evidence alone, without a process."""
    if not searchable(problem):
        return True
    is_given = not chooses(samples.request) or options.metric == "directions"
    return is_given and not search_of(problem).of_given_form


def is_judged(samples: Samples, problem: Problem, options: LearningOptions) -> bool:
    """Return whether left-out rows are used to judge the kernel if memory permits."""
    return search_of(problem).judged and not is_tied(samples, problem, options)


def search(
    samples: Samples, sample: SampledRows, problem: Problem, plan: LearningPlan, *, judges: bool
) -> Problem:
    """Search for the kernel, which the last log entry will contain.

    Args:
        samples: supplies the request
        sample: the sample of rows
        problem: the problem with the initial kernel
        plan: options of kernel learning
        judges: whether rivals may be fitted, which takes memory

    Returns the problem with the scaling that the kernel was learned on.
    """
    request = samples.request
    chosen = chooses(request)
    if request.standardize and problem.empty.scaling.features is not None:
        X = sample.rows.gather(sample.rows.rows).X
        problem = problem.with_scaling(with_regressions(problem.empty.scaling, X))
    start = problem
    if chosen:
        kernel = problem.empty.kernel.per_feature(problem.empty.scaling.n_inputs)
        start = problem.with_kernel(kernel)
    if is_tied(samples, problem, plan.options):
        learn(sample, start, plan.options, request.seed)
        return problem
    warp = chosen and request.warp == "auto" and request.standardize and has_plain_inputs(request)
    settings = SearchSettings(
        plan.options,
        request.seed,
        plan.columns,
        warp=warp,
        family=request.kernel == "auto",
        judged=judges,
        residuals=tries_residuals(request.residual, problem.n_rows, problem.n_targets),
    )
    return search_of(problem).learn(sample, start, settings)


def as_searched(
    samples: Samples, levels: EmbeddedLevels, searched: Problem, entry: Entry
) -> Problem:
    """Return the problem that results from a search.

    Args:
        samples: supplies the request
        levels: the problem before the search
        searched: the problem after the search, with its scaling and, if it may change, its
            likelihood
        entry: the history entry of the kernel
    """
    problem = levels.problem
    scale = problem.target_scale
    choice = entry["choice"] or {}
    kernel = kernel_from_spec(entry["kernel"])
    is_chosen = samples.request.likelihood == "auto"
    likelihood = searched.likelihood if is_chosen else problem.likelihood
    problem = problem.with_scaling(searched.empty.scaling).with_kernel(kernel)
    problem = problem.with_functions(searched.empty.functions)  # with the jumps that were found
    features = problem.empty.scaling.features
    if features is not None and features.doubts and entry["noise_variance"]:
        noise = features.share * entry["noise_variance"] / scale**2
        problem = problem.with_doubts(max(levels.noise / noise, 1.0))
    return replace(
        problem,
        left_out_square=(choice.get("left_out_rmse", 0.0) / scale) ** 2,
        likelihood=likelihood,
        mean_only=choice.get("form") == MEAN,
    )


def measured_size(samples: Samples, problem: Problem, centres: int) -> MeasuredSize:
    """Measure the sparseness ρ of a problem and choose its partition size.

    If the target variance is 0 or no time is left, the size is the minimum. Classifications with
    large ρ get the size of a sparse problem: small rounds need fewer vectors for an equal log loss.
    If ρ is very small, classes overlap, and larger rounds are better (protein in 4 classes: log
    loss 1.044 instead of 1.065).

    Args:
        samples: supplies random rows
        problem: the problem with its kernel
        centres: number of centres of kernel learning
    """
    least = MeasuredSize(min(AUTO_PARTITION[0], samples.shape.n_candidates))
    if not problem.target_variance:
        return least
    n_rows = samples.source.n_rows
    d = samples.source.n_features
    n_kernels = problem.n_kernels
    most = min(math.ceil(math.sqrt(n_rows * d)), n_rows, HEURISTIC_ROWS)
    columns, _ = samples.affordable(most * n_kernels, most)
    log = SmallFitLog(samples, problem.empty)
    with suppress(OutOfTime), samples.take(problem, max(columns // n_kernels, 1), log) as sample:
        record = sparseness(sample, problem, samples.request.tol)
        log.add(record)
        rho = record.vectors / record.rows
        if problem.likelihood.has_ramp:
            heuristic, size = partition_size(n_rows, d, 0.5 if rho <= OVERLAP else 0.0)
        else:
            heuristic, size = partition_size(n_rows, d, rho, centres)
        notes: tuple[str, ...] = ()
        if rho > DENSE:
            notes = (
                "in a trial fit to few rows, nearly all became relevance vectors: the kernel may "
                "be too narrow; if the final model keeps nearly all rows, too, lower gamma",
            )
        entry = log.entries[-1] | {"heuristic_size": heuristic}
        return MeasuredSize(size, rho, (entry,), notes)
    return least


def partition_size(n_rows: int, d: int, rho: float, centres: int = 0) -> tuple[int, int]:
    """Return the size from the heuristic, and the bounded size used for ``partition_size="auto"``.

    The heuristic is ⌈f·√(N·d)⌉ with f = 0.2 for ρ ≤ 0.25, 0.6 for 0.25 < ρ ≤ 0.75, and 1 for larger
    ρ (Ben-Shimon & Shmilovici 2006, §3.1; the paper prints the middle line with a reversed sign).
    Learned kernels are wide, so few rows become vectors, and rounds with so few candidates would
    end the fit too early: hence the minimum after kernel learning.

    Args:
        n_rows: number of rows N
        d: number of features
        rho: fraction ρ of rows that a basic RVM on √(N·d) random rows keeps as vectors
        centres: number of centres of kernel learning, a minimum of the partition size; 0 if none
    """
    least, most = AUTO_PARTITION
    factor = 1.0
    if rho <= 0.25:
        factor = 0.2
    elif rho <= 0.75:
        factor = 0.6
    heuristic = math.ceil(factor * math.sqrt(n_rows * d))
    return heuristic, min(max(heuristic, least, centres), most, n_rows)


def sparseness(sample: SampledRows, problem: Problem, tol: float) -> Record:
    """Fit a basic RVM to the sample; return its history record, including the numbers of candidates
    and vectors."""
    design = sample.candidates(problem, sample.rows.rows)
    likelihood = problem.likelihood
    options = Options(sample.rows.n_rows * problem.n_kernels, "random", tol=tol)
    solved = basic_fit(sample, problem, design, options)
    remaining = survivors(design, solved.fit)
    small = replace(problem, n_rows=sample.rows.n_rows)
    passes = likelihood.settling(
        small, remaining, solved.fit, None, last=False, left_out=likelihood.has_ramp
    )
    fit = likelihood.settle(solved.fit, *sample.run(*passes), last=True)
    return Record(
        **likelihood.record(problem, fit, None),
        kind="heuristic",
        number=1,
        candidates=len(design.labels),
        selection="random",
        fit_rows="sample",
        termination=solved.reason,
    )
