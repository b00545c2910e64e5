"""Floating-point operations and seconds of a fit, as closed formulas of measured rates.

Per row, a Gram pass of M kept columns and P candidates evaluates M + P kernel elements and multiplies 2MP + P² times;
a residual pass evaluates M elements, and a pass for Q columns on trial evaluates M + Q elements with 2MQ products. The
leave-one-out errors of the last fit take M elements and 2M² products in addition to its residuals. One dense iteration
takes M³ + ``SQUARES`` M² operations (Cholesky and inverse together).

The formulas assume that a fit keeps a constant fraction of its candidates. With the fraction 0.5, as in the paper's
analysis, the number of columns grows as P, 1.5P, 1.75P … 2P in rounds. Merged fits keep more, because they converge
before their vectors have fallen to this fraction: ``stays``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from partirvm.planning.memory import DataShape
from partirvm.types import LEFT_OUT_ROWS

NEWTON_PASSES = 12
"""Expected number of passes of a classification fit."""

ITERATIONS = 20
"""Cost of an intermediate fit in dense iterations of all columns; later iterations have fewer columns."""

COLD_ITERATIONS = 35
"""The same of a fit that cannot begin with the α of an earlier fit, as those of split-and-merge."""

LAST_ITERATIONS = 25
"""Cost of the last fit, which converges, in dense iterations of all columns."""

SQUARES = 1500
"""Factor of M² in the cost of a dense iteration: for a few hundred columns, memory access and calls dominate."""

NOISE_FLOPS = 1e7
"""Operations per row in the fit of a noise variance that depends on the inputs.

