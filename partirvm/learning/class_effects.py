"""Sums of effects for classes: the ANOVA kernel as an alternative to radial kernels.

As for a regression (``learning.effects``), a process on few rows tells at a small price whether
sums are worth a search: there, one share and one width serve all features. The log loss of other
rows must fall by more than ``SURE`` standard errors, and again with a share and a width per
feature, compared with radial kernels. The evidence is no guide: on spambase, it rises by 200 nats
with sums of effects, while the log loss of left-out rows rises from .213 to .266.

Log losses with 1,000 rows, before and after: a sum of 6 effects .552 and .391, of 12 effects .67
and .42, splice .262 and .141.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from partirvm.core.held_back import search_splits
from partirvm.core.ramp import LeftOutClasses
from partirvm.kernels import Anova
from partirvm.learning.class_losses import SURE, is_lower, left_out_classes, row_losses
from partirvm.learning.effects import BASES, FEW_ROWS, SINGLE_SHARES, start_of
from partirvm.learning.exact_process import ProcessFit, ProcessRows, climb
from partirvm.learning.forms import EACH, EFFECTS
from partirvm.learning.process_search import (
    EFFECTS_ROWS,
    LAST_ROWS,
    LAST_STEPS,
    MUCH,
    WIDE,
    WORK,
)
from partirvm.types import Int

NEW_ROWS = 400
"""Maximum number of other rows that are predicted in the first comparison."""

ONE_STEPS = 10
"""Maximum number of L-BFGS steps for one width."""

FEW_STEPS = 6
"""Maximum number of L-BFGS steps in the first comparison."""

BASE_STEPS = 3
"""Maximum number of L-BFGS steps from one base to another in the first comparison."""

STEPS = 15
"""Maximum number of L-BFGS steps for the widths and shares of all features."""


@dataclass(frozen=True)
class ClassEffects:
    """Sums of effects that were compared with radial kernels on left-out rows.

    Attributes:
        fit: the sums of effects, refined on more rows
        figures: the compared figures, for the history
    """

    fit: ProcessFit
    figures: dict[str, Any]


def class_effects(
    rows: ProcessRows, radial: ProcessFit, order: Int, most: int
) -> ClassEffects | None:
    """Return sums of effects if they clearly lower the log loss of left-out rows; None otherwise.

    Args:
        rows: the rows of the process
        radial: the best kernel with one width
        order: (n,), row numbers in random order
        most: maximum number of rows of a process
    """
    d = rows.X.shape[1]
    if len(order) < max(EFFECTS_ROWS, WIDE * d):
        return None
    start = first_comparison(rows, radial, order)
    if start is None:
        return None
    sample = rows.sample
    sample.on_step("sums of effects")
    forms: dict[str, list[LeftOutClasses]] = {"one width": [], EACH: [], EFFECTS: []}
    summed = start
    for kept, outside in search_splits(order, most, sample.groups_of(order)):
        known = ProcessRows.of(sample, rows.problem, kept)
        new = ProcessRows.of(sample, rows.problem, outside)
        one = climb(known, replace(radial, pairs=[]), ONE_STEPS, together=True)
        each = climb(known, one, STEPS)
        summed = climb(known, start, STEPS)
        for form, fit in zip(forms, (one, each, summed), strict=True):
            forms[form].append(left_out_classes(known, fit, new, outside))
    losses = {form: row_losses(parts) for form, parts in forms.items()}
    means = {form: float(loss.mean()) for form, loss in losses.items()}
    rival = min(("one width", EACH), key=means.__getitem__)
    if not is_lower(losses[EFFECTS], losses[rival], SURE):
        return None
    if len(order) > sample.effort.few and means[EFFECTS] > MUCH * means[rival]:
        return None
    last = min(max(int(np.sqrt(WORK / d)), most), LAST_ROWS)
    more = ProcessRows.of(sample, rows.problem, order[:last])
    fit = climb(more, replace(summed, pairs=[]), LAST_STEPS)
    return ClassEffects(fit, {"form": EFFECTS, "rows": len(losses[rival]), "losses": means})


def first_comparison(rows: ProcessRows, radial: ProcessFit, order: Int) -> ProcessFit | None:
    """Return sums of effects with one width and one share, as the start of a search; None if they
    do not lower the log loss of other rows.

    Args:
        rows: the rows of the process
        radial: the best kernel with one width
        order: (n,), row numbers in random order
    """
    d = rows.X.shape[1]
    kernel = start_of(rows.problem.empty.kernel, d)
    if kernel is None:
        return None
    scale = kernel.rescaled(float(d))  # each feature is compared on its own
    few = ProcessRows.of(rows.sample, rows.problem, order[:FEW_ROWS])
    numbers = order[FEW_ROWS : FEW_ROWS + NEW_ROWS]
    new = ProcessRows.of(rows.sample, rows.problem, numbers)
    one = climb(few, replace(radial, pairs=[]), FEW_STEPS, together=True)
    known = row_losses([left_out_classes(few, one, new, numbers)])
    tied = replace(scale, gamma=scale.gamma[:1], shares=(SINGLE_SHARES / d,))
    best = climb(few, replace(radial, kernel=tied, pairs=[]), FEW_STEPS)
    losses = row_losses([left_out_classes(few, best, new, numbers)])
    for base in BASES:
        if losses.mean() > known.mean():
            return None
        assert isinstance(best.kernel, Anova)
        other = climb(few, replace(best, kernel=replace(best.kernel, base=base)), BASE_STEPS)
        other_losses = row_losses([left_out_classes(few, other, new, numbers)])
        if other_losses.mean() > losses.mean():
            break
        best = other
        losses = other_losses
    if not is_lower(losses, known, SURE):
        return None
    return replace(best, kernel=best.kernel.per_feature(d), pairs=[])
