"""Strategy schedules, and closed formulas for their run times from measured rates.

Per row, a Gram pass over M kept columns and P candidates evaluates M + P kernel elements and takes
2MP + P² products; a residual pass evaluates M elements, and a pass for Q trial columns evaluates M
+ Q elements with 2MQ products. The leave-one-out errors of the last fit take M elements and 2M²
products on top of its residuals. One dense iteration takes M³ + ``SQUARES`` M² operations (Cholesky
and inverse together).

The formulas assume that a fit keeps a constant fraction of its candidates. With a fraction of 0.5,
as in the paper's analysis, the number of columns grows from round to round as P, 1.5P, 1.75P … 2P.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from partirvm.planning.memory import DataShape
from partirvm.quoting import counted
from partirvm.types import COMPARED_ROWS, LEFT_OUT_ROWS, RESIDUAL_ROWS, RESIDUAL_TARGETS

NEWTON_PASSES = 12
"""Expected number of passes of a classification fit."""

ITERATIONS = 20
"""Dense iterations over all columns of a fit."""

IN_ROUNDS = 3
"""Dense iterations over all columns of a round."""

STARTS = 4e9
"""Operations for the last fit's starts."""

SQUARES = 1500
"""Factor of M² in the cost of a dense iteration: with a few hundred columns, memory access and
calls dominate."""

OVERHEAD = 5e-3
"""Seconds per fit for calls, gathering rows and the history entry."""

TRIALS = 1e10
"""Operations for trying a target's local residuals."""

TAKEN = 8e10
"""Operations for learning a target's local residuals."""

OFTEN = 16_384
"""Number of rows from which local residuals are usually learned."""

COMPARISON = 3e10
"""Operations equivalent to a comparison with boosted trees, including their import."""

COMPARED_ROW = 1e6
"""Operations per row of a comparison with boosted trees."""

BOOSTED = 3e4
"""Operations per row, round and output of boosting beside a fit, with 8 features and in all folds:
20 s for 400 rounds of 60,000 rows, 78 s for three classes."""

BOOSTED_FEATURES = 8
"""Number of features that take as long as everything else in a round."""

CORRECTED = 360_000
"""Neighbours per second and thread at which rows are corrected: 6,000 rows with 60 neighbours, or
12,000 with 30."""


def tries_residuals(residual: str, n_rows: int, n_targets: int) -> bool:
    """Return whether a fit tries local residuals: with few rows or many targets, only on
    request."""
    return residual == "local" or (
        residual == "auto" and n_rows >= RESIDUAL_ROWS and n_targets <= RESIDUAL_TARGETS
    )


def comparison_operations(n_rows: int) -> float:
    """Return the number of operations of a comparison with boosted trees on ``n_rows`` rows."""
    return COMPARISON + COMPARED_ROW * min(n_rows, COMPARED_ROWS[1])


def boosted_outputs(shape: DataShape) -> int:
    """Return the number of outputs of boosted trees: one for two classes."""
    return shape.n_targets if shape.n_classes < 3 else shape.n_classes


def boosting_operations(shape: DataShape, rows: int, rounds: int) -> float:
    """Return the number of operations of boosted trees beside a fit.

    Args:
        shape: the sizes of the data
        rows: the number of rows from which the trees learn
        rounds: the maximum number of rounds
    """
    per_round = 0.5 * BOOSTED * (1.0 + shape.n_features / BOOSTED_FEATURES)
    return per_round * rows * rounds * boosted_outputs(shape)


@dataclass(frozen=True)
class Rates:
    """Measured rates of one thread.

    Attributes:
        read: seconds to read a row.
        element: seconds to evaluate a kernel element.
        product: floating-point operations per second.
    """

    read: float
    element: float
    product: float


@dataclass(frozen=True)
class RoundCost:
    """The cost of one round, or of a level of fits.

    Attributes:
        columns: the number of columns of a fit.
        passes: the number of passes over all rows.
        pass_seconds: seconds of the passes.
        solve_seconds: seconds of the dense fits.
    """

    columns: int
    passes: int
    pass_seconds: float
    solve_seconds: float

    def __add__(self, more: "RoundCost") -> "RoundCost":
        seconds = self.pass_seconds + more.pass_seconds, self.solve_seconds + more.solve_seconds
        return RoundCost(max(self.columns, more.columns), self.passes + more.passes, *seconds)


@dataclass(frozen=True)
class RowsRead:
    """The rows that intermediate fits read.

    Candidates are selected by the residuals of ``searched`` rows, by a pass for ``pool`` trial
    columns, or at random.

    Attributes:
        rows: the number of rows of a fit.
        sampled: True if the rows are a random sample.
        per_column: the minimum number of rows per column to which the sample grows.
        searched: the number of rows whose residuals select candidates.
        pool: the number of trial columns.
    """

    rows: int
    sampled: bool = False
    per_column: int = 0
    searched: int = 0
    pool: int = 0


