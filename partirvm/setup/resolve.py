"""From a source and parameters to a fit that is ready to run: everything checked, resolved and planned."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

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
from partirvm.errors import DataError, UsageError
from partirvm.kernels import NoKernel
from partirvm.kernels.bases import labels_by_name
from partirvm.kernels.design import NONE, Design
from partirvm.likelihoods import LIKELIHOODS
from partirvm.likelihoods.gaussian import root_mean
from partirvm.options import Request
from partirvm.planning.cost import Looking, Rates, Seen
from partirvm.planning.keeping import SHARE, KernelStore, choose
from partirvm.planning.memory import DataShape
from partirvm.planning.plan import Plan, Sparseness, make_plan, weighing_all
from partirvm.setup.basis import codes_seen, resolve_basis
from partirvm.setup.choosing import LEAST
from partirvm.setup.class_weights import weighed
from partirvm.setup.classes import Classes, find_classes
from partirvm.setup.kernel import chooses, learns, resolve_kernel, sees_codes
from partirvm.setup.parameters import (
    AUTO_PARTITION,
    CLASS_SELECTION,
    SELECTION,
    check_parameters,
    resolve_class_likelihood,
    resolve_likelihood,
    resolve_moderate,
    resolve_partition_size,
    resolve_prior,
    resolve_scaling,
    resolve_strategy,
)
from partirvm.setup.rates import calibrate, measure_disk
from partirvm.setup.refusals import check_multi_output, check_solver, check_sources, checked_moments, look
from partirvm.setup.search import Interrupted, Measuring
from partirvm.setup.spent import Entry
from partirvm.strategies.fit_rows import SAMPLE
from partirvm.strategies.incremental import Incremental
from partirvm.strategies.problem import Options, Problem
from partirvm.strategies.selection import ALL_WEIGHTS, POOL, SPREAD
from partirvm.types import BIAS, over_square

FARTHEST_NOISE = 1e60
"""A noise variance that is given may be so many times the target's variance, or a fraction of it as small."""


@dataclass(frozen=True)
class Prepared:
    """A fit that is ready to run: everything checked and resolved, nothing written yet.

    ``measured`` are lines of history that planning left: of the kernel's learning and of the heuristic's fit.
    """

    source: Source
    held_out: Source | None
    parameters: Request
    moments: Moments
    problem: Problem
    options: Options
    plan: Plan
    measured: tuple[Entry, ...] = ()


