"""Make the spec of a fit from a source and a request, of a resumed fit, and of one whose data have grown."""

from __future__ import annotations

import time
from dataclasses import fields, replace
from typing import Any

from partirvm.core.moments import Moments
from partirvm.core.termination import Termination
from partirvm.data import Source
from partirvm.data.arrays import ClassWeighted
from partirvm.data.checks import check_range
from partirvm.execution import Executor
from partirvm.execution.process import return_freed_memory
from partirvm.kernels import NoKernel
from partirvm.learning.folds import LEAST
from partirvm.likelihoods.noise_fit import CONSTANT, rows_of_fit
from partirvm.options import Request
from partirvm.planning.cost import Schedule
from partirvm.planning.memory import DataShape
from partirvm.planning.plan import Machine, Plan
from partirvm.resolve.basis import codes_in_linear_basis
from partirvm.resolve.kernel import chooses, codes_as_numbers, learns
from partirvm.resolve.measuring import Interrupted, Measuring, PartitionSize, calibrate, check_aborted
from partirvm.resolve.new_problem import class_weights_of, find_classes, new_problem
from partirvm.resolve.parameters import check_noise_form, check_solver, check_sources, checked_moments
from partirvm.resolve.relevance import input_variance
from partirvm.resolve.spec import OPTION_LIMITS, FitSpec, memory_limits, planned
from partirvm.strategies import STRATEGIES
from partirvm.strategies.fit_rows import automatic, first_sample, grows, joined
from partirvm.strategies.problem import Options, Problem
from partirvm.strategies.rounds import BasicRound, IncrementalRounds, WorkingSetRounds

LABEL_COPIES = 4
"""Number of copies of names and labels while DATA are opened again, or a checkpoint or a model is written."""

SMALL = 200
"""Maximum number of rows for which ``strategy="auto"`` makes every row a candidate (regression)."""

SMALL_CURVATURE = 10**6
"""Classification: maximum number C·N² of curvature elements for which ``strategy="auto"`` makes every row a candidate.

A single fit takes far fewer passes than a fit in rounds.
"""

SELECTION, CLASS_SELECTION = "error", "gain"
"""Meaning of ``selection="auto"`` for regression and for classification.

Chosen by ``python -m benchmarks.working_set --selections`` and ``benchmarks.classification --trial selection``.
"""

MODERATE_ROWS = 10_000
"""Maximum number of rows for which ``moderate="auto"`` moderates the probabilities of two classes.

In ``benchmarks/classification`` moderation lowers the log loss of two classes on few rows by up to a quarter. With many
rows, or more than two classes, the log loss rises about as often as it falls.
"""


def resolve(
    source: Source,
    request: Request,
    executor: Executor,
    held_out: Source | None = None,
    interrupted: Interrupted = lambda: None,
    *,
    known: Problem | None = None,
    joining: int | None = None,
) -> FitSpec:
    """Check the data, resolve every "auto" of a checked request, learn the kernel if requested, and plan.

    ``interrupted`` is called between tiles and dense iterations. If it returns ``TIME``, the remaining learning and
    measuring is skipped. If it returns ``ABORTED``, ``Stopped`` is raised. If ``known`` is the problem of a fit of
    other rows, its scaling and its kernel are used. ``joining`` is the number of rows that are split into partitions,
    by default all.
    Raises ``UsageError`` for an invalid option, ``DataError`` for unsuitable data, and ``MemoryLimitError`` if the fit
    needs more memory than the limit.
    """
    began = time.perf_counter()
    check_aborted(interrupted)
    check_noise_form(source, request)
    if request.memory_limit != "auto":
        return_freed_memory()
    check_sources(source, held_out)
    check_solver(request, source)
    weights = class_weights_of(source, request, executor, lambda *done: check_aborted(interrupted))
    source = source if weights is None else ClassWeighted(source, weights)
    moments = checked_moments(source, executor, interrupted)
    check_range(moments, source.columns, scaled=request.standardize)
    if known is None:
        problem = new_problem(source, held_out, request, moments, executor)
    else:
        classes = find_classes(source, request, executor)
        problem = replace(
            known, n_rows=source.n_rows, shuffled=source.shuffled, codes=None if classes is None else classes.codes
        )
        problem = replace(problem, held_out=held_out is not None)
    outputs = problem.n_outputs if problem.classifies else 0
    schedule = STRATEGIES[resolve_strategy(request, problem.n_rows, outputs)].schedule
    shape, machine = _shape(source, problem, request), machine_for(request, executor, source)
    measuring, learned = Measuring(source, shape, machine, request, executor, interrupted, began), None
    if known is None and problem.target_variance and enough_to_learn(request, moments):
        learned = measuring.kernel(problem, all_rows=schedule.one_fit)
        empty = replace(problem.empty, kernel=learned.kernel)
        problem = replace(problem, empty=empty, left_out_square=learned.left_out_square)
    size = PartitionSize(shape.n_candidates)
    if not schedule.one_fit and request.partition_size != "auto":
        size = PartitionSize(min(int(request.partition_size), shape.n_candidates))
    elif not schedule.one_fit:
        size = measuring.partition_size(problem, 0 if learned is None else learned.centres)
    resolved = _resolved(request, problem, schedule, size.size)
    notes = () if learned is None else learned.notes
    notes += size.notes
    if interrupted() is Termination.TIME:
        notes += ("time_limit is over before the fit begins",)
    notes += remarks_of(request, schedule, source, problem, moments, joining)
    rates, elastic = calibrate(source, problem), executor.elastic
    plan = planned(resolved, problem, shape, machine, rates, elastic, shrink_partition=size.left_open, joining=joining)
    text = None if learned is None else learned.text
    plan = replace(plan, sparseness=size.sparseness, learned=text, notes=notes + plan.notes)
    measured = (() if learned is None else learned.lines) + size.lines_with(plan)
    plan = replace(plan, learning_seconds=max((entry["seconds"] for entry in measured), default=0.0))
    sample = int(resolved.sample_rows)
    if request.sample_rows == "auto" and plan.sample_rows is not None:  # the plan may have lowered the partition size
        sample = min(sample, first_sample(plan.fit_rows, plan.partition_size))
        plan = replace(plan, sample_rows=sample)
    resolved = replace(resolved, partition_size=plan.partition_size, sample_rows=sample)
    return FitSpec(
        resolved,
        problem,
        _options(resolved, plan, 0 if learned is None else learned.centres),
        plan,
        weights,
        input_variance(source.columns, moments, problem.empty.scaling),
        moments.inputs.constant,
        moments.targets.n,
        measured=measured,
        notes=notes,
    )


