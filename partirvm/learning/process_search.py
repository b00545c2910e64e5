"""Search for a regression kernel with the evidence of an exact Gaussian process on a subset of the rows.

A tied RVM with a few hundred centres cannot express a function with much detail: its evidence takes the detail for
noise and increases the widths. An exact process has every row as a centre. L-BFGS raises its evidence in the kernel's
log parameters, the signal variance and the noise variance together, from several widths (``STARTS``) and little noise,
so that detail is explained before anything is taken for noise. The candidates:

- *widths*: from several widths of all features, and from the features that individually raise the evidence.
- *families*: a few steps lead from the best Gaussian widths to those of the Matérn kernels, with as many parameters.
- *directions* (``learning.forms``): eigenvectors of the mean outer product of the gradient of the process mean. They
  are computed ``TURNS`` times, since the gradient sees more once the kernel follows the directions. The evidence does
  not penalise their d² entries; left-out rows decide: the mean log density must rise by more than its standard error.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from partirvm.core.sampling import Purpose, stream
from partirvm.core.termination import Termination
from partirvm.kernels import Directions, Several
from partirvm.kernels.composed import inside
from partirvm.kernels.radial import RadialKernel
from partirvm.learning.exact_process import ProcessFit, ProcessRows, climb
from partirvm.learning.features import warped
from partirvm.learning.forms import DIRECTIONS, EACH, FAMILIES, MEAN, along_directions, learn, turnable, with_family
from partirvm.learning.sample import SampledRows
from partirvm.learning.screening import screened
from partirvm.learning.search import LOSS, LearningOptions, kernel_record, reductions
from partirvm.learning.steep import explains_little, noise_alone, steep_directions
from partirvm.process import in_threads
from partirvm.strategies.problem import Problem, Record
from partirvm.types import Float, Int

ROWS, LAST_ROWS = 400, 1000
"""Number of rows in the searches (500 would double their time), and in the last steps from the best of them."""

WORK = 1.25e7
"""Maximum rows² × features per evaluation: 400 rows with up to 78 features. A search takes some hundred evaluations."""

FEW = 2000
"""Up to this many rows, the process kernel is the result; with more rows, the tied search starts from it."""

STARTS = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Initial inverse widths, relative to that of gamma="scale"."""

FIRST_ROWS = 100
"""Minimum number of rows in the steps from each start; half of a search's rows find the same optima."""

SCREENED_ROWS, SCREENED = 4000, 100
"""Maximum number of rows for screening single features (400 miss a wave in half of the draws), and of features."""

JITTER, FIRST_NOISE = 0.3, 0.01
"""Spread of initial log parameters around a start, since equal features can stay equal; initial noise ÷ variance."""

STARTS_CLIMBED, TURNS = 2, 3
"""Number of starts that are followed to the end (a third hardly gains), and of turns of the directions."""

FIRST_STEPS, LATER_STEPS, STEPS, FOLD_STEPS, LAST_STEPS = 6, 35, 20, 5, 10
"""Maximum number of L-BFGS steps from a start, then from the best starts, from another kernel, in a fold, and at the
end."""

FOLDS, LEFT_OUT = 5, 400
"""Number of folds in which directions are compared with widths, and of left-out rows after which no fold follows."""


WIDE = 10
"""Rows per feature below which folds start the search again, and the mean alone is a candidate."""

BETTER = 0.5
"""Minimum fall of the squared error from that of the mean alone, in standard errors, for a kernel to be used."""


def searchable(problem: Problem) -> bool:
    """Return whether a process can search this problem's kernel: one kernel with parameters."""
    kernel = problem.empty.kernel
    return not isinstance(kernel, Several) and bool(np.isfinite(kernel.logs).any())


