"""Search for a classification kernel with an exact Gaussian process on class indicators
(``learning.exact_process``).

The indicators share one covariance matrix, so their number hardly affects the time. Two forms of
the kernel are compared:

- *one width* for all features, scaled or in their original units, whichever has the higher
  evidence. The original units suit features with a common unit, such as pixels: some pixels hardly
  vary, and would dominate if scaled to variance 1.
- *a width per feature*: reached in a few steps from the single width. More steps raise the
  evidence, but also the error on left-out rows.

Skewed scaled features, such as counts, are all warped together if this raises the evidence. They
are not warped one by one: a single warp gains little while other features have long tails, and
searching each warp takes longer (spambase, pooled: log loss .191 and .173 in 14 CPU seconds, all
together .166 and .130 in 9). Warping makes unscaled pixels worse.

The *family* of the kernel is chosen first, with one width: Matérn kernels are taken if they lower
the log loss of left-out rows by more than ``SURE`` standard errors. With a width per feature, they
must lower it again: several widths can take the place of a rougher function (spambase: log loss
.203 and .194 with one width, .194 and .195 with a width per feature, .154 and .172 after the fit).
*Sums of effects* must lower it in the same way (``learning.class_effects``).

Indicators are step functions, for which the evidence of a process favours too much detail. Left-out
rows therefore decide: a width per feature must lower the squared error by more than one standard
error. With more than ``SearchEffort.few`` rows, the search continues with the tied evidence of
thousands of rows (``learning.forms``), and more left-out rows then decide: a process on 400 rows
cannot tell which widths help with more rows (protein in 4 classes: log loss 1.025 with one width,
.971 with a width per feature). For unscaled features, the decision is made immediately, to avoid a
futile search over many pixels. Two classes with that many rows always get a width per feature.

If two classes hardly overlap, left-out rows also decide between least squares and a logistic link
(``clear``). Log losses with least squares and with the link: even and odd digits .021 and .056,
spambase .167 and .196, but a quadratic boundary .039 and .020.
"""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from partirvm.core.held_back import search_splits
from partirvm.core.laplace import init
from partirvm.core.link import LINKS, LogisticBlock
from partirvm.core.ramp import LeftOutClasses, Ramp
from partirvm.kernels import Kernel
from partirvm.kernels.composed import inside
from partirvm.kernels.radial import RadialKernel
from partirvm.learning.class_effects import ClassEffects, class_effects
from partirvm.learning.class_losses import SURE, is_lower, left_out_classes, row_losses
from partirvm.learning.exact_process import ProcessFit, ProcessRows, climb
from partirvm.learning.features import all_warped
from partirvm.learning.forms import EACH, FAMILIES, MEAN, ONE, learn, with_family, with_gammas
from partirvm.learning.process_steps import (
    WORK,
    better_than_mean,
    in_order,
    process_record,
    without_weak_features,
)
from partirvm.learning.regression_search import WIDE
from partirvm.learning.sample import SampledRows
from partirvm.learning.search import OF_CLASSES, OF_TWO_CLASSES, CentreLimits, SearchSettings
from partirvm.learning.steep import explains_little
from partirvm.likelihoods import POOLED
from partirvm.spec.problem import Problem
from partirvm.types import Float, Int

UNSCALED = "one width for unscaled features"
"""Name of this form in the history and in the plan."""

FIRST_NOISE = 0.5
"""Initial noise variance ÷ variance of the indicators; from a smaller value, a search explains
noise by narrow widths."""

CLEAR = 0.25
"""Noise ÷ variance of the indicators below which two classes hardly overlap."""

MARGIN = 1.05
"""Largest allowed ratio of the ramp's log loss to the logistic link's."""

VARIANCES = 25.0, 150.0, 1000.0
"""Prior variances of the predictor with a logistic link."""

NEWTON_STEPS = 6
"""Number of Newton steps for each of ``VARIANCES``."""

NUGGET = 1e-6
"""Noise variance of the predictor with a logistic link."""

FAMILY_ROWS = 200
"""Minimum number of rows for comparing families: on iris and wine, a few rows would decide."""

LOWER = 1.0
"""Minimum gain of another family with a width per feature, in standard errors: with one width, it
has already exceeded ``SURE``."""

SMOOTHEST = {"family": FAMILIES[0]}
"""The entry of the history if another family has been given up."""