def resume_spec(spec: FitSpec, asked: Request, source: Source, executor: Executor) -> FitSpec:
    """Adapt a stored spec to this machine and to the limits of the request ``asked``; all else stays unchanged.

    Class codes are read from the source. Raises ``MemoryLimitError`` if the fit needs more memory than the limit.
    """
    if asked.memory_limit != "auto":
        return_freed_memory()
    source = spec.weigh(source)
    classes = find_classes(source, spec.request, executor)
    spec = spec.with_codes(None if classes is None else classes.codes)
    return spec.with_limits(
        asked, machine_for(asked, executor, source), calibrate(source, spec.problem), elastic=executor.elastic
    )


def machine_for(request: Request, executor: Executor, source: Source) -> Machine:
    """Describe the machine on which tasks run, with the memory limit of the request.

    The base of a process includes ``LABEL_COPIES`` copies of the names and labels of the source.
    """
    machine = executor.machine(None if request.memory_limit == "auto" else int(request.memory_limit))
    return replace(machine, base=machine.base + LABEL_COPIES * source.columns.nbytes)


def _shape(source: Source, problem: Problem, request: Request) -> DataShape:
    one_number = not problem.classifies and problem.n_targets == 1
    local_noise = one_number and problem.noise_variance is None and request.noise != CONSTANT
    return DataShape(
        source.n_rows,
        source.n_features,
        source.n_targets,
        source.tile_rows,
        problem.n_outputs if problem.classifies else problem.n_targets,
        problem.n_kernels,
        max(len(problem.leading), 1),
        problem.classifies,
        rows_of_fit(source.n_rows, source.n_features) if local_noise else 0,
    )


def _resolved(request: Request, problem: Problem, schedule: Schedule, size: int) -> Request:
    """Resolve every "auto" that affects the model; the plan may still lower the partition size."""
    n_rows, K = problem.n_rows, problem.n_classes
    fit_rows, sample = resolve_fit_rows(request, schedule, n_rows, size, problem.n_kernels, shuffled=problem.shuffled)
    selection, moderate = request.selection, request.moderate
    if selection == "auto":
        selection = CLASS_SELECTION if problem.classifies else SELECTION
    if moderate == "auto":
        moderate = K == 2 and n_rows <= MODERATE_ROWS
    resolved = replace(
        request,
        strategy=schedule.name,
        partition_size=size,
        fit_rows=fit_rows,
        sample_rows=sample,
        selection=selection if schedule.selects else schedule.order,
        moderate=problem.classifies and bool(moderate),
        multi_class=problem.likelihood.name if K > 2 else request.multi_class,
    )
    if learns(request):
        return replace(resolved, kernel=problem.empty.kernel, gamma="auto", gamma_multiples=(1.0,))
    return resolved


def _options(request: Request, plan: Plan, centres: int) -> Options:
    """Make the options of the strategies; ``centres`` is the number of centres in kernel learning."""
    options = {each.name: getattr(request, each.name, None) for each in fields(Options)}
    options["max_passes"] = request.max_iterations
    given = {name: value for name, value in options.items() if value is not None}
    return Options(**{**given, **memory_limits(plan), "centres": centres})


def in_order(spec: FitSpec) -> bool:
    """True if the new rows become candidates in order, partition by partition.

    This holds for all strategies but the working set, and only with a kernel: without a kernel there are no candidates.
    """
    return bool(spec.problem.n_kernels) and spec.plan.schedule.every_row_joins


