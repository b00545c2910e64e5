"""The variances of the effects of groups, from an exact process with a learned kernel."""

from dataclasses import dataclass, replace

import numpy as np

from partirvm.learning.exact_process import FIRST_EFFECT, ProcessFit, ProcessRows, climb
from partirvm.learning.process_search import NOISE_RATIOS, in_order
from partirvm.learning.sample import SampledRows
from partirvm.process import in_threads
from partirvm.spec.problem import Problem

ROWS = 600
"""Maximum number of rows of the process."""

STEPS = 12
"""Maximum number of L-BFGS steps for the variances and a common factor of the widths."""

SURE = 2.0
"""Minimum gain of each further variance in nats."""


@dataclass(frozen=True)
class GroupVariances:
    """Variances of the effects of groups, in units of the scaled target.

    Attributes:
        intercept: τ², 0 without effects
        slopes: υ², the sum of the variances of all slopes, or 0
    """

    intercept: float = 0.0
    slopes: float = 0.0


def group_variances(sample: SampledRows, problem: Problem, seed: int) -> GroupVariances:
    """Return the variances of the effects that rows in groups show beside a kernel.

    Args:
        sample: random rows, with groups
        problem: a regression with a learned kernel
        seed: seed of the order of the rows
    """
    rows = ProcessRows.of(sample, problem, in_order(sample, seed)[:ROWS])
    without = replace(rows, groups=None)
    level = float(np.log(problem.target_variance))
    starts = [ProcessFit(problem.empty.kernel, level, level + ratio) for ratio in NOISE_RATIOS]
    levelled = in_threads(without.levelled, starts)
    profiles = in_threads(lambda fit: without.profile(fit)[0], levelled)
    start = levelled[int(np.argmax(profiles))]
    first = level + float(np.log(FIRST_EFFECT))

    def fitted(n_effects: int) -> ProcessFit:
        """Return the process with this number of variances."""
        process = rows if n_effects else without
        effects = (first,) * n_effects
        return climb(process, replace(start, effects=effects), STEPS, together=True)

    best, *others = in_threads(fitted, range(3))
    for fit in others:
        if fit.value > best.value + SURE:
            best = fit
    return GroupVariances(*np.exp(best.effects).tolist())
