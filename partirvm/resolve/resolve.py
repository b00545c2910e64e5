"""``FitSpec``, the specification of a fit: made of a source and a request, and of a resumed fit or one with new rows.

``jobs.run`` runs a spec. A resume reads the stored spec (``jobs.checkpoint``), and changes only the limits that the
user may change.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partirvm.core.solvers import SOLVERS
from partirvm.core.termination import Termination
from partirvm.data import Source
from partirvm.data.arrays import ClassWeighted
from partirvm.errors import UsageError
from partirvm.execution import Executor
from partirvm.kernels import NoKernel
from partirvm.learning.folds import LEAST
from partirvm.likelihoods import Likelihood, words_of
from partirvm.likelihoods.noise_fit import CONSTANT, rows_of_fit
from partirvm.options import Request, check
from partirvm.options.constraints import Check
from partirvm.planning.cost import Schedule
from partirvm.planning.memory import DataShape
from partirvm.planning.plan import Machine, Plan, make_plan
from partirvm.resolve.kernel import (
    checked_basis,
    checked_kernel,
    chooses,
    codes_as_numbers,
    input_variance,
    learns,
    plain,
)
from partirvm.resolve.measuring import Measuring, calibrate
from partirvm.resolve.new_problem import CheckedData, Interrupted, checked_data, new_problem
from partirvm.strategies import schedule_of
from partirvm.strategies.fit_rows import GROWING, automatic, first_sample, joined, rows_read
from partirvm.strategies.problem import Options, Problem

LIMITS = ("max_rounds", "max_vectors", "effort", "time_limit", "memory_limit")
"""Options that a resume may change; any other change would give a different fit."""

LABEL_COPIES = 4
"""Number of copies of names and labels while DATA are opened again, or a checkpoint or a model is written."""

MODERATE_ROWS = 10_000
"""Maximum number of rows for which ``moderate="auto"`` moderates the probabilities of two classes.

There it lowers the log loss by up to a quarter; beyond, or with more classes, the log loss rises about as often.
"""


@dataclass(frozen=True)
class FitSpec:
    """The specification of a fit that is ready to run; ``request`` has every "auto" that affects the model resolved.

    ``class_weights`` (K,) is None if ``class_weight`` is not used. ``input_variance`` (d,) is the variance of the
    scaled inputs, ``constant`` (d,) marks constant features, and ``counted`` is the number of rows of positive weight.
    ``measured`` are the history entries of kernel learning and of the heuristic's fit, ``notes`` those found before
    planning.
    """

    request: Request
    problem: Problem
    options: Options
    plan: Plan
    class_weights: NDArray[np.float64] | None
    input_variance: NDArray[np.float64]
    constant: NDArray[np.bool_]
    counted: int
    measured: tuple[dict[str, Any], ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def in_order(self) -> bool:
        """True if new rows become candidates in order, partition by partition: not in a working set."""
        return bool(self.problem.n_kernels) and not self.plan.schedule.selects

    def weigh(self, source: Source) -> Source:
        """Return the source with the class weights of the fit applied to its row weights."""
        return source if self.class_weights is None else ClassWeighted(source, self.class_weights)

    def with_codes(self, codes: NDArray[np.integer[Any]] | None) -> FitSpec:
        """Return the spec with class codes (N,), which are read from the source and not stored in the spec's file."""
        return replace(self, problem=replace(self.problem, codes=codes))


def check_parameters(request: Request) -> Request:
    """Check all options of a request and convert texts to numbers.

    Raises ``UsageError`` with the name of the invalid option.
    """
    p = check(replace(request, kernel=checked_kernel(request.kernel), basis=checked_basis(request.basis)))
    if p.kernel == NoKernel.name and p.basis is None:
        raise UsageError(
            "kernel and basis are both none: a model needs a kernel, or basis functions such as basis='linear'"
        )
    Check("word", tuple(SOLVERS))("solver", p.solver)
    Check("word", words_of(classes=True))("multi_class", p.multi_class)
    if isinstance(p.noise_variance, str):
        Check("word", ("a number > 0", *words_of(classes=False)))("noise_variance", p.noise_variance)
    if p.strategy == "split-merge" and (p.fit_rows == GROWING or p.max_rounds is not None):
        raise UsageError(
            "strategy is 'split-merge', which has no rounds: leave max_rounds out, and set fit_rows to 'full' or "
            "'sample', or use another strategy"
        )
    return p


