"""Construction of a ``FitSpec``, the specification of a fit, from a source and a request, or for a
resumed or extended fit.

``fit.run`` runs a spec. A resume reads the stored spec (``jobs.checkpoint``) and changes only its
limits.
"""

import time
from dataclasses import dataclass, fields, replace
from timeit import repeat
from typing import Any

import numpy as np

from partirvm.core.moments import Moments
from partirvm.data import Source
from partirvm.errors import UsageError
from partirvm.execution import Executor
from partirvm.kernels import NoKernel
from partirvm.learning.sample import OnStep
from partirvm.learning.search import LEAST
from partirvm.learning.target import require_positive
from partirvm.likelihoods import words_of
from partirvm.likelihoods.noise_fit import CONSTANT, rows_of_fit
from partirvm.local.metric import Metric
from partirvm.options import Request, check
from partirvm.options.constraints import Check
from partirvm.planning.cost import Rates, Schedule
from partirvm.planning.machine import Machine
from partirvm.planning.memory import RESIDUAL_SHARE, DataShape
from partirvm.planning.plan import Plan, make_plan
from partirvm.process import one_blas_thread
from partirvm.resolve.group_basis import with_group_columns, with_group_effects, with_new_groups
from partirvm.resolve.kernel import (
    checked_basis,
    checked_kernel,
    chooses,
    learns,
    requested_trees,
)
from partirvm.resolve.new_problem import CheckedData, Interrupted, checked_data, new_problem
from partirvm.resolve.samples import Samples
from partirvm.resolve.small_fits import (
    LearnedKernel,
    MeasuredSize,
    measured_size,
    with_learned_kernel,
    with_warped_target,
)
from partirvm.spec.problem import NO_TREES, Likelihood, Options, Problem
from partirvm.strategies import STRATEGIES
from partirvm.strategies.fit_rows import GROWING, ROWS_PER_COLUMN, joined, rows_read
from partirvm.types import Float

LIMITS = ("max_rounds", "max_vectors", "effort", "time_limit", "memory_limit")
"""Options that a resume may change; any other change would give a different fit."""

LABEL_COPIES = 4
"""Number of copies of names and labels in memory while a dataset is reopened, or a checkpoint or
model is written."""

MODERATE_ROWS = 10_000
"""Maximum number of rows for which ``moderate="auto"`` moderates two classes; with so few rows,
this lowers the log loss."""


