"""Search for a classification kernel with an exact Gaussian process on class indicators
(``learning.exact_process``).

The indicators are targets that share a covariance, so their number hardly affects the time. Two
forms of the kernel are compared:

- *one width* for all features, scaled or in their own units, whichever has the higher evidence. Own
  units suit features with a common unit, such as pixels, some of which hardly vary: scaled to
  variance 1, these would dominate.
- *a width per feature*: a few steps from there. More steps raise the evidence, but also the error
  on left-out rows.

Skewed scaled features, such as counts, are all warped together if the evidence rises. They are not
warped one by one: a single warp gains little beside others with long tails, and searching each
takes longer (spambase, pooled: log loss .191 and .173 in 14 CPU seconds, all together .166 and .130
in 9). Unscaled pixels get worse.

Indicators are steps, for which the evidence of a process trusts detail too much. Left-out rows
therefore decide: a width per feature must lower the squared error by more than one standard error.
With more than ``FEW`` rows, the tied evidence of thousands of rows continues from there
(``learning.forms``), and then more rows decide: a process of 400 rows does not see which widths
more rows can use (protein in 4 classes: log loss 1.025 with one width, .971 with a width per
feature). Unscaled features are decided at once, so as not to search many pixels in vain. Two
classes with that many rows always get a width per feature.

Where two classes hardly overlap, left-out rows also decide between least squares and a logistic
link (``clear``). Their log losses: even and odd digits .021 and .056, spambase .167 and .196, but a
quadratic boundary .039 and .020.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from partirvm.core.laplace import init
from partirvm.core.link import LINKS, LogisticBlock
from partirvm.core.ramp import LeftOutClasses, Ramp
from partirvm.kernels import Kernel
from partirvm.learning.exact_process import ProcessFit, ProcessRows, climb
from partirvm.learning.features import all_warped
from partirvm.learning.forms import EACH, MEAN, learn, with_gammas
from partirvm.learning.process_search import (
    FEW,
    ROWS,
    WIDE,
    WORK,
    better_than_mean,
    in_order,
    process_record,
    splits,
    without_weak_features,
)
from partirvm.learning.sample import SampledRows
from partirvm.learning.search import LearningOptions
from partirvm.learning.steep import explains_little
from partirvm.likelihoods import POOLED
from partirvm.strategies.problem import Problem
from partirvm.types import Float, Int

ONE, UNSCALED = "one width", "one width for unscaled features"
"""Names of the forms in the history and the plan."""

FIRST_NOISE = 0.5
"""Initial noise variance ÷ variance of the indicators; from a smaller one, a search explains noise
by narrow widths."""

CLEAR, MARGIN, VARIANCES, NEWTON_STEPS, NUGGET = 0.25, 1.05, (25.0, 150.0, 1000.0), 6, 1e-6
"""Noise ÷ variance of the indicators below which two classes hardly overlap, and the largest
log-loss ratio of a ramp to a logistic link; the variances of the latter's predictor, Newton steps
for each, and its noise variance."""

SURE = 2.0
"""Minimum gain over the classes' shares, in standard errors, where features are many:
probabilities, unlike a noise variance, are not raised to the errors of folds, so that a gain by
chance would make them too sure."""

ONE_STEPS, STEPS, LATE_STEPS, LATE_ROWS = 10, 15, 4, 800
"""Maximum number of L-BFGS steps in one width, from there in all widths, and in one factor of
learned widths, and the maximum number of rows for the latter."""


def learn_classes(
    sample: SampledRows,
    problem: Problem,
    learning: LearningOptions,
    seed: int,
    *,
    warp: bool,
    columns: int,
) -> Problem:
    """Learn the classification kernel, and with ``warp`` the warps of its features; return the
    problem with both.

    Two classes may be pooled. The last logged record holds the kernel. A fit may have ``columns``
    columns.
    """
    order = in_order(sample, seed)
    many = len(order) > FEW
    most = min(ROWS, int(np.sqrt(WORK / problem.empty.scaling.n_inputs)), columns)
    problem, rows, one, form = one_width(sample, problem, order, most, warp=warp)
    sample.on_best(problem.with_kernel(one.kernel).empty)
    if (
        problem.n_classes == 2
        and np.exp(one.noise) < CLEAR
        and clear(sample, problem, one, order, most)
    ):
        problem = replace(problem, likelihood=POOLED)
    best = climb(rows, one, STEPS)
    choice = {"form": EACH}
    asked = problem.n_classes > 2 or not many
    if asked and not (many and form == ONE):
        sample.on_step("left-out rows")
        errors = left_out(sample, problem, one, order, most)
        choice = choose(errors, form)
        doubtful = len(order) < WIDE * problem.empty.scaling.n_inputs or explains_little(rows, one)
        square = errors[1 if choice["form"] == EACH else 0]
        if not many and doubtful and problem.bias and not better_than_mean(square, errors[2], SURE):
            choice = choice | {"form": MEAN}
    if many and choice["form"] == EACH:
        stated = replace(sample, log=lambda record: sample.log(replace(record, choice=choice)))
        warm = replace(learning, warm=best.kernel.logs, metric="widths")
        best = replace(one, kernel=learn(stated, problem, warm, seed).kernel)
        if asked and form == ONE:
            choice = choose(
                left_out(sample, problem, one, order, min(LATE_ROWS, columns), best), form
            )
        if choice["form"] == EACH:
            return problem.with_kernel(best.kernel)
    best = without_weak_features(rows, best) if choice["form"] == EACH else one
    sample.on_best(problem.with_kernel(best.kernel).empty)
    sample.log(process_record(rows, best, choice))
    return problem.with_kernel(best.kernel)


def one_width(
    sample: SampledRows, problem: Problem, order: Int, most: int, *, warp: bool
) -> tuple[Problem, ProcessRows, ProcessFit, str]:
    """Search one width; return the problem, with warps if they help, its process rows and fit, and
    the form's name.

    Warping all skewed features together must raise the evidence by at least log n nats.
    """
    sample.on_step("widths")
    rows = ProcessRows.of(sample, problem, order[:most])
    kernels = {ONE: problem.empty.kernel, UNSCALED: unscaled(problem)}
    noise = float(np.log(FIRST_NOISE))
    starts = {form: ProcessFit(kernel, 0.0, noise) for form, kernel in kernels.items()}
    found = {form: climb(rows, start, ONE_STEPS, together=True) for form, start in starts.items()}
    form = max(found, key=lambda form: found[form].value)
    if warp and form == ONE:
        raw = sample.rows.gather(np.sort(order)).X
        every = problem.with_scaling(all_warped(problem.empty.scaling, found[ONE].kernel, raw))
        seen = ProcessRows.of(sample, every, order[:most])
        best = climb(seen, found[ONE], ONE_STEPS, together=True)
        if best.value > found[ONE].value + np.log(len(seen.X)):
            return every, seen, best, ONE
    return problem, rows, found[form], form


def clear(sample: SampledRows, problem: Problem, one: ProcessFit, order: Int, most: int) -> bool:
    """Return whether least squares on indicators predicts two classes in left-out rows as well as a
    logistic link.

    Both use the kernel of ``one``. The ramp, and the variance of the logistic predictor, are the
    best for these rows.
    """
    share = float(np.mean(np.asarray(problem.codes)))
    unit = replace(one, signal=0.0, noise=np.log(NUGGET))
    found = []
    for kept, outside in splits(order, most):
        rows, new = (ProcessRows.of(sample, problem, each) for each in (kept, outside))
        root, white = rows.whitened(unit, new)
        codes = (rows.t[:, 0] > 0).astype(float)
        weights = np.zeros((len(root), 1))
        logistic = []
        for variance in VARIANCES:
            for _ in range(NEWTON_STEPS):
                block = LogisticBlock.of("bernoulli", root, codes, weights, 1 / rows.inverse)
                weights = init(kept, np.full(len(root), 1 / variance), weights, block).mean
            logistic.append(white @ weights)
        f = share + np.sqrt(share * (1 - share)) * (new.t - rows.predicted(one, new)[0])
        found.append(np.hstack([new.t > 0, 1 / new.inverse[:, None], 1 - f, f, *logistic]))
    codes, weights, *f = np.concatenate(found).T
    loss = LeftOutClasses(np.column_stack(f[:2]), codes, weights).ramp(Ramp()).loss
    others = [-weights @ LINKS["bernoulli"].log_probability(each[:, None], codes) for each in f[2:]]
    return bool(loss * weights.sum() < MARGIN * min(others))


def unscaled(problem: Problem) -> Kernel:
    """Return the kernel with one width for features in their own units: the gammas times the
    features' variances."""
    square = problem.empty.scaling.x_scale**2
    return with_gammas(
        problem.empty.kernel,
        len(square),
        lambda g, inputs: g * square[inputs] / square[inputs].mean(),
    )


