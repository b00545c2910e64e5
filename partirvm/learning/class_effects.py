"""Sums of effects for classes: the ANOVA kernel as an alternative to radial kernels.

As for a regression (``learning.effects``), a process on few rows tells at a small price whether
sums are worth a search: there, one share and one width serve all features. The log loss of other
rows must fall by more than ``SURE`` standard errors, and again with a share and a width per
feature, compared with radial kernels. The evidence is no guide: on spambase, it rises by 200 nats
with sums of effects, while the log loss of left-out rows rises from .213 to .266.

Log losses with 1,000 rows, before and after: a sum of 6 effects .552 and .391, splice .262 and
.141.
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
from partirvm.learning.forms import EACH, EFFECTS, ONE
from partirvm.learning.process_search import LAST_STEPS
from partirvm.learning.process_steps import WORK, without_weak_features
from partirvm.learning.regression_search import EFFECTS_ROWS, LAST_ROWS, WIDE
from partirvm.types import Float, Int

NEW_ROWS = 400
"""Maximum number of other rows that are predicted in the first comparison."""

MUCH_LOWER = 0.9
"""Ratio to the log loss of radial kernels below which many rows use sums of effects. For 6 effects
and 2,200 rows, radial kernels have a log loss of .53, although they go on to learn from all rows;
1,000 rows and sums have .39."""

HOPEFUL = 1.0
"""Minimum gain with a Gaussian base, in standard errors, from which other bases are tried: on
spambase, they would take a third of the time of the whole fit."""

FEW_STEPS = 6
"""Maximum number of L-BFGS steps in the first comparison."""

BASE_STEPS = 3
"""Maximum number of L-BFGS steps from one base to another in the first comparison."""

ONE_STEPS = 10
"""Maximum number of L-BFGS steps for one width."""

STEPS = 15
"""Maximum number of L-BFGS steps for the widths and shares of all features."""


@dataclass(frozen=True)
class ClassEffects:
    """Sums of effects that predict left-out rows better than radial kernels do.

    Attributes:
        rows: the rows from which they were learned
        fit: the sums of effects
        figures: the compared figures, for the history
    """

    rows: ProcessRows
    fit: ProcessFit
    figures: dict[str, Any]


@dataclass(frozen=True)
class LeftOutForms:
    """The forms of a kernel, compared on left-out rows.

    Attributes:
        losses: the log loss of each form's process in each row (n,), times the row weight
        summed: sums of effects, learned from the rows of the last split
    """

    losses: dict[str, Float]
    summed: ProcessFit

    @property
    def means(self) -> dict[str, float]:
        """The mean log loss of each form."""
        return {form: float(losses.mean()) for form, losses in self.losses.items()}

    def choose_sums(self, most: float) -> bool:
        """Return True if sums of effects have clearly lower losses than the best radial form.

        Args:
            most: maximum ratio of the losses
        """
        means = self.means
        rival = min((ONE, EACH), key=means.__getitem__)
        is_sure = is_lower(self.losses[EFFECTS], self.losses[rival], SURE)
        return is_sure and means[EFFECTS] < most * means[rival]


def class_effects(
    rows: ProcessRows, radial: ProcessFit, order: Int, most: int
) -> ClassEffects | None:
    """Return sums of effects, refined on more rows, if they clearly lower the log loss of left-out
    rows; None otherwise.

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
    forms = left_out_forms(rows, radial, start, order, most)
    # other kernels would go on to learn from many rows, sums would not
    if not forms.choose_sums(MUCH_LOWER if len(order) > rows.sample.effort.few else 1.0):
        return None
    last = min(max(int(np.sqrt(WORK / d)), most), LAST_ROWS)
    more = ProcessRows.of(rows.sample, rows.problem, order[:last])
    fit = without_weak_features(more, climb(more, replace(forms.summed, pairs=[]), LAST_STEPS))
    facts = {"form": EFFECTS, "rows": len(forms.losses[EFFECTS]), "losses": forms.means}
    return ClassEffects(more, fit, facts)


def first_comparison(rows: ProcessRows, radial: ProcessFit, order: Int) -> ProcessFit | None:
    """Return sums of effects with one width and one share, learned from few rows, as the start of a
    search; None if they do not lower the log loss of other rows.

    Args:
        rows: the rows of the process
        radial: the best kernel with one width
        order: (n,), row numbers in random order
    """
    d = rows.X.shape[1]
    kernel = start_of(rows.problem.empty.kernel, d)
    if kernel is None:
        return None
    rows.sample.on_step("sums of effects")
    few = ProcessRows.of(rows.sample, rows.problem, order[:FEW_ROWS])
    numbers = order[FEW_ROWS : FEW_ROWS + NEW_ROWS]
    new = ProcessRows.of(rows.sample, rows.problem, numbers)

    def losses_of(fit: ProcessFit) -> Float:
        return row_losses([left_out_classes(few, fit, new, numbers)])

    scale = kernel.rescaled(float(d))  # each feature is compared on its own
    tied = replace(scale, gamma=scale.gamma[:1], shares=(SINGLE_SHARES / d,))
    by_one = losses_of(climb(few, replace(radial, pairs=[]), FEW_STEPS, together=True))
    best = climb(few, replace(radial, kernel=tied, pairs=[]), FEW_STEPS)
    losses = losses_of(best)
    if not is_lower(losses, by_one, HOPEFUL):
        return None
    for base in BASES:
        other = _with_base(few, best, base)
        other_losses = losses_of(other)
        if other_losses.mean() > losses.mean():
            break
        best = other
        losses = other_losses
    if not is_lower(losses, by_one, SURE):
        return None
    return replace(best, kernel=best.kernel.per_feature(d), pairs=[])


def _with_base(few: ProcessRows, fit: ProcessFit, base: str) -> ProcessFit:
    """Return the fit with another base, after a few steps with the measured curvature."""
    assert isinstance(fit.kernel, Anova)
    return climb(few, replace(fit, kernel=replace(fit.kernel, base=base)), BASE_STEPS)


def left_out_forms(
    rows: ProcessRows, radial: ProcessFit, start: ProcessFit, order: Int, most: int
) -> LeftOutForms:
    """Predict left-out rows with one width, with a width per feature and with sums of effects, each
    learned from the other rows.

    Args:
        rows: the rows of the process
        radial: the best kernel with one width
        start: sums of effects from which the search starts
        order: (n,), row numbers in random order
        most: maximum number of rows of a process
    """
    parts: dict[str, list[LeftOutClasses]] = {ONE: [], EACH: [], EFFECTS: []}
    summed = start
    for kept, outside in search_splits(order, most, rows.sample.groups_of(order)):
        known = ProcessRows.of(rows.sample, rows.problem, kept)
        new = ProcessRows.of(rows.sample, rows.problem, outside)
        by_one = climb(known, replace(radial, pairs=[]), ONE_STEPS, together=True)
        summed = climb(known, start, STEPS)
        fits = {ONE: by_one, EACH: climb(known, by_one, STEPS), EFFECTS: summed}
        for form, fit in fits.items():
            parts[form].append(left_out_classes(known, fit, new, outside))
    return LeftOutForms({form: row_losses(part) for form, part in parts.items()}, summed)
