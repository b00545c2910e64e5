"""Sums of effects: the ANOVA kernel as an alternative to a width per feature or per direction.

A radial kernel of many features cannot learn a sum of effects from a few thousand rows
(``kernels.anova``). An exact process on ``FEW_ROWS`` rows tells at a small price whether sums are
worth a search. It starts from effects of single features, and from the product of the features'
kernels that the search of widths found, of which a sum with large shares is a close relative. If
either has more evidence than widths, or predicts other rows clearly better, the search goes on with
all its rows. It starts from single features: from the product of kernels, it ends at a sum of high
interactions near the widths, with about the same evidence and larger errors (hourly bicycles, two
draws of 2,000 rows: .266 and .267, and .253 and .259 from single features).

Rows from which nothing was learned choose the base and judge in the end, since the evidence
misleads. On concrete strength (three draws of 824 rows), it prefers directions by 6 to 17 nats,
although sums have errors of .25, .22 and .20 and directions .31, .28 and .23. On energy, it prefers
sums by 50 nats, which have the same errors as widths.
"""

from dataclasses import replace

import numpy as np

from partirvm.core.groups import standard_error
from partirvm.kernels import Anova, Categorical, Kernel
from partirvm.kernels.composed import inside
from partirvm.kernels.radial import RadialKernel
from partirvm.learning.exact_process import ProcessFit, ProcessRows, climb
from partirvm.learning.unused_rows import UnusedRows
from partirvm.process import in_threads
from partirvm.types import Float, Int

FEW_ROWS = 200
"""Number of rows of the first comparison: an evaluation takes a fifth of the time of 400 rows."""

BASE = "matern32"
"""Base with which a search begins, halfway between smooth and rough."""

OTHER_BASES = ("gaussian", "laplacian")
"""Bases that are tried after the search."""

FEW_STEPS = 10
"""Maximum number of L-BFGS steps from each start in the first comparison."""

STEPS = 20
"""Maximum number of L-BFGS steps with all rows of the search."""

BASE_STEPS = 8
"""Maximum number of L-BFGS steps from one base to another."""

BASES = ("matern32", "laplacian")
"""Bases that a classification tries after the Gaussian one, from smooth to rough."""

MOST_FEATURES = 64
"""Maximum number of features: with more, an evaluation takes too long."""

SINGLE_SHARES = 0.1
"""Sum of the shares in the start from effects of single features."""

JOINT_SHARE = 3.0
"""Share of each feature in the start from the product of the features' kernels."""

NATS = 0.005
"""Rise of the evidence in the first comparison, in nats per row, from which sums are worth a
search. It only saves time: on concrete strength, where sums lower errors by 6 to 18 %, it is 1.2 to
7.4 nats with 200 rows; of 13 public sets without use for sums, ten are below 1 nat."""


def start_of(kernel: Kernel, n_features: int) -> Anova | None:
    """Return the ANOVA kernel with the scales of a kernel of widths; None if it has no single
    radial part, one feature, or too many."""
    radial = inside(kernel, n_features, RadialKernel)
    coded = inside(kernel, n_features, Categorical)
    if len(radial) != 1 or not 1 < n_features <= MOST_FEATURES:
        return None
    gamma = np.zeros(n_features)
    for part, places in [*radial, *coded]:
        gamma[places] = part.widths(len(places)) / getattr(part, "typical_gamma", 1.0)
    positions = np.concatenate([places for _, places in [*radial, *coded]])
    if len(np.unique(positions)) < n_features or len(positions) > n_features:
        return None
    categorical = sorted(j for _, places in coded for j in places.tolist())
    return Anova(tuple(gamma.tolist()), categorical=tuple(categorical))


def effects(
    few: ProcessRows, rows: ProcessRows, unused: UnusedRows, widths: ProcessFit
) -> ProcessFit | None:
    """Return the best ANOVA kernel, or None if it is not worth a search.

    Args:
        few: ``FEW_ROWS`` random rows for the first comparison
        rows: the rows of the search
        unused: rows from which nothing was learned, which judge
        widths: the best kernel of widths on ``rows``
    """
    d = rows.X.shape[1]
    scale = start_of(rows.problem.empty.kernel, d)
    joint = start_of(widths.kernel, d)
    if scale is None or joint is None:
        return None
    single = scale.rescaled(float(d))  # each feature is compared on its own
    starts = [
        replace(single, shares=(SINGLE_SHARES / d,) * d, base=BASE).per_feature(d),
        replace(joint, shares=(JOINT_SHARE,) * d, base=BASE),
    ]
    climbed = in_threads(lambda kernel: _first_steps(few, kernel), starts)
    radial = climb(few, replace(widths, pairs=[], evaluations=0), FEW_STEPS)
    if not any(_is_promising(few, unused.new, fit, radial) for fit in climbed):
        return None
    best = climb(rows, replace(climbed[0], pairs=[]), STEPS)
    losses = unused.losses(best).losses
    if _is_clearly_worse(losses, unused.losses(widths).losses, unused.new_groups):
        return None
    others: list[ProcessFit] = in_threads(lambda base: _with_base(rows, best, base), OTHER_BASES)
    lowest = float(losses.mean())
    chosen = best
    for other in others:
        loss = float(unused.losses(other).losses.mean())
        if loss < lowest:
            lowest = loss
            chosen = other
    return chosen


def _is_promising(rows: ProcessRows, new: ProcessRows, fit: ProcessFit, radial: ProcessFit) -> bool:
    """Return True if sums have more evidence than widths, or predict new rows better.

    Args:
        rows: the rows of both processes
        new: the rows that they predict
        fit: sums
        radial: widths
    """
    rises = fit.value > radial.value + NATS * len(rows.X)
    return rises or _predicts_better(rows, new, fit, radial)


def _predicts_better(
    rows: ProcessRows, new: ProcessRows, fit: ProcessFit, other: ProcessFit
) -> bool:
    """Return True if a fit raises the log density of new rows by more than its standard error, and
    does not raise their squared errors by more.

    Args:
        rows: the rows of both processes
        new: the rows that they predict
        fit: a fit
        other: the fit with which it is compared
    """
    if not np.isfinite(fit.value):
        return False
    errors, densities = rows.predicted(fit, new)
    other_errors, other_densities = rows.predicted(other, new)
    squares = (errors**2).mean(axis=1)
    other_squares = (other_errors**2).mean(axis=1)
    return _is_clearly_worse(-other_densities, -densities) and not _is_clearly_worse(
        squares, other_squares
    )


def _is_clearly_worse(losses: Float, other: Float, groups: Int | None = None) -> bool:
    """Return True if losses (m,) are higher than others by more than a standard error.

    Args:
        losses: losses of new rows (m,)
        other: losses with another kernel (m,)
        groups: groups of the rows (m,), or None
    """
    gain = losses - other
    return bool(gain.mean() > standard_error(gain, groups))


def _first_steps(few: ProcessRows, kernel: Anova) -> ProcessFit:
    """Return the fit after a few steps from a kernel with little noise."""
    level = float(np.log(few.problem.target_variance))
    start = few.levelled(ProcessFit(kernel, level, level + float(np.log(0.01))))
    return climb(few, start, FEW_STEPS)


def _with_base(rows: ProcessRows, fit: ProcessFit, base: str) -> ProcessFit:
    """Return the fit with another base, after a few steps."""
    assert isinstance(fit.kernel, Anova)
    kernel = replace(fit.kernel, base=base)
    return climb(rows, replace(fit, kernel=kernel, pairs=[]), BASE_STEPS)