def left_out(
    sample: SampledRows,
    problem: Problem,
    one: ProcessFit,
    order: Int,
    most: int,
    each: ProcessFit | None = None,
) -> Float:
    """Return the squared errors of n left-out rows, times the row weights, with one width, a width
    each, and neither.

    Both are learned from the other rows; for ``each``, if given, only a common factor of its widths
    is. The errors are means over indicators, whose mean square is 1.
    """
    found = []
    for kept, outside in splits(order, most):
        rows, new = (ProcessRows.of(sample, problem, each) for each in (kept, outside))
        own = climb(rows, one, ONE_STEPS if each is None else LATE_STEPS, together=True)
        other = (
            climb(rows, own, STEPS)
            if each is None
            else climb(rows, each, LATE_STEPS, together=True)
        )
        errors = [*(rows.predicted(fit, new)[0] for fit in (own, other)), new.t]
        found.append([(each**2).mean(axis=1) / new.inverse for each in errors])
    return np.concatenate(found, axis=1)


def choose(errors: Float, one: str) -> dict[str, Any]:
    """Choose between the form ``one`` and a width per feature by squared errors (3, n); return what
    was compared."""
    gain = errors[0] - errors[1]
    (by_one, by_each) = np.sqrt(errors[:2].mean(axis=1)).tolist()
    wins = gain.mean() > gain.std() / np.sqrt(len(gain))
    return {
        "form": EACH if wins else one,
        "rows": len(gain),
        "errors": {one: by_one, EACH: by_each},
    }
