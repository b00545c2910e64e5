"""The choice between forms of a kernel by left-out rows."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from partirvm.core.groups import standard_error
from partirvm.core.held_back import search_splits
from partirvm.kernels import Anova, Directions, Kernel
from partirvm.kernels.composed import inside
from partirvm.learning.exact_process import ProcessFit
from partirvm.learning.forms import DIRECTIONS, EACH, EFFECTS, MEAN
from partirvm.learning.process_steps import better_than_mean, left_out
from partirvm.learning.regression_search import WIDE, RegressionSearch
from partirvm.learning.steep import (
    explains_little,
    noise_alone,
)
from partirvm.learning.turning import promising
from partirvm.learning.unused_rows import UnusedRows
from partirvm.types import Float, Int

SURE = 1.5
"""Minimum decrease in squared error, in standard errors, for sums of effects to be used with few
rows. Where they help (concrete strength, hourly bicycles, used cars), it is 1.7 to 5.3."""

ENOUGH = 0.95
"""Ratio to the error of the other kernels below which few rows use sums of effects. Local residuals
of other kernels and sparser fits may gain a few percent: on draws of energy and of taxi trips, with
ratios of .97 and .98, the errors of whole fits rose by 12 and 1 %. Where sums help, it is .83 to
.94."""


@dataclass(frozen=True)
class FormChoice:
    """A kernel chosen by left-out rows.

    Attributes:
        fit: the kernel, of widths or directions.
        square: (n,), weighted squared errors on left-out rows.
        choice: compared figures for the history.
    """

    fit: ProcessFit
    square: Float
    choice: dict[str, Any]


def chosen_form(
    run: RegressionSearch,
    widths: ProcessFit,
    turned: ProcessFit | None,
    most: int,
    summed: ProcessFit | None = None,
) -> FormChoice:
    """Choose between widths, directions, sums of effects and, if a kernel is doubtful, the mean
    alone.

    Args:
        run: the search, with its rows and options
        widths: the best widths
        turned: the best directions, if any
        most: number of rows from which they were learned
        summed: the best sums of effects, if any
    """
    metric = run.settings.learning.metric
    if metric == "auto" and not promising(widths, turned, run.d):
        turned = None
    run.sample.on_step("left-out rows")
    few = len(run.order) < WIDE * run.d
    doubtful = explains_little(run.rows(run.order[:most]), widths) or few
    by_mean, *by_kernel = left_out(
        run.sample, run.problem, widths, turned, run.order, most, afresh=doubtful
    )
    splits = search_splits(run.order, most, run.sample.groups_of(run.order))
    groups = run.sample.groups_of(np.concatenate([split.new for split in splits]))
    form = _choose(by_kernel, widths, turned, metric, groups)
    of_mean = by_mean[1]
    if summed is not None:
        unused = run.unused()
        form = with_effects(form, unused, summed)
        if form.fit is summed:
            of_mean = unused.losses(noise_alone(unused.rows)).squares
            groups = unused.new_groups
    if doubtful and run.problem.bias and not better_than_mean(form.square, of_mean, groups=groups):
        return replace(form, square=of_mean, choice=form.choice | {"form": MEAN})
    return form


def with_effects(form: FormChoice, unused: UnusedRows, summed: ProcessFit) -> FormChoice:
    """Return sums of effects if they predict unused rows better than the form chosen so far.

    Args:
        form: widths or directions
        unused: rows from which nothing was learned
        summed: the best sums of effects
    """
    before = unused.losses(form.fit)
    after = unused.losses(summed)
    groups = unused.new_groups
    gains = before.losses - after.losses
    gain = float(gains.mean())
    error = standard_error(gains, groups)
    choice = {**form.choice, "effects": {"rows": len(gains), "gain": gain, "error": error}}
    is_small = after.squares.mean() > ENOUGH**2 * before.squares.mean()
    is_sure = better_than_mean(after.squares, before.squares, SURE, groups)
    if gain <= error or is_small or not is_sure:
        return replace(form, choice=choice)
    return FormChoice(summed, after.squares, choice | {"form": EFFECTS})


def form_of(kernel: Kernel, n_features: int) -> str:
    """Return the form of a process kernel, as the history names it."""
    if isinstance(kernel, Anova):
        return EFFECTS
    return DIRECTIONS if inside(kernel, n_features, Directions) else EACH


def _choose(
    by_kernel: Sequence[Float],
    widths: ProcessFit,
    turned: ProcessFit | None,
    metric: str,
    groups: Int | None,
) -> FormChoice:
    """Choose between widths and directions.

    Args:
        by_kernel: (2, n) for widths and, if any, for directions: log densities and squared errors
            on left-out rows
        widths: the best widths
        turned: the best directions, if any
        metric: the value of the option
        groups: groups of the left-out rows (n,), or None
    """
    choice: dict[str, Any] = {"rows": 0, "gain": 0.0, "error": 0.0}
    if metric != "widths":
        choice["form"] = EACH
    densities, square = by_kernel[0]
    if turned is None:
        return FormChoice(widths, square, choice)
    turned_densities, turned_square = by_kernel[1]
    if metric == "auto":
        gains = turned_densities - densities
        choice["rows"] = len(gains)
        choice["gain"] = float(gains.mean())
        choice["error"] = standard_error(gains, groups)
        if choice["gain"] <= choice["error"]:
            return FormChoice(widths, square, choice)
    choice["form"] = DIRECTIONS
    return FormChoice(turned, turned_square, choice)