def search(
    sample: SampledRows, problem: Problem, order: Int, most: int, *, family: bool, turned: bool, warp: bool
) -> tuple[Problem, ProcessFit, ProcessFit | None, dict[str, float]]:
    """Search widths, warps, families, then directions on ``most`` rows.

    Return the problem with its features warped, the fits of widths and of directions, and the nats of each family.
    """
    sample.on_step("widths")
    rows, d = ProcessRows.of(sample, problem, order[:most]), problem.empty.scaling.n_inputs
    more = ProcessRows.of(sample, problem, order[:SCREENED_ROWS])
    few = ProcessRows.of(sample, problem, order[: min(max(most // 2, FIRST_ROWS), most)])
    best = first = _from_starts(few, rows, more)
    if warp:
        problem, first = warped(sample, problem, order, most, first)
        best, rows = first, ProcessRows.of(sample, problem, order[:most])
    radial = inside(first.kernel, d, RadialKernel) if family else []
    evidence = {radial[0][0].name: float(best.value)} if radial else {}
    names = [each for each in FAMILIES if radial and each not in evidence]
    others = in_threads(
        lambda each: climb(rows, replace(first, kernel=with_family(first.kernel, each, d)), STEPS), names
    )
    evidence |= {name: float(found.value) for name, found in zip(names, others, strict=True)}
    best = max([best, *others], key=lambda each: each.value)
    sample.on_best(problem.with_kernel(best.kernel).empty)
    sample.on_step("directions")
    return problem, best, directions(rows, best) if turned else None, evidence


def evidence_of(sample: SampledRows, problem: Problem, seed: int) -> float:
    """Return the evidence of widths for a problem, from the starts of ``search`` on up to ``ROWS`` rows."""
    order = in_order(sample, seed)
    most = min(ROWS, int(np.sqrt(WORK / problem.empty.scaling.n_inputs)))
    kernel = problem.empty.kernel.per_feature(problem.empty.scaling.n_inputs)
    rows = ProcessRows.of(sample, problem.with_kernel(kernel), order[:most])
    few = ProcessRows.of(sample, rows.problem, order[: min(max(most // 2, FIRST_ROWS), most)])
    return _from_starts(few, rows, rows).value


def _from_starts(few: ProcessRows, rows: ProcessRows, more: ProcessRows) -> ProcessFit:
    """Return the best of the searches from ``STARTS`` and from what ``more`` rows show, each on ``few`` rows first."""
    kernel, rng = rows.problem.empty.kernel, stream(0, Purpose.PROCESS_STARTS)
    logs, level = kernel.logs, np.log(rows.problem.target_variance)
    jitter = JITTER if len(logs) > 1 else 0.0
    starts = [logs + 2 * np.log(start) + jitter * rng.normal(size=len(logs)) for start in STARTS]
    if 1 < len(logs) <= SCREENED:
        starts += screened(more, kernel)
    begun = [few.levelled(ProcessFit(kernel.with_logs(start), level, level + np.log(FIRST_NOISE))) for start in starts]
    found = {float(np.round(each.value)): each for each in in_threads(lambda fit: climb(few, fit, FIRST_STEPS), begun)}
    best = [found[value] for value in sorted(found, reverse=True)[:STARTS_CLIMBED]]
    climbed: list[ProcessFit] = in_threads(lambda fit: climb(rows, fit, LATER_STEPS), best)
    return max(climbed, key=lambda each: each.value)


def directions(rows: ProcessRows, widths: ProcessFit, turns: int = TURNS, pairs: Any = ()) -> ProcessFit | None:
    """Return the best kernel of directions after some turns, from the curvature ``pairs``; None if none can turn."""
    d = rows.X.shape[1]
    if not turnable(widths.kernel, d):
        return None
    best = current = climb(rows, replace(_turned(rows, widths, widths), pairs=list(pairs)), STEPS // 2)
    for _ in range(turns - 1 if promising(widths, best, d, 0.25) else 0):
        current = climb(rows, _turned(rows, widths, current), STEPS // 2)
        if current.value < best.value + 1.0:
            break
        best = current
    return best


def _turned(rows: ProcessRows, widths: ProcessFit, current: ProcessFit) -> ProcessFit:
    """Return ``widths`` along eigenvectors of the outer product at ``current``, with gammas vᵀGv of its metric G."""
    outer, d = rows.outer_product(current), rows.X.shape[1]
    before = {tuple(columns.tolist()): each for each, columns in inside(current.kernel, d, Directions)}

    def gamma(old: RadialKernel, columns: Int, axes: Float) -> Float:
        now = before.get(tuple(columns.tolist()))
        matrix = np.eye(len(columns)) if now is None else now.matrix
        widths = (old if now is None else now.kernel).widths(len(columns))
        new = np.einsum("ij,j,ij->i", axes @ matrix.T, widths, axes @ matrix.T)
        return np.asarray(np.maximum(new, 1e-3 * new.max()))

    return replace(current, kernel=along_directions(widths.kernel, outer, gamma))


def left_out(
    sample: SampledRows,
    problem: Problem,
    widths: ProcessFit,
    turned: ProcessFit | None,
    order: Int,
    most: int,
    *,
    afresh: bool = False,
) -> Float:
    """Predict n left-out rows by the mean alone, by widths and, unless None, by directions.

    With one split of many rows, both fits were learned from the kept rows and are used as they are. In folds of few
    rows, they are learned again from the other folds, at most ``most`` rows: with the parameters of all rows, errors
    would be a fifth too small. If ``afresh``, the search in a fold starts as that of all rows did: where features are
    many, a few steps from the optimum of all rows still contain what the left-out rows taught. Returns log densities
    in nats and squared errors times row weights, for scaled targets, (3, 2, n) or (2, 2, n).
    """
    found, parts = [], splits(order, most)
    d = problem.empty.scaling.n_inputs
    for kept, outside in parts:
        rows, new = (ProcessRows.of(sample, problem, each) for each in (kept, outside))
        fits = [widths, turned]
        if len(parts) > 1 and afresh:
            first = ProcessRows.of(sample, problem, kept[: max(len(kept) // 2, FIRST_ROWS)])
            own = _from_starts(first, rows, rows)
            radial = inside(widths.kernel, d, RadialKernel)
            if radial:
                own = climb(rows, replace(own, kernel=with_family(own.kernel, radial[0][0].name, d)), FOLD_STEPS)
            fits = [own, None if turned is None else directions(rows, own, 1)]
        elif len(parts) > 1:
            own = climb(rows, widths, FOLD_STEPS)
            fits = [own, None if turned is None else directions(rows, own, 1, turned.pairs)]
        predicted = [rows.predicted(fit, new) for fit in (noise_alone(rows), *fits) if fit is not None]
        found.append([[density, (errors**2).mean(axis=1) / new.inverse] for errors, density in predicted])
    return np.concatenate(found, axis=-1)


def promising(widths: ProcessFit, turned: ProcessFit | None, d: int, share: float = 1.0) -> bool:
    """Return True if directions raise the evidence by ``share`` nats for each angle between d directions.

    With less, left-out rows preferred them in one of 27 fits to nine datasets, by a gain that new rows did not confirm;
    consulting them would take most of the search.
    """
    return turned is not None and turned.value - widths.value > share * d * (d - 1) / 2


def in_order(sample: SampledRows, seed: int) -> Int:
    """Return the numbers of the rows with positive weight, in random order."""
    order = stream(seed, Purpose.PROCESS_ROWS).permutation(sample.rows.rows)
    return np.asarray(order[sample.rows.gather(order).present])


def splits(order: Int, most: int) -> list[tuple[Int, Int]]:
    """Return kept rows, at most ``most``, and left-out rows: one split if there are many rows, folds if few."""
    if len(order) >= most + LEFT_OUT:
        return [(order[:most], order[most : 3 * most])]
    folds = [order[k::FOLDS] for k in range(FOLDS)][: int(np.ceil(LEFT_OUT * FOLDS / len(order)))]
    return [(np.setdiff1d(order, fold, assume_unique=True)[:most], fold) for fold in folds]


def learn_regression(
    sample: SampledRows,
    problem: Problem,
    learning: LearningOptions,
    seed: int,
    *,
    family: bool,
    warp: bool,
    columns: int,
) -> Problem:
    """Learn the kernel of a regression, and with ``warp`` the warps of its features; return the problem with both.

    The last logged record holds the kernel. A fit may have ``columns`` columns.
    """
    d, order = problem.empty.scaling.n_inputs, in_order(sample, seed)
    most = min(ROWS, int(np.sqrt(WORK / d)), columns)
    tried = {"family": family, "turned": learning.metric != "widths", "warp": warp}
    problem, widths, turned, evidence = search(sample, problem, order, most, **tried)
    chosen = max(evidence, key=evidence.__getitem__, default="")
    facts = {"families": evidence, "family": chosen}
    if learning.metric != "widths" and len(order) >= WIDE * d:
        steep = _from_steep_start(sample, problem, order, most, columns, widths)
        if steep is not None and len(order) <= FEW:
            return steep
        turned = turned if steep is None else ProcessFit(steep.empty.kernel, 0.0, 0.0)
    if most >= min(ROWS, len(order)) and len(order) <= FEW:
        most = min(most, len(order))
        turned = turned if learning.metric != "auto" or promising(widths, turned, d) else None
        sample.on_step("left-out rows")
        little = explains_little(ProcessRows.of(sample, problem, order[:most]), widths)
        doubtful = little or len(order) < WIDE * d
        found = left_out(sample, problem, widths, turned, order, most, afresh=doubtful)
        best, square, choice = _choose(found[1:], widths, turned, learning.metric)
        if doubtful and problem.bias and not better_than_mean(square, found[0, 1]):
            choice["form"], square = MEAN, found[0, 1]
        if (FOLDS - 1) * len(order) <= FOLDS * most:  # nearly all rows were kept in each fit
            choice["left_out_rmse"] = problem.target_scale * float(np.sqrt(square.mean()))
        rows = ProcessRows.of(sample, problem, order[: max(min(columns, LAST_ROWS), most)])
        best = climb(rows, best, LAST_STEPS) if len(rows.X) > most else best
        best = without_weak_features(rows, best)
        sample.on_best(problem.with_kernel(best.kernel).empty)
        sample.log(process_record(rows, best, facts | choice))
        return problem.with_kernel(best.kernel)

    def log(record: Record) -> None:
        sample.log(replace(record, choice=(facts if family else {}) | (record.choice or {})))

    problem = problem.with_kernel(with_family(problem.empty.kernel, chosen, d)) if chosen else problem
    warm, directed = replace(learning, warm=widths.kernel.logs), None if turned is None else turned.kernel
    return problem.with_kernel(learn(replace(sample, log=log), problem, warm, seed, directed))


def _from_steep_start(
    sample: SampledRows, problem: Problem, order: Int, most: int, columns: int, widths: ProcessFit
) -> Problem | None:
    """Return the problem with a kernel of ``learning.steep`` if ``widths`` explain little of ``most`` rows.

    None if that kernel is not better either. With few rows, it is the result, and is logged; a fit may have ``columns``
    columns.
    """
    if not explains_little(ProcessRows.of(sample, problem, order[:most]), widths):
        return None
    steep = steep_directions(sample, problem, order, columns, widths)
    if steep is None:
        return None
    if len(order) <= FEW:
        rows = ProcessRows.of(sample, problem, order[: min(columns, LAST_ROWS)])
        steep = climb(rows, steep, LAST_STEPS)
        sample.log(process_record(rows, steep, {"form": DIRECTIONS}))
    sample.on_best(problem.with_kernel(steep.kernel).empty)
    return problem.with_kernel(steep.kernel)


def better_than_mean(square: Float, mean_square: Float, margin: float = BETTER) -> bool:
    """Return True if squared errors (n,) of left-out rows are lower than those of the mean alone.

    ``margin`` is the minimum mean gain in standard errors.
    """
    gain = mean_square - square
    return bool(gain.mean() > margin * gain.std() / np.sqrt(len(gain)))


def _choose(
    found: Float, best: ProcessFit, turned: ProcessFit | None, metric: str
) -> tuple[ProcessFit, Float, dict[str, Any]]:
    """Choose between widths and directions on left-out rows; return the fit, squared errors and what was compared."""
    choice: dict[str, Any] = {"rows": 0, "gain": 0.0, "error": 0.0} | ({} if metric == "widths" else {"form": EACH})
    gains, square = found[-1, 0] - found[0, 0], found[0, 1]
    if turned is not None and metric == "auto":
        choice["rows"], choice["gain"] = len(gains), float(gains.mean())
        choice["error"] = float(gains.std() / np.sqrt(len(gains)))
    if turned is not None and (metric != "auto" or choice["gain"] > choice["error"]):
        best, choice["form"], square = turned, DIRECTIONS, found[1, 1]
    return best, square, choice


def without_weak_features(rows: ProcessRows, best: ProcessFit) -> ProcessFit:
    """Switch weak features off in a kernel, unless its evidence falls by more than ``LOSS`` nats for each."""
    before: tuple[float, Float] | None = None
    for reduced, removed in reductions(best.kernel, rows.X.shape[1]):
        before = before or rows.evaluate(best)
        found = rows.evaluate(replace(best, kernel=reduced))
        if found is not None and before is not None and found[0] > before[0] - LOSS * removed:
            return replace(best, kernel=reduced, value=best.value + found[0] - before[0], pairs=[])
    return best


def process_record(rows: ProcessRows, best: ProcessFit, choice: dict[str, Any]) -> Record:
    """Make the history record of a kernel learned by a process."""
    first = rows.evaluate(replace(best, kernel=rows.problem.empty.kernel))
    n, variance = len(rows.X), None if rows.problem.n_classes else rows.noise_of(best)
    facts = {"number": 1, "candidates": n, "iterations": best.evaluations, "fit_rows": "sample", "choice": choice}
    facts |= {"gain": 0.0 if first is None else best.value - first[0], "termination": Termination.CONVERGED}
    return kernel_record(rows.problem, best.kernel, variance, n, best.value, facts)
