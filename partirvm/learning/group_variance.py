"""The variance τ² of the effects of groups, from an exact process with a learned kernel."""

from dataclasses import replace

import numpy as np

from partirvm.learning.exact_process import ProcessFit, ProcessRows, climb
from partirvm.learning.process_search import NOISE_RATIOS, in_order
from partirvm.learning.sample import SampledRows
from partirvm.process import in_threads
from partirvm.spec.problem import Problem

ROWS = 600
"""Maximum number of rows of the process."""

STEPS = 12
"""Maximum number of L-BFGS steps for the variances and a common factor of the widths."""

SURE = 2.0
"""Minimum gain of the effects in nats."""


def group_variance(sample: SampledRows, problem: Problem, seed: int) -> float:
    """Return τ² in units of the scaled target; 0 if the rows show no effects of groups.

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
    alone, beside = in_threads(
        lambda process: climb(process, start, STEPS, together=True), [without, rows]
    )
    return float(np.exp(beside.effect)) if beside.value > alone.value + SURE else 0.0