def grow(
    spec: FitSpec,
    source: Source,
    asked: Request,
    executor: Executor,
    held_out: Source | None = None,
    interrupted: Interrupted = lambda: None,
) -> FitSpec:
    """Make the spec that continues a fit on a source with new rows; ``asked`` is the current request.

    Scaling, kernel and all resolved options stay unchanged.

    If the new rows join in order (``in_order``), the strategy is ``incremental`` with the partition size of the
    earlier fit, and ``fit_rows="auto"`` is resolved for the new rows. After a fit of all rows at once, the partition
    size is at most the number of new rows. The limits of ``asked`` then apply, because the earlier fit had no limits.
    Raises the errors of ``resolve``.
    """
    before, schedule, options = spec.problem, spec.plan.schedule, spec.options
    new, at_once = source.n_rows - before.n_rows, not schedule.has_rounds
    # the statistics of the earlier fit refer to all rows, and only those of the new rows are needed
    fit_rows = "full" if grows(options.fit_rows) else options.fit_rows
    resolved: dict[str, Any] = {"strategy": schedule.name, "fit_rows": fit_rows}
    resolved["partition_size"] = size = options.partition_size
    if fit_rows == "sample":
        resolved["sample_rows"] = options.sample_rows
    if schedule.selects:
        resolved["selection"] = options.selection
    if learns(asked):
        resolved |= {
            "kernel": before.empty.kernel,
            "gamma": "auto",
            "gamma_multiples": (1.0,),
            "gamma_prior": "flat",
            "metric": "auto",
        }
    if in_order(spec):
        size = min(size, new * before.n_kernels) if at_once else size
        resolved |= {"strategy": IncrementalRounds.name, "partition_size": size}
        if asked.fit_rows == "auto":
            resolved["fit_rows"] = automatic(IncrementalRounds.schedule, source.n_rows, size, before.n_kernels, new)
    request = replace(asked, **resolved)
    joining = new if in_order(spec) else None
    found = resolve(source, request, executor, held_out, interrupted, known=before, joining=joining)
    if at_once:
        taken, options = found.options, replace(options, partition_size=before.n_rows * before.n_kernels)
    else:
        changed = {name: getattr(found.options, name) for name in ("fit_rows", *OPTION_LIMITS)}
        if changed["fit_rows"] != options.fit_rows:
            changed["sample_rows"] = found.options.sample_rows
        taken = replace(options, **changed)
        if found.plan.machine.limit != spec.plan.machine.limit:
            taken = replace(taken, **memory_limits(found.plan))
    problem = joined(before, options, found.problem, taken.partition_size)
    return replace(found, problem=problem, options=replace(taken, centres=0))


def resolve_strategy(parameters: Request, n_rows: int, class_outputs: int = 0) -> str:
    """Resolve the strategy: ``"auto"`` is ``basic`` for few rows and ``working-set`` for more rows.

    ``class_outputs`` is the number C of linear predictors of a classification, and 0 for regression. Without a kernel
    the strategy is always ``basic``.
    """
    if parameters.kernel == NoKernel.name:
        return BasicRound.name
    if parameters.strategy != "auto":
        return parameters.strategy
    few = class_outputs * n_rows**2 <= SMALL_CURVATURE if class_outputs else n_rows <= SMALL
    return BasicRound.name if few and parameters.partition_size == "auto" else WorkingSetRounds.name


def resolve_fit_rows(
    parameters: Request, schedule: Schedule, n_rows: int, size: int, n_kernels: int = 1, *, shuffled: bool = False
) -> tuple[str, int]:
    """Resolve ``fit_rows`` and the number of rows of a sample; a single fit uses all rows."""
    fit_rows = "full" if schedule.one_fit else parameters.fit_rows
    if fit_rows == "auto":
        fit_rows = automatic(schedule, n_rows, size, n_kernels, shuffled=shuffled)
    rows = parameters.sample_rows
    return fit_rows, min(first_sample(fit_rows, size) if rows == "auto" else int(rows), n_rows)


def remarks_of(
    parameters: Request,
    schedule: Schedule,
    source: Source,
    problem: Problem,
    moments: Moments,
    new_rows: int | None,
) -> tuple[str, ...]:
    """List the notes of the plan: unsuitable options and slow choices."""
    given, remarks = parameters, []
    if names := codes_as_numbers(given.kernel, source.columns):
        remarks.append(f"the {given.kernel} kernel treats the codes of categorical columns as numbers: {names}")
    if names := codes_in_linear_basis(given, source.columns):
        remarks.append(f"the linear basis treats the codes of categorical columns as numbers: {names}")
    if learns(given) and not problem.target_variance:
        remarks.append("no kernel was learned: the target is constant")
    elif learns(given) and not enough_to_learn(given, moments):
        remarks.append(f"no kernel was learned: gamma is 'scale', because {moments.targets.n:,} rows are too few")
    if schedule.whole_partitions and new_rows is None and not source.shuffled:
        remarks.append(
            "the rows are not shuffled, so each partition is gathered from all tiles: shuffled data are faster"
        )
    return tuple(remarks)


def enough_to_learn(parameters: Request, moments: Moments) -> bool:
    """True if kernel learning was requested and there are enough rows."""
    return learns(parameters) and not (chooses(parameters) and moments.targets.n < LEAST)
