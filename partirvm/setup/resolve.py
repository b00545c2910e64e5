"""From a source and a request to the spec of a fit: everything checked, resolved and planned, once."""

from __future__ import annotations

import time
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partirvm.backends import Executor
from partirvm.backends.allocator import return_freed_memory
from partirvm.core.moments import Moments
from partirvm.core.priors import Prior
from partirvm.core.rprop import groups
from partirvm.core.termination import Termination
from partirvm.data import Source
from partirvm.data.checks import check_range
from partirvm.data.weighted import ClassWeighted
from partirvm.errors import DataError, UsageError
from partirvm.kernels import NoKernel
from partirvm.kernels.bases import labels_by_name
from partirvm.kernels.design import NONE, Design
from partirvm.likelihoods import LIKELIHOODS
from partirvm.likelihoods.gaussian import root_mean
from partirvm.options import TABLE, Request, idle
from partirvm.options.table import NUMBERS, SEVERAL_CLASSES, TWO_CLASSES
from partirvm.planning.memory import DataShape
from partirvm.planning.plan import Machine, Plan, Sparseness
from partirvm.setup.basis import codes_seen, resolve_basis
from partirvm.setup.choosing import LEAST
from partirvm.setup.class_weights import class_weights_of
from partirvm.setup.classes import Classes, find_classes
from partirvm.setup.kernel import chooses, learns, resolve_kernel, sees_codes
from partirvm.setup.parameters import (
    AUTO_PARTITION,
    CLASS_SELECTION,
    SELECTION,
    resolve_class_likelihood,
    resolve_likelihood,
    resolve_moderate,
    resolve_partition_size,
    resolve_prior,
    resolve_scaling,
    resolve_strategy,
)
from partirvm.setup.rates import calibrate
from partirvm.setup.refusals import check_multi_output, check_solver, check_sources, checked_moments, look
from partirvm.setup.relevance import input_variance
from partirvm.setup.search import Interrupted, Learned, Measuring
from partirvm.setup.spec import FitSpec, memory_limits, planned
from partirvm.setup.spent import Entry
from partirvm.strategies.fit_rows import SAMPLE
from partirvm.strategies.problem import Options, Problem
from partirvm.types import BIAS, over_square

Float = NDArray[np.float64]

FARTHEST_NOISE = 1e60
"""A noise variance that is given may be so many times the target's variance, or a fraction of it as small."""


@dataclass(frozen=True)
class _Rows:
    """What every fit needs to know of its rows: the source that passes read, its moments, its class weights."""

    source: Source
    moments: Moments
    class_weights: Float | None

    @classmethod
    def of(
        cls, source: Source, request: Request, executor: Executor, held_out: Source | None, interrupted: Interrupted
    ) -> _Rows:
        """Look at all rows, and refuse those that cannot be fitted as ``request`` asks."""
        check_multi_output(source, request)
        if request.memory_limit != "auto":
            return_freed_memory()
        check_sources(source, held_out)
        check_solver(request, source)
        weights = class_weights_of(source, request, executor, lambda *done: look(interrupted))
        source = source if weights is None else ClassWeighted(source, weights)
        moments = checked_moments(source, executor, interrupted)
        check_range(moments, source.columns, scaled=request.standardize)
        return cls(source, moments, weights)


