"""From what a user asks to numbers: every "auto" resolved. The checks of single options are the table's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partirvm.core.moments import Moments
from partirvm.core.priors import GammaDensity, Prior
from partirvm.errors import UsageError
from partirvm.kernels import NoKernel
from partirvm.likelihoods import words_of
from partirvm.options import Request, check
from partirvm.options.constraints import OneOf
from partirvm.planning.plan import Sparseness
from partirvm.planning.schedule import Schedule
from partirvm.planning.units import parse_duration
from partirvm.setup.basis import checked_basis, portable_basis, require_functions
from partirvm.setup.kernel import checked_kernel, portable_kernel
from partirvm.setup.partition_size import DENSE, partition_size
from partirvm.setup.timer import Timer
from partirvm.strategies import STRATEGIES
from partirvm.strategies.fit_rows import FIT_ROWS, SAMPLE, automatic
from partirvm.strategies.incremental import Basic
from partirvm.strategies.instructions import Record
from partirvm.strategies.selection import SELECTIONS
from partirvm.strategies.working_set import WorkingSet
from partirvm.types import Scaling, over_square

SMALL = 200
"""Rows up to which ``strategy="auto"`` makes every row a candidate."""

SMALL_CURVATURE = 10**6
"""The same for classes: up to so many elements C·N² of the curvature. One fit takes far fewer passes than rounds do."""

SELECTION = "error"
"""What ``selection="auto"`` means; chosen by ``python -m benchmarks.working_set --selections``."""

CLASS_SELECTION = "gain"
"""What ``selection="auto"`` means for classes; chosen by ``python -m benchmarks.classification --trial selection``."""

AUTO_PARTITION = (32, 1000)
"""Least and most candidates of a round that ``partition_size="auto"`` chooses."""

MODERATE_ROWS = 10_000
"""Most rows of two classes whose probabilities are moderated unless told otherwise."""


def check_parameters(parameters: Request) -> Request:
    """The parameters with texts turned into numbers. The face that takes a request calls it, once.

    Raises ``UsageError`` naming the option that cannot be.
    """
    p = replace(parameters, kernel=checked_kernel(parameters.kernel), basis=checked_basis(parameters.basis))
    require_functions(p)
    p = check(p)
    OneOf(("auto", *STRATEGIES))("strategy", p.strategy)
    OneOf(words_of(classes=True))("multi_class", p.multi_class)
    if isinstance(p.noise_variance, str):
        OneOf(("a number > 0", *words_of(classes=False)))("noise_variance", p.noise_variance)
    _check_together(p)
    return p


def _check_together(p: Request) -> None:
    """Refuse options of a strategy that exclude each other."""
    if p.kernel == NoKernel.name and not FIT_ROWS[p.last_rows].whole:
        raise UsageError("kernel=None has no candidates, its one fit sees all rows: last_rows must be 'full'")
    weighs_all = p.selection in SELECTIONS and SELECTIONS[p.selection].weighs_all
    if weighs_all and p.fit_rows in FIT_ROWS and not FIT_ROWS[p.fit_rows].shared:
        raise UsageError(
            f"selection {p.selection!r} needs all rows or one sample of them, not the candidates' own: likelihood must "
            "be 'full' or 'sample', or the selection another"
        )
    if p.strategy in STRATEGIES and STRATEGIES[p.strategy].schedule.merges and p.max_rounds is not None:
        raise UsageError(
            f"max_rounds is {p.max_rounds}, but {p.strategy} has no rounds: limit max_vectors, or use another strategy"
        )


def portable(parameters: Request) -> dict[str, Any]:
    """Checked parameters as plain JSON: what a job or a cluster holds of them.

    Raises ``UsageError`` for a kernel or a basis that only this process has.
    """
    kernel, basis = portable_kernel(parameters.kernel), portable_basis(parameters.basis)
    return asdict(replace(parameters, kernel=kernel, basis=basis))


def resolve_scaling(moments: Moments, standardize: bool, *, classes: bool = False) -> Scaling:
    """Scaling by the training moments: shift by the mean, scale by the sd (ddof 0), 1 for a constant feature.

    A constant target is scaled by its size, so that the floor of its noise is in its unit.
    Without ``standardize`` only the target's mean is removed, which changes no model that has a bias, and adds digits.
    Codes of ``classes`` stay as they are.
    """
    d, T = len(moments.inputs.mean), len(moments.targets.mean)
    t_shift, t_scale = moments.targets.mean, _deviation(moments.targets) if standardize else np.ones(T)
    t_scale = np.where(moments.targets.constant & (t_shift != 0), np.abs(t_shift), t_scale)
    if classes:
        t_shift, t_scale = np.zeros(T), np.ones(T)
    if not standardize:
        return Scaling(np.zeros(d), np.ones(d), t_shift, t_scale)
    return Scaling(moments.inputs.mean, _deviation(moments.inputs), t_shift, t_scale)


def resolve_prior(parameters: Request, target_scale: float, labels: Mapping[str, int]) -> Prior:
    """The prior that is asked for; the rate of the noise's is in the target's unit squared, that of α is as α is.

    ``labels`` are those of the leading columns, by their names, of which ``fixed_alpha`` may hold the α. Raises
    ``UsageError`` where it names another.
    """
    shape, rate = parameters.noise_prior
    held = parameters.fixed_alpha or {}
    for name in held:
        OneOf(tuple(labels))("a name in fixed_alpha", name)
    fixed = sorted((labels[name], alpha) for name, alpha in held.items())
    return Prior(
        GammaDensity(*parameters.alpha_prior),
        GammaDensity(shape, float(over_square(rate, target_scale))),
        parameters.updates,
        tuple(fixed),
    )


def resolve_moderate(parameters: Request, n_rows: int, n_classes: int) -> bool:
    """Whether probabilities allow for the uncertainty of the weights; "auto" does for two classes of few rows.

    There the log loss on new rows falls, by a quarter at most. With many rows little is uncertain but where classes
    part, and of a flank Laplace's approximation knows nothing: skin_nonskin's grows. With more classes it does as often
    as not (``benchmarks/classification``).
    """
    if parameters.moderate == "auto":
        return n_classes == 2 and n_rows <= MODERATE_ROWS
    return bool(parameters.moderate)


def _deviation(moments: Any) -> NDArray[np.float64]:
    deviation: NDArray[np.float64] = moments.deviation
    return np.where(deviation > 0, deviation, 1.0)


def resolve_strategy(parameters: Request, n_rows: int, class_outputs: int = 0) -> str:
    """``"auto"`` is ``basic`` for few rows, else ``working-set``; ``class_outputs`` is C of a fit of classes.

    Without a kernel there are no candidates, and one fit: ``basic``.
    """
    if parameters.kernel == NoKernel.name:
        return Basic.name
    if parameters.strategy != "auto":
        return parameters.strategy
    few = class_outputs * n_rows**2 <= SMALL_CURVATURE if class_outputs else n_rows <= SMALL
    return Basic.name if few and parameters.partition_size == "auto" else WorkingSet.name


def resolve_partition_size(
    n_rows: int, d: int, measured: Record, centres: int = 0
) -> tuple[Sparseness, int, tuple[str, ...]]:
    """What ``partition_size="auto"`` makes of the heuristic's fit: P before and after its bounds, notes on these.

    A kernel that was learned with so many ``centres`` is given as many candidates: learned widths are wide, the few
    vectors that the heuristic finds under them make small rounds, and these end too early.
    """
    heuristic = partition_size(n_rows, d, measured.vectors / measured.rows)
    sparseness = Sparseness(measured.rows, measured.vectors, heuristic)
    least, most = AUTO_PARTITION
    size = min(max(heuristic, least), most, n_rows)
    notes: tuple[str, ...] = ()
    if size < min(centres, most, n_rows):
        size = min(centres, most, n_rows)
        notes += (f"P raised from {heuristic:,} to {size:,}: as many as the kernel was learned with",)
    elif size > heuristic:
        notes += (f"P raised from {heuristic:,} to {size:,}: auto takes {least} at least",)
    if size < heuristic:
        why = f"auto takes {most:,} at most" if size == most else "there are no more rows"
        notes += (f"P held to {size:,}: {why}",)
    if sparseness.rho > DENSE:
        notes += ("nearly every row became a vector: the kernel is probably too narrow (raise its width: lower gamma)",)
    return sparseness, size, notes


def resolve_fit_rows(
    parameters: Request, schedule: Schedule, n_rows: int, size: int, n_kernels: int = 1
) -> tuple[str, int]:
    """The rows that intermediate fits use, and the number of rows of a sample. An only fit is the last."""
    fit_rows = parameters.last_rows if schedule.one_fit else parameters.fit_rows
    if fit_rows == "auto":
        fit_rows = automatic(schedule, n_rows, size, n_kernels)
    rows = parameters.sample_rows
    return fit_rows, min(SAMPLE * size if rows == "auto" else int(rows), n_rows)


def timer_of(parameters: Request) -> Timer:
    """The timer of a fit that begins now. Raises ``UsageError`` for a time limit that is none."""
    limit = parameters.time_limit
    return Timer(None if limit is None else parse_duration(limit, "time_limit"))