A row of 64 basis functions takes 64² multiplications in each of a few hundred Newton steps.
"""

OVERHEAD = 5e-3
"""Seconds per fit for calls, gathering rows and a history entry."""

MOST_MERGED = 3
"""Expected largest number of candidates of a merged fit, in partitions."""

LEARNING_FLOPS = (1000.0, 22.0)
"""Operations of an evaluation of kernel learning for each row and centre: constant, and per feature (measured)."""

PROCESS_EVALUATIONS = 500
"""Usual number of evaluations of all searches with an exact process."""

LEARNING_EVALUATIONS = 50
"""Expected number of evaluations of a search that may take more."""

UNLIMITED_ROUNDS = 12
"""Number of working-set rounds that an estimate assumes if ``max_rounds`` is not set."""


@dataclass(frozen=True)
class Rates:
    """Measured rates of one thread.

    ``read`` is seconds per row read, and ``element`` is seconds per kernel element evaluated. ``product`` is
    floating-point operations per second. ``copy`` is seconds to copy a kernel element that was kept in memory.
    """

    read: float
    element: float
    product: float
    copy: float = 0.0


@dataclass(frozen=True)
class RoundCost:
    """The cost of one round, or of a level of ``fits`` fits: columns, candidates, passes over all rows, seconds."""

    kept: int
    candidates: int
    passes: int
    gram_flops: float
    pass_seconds: float
    solve_seconds: float
    fits: int = 1


@dataclass(frozen=True)
class CandidateSearch:
    """How candidates are selected: by the residuals of ``rows`` rows, or by a pass for ``pool`` columns on trial."""

    rows: int = 0
    pool: int = 0


@dataclass(frozen=True)
class RowsUsed:
    """Number of rows that an intermediate fit uses.

    ``sampled`` is True if they are a random sample. The sample grows to at least ``per_column`` rows per column.
    """

    rows: int
    sampled: bool = False
    per_column: int = 0


RANDOM_SEARCH = CandidateSearch()
"""Random selection of candidates, which reads no rows."""


def learning_seconds(
    product: float, rows: int, centres: int, n_features: int, evaluations: int, *, directions: bool, folds: bool
) -> float:
    """Estimate the seconds of kernel learning with one thread of ``product`` operations per second.

    There are two searches for the widths, and one for ``directions``, whose evaluations take twice the operations. In
    each of five ``folds`` the search for the widths is repeated with 100 centres and four fifths of the rows.
    """
    constant, each = LEARNING_FLOPS
    searches = 2.0 + 2.0 * directions
    if folds:
        searches += 5 * 0.8 * min(100 / centres, 1.0) * (1.0 + 2.0 * directions)
    work = searches * min(evaluations, LEARNING_EVALUATIONS) * rows * centres
    return work * (constant + each * n_features) / product


def process_seconds(product: float, rows: int, n_features: int) -> float:
    """Estimate the seconds of the searches with an exact process of ``rows`` rows (``learning.process_search``).

    An evaluation is a Cholesky factor and its inverse, 2 n³ operations, and slopes like those of ``learning_seconds``.
    """
    constant, each = LEARNING_FLOPS
    return PROCESS_EVALUATIONS * (2.0 * rows**3 + rows**2 * (constant + each * n_features)) / product


def n_partitions(rows: int, partition_size: int, n_kernels: int) -> int:
    """Return ⌈rows · n_kernels / partition_size⌉, the number of partitions; 1 without a kernel."""
    return -(-rows // max(partition_size // n_kernels, 1)) if n_kernels else 1


@dataclass(frozen=True)
class Work:
    """Quantities on which all costs of a fit depend.

    ``rows_used`` describes the rows of intermediate fits, and ``candidate_search`` the selection of candidates.
    ``threads`` are those of all workers together.
    """

    shape: DataShape
    rows_used: RowsUsed
    candidate_search: CandidateSearch
    rates: Rates
    threads: int

    @property
    def full(self) -> bool:
        """True if every fit uses all rows."""
        return self.rows_used.rows >= self.shape.n_rows

    def pass_seconds(self, rows: float, elements: float, flops: float) -> float:
        """Estimate the seconds to read rows, evaluate kernel elements and multiply, on all threads."""
        rates = self.rates
        return (rows * rates.read + elements * rates.element + flops / rates.product) / self.threads

    def iteration_seconds(self, columns: int) -> float:
        """Estimate the seconds of one dense iteration: M³ + ``SQUARES`` M² operations for M ``columns``."""
        return float((columns**3 + SQUARES * columns**2) / self.rates.product)


def gram_cost(
    work: Work, rows: int, kept: int, new: int, *, fits: int = 1, threads: int = 1, iterations: int = ITERATIONS
) -> RoundCost:
    """Estimate ``fits`` Gram passes over ``rows`` rows, and their dense fits on ``threads`` threads in parallel.

    A classification fit takes several passes over all columns. Columns are pruned during the fit, so an average pass is
    assumed to have three quarters of them.
    """
    passes = fits if rows >= work.shape.n_rows else 0
    if work.shape.classes:
        outputs, columns, count = work.shape.n_outputs, 0.75 * (kept + new), NEWTON_PASSES * fits
        flops = count * rows * outputs * columns**2
        seconds = work.pass_seconds(NEWTON_PASSES * rows, count * rows * columns, flops)
        solve = fits * (2 * NEWTON_PASSES * outputs * columns**3 / work.rates.product + OVERHEAD)
        return RoundCost(kept, new, NEWTON_PASSES * passes, flops, seconds, solve, fits)
    flops = fits * rows * (2.0 * kept * new + new**2)
    seconds = work.pass_seconds(rows, fits * rows * (kept + new), flops)
    solve = fits * (iterations * work.iteration_seconds(kept + new) + OVERHEAD) / min(threads, fits)
    return RoundCost(kept, new, passes, flops, seconds, solve, fits)


def fit_cost(
    work: Work, kept: int, candidates: int, *, fits: int = 1, threads: int = 1, iterations: int = ITERATIONS
) -> RoundCost:
    """Estimate ``fits`` intermediate fits with extended statistics."""
    rows = max(work.rows_used.rows, work.rows_used.per_column * (kept + candidates))
    rows = min(rows, work.shape.n_rows)
    return gram_cost(work, rows, kept, candidates, fits=fits, threads=threads, iterations=iterations)


def search_cost(work: Work, kept: int) -> tuple[float, int]:
    """Estimate the selection of candidates with ``kept`` columns: seconds, and number of passes over all rows."""
    pool, n_rows = work.candidate_search.pool, work.shape.n_rows
    rows = n_rows if pool else work.candidate_search.rows
    outputs = work.shape.n_outputs if work.shape.classes else 1
    return work.pass_seconds(rows, rows * (kept + pool), rows * 2.0 * kept * pool * outputs), int(rows >= n_rows)


def rounds_cost(work: Work, partition_size: int, rounds: int, stays: float) -> list[RoundCost]:
    """Estimate rounds of ``partition_size`` candidates; the last round uses all rows and converges."""
    costs, lead = [], work.shape.n_leading
    kept = lead
    for number in range(rounds):
        cost = fit_cost(work, kept, partition_size)
        if number and work.candidate_search != RANDOM_SEARCH:
            seconds, passes = search_cost(work, kept)
            cost = replace(cost, pass_seconds=cost.pass_seconds + seconds, passes=cost.passes + passes)
        costs.append(cost)
        kept = lead + int(stays * (kept - lead + partition_size))
    last = costs[-1]
    if not work.full:
        whole = gram_cost(work, work.shape.n_rows, 0, last.kept + last.candidates)
        last = replace(whole, kept=last.kept, candidates=last.candidates)
    return [*costs[:-1], _settled(work, last, last.kept + last.candidates, kept)]


def levels_cost(work: Work, partition_size: int, stays: float) -> list[RoundCost]:
    """Estimate the levels of split-and-merge and the last fit; of n parts ⌊n/2⌋ pairs are merged on each level."""
    costs: list[RoundCost] = []
    shape, threads = work.shape, work.threads
    parts = fits = -(-shape.n_rows // max(partition_size // shape.n_kernels, 1))
    candidates = min(partition_size, shape.n_candidates)
    most = MOST_MERGED * candidates
    while parts > 1:
        costs.append(
            fit_cost(work, shape.n_leading, candidates, fits=fits, threads=threads, iterations=COLD_ITERATIONS)
        )
        fits, parts = parts // 2, -(-parts // 2)
        candidates = min(max(int(2 * stays * candidates), 1), most)
    columns = candidates + shape.n_leading
    last = replace(gram_cost(work, shape.n_rows, 0, columns), candidates=candidates)
    return [*costs, _settled(work, last, columns, int(stays * candidates))]


def _settled(work: Work, last: RoundCost, columns: int, kept: int) -> RoundCost:
    """Add to ``last`` the cost of convergence, of residuals of all rows, and of leave-one-out errors of some.

    Residuals and leave-one-out errors share one reading of the rows. Each evaluates a block of the ``kept`` columns, of
    at most ``LEFT_OUT_ROWS`` rows: the residuals of more follow from statistics, unless these have lost digits. The
    leave-one-out errors multiply the block by a triangular factor R. With local noise, the log variance is fitted,
    and the kept columns are fitted again.
    """
    if work.shape.classes:
        return last
    left_out = min(work.shape.n_rows, LEFT_OUT_ROWS)
    seconds = work.pass_seconds(work.shape.n_rows, 2 * left_out * kept, left_out * 2.0 * kept**2)
    more = (LAST_ITERATIONS - ITERATIONS) * work.iteration_seconds(columns)
    passes = 2 if work.shape.n_rows <= LEFT_OUT_ROWS else 1
    if work.shape.local_noise_rows:
        again = gram_cost(work, work.shape.n_rows, 0, kept)
        more += work.shape.local_noise_rows * NOISE_FLOPS / work.rates.product
        more += again.solve_seconds + (LAST_ITERATIONS - ITERATIONS) * work.iteration_seconds(kept)
        seconds, passes = 2 * seconds + again.pass_seconds, 2 * passes + again.passes
    return replace(
        last,
        passes=last.passes + passes,
        pass_seconds=last.pass_seconds + seconds,
        solve_seconds=last.solve_seconds + more,
    )
