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

    ``rows`` is None if the fit uses only the rows of its own candidates. ``noise`` is the number of further rows for
    σ². ``sampled`` is True if intermediate fits use a random sample. The sample grows to at least ``per_column`` rows
    per column.
    """

    rows: int | None
    noise: int = 0
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

    ``n_rows`` is the number of all rows. ``rows_used`` describes the rows of intermediate fits, and
    ``candidate_search`` the selection of candidates. ``outputs`` is the number of linear predictors of a
    classification, and 0 for regression. Each row has ``n_kernels`` candidates, and each fit has ``n_leading`` further
    columns. If the noise variance may depend on the inputs, it is fitted to ``local_noise_rows`` rows.
    """

    n_rows: int
    rows_used: RowsUsed
    candidate_search: CandidateSearch
    rates: Rates
    threads: int
    outputs: int = 0
    n_kernels: int = 1
    n_leading: int = 1
    local_noise_rows: int = 0

    @property
    def full(self) -> bool:
        """True if every fit uses all rows."""
        return self.rows_used.rows is not None and self.rows_used.rows >= self.n_rows


def gram_cost(
    work: Work, rows: int, kept: int, new: int, *, fits: int = 1, threads: int = 1, iterations: int = ITERATIONS
) -> RoundCost:
    """Estimate ``fits`` Gram passes over ``rows`` rows, and their dense fits on ``threads`` threads in parallel."""
    rates = work.rates
    if work.outputs:
        return newton_cost(work, rows, kept, new, fits=fits, threads=threads)
    flops = fits * rows * (2.0 * kept * new + new**2)
    elements = fits * rows * (kept + new)
    seconds = (rows * rates.read + elements * rates.element + flops / rates.product) / work.threads
    solve = fits * (iterations * iteration_seconds(work, kept + new) + OVERHEAD) / min(threads, fits)
    return RoundCost(kept, new, fits if rows >= work.n_rows else 0, flops, seconds, solve, fits)


def iteration_seconds(work: Work, columns: int) -> float:
    """Estimate the seconds of one dense iteration: M³ + ``SQUARES`` M² operations for M ``columns``."""
    return float((columns**3 + SQUARES * columns**2) / work.rates.product)


def newton_cost(work: Work, rows: int, kept: int, new: int, *, fits: int = 1, threads: int = 1) -> RoundCost:
    """Estimate ``fits`` classification fits of ``kept`` + ``new`` columns over ``rows`` rows, with their dense updates.

    Columns are pruned during a fit, so an average pass is assumed to have three quarters of them.
    """
    rates, columns = work.rates, 0.75 * (kept + new)
    flops = NEWTON_PASSES * fits * rows * work.outputs * columns**2
    elements = NEWTON_PASSES * fits * rows * columns
    seconds = NEWTON_PASSES * rows * rates.read + elements * rates.element + flops / rates.product
    solve = fits * (2 * NEWTON_PASSES * work.outputs * columns**3 / rates.product + OVERHEAD)
    passes = NEWTON_PASSES * fits if rows >= work.n_rows else 0
    return RoundCost(kept, new, passes, flops, seconds / work.threads, solve, fits)


def fit_cost(
    work: Work, kept: int, candidates: int, *, fits: int = 1, threads: int = 1, iterations: int = ITERATIONS
) -> RoundCost:
    """Estimate ``fits`` intermediate fits, with extended statistics or with all columns over the candidates' rows."""
    columns, rows = kept + candidates, work.rows_used.rows
    if rows is not None:
        rows = min(max(rows, work.rows_used.per_column * columns), work.n_rows)
        return gram_cost(work, rows, kept, candidates, fits=fits, threads=threads, iterations=iterations)
    rows = columns + work.rows_used.noise
    cost = gram_cost(work, rows, 0, columns, fits=fits, threads=threads, iterations=iterations)
    return replace(cost, kept=kept, candidates=candidates)