def prepare(
    source: Source,
    parameters: Request,
    executor: Executor,
    held_out: Source | None = None,
    interrupted: Interrupted = lambda: None,
    known: Problem | None = None,
) -> Prepared:
    """Check data and parameters, resolve every "auto", and plan.

    A problem that is ``known`` keeps its scaling and its kernel, and only its rows are these. ``interrupted`` is asked
    between the tiles and the dense iterations that this takes: once it answers ``TIME``, what is left to learn or to
    measure is skipped, and a run that is asked the same ends at once. Raises ``StoppedError`` once it
    answers ``ABORTED``, ``UsageError`` for an option that cannot be, ``DataError`` for data that cannot be used,
    ``MemoryLimitError`` if the fit cannot fit.
    """
    began = time.perf_counter()
    look(interrupted)
    parameters = check_parameters(parameters)
    check_multi_output(source, parameters)
    if parameters.memory_limit != "auto":
        return_freed_memory()
    check_sources(source, held_out)
    check_solver(parameters, source)
    source = weighed(source, parameters, executor, lambda *done: look(interrupted))
    moments = checked_moments(source, executor, interrupted)
    check_range(moments, source.columns, scaled=parameters.standardize)
    new_rows = None
    if known is None:
        problem = _new_problem(source, held_out, parameters, moments, executor)
    else:
        if parameters.strategy == Incremental.name:
            new_rows = (source.n_rows - known.n_rows) or None
        classes = find_classes(source, parameters, executor)
        codes = None if classes is None else classes.codes
        problem = replace(
            known, n_rows=source.n_rows, shuffled=source.shuffled, held_out=held_out is not None, codes=codes
        )
    strategy = resolve_strategy(parameters, source.n_rows, problem.n_outputs if problem.classifies else 0)
    shape = DataShape(
        source.n_rows,
        source.n_features,
        source.n_targets,
        source.tile_rows,
        problem.n_outputs if problem.classifies else problem.n_targets,
        problem.n_kernels,
        max(len(problem.leading), 1),
        problem.classifies,
    )
    machine = executor.machine(None if parameters.memory_limit == "auto" else int(parameters.memory_limit))
    measuring = Measuring(source, shape, machine, parameters, executor, interrupted, began)
    learns_now = known is None and problem.power and _enough(parameters, moments)
    learned = measuring.kernel(problem, all_rows=strategy == "basic") if learns_now else None
    if learned is not None:
        problem = replace(problem, empty=replace(problem.empty, kernel=learned.kernel))
    sparseness: Sparseness | None = None
    centres = 0 if learned is None else learned.centres
    measured: tuple[Entry, ...] = () if learned is None else learned.lines
    notes: tuple[str, ...] = () if learned is None else learned.notes
    if strategy == "basic" or not problem.power:
        size = shape.n_candidates if strategy == "basic" else min(AUTO_PARTITION[0], shape.n_candidates)
    elif parameters.partition_size != "auto":
        size = min(int(parameters.partition_size), shape.n_candidates)
    else:
        size = min(AUTO_PARTITION[0], shape.n_candidates)
        record, lines, capped = measuring.sparseness(problem)
        if record is not None:
            sparseness, size, held = resolve_partition_size(source.n_rows, source.n_features, record, centres)
            measured, notes = measured + lines, notes + capped + held
    if interrupted() is Termination.TIME:
        notes += ("time_limit is over before the fit begins",)
    likelihood, sample = resolve_likelihood(parameters, strategy, source.n_rows, size, problem.n_kernels)
    selection = _selection(parameters, strategy, problem.classifies)
    rates = calibrate(source, problem)
    plan = make_plan(
        shape,
        machine,
        rates,
        strategy=strategy,
        selection=selection,
        likelihood=likelihood,
        final_likelihood=parameters.final_likelihood,
        partition_size=size,
        stop_fraction=parameters.stop_fraction,
        max_rounds=parameters.max_rounds,
        max_vectors=parameters.max_vectors,
        seen=_seen(likelihood, sample, parameters, source),
        looking=_looking(selection, size, source, shape.n_candidates),
        held_out=held_out is not None,
        shrink_threads=executor.elastic,
        shrink_partition=parameters.partition_size == "auto" and strategy != "basic",
        sparseness=sparseness,
        newton=problem.classifies,
        learned=None if learned is None else learned.text,
        notes=notes + _remarks(parameters, strategy, likelihood, source, problem, moments, new_rows),
        joining=new_rows,
    )
    if selection == ALL_WEIGHTS:
        plan = weighing_all(plan, rates, held_out=held_out is not None, shrink_threads=executor.elastic)
    plan = replace(plan, kernel_store=_kernel_store(plan, rates, parameters, problem))
    if parameters.likelihood_rows == "auto" and plan.likelihood_rows is not None:
        sample = min(sample, SAMPLE * plan.partition_size)
        plan = replace(plan, likelihood_rows=sample)
    options = _options(plan, parameters, sample, problem, centres)
    if sparseness is not None:
        chosen = {"partition_size": plan.partition_size, "heuristic_size": sparseness.partition_size}
        measured = (*measured[:-1], {**measured[-1], **chosen, "notes": list(plan.notes)})
    return Prepared(source, held_out, parameters, moments, problem, options, plan, measured)


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
    given, default, remarks = parameters, Request(), []
    partition = "partition" in (likelihood, given.final_likelihood) and not problem.classifies
    sample = "sample" in (likelihood, given.final_likelihood)
    idle = [
        *(name for name in ("noise_rows", "noise_every") if not partition and _differs(name, given, default)),
        *(name for name in ("likelihood_rows",) if not sample and _differs(name, given, default)),
        *(name for name in ("selection",) if strategy != "working-set" and _differs(name, given, default)),
        *(name for name in ("multi_class",) if problem.n_classes <= 2 and _differs(name, given, default)),
        *(name for name in ("moderate",) if not problem.classifies and _differs(name, given, default)),
        *(name for name in ("noise_variance",) if problem.classifies and _differs(name, given, default)),
        *(name for name in ("noise_prior",) if not _estimates(problem) and _differs(name, given, default)),
        *(name for name in ("fixed_alpha",) if not problem.bias and [*dict(problem.prior.fixed)] == [BIAS]),
    ]
    if given.kernel == NoKernel.name:
        beside = ("strategy", "partition_size", "heuristic_rows", "max_vectors", "stop_rule", "kernel_store")
        idle += [name for name in beside if _differs(name, given, default)]
    if strategy == "basic":
        idle += [name for name in ("max_rounds", "likelihood", "stop_fraction") if _differs(name, given, default)]
    if _differs("gamma_prior", given, default) and not (
        learns(given) and groups(problem.empty.kernel.parameters) and problem.power
    ):
        idle.append("gamma_prior")
    if idle:
        remarks.append(f"without effect here: {', '.join(idle)}")
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