def resolve(
    source: Source,
    request: Request,
    executor: Executor,
    held_out: Source | None = None,
    interrupted: Interrupted = lambda: None,
) -> FitSpec:
    """Check data, resolve every "auto" of a checked request, learn the kernel where that is asked for, and plan.

    ``interrupted`` is asked between the tiles and the dense iterations that this takes: once it answers ``TIME``, what
    is left to learn or to measure is skipped, and a run that is asked the same ends at once. Raises ``StoppedError``
    once it answers ``ABORTED``, ``UsageError`` for an option that cannot be, ``DataError`` for data that cannot be
    used, ``MemoryLimitError`` if the fit cannot fit.
    """
    began = time.perf_counter()
    look(interrupted)
    rows = _Rows.of(source, request, executor, held_out, interrupted)
    source, moments = rows.source, rows.moments
    problem = _new_problem(source, held_out, request, moments, executor)
    strategy = resolve_strategy(request, source.n_rows, problem.n_outputs if problem.classifies else 0)
    shape, machine = _shape(source, problem), machine_for(request, executor)
    measuring = Measuring(source, shape, machine, request, executor, interrupted, began)
    learned = None
    if problem.power and _enough(request, moments):
        learned = measuring.kernel(problem, all_rows=strategy == "basic")
        problem = replace(problem, empty=replace(problem.empty, kernel=learned.kernel))
    sparseness: Sparseness | None = None
    measured: tuple[Entry, ...] = () if learned is None else learned.lines
    notes: tuple[str, ...] = () if learned is None else learned.notes
    if strategy == "basic" or not problem.power:
        size = shape.n_candidates if strategy == "basic" else min(AUTO_PARTITION[0], shape.n_candidates)
    elif request.partition_size != "auto":
        size = min(int(request.partition_size), shape.n_candidates)
    else:
        size = min(AUTO_PARTITION[0], shape.n_candidates)
        record, lines, capped = measuring.sparseness(problem)
        if record is not None:
            centres = 0 if learned is None else learned.centres
            sparseness, size, held = resolve_partition_size(source.n_rows, source.n_features, record, centres)
            measured, notes = measured + lines, notes + capped + held
    if interrupted() is Termination.TIME:
        notes += ("time_limit is over before the fit begins",)
    spec = _spec(
        rows,
        request,
        problem,
        strategy,
        size,
        executor,
        machine,
        shrink_partition=request.partition_size == "auto" and strategy != "basic",
        sparseness=sparseness,
        learned=learned,
        notes=notes,
    )
    if sparseness is not None:
        plan = spec.plan
        chosen = {"partition_size": plan.partition_size, "heuristic_size": sparseness.partition_size}
        measured = (*measured[:-1], {**measured[-1], **chosen, "notes": list(plan.notes)})
    return replace(spec, measured=measured)


def resolve_known(
    source: Source,
    request: Request,
    executor: Executor,
    problem: Problem,
    *,
    held_out: Source | None = None,
    interrupted: Interrupted = lambda: None,
    joining: int | None = None,
) -> FitSpec:
    """The spec of a fit of other rows to a problem that is known: it keeps scaling and kernel, nothing is learned.

    ``request`` says the partition size as a number; ``joining`` are the rows of which partitions are to be made, all
    unless given. Raises as ``resolve`` does.
    """
    look(interrupted)
    rows = _Rows.of(source, request, executor, held_out, interrupted)
    problem = replace(
        problem,
        n_rows=source.n_rows,
        shuffled=source.shuffled,
        held_out=held_out is not None,
        codes=codes_of(rows.source, request, executor),
    )
    strategy = resolve_strategy(request, source.n_rows, problem.n_outputs if problem.classifies else 0)
    n_candidates = source.n_rows * problem.n_kernels
    size = n_candidates if strategy == "basic" else min(int(request.partition_size), n_candidates)
    machine = machine_for(request, executor)
    return _spec(rows, request, problem, strategy, size, executor, machine, joining=joining)


def resume_spec(spec: FitSpec, asked: Request, source: Source, executor: Executor) -> FitSpec:
    """A spec that was stored, for this machine and the limits of ``asked``; nothing else is decided again.

    Class codes are read from the source. Raises ``MemoryLimitError`` if the fit cannot fit any more.
    """
    if asked.memory_limit != "auto":
        return_freed_memory()
    source = spec.weigh(source)
    spec = spec.with_codes(codes_of(source, spec.request, executor))
    return spec.with_limits(
        asked, machine_for(asked, executor), calibrate(source, spec.problem), elastic=executor.elastic
    )


def codes_of(source: Source, request: Request, executor: Executor) -> NDArray[np.integer[Any]] | None:
    """The class codes (N,) of all rows, None for a target that is a number. Raises as ``find_classes`` does."""
    classes = find_classes(source, request, executor)
    return None if classes is None else classes.codes


def machine_for(request: Request, executor: Executor) -> Machine:
    """Where tasks run, under the memory limit that is asked for."""
    return executor.machine(None if request.memory_limit == "auto" else int(request.memory_limit))


def _shape(source: Source, problem: Problem) -> DataShape:
    return DataShape(
        source.n_rows,
        source.n_features,
        source.n_targets,
        source.tile_rows,
        problem.n_outputs if problem.classifies else problem.n_targets,
        problem.n_kernels,
        max(len(problem.leading), 1),
        problem.classifies,
    )


