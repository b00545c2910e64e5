"""Notes of a plan: options without effect, unsuitable options, and slow choices."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import fdtrc

from partirvm.core.moments import Moments
from partirvm.core.rprop import groups
from partirvm.data import Source
from partirvm.kernels import NoKernel
from partirvm.learning.folds import LEAST
from partirvm.learning.forms import turnable
from partirvm.options import TABLE, Request, idle
from partirvm.options.option import NUMBERS, SEVERAL_CLASSES, TWO_CLASSES
from partirvm.planning.cost import Schedule
from partirvm.quoting import listed
from partirvm.setup.basis import codes_in_linear_basis
from partirvm.setup.kernel import chooses, codes_as_numbers, learns
from partirvm.strategies.problem import Problem
from partirvm.types import BIAS

Float = NDArray[np.float64]

LEVELS = (6, 1000)
"""Least and largest number of levels of a feature that is examined."""

ROWS_PER_LEVEL = 5
"""Minimum of the mean number of rows per level."""

UNORDERED = 0.5
"""Minimum of ``setup.remarks.disorder`` for codes: it is near 1 for levels in random order."""


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
    if coded := codes_among_numbers(source):
        remarks.append(
            f"whole numbers without a smooth order, probably codes: {listed(coded)}; if so, make them categories "
            "(a categorical column of a data frame, or ingest --categorical)"
        )
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


def codes_among_numbers(source: Source) -> tuple[str, ...]:
    """Name the numeric features whose levels differ in the mean of the first target, but in no smooth order.

    The first tile is examined, if its rows are a random sample of all rows; otherwise the result is empty. Targets with
    more than two classes are not examined, because the mean of their codes has no meaning.
    """
    columns = source.columns
    if not (source.shuffled or source.n_tiles == 1) or len(columns.classes or ()) > 2:
        return ()
    tile = source.tile(0)
    numbers = [j for j, name in enumerate(columns.features) if name not in columns.categories]
    return tuple(columns.features[j] for j in numbers if looks_coded(tile.X[:, j], tile.t[:, 0]))


def looks_coded(x: Float, t: Float) -> bool:
    """Return whether x (n,) has few levels, all whole numbers, whose mean targets differ in no smooth order.

    >>> random = np.random.default_rng(0)
    >>> hour, noise = random.integers(24, size=4000).astype(float), random.normal(size=4000)
    >>> looks_coded(hour, np.sin(hour / 3) + noise), looks_coded(hour, random.normal(size=24)[hour.astype(int)] + noise)
    (False, True)
    """
    if (x != np.rint(x)).any():
        return False
    levels, codes = np.unique(x, return_inverse=True)
    few = LEVELS[0] <= len(levels) <= min(LEVELS[1], len(x) // ROWS_PER_LEVEL)
    return bool(few) and disorder(codes, t) > UNORDERED


Int = NDArray[np.int64]

SIGNIFICANT = 1e-6
"""The p-value of the test of equal means below which the levels differ."""


def disorder(codes: Int, t: Float) -> float:
    """Return the mean squared difference of neighbouring levels' mean targets, relative to twice their variance.

    ``codes`` (n,) number the levels from 0, and t (n,) is the target. The result is near 1 for levels in random order,
    and near 0 if neighbouring levels have similar means. Both mean squares are weighted by the rows of the levels, and
    the sampling variance of the means is subtracted from both. The result is 0 if the levels do not differ
    significantly (F test of equal means).
    """
    t = t - t.mean()
    counts = np.bincount(codes)
    means = np.bincount(codes, weights=t) / counts
    others, freedom = len(counts) - 1, len(t) - len(counts)
    noise = float(np.sum((t - means[codes]) ** 2)) / freedom
    among = float(counts @ means**2)
    if not noise or fdtrc(others, freedom, among / others / noise) > SIGNIFICANT:
        return 0.0
    pairs = 1 / (1 / counts[1:] + 1 / counts[:-1])
    neighbours = (float(pairs @ np.diff(means) ** 2) - others * noise) / float(pairs.sum())
    return neighbours / (2 * (among - others * noise) / len(t))