def _estimates(problem: Problem) -> bool:
    """Whether there is a noise, and it is not given."""
    return not problem.classifies and problem.noise_variance is None


def _differs(name: str, given: Request, default: Request) -> bool:
    return bool(getattr(given, name) != getattr(default, name))


def _selection(parameters: Request, strategy: str, classifies: bool) -> str:
    if strategy != "working-set":
        return "all" if strategy == "basic" else "order"
    if parameters.selection != "auto":
        return parameters.selection
    return CLASS_SELECTION if classifies else SELECTION


def _seen(likelihood: str, sample: int, parameters: Request, source: Source) -> Seen:
    if likelihood == "partition":
        return Seen(None, min(parameters.noise_rows or source.n_rows, source.n_rows))
    return Seen(sample if likelihood == "sample" else source.n_rows)


def _looking(selection: str, partition_size: int, source: Source, candidates: int) -> Looking:
    if selection == "error":
        return Looking(rows=min(SPREAD * partition_size, source.n_rows) if source.shuffled else source.n_rows)
    return Looking(pool=min(POOL * partition_size, candidates) if selection == "gain" else 0)


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


def _options(plan: Plan, parameters: Request, sample: int, problem: Problem, centres: int) -> Options:
    return Options(
        partition_size=plan.partition_size,
        selection=plan.selection,
        likelihood=plan.likelihood,
        final_likelihood=parameters.final_likelihood,
        likelihood_rows=sample,
        noise_rows=parameters.noise_rows,
        noise_every=parameters.noise_every,
        stop_rule=parameters.stop_rule,
        stop_fraction=parameters.stop_fraction,
        max_rounds=parameters.max_rounds,
        max_vectors=parameters.max_vectors,
        max_columns=plan.max_columns,
        batch=plan.batch_elements,
        tol=parameters.tol,
        moderate=problem.classifies and resolve_moderate(parameters, problem.n_rows, problem.n_classes),
        seed=parameters.seed,
        centres=centres,
        gamma_prior=parameters.gamma_prior,
        learning_columns=plan.learning_columns,
        solver=parameters.solver,
    )


def _kernel_store(plan: Plan, rates: Rates, parameters: Request, problem: Problem) -> KernelStore:
    """Where kernel blocks are kept; the disk is measured where memory is short, or where it is asked for."""
    if not plan.shape.n_kernels:
        return KernelStore("none", 0, "there is no kernel")
    spare = plan.room(plan.columns)
    if parameters.kernel_store == parameters.memory_limit == "auto":
        spare = min(spare, int(SHARE * plan.machine.limit))
    return choose(
        parameters.kernel_store,
        rates,
        plan.shape.n_rows,
        plan.columns,
        plan.machine.workers,
        spare,
        measure_disk,
        repeats=problem.classifies,
    )
