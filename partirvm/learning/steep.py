"""Directions for functions with more detail than the evidence of a few hundred rows can resolve.

For a wave along an oblique direction, such as sin(4 aᵀx) of ten features, no feature widths raise
the evidence above its value for noise alone. The mean of a process that nearly interpolates the
targets still has gradients along ``a``. The gradients' mean outer product becomes the metric of the
next process, and so on (recursive feature machines: Radhakrishnan et al. 2024, *Science* 383:1461);
within ten turns, the metric contains the directions that matter. Left-out rows decide whether to
use it, because the evidence does not penalise directions.
"""

from dataclasses import replace

import numpy as np

from partirvm.core.groups import standard_error
from partirvm.core.held_back import equal_split
from partirvm.kernels.radial import RadialKernel
from partirvm.learning.exact_process import ProcessFit, ProcessRows, climb
from partirvm.learning.forms import along_directions, turnable
from partirvm.learning.sample import SampledRows
from partirvm.spec.problem import Problem
from partirvm.types import Float, Int

LITTLE = 0.05
"""Gain in evidence over noise alone, in nats per row, below which a kernel is said to explain
little."""

STEEP_ROWS = 1000
"""Maximum number of rows used for learning."""

LEAST_ROWS = 100
"""Minimum total number of rows for learning and for the decision."""

STARTS = (1.0, 2.0)
"""Initial inverse widths, relative to gamma="scale"."""

STEEP_NOISE = 0.05
"""Noise ÷ target variance during the search for the metric."""

STEEP_TURNS = 10
"""Number of turns."""

LEAST_SHARE = 1e-4
"""Minimum gamma as a fraction of the largest gamma."""

CLIMBED = 12
"""Maximum number of L-BFGS steps starting from the metric."""

CLEAR = 2.0
"""Minimum gain on left-out rows, in standard errors."""

PREDICTED_ROWS = 200
"""Number of other rows that a fit must predict better than noise alone does."""


def noise_alone(rows: ProcessRows) -> ProcessFit:
    """Return the fit in which only the leading columns explain the targets."""
    level = float(np.log(rows.problem.target_variance))
    return rows.levelled(ProcessFit(rows.problem.empty.kernel, level - 14.0, level))


def explains_little(rows: ProcessRows, fit: ProcessFit) -> bool:
    """Return True if a fit's evidence is hardly higher than with noise alone."""
    bare = rows.evaluate(noise_alone(rows))
    return bare is not None and fit.value - bare[0] < LITTLE * len(rows.X)


def predicts_little(rows: ProcessRows, new: ProcessRows, fit: ProcessFit) -> bool:
    """Return True if the log density of new rows is hardly higher than with noise alone.

    A dozen widths can raise the evidence of a few hundred rows of noise by as much as an effect.

    Args:
        rows: the rows of the process
        new: rows from which nothing was learned
        fit: a fit to ``rows``
    """
    gain = rows.predicted(fit, new)[1] - rows.predicted(noise_alone(rows), new)[1]
    return bool(gain.mean() < LITTLE)


def steep_directions(
    sample: SampledRows, problem: Problem, order: Int, most: int, widths: ProcessFit
) -> ProcessFit | None:
    """Return a kernel of directions that predicts left-out rows clearly better than widths do, or
    None if there is none.

    Args:
        sample: the sample of rows
        problem: the problem whose kernel is learned
        order: (n,), row numbers in random order
        most: maximum number of rows used for learning
        widths: the fit of widths
    """
    count = min(len(order) * 4 // 5, STEEP_ROWS, most)
    if len(order) < LEAST_ROWS or not turnable(
        problem.empty.kernel, problem.empty.scaling.n_inputs
    ):
        return None
    split = equal_split(order, count, sample.groups_of(order))
    rows = ProcessRows.of(sample, problem, split.known)
    left_out = ProcessRows.of(sample, problem, split.new)
    best = steep(rows)
    if not np.isfinite(best.value):
        return None
    densities = [rows.predicted(fit, left_out)[1] for fit in (widths, best)]
    gain = densities[1] - densities[0]
    error = standard_error(gain, sample.groups_of(split.new))
    return best if gain.mean() > CLEAR * error else None


def steep(rows: ProcessRows) -> ProcessFit:
    """Return a process whose metric follows from its gradients, from the better of the
    ``STARTS``."""
    turned = [_turned(rows, start) for start in STARTS]
    return climb(rows, max(turned, key=lambda fit: rows.profile(fit)[0]), CLIMBED)


def _turned(rows: ProcessRows, start: float) -> ProcessFit:
    """Return a process whose metric follows from its gradients, after ``STEEP_TURNS`` turns from
    equal widths."""
    kernel = rows.problem.empty.kernel
    level = float(np.log(rows.problem.target_variance))
    logs = kernel.logs + 2 * np.log(start)
    first = ProcessFit(kernel.with_logs(logs), level, level + float(np.log(STEEP_NOISE)))
    fit = first
    for _ in range(STEEP_TURNS):
        rows.sample.check_interrupted()
        outer = rows.outer_product(fit)
        if not outer.any():
            return first

        def gamma(old: RadialKernel, columns: Int, axes: Float, outer: Float = outer) -> Float:
            """Return the gammas (r,) of directions, in proportion to the squared gradients along
            them.

            Args:
                old: the radial kernel without directions
                columns: (r,), numbers of its features
                axes: (r, r), directions of these features, one per row
                outer: (d, d), sum of the outer products of the gradients
            """
            slopes = np.einsum("ij,jk,ik->i", axes, outer[np.ix_(columns, columns)], axes)
            shares = np.maximum(slopes / max(slopes.max(), np.finfo(float).tiny), LEAST_SHARE)
            return np.asarray(old.widths(len(columns)).sum() * shares / shares.sum())

        fit = replace(first, kernel=along_directions(first.kernel, outer, gamma))
    return rows.levelled(fit)
