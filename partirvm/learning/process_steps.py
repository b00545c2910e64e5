"""Steps of a kernel search by exact processes: widths, warps, families and directions, and the
errors of left-out rows."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from partirvm.core.groups import standard_error
from partirvm.core.held_back import (
    new_groups_last,
    search_splits,
)
from partirvm.core.sampling import Purpose, stream
from partirvm.core.termination import Termination
from partirvm.kernels import Several
from partirvm.kernels.composed import inside
from partirvm.kernels.radial import RadialKernel
from partirvm.learning.exact_process import ProcessFit, ProcessRows, climb, from_starts
from partirvm.learning.features import warped
from partirvm.learning.forms import FAMILIES, with_family
from partirvm.learning.left_out_judge import judge_of
from partirvm.learning.sample import SampledRows
from partirvm.learning.screening import jittered, screened
from partirvm.learning.search import LOSS, kernel_record, reductions
from partirvm.learning.steep import noise_alone
from partirvm.learning.turning import directions
from partirvm.process import in_threads
from partirvm.spec.entries import Record
from partirvm.spec.problem import Problem
from partirvm.types import Float, Int

WORK = 1.25e7
"""Maximum rows² × features per evaluation: 400 rows with up to 78 features. A search takes about a
hundred evaluations."""

FIRST_ROWS = 100
"""Minimum number of rows in the steps from each start; half of a search's rows are enough to find
the same optima."""

SCREENED_ROWS = 4000
"""Maximum number of rows for screening single features; 400 rows miss a wave in half of the
draws."""

SCREENED = 100
"""Maximum number of features that are screened."""

FIRST_NOISE = 0.01
"""Initial noise ÷ target variance."""

WARP_ROWS = 2000
"""Maximum number of left-out rows that decide about warps."""

STARTS_CLIMBED = 2
"""Number of starts that are continued to the end; a third start gains little."""

FIRST_STEPS = 6
"""Maximum number of L-BFGS steps from a start."""

LATER_STEPS = 35
"""Maximum number of L-BFGS steps from the best starts."""

STEPS = 20
"""Maximum number of L-BFGS steps from another kernel."""

FOLD_STEPS = 5
"""Maximum number of L-BFGS steps in a fold."""

BETTER = 0.5
"""Minimum decrease in squared error compared with the mean alone, in standard errors, for a kernel
to be used."""


def searchable(problem: Problem) -> bool:
    """Return whether a process can learn this problem's kernel: it must be a single kernel with
    parameters."""
    kernel = problem.empty.kernel
    return not isinstance(kernel, Several) and bool(np.isfinite(kernel.logs).any())


def first_widths(sample: SampledRows, problem: Problem, order: Int, most: int) -> ProcessFit:
    """Return the best widths of the kernel.

    Args:
        sample: the sample of rows
        problem: the problem with the initial kernel
        order: (n,), row numbers in random order
        most: maximum number of rows of the last search
    """
    sample.on_step("widths")
    rows = ProcessRows.of(sample, problem, order[:most])
    more = ProcessRows.of(sample, problem, order[:SCREENED_ROWS])
    few = ProcessRows.of(sample, problem, order[: min(max(most // 2, FIRST_ROWS), most)])
    return _from_starts(few, rows, more)


def warped_if_better(
    sample: SampledRows,
    problem: Problem,
    order: Int,
    most: int,
    widths: ProcessFit,
    judged: bool,
    warp: Callable[..., tuple[Problem, ProcessFit]] = warped,
) -> tuple[Problem, ProcessFit, dict[str, float]]:
    """Warp skewed features unless this raises the error on rows used to learn neither the widths
    nor the warps.

    The mean absolute error of up to ``WARP_ROWS`` rows decides. For targets with long tails, a few
    rows dominate the mean squared error: on census 8H, it prefers the worse choice, and so do
    samples of 500 rows.

    Args:
        sample: the sample of rows
        problem: the problem with unwarped features
        order: (n,), row numbers in random order
        most: number of rows used to learn ``widths``
        widths: the best kernel for unwarped features
        judged: whether left-out rows may decide
        warp: learns the warps, with the first five arguments

    Returns the problem, its best process, and the compared errors (empty if none were compared), in
    units of the scaled targets.
    """
    judge = None
    if judged and problem.target_variance:
        judge = judge_of(sample, problem, order, most=WARP_ROWS)
    if judge is None or most + len(judge.new) > len(order):
        return *warp(sample, problem, order, most, widths), {}
    teachers = order[~np.isin(order, judge.new)]
    warped_problem, warped_widths = warp(sample, problem, teachers, most, widths)
    if warped_problem is problem:
        return problem, widths, {}
    warped_judge = replace(judge, problem=warped_problem)
    errors = {
        "plain": judge.absolute_error(widths),
        "warped": warped_judge.absolute_error(warped_widths),
    }
    if errors["warped"] > errors["plain"]:
        return problem, widths, errors
    return warped_problem, warped_widths, errors


def search(
    sample: SampledRows,
    problem: Problem,
    order: Int,
    most: int,
    first: ProcessFit,
    *,
    family: bool,
    turned: bool,
) -> tuple[ProcessFit, ProcessFit | None, dict[str, float]]:
    """Search over families, then over directions.

    Args:
        sample: the sample of rows
        problem: the problem whose kernel is learned
        order: (n,), row numbers in random order
        most: maximum number of rows
        first: the fit of widths from which the search starts
        family: whether to try other families
        turned: whether to search for directions

    Returns the fits with widths and with directions, and the evidence of each family in nats.
    """
    rows = ProcessRows.of(sample, problem, order[:most])
    d = problem.empty.scaling.n_inputs
    best = first
    radial = inside(first.kernel, d, RadialKernel) if family else []
    evidence = {radial[0][0].name: float(best.value)} if radial else {}
    names = [each for each in FAMILIES if radial and each not in evidence]
    others = in_threads(
        lambda each: climb(rows, replace(first, kernel=with_family(first.kernel, each, d)), STEPS),
        names,
    )
    evidence |= {name: float(found.value) for name, found in zip(names, others, strict=True)}
    best = max([best, *others], key=lambda each: each.value)
    sample.on_best(problem.with_kernel(best.kernel).empty)
    sample.on_step("directions")
    return best, directions(rows, best) if turned else None, evidence


def evidence_of(sample: SampledRows, problem: Problem, seed: int) -> float:
    """Return the evidence of a problem's best widths, found from the starts of ``search`` on the
    rows of a search."""
    order = in_order(sample, seed)
    most = min(sample.effort.rows, int(np.sqrt(WORK / problem.empty.scaling.n_inputs)))
    kernel = problem.empty.kernel.per_feature(problem.empty.scaling.n_inputs)
    rows = ProcessRows.of(sample, problem.with_kernel(kernel), order[:most])
    few = ProcessRows.of(sample, rows.problem, order[: min(max(most // 2, FIRST_ROWS), most)])
    return _from_starts(few, rows, rows).value


def _from_starts(few: ProcessRows, rows: ProcessRows, more: ProcessRows) -> ProcessFit:
    """Return the best result of searches from common widths and from starts found on ``more``
    rows; each begins on ``few`` rows."""
    kernel = rows.problem.empty.kernel
    starts = jittered(kernel.logs, rows.sample.effort.starts, seed=0)
    if 1 < len(kernel.logs) <= SCREENED:
        starts += screened(more, kernel)
    best = from_starts(few, starts, FIRST_NOISE, FIRST_STEPS, STARTS_CLIMBED)
    climbed: list[ProcessFit] = in_threads(lambda fit: climb(rows, fit, LATER_STEPS), best)
    return max(climbed, key=lambda each: each.value)


def left_out(
    sample: SampledRows,
    problem: Problem,
    widths: ProcessFit,
    turned: ProcessFit | None,
    order: Int,
    most: int,
    *,
    afresh: bool = False,
    process: type[ProcessRows] = ProcessRows,
) -> Float:
    """Predict n left-out rows with the mean alone, with widths and, unless None, with directions.

    With one split of many rows, both fits were learned from the kept rows and are used unchanged.
    In folds of few rows, they are learned again from the other folds: with parameters learned from
    all rows, errors would be a fifth too small.

    Args:
        sample: the sample of rows
        problem: the problem whose kernel is learned
        widths: the fit of widths
        turned: the fit of directions, or None
        order: (n,), row numbers in random order
        most: maximum number of rows used for prediction
        afresh: whether the search in a fold is restarted from the initial kernels: with many
            features, a few steps from the optimum for all rows do not remove the information from
            left-out rows
        process: the class of processes

    Returns log densities in nats and squared errors times row weights, for scaled targets,
    (k, 2, n) for the mean and the k − 1 fits.
    """
    splits = search_splits(order, most, sample.groups_of(order))
    parts = []
    for kept, outside in splits:
        rows = process.of(sample, problem, kept)
        new = process.of(sample, problem, outside)
        fits = [widths, turned]
        if len(splits) > 1 and afresh:
            fits = searched_again(rows, kept, widths, turned)
        elif len(splits) > 1:
            of_fold = climb(rows, widths, FOLD_STEPS)
            fits = [of_fold, None]
            if turned is not None:
                fits[1] = directions(rows, of_fold, 1, turned.pairs)
        compared = [noise_alone(rows), *(fit for fit in fits if fit is not None)]
        predicted = [rows.predicted(fit, new) for fit in compared]
        parts.append(
            [[density, (errors**2).mean(axis=1) / new.inverse] for errors, density in predicted]
        )
    return np.concatenate(parts, axis=-1)


def searched_again(
    rows: ProcessRows, kept: Int, widths: ProcessFit, turned: ProcessFit | None
) -> list[ProcessFit | None]:
    """Repeat in a fold the search for widths and, unless ``turned`` is None, for directions.

    Args:
        rows: the rows of the fold
        kept: the row numbers of these rows
        widths: the fit of widths to all rows, which determines the family
        turned: the fit of directions to all rows, or None
    """
    d = rows.problem.empty.scaling.n_inputs
    first = ProcessRows.of(rows.sample, rows.problem, kept[: max(len(kept) // 2, FIRST_ROWS)])
    of_fold = _from_starts(first, rows, rows)
    radial = inside(widths.kernel, d, RadialKernel)
    if radial:
        kernel = with_family(of_fold.kernel, radial[0][0].name, d)
        of_fold = climb(rows, replace(of_fold, kernel=kernel), FOLD_STEPS)
    return [of_fold, None if turned is None else directions(rows, of_fold, 1)]


def in_order(sample: SampledRows, seed: int) -> Int:
    """Return the numbers of the rows with positive weight, in random order, with rows of left-out
    groups at the end."""
    order = stream(seed, Purpose.PROCESS_ROWS).permutation(sample.rows.rows)
    order = order[sample.rows.gather(order).present]
    groups = sample.groups_of(order)
    return np.asarray(order if groups is None else new_groups_last(order, groups))


def better_than_mean(
    square: Float, mean_square: Float, margin: float = BETTER, groups: Int | None = None
) -> bool:
    """Return True if squared errors (n,) on left-out rows are lower than with the mean alone.

    Args:
        square: squared errors with a kernel (n,)
        mean_square: squared errors with the mean alone (n,)
        margin: minimum mean gain in standard errors
        groups: groups of the rows (n,), or None
    """
    gain = mean_square - square
    return bool(gain.mean() > margin * standard_error(gain, groups))


def without_weak_features(rows: ProcessRows, best: ProcessFit) -> ProcessFit:
    """Switch off a kernel's weak features, unless the evidence falls by more than ``LOSS`` nats per
    feature."""
    before: tuple[float, Float] | None = None
    for reduced, removed in reductions(best.kernel, rows.X.shape[1]):
        before = before or rows.evaluate(best)
        without_feature = rows.evaluate(replace(best, kernel=reduced))
        if (
            without_feature is not None
            and before is not None
            and without_feature[0] > before[0] - LOSS * removed
        ):
            return replace(
                best, kernel=reduced, value=best.value + without_feature[0] - before[0], pairs=[]
            )
    return best


def process_record(rows: ProcessRows, best: ProcessFit, choice: dict[str, Any]) -> Record:
    """Return the history record of a kernel learned by a process."""
    first = rows.evaluate(replace(best, kernel=rows.problem.empty.kernel))
    n = len(rows.X)
    facts = {
        "number": 1,
        "candidates": n,
        "iterations": best.evaluations,
        "fit_rows": "sample",
        "choice": choice,
        "gain": 0.0 if first is None else best.value - first[0],
        "termination": Termination.CONVERGED,
    }
    return kernel_record(rows.problem, best.kernel, rows.noise_of(best), n, best.value, facts)