def n_partitions(rows: int, partition_size: int, n_kernels: int) -> int:
    """Return ⌈rows · n_kernels / partition_size⌉, the number of partitions; 1 without a kernel."""
    return -(-rows // max(partition_size // n_kernels, 1)) if n_kernels else 1


@dataclass(frozen=True)
class Work:
    """The inputs of all cost formulas.

    Attributes:
        shape: the sizes of the data.
        read: the rows that intermediate fits read.
        rates: measured rates of one thread.
        threads: the total number of threads of all processes.
        residuals: True if local residuals are tried.
        compared: True if the model is compared with boosted trees.
        settled: True if a last fit ends with passes for its residuals and left-out errors.
        boosted: operations of boosted trees beside the fit.
    """

    shape: DataShape
    read: RowsRead
    rates: Rates
    threads: int
    residuals: bool = False
    compared: bool = False
    settled: bool = True
    boosted: float = 0.0

    def pass_seconds(self, rows: float, elements: float, flops: float) -> float:
        """Estimate the seconds to read rows, evaluate kernel elements and multiply, on all
        threads."""
        rates = self.rates
        return (rows * rates.read + elements * rates.element + flops / rates.product) / self.threads


def gram_cost(
    work: Work,
    rows: int,
    kept: int,
    new: int,
    *,
    fits: int = 1,
    threads: int = 1,
    iterations: int = ITERATIONS,
) -> RoundCost:
    """Estimate the cost of ``fits`` Gram passes over ``rows`` rows, and their dense fits on
    ``threads`` threads in parallel.

    Args:
        work: the inputs of all cost formulas.
        rows: the number of rows of a pass.
        kept: M, the number of kept columns.
        new: P, the number of new columns.
        fits: the number of fits.
        threads: the number of dense fits in parallel.
        iterations: dense iterations over all columns of a fit.
    """
    shape = work.shape
    total = kept + new
    columns = float(total)
    readings = 1
    count = fits
    products = 2.0 * kept * new + new**2
    solve = float(iterations * (total**3 + SQUARES * total**2))
    if shape.newton:
        # columns are pruned: an average pass is assumed to compute 3/4 of them
        columns = 0.75 * total
        readings = NEWTON_PASSES
        count = NEWTON_PASSES * fits
        threads = 1
        products = shape.n_outputs * columns**2
        solve = 2 * NEWTON_PASSES * shape.n_outputs * columns**3
    seconds = work.pass_seconds(readings * rows, count * rows * columns, count * rows * products)
    passes = count if rows >= shape.n_rows else 0
    return RoundCost(
        total, passes, seconds, fits * (solve / work.rates.product + OVERHEAD) / min(threads, fits)
    )


def fit_cost(work: Work, kept: int, candidates: int, **options: int) -> RoundCost:
    """Estimate the cost of intermediate fits with extended statistics; ``options`` are further
    arguments of ``gram_cost``."""
    rows = max(work.read.rows, work.read.per_column * (kept + candidates))
    return gram_cost(work, min(rows, work.shape.n_rows), kept, candidates, **options)


def search_cost(work: Work, kept: int) -> RoundCost:
    """Estimate the cost of selecting candidates with ``kept`` columns."""
    pool = work.read.pool
    n_rows = work.shape.n_rows
    rows = n_rows if pool else work.read.searched
    seconds = work.pass_seconds(rows, rows * (kept + pool), rows * 2.0 * kept * pool)
    return RoundCost(kept, int(rows >= n_rows), seconds, 0.0)


def rounds_cost(work: Work, partition_size: int, rounds: int, stays: float) -> list[RoundCost]:
    """Estimate the cost of rounds of ``partition_size`` candidates; the last round uses all rows
    and converges.

    Args:
        work: the inputs of all cost formulas.
        partition_size: the number of candidates of a round.
        rounds: the number of rounds.
        stays: the fraction of the candidates that become vectors.
    """
    costs = []
    lead = work.shape.n_leading
    kept = work.shape.n_leading
    n_rows = work.shape.n_rows
    for number in range(rounds):
        cost = fit_cost(work, kept, partition_size, iterations=IN_ROUNDS)
        costs.append(cost + search_cost(work, kept) if number else cost)
        kept = lead + int(stays * (kept - lead + partition_size))
    last = costs.pop()
    sampled = work.read.rows < n_rows
    # after its candidates have joined, the last fit takes as many iterations as a single fit
    if sampled or not work.shape.newton:
        last += gram_cost(work, n_rows if sampled else 0, 0, kept)
    return [*costs, _settled(work, last, kept)]


def levels_cost(work: Work, partition_size: int, stays: float) -> list[RoundCost]:
    """Estimate the cost of the levels of split-and-merge and of the last fit; on each level, n
    parts are merged into ⌊n/2⌋ pairs."""
    costs = list[RoundCost]()
    shape = work.shape
    threads = work.threads
    parts = fits = n_partitions(shape.n_rows, partition_size, shape.n_kernels)
    candidates = min(partition_size, shape.n_candidates)
    max_candidates = 3 * candidates  # more are not expected in a merged fit
    while parts > 1:
        costs.append(fit_cost(work, shape.n_leading, candidates, fits=fits, threads=threads))
        fits = parts // 2
        parts = -(-parts // 2)
        candidates = min(max(int(2 * stays * candidates), 1), max_candidates)
    last = gram_cost(work, shape.n_rows, 0, candidates + shape.n_leading)
    return [*costs, _settled(work, last, int(stays * candidates))]


def _settled(work: Work, last: RoundCost, kept: int) -> RoundCost:
    """Add to ``last`` the cost of residuals and leave-one-out errors, which share one reading of
    the rows, and of later steps.

    With local noise, the log variance is fitted, and then the kept columns are fitted again.
    """
    compared = work.compared * comparison_operations(work.shape.n_rows) + work.boosted
    compared /= work.rates.product
    if not work.settled:
        return last + RoundCost(kept, 0, 0.0, compared)
    n_rows = work.shape.n_rows
    left_out = min(work.shape.n_rows, LEFT_OUT_ROWS)
    seconds = work.pass_seconds(n_rows, max(n_rows, 2 * left_out) * kept, left_out * 2.0 * kept**2)
    dense = (
        STARTS
        + work.residuals * (TRIALS + TAKEN * min(n_rows / OFTEN, 1.0) ** 1.5) * work.shape.n_targets
    )
    settled = RoundCost(
        kept, 2 if n_rows <= LEFT_OUT_ROWS else 1, seconds, dense / work.rates.product + compared
    )
    if noise_rows := work.shape.local_noise_rows:
        # with 64 columns, about 300 updates of the precisions and their Newton steps take 4e6
        # operations per row
        again = replace(settled, solve_seconds=noise_rows * 4e6 / work.rates.product)
        settled += again + gram_cost(work, n_rows, 0, kept)
    return last + settled


@dataclass(frozen=True)
class Schedule:
    """The schedule of a strategy; by default, rounds whose candidates join the vectors kept so far.

    Attributes:
        name: the name of the strategy.
        one_fit: True if all rows are candidates of a single fit.
        merges: True if partitions are fitted in parallel and merged in pairs.
        selects: True if ``selection`` chooses candidates among all rows; otherwise every row joins
            once.
    """

    name: str
    one_fit: bool = False
    merges: bool = False
    selects: bool = False

    @property
    def has_rounds(self) -> bool:
        """True if candidates join in rounds, which extend the statistics of the kept columns."""
        return not (self.one_fit or self.merges)

    def candidates(self, partition_size: int, max_vectors: int | None, n_candidates: int) -> int:
        """Return the number of candidates per fit; complete partitions take at most half of
        ``max_vectors``."""
        bound = max(max_vectors // (1 if self.selects else 2), 1) if max_vectors else partition_size
        return n_candidates if self.one_fit else min(n_candidates, partition_size, bound)

    def costs(
        self, work: Work, candidates: int, stop: float, max_rounds: int | None, joining: int
    ) -> list[RoundCost]:
        """Estimate the cost of each round or level for ``joining`` rows that have yet to join; the
        last element is the last fit.

        Fits may converge before their vectors fall to the fraction ``stop`` of the candidates: on
        kin40k and etopo20, they kept about the mean of this fraction and 1. Without ``max_rounds``,
        8 working-set rounds are assumed, or 2 if local residuals are tried, since more vectors then
        gain little.

        Args:
            work: the inputs of all cost formulas.
            candidates: the number of candidates of a fit.
            stop: the fraction of the candidates at which intermediate fits end.
            max_rounds: the maximum number of rounds, if any.
            joining: the number of rows that have yet to join.
        """
        stays = 0.5 * (1.0 + stop)
        if self.merges:
            return levels_cost(work, candidates, stays)
        rounds = n_partitions(joining, candidates, work.shape.n_kernels)
        if max_rounds is not None or self.selects:
            rounds = min(rounds, (2 if work.residuals else 8) if max_rounds is None else max_rounds)
        return rounds_cost(work, candidates, max(rounds, 1), stays)

    def text(self, plan: Mapping[str, Any]) -> str:
        """Describe how candidates join, from a plan's JSON, for plans and reports."""
        max_rounds = plan["max_rounds"]
        rounds = "until more rows improve the fit too little"
        if self.one_fit:
            return "one, with all rows" if plan["partition_size"] else "one, with basis functions"
        if self.selects:
            rounds = rounds if max_rounds is None else f"up to {counted(max_rounds, 'round')}"
            size = plan["partition_size"]
            return f"each tries {size:,} more rows as relevance vectors, {rounds}"
        partitions = (
            f"{counted(plan['partitions'], 'partition')} of "
            f"{counted(plan['partition_size'], 'candidate')}"
        )
        if self.merges:
            levels = plan["rounds"] - 1
            return partitions + (f", merged on {counted(levels, 'level')}" if levels > 0 else "")
        return f"{partitions} in order" + (
            f", at most {max_rounds:,} of them" if max_rounds is not None else ""
        )
