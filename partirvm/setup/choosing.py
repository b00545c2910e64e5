"""``gamma="auto"``: choose by cross-validation between one width and a width per feature, then learn the kernel.

A width per feature can model more, but it needs enough rows for its many parameters, and the evidence does not show
whether there are enough. With more than ``MANY`` rows the kernel always gets a width per feature. With fewer rows,
cross-validation with ``FOLDS`` folds decides. For each fold:

1. A width per feature is learned from the rows outside the fold (the first stage of ``setup.kernel_search``).
2. The tied RVM (``core.tied``) is fitted with the same centres at single widths: ``WIDTHS`` × the initial width.
3. One pass over the fold measures the error of each fit.

If the final fit has every row as a candidate, step 2 fits basic RVMs instead of the tied RVM. A basic RVM has one α per
row, and it overfits at some widths at which a tied RVM of a few centres does not. On pima, german and cancer the best
width of the tied RVM increased the log loss of the basic RVM by 5 to 20 %.

The form with the smaller summed error is chosen. A width per feature must be better by more than one standard error
over the folds, because a wrong choice of this form costs more than a wrong choice of one width. If one width is chosen,
the best of ``WIDTHS`` is used. If a width per feature is chosen, its widths are learned again from all rows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partirvm.kernels import Kernel, Several
from partirvm.setup.basic_fits import fits_at
from partirvm.setup.evaluation import losses, tied_mean
from partirvm.setup.kernel_search import LearningOptions, begin_stage, first_stage, learn
from partirvm.setup.sample import Sample
from partirvm.strategies.instructions import Record
from partirvm.strategies.problem import Options, Problem
from partirvm.strategies.relearning import with_kernel

Float = NDArray[np.float64]
Int = NDArray[np.int64]

LEAST = 20
"""Minimum number of rows for kernel learning."""

MANY = 2000
"""With more rows than this, the kernel gets a width per feature without cross-validation."""

FOLDS = 5
"""Number of folds of the cross-validation."""

HELD_OUT = 500
"""Number of held-out rows after which no further fold is evaluated."""

CENTRES = 100
"""Maximum number of centres in the fits of a fold, enough to compare the two forms."""

WIDTHS = 2.0 ** np.arange(-3, 4)
"""Widths to compare, as multiples of the initial width."""

ONE, EACH = "one width", "a width per feature"
"""Names of the two forms in the history and the plan."""

DRAW = 4
"""Number that makes the random folds different from other draws with the same seed."""


def choose(
    sample: Sample, problem: Problem, learning: LearningOptions, options: Options, *, all_candidates: bool
) -> Kernel | Several:
    """Choose the form of the kernel by cross-validation, then learn the kernel from the sample.

    The kernel of the problem has one gamma. The history entries record the choice. ``all_candidates`` is True if every
    row is a candidate of the final fit and memory allows fits of this size; the folds then fit basic RVMs.
    """
    choice: dict[str, Any] = {"form": EACH, "rows": problem.n_rows}
    sums: list[list[float]] = []
    evaluated, held = 0, 0
    if problem.n_rows <= MANY:
        folds = stratified_folds(problem, options.seed)
        while len(sums) < FOLDS and held < HELD_OUT:
            fold = folds[len(sums)]
            errors, evaluations = _fold_losses(sample, problem, learning, options, fold, all_candidates=all_candidates)
            evaluated, held, sums = evaluated + evaluations, held + len(fold), [*sums, errors]
        choice = choice_of(problem, np.array(sums), held)

    def log(record: Record) -> None:
        before = evaluated if record.number == 1 else 0
        sample.log(replace(record, choice=choice, iterations=record.iterations + before))

    if choice["form"] == EACH:
        return learn(replace(sample, log=log), per_feature(problem), learning, options.seed)
    stage = begin_stage(
        sample, with_kernel(problem, problem.empty.kernel.rescaled(choice["width"])), learning, options.seed
    )
    stage.evaluate_next(fresh=True)
    log(stage.record())
    return stage.kernel


def choice_of(problem: Problem, losses: Float, held: int) -> dict[str, Any]:
    """Choose the form with the smaller error; return it with both errors, in target units or in nats per row.

    ``losses`` (folds, len(WIDTHS) + 1) are the summed losses of each fold: one column per width in ``WIDTHS``, and a
    last column for a width per feature. ``held`` is the number of rows in all these folds.
    """
    sums = losses.sum(axis=0)
    best = int(np.argmin(sums[:-1]))
    gain = losses[:, best] - losses[:, -1]
    standard_error = gain.std(ddof=1) / np.sqrt(len(gain)) if len(gain) > 1 else 0.0
    form = EACH if gain.mean() > standard_error else ONE
    errors = sums / held
    if not problem.classifies:
        errors = problem.target_scale * np.sqrt(errors / problem.n_targets)
    one, each = float(errors[best]), float(errors[-1])
    return {"form": form, "rows": held, "width": float(WIDTHS[best]), "one": one, "each": each}


def per_feature(problem: Problem) -> Problem:
    """Return the problem with a kernel that has one gamma per feature."""
    return with_kernel(problem, problem.empty.kernel.per_feature(problem.empty.centres.shape[1]))


def stratified_folds(problem: Problem, seed: int) -> tuple[Int, ...]:
    """Split the rows at random into ``FOLDS`` folds, stratified by class; each fold is sorted by row number."""
    order = np.random.default_rng((seed, DRAW)).permutation(problem.n_rows).astype(np.int64)
    if problem.codes is not None:
        order = order[np.argsort(problem.codes[order], kind="stable")]
    return tuple(np.sort(order[fold::FOLDS]) for fold in range(FOLDS))


def _fold_losses(
    sample: Sample, problem: Problem, learning: LearningOptions, options: Options, fold: Int, *, all_candidates: bool
) -> tuple[list[float], int]:
    """Fit each kernel without a fold; return the losses (len(WIDTHS) + 1,) on the fold and the number of evaluations.

    The search for a width per feature skips its revival stage, which does not change the choice.
    """
    kept, few = sample.only(np.setdiff1d(np.arange(problem.n_rows), fold)), min(learning.centres, CENTRES)
    stage = first_stage(
        kept, per_feature(problem), LearningOptions(few, few, learning.prior), options.seed, revive=False
    )
    kernels = [problem.empty.kernel.rescaled(width) for width in WIDTHS]
    assert stage.best is not None
    if all_candidates:
        fits = fits_at(kept, problem, options, [*kernels, stage.kernel])
        evaluated = len(fits)
    else:
        designs, evaluated = [stage.design(kernel) for kernel in kernels], len(kernels)
        fits = [(design, tied_mean(kept, problem, design, stage.best)) for design in designs]
        fits.append((stage.design(stage.kernel), stage.best.weights))
    return losses(sample.only(fold), problem, fits), stage.evaluations + evaluated