def portable(request: Request) -> dict[str, Any]:
    """Convert a checked request to plain JSON for a job or a cluster.

    Raises ``UsageError`` for a kernel or a basis that other processes cannot import.
    """
    return asdict(replace(request, kernel=plain(request.kernel, "kernel"), basis=plain(request.basis, "basis")))


def resolve(
    source: Source,
    request: Request,
    executor: Executor,
    held_out: Source | None = None,
    interrupted: Interrupted = lambda: None,
) -> FitSpec:
    """Check the data, resolve every "auto" of a checked request, learn the kernel if requested, and plan.

    If ``interrupted`` returns ``TIME``, the remaining learning and measuring is skipped. Raises ``Stopped`` if it
    returns ``ABORTED``, ``UsageError`` for an invalid option, ``DataError`` for unsuitable data, and
    ``MemoryLimitError`` if the fit needs more memory than the limit.
    """
    data = checked_data(source, request, executor, held_out, interrupted)
    source, problem = data.source, new_problem(data, request)
    schedule = schedule_of(resolve_strategy(request, problem.n_rows, problem.likelihood, problem.n_outputs))
    shape, machine = _shape(source, problem, request), machine_for(request, executor, source)
    measuring, counted = Measuring(source, shape, machine, request, executor, interrupted), data.moments.targets.n
    notes: tuple[str, ...] = ()
    if learns(request) and not problem.target_variance:
        notes += ("no kernel was learned: the target is constant",)
    elif chooses(request) and counted < LEAST:
        notes += (f"no kernel was learned: gamma is 'scale', because {counted:,} rows are too few",)
    elif learns(request):
        problem = measuring.learn(problem, all_rows=schedule.one_fit)
    measured, size = not schedule.one_fit and request.partition_size == "auto", shape.n_candidates
    if measured:
        size = measuring.partition_size(problem)
    elif not schedule.one_fit:
        size = min(int(request.partition_size), size)
    resolved = _resolved(request, problem, schedule, size)
    for part in codes_as_numbers(request, source.columns):
        names = ", ".join(source.columns.categories)
        notes += (f"the {part} treats the codes of categorical columns as numbers: {names}",)
    if schedule.whole_partitions and not source.shuffled:
        notes += ("the rows are not shuffled, so each partition is gathered from all tiles: shuffled data are faster",)
    if interrupted() is Termination.TIME:
        notes += ("time_limit is over before the fit begins",)
    notes = measuring.notes + notes
    plan = _planned(resolved, problem, shape, machine, source, executor, shrink_partition=measured)
    notes_of_plan, entries = notes + plan.notes, measuring.entries
    if measuring.sparseness is not None:
        chosen = {"partition_size": plan.partition_size, "heuristic_size": measuring.sparseness.partition_size}
        entries[-1] |= {**chosen, "notes": list(notes_of_plan)}
    sample = int(resolved.sample_rows)
    if request.sample_rows == "auto" and plan.sample_rows is not None:  # the plan may have lowered the partition size
        sample = min(sample, first_sample(plan.fit_rows, plan.partition_size))
        plan = replace(plan, sample_rows=sample)
    plan = replace(
        plan,
        sparseness=measuring.sparseness,
        learned=measuring.learned,
        learning_seconds=max((entry["seconds"] for entry in entries), default=0.0),
        notes=notes_of_plan,
    )
    resolved = replace(resolved, partition_size=plan.partition_size, sample_rows=sample)
    options = replace(_options(resolved, plan), centres=measuring.centres)
    return FitSpec(resolved, problem, options, plan, **_facts(data, problem), measured=tuple(entries), notes=notes)


