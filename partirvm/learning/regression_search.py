"""The data of a regression's kernel search: its rows, and the kernels of each form."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from partirvm.core.held_back import LEAST_SEARCH_ROWS
from partirvm.learning.effects import FEW_ROWS, effects
from partirvm.learning.escalation import Escalation, escalated
from partirvm.learning.exact_process import ProcessFit, ProcessRows
from partirvm.learning.jump_search import (
    FIRST_NATS,
    JumpSearch,
    first_gain,
    jumps,
    plain_numbers,
)
from partirvm.learning.left_out_judge import LeftOutJudge, judge_of
from partirvm.learning.process_steps import process_record
from partirvm.learning.sample import SampledRows
from partirvm.learning.search import SearchSettings
from partirvm.learning.steep import (
    PREDICTED_ROWS,
    explains_little,
    predicts_little,
)
from partirvm.learning.unused_rows import UnusedRows
from partirvm.spec.problem import Problem
from partirvm.types import Int

LAST_ROWS = 1000
"""Number of rows in the last steps from the best kernel."""

EFFECTS_ROWS = 400
"""Minimum number of rows for sums of effects, which left-out rows must judge."""

WIDE = 10
"""Rows per feature below which the search is restarted in each fold, and the mean alone is a
candidate."""

TAUGHT = 0.75
"""Maximum fraction of the rows from which sums of effects are learned; the others judge. Rows that
taught are no judges: on energy, sums gain 3 standard errors there, and .4 on other rows."""


@dataclass(frozen=True)
class RegressionSearch:
    """The data shared by all parts of a regression's kernel search.

    Attributes:
        sample: the sample of rows.
        problem: the problem with the scaling of the inputs and the initial kernel.
        settings: settings of the search.
        order: (n,), row numbers in random order.
        most: maximum number of rows of the first search.
        facts: compared figures for the history.
    """

    sample: SampledRows
    problem: Problem
    settings: SearchSettings
    order: Int
    most: int
    facts: dict[str, Any]

    @property
    def d(self) -> int:
        """The number of inputs of the kernel."""
        return self.problem.empty.scaling.n_inputs

    @property
    def ends_with_process(self) -> bool:
        """True if a process determines the kernel: there are few rows, and the search used as many
        as it should."""
        effort = self.sample.effort
        n_rows = len(self.order)
        # the tied evidence would explain effects of groups by narrow widths
        if self.problem.group_effects:
            return True
        return self.most >= min(effort.rows, n_rows) and n_rows <= effort.few

    def rows(self, numbers: Int) -> ProcessRows:
        """Return the sample rows with these numbers."""
        return ProcessRows.of(self.sample, self.problem, numbers)

    def judge(self) -> LeftOutJudge | None:
        """Return the judge of kernels if the kernel's form is to be chosen.

        There is none for rows in groups: effects of groups limit the error of any kernel, so that
        more rows would not improve it.
        """
        settings = self.settings
        chosen = settings.learning.metric == "auto"
        grouped = self.sample.groups_of(self.order[:1]) is not None
        if not settings.judged or not chosen or not self.problem.target_variance or grouped:
            return None
        return judge_of(self.sample, self.problem, self.order, settings.residuals)

    @property
    def taught(self) -> Int:
        """Numbers of the rows from which sums of effects are learned."""
        return self.order[: min(self.most, int(TAUGHT * len(self.order)))]

    def unused(self) -> UnusedRows:
        """Return up to ``LAST_ROWS`` rows, with those from which sums of effects are learned; rows
        in groups of these are no new rows."""
        others = self.order[len(self.taught) :]
        count = LAST_ROWS - len(self.taught)
        grouped = self.sample.groups_of(self.order[:1]) is not None
        others = others[-count:] if grouped else others[:count]  # the last rows have other groups
        numbers = np.sort(np.concatenate([self.taught, others]))
        groups = self.sample.groups_of(numbers)
        is_known = np.isin(numbers, self.taught)
        if groups is not None:
            is_known = np.isin(groups, groups[is_known])
        return UnusedRows(self.rows(numbers), ~is_known, groups)

    def summed(self, widths: ProcessFit) -> ProcessFit | None:
        """Return the best sums of effects if the kernel's form is to be chosen and there are enough
        rows, and if they are worth a search."""
        count = len(self.order)
        if not self.chooses_form or count < max(EFFECTS_ROWS, WIDE * self.d):
            return None
        unused = self.unused()
        if unused.is_new.sum() < LEAST_SEARCH_ROWS:
            return None
        self.sample.on_step("sums of effects")
        few = self.rows(self.taught[:FEW_ROWS])
        return effects(few, self.rows(self.taught), unused, widths)

    def jumps(self, fits: "FormFits") -> JumpSearch | None:
        """Return jumps of single features that clearly predict left-out rows better than the best
        kernel alone; None if there are none, or if other basis functions were requested."""
        if not self.chooses_form or self.problem.empty.functions is not None:
            return None
        numeric = plain_numbers(self.problem)
        judge = None if self.problem.n_targets > 1 or not len(numeric) else self.judge()
        if judge is None or len(self.order) < EFFECTS_ROWS:
            return None
        numbers = self.order[: self.most]
        if first_gain(self.rows(numbers), numbers, fits.best, numeric) < FIRST_NATS:
            return None
        self.sample.on_step("jumps")
        return jumps(judge, self.order, fits.best, numeric)

    def is_explained_by(self, summed: ProcessFit | None) -> bool:
        """Return True if sums of effects explain more than noise alone."""
        if summed is None:
            return False
        return not self.is_noise_beside(summed)

    def is_noise_beside(self, fit: ProcessFit) -> bool:
        """Return True if a fit explains little of its rows, or predicts little of others."""
        rows = self.rows(self.order[: self.most])
        others = self.order[self.most : self.most + PREDICTED_ROWS]
        if explains_little(rows, fit):
            return True
        return len(others) == PREDICTED_ROWS and predicts_little(rows, self.rows(others), fit)

    @property
    def chooses_form(self) -> bool:
        """True if family and form of the kernel are to be chosen."""
        return self.settings.family and self.settings.learning.metric == "auto"

    def continued(
        self, judge: LeftOutJudge | None, fits: Sequence[ProcessFit | None], rows: int
    ) -> Escalation | None:
        """Continue the search from ``fits``, learned from ``rows`` rows, if rivals are better."""
        if judge is None:
            return None
        known = [fit for fit in fits if fit is not None]
        escalation = escalated(judge, self.order, known, rows, self.settings.family)
        self.facts["judged"] = escalation.facts()
        return escalation

    def result(self, rows: ProcessRows, best: ProcessFit, choice: dict[str, Any]) -> Problem:
        """Log a kernel learned from ``rows``, and return the problem with this kernel."""
        self.sample.on_best(self.problem.with_kernel(best.kernel).empty)
        self.sample.log(process_record(rows, best, self.facts | choice))
        return self.problem.with_kernel(best.kernel)


@dataclass(frozen=True)
class FormFits:
    """The best kernel of each form.

    Attributes:
        widths: of widths.
        turned: of directions, or None.
        summed: of sums of effects, or None.
        can_be_steep: True if there are enough rows for directions that few rows do not show.
    """

    widths: ProcessFit
    turned: ProcessFit | None
    summed: ProcessFit | None
    can_be_steep: bool

    @property
    def best(self) -> ProcessFit:
        """The fit with the most evidence."""
        fits = [fit for fit in (self.widths, self.turned, self.summed) if fit is not None]
        return max(fits, key=lambda fit: fit.value)