@dataclass(frozen=True)
class FitSpec:
    """The specification of a fit that is ready to run.

    ``class_weights`` (K,) is None if ``class_weight`` is not used. ``input_variance`` (d,) is the
    variance of the scaled inputs, 0 for a constant feature. ``entries`` are the history entries of
    kernel learning and of the fit that sets the partition size; ``notes`` were made before
    planning.
    """

    problem: Problem
    options: Options
    plan: Plan
    class_weights: Float | None
    input_variance: Float
    entries: tuple[dict[str, Any], ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def request(self) -> Request:
        """The request, in which every "auto" that affects the model is resolved."""
        return self.plan.request

    @property
    def in_order(self) -> bool:
        """True if new rows become candidates in order, partition by partition; False for a working
        set."""
        return bool(self.problem.n_kernels) and not self.plan.schedule.selects


def check_parameters(request: Request) -> Request:
    """Check all options and convert strings to numbers. Raises ``UsageError`` with the name of the
    invalid option."""
    p = check(
        replace(request, kernel=checked_kernel(request.kernel), basis=checked_basis(request.basis))
    )
    if p.kernel == NoKernel.name and p.basis is None:
        raise UsageError(
            "kernel and basis are both none: set a kernel, or basis functions such as "
            "basis='linear'"
        )
    Check("word", words_of(classes=p.classify))("likelihood", p.likelihood)
    if p.strategy == "split-merge" and (p.fit_rows == GROWING or p.max_rounds is not None):
        raise UsageError(
            "strategy 'split-merge' has no rounds: leave max_rounds out; fit_rows is 'full' or "
            "'sample'"
        )
    return p


def resolve(
    source: Source,
    request: Request,
    executor: Executor,
    held_out: Source | None = None,
    interrupted: Interrupted = lambda: None,
    on_step: OnStep = lambda number, total, text: None,
) -> FitSpec:
    """Check the data, resolve every "auto" in a validated request, learn the kernel if requested,
    and plan the fit.

    Raises ``Stopped`` if the fit is aborted, ``UsageError`` for an invalid option, ``DataError``
    for unsuitable data, and ``MemoryLimitError`` if the fit needs more memory than the limit.

    Args:
        source: the training data
        request: the validated options
        executor: runs the passes over the tiles
        held_out: the held-out data, or None
        interrupted: returns None, ``ABORTED``, or ``TIME`` to skip the remaining learning and
            measuring
        on_step: called with the number, total and description of each step of kernel learning
    """
    data = checked_data(source, request, executor, held_out, interrupted)
    problem = new_problem(data, request, held_out=held_out is not None)
    source = data.source
    machine = machine_for(request, executor, source)
    shape = _shape(source, problem, request)
    samples = Samples(source, shape, machine, request, executor, interrupted, on_step)
    small_fits = run_small_fits(samples, problem, data.moments)
    after = machine_for(request, executor, source)
    grown = max(after.base - machine.base, 0)
    plan = _plan_of(small_fits, data, request, replace(machine, libraries=after.libraries), grown)
    problem = small_fits.kernel.problem
    return FitSpec(
        problem,
        _options(plan, small_fits.kernel.centres),
        plan,
        data.weights,
        data.input_variance(problem),
        small_fits.entries_of(plan),
        small_fits.notes,
    )


@dataclass(frozen=True)
class SmallFits:
    """The decisions made by fits to random rows.

    Attributes:
        kernel: the problem with its kernel
        schedule: the schedule of the strategy
        measured: the partition size
        notes: the notes of all small fits
    """

    kernel: LearnedKernel
    schedule: Schedule
    measured: MeasuredSize
    notes: tuple[str, ...]

    @property
    def entries(self) -> tuple[dict[str, Any], ...]:
        """The history entries."""
        return self.kernel.entries + self.measured.entries

    def entries_of(self, plan: Plan) -> tuple[dict[str, Any], ...]:
        """Return the history entries; the entry of the partition-size fit also gets the plan's
        decisions."""
        entries = self.entries
        if self.measured.rho is None:
            return entries
        decided = {"partition_size": plan.partition_size, "notes": list(plan.notes)}
        return (*entries[:-1], entries[-1] | decided)


def run_small_fits(samples: Samples, problem: Problem, moments: Moments) -> SmallFits:
    """Warp the target, learn the kernel and determine the partition size, as requested.

    Args:
        samples: supplies random rows
        problem: the problem with the initial kernel
        moments: moments of features and targets
    """
    request = samples.request
    source = samples.source
    warped = with_warped_target(samples, problem, float(moments.targets.minimum.min()))
    begun = with_group_effects(samples, warped.problem)
    kernel = with_group_columns(samples, kernel_of(samples, begun, moments))
    problem = kernel.problem
    schedule = schedule_for(request, problem.n_rows, problem.likelihood, problem.n_outputs)
    if problem.mean_only:
        schedule = STRATEGIES["basic"].schedule
    # learning may have changed the likelihood
    samples = replace(samples, source=kernel.source, shape=_shape(source, problem, request))
    measured = size_of(samples, kernel, schedule)
    notes = weight_notes(problem) + warped.notes + kernel.notes + measured.notes
    return SmallFits(kernel, schedule, measured, notes)


def weight_notes(problem: Problem) -> tuple[str, ...]:
    """Return a note on the unit of the weights if it is not 1."""
    unit = problem.empty.scaling.weight_unit
    notes: tuple[str, ...] = ()
    if unit != 1.0:
        notes = (f"the weights were divided by their mean, {unit:.6g}: only their ratios matter",)
    return notes


def _plan_of(
    small_fits: SmallFits, data: CheckedData, request: Request, machine: Machine, grown: int
) -> Plan:
    """Plan a new fit.

    Args:
        small_fits: the decisions of the small fits
        data: the checked data
        request: the options
        machine: threads and memory of the processes
        grown: bytes by which this process's memory grew during the small fits
    """
    problem = small_fits.kernel.problem
    schedule = small_fits.schedule
    return _plan(
        data.source,
        problem,
        _resolved(request, problem, schedule, small_fits.measured.size),
        machine,
        shrink_partition=request.partition_size == "auto" and not schedule.one_fit,
        rho=small_fits.measured.rho,
        learned=small_fits.kernel.text,
        learning_seconds=max((entry["seconds"] for entry in small_fits.entries), default=0.0),
        notes=small_fits.notes,
        grown=grown,
    )


def size_of(samples: Samples, kernel: LearnedKernel, schedule: Schedule) -> MeasuredSize:
    """Return the requested partition size, or measure it; for a fit of all rows at once, it is all
    rows.

    Args:
        samples: supplies random rows
        kernel: the problem with its kernel
        schedule: the schedule of the strategy
    """
    if schedule.one_fit:
        return MeasuredSize(samples.shape.n_candidates)
    size = samples.request.partition_size
    if size == "auto":
        return measured_size(samples, kernel.problem, kernel.centres)
    return MeasuredSize(int(size))


def kernel_of(samples: Samples, problem: Problem, moments: Moments) -> LearnedKernel:
    """Learn the kernel if this is requested and possible.

    Args:
        samples: supplies random rows
        problem: the problem with the initial kernel
        moments: moments of features and targets
    """
    request = samples.request
    rows = moments.targets.n
    notes: tuple[str, ...] = ()
    if learns(request) and not problem.target_variance:
        notes = ("no kernel was learned: the target is constant",)
    elif chooses(request) and rows < LEAST:
        notes = (f"no kernel was learned: gamma is 'scale', because {rows:,} rows are too few",)
    elif learns(request):
        return with_learned_kernel(samples, problem, moments)
    return LearnedKernel(problem, samples.source, notes=notes)


def continued(
    spec: FitSpec,
    source: Source,
    limits: Request,
    executor: Executor,
    held_out: Source | None = None,
    interrupted: Interrupted = lambda: None,
) -> FitSpec:
    """Adapt a spec to this machine, to the ``LIMITS`` of a request, and to any new rows of the
    source.

    Scaling, kernel and all resolved options do not change; neither does the maximum number of
    columns if the memory limit is unchanged: a process with slightly more base memory than the
    previous one must not end the fit earlier. If new rows join in order (``FitSpec.in_order``), the
    strategy is ``incremental`` with the partition size of the earlier fit, and ``fit_rows="auto"``
    is resolved for the new rows. After a fit of all rows at once, the partition size is at most the
    number of new rows. Raises as ``resolve`` does.

    Args:
        spec: the spec of the earlier fit
        source: the training data: the earlier rows, followed by any new ones
        limits: the request with the new limits
        executor: runs the passes over the tiles
        held_out: the held-out data, or None
        interrupted: returns the reason to end the fit, or None
    """
    before = spec.problem
    unit = before.empty.scaling.weight_unit
    data = checked_data(source, limits, executor, held_out, interrupted, unit)
    source = data.source
    require_positive(before.empty.scaling.target, float(data.moments.targets.minimum.min()))
    problem = replace(
        before,
        n_rows=source.n_rows,
        shuffled=source.shuffled,
        codes=data.codes,
        groups=data.groups,
    )
    problem = with_new_groups(problem)
    request = replace(spec.request, **{name: getattr(limits, name) for name in LIMITS})
    machine = machine_for(limits, executor, source)
    extend = _resumed
    if source.n_rows > before.n_rows:
        request = _with_new_rows(request, spec, limits, source.n_rows - before.n_rows)
        extend = _extended
    return extend(spec, data, problem, request, machine)


def _resumed(
    spec: FitSpec, data: CheckedData, problem: Problem, request: Request, machine: Machine
) -> FitSpec:
    """Return the spec of a resumed fit with unchanged rows.

    Args:
        spec: the earlier spec
        data: the checked data
        problem: the problem
        request: the resolved options with the new limits
        machine: threads and memory of the processes
    """
    earlier = spec.plan
    plan = _plan(
        data.source,
        problem,
        request,
        machine,
        joining=earlier.joining,
        notes=spec.notes,
        rho=earlier.rho,
        learned=earlier.learned,
        learning_seconds=earlier.learning_seconds,
    )
    plan = replace(plan, request=request)
    if machine.limit == earlier.machine.limit:
        plan = replace(
            plan,
            max_columns=earlier.max_columns,
            batch_elements=earlier.batch_elements,
            learning_columns=earlier.learning_columns,
        )
    options = _options(plan, spec.options.centres)
    variance = data.input_variance(problem)
    return FitSpec(problem, options, plan, data.weights, variance, spec.entries, spec.notes)


def _extended(
    spec: FitSpec, data: CheckedData, problem: Problem, request: Request, machine: Machine
) -> FitSpec:
    """Return the spec of a fit to which new rows are added.

    Args:
        spec: the earlier spec
        data: the checked data
        problem: the problem of all rows
        request: the resolved options for all rows
        machine: threads and memory of the processes
    """
    joining = problem.n_rows - spec.problem.n_rows if spec.in_order else None
    plan = _plan(data.source, problem, request, machine, joining=joining, notes=spec.notes)
    joined_problem = _joined(spec, problem, plan)
    variance = data.input_variance(problem)
    return FitSpec(joined_problem, _options(plan), plan, data.weights, variance, (), spec.notes)


def _joined(spec: FitSpec, problem: Problem, plan: Plan) -> Problem:
    """Return a problem whose new rows join the rows of an earlier ``spec`` in the plan's
    partitions."""
    before = spec.problem
    size = before.n_rows * before.n_kernels
    if spec.plan.schedule.has_rounds:
        size = spec.options.partition_size
    options = replace(spec.options, partition_size=size)
    return joined(before, options, problem, plan.partition_size)


def _plan(
    source: Source,
    problem: Problem,
    request: Request,
    machine: Machine,
    **how: Any,
) -> Plan:
    """Plan the fit of a resolved request.

    Args:
        source: the training data, used to measure this machine's rates
        problem: the problem of the fit
        request: the resolved options
        machine: threads and memory of the processes
        how: further ``make_plan`` arguments
    """
    shape = _shape(source, problem, request)
    read = rows_read(request, shape, shuffled=problem.shuffled)
    rates = calibrate(source, problem)
    schedule = STRATEGIES[request.strategy].schedule
    return make_plan(
        shape,
        machine,
        rates,
        request,
        schedule,
        read,
        held_out=problem.held_out,
        settled=problem.likelihood.has_noise,
        has_trees=requested_trees(request) != NO_TREES,
        **how,
    )


def _with_new_rows(request: Request, spec: FitSpec, limits: Request, n_new: int) -> Request:
    """Return the request for more rows; the earlier fit's statistics cover all rows, so there is no
    growing sample.

    Args:
        request: the resolved options of the earlier fit, with the new limits
        spec: the spec of the earlier fit
        limits: the request with the new limits, of which ``fit_rows`` and ``sample_rows`` are used
        n_new: number of new rows
    """
    n_rows = spec.problem.n_rows + n_new
    K = spec.problem.n_kernels
    size = int(request.partition_size)
    fit_rows = "full" if request.fit_rows == GROWING else request.fit_rows
    schedule = spec.plan.schedule
    if spec.in_order:
        size = size if schedule.has_rounds else min(size, n_new * K)
        schedule = STRATEGIES["incremental"].schedule
        request = replace(request, strategy=schedule.name, selection="order", partition_size=size)
        fit_rows = "auto" if limits.fit_rows == "auto" else fit_rows
    fit_rows, sample = resolve_fit_rows(
        replace(limits, fit_rows=fit_rows), schedule, n_rows, size, K, n_new
    )
    return (
        request
        if fit_rows == request.fit_rows
        else replace(request, fit_rows=fit_rows, sample_rows=sample)
    )


def machine_for(request: Request, executor: Executor, source: Source) -> Machine:
    """Describe the machine that runs the tasks; the base memory of a process includes copies of the
    source's labels."""
    machine = executor.machine(
        None if request.memory_limit == "auto" else int(request.memory_limit)
    )
    return replace(machine, base=machine.base + LABEL_COPIES * source.columns.nbytes)


def _shape(source: Source, problem: Problem, request: Request) -> DataShape:
    """Return the sizes of the data and the model."""
    likelihood = problem.likelihood
    has_noise = likelihood.has_noise
    estimated = has_noise and problem.noise_variance is None
    noise_rows = 0
    if estimated and problem.n_targets == 1 and request.noise != CONSTANT:
        noise_rows = rows_of_fit(source.n_rows, source.n_features)
    return DataShape(
        n_rows=source.n_rows,
        n_features=source.n_features,
        n_targets=source.n_targets,
        tile_rows=source.tile_rows,
        n_outputs=problem.n_outputs * problem.n_targets,
        n_kernels=problem.n_kernels,
        n_leading=max(len(problem.leading), 1),
        newton=likelihood.newton,
        n_classes=problem.n_classes,
        local_noise_rows=noise_rows,
        measured=has_noise and Metric.of(problem.empty, source.columns) is not None,
    )


def _options(plan: Plan, centres: int = 0) -> Options:
    """Return the strategy options for a plan and its resolved request."""
    names = {field.name for field in fields(Options)}
    request = plan.request
    options = {
        name: value for name, value in vars(request).items() if name in names and value is not None
    }
    if request.max_iterations is not None:
        options["max_passes"] = request.max_iterations
    options |= {"max_columns": plan.max_columns, "batch": plan.batch_elements, "centres": centres}
    options["learning_columns"] = plan.learning_columns
    if plan.residuals is None:
        options["residual"] = "none"
    options["noise"] = request.noise if isinstance(request.noise, str) else CONSTANT
    options["trees"] = requested_trees(request)
    options["tree_rows"] = plan.tree_rows
    return Options(**options, residual_bytes=plan.machine.limit // RESIDUAL_SHARE)


def _resolved(request: Request, problem: Problem, schedule: Schedule, size: int) -> Request:
    """Resolve every "auto" that affects the model; the plan may still lower the partition size.

    Args:
        request: the options
        problem: the problem, with the learned kernel
        schedule: the schedule of the strategy
        size: partition size in candidates
    """
    n_rows = problem.n_rows
    fit_rows, sample = resolve_fit_rows(
        request, schedule, n_rows, size, problem.n_kernels, shuffled=problem.shuffled
    )
    selection = "all" if schedule.one_fit else "order"
    if schedule.selects:
        selection = "error" if request.selection == "auto" else request.selection
    moderate = bool(request.moderate)
    if request.moderate == "auto":
        moderate = problem.likelihood.binary and n_rows <= MODERATE_ROWS
    if learns(request):
        request = replace(
            request, kernel=problem.empty.kernel, gamma="learn", gamma_multiples=(1.0,)
        )
    return replace(
        request,
        strategy=schedule.name,
        partition_size=size,
        selection=selection,
        fit_rows=fit_rows,
        sample_rows=sample,
        moderate=moderate,
    )


def schedule_for(
    request: Request, n_rows: int, likelihood: Likelihood, outputs: int = 1
) -> Schedule:
    """Return the schedule of the strategy; "auto" means basic for few rows or without a kernel.

    Args:
        request: the options, of which strategy, kernel and partition_size are used
        n_rows: number of rows N
        likelihood: the likelihood, whose ``at_once`` bounds outputs·N² for a single fit
        outputs: number of posteriors
    """
    few = outputs * n_rows**2 <= likelihood.at_once and request.partition_size == "auto"
    name = request.strategy
    if request.kernel == NoKernel.name or (name == "auto" and few):
        name = "basic"
    return STRATEGIES["working-set" if name == "auto" else name].schedule


def resolve_fit_rows(
    request: Request,
    schedule: Schedule,
    n_rows: int,
    size: int,
    K: int = 1,
    new: int = 0,
    *,
    shuffled: bool = False,
) -> tuple[str, int]:
    """Resolve ``fit_rows`` and the number of rows in the sample, or in the first sample if it
    grows.

    A single fit uses all rows. The working set uses ``growing`` if the data are shuffled and have
    more than four times as many rows as the first sample. In other strategies, fits of all rows
    take about 2·K·N²·P flops, or 2·K·N·n·P if only n rows have to join; more than 2e12 flops are
    too many. The result does not depend on the machine.

    Args:
        request: the options, of which fit_rows and sample_rows are used
        schedule: the schedule of the strategy
        n_rows: number of rows N
        size: partition size P in candidates
        K: number of kernel columns per row
        new: number n of rows that have to join, 0 for all
        shuffled: True if the rows are in random order
    """
    fit_rows = request.fit_rows
    sample = request.sample_rows
    if schedule.one_fit:
        fit_rows = "full"
    elif fit_rows == "auto" and schedule.selects:
        fit_rows = GROWING if shuffled and 4 * ROWS_PER_COLUMN * size < n_rows else "full"
    elif fit_rows == "auto":
        fit_rows = "full" if 2.0 * K * n_rows * (new or n_rows) * size <= 2e12 else "sample"
    if sample == "auto":
        sample = (ROWS_PER_COLUMN if fit_rows == GROWING else 20) * size
    return fit_rows, min(int(sample), n_rows)


def calibrate(source: Source, problem: Problem) -> Rates:
    """Measure the rates of one thread on the first tile; without a kernel, leading columns are
    timed instead of kernel elements."""
    with one_blas_thread():
        began = time.perf_counter()
        tile = source.tile(0)
        read = (time.perf_counter() - began) / len(tile.X)
        X = tile.X[:256]
        design = problem.empty.with_centres(X, np.arange(len(X)))
        design = design if problem.n_kernels else design.take(slice(None), leading=problem.leading)
        block = design.block(X)
        square = np.ones((256, 256))
        element, product = (
            min(
                repeat(work, number=1, repeat=3)
            )  # the shortest time is least affected by other processes
            for work in (lambda: design.block(X, block), lambda: square @ square)
        )
    return Rates(read, element / block.size, 2 * 256**3 / product)
