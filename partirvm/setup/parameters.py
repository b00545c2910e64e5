"""Check combinations of options and resolve each "auto". ``partirvm.options`` checks the single options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partirvm.core.moments import Moments
from partirvm.core.priors import GammaDensity, Prior
from partirvm.core.solvers import SOLVERS
from partirvm.errors import UsageError
from partirvm.kernels import NoKernel
from partirvm.learning.basic_fits import DENSE, partition_size
from partirvm.likelihoods import words_of
from partirvm.options import Request, check
from partirvm.options.constraints import OneOf
from partirvm.planning.plan import Sparseness
from partirvm.planning.schedule import Schedule
from partirvm.planning.units import parse_duration
from partirvm.setup.basis import checked_basis, portable_basis, require_functions
from partirvm.setup.kernel import checked_kernel, portable_kernel
from partirvm.setup.timer import Timer
from partirvm.strategies import STRATEGIES
from partirvm.strategies.fit_rows import FIT_ROWS, automatic, first_sample, grows
from partirvm.strategies.incremental import BasicRound
from partirvm.strategies.instructions import Record
from partirvm.strategies.working_set import WorkingSetRounds
from partirvm.types import Scaling, over_square

SMALL = 200
"""Maximum number of rows for which ``strategy="auto"`` makes every row a candidate (regression)."""

SMALL_CURVATURE = 10**6
"""Classification: maximum number C·N² of curvature elements for which ``strategy="auto"`` makes every row a candidate.

A single fit takes far fewer passes than a fit in rounds.
"""

SELECTION = "error"
"""Meaning of ``selection="auto"`` for regression; chosen by ``python -m benchmarks.working_set --selections``."""

CLASS_SELECTION = "gain"
"""Meaning of ``selection="auto"`` for classification.