ONE_STEPS = 10
"""Maximum number of L-BFGS steps for a single width."""

STEPS = 15
"""Maximum number of L-BFGS steps for all widths, starting from a single width."""

LATE_STEPS = 4
"""Maximum number of L-BFGS steps for a common factor of learned widths."""

LATE_ROWS = 800
"""Maximum number of rows for ``LATE_STEPS``."""


def class_centres(n_classes: int) -> CentreLimits:
    """Return the limits on the number of centres for this number of classes."""
    return OF_CLASSES if n_classes > 2 else OF_TWO_CLASSES


@dataclass(frozen=True)
class OneWidth:
    """The best fit with one width for all features.

    Attributes:
        rows: the rows of the process, and the problem
        fit: the fit
        form: name of its form
        order: (n,), all row numbers in random order
        most: maximum number of rows of a process
    """

    rows: ProcessRows
    fit: ProcessFit
    form: str
    order: Int
    most: int

    @property
    def has_many(self) -> bool:
        """True if there are more rows than an exact process can use."""
        return len(self.order) > self.rows.sample.effort.few

    @property
    def can_change_family(self) -> bool:
        """True if the kernel has a family, and there are enough rows to compare families."""
        radial = inside(self.fit.kernel, self.rows.X.shape[1], RadialKernel)
        return bool(radial) and len(self.order) >= FAMILY_ROWS

    @property
    def compares(self) -> bool:
        """True if forms are compared: two classes with many rows always get a width per feature."""
        return self.rows.t.shape[1] > 1 or not self.has_many


def learn_classes(sample: SampledRows, problem: Problem, settings: SearchSettings) -> Problem:
    """Learn a classification kernel, starting from the problem's kernel; return the problem with
    the learned kernel.

    Two classes may be pooled. The last logged record contains the kernel.
    """
    start = one_width(sample, problem, settings)
    smoothest = start
    facts: dict[str, Any] = {}
    if settings.family and start.can_change_family:
        families = choose_family(family_losses(start))
        facts = families.figures
        start = with_family_of(start, families.family)
        sums = effects_of(start, settings)
        if sums is not None:
            return with_effects(start, sums, facts)
    return by_widths(sample, start, settings, facts, smoothest)


def by_widths(
    sample: SampledRows,
    start: OneWidth,
    settings: SearchSettings,
    facts: dict[str, Any],
    smoothest: OneWidth,
) -> Problem:
    """Choose between a single width and a width per feature; return the problem with the learned
    kernel.

    Args:
        sample: the sample of rows
        start: the fit of one width
        settings: options of the search
        facts: compared figures for the history
        smoothest: the fit of one width of the smoothest family
    """
    problem = start.rows.problem
    sample.on_best(problem.with_kernel(start.fit.kernel).empty)
    if are_clear(start.rows, start.fit, start.order, start.most):
        problem = replace(problem, likelihood=POOLED)
    best = climb(start.rows, start.fit, STEPS)
    choice: dict[str, Any] = facts | {"form": EACH}
    if start.compares and not (start.has_many and start.form == ONE):
        choice = facts | compared_forms(start)
    if loses_by_widths(start, smoothest, choice["form"]):
        return by_widths(sample, smoothest, settings, facts | SMOOTHEST, smoothest)
    if start.has_many and choice["form"] == EACH:
        kernel = learned_from_many(sample, problem, settings, best.kernel, choice)
        best = replace(start.fit, kernel=kernel)
        if start.compares and start.form == ONE:
            most = min(LATE_ROWS, settings.columns)
            choice = facts | compared_widths(start, problem, best, most)
        if choice["form"] == EACH:
            return problem.with_kernel(best.kernel)
    best = without_weak_features(start.rows, best) if choice["form"] == EACH else start.fit
    sample.on_best(problem.with_kernel(best.kernel).empty)
    sample.log(process_record(start.rows, best, choice))
    return problem.with_kernel(best.kernel)


def effects_of(start: OneWidth, settings: SearchSettings) -> ClassEffects | None:
    """Return sums of effects if they are clearly better than one width, and may be chosen."""
    if settings.learning.metric != "auto":
        return None
    return class_effects(start.rows, start.fit, start.order, start.most)