def _spec(
    rows: _Rows,
    request: Request,
    problem: Problem,
    strategy: str,
    size: int,
    executor: Executor,
    machine: Machine,
    *,
    shrink_partition: bool = False,
    sparseness: Sparseness | None = None,
    learned: Learned | None = None,
    notes: tuple[str, ...] = (),
    joining: int | None = None,
) -> FitSpec:
    """Resolve what follows from strategy and partition size, and plan."""
    source, moments = rows.source, rows.moments
    likelihood, sample = resolve_likelihood(request, strategy, source.n_rows, size, problem.n_kernels)
    notes += _remarks(request, strategy, likelihood, source, problem, moments, joining)
    resolved = replace(
        request,
        strategy=strategy,
        partition_size=size,
        likelihood=likelihood,
        likelihood_rows=sample,
        selection=_selection(request, strategy, problem.classifies),
        moderate=problem.classifies and resolve_moderate(request, problem.n_rows, problem.n_classes),
        multi_class=problem.likelihood.name if problem.n_classes > 2 else request.multi_class,
    )
    if learns(request):
        resolved = replace(resolved, kernel=problem.empty.kernel, gamma="auto", gamma_multiples=(1.0,))
    rates = calibrate(source, problem)
    plan = planned(
        resolved,
        problem,
        _shape(source, problem),
        machine,
        rates,
        executor.elastic,
        shrink_partition=shrink_partition,
        joining=joining,
    )
    text = None if learned is None else learned.text
    plan = replace(plan, sparseness=sparseness, learned=text, notes=notes + plan.notes)
    if request.likelihood_rows == "auto" and plan.likelihood_rows is not None:
        sample = min(sample, SAMPLE * plan.partition_size)
        plan = replace(plan, likelihood_rows=sample)
    resolved = replace(resolved, partition_size=plan.partition_size, likelihood_rows=sample)
    return FitSpec(
        resolved,
        problem,
        _options(resolved, plan, 0 if learned is None else learned.centres),
        plan,
        rows.class_weights,
        input_variance(source.columns, moments, problem.empty.scaling),
        moments.inputs.constant,
        moments.targets.n,
        notes=notes,
    )


def _enough(parameters: Request, moments: Moments) -> bool:
    """Whether a kernel is to be learned, and can be: nobody is left alone with what a few rows say."""
    return learns(parameters) and not (chooses(parameters) and moments.targets.n < LEAST)


def _remarks(
    parameters: Request,
    strategy: str,
    likelihood: str,
    source: Source,
    problem: Problem,
    moments: Moments,
    new_rows: int | None,
) -> tuple[str, ...]:
    """What the plan should say before it runs: options without effect, limits that cannot hold, slow ways."""
    given, remarks = parameters, []
    chosen = {
        "target": (_kind_of_target(problem),),
        "strategy": (strategy,),
        "fit_rows": (likelihood, given.final_likelihood),
        "kernel": ("none" if given.kernel == NoKernel.name else "some",),
        "noise_variance": ("estimate" if problem.noise_variance is None else "given",),
    }
    without = idle(given, chosen)
    if not problem.bias and [*dict(problem.prior.fixed)] == [BIAS]:
        without.append("fixed_alpha")
    learned = learns(given) and groups(problem.empty.kernel.parameters) and problem.power
    if given.gamma_prior != TABLE["gamma_prior"].default and not learned:
        without.append("gamma_prior")
    if without:
        remarks.append(f"without effect here: {', '.join(without)}")
    if blind := sees_codes(given.kernel, source.columns):
        remarks.append(f"the {given.kernel} kernel takes the codes of categorical columns for numbers: {blind}")
    if blind := codes_seen(given, source.columns):
        remarks.append(f"the linear basis takes the codes of categorical columns for numbers: {blind}")
    if learns(given) and not problem.power:
        remarks.append("no kernel was learned: the target is constant")
    elif learns(given) and not _enough(given, moments):
        remarks.append(f"no kernel was learned: gamma is 'scale', as {moments.targets.n:,} rows are too few to tell")
    if likelihood == "partition" and strategy == "split-merge" and source.columns.classes is not None:
        remarks.append(
            "likelihood 'partition' prunes too much where classes are split and merged, and the last fit cannot "
            "recover what is gone: 'full' and 'sample' err less"
        )
    if strategy in ("split-merge", "incremental") and new_rows is None and not source.shuffled:
        remarks.append("rows kept their order, so every partition is gathered from all tiles: shuffled data are faster")
    if given.final_likelihood != "full":
        remarks.append(f"the last fit, too, sees some rows only: final_likelihood is {given.final_likelihood!r}")
    return tuple(remarks)


def _kind_of_target(problem: Problem) -> str:
    """What options apply to: numbers, two classes or several."""
    if not problem.classifies:
        return NUMBERS
    return TWO_CLASSES if problem.n_classes <= 2 else SEVERAL_CLASSES


