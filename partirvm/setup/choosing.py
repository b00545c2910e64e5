"""``gamma="auto"``: one width or a width per feature, whichever errs less on rows held out; then that is learned.

A width per feature tells most, where the rows can carry so many parameters; whether they can, evidence does not say.
With more than ``MANY`` rows this question is skipped. With fewer, rows are dealt to ``FOLDS`` folds, held out by
turns. On the rows outside a width per feature is learned (``setup.kernel_search``, its first search alone), and the
tied RVM (``core.tied``) is fitted at one width after the other, ``WIDTHS`` × the one that was given, with the same
centres; a pass over the fold tells the error of each. Where every row is to be a candidate it is that fit which is
judged, at all of these kernels, instead of the tied one: it has an α for each of as many candidates as there are rows,
and overfits where the tied RVM of a few centres does not (pima, german and cancer lost 5 to 20 % of log loss to widths
that the tied one held for best). The least sum decides, but a width per feature must be ahead by more than a standard
error over the folds: chosen by luck, it loses more than one width would. One width is known then; a width per feature
is learned again, from all rows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partirvm.kernels import Kernel, Several
from partirvm.setup.basic_fits import fits_at
from partirvm.setup.evaluation import losses, tied_mean
from partirvm.setup.kernel_search import Ask, begin_stage, first_stage, learn
from partirvm.setup.sample import Sample
from partirvm.strategies.instructions import Record
from partirvm.strategies.problem import Options, Problem
from partirvm.strategies.relearning import with_kernel

Float = NDArray[np.float64]
Int = NDArray[np.int64]

LEAST = 20
"""With fewer rows nothing is learned."""

MANY = 2000
"""With more rows each feature gets its width, unasked."""

FOLDS = 5

HELD_OUT = 500
"""Folds are tried until so many rows were held out."""

CENTRES = 100
"""Centres in a fold, at most: enough to tell one form from another."""

WIDTHS = 2.0 ** np.arange(-3, 4)
"""Widths that are tried, as multiples of the one that was given."""

ONE, EACH = "one width", "a width per feature"
"""The forms, as history and plan call them."""

DRAW = 4
"""Sets the deal of folds apart from other draws of the same seed."""


def choose(sample: Sample, problem: Problem, ask: Ask, options: Options, *, rehearse: bool) -> Kernel | Several:
    """The kernel learned from a sample, once it is known what is to be learned; its lines of history tell that, too.

    The kernel of the problem has one gamma. ``rehearse`` says that the fit to come has every row for a candidate, and
    that memory has room for it.
    """
    choice: dict[str, Any] = {"form": EACH, "rows": problem.n_rows}
    sums: list[list[float]] = []
    looked, held = 0, 0
    if problem.n_rows <= MANY:
        folds = deal(problem, options.seed)
        while len(sums) < FOLDS and held < HELD_OUT:
            fold = folds[len(sums)]
            errors, evaluations = _judge(sample, problem, ask, options, fold, rehearse=rehearse)
            looked, held, sums = looked + evaluations, held + len(fold), [*sums, errors]
        choice = choice_of(problem, np.array(sums), held)

    def log(record: Record) -> None:
        before = looked if record.number == 1 else 0
        sample.log(replace(record, choice=choice, iterations=record.iterations + before))

    if choice["form"] == EACH:
        return learn(replace(sample, log=log), per_feature(problem), ask, options.seed)
    stage = begin_stage(sample, with_kernel(problem, problem.empty.kernel.rescaled(choice["width"])), ask, options.seed)
    stage.look(fresh=True)
    log(stage.record())
    return stage.kernel


def choice_of(problem: Problem, losses: Float, held: int) -> dict[str, Any]:
    """The form of least error, and the errors, in the target's units or in nats per row.

    ``losses`` (folds, len(WIDTHS) + 1) are sums over ``held`` rows in all, of ``WIDTHS`` and of a width per feature.
    """
    sums = losses.sum(axis=0)
    best = int(np.argmin(sums[:-1]))
    ahead = losses[:, best] - losses[:, -1]
    chance = ahead.std(ddof=1) / np.sqrt(len(ahead)) if len(ahead) > 1 else 0.0
    form = EACH if ahead.mean() > chance else ONE
    errors = sums / held
    if not problem.classifies:
        errors = problem.target_scale * np.sqrt(errors / problem.n_targets)
    one, each = float(errors[best]), float(errors[-1])
    return {"form": form, "rows": held, "width": float(WIDTHS[best]), "one": one, "each": each}


def per_feature(problem: Problem) -> Problem:
    """The same with its kernel's gamma for each feature."""
    return with_kernel(problem, problem.empty.kernel.per_feature(problem.empty.centres.shape[1]))


def deal(problem: Problem, seed: int) -> tuple[Int, ...]:
    """``FOLDS`` folds of all rows at random, each with its share of every class; row numbers increase."""
    order = np.random.default_rng((seed, DRAW)).permutation(problem.n_rows).astype(np.int64)
    if problem.codes is not None:
        order = order[np.argsort(problem.codes[order], kind="stable")]
    return tuple(np.sort(order[fold::FOLDS]) for fold in range(FOLDS))


def _judge(
    sample: Sample, problem: Problem, ask: Ask, options: Options, fold: Int, *, rehearse: bool
) -> tuple[list[float], int]:
    """What kernels fitted without a fold are worth on it (len(WIDTHS) + 1,), and how many evaluations that took.

    What a second search may find decides nothing, and is left out.
    """
    kept, few = sample.only(np.setdiff1d(np.arange(problem.n_rows), fold)), min(ask.centres, CENTRES)
    stage = first_stage(kept, per_feature(problem), Ask(few, few, ask.prior), options.seed, revive=False)
    kernels = [problem.empty.kernel.rescaled(width) for width in WIDTHS]
    assert stage.best is not None
    if rehearse:
        fits = fits_at(kept, problem, options, [*kernels, stage.kernel])
        looked = len(fits)
    else:
        designs, looked = [stage.design(kernel) for kernel in kernels], len(kernels)
        fits = [(design, tied_mean(kept, problem, design, stage.best)) for design in designs]
        fits.append((stage.design(stage.kernel), stage.best.weights))
    return losses(sample.only(fold), problem, fits), stage.evaluations + looked
