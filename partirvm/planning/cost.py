"""Floating-point work and seconds of a fit, as closed formulas over measured rates.

Per row, a gram pass of M kept columns and P candidates evaluates M + P kernel elements and multiplies 2MP + P² times;
a residual pass evaluates M elements, a pass for Q columns on trial M + Q elements with 2MQ products; the errors of rows
left out of the last fit come with its residuals, for M elements and 2M² products more; one dense iteration takes
M³ + ``SQUARES`` M² (Cholesky and inverse together). Vectors fall to a fraction of each fit's candidates. With 0.5, as
in the paper's analysis, sets grow P, 1.5P, 1.75P … 2P where rounds add to the vectors kept so far, and stay at P where
pairs are merged.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

NEWTON_PASSES = 25
"""Passes expected in a fit of classes."""

ITERATIONS = 8
"""Dense iterations of all columns to which those of an intermediate fit amount: columns are pruned as it goes."""

LAST_ITERATIONS = 25
"""The same for the last fit, which converges."""

SQUARES = 1500
"""Multiples of M² in the cost of a dense iteration: at M of some hundreds memory and calls take longer than flops."""

OVERHEAD = 5e-3
"""Seconds that a fit takes beside its flops: calls, a gather, a line of history."""

UNLIMITED_ROUNDS = 10
"""Rounds of a working set that an estimate assumes where the user sets no limit."""


@dataclass(frozen=True)
class Rates:
    """What one thread does: seconds to read a row, seconds per kernel element, floating-point operations per second.

    ``copy`` is seconds to copy an element that was kept in memory.
    """

    read: float
    element: float
    product: float
    copy: float = 0.0


@dataclass(frozen=True)
class RoundCost:
    """One round, or the ``fits`` fits of a level: columns kept M, candidates P, passes over all rows, seconds."""

    kept: int
    candidates: int
    passes: int
    gram_flops: float
    pass_seconds: float
    solve_seconds: float
    fits: int = 1


@dataclass(frozen=True)
class Looking:
    """How candidates are found: by the residuals of ``rows`` rows, or a pass for ``pool`` columns on trial."""

    rows: int = 0
    pool: int = 0


@dataclass(frozen=True)
class Seen:
    """Rows that an intermediate fit sees: ``rows`` (None: those of its own candidates), and ``noise`` more for σ².

    ``sampled`` says that they are one random sample, which all intermediate fits see.
    """

    rows: int | None
    noise: int = 0
    sampled: bool = False


NOT_LOOKING = Looking()
"""Candidates at random: nothing to read for them."""


def n_partitions(rows: int, partition_size: int, n_kernels: int) -> int:
    """⌈rows/P⌉, P being the candidates that rows offer with each of their kernels; 1 where they offer none."""
    return -(-rows // max(partition_size // n_kernels, 1)) if n_kernels else 1


@dataclass(frozen=True)
class Work:
    """What all costs of a fit depend on: all rows, those that fits see, how candidates are found, rates, threads.

    ``outputs`` are the linear predictors of a fit of classes, 0 for one of numbers; a row offers ``n_kernels``
    candidates, and every fit has ``n_leading`` columns beside these.
    """

    n_rows: int
    seen: Seen
    looking: Looking
    rates: Rates
    threads: int
    outputs: int = 0
    n_kernels: int = 1
    n_leading: int = 1

    @property
    def full(self) -> bool:
        """Whether every fit sees all rows."""
        return self.seen.rows is not None and self.seen.rows >= self.n_rows


def gram_cost(work: Work, rows: int, kept: int, new: int, *, fits: int = 1, threads: int = 1) -> RoundCost:
    """``fits`` gram passes over ``rows`` rows and the dense fits that follow, ``threads`` of these side by side."""
    rates = work.rates
    if work.outputs:
        return newton_cost(work, rows, kept, new, fits=fits, threads=threads)
    flops = fits * rows * (2.0 * kept * new + new**2)
    elements = fits * rows * (kept + new)
    seconds = (rows * rates.read + elements * rates.element + flops / rates.product) / work.threads
    solve = fits * (ITERATIONS * iteration_seconds(work, kept + new) + OVERHEAD) / min(threads, fits)
    return RoundCost(kept, new, fits if rows >= work.n_rows else 0, flops, seconds, solve, fits)


def iteration_seconds(work: Work, columns: int) -> float:
    """Seconds of one dense iteration over M columns: (M³ + ``SQUARES`` M²) products."""
    return float((columns**3 + SQUARES * columns**2) / work.rates.product)


def newton_cost(work: Work, rows: int, kept: int, new: int, *, fits: int = 1, threads: int = 1) -> RoundCost:
    """``fits`` fits of classes of M + P columns over ``rows`` rows, and their dense updates.

    Columns are pruned as it goes: a pass is expected to see three quarters of them.
    """
    rates, seen = work.rates, 0.75 * (kept + new)
    flops = NEWTON_PASSES * fits * rows * work.outputs * seen**2
    elements = NEWTON_PASSES * fits * rows * seen
    seconds = NEWTON_PASSES * rows * rates.read + elements * rates.element + flops / rates.product
    solve = fits * (2 * NEWTON_PASSES * work.outputs * seen**3 / rates.product + OVERHEAD)
    passes = NEWTON_PASSES * fits if rows >= work.n_rows else 0
    return RoundCost(kept, new, passes, flops, seconds / work.threads, solve, fits)


def fit_cost(work: Work, kept: int, candidates: int, *, fits: int = 1, threads: int = 1) -> RoundCost:
    """``fits`` intermediate fits: an extension of what was kept, or all columns over the candidates' own rows."""
    columns = kept + candidates
    if work.seen.rows is not None:
        return gram_cost(work, work.seen.rows, kept, candidates, fits=fits, threads=threads)
    cost = gram_cost(work, columns + work.seen.noise, 0, columns, fits=fits, threads=threads)
    return replace(cost, kept=kept, candidates=candidates)