def with_effects(start: OneWidth, sums: ClassEffects, facts: dict[str, Any]) -> Problem:
    """Return the problem with sums of effects, and log them.

    Args:
        start: the fit of one width
        sums: the sums of effects
        facts: compared figures for the history
    """
    rows = sums.rows
    problem = rows.problem.with_kernel(sums.fit.kernel)
    if are_clear(rows, sums.fit, start.order, start.most):
        problem = replace(problem, likelihood=POOLED)
    rows.sample.on_best(problem.empty)
    rows.sample.log(process_record(rows, sums.fit, facts | sums.figures))
    return problem


def learned_from_many(
    sample: SampledRows,
    problem: Problem,
    settings: SearchSettings,
    kernel: Kernel,
    choice: dict[str, Any],
) -> Kernel:
    """Continue the search for widths with the tied evidence of more rows.

    Args:
        sample: the sample of rows
        problem: the problem whose kernel is learned
        settings: options of the search
        kernel: the kernel from which the search starts
        choice: compared figures for the history
    """
    warm = replace(settings.learning, warm=kernel.logs, metric="widths")
    logged = replace(sample, log=lambda record: sample.log(replace(record, choice=choice)))
    return learn(logged, problem, warm, settings.seed).kernel


def compared_widths(
    start: OneWidth, problem: Problem, best: ProcessFit, most: int
) -> dict[str, Any]:
    """Compare, on left-out rows, a single width with widths learned from many rows.

    Args:
        start: the fit of one width
        problem: the problem whose kernel is learned
        best: the fit of a width per feature
        most: maximum number of rows used for prediction
    """
    squares = left_out(start.rows.sample, problem, start.fit, start.order, most, best)
    return choose(squares, start.form)


def compared_forms(start: OneWidth) -> dict[str, Any]:
    """Compare, on left-out rows, a single width, a width per feature and, with few rows, the mean
    alone; return the chosen form and the compared figures."""
    rows = start.rows
    problem = rows.problem
    n = len(start.order)
    rows.sample.on_step("left-out rows")
    by_one, by_each, by_mean = left_out(rows.sample, problem, start.fit, start.order, start.most)
    choice = choose(np.stack([by_one, by_each]), start.form)
    if start.has_many or not problem.bias:
        return choice
    doubtful = n < WIDE * problem.empty.scaling.n_inputs or explains_little(rows, start.fit)
    squares = by_each if choice["form"] == EACH else by_one
    if doubtful and not better_than_mean(squares, by_mean, SURE):
        return choice | {"form": MEAN}
    return choice


def one_width(sample: SampledRows, problem: Problem, settings: SearchSettings) -> OneWidth:
    """Search for one width; the problem of the result has warps if they help.

    Warping all skewed features together must raise the evidence by at least log n nats.
    """
    sample.on_step("widths")
    order = in_order(sample, settings.seed)
    most = min(
        sample.effort.class_rows,
        int(np.sqrt(WORK / problem.empty.scaling.n_inputs)),
        settings.columns,
    )
    rows = ProcessRows.of(sample, problem, order[:most])
    kernels = {ONE: problem.empty.kernel, UNSCALED: unscaled(problem)}
    noise = float(np.log(FIRST_NOISE))
    starts = {form: ProcessFit(kernel, 0.0, noise) for form, kernel in kernels.items()}
    fits = {form: climb(rows, start, ONE_STEPS, together=True) for form, start in starts.items()}
    form = max(fits, key=lambda form: fits[form].value)
    plain = OneWidth(rows, fits[form], form, order, most)
    if not settings.warp or form != ONE:
        return plain
    raw = sample.rows.gather(np.sort(order)).X[:, : problem.empty.scaling.n_features]
    scaling = all_warped(problem.empty.scaling, plain.fit.kernel, raw)
    bent_rows = ProcessRows.of(sample, problem.with_scaling(scaling), order[:most])
    bent_fit = climb(bent_rows, plain.fit, ONE_STEPS, together=True)
    if bent_fit.value > plain.fit.value + np.log(len(bent_rows.X)):
        return replace(plain, rows=bent_rows, fit=bent_fit)
    return plain


@dataclass(frozen=True)
class FamilyChoice:
    """The families of a kernel, compared on left-out rows.

    Attributes:
        family: the chosen family
        losses: the log loss of each family's process in each row (n,), times the row weight
    """

    family: str
    losses: dict[str, Float]

    @property
    def figures(self) -> dict[str, Any]:
        """The compared figures, for the history."""
        return {
            "family": self.family,
            "family_losses": {name: float(loss.mean()) for name, loss in self.losses.items()},
            "family_rows": len(self.losses[self.family]),
        }


