"""``gamma="auto"`` of classes: choose between one width and a width per feature by cross-validation, then learn.

A width per feature needs enough rows for its many parameters, and the evidence does not show whether there are enough.
Two classes with more than ``MANY`` rows always get a width per feature. Otherwise, for each fold:

1. A width per feature is learned from the rows outside the fold (the first stage of ``learning.search``).
2. The tied fit of class indicators (``core.tied``) is made with the same centres at single widths:
   ``WIDTHS`` × the initial width.
3. One pass over the fold measures the error of each fit.

If the final fit of two classes has every row as a candidate, step 2 fits basic RVMs instead, which overfit at some
widths at which a tied RVM of a few centres does not. With more than two classes, one width is also tried for unscaled
features (``one_widths``), the search for a width per feature starts at the best of these kernels, and it must lower the
squared error by ``LEAST_GAIN``. A width per feature must be better by more than one standard error over the folds,
because a wrong choice of this form costs more. Its widths are then learned again from all rows.

Basic RVMs of a sample, whose rows are the candidates, also measure how sparse a problem is (``sparseness``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from partirvm.core.sampling import Purpose, stream
from partirvm.kernels import Kernel
from partirvm.kernels.design import Design
from partirvm.learning.forms import EACH, learn, per_feature
from partirvm.learning.sample import SampledRows, evaluate
from partirvm.learning.search import LearningOptions, begin_stage, first_stage
from partirvm.likelihoods.base import survivors
from partirvm.likelihoods.classes import Newton
from partirvm.likelihoods.gaussian import Solve
from partirvm.likelihoods.passes import GramPass, LogisticPass, ResidualPass
from partirvm.strategies.problem import Options, Problem, Record
from partirvm.strategies.stages import INTERMEDIATE, final_rule
from partirvm.types import Float, Int

LEAST = 20
"""Minimum number of rows for kernel learning."""

MANY = 2000
"""With more rows than this, the kernel gets a width per feature without cross-validation."""

FOLDS, HELD_OUT = 5, 500
"""Number of folds of the cross-validation, and of held-out rows after which no further fold is evaluated."""

CENTRES, CANDIDATES = 100, 100
"""Maximum number of centres in the fits of a fold, and of candidates of a basic RVM: passes grow with their square."""

WIDTHS = 2.0 ** np.arange(-3, 4)
"""Widths to compare, as multiples of the initial width."""

BEHIND, EACH_BEHIND = 1.1, 1.2
"""Basic RVMs, and a width per feature, at these multiples of the least loss so far are left out of further folds."""

LEAST_GAIN = 0.2
"""Several classes: the least relative gain in squared error of a width per feature; smaller ones helped no fit."""

ONE, UNSCALED = "one width", "one width for unscaled features"
"""Names of the forms in the history and the plan."""

DENSE = 0.9
"""ρ above which the kernel is probably too narrow, because nearly every row becomes a vector."""


def choose(
    sample: SampledRows, problem: Problem, learning: LearningOptions, options: Options, *, all_candidates: bool
) -> Kernel:
    """Choose the form of the kernel by cross-validation, then learn the kernel from the sample.

    ``all_candidates`` is True if every row is a candidate of the final fit and memory allows fits of this size.
    """
    if learning.metric == "directions":
        return learn(sample, per_feature(problem), learning, options.seed)
    choice: dict[str, Any] = {"form": EACH, "rows": problem.n_rows}
    basic, learning = all_candidates and problem.n_classes == 2, replace(learning, metric="widths")
    chosen, evaluated = problem, 0
    if problem.n_rows <= MANY or not basic:
        choice, kernel, evaluated = compare(sample, problem, learning, options, basic)
        chosen = problem.with_kernel(kernel)

    def log(record: Record) -> None:
        before = evaluated if record.number == 1 else 0
        sample.log(replace(record, choice=choice, iterations=record.iterations + before))

    if choice["form"] == EACH:
        begun = problem if basic else chosen
        return learn(replace(sample, log=log), per_feature(begun), learning, options.seed)
    stage = begin_stage(sample, chosen, learning, options.seed)
    stage.evaluate(stage.logs)
    log(stage.record(problem))
    return stage.kernel


def compare(
    sample: SampledRows, problem: Problem, learning: LearningOptions, options: Options, basic: bool
) -> tuple[dict[str, Any], Kernel, int]:
    """Cross-validate ``one_widths`` and a width per feature: ``basic`` RVMs of two classes, or their indicators.

    The search for a width per feature has few centres and no revival stage; of indicators it begins at the kernel with
    the best evidence. Returns the choice of ``choice_of``, its best kernel, and the number of evaluations.
    """
    kernels = one_widths(sample, problem)
    few, seed = min(learning.centres, CENTRES), options.seed
    small = replace(learning, centres=few, max_centres=few)
    behind = np.append(np.full(len(kernels), BEHIND), EACH_BEHIND)
    sums: list[Float] = []
    evaluated, held, total = 0, 0, np.zeros(len(behind))
    for fold in stratified_folds(problem, seed, sample.rows.rows):
        kept = sample.only(np.setdiff1d(sample.rows.rows, fold))
        best = int(np.argmin(total[:-1]))
        running = total <= (behind * total[best] if basic else np.inf)
        left = [kernel for kernel, each in zip(kernels, running, strict=False) if each]
        begun, fits, evaluations = problem, [], len(left)
        if not basic:
            centres = begin_stage(kept, problem, small, seed)
            designs = [centres.design(kernel) for kernel in left]
            points = [evaluate(kept, problem, design) for design in designs]
            fits = [(design, point.weights) for design, point in zip(designs, points, strict=True)]
            begun = problem.with_kernel(left[int(np.argmax([point.value for point in points]))])
        if running[-1]:
            stage = first_stage(kept, per_feature(begun), small, seed, revive=False)
            left, evaluations = [*left, stage.kernel], evaluations + stage.evaluations
            fits.append((stage.design(stage.kernel), stage.best.weights))
        fits = fits_at(kept, problem, options, left) if basic else fits
        errors = np.zeros(len(total))
        errors[running] = losses(sample.only(fold), problem, fits)
        if not running.all():
            errors[~running] = errors[best] * total[~running] / total[best]
        evaluated, held, total, sums = evaluated + evaluations, held + len(fold), total + errors, [*sums, errors]
        if held >= HELD_OUT:
            break
    choice, number = choice_of(problem, np.array(sums), held)
    return choice, kernels[number], evaluated


def losses(held_out: SampledRows, problem: Problem, fits: list[tuple[Design, Float]]) -> list[float]:
    """Compute the loss of each fit, of weights (M, C), on held-out rows: squared errors of indicators, or −log p."""
    if fits[0][1].shape[1] == problem.n_classes:
        passes = (ResidualPass(design, mean, n_classes=problem.n_classes) for design, mean in fits)
        return [float(residual.sum_squares.sum()) for residual in held_out.run(*passes)]
    name = problem.likelihood.name
    return [float(block.nll) for block in held_out.run(*(LogisticPass(design, mean, name) for design, mean in fits))]


def choice_of(problem: Problem, losses: Float, held: int) -> tuple[dict[str, Any], int]:
    """Choose the form with the smaller error; return it with the error of each form: RMSE of indicators, or nats a row.

    ``losses`` (folds, columns) are the summed losses of each fold: one column per kernel of ``one_widths``, and one for
    a width per feature. ``held`` is the number of rows in all these folds. A width per feature must be better by more
    than one standard error. Also returns the number of the best kernel of ``one_widths``.
    """
    sums = losses.sum(axis=0)
    best = int(np.argmin(sums[:-1]))
    one, gain = losses[:, best], losses[:, best] - losses[:, -1]
    least, errors = gain.std(ddof=1) / np.sqrt(len(gain)) if len(gain) > 1 else 0.0, sums[[best, -1]] / held
    if problem.n_classes > 2:
        least, errors = max(least, LEAST_GAIN * one.mean()), np.sqrt(errors / problem.n_classes)
    forms = ((ONE, UNSCALED)[best // len(WIDTHS)], EACH)
    by_form = dict(zip(forms, errors.tolist(), strict=True))
    width, chosen = float(WIDTHS[best % len(WIDTHS)]), forms[int(gain.mean() > least)]
    return {"form": chosen, "rows": held, "width": width, "errors": by_form}, best


def one_widths(sample: SampledRows, problem: Problem) -> list[Kernel]:
    """Return the kernels with one width: the initial kernel at ``WIDTHS``; of more than two classes, unscaled too.

    An unscaled kernel has one width for the features in their own units (gammas proportional to variances). It suits
    features of one unit, such as pixels, of which some hardly vary: scaled to variance 1 these decide the distances.
    """
    kernel = problem.empty.kernel
    found = [kernel.rescaled(width) for width in WIDTHS]
    if problem.n_classes <= 2:
        return found
    scaling = problem.empty.scaling
    each = kernel.per_feature(scaling.n_inputs)
    variance = (scaling.inputs(sample.rows.gather(sample.rows.rows).X) * scaling.x_scale).var(axis=0)
    if len(each.logs) != scaling.n_inputs or not variance.any():
        return found
    with np.errstate(divide="ignore"):
        unscaled = each.with_logs(each.logs + np.log(variance / variance.mean()))
    return found + [unscaled.rescaled(width) for width in WIDTHS]


def stratified_folds(problem: Problem, seed: int, rows: Int) -> tuple[Int, ...]:
    """Split rows with these numbers at random into ``FOLDS`` sorted folds, stratified by class."""
    order = rows[stream(seed, Purpose.FOLDS).permutation(len(rows))].astype(np.int64)
    if problem.codes is not None:
        order = order[np.argsort(problem.codes[order], kind="stable")]
    return tuple(np.sort(order[fold::FOLDS]) for fold in range(FOLDS))


def sparseness(sample: SampledRows, problem: Problem, tol: float) -> Record:
    """Fit a basic RVM to the sample; return its history record, which has the numbers of candidates and vectors."""
    design = sample.candidates(problem, sample.rows.rows)
    options = Options(sample.rows.n_rows * problem.n_kernels, "random", tol=INTERMEDIATE * tol)
    likelihood: Any = problem.likelihood
    fit: Any
    rule = replace(final_rule(options), guard=False)
    if not likelihood.has_noise:
        (newton,) = _newton(sample, problem, [design], options)
        fit, reason = newton.fit, newton.reason
    else:
        (block,) = sample.run(GramPass(problem.empty, design, np.zeros((0, len(design.scaling.t_shift)))))
        begun = likelihood.join(problem, likelihood.start(problem), problem.empty, design, block)
        sample.check_interrupted()
        (solution,) = sample.executor.solve([Solve(begun, rule)], lambda done, total: sample.check_interrupted())
        fit, reason = solution.fit, solution.reason
        (residual,) = sample.run(ResidualPass(survivors(design, fit), fit.posterior.means))
        fit = likelihood.settle(fit, residual, last=True)
    assert reason is not None
    facts: dict[str, Any] = {"number": 1, "candidates": len(design.labels), "selection": "random", "fit_rows": "sample"}
    return Record(**likelihood.record(problem, fit, None), kind="heuristic", termination=reason, **facts)


def fits_at(
    sample: SampledRows, problem: Problem, options: Options, kernels: Sequence[Kernel]
) -> list[tuple[Design, Float]]:
    """Fit one basic RVM of two classes per kernel; return for each the columns kept and the posterior mean (M, 1)."""
    rows = sample.rows.rows
    if len(rows) > CANDIDATES:
        rows = np.sort(stream(options.seed, Purpose.BASIC_CANDIDATES).permutation(rows)[:CANDIDATES])
    designs = [sample.candidates(problem.with_kernel(kernel), rows) for kernel in kernels]
    loose = replace(options, tol=INTERMEDIATE * options.tol)
    found = [course.fit for course in _newton(sample, problem, designs, loose)]
    return [(survivors(design, fit), fit.mean) for design, fit in zip(designs, found, strict=True)]


def _newton(sample: SampledRows, problem: Problem, designs: list[Design], options: Options) -> list[Newton]:
    """Run several classification fits together, so that one reading of the rows serves the next pass of each fit."""
    likelihood: Any = problem.likelihood
    start = likelihood.warm(likelihood.start(problem))
    rule = replace(final_rule(options), max_iterations=options.max_passes, guard=False)
    running = [Newton(design, likelihood.name, start, rule, prior=problem.prior) for design in designs]
    while going := [k for k, course in enumerate(running) if course.reason is None]:
        blocks: list[Any] = sample.run(*(running[k].next_pass for k in going))
        for k, block in zip(going, blocks, strict=True):
            running[k] = running[k].advance(block, sample.check_interrupted)
    return running