def look_cost(work: Work, kept: int) -> tuple[float, int]:
    """Seconds of the look for candidates with M kept columns, and how many passes over all rows it takes."""
    looking, rates = work.looking, work.rates
    rows = work.n_rows if looking.pool else looking.rows
    elements = rows * (kept + looking.pool)
    flops = rows * 2.0 * kept * looking.pool * max(work.outputs, 1)
    seconds = (rows * rates.read + elements * rates.element + flops / rates.product) / work.threads
    return seconds, int(rows >= work.n_rows)


def rounds_cost(work: Work, partition_size: int, rounds: int, stays: float) -> list[RoundCost]:
    """Rounds of P candidates that join what was kept; the last of them sees all rows, and converges."""
    costs, kept = [], work.n_leading
    for number in range(rounds):
        cost = fit_cost(work, kept, partition_size)
        if number and work.looking != NOT_LOOKING:
            seconds, passes = look_cost(work, kept)
            cost = replace(cost, pass_seconds=cost.pass_seconds + seconds, passes=cost.passes + passes)
        costs.append(cost)
        kept = work.n_leading + int(stays * (kept - work.n_leading + partition_size))
    last = costs[-1]
    if not work.full:
        whole = gram_cost(work, work.n_rows, 0, last.kept + last.candidates)
        last = replace(whole, kept=last.kept, candidates=last.candidates)
    return [*costs[:-1], _settled(work, last, last.kept + last.candidates, kept)]


def levels_cost(work: Work, partition_size: int, stop_fraction: float) -> list[RoundCost]:
    """Levels of split-and-merge, and the last fit. An odd part waits a level: of n parts ⌊n/2⌋ pairs are fitted."""
    costs: list[RoundCost] = []
    parts = fits = -(-work.n_rows // max(partition_size // work.n_kernels, 1))
    candidates = min(partition_size, work.n_rows * work.n_kernels)
    while parts > 1:
        costs.append(fit_cost(work, work.n_leading, candidates, fits=fits, threads=work.threads))
        fits, parts = parts // 2, -(-parts // 2)
        candidates = max(int(2 * stop_fraction * candidates), 1)
    last = gram_cost(work, work.n_rows, 0, candidates + work.n_leading)
    last, columns = replace(last, kept=0, candidates=candidates), candidates + work.n_leading
    return [*costs, _settled(work, last, columns, int(stop_fraction * candidates))]


def _settled(work: Work, last: RoundCost, columns: int, kept: int) -> RoundCost:
    """The last fit of ``columns`` columns until it converges, with residuals and leave-one-out errors of all rows.

    These take a block of the ``kept`` columns each, a product with R, and one reading of the rows.
    """
    if work.outputs:
        return last
    rates = work.rates
    seconds = work.n_rows * (rates.read + 2 * kept * rates.element + 2.0 * kept**2 / rates.product) / work.threads
    more = (LAST_ITERATIONS - ITERATIONS) * iteration_seconds(work, columns)
    return replace(
        last,
        passes=last.passes + 2,
        pass_seconds=last.pass_seconds + seconds,
        solve_seconds=last.solve_seconds + more,
    )