def family_losses(start: OneWidth) -> dict[str, Float]:
    """Return the log losses (n,) of left-out rows, times the row weights, with one width of each
    family, learned from the other rows.

    The indicators that a process predicts become probabilities by the ramp with the lowest loss.
    """
    sample = start.rows.sample
    problem = start.rows.problem
    sample.on_step("left-out rows")
    predictions: dict[str, list[LeftOutClasses]] = {family: [] for family in FAMILIES}
    for kept, outside in search_splits(start.order, start.most, sample.groups_of(start.order)):
        rows = ProcessRows.of(sample, problem, kept)
        new = ProcessRows.of(sample, problem, outside)
        for family in FAMILIES:
            fit = climb(rows, of_family(start.fit, family, rows), ONE_STEPS, together=True)
            predictions[family].append(left_out_classes(rows, fit, new, outside))
    return {family: row_losses(parts) for family, parts in predictions.items()}


def choose_family(losses: dict[str, Float]) -> FamilyChoice:
    """Choose the smoothest family unless the losses (n,) of another one are lower by more than
    ``SURE`` standard errors."""
    smoothest, *others = FAMILIES
    best = min(others, key=lambda family: float(losses[family].mean()))
    is_clear = is_lower(losses[best], losses[smoothest], SURE)
    return FamilyChoice(best if is_clear else smoothest, losses)


def loses_by_widths(start: OneWidth, smoothest: OneWidth, form: str) -> bool:
    """Return True if the form is finally a width per feature, with which the family of ``start``
    is not better than the smoothest one."""
    is_open = start.compares and start.has_many
    if start is smoothest or is_open or form != EACH:
        return False
    return not lowers_loss_by_widths(start, smoothest)


def lowers_loss_by_widths(start: OneWidth, smoothest: OneWidth) -> bool:
    """Return True if the family of ``start`` has a lower log loss in left-out rows than the
    smoothest family, by more than ``LOWER`` standard errors, with a width per feature."""
    sample = start.rows.sample
    sample.on_step("left-out rows")
    starts = start, smoothest
    predictions: tuple[list[LeftOutClasses], ...] = [], []
    for kept, outside in search_splits(start.order, start.most, sample.groups_of(start.order)):
        for rival, parts in zip(starts, predictions, strict=True):
            rows = ProcessRows.of(sample, rival.rows.problem, kept)
            new = ProcessRows.of(sample, rival.rows.problem, outside)
            fit = climb(rows, replace(rival.fit, pairs=[]), ONE_STEPS, together=True)
            fit = climb(rows, fit, STEPS)
            parts.append(left_out_classes(rows, fit, new, outside))
    losses, others = map(row_losses, predictions)
    return is_lower(losses, others, LOWER)


def of_family(fit: ProcessFit, family: str, rows: ProcessRows) -> ProcessFit:
    """Return a fit with another family of the kernel, from which a search on ``rows`` starts."""
    return replace(fit, kernel=with_family(fit.kernel, family, rows.X.shape[1]), pairs=[])


def with_family_of(start: OneWidth, family: str) -> OneWidth:
    """Return the best fit with one width of a family."""
    if family == FAMILIES[0]:
        return start
    problem = start.rows.problem
    kernel = with_family(problem.empty.kernel, family, start.rows.X.shape[1])
    rows = replace(start.rows, problem=problem.with_kernel(kernel))
    fit = climb(rows, of_family(start.fit, family, rows), ONE_STEPS, together=True)
    return replace(start, rows=rows, fit=fit)


