"""Continue a kernel search that loses clearly to its rivals (``learning.left_out_judge``) with more
rows and more starts.

A process on a few hundred rows mistakes short waves and products of waves for noise. The first
*level* repeats the search on more rows, from starts that the first search does not try: narrower
widths, and short widths for only the features used by a forest of random trees. The second level
refines the best kernel so far on even more rows. Rows not used for learning decide between all
kernels found.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from partirvm.kernels import Directions, Kernel
from partirvm.kernels.composed import inside
from partirvm.kernels.radial import RadialKernel
from partirvm.learning.exact_process import ProcessFit, ProcessRows, climb, from_starts
from partirvm.learning.forms import FAMILIES, turnable, with_family
from partirvm.learning.left_out_judge import LeftOutJudge, LeftOutVerdict
from partirvm.learning.screening import WIDE, jittered
from partirvm.learning.steep import explains_little, steep
from partirvm.learning.turning import directions
from partirvm.process import in_threads
from partirvm.types import Float, Int

LEVEL_ROWS = (800, 1600)
"""Maximum number of rows at each of the two levels."""

LEVEL_WORK = 3.2e7
"""Maximum rows² × features per evaluation in a level."""

START_ROWS = 400
"""Maximum number of rows in the steps from each start."""

START_STEPS = 8
"""Maximum number of L-BFGS steps from each start."""

SCALES = (0.5, 2.0, 4.0, 8.0)
"""Inverse widths of starts, relative to gamma="scale"."""

FOREST_GAMMAS = (1.0, 4.0, 16.0)
"""Starting gammas for the features that the forest uses."""

TREES = 60
"""Number of random trees."""

LEAF_ROWS = 5
"""Minimum number of rows in a leaf."""

USED = 0.6
"""Minimum of importance × number of features for a feature to count as used: pure noise has .3 to
.5, the factors of a product of two features about 1."""

FIRST_NOISE = 0.01
"""Initial noise ÷ target variance."""

CLIMBED = 2
"""Number of starts that are continued on all rows of the first level."""

STEPS = 25
"""Maximum number of L-BFGS steps from each of these starts."""

LATER_STEPS = 12
"""Maximum number of L-BFGS steps at the second level."""

FAMILY_STEPS = 8
"""Maximum number of L-BFGS steps from one family to another."""


@dataclass(frozen=True)
class KernelTrial:
    """A kernel with its squared errors on left-out rows.

    Attributes:
        fit: the kernel and its variances.
        losses: (m,), squared errors on the left-out rows.
        rows: number of rows used to learn the kernel.
    """

    fit: ProcessFit
    losses: Float
    rows: int

    @property
    def loss(self) -> float:
        """The mean squared error."""
        return float(self.losses.mean())


@dataclass(frozen=True)
class Escalation:
    """The result of a continued search.

    Attributes:
        begun: the best kernel of the first search.
        best: the kernel with the smallest error on left-out rows.
        first: the verdict on the kernel of the first search.
        last: the verdict on ``best``.
        rows: the number of rows at each level.
    """

    begun: KernelTrial
    best: KernelTrial
    first: LeftOutVerdict
    last: LeftOutVerdict
    rows: tuple[int, ...]

    @property
    def improved(self) -> bool:
        """True if the best kernel was found at one of the levels."""
        return self.best is not self.begun

    def facts(self) -> dict[str, Any]:
        """Return the history's facts on the left-out rows, with errors in units of the scaled
        targets."""
        return {**asdict(self.last), "first_error": self.first.error, "levels": list(self.rows)}


def escalated(
    judge: LeftOutJudge, order: Int, fits: list[ProcessFit], rows: int, families: bool
) -> Escalation:
    """Continue the search until the rivals are no longer better, or all levels are done.

    judge : evaluates kernels on left-out rows
    order : (n,), row numbers in random order, from which the judge's rows are removed here
    fits : kernels of the first search
    rows : number of rows used to learn them
    families : whether the family of the kernel may change
    """
    begun = min(
        (KernelTrial(fit, judge.losses(fit), rows) for fit in fits), key=lambda trial: trial.loss
    )
    best = begun
    first = judge.verdict(begun.losses)
    verdict = first
    teachers = order[~np.isin(order, judge.new)]
    levels: list[int] = []
    most = int(np.sqrt(LEVEL_WORK / judge.problem.empty.scaling.n_inputs))
    for number, wanted in enumerate(LEVEL_ROWS):
        count = min(wanted, most, len(teachers))
        if not verdict.lost or count <= max(levels, default=0):
            break
        judge.sample.on_step("more rows")
        levels.append(count)
        level = ProcessRows.of(judge.sample, judge.problem, teachers[:count])
        if number == 0:
            trials = list(first_level(judge, teachers, level, best.fit, families))
        else:
            trials = second_level(judge, level, best.fit)
        best = min([best, *trials], key=lambda trial: trial.loss)
        verdict = judge.verdict(best.losses)
    return Escalation(begun, best, first, verdict, tuple(levels))


def first_level(
    judge: LeftOutJudge, teachers: Int, level: ProcessRows, before: ProcessFit, families: bool
) -> Iterator[KernelTrial]:
    """Yield trials of kernels with widths and with directions, found at a level from new starts.

    judge : evaluates kernels on left-out rows
    teachers : (n,), numbers of the rows used for learning, in random order
    level : the rows of the level
    before : the best kernel so far
    families : whether the family of the kernel may change
    """
    few = ProcessRows.of(judge.sample, judge.problem, teachers[-START_ROWS:])
    kernel = level.problem.empty.kernel
    starts = [*jittered(kernel.logs, SCALES, seed=1), *forest_starts(level)]
    followed = from_starts(few, starts, FIRST_NOISE, START_STEPS, CLIMBED)
    if before.kernel.parameters == kernel.parameters:
        followed.append(before)
    climbed = in_threads(lambda fit: climb(level, replace(fit, pairs=[]), STEPS), followed)
    trials = tried(judge, climbed, level)
    yield from trials
    if not trials:
        return
    widths = min(trials, key=lambda trial: trial.loss).fit
    yield from tried(judge, other_families(level, widths), level) if families else ()
    turned = directions(level, widths)
    if turned is not None:
        yield from tried(judge, [turned, steep(level)], level)


def second_level(judge: LeftOutJudge, level: ProcessRows, before: ProcessFit) -> list[KernelTrial]:
    """Return trials of kernels found at a level from the best one so far and, if that explains
    little, from gradients."""
    best = climb(level, replace(before, pairs=[]), LATER_STEPS)
    fits = [best]
    if not inside(best.kernel, level.X.shape[1], Directions):
        turned = directions(level, best, 1)
        fits += [] if turned is None else [turned]
    if explains_little(level, best) and turnable(level.problem.empty.kernel, level.X.shape[1]):
        fits.append(steep(level))
    return tried(judge, fits, level)


def tried(judge: LeftOutJudge, fits: Sequence[ProcessFit], level: ProcessRows) -> list[KernelTrial]:
    """Return the trials of the kernels found at a level, except kernels whose covariance was not
    definite."""
    return [
        KernelTrial(fit, judge.losses(fit), len(level.X)) for fit in fits if np.isfinite(fit.value)
    ]


def forest_starts(rows: ProcessRows) -> list[Float]:
    """Return log parameters (p,) with short widths only for the features that random trees use."""
    from sklearn.ensemble import ExtraTreesRegressor

    kernel: Kernel = rows.problem.empty.kernel
    d = rows.X.shape[1]
    radial = inside(kernel, d, RadialKernel)
    if len(kernel.logs) != d or len(radial) != 1:
        return []
    forest = ExtraTreesRegressor(TREES, min_samples_leaf=LEAF_ROWS, random_state=0)
    targets = rows.t[:, 0] if rows.t.shape[1] == 1 else rows.t
    shares = forest.fit(rows.X, targets).feature_importances_ * d
    used = (shares > USED) & np.isfinite(kernel.logs)
    wide = kernel.logs + np.log(WIDE)
    return [np.where(used, np.log(gamma), wide) for gamma in FOREST_GAMMAS if used.any()]


def other_families(rows: ProcessRows, widths: ProcessFit) -> list[ProcessFit]:
    """Return fits of the other families, starting from ``widths``."""
    d = rows.X.shape[1]
    present = {radial.name for radial, _ in inside(widths.kernel, d, RadialKernel)}
    names = [name for name in FAMILIES if name not in present]
    return in_threads(
        lambda name: climb(
            rows,
            replace(widths, kernel=with_family(widths.kernel, name, d), pairs=[]),
            FAMILY_STEPS,
        ),
        names,
    )