def continued(
    spec: FitSpec,
    source: Source,
    asked: Request,
    executor: Executor,
    held_out: Source | None = None,
    interrupted: Interrupted = lambda: None,
) -> FitSpec:
    """Adapt a spec to this machine, to the ``LIMITS`` of the request ``asked``, and to new rows of the source, if any.

    Scaling, kernel and all resolved options stay unchanged; so does the maximum number of columns if the memory limit
    is unchanged: a process with a slightly larger base memory must not end the fit earlier than the previous one.

    If new rows join in order (``FitSpec.in_order``), the strategy is ``incremental`` with the partition size of the
    earlier fit, and ``fit_rows="auto"`` is resolved for the new rows. After a fit of all rows at once, the partition
    size is at most the number of new rows. Raises the errors of ``resolve``.
    """
    data = checked_data(source, asked, executor, held_out, interrupted)
    before, options, source = spec.problem, spec.options, data.source
    new = source.n_rows - before.n_rows
    problem = replace(before, n_rows=source.n_rows, shuffled=source.shuffled, codes=data.codes)
    request, joining = replace(spec.request, **{name: getattr(asked, name) for name in LIMITS}), spec.plan.joining
    at_once = not spec.plan.schedule.has_rounds
    if new:
        # the statistics of the earlier fit refer to all rows, and only those of the new rows are needed
        fit_rows = "full" if options.fit_rows == GROWING else options.fit_rows
        size, schedule, joining = options.partition_size, spec.plan.schedule, None
        if spec.in_order:
            schedule, joining = schedule_of("incremental"), new
            size = min(size, new * before.n_kernels) if at_once else size
            if asked.fit_rows == "auto":
                fit_rows = automatic(schedule, source.n_rows, size, before.n_kernels, new)
            request = replace(request, strategy=schedule.name, selection="order")
        if fit_rows != options.fit_rows:
            _, sample = resolve_fit_rows(replace(asked, fit_rows=fit_rows), schedule, source.n_rows, size)
            request = replace(request, fit_rows=fit_rows, sample_rows=sample)
        request = replace(request, partition_size=size)
    machine = machine_for(asked, executor, source)
    plan = _planned(request, problem, _shape(source, problem, request), machine, source, executor, joining=joining)
    plan, now = replace(plan, notes=spec.notes + plan.notes), _options(request, plan)
    changed = ["max_rounds", "max_vectors", "effort"]
    if new or machine.limit != spec.plan.machine.limit:
        changed += ["max_columns", "batch", "learning_columns"]
    if not new:
        plan = replace(plan, sparseness=spec.plan.sparseness, learned=spec.plan.learned)
        options = replace(options, **{name: getattr(now, name) for name in changed})
        return replace(spec, request=request, problem=problem, options=options, plan=plan)
    earlier = replace(options, partition_size=before.n_rows * before.n_kernels) if at_once else options
    if at_once:  # max_vectors may have lowered it
        request = replace(request, partition_size=plan.partition_size)
    changed += ["partition_size", "selection", "fit_rows", "sample_rows", "centres"]
    now = _options(request, plan)
    return replace(
        spec,
        request=request,
        problem=joined(before, earlier, problem, now.partition_size),
        options=replace(options, **{name: getattr(now, name) for name in changed}),
        plan=plan,
        measured=(),
        **_facts(data, before),
    )


def _facts(data: CheckedData, problem: Problem) -> dict[str, Any]:
    """Return the fields of ``FitSpec`` that describe the data."""
    moments = data.moments
    return {
        "class_weights": data.class_weights,
        "input_variance": input_variance(data.source.columns, moments, problem.empty.scaling),
        "constant": moments.inputs.constant,
        "counted": moments.targets.n,
    }


def machine_for(request: Request, executor: Executor, source: Source) -> Machine:
    """Describe the machine on which tasks run; the base of a process includes copies of the labels of the source."""
    machine = executor.machine(None if request.memory_limit == "auto" else int(request.memory_limit))
    return replace(machine, base=machine.base + LABEL_COPIES * source.columns.nbytes)


