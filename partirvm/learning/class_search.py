"""Search for the kernel of classes with an exact Gaussian process of their indicators (``learning.exact_process``).

The indicators of K classes are targets that share a covariance, so that K hardly changes the time. Two forms of the
kernel are compared:

- *one width* for all features, scaled or in their own units, whichever has the larger evidence. Features in their own
  units have gammas in proportion to their variances. This suits features of one unit, such as pixels, of which some
  hardly vary: scaled to variance 1 these decide the distances.
- *a width per feature*: a few steps from there. More steps raise the evidence, but also the error of rows left out.

The evidence of step functions believes too much in detail, so rows left out decide: a width per feature must lower the
squared error of the indicators by more than one standard error. If it does, and there are more rows than ``FEW``, the
tied evidence of thousands of rows goes on (``learning.forms``). Two classes of so many rows always get this search.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from partirvm.kernels import Kernel
from partirvm.kernels.composed import replaced
from partirvm.kernels.radial import RadialKernel
from partirvm.learning.exact_process import ProcessFit, ProcessRows, climb
from partirvm.learning.forms import EACH, learn, per_feature
from partirvm.learning.process_search import FEW, FIRST_NOISE, ROWS, WORK, in_order, process_record, splits
from partirvm.learning.sample import SampledRows
from partirvm.learning.search import LearningOptions
from partirvm.strategies.problem import Problem, Record
from partirvm.types import Float, Int

import os
NOISE0 = float(os.environ.get("N0","0.1"))
LEAST = 20
"""Minimum number of rows for kernel learning."""

ONE, UNSCALED = "one width", "one width for unscaled features"
"""Names of the forms in the history and the plan."""

ONE_STEPS, STEPS = 10, 15
"""Maximum number of steps of L-BFGS in one width, and from there in all widths."""


def learn_classes(sample: SampledRows, problem: Problem, learning: LearningOptions, seed: int, *, columns: int) -> None:
    """Learn the kernel of classes; the last record that is logged holds it. A fit may have ``columns`` columns."""
    problem, order = per_feature(problem), in_order(sample, seed)
    most = min(ROWS, int(np.sqrt(WORK / problem.empty.centres.shape[1])), columns)
    rows, choice = ProcessRows.of(sample, problem, order[:most]), {"form": EACH, "rows": problem.n_rows}
    begun = [
        ProcessFit(kernel, 0.0, float(np.log(NOISE0))) for kernel in (problem.empty.kernel, unscaled(problem))
    ]
    found = [climb(rows, each, ONE_STEPS, together=True) for each in begun]
    number = int(found[1].value > found[0].value)
    one = found[number]
    sample.on_best(one.kernel)
    best = climb(rows, one, STEPS)
    if problem.n_classes > 2 or len(order) <= FEW:
        errors = left_out(sample, problem, one, order, most)
        choice, wins = choose(errors, (ONE, UNSCALED)[number])
        if not wins or len(order) <= FEW:
            best = best if wins else one
            sample.on_best(best.kernel)
            sample.log(process_record(rows, best, choice))
            return

    def log(record: Record) -> None:
        sample.log(replace(record, choice=choice))

    learn(replace(sample, log=log), problem, replace(learning, warm=best.kernel.logs if os.environ.get("WARM","1")=="1" else None, metric="widths", evaluations=int(os.environ.get("EV","150"))), seed)


def unscaled(problem: Problem) -> Kernel:
    """Return the kernel with one width for features in their own units: its gammas times the features' variances."""
    square = problem.empty.scaling.x_scale**2

    def make(old: Kernel, columns: Int) -> Kernel:
        if not isinstance(old, RadialKernel):
            return old
        factors = square[columns] / square[columns].mean()
        return replace(old, gamma=tuple((old.widths(len(columns)) * factors).tolist()))

    return replaced(problem.empty.kernel, np.arange(len(square)), make)


def left_out(sample: SampledRows, problem: Problem, one: ProcessFit, order: Int, most: int) -> Float:
    """Return the mean squared errors, times the row weight, of n rows left out, by one width and by all, (2, n).

    Both are learned again without these rows; the indicators have the mean square 1.
    """
    found = []
    for kept, outside in splits(order, most):
        rows, new = (ProcessRows.of(sample, problem, each) for each in (kept, outside))
        again = climb(rows, one, ONE_STEPS, together=True)
        errors = [rows.predicted(fit, new)[0] for fit in (again, climb(rows, again, STEPS))]
        found.append([(each**2).mean(axis=1) / new.inverse for each in errors])
    return np.concatenate(found, axis=1)


def choose(errors: Float, one: str) -> tuple[dict[str, Any], bool]:
    """Return what was compared on squared errors (2, n) of the form ``one`` and a width per feature, and if that wins.

    It must be better by more than one standard error.
    """
    gain, (by_one, by_each) = errors[0] - errors[1], np.sqrt(errors.mean(axis=1)).tolist()
    wins = bool(gain.mean() > gain.std() / np.sqrt(len(gain)))
    return {"form": EACH if wins else one, "rows": len(gain), "errors": {one: by_one, EACH: by_each}}, wins