def _selection(parameters: Request, strategy: str, classifies: bool) -> str:
    if strategy != "working-set":
        return "all" if strategy == "basic" else "order"
    if parameters.selection != "auto":
        return parameters.selection
    return CLASS_SELECTION if classifies else SELECTION


def _new_problem(
    source: Source, held_out: Source | None, parameters: Request, moments: Moments, executor: Executor
) -> Problem:
    """The problem of these rows, with the kernel that the parameters name."""
    scaling = resolve_scaling(moments, parameters.standardize, classes=source.columns.classes is not None)
    kernel = resolve_kernel(parameters, moments, source.columns)
    origin = scaling.inputs(moments.inputs.mean)
    empty = Design(
        kernel,
        scaling,
        np.zeros((0, source.n_features)),
        NONE,
        bias=False,
        origin=origin,
        functions=resolve_basis(parameters, source, scaling),
    )
    return _problem(source, held_out, parameters, empty, moments, find_classes(source, parameters, executor))


def _problem(
    source: Source,
    held_out: Source | None,
    parameters: Request,
    empty: Design,
    moments: Moments,
    classes: Classes | None,
) -> Problem:
    labels = labels_by_name(empty.functions, source.columns.features)
    if classes is not None:
        return Problem(
            n_rows=source.n_rows,
            empty=empty,
            bias=parameters.fit_intercept,
            power=1.0,
            noise_variance=None,
            target_scale=1.0,
            shuffled=source.shuffled,
            held_out=held_out is not None,
            likelihood=LIKELIHOODS[resolve_class_likelihood(parameters, classes.n_classes)],
            n_classes=classes.n_classes,
            codes=classes.codes,
            prior=resolve_prior(parameters, 1.0, labels),
        )
    scales, targets = empty.scaling.t_scale, moments.targets
    powers = (targets.variance * targets.total / targets.n) / (scales / targets.unit) ** 2
    several = source.n_targets > 1 and bool(powers.any())
    if several and not powers.all():
        which = int(np.flatnonzero(powers == 0)[0])
        name = f" ({source.columns.targets[which]!r})" if source.columns.targets else ""
        raise DataError(
            f"target {which} of {source.n_targets}{name} is constant: leave it out, or give each target vectors of its "
            "own with multi_output='independent'"
        )
    prior = resolve_prior(parameters, float(scales[0]), labels)
    if source.n_targets > 1 and prior != Prior(fixed=prior.fixed):
        raise UsageError(
            f"alpha_prior, noise_prior and updates={parameters.updates!r} are for one target, y has "
            f"{source.n_targets}: leave them as they are, or use multi_output='independent'"
        )
    noise = None
    if parameters.noise_variance != "estimate":
        noise = over_square(float(parameters.noise_variance), scales)
        _check_noise(float(parameters.noise_variance), noise, powers)
    return Problem(
        n_rows=source.n_rows,
        empty=empty,
        bias=parameters.fit_intercept,
        power=float(powers.mean()),
        noise_variance=noise if noise is None or source.n_targets > 1 else float(noise[0]),
        target_scale=root_mean(scales),
        shuffled=source.shuffled,
        held_out=held_out is not None,
        prior=prior,
        powers=np.where(powers > 0, powers, 1.0) if source.n_targets > 1 else None,
    )


def _check_noise(given: float, noise: NDArray[np.float64], powers: NDArray[np.float64]) -> None:
    """Refuse a noise variance that no arithmetic can tell from 0, or the target from; ``noise`` is it to the model."""
    share = np.divide(noise, powers, out=np.ones_like(powers), where=powers > 0)
    if not ((share >= 1 / FARTHEST_NOISE) & (share <= FARTHEST_NOISE)).all():
        far = share[int(np.argmax(np.abs(np.log10(np.maximum(share, np.finfo(float).tiny)))))]
        raise UsageError(
            f"noise_variance is {given:g}, {far:.0e} of the target's variance: it must be between "
            f"{1 / FARTHEST_NOISE:.0e} and {FARTHEST_NOISE:.0e} of it, in the target's unit squared, or 'estimate'"
        )


def _options(request: Request, plan: Plan, centres: int) -> Options:
    """The choices of a resolved request, as strategies see them; ``centres`` are those the kernel was learned from."""
    asked = {each.name: getattr(request, each.name, None) for each in fields(Options)}
    asked["max_passes"] = request.max_iterations
    given = {name: value for name, value in asked.items() if value is not None}
    return Options(**{**given, **memory_limits(plan), "centres": centres})