def search_cost(work: Work, kept: int) -> tuple[float, int]:
    """Estimate the selection of candidates with ``kept`` columns: seconds, and number of passes over all rows."""
    candidate_search, rates = work.candidate_search, work.rates
    rows = work.n_rows if candidate_search.pool else candidate_search.rows
    elements = rows * (kept + candidate_search.pool)
    flops = rows * 2.0 * kept * candidate_search.pool * max(work.outputs, 1)
    seconds = (rows * rates.read + elements * rates.element + flops / rates.product) / work.threads
    return seconds, int(rows >= work.n_rows)


def rounds_cost(work: Work, partition_size: int, rounds: int, stays: float) -> list[RoundCost]:
    """Estimate rounds of ``partition_size`` candidates; the last round uses all rows and converges."""
    costs, kept = [], work.n_leading
    for number in range(rounds):
        cost = fit_cost(work, kept, partition_size)
        if number and work.candidate_search != RANDOM_SEARCH:
            seconds, passes = search_cost(work, kept)
            cost = replace(cost, pass_seconds=cost.pass_seconds + seconds, passes=cost.passes + passes)
        costs.append(cost)
        kept = work.n_leading + int(stays * (kept - work.n_leading + partition_size))
    last = costs[-1]
    if not work.full:
        whole = gram_cost(work, work.n_rows, 0, last.kept + last.candidates)
        last = replace(whole, kept=last.kept, candidates=last.candidates)
    return [*costs[:-1], _settled(work, last, last.kept + last.candidates, kept)]


def levels_cost(work: Work, partition_size: int, stays: float) -> list[RoundCost]:
    """Estimate the levels of split-and-merge and the last fit; of n parts ⌊n/2⌋ pairs are merged on each level."""
    costs: list[RoundCost] = []
    parts = fits = -(-work.n_rows // max(partition_size // work.n_kernels, 1))
    candidates = min(partition_size, work.n_rows * work.n_kernels)
    most = MOST_MERGED * candidates
    while parts > 1:
        cost = fit_cost(work, work.n_leading, candidates, fits=fits, threads=work.threads, iterations=COLD_ITERATIONS)
        costs.append(cost)
        fits, parts = parts // 2, -(-parts // 2)
        candidates = min(max(int(2 * stays * candidates), 1), most)
    last = gram_cost(work, work.n_rows, 0, candidates + work.n_leading)
    last, columns = replace(last, kept=0, candidates=candidates), candidates + work.n_leading
    return [*costs, _settled(work, last, columns, int(stays * candidates))]


def _settled(work: Work, last: RoundCost, columns: int, kept: int) -> RoundCost:
    """Add to ``last`` the cost of convergence, of residuals of all rows, and of leave-one-out errors of some.

    Residuals and leave-one-out errors share one reading of the rows. Each evaluates a block of the ``kept`` columns, of
    at most ``LEFT_OUT_ROWS`` rows: the residuals of more follow from statistics, unless these have lost digits. The
    leave-one-out errors multiply the block by a triangular factor R. With local noise, the log variance is fitted,
    and the kept columns are fitted again.
    """
    if work.outputs:
        return last
    rates = work.rates
    left_out = min(work.n_rows, LEFT_OUT_ROWS)
    residuals = work.n_rows * rates.read + left_out * kept * rates.element
    seconds = (residuals + left_out * (kept * rates.element + 2.0 * kept**2 / rates.product)) / work.threads
    more = (LAST_ITERATIONS - ITERATIONS) * iteration_seconds(work, columns)
    passes = 2 if work.n_rows <= LEFT_OUT_ROWS else 1
    if work.local_noise_rows:
        again = gram_cost(work, work.n_rows, 0, kept)
        more += work.local_noise_rows * NOISE_FLOPS / rates.product
        more += again.solve_seconds + (LAST_ITERATIONS - ITERATIONS) * iteration_seconds(work, kept)
        seconds, passes = 2 * seconds + again.pass_seconds, 2 * passes + again.passes
    return replace(
        last,
        passes=last.passes + passes,
        pass_seconds=last.pass_seconds + seconds,
        solve_seconds=last.solve_seconds + more,
    )
