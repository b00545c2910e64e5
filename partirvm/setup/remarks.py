"""Notes of a plan: options without effect, unsuitable options, and slow choices."""

from __future__ import annotations

from partirvm.core.moments import Moments
from partirvm.core.rprop import groups
from partirvm.data import Source
from partirvm.kernels import NoKernel
from partirvm.learning.folds import LEAST
from partirvm.learning.forms import turnable
from partirvm.options import TABLE, Request, idle
from partirvm.options.option import NUMBERS, SEVERAL_CLASSES, TWO_CLASSES
from partirvm.planning.cost import Schedule
from partirvm.setup.basis import codes_in_linear_basis
from partirvm.setup.kernel import chooses, codes_as_numbers, learns
from partirvm.strategies.problem import Problem
from partirvm.types import BIAS


def remarks_of(
    parameters: Request,
    schedule: Schedule,
    fit_rows: str,
    source: Source,
    problem: Problem,
    moments: Moments,
    new_rows: int | None,
) -> tuple[str, ...]:
    """List the notes of the plan: options without effect, unsuitable options, and slow choices."""
    given, remarks = parameters, []
    chosen = {
        "target": (_kind_of_target(problem),),
        "strategy": schedule.traits,
        "fit_rows": (fit_rows,),
        "kernel": ("none" if given.kernel == NoKernel.name else "some",),
        "noise_variance": ("estimate" if problem.noise_variance is None else "given",),
    }
    without = idle(given, chosen)
    if not problem.bias and [*dict(problem.prior.fixed)] == [BIAS]:
        without.append("fixed_alpha")
    learned = learns(given) and groups(problem.empty.kernel.parameters) and problem.target_variance
    if given.gamma_prior != TABLE["gamma_prior"].default and not learned:
        without.append("gamma_prior")
    if given.metric != TABLE["metric"].default and not (learned and turnable(problem.empty.kernel, source.n_features)):
        without.append("metric")
    if without:
        remarks.append(f"without effect here: {', '.join(without)}")
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


def _kind_of_target(problem: Problem) -> str:
    """Return the kind of target, which decides which options apply: numeric, two classes or several classes."""
    if not problem.classifies:
        return NUMBERS
    return TWO_CLASSES if problem.n_classes <= 2 else SEVERAL_CLASSES


def enough_to_learn(parameters: Request, moments: Moments) -> bool:
    """True if kernel learning was requested and there are enough rows."""
    return learns(parameters) and not (chooses(parameters) and moments.targets.n < LEAST)
