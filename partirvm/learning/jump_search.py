"""Search for jumps of single features (``kernels.jumps``) beside the kernel of an exact process.

A jump is a column c with a weight of its own. If its prior variance is the best one, it raises the
evidence of a process with covariance K by

    ½ (r − 1 − log r),    r = q²/s > 1,    s = cᵀK⁻¹c,    q = cᵀK⁻¹t

(Tipping & Faul 2003, eq. 21). All thresholds of all features are compared at the price of one
Cholesky factor, so that every fit can afford to look for jumps (``first_gain``). The search adds
the best jump until none gains more than the logarithm of the number of columns compared, adapts the
kernel, moves each threshold to where the left-out errors of all rows are smallest, and looks again.
Jumps are used if they clearly lower the errors of rows from which nothing was learned.
"""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import lapack, solve_triangular

from partirvm.core.groups import standard_error
from partirvm.kernels import Anova
from partirvm.kernels.composed import inside
from partirvm.kernels.functions import Basis
from partirvm.kernels.jumps import Jumps
from partirvm.kernels.radial import RadialKernel
from partirvm.learning.exact_process import ProcessFit, ProcessRows, climb, triangle
from partirvm.learning.left_out_judge import LeftOutJudge
from partirvm.spec.problem import Problem
from partirvm.types import Float, Int

FIRST_NATS = 12.0
"""Gain of a jump from which a search begins. Beside the best kernels of twelve public sets (1,000
rows), the largest gain was 6.3 nats; sums of jumps gain 30 to 60."""

FIRST_COLUMNS = 640
"""Maximum number of columns compared before a search."""

COLUMNS = 2000
"""Maximum number of columns compared in a search: 13 MB for ``ROWS`` rows."""

ROWS = 800
"""Maximum number of rows of the process in a search."""

LEAST_ROWS = 5
"""Minimum number of rows on each side of a threshold."""

MOST_JUMPS = 64
"""Maximum number of jumps."""

ROUNDS = 6
"""Maximum number of times that jumps are added."""

STEPS = 5
"""Maximum number of L-BFGS steps after jumps were added."""

CLEAR = 2.0
"""Minimum decrease in absolute error of left-out rows, in standard errors."""


class JumpSearch(NamedTuple):
    """Jumps that are clearly better than none.

    Attributes:
        jumps: the jumps
        facts: compared figures for the history
    """

    jumps: Jumps
    facts: dict[str, Any]