def _shape(source: Source, problem: Problem, request: Request) -> DataShape:
    local_noise = problem.likelihood.has_noise and problem.n_targets == 1
    local_noise = local_noise and problem.noise_variance is None and request.noise != CONSTANT
    return DataShape(
        source.n_rows,
        source.n_features,
        source.n_targets,
        source.tile_rows,
        problem.n_outputs * problem.n_targets,
        problem.n_kernels,
        max(len(problem.leading), 1),
        problem.classifies,
        rows_of_fit(source.n_rows, source.n_features) if local_noise else 0,
    )


def _planned(
    request: Request,
    problem: Problem,
    shape: DataShape,
    machine: Machine,
    source: Source,
    executor: Executor,
    **how: Any,
) -> Plan:
    """Plan a resolved request with the rates of this machine; ``how`` are further arguments of ``make_plan``."""
    rates, schedule = calibrate(source, problem), schedule_of(request.strategy)
    read = rows_read(request, shape, shuffled=problem.shuffled)
    how |= {"held_out": problem.held_out, "shrink_threads": executor.elastic}
    return make_plan(shape, machine, rates, request, schedule, read, **how)


def _options(request: Request, plan: Plan) -> Options:
    """Make the options of the strategies from a resolved request and its plan."""
    names = {each.name for each in fields(Options)}
    options = {name: value for name, value in vars(request).items() if name in names and value is not None}
    if request.max_iterations is not None:
        options["max_passes"] = request.max_iterations
    options |= {"max_columns": plan.max_columns, "batch": plan.batch_elements}
    return Options(**options, learning_columns=plan.learning_columns)


def _resolved(request: Request, problem: Problem, schedule: Schedule, size: int) -> Request:
    """Resolve every "auto" that affects the model; the plan may still lower the partition size."""
    n_rows, K = problem.n_rows, problem.n_classes
    fit_rows, sample = resolve_fit_rows(request, schedule, n_rows, size, problem.n_kernels, shuffled=problem.shuffled)
    selection = problem.likelihood.selection if request.selection == "auto" else request.selection
    moderate = K == 2 and n_rows <= MODERATE_ROWS if request.moderate == "auto" else request.moderate
    if learns(request):
        request = replace(request, kernel=problem.empty.kernel, gamma="auto", gamma_multiples=(1.0,))
    return replace(
        request,
        strategy=schedule.name,
        partition_size=size,
        fit_rows=fit_rows,
        sample_rows=sample,
        selection=selection if schedule.selects else "all" if schedule.one_fit else "order",
        moderate=problem.classifies and bool(moderate),
        multi_class=problem.likelihood.name if K > 2 else request.multi_class,
    )


def resolve_strategy(request: Request, n_rows: int, likelihood: Likelihood, outputs: int = 1) -> str:
    """Resolve the strategy: ``"auto"`` is ``basic`` for few rows and ``working-set`` for more rows.

    ``outputs`` is the number C of linear predictors. Without a kernel the strategy is always ``basic``.
    """
    if request.kernel == NoKernel.name:
        return "basic"
    if request.strategy != "auto":
        return request.strategy
    few = outputs * n_rows**2 <= likelihood.at_once
    return "basic" if few and request.partition_size == "auto" else "working-set"


def resolve_fit_rows(
    request: Request, schedule: Schedule, n_rows: int, size: int, n_kernels: int = 1, *, shuffled: bool = False
) -> tuple[str, int]:
    """Resolve ``fit_rows`` and the number of rows of a sample; a single fit uses all rows."""
    fit_rows = "full" if schedule.one_fit else request.fit_rows
    if fit_rows == "auto":
        fit_rows = automatic(schedule, n_rows, size, n_kernels, shuffled=shuffled)
    rows = request.sample_rows
    return fit_rows, min(first_sample(fit_rows, size) if rows == "auto" else int(rows), n_rows)