@dataclass(frozen=True)
class LinkedRows:
    """Left-out rows of two classes, predicted by least squares and with a logistic link.

    Attributes:
        codes: (n,), 1 for rows of the second class.
        weights: (n,), row weights.
        squares: (n, 2), predictions of the indicators of both classes.
        logits: (n, v), logits for each of ``VARIANCES``.
    """

    codes: Float
    weights: Float
    squares: Float
    logits: Float

    @classmethod
    def of(
        cls, sample: SampledRows, problem: Problem, one: ProcessFit, kept: Int, outside: Int
    ) -> Self:
        """Predict left-out rows from the other rows.

        Args:
            sample: the sample of rows
            problem: a problem with two classes
            one: the kernel, with the variances for least squares
            kept: numbers of the rows used for prediction
            outside: numbers of the left-out rows
        """
        rows = ProcessRows.of(sample, problem, kept)
        new = ProcessRows.of(sample, problem, outside)
        root, white = rows.whitened(replace(one, signal=0.0, noise=np.log(NUGGET)), new)
        codes = (rows.t[:, 0] > 0).astype(float)
        logits = []
        weights = np.zeros((len(root), 1))
        for variance in VARIANCES:
            precisions = np.full(len(root), 1 / variance)
            for _ in range(NEWTON_STEPS):
                block = LogisticBlock.of("bernoulli", root, codes, weights, 1 / rows.inverse)
                weights = init(kept, precisions, weights, block).mean
            logits.append(white @ weights)
        share = float(np.mean(np.asarray(problem.codes)))
        errors, _ = rows.predicted(one, new)
        second = share + np.sqrt(share * (1 - share)) * (new.t - errors)
        return cls(
            (new.t[:, 0] > 0).astype(float),
            1 / new.inverse,
            np.hstack([1 - second, second]),
            np.hstack(logits),
        )


def are_clear(rows: ProcessRows, one: ProcessFit, order: Int, most: int) -> bool:
    """Return whether there are two classes that least squares on indicators predicts in left-out
    rows as well as a logistic link does.

    The ramp and the variance of the logistic predictor are optimised for these rows.

    Args:
        rows: the rows of the process, with one indicator of two classes
        one: the kernel used by both predictions
        order: (n,), row numbers in random order
        most: maximum number of rows used for prediction
    """
    if rows.t.shape[1] > 1 or np.exp(one.noise) >= CLEAR:
        return False
    parts = [
        LinkedRows.of(rows.sample, rows.problem, one, *split)
        for split in search_splits(order, most, rows.sample.groups_of(order))
    ]
    codes = np.concatenate([part.codes for part in parts])
    weights = np.concatenate([part.weights for part in parts])
    squares = np.concatenate([part.squares for part in parts])
    loss = LeftOutClasses(squares, codes, weights).ramp(Ramp()).loss
    log_probability = LINKS["bernoulli"].log_probability
    logits = np.concatenate([part.logits for part in parts]).T
    losses = [-weights @ log_probability(column[:, None], codes) for column in logits]
    return bool(loss * weights.sum() < MARGIN * min(losses))


def unscaled(problem: Problem) -> Kernel:
    """Return the kernel with one width for features in their original units: its gammas are
    multiplied by the features' variances."""
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
    process: type[ProcessRows] = ProcessRows,
) -> Float:
    """Return the squared errors of n left-out rows, times the row weights, with one width, with a
    width per feature and without a kernel.

    Both kernels are learned from the other rows. The errors are means over the indicators, which
    have mean square 1.

    Args:
        sample: the sample of rows
        problem: the classification, with the scaling of the rows
        one: the fit with one width, from which the searches in a split start
        order: (n,), row numbers in random order
        most: maximum number of rows used for prediction
        each: the fit with a width per feature, of which only a common factor is learned; None to
            learn all widths
        process: the class of processes
    """
    squares = []
    for kept, outside in search_splits(order, most, sample.groups_of(order)):
        rows = process.of(sample, problem, kept)
        new = process.of(sample, problem, outside)
        if each is None:
            by_one = climb(rows, one, ONE_STEPS, together=True)
            by_each = climb(rows, by_one, STEPS)
        else:
            by_one = climb(rows, one, LATE_STEPS, together=True)
            by_each = climb(rows, each, LATE_STEPS, together=True)
        errors = [rows.predicted(fit, new)[0] for fit in (by_one, by_each)]
        squares.append([(error**2).mean(axis=1) / new.inverse for error in (*errors, new.t)])
    return np.concatenate(squares, axis=1)


def choose(errors: Float, one: str) -> dict[str, Any]:
    """Choose between the form ``one`` and a width per feature by squared errors (3, n); return the
    compared figures as well."""
    gain = errors[0] - errors[1]
    by_one, by_each = np.sqrt(errors[:2].mean(axis=1)).tolist()
    wins = gain.mean() > gain.std() / np.sqrt(len(gain))
    return {
        "form": EACH if wins else one,
        "rows": len(gain),
        "errors": {one: by_one, EACH: by_each},
    }