class JumpColumns(NamedTuple):
    """Jumps that are compared.

    Attributes:
        features: position of each jump's feature, (m,)
        thresholds: (m,), in the units of the features
        values: 0 or 1 in each row, (n, m)
    """

    features: Int
    thresholds: Float
    values: Float

    @classmethod
    def of(cls, X: Float, numeric: Int, most: int) -> "JumpColumns":
        """Return thresholds midway between neighbouring values of raw inputs, evenly spread by
        rank.

        Args:
            X: raw inputs (n, d)
            numeric: positions of the features that are numbers
            most: maximum number of columns
        """
        features: list[Int] = []
        thresholds: list[Float] = []
        for j in numeric.tolist():
            values, counts = np.unique(X[~np.isnan(X[:, j]), j], return_counts=True)
            below = np.cumsum(counts)[:-1]
            inner = np.flatnonzero((below >= LEAST_ROWS) & (below <= len(X) - LEAST_ROWS))
            step = -(-len(inner) // max(most // len(numeric), 1)) or 1
            inner = inner[::step]
            thresholds.append(0.5 * (values[inner] + values[inner + 1]))
            features.append(np.full(len(inner), j))
        columns = np.concatenate([np.zeros(0, dtype=np.int64), *features])
        edges = np.concatenate([np.zeros(0), *thresholds])
        return cls(columns, edges, (X[:, columns] > edges).astype(np.float64))


@dataclass(frozen=True)
class JumpRows:
    """The rows of a search.

    Attributes:
        rows: the process, whose columns include the jumps found so far
        raw: raw inputs of its rows (n, d)
        numeric: positions of the features that are numbers
    """

    rows: ProcessRows
    raw: Float
    numeric: Int

    @classmethod
    def of(cls, rows: ProcessRows, numbers: Int, numeric: Int) -> "JumpRows":
        """Return the rows with these numbers, from which the process was made."""
        raw = rows.sample.rows.gather(np.sort(numbers)).X
        return cls(rows, raw, numeric)

    def with_jumps(self, judge: LeftOutJudge, numbers: Int, known: Jumps) -> "JumpRows":
        """Return the rows with these jumps as columns of the process.

        Args:
            judge: the judge, with the problem without jumps
            numbers: numbers of the rows
            known: the jumps
        """
        problem = with_jumps(judge.problem, known)
        return replace(self, rows=ProcessRows.of(judge.sample, problem, numbers))

    def gains(self, fit: ProcessFit, most: int) -> "Gains | None":
        """Return what jumps gain beside a fit; None if its covariance is not positive definite or
        there are no thresholds."""
        columns = JumpColumns.of(self.raw, self.numeric, most)
        factor = self._factor(fit)
        if factor is None or not len(columns.features):
            return None
        white = solve_triangular(factor, columns.values, lower=True, check_finite=False)
        targets = solve_triangular(factor, self.rows.t[:, 0], lower=True, check_finite=False)
        return Gains(columns, white, (white**2).sum(axis=0), white.T @ targets)

    def left_out(self, fit: ProcessFit) -> Float | None:
        """Return the error (n,) of each row if it is left out (Rasmussen & Williams 2006, eq.
        5.12); None if the covariance is not positive definite."""
        factor = self._factor(fit)
        if factor is None:
            return None
        inverse = lapack.dtrtri(factor, lower=1)[0]
        weights = inverse.T @ (inverse @ self.rows.t[:, 0])
        return np.asarray(weights / (inverse**2).sum(axis=0))

    def weights(self, fit: ProcessFit, count: int) -> Float:
        """Return the posterior mean of the weights of the last ``count`` columns, which are
        jumps."""
        factor = self._factor(fit)
        if factor is None:
            return np.zeros(count)
        solved = lapack.dpotrs(factor, self.rows.t[:, 0], lower=1)[0]
        weights = self.rows.scales * (self.rows.columns.T @ solved)
        return np.asarray(weights[-count:])

    def _factor(self, fit: ProcessFit) -> Float | None:
        values = triangle(fit.kernel, self.rows.X).values
        factor, failed = lapack.dpotrf(self.rows.covariance(values, fit), lower=1, clean=1)
        return None if failed else factor


@dataclass
class Gains:
    """The gains of columns, which are added one by one.

    Attributes:
        columns: the columns
        white: columns times the inverse Cholesky factor of the covariance, (n, m)
        sparsity: s, (m,)
        quality: q, (m,)
    """

    columns: JumpColumns
    white: Float
    sparsity: Float
    quality: Float

    @property
    def nats(self) -> Float:
        """The gain of each column, (m,)."""
        ratio = self.quality**2 / np.maximum(self.sparsity, np.finfo(float).tiny)
        ratio = np.maximum(ratio, 1.0)
        return 0.5 * (ratio - 1.0 - np.log(ratio))

    def best(self, most: int) -> Jumps:
        """Add the best column until none gains enough; return the added ones, at most ``most``."""
        least = float(np.log(len(self.columns.features)))
        places: list[int] = []
        updates: list[tuple[float, Float]] = []
        while len(places) < most:
            nats = self.nats
            place = int(np.argmax(nats))
            if nats[place] <= least:
                break
            places.append(place)
            s = float(self.sparsity[place])
            q = float(self.quality[place])
            variance = (q**2 - s) / s**2
            products = self.white.T @ self.white[:, place]  # cᵀK⁻¹c with the added columns in K
            for factor, before in updates:
                products -= factor * before[place] * before
            factor = variance / (1.0 + variance * s)
            updates.append((factor, products))
            self.sparsity = self.sparsity - factor * products**2
            self.quality = self.quality - factor * q * products
        features = self.columns.features[places].tolist()
        return Jumps(tuple(features), tuple(self.columns.thresholds[places].tolist()))


def first_gain(rows: ProcessRows, numbers: Int, fit: ProcessFit, numeric: Int) -> float:
    """Return the largest gain of a jump in nats.

    Args:
        rows: the rows of a process
        numbers: their numbers (n,)
        fit: the best kernel
        numeric: positions of the features that are numbers
    """
    gains = JumpRows.of(rows, numbers, numeric).gains(fit, FIRST_COLUMNS)
    return 0.0 if gains is None else float(gains.nats.max())


def jumps(judge: LeftOutJudge, order: Int, fit: ProcessFit, numeric: Int) -> JumpSearch | None:
    """Return jumps that clearly lower the error of left-out rows; None if there are none.

    Args:
        judge: holds the left-out rows and the problem without jumps
        order: numbers of all rows in random order (n,)
        fit: the best kernel without jumps
        numeric: positions of the features that are numbers
    """
    judge = replace(judge, residuals=False)
    not_left_out = order[~np.isin(order, judge.new)]
    numbers = not_left_out[:ROWS]
    others = np.sort(not_left_out[ROWS:])
    process = ProcessRows.of(judge.sample, judge.problem, numbers)
    rows = JumpRows.of(process, numbers, numeric)
    plain = climb(rows.rows, replace(fit, pairs=[]), STEPS)
    best = plain
    known = Jumps((), ())
    for _ in range(ROUNDS):
        gains = rows.gains(best, COLUMNS)
        more = None if gains is None else gains.best(MOST_JUMPS - known.size)
        if more is None or not more.size:
            break
        features = known.features + more.features
        known = Jumps(features, known.thresholds + more.thresholds).in_order()
        rows = rows.with_jumps(judge, numbers, known)
        best = climb(rows.rows, replace(best, pairs=[]), STEPS)
        known = moved(rows, best, others, known)
        rows = rows.with_jumps(judge, numbers, known)
    if not known.size:
        return None
    after = replace(judge, problem=rows.rows.problem).losses(best)
    return judged_jumps(known, after, judge.losses(plain))


def judged_jumps(known: Jumps, after: Float, before: Float) -> JumpSearch | None:
    """Return jumps with the figures for the history, or None if they do not clearly lower errors.

    Args:
        known: the jumps
        after: squared errors of left-out rows with them (m,)
        before: squared errors without them (m,)
    """
    if not are_clearly_lower(after, before):
        return None
    facts = {
        "count": known.size,
        "rows": len(after),
        "error": float(np.sqrt(after.mean())),
        "plain_error": float(np.sqrt(before.mean())),
    }
    return JumpSearch(known, facts)


def are_clearly_lower(after: Float, before: Float) -> bool:
    """Return True if squared errors (m,) fall, and absolute errors by ``CLEAR`` standard errors.

    A few large errors that jumps do not explain, such as those of rows with missing values, hide
    any gain in the mean square.
    """
    gain = np.sqrt(before) - np.sqrt(after)
    return bool(after.mean() < before.mean() and gain.mean() > CLEAR * standard_error(gain))


def plain_numbers(problem: Problem) -> Int:
    """Return the positions of the features that are numbers, (k,)."""
    scaling = problem.empty.scaling
    numeric: list[int] = []
    for part, columns in inside(problem.empty.kernel, scaling.n_inputs, RadialKernel | Anova):
        coded = part.categorical if isinstance(part, Anova) else ()
        numeric += [j for place, j in enumerate(columns.tolist()) if place not in coded]
    plain = [j for j in sorted(numeric) if j < scaling.n_features and j not in scaling.embedded]
    return np.array(plain, dtype=np.int64)


def with_jumps(problem: Problem, known: Jumps) -> Problem:
    """Return the problem with these jumps as its basis functions."""
    return problem.with_functions(Basis(((known, known.size),)))


def moved(rows: JumpRows, fit: ProcessFit, others: Int, known: Jumps) -> Jumps:
    """Return the jumps, each moved to the threshold with the smallest squared errors of left-out
    rows, between the thresholds of its neighbours.

    Rows between an old threshold and a new one lose the jump's weight w, or gain it, so that their
    squared errors e² become (e ± w)².

    Args:
        rows: the rows of the process, whose errors are those of leaving one out
        fit: its kernel
        others: numbers of further rows, which the process predicts
        known: the jumps, by feature and threshold
    """
    errors = rows.left_out(fit)
    if errors is None:
        return known
    weights = rows.weights(fit, known.size)
    X = rows.raw
    if len(others):
        process = rows.rows
        further = ProcessRows.of(process.sample, process.problem, others)
        X = np.concatenate([X, process.sample.rows.gather(others).X])
        errors = np.concatenate([errors, process.predicted(fit, further)[0][:, 0]])
    thresholds = list(known.thresholds)
    for k, (j, threshold) in enumerate(zip(known.features, known.thresholds, strict=True)):
        is_same = np.array(known.features) == j
        edges = np.array([-np.inf, *np.array(known.thresholds)[is_same], np.inf])
        lower = edges[edges < threshold].max()
        upper = edges[edges > threshold].min()
        inside = (X[:, j] > lower) & (X[:, j] <= upper)
        thresholds[k] = best_threshold(X[inside, j], errors[inside], weights[k], threshold)
    return Jumps(known.features, tuple(thresholds)).in_order()


def best_threshold(x: Float, errors: Float, weight: float, threshold: float) -> float:
    """Return the threshold with the smallest sum of squared errors; the old one if it is as good.

    Args:
        x: values of the feature (n,)
        errors: with the old threshold (n,)
        weight: the jump's weight w
        threshold: the old threshold
    """
    order = np.argsort(x, kind="stable")
    x = x[order]
    above = x > threshold
    # the change of a row's squared error if the jump moves past it
    changes = weight**2 + np.where(above, 2.0, -2.0) * weight * errors[order]
    # sums over the rows between the old threshold and each row
    right = np.cumsum(np.where(above, changes, 0.0))
    left = np.cumsum(np.where(above, 0.0, changes)[::-1])[::-1]
    rises = np.diff(x) > 0  # a threshold lies between different values
    possible = np.where(above, np.append(rises, False), np.append(False, rises))
    sums = np.where(possible, np.where(above, right, left), 0.0)
    if not len(x) or sums.min() >= 0.0:
        return threshold
    place = int(np.argmin(sums))
    neighbour = place + 1 if above[place] else place - 1
    return float(0.5 * (x[place] + x[neighbour]))
