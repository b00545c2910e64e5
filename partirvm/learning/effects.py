"""Sums of effects: the ANOVA kernel as an alternative to a width per feature or per direction.

A radial kernel of many features cannot learn a sum of effects from a few thousand rows
(``kernels.anova``). An exact process on ``FEW_ROWS`` rows tells at a small price whether sums are
worth a search. It starts from effects of single features, and from the product of the features'
kernels that the search of widths found, of which a sum with large shares is a close relative. Only
if sums then have clearly more evidence than widths, or predict other rows clearly better, the
search goes on with all its rows and with other bases. The evidence misleads where errors have long
tails (Boston housing, 200 rows: it rises by 6 nats, and the log density of other rows falls by .1),
so that left-out rows decide in the end.
"""

from dataclasses import replace

import numpy as np

from partirvm.kernels import Anova, Categorical, Kernel
from partirvm.kernels.composed import inside
from partirvm.kernels.radial import RadialKernel
from partirvm.learning.exact_process import ProcessFit, ProcessRows, climb
from partirvm.process import in_threads

FEW_ROWS = 200
"""Number of rows of the first comparison: an evaluation takes a fifth of the time of 400 rows."""

FEW_STEPS = 10
"""Maximum number of L-BFGS steps from each start in the first comparison."""

STEPS = 20
"""Maximum number of L-BFGS steps with all rows of the search."""

BASE_STEPS = 8
"""Maximum number of L-BFGS steps from one base to another."""

BASES = ("matern32", "laplacian")
"""Bases that are tried after the Gaussian one, from smooth to rough, as long as the evidence
rises."""

MOST_FEATURES = 64
"""Maximum number of features: with more, an evaluation takes too long."""

SINGLE_SHARES = 0.1
"""Sum of the shares in the start from effects of single features."""

JOINT_SHARE = 3.0
"""Share of each feature in the start from the product of the features' kernels."""

NATS = 0.02
"""Rise of the evidence in the first comparison, in nats per row, from which sums are worth a
search. Of eight public sets below it, one gained from sums in the end."""

NEW_ROWS = 200
"""Number of other rows that are predicted in the first comparison."""


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


def effects(rows: ProcessRows, new: ProcessRows, widths: ProcessFit) -> ProcessFit | None:
    """Return the best ANOVA kernel, or None if it is not worth a search.

    Args:
        rows: the rows of the search
        new: other rows, on which a first comparison is judged
        widths: the best kernel of widths on ``rows``
    """
    d = rows.X.shape[1]
    scale = start_of(rows.problem.empty.kernel, d)
    joint = start_of(widths.kernel, d)
    if scale is None or joint is None:
        return None
    single = scale.rescaled(float(d))  # each feature is compared on its own
    few = rows.first(FEW_ROWS)
    starts = [
        replace(single, shares=(SINGLE_SHARES / d,) * d).per_feature(d),
        replace(joint, shares=(JOINT_SHARE,) * d),
    ]
    climbed = in_threads(lambda kernel: _first_steps(few, kernel), starts)
    best = max(climbed, key=lambda fit: fit.value)
    radial = climb(few, replace(widths, pairs=[], evaluations=0), FEW_STEPS)
    rises = best.value > radial.value + NATS * len(few.X)
    if not rises and not _predicts_better(few, new, best, radial):
        return None
    best = climb(rows, replace(best, pairs=[]), STEPS)
    if best.value < widths.value:
        return None
    for base in BASES:
        other = _with_base(rows, best, base)
        if other.value <= best.value:
            break
        best = other
    return best


def _predicts_better(
    rows: ProcessRows, new: ProcessRows, fit: ProcessFit, other: ProcessFit
) -> bool:
    """Return True if a fit raises the log density of new rows by more than its standard error.

    Args:
        rows: the rows of both processes
        new: the rows that they predict
        fit: a fit
        other: the fit with which it is compared
    """
    if not np.isfinite(fit.value):
        return False
    gains = rows.predicted(fit, new)[1] - rows.predicted(other, new)[1]
    return bool(gains.mean() > gains.std() / np.sqrt(len(gains)))


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