Chosen by ``python -m benchmarks.classification --trial selection``.
"""

AUTO_PARTITION = (32, 1000)
"""Minimum and maximum of the partition size that ``partition_size="auto"`` chooses."""

MODERATE_ROWS = 10_000
"""Maximum number of rows for which ``moderate="auto"`` moderates the probabilities of two classes."""


def check_parameters(parameters: Request) -> Request:
    """Check all options of a request and convert texts to numbers.

    The command line and the estimators call it once per request. Raises ``UsageError`` with the name of the invalid
    option.
    """
    p = replace(parameters, kernel=checked_kernel(parameters.kernel), basis=checked_basis(parameters.basis))
    require_functions(p)
    p = check(p)
    OneOf(("auto", *STRATEGIES))("strategy", p.strategy)
    OneOf(tuple(SOLVERS))("solver", p.solver)
    OneOf(words_of(classes=True))("multi_class", p.multi_class)
    if isinstance(p.noise_variance, str):
        OneOf(("a number > 0", *words_of(classes=False)))("noise_variance", p.noise_variance)
    _check_together(p)
    return p


def _check_together(p: Request) -> None:
    """Raise ``UsageError`` for options that exclude each other."""
    if p.kernel == NoKernel.name and not FIT_ROWS[p.last_rows].whole:
        raise UsageError("kernel=None gives a single fit of all rows: last_rows must be 'full'")
    merges = p.strategy in STRATEGIES and STRATEGIES[p.strategy].schedule.merges
    if merges and grows(p.fit_rows):
        raise UsageError(
            f"fit_rows is {p.fit_rows!r}, but the fits of {p.strategy} run side by side: set fit_rows to 'full' or "
            "'sample', or use another strategy"
        )
    if merges and p.max_rounds is not None:
        raise UsageError(
            f"max_rounds is {p.max_rounds}, but {p.strategy} has no rounds: limit max_vectors, or use another strategy"
        )


def portable(parameters: Request) -> dict[str, Any]:
    """Convert checked parameters to plain JSON for a job or a cluster.

    Raises ``UsageError`` for a kernel or a basis that other processes cannot import.
    """
    kernel, basis = portable_kernel(parameters.kernel), portable_basis(parameters.basis)
    return asdict(replace(parameters, kernel=kernel, basis=basis))


def resolve_scaling(
    moments: Moments, standardize: bool, *, classes: bool = False, fit_intercept: bool = True
) -> Scaling:
    """Compute the scaling from the training moments: subtract the mean, divide by the standard deviation (ddof 0).

    The scale of a constant feature is 1. The scale of a constant target is its absolute value, so that its noise floor
    is in its own unit. Without ``standardize`` only the mean of the target is subtracted; this does not change a model
    with a bias, but it improves the numerical accuracy. Without a bias the target is then left alone. With ``classes``
    the target holds codes and is not scaled.
    """
    d, T = len(moments.inputs.mean), len(moments.targets.mean)
    t_shift, t_scale = moments.targets.mean, _deviation(moments.targets) if standardize else np.ones(T)
    t_scale = np.where(moments.targets.constant & (t_shift != 0), np.abs(t_shift), t_scale)
    if not (standardize or fit_intercept):
        t_shift = np.zeros(T)
    if classes:
        t_shift, t_scale = np.zeros(T), np.ones(T)
    if not standardize:
        return Scaling(np.zeros(d), np.ones(d), t_shift, t_scale)
    return Scaling(moments.inputs.mean, _deviation(moments.inputs), t_shift, t_scale)


def resolve_prior(parameters: Request, target_scale: float, labels: Mapping[str, int]) -> Prior:
    """Make the prior of the request.

    The rate of the noise prior is given in squared target units and divided by the squared target scale. The rate of
    the α prior is used unchanged. ``labels`` maps the names of the leading columns to their labels; ``fixed_alpha`` may
    fix the α of these columns. Raises ``UsageError`` if ``fixed_alpha`` contains another name.
    """
    shape, rate = parameters.noise_prior
    held = parameters.fixed_alpha or {}
    for name in held:
        OneOf(tuple(labels))("a name in fixed_alpha", name)
    fixed = sorted((labels[name], alpha) for name, alpha in held.items())
    return Prior(
        GammaDensity(*parameters.alpha_prior),
        GammaDensity(shape, float(over_square(rate, target_scale))),
        tuple(fixed),
    )


def resolve_moderate(parameters: Request, n_rows: int, n_classes: int) -> bool:
    """Return True if probabilities include the uncertainty of the weights; "auto" does so for two classes and few rows.

    In ``benchmarks/classification`` moderation lowers the log loss of two classes on few rows by up to a quarter. With
    many rows the weights are uncertain only near the class boundary, where Laplace's approximation can be poor: on
    skin_nonskin the log loss rises. With more than two classes the log loss rises about as often as it falls.
    """
    if parameters.moderate == "auto":
        return n_classes == 2 and n_rows <= MODERATE_ROWS
    return bool(parameters.moderate)


def _deviation(moments: Any) -> NDArray[np.float64]:
    deviation: NDArray[np.float64] = moments.deviation
    return np.where(deviation > 0, deviation, 1.0)


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


def resolve_partition_size(
    n_rows: int, d: int, measured: Record, centres: int = 0
) -> tuple[Sparseness, int, tuple[str, ...]]:
    """Resolve ``partition_size="auto"`` from the fit of the heuristic.

    Returns the measured sparseness, the partition size within its bounds, and notes about these bounds. After kernel
    learning the partition size is at least the number of ``centres``. Learned kernels are wide, so the heuristic finds
    few vectors; rounds of so few candidates would end the fit too early.
    """
    heuristic = partition_size(n_rows, d, measured.vectors / measured.rows)
    sparseness = Sparseness(measured.rows, measured.vectors, heuristic)
    least, most = AUTO_PARTITION
    size = min(max(heuristic, least), most, n_rows)
    notes: tuple[str, ...] = ()
    if size < min(centres, most, n_rows):
        size = min(centres, most, n_rows)
        notes += (f"partition size raised from {heuristic:,} to {size:,}, the number of centres in kernel learning",)
    elif size > heuristic:
        notes += (f"partition size raised from {heuristic:,} to {size:,}, the minimum of 'auto'",)
    if size < heuristic:
        why = "the maximum of 'auto'" if size == most else "the number of rows"
        notes += (f"partition size lowered to {size:,}, {why}",)
    if sparseness.rho > DENSE:
        notes += ("nearly every row became a vector: the kernel is probably too narrow (lower gamma)",)
    return sparseness, size, notes


def resolve_fit_rows(
    parameters: Request, schedule: Schedule, n_rows: int, size: int, n_kernels: int = 1, *, shuffled: bool = False
) -> tuple[str, int]:
    """Resolve ``fit_rows`` and the number of rows of a sample; a single fit uses ``last_rows``."""
    fit_rows = parameters.last_rows if schedule.one_fit else parameters.fit_rows
    if fit_rows == "auto":
        fit_rows = automatic(schedule, n_rows, size, n_kernels, shuffled=shuffled)
    rows = parameters.sample_rows
    return fit_rows, min(first_sample(fit_rows, size) if rows == "auto" else int(rows), n_rows)


def timer_of(parameters: Request) -> Timer:
    """Start the timer of a fit. Raises ``UsageError`` for an invalid time limit."""
    limit = parameters.time_limit
    return Timer(None if limit is None else parse_duration(limit, "time_limit"))
